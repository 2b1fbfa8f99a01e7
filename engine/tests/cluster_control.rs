//! The control connections: who is let in, who is turned away and why, what strangers can do
//! (nothing), and how a loss is noticed.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use isochrone_engine::cluster::{
    Fingerprint, Hub, Link, LinkEvent, LostReason, MESSAGE_BYTES_MAX, Member, Secret,
};
use isochrone_engine::{Error, ErrorKind};
use isochrone_persistence::ids::JobName;
use support::{SOON, again, events, is_alive, member, role};

/// A hub and its one peer, connected, with their timeouts.
fn pair(hub_ms: u64, peer_ms: u64) -> (Link, Link, Receivers) {
    let timed = |process, ms| {
        let heartbeat_timeout = Duration::from_millis(ms);
        Member { heartbeat_timeout, ..member(process, 2) }
    };
    let hub = Hub::bind("127.0.0.1:0").unwrap();
    let address = hub.address();
    let (hub_events, at_hub) = events();
    let (peer_events, at_peer) = events();
    let peer =
        thread::spawn(move || Link::join(address, &timed(1, peer_ms), SOON, &peer_events).unwrap());
    let mut links = hub.gather(&timed(0, hub_ms), SOON, &hub_events).unwrap();
    (links.remove(0), peer.join().unwrap(), Receivers { at_hub, at_peer })
}

struct Receivers {
    at_hub: crossbeam_channel::Receiver<LinkEvent>,
    at_peer: crossbeam_channel::Receiver<LinkEvent>,
}

/// Gathers one good peer while `disturb` has its way with the port.
fn gathers_in_spite_of(disturb: impl FnOnce(SocketAddr)) {
    let hub = Hub::bind("127.0.0.1:0").unwrap();
    let address = hub.address();
    let (sender, _receiver) = events();
    let at_peer = sender.clone();
    thread::scope(|scope| {
        let gather = scope.spawn(|| hub.gather(&member(0, 2), SOON, &sender));
        disturb(address);
        let peer = Link::join(address, &member(1, 2), SOON, &at_peer).unwrap();
        assert_eq!(peer.process(), 0);
        let links = gather.join().unwrap().unwrap();
        assert_eq!(links.iter().map(Link::process).collect::<Vec<_>>(), [1]);
    });
}

/// What a peer hears that the hub must turn away; the hub then still takes the right one.
fn refused(wrong: Member) -> Error {
    let mut heard = None;
    gathers_in_spite_of(|address| {
        let (sender, _receiver) = events();
        heard = Some(Link::join(address, &wrong, SOON, &sender).unwrap_err());
    });
    heard.unwrap()
}

#[test]
fn messages_arrive_in_order_in_both_directions() {
    let (hub, peer, receivers) = pair(5000, 5000);
    for number in 0..500_u32 {
        hub.send(&number.to_le_bytes()).unwrap();
        peer.send(&number.to_be_bytes()).unwrap();
    }
    for number in 0..500_u32 {
        let bytes = number.to_le_bytes().to_vec();
        assert_eq!(
            receivers.at_peer.recv_timeout(SOON),
            Ok(LinkEvent::Frame { process: 0, bytes })
        );
        let bytes = number.to_be_bytes().to_vec();
        assert_eq!(receivers.at_hub.recv_timeout(SOON), Ok(LinkEvent::Frame { process: 1, bytes }));
    }
}

#[test]
fn the_longest_message_passes_and_a_longer_one_is_refused() {
    let (hub, _peer, receivers) = pair(20_000, 20_000);
    hub.send(&vec![7; MESSAGE_BYTES_MAX]).unwrap();
    let Ok(LinkEvent::Frame { bytes, .. }) = receivers.at_peer.recv_timeout(SOON) else { panic!() };
    assert!(bytes.len() == MESSAGE_BYTES_MAX && bytes.iter().all(|byte| *byte == 7));
    let error = hub.send(&vec![7; MESSAGE_BYTES_MAX + 1]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[test]
fn gathers_many_processes_in_order_whoever_comes_first() {
    let hub = Hub::bind("127.0.0.1:0").unwrap();
    let address = hub.address();
    let (sender, _receiver) = events();
    thread::scope(|scope| {
        let joins: Vec<_> = [3, 1, 4, 2]
            .map(|process| {
                let sender = sender.clone();
                scope
                    .spawn(move || Link::join(address, &member(process, 5), SOON, &sender).unwrap())
            })
            .into_iter()
            .collect();
        let links = hub.gather(&member(0, 5), SOON, &sender).unwrap();
        assert_eq!(links.iter().map(Link::process).collect::<Vec<_>>(), [1, 2, 3, 4]);
        joins.into_iter().for_each(|join| drop(join.join().unwrap()));
    });
}

#[test]
fn another_secret_is_refused_and_never_shown() {
    let secret = Secret::new("some other secret").unwrap();
    let error = refused(Member { secret, ..member(1, 2) });
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.report().contains("shared secret"), "{}", error.report());
    assert!(!error.report().contains("other secret"), "{}", error.report());
}

#[test]
fn no_secret_is_another_secret() {
    let error = refused(Member { secret: Secret::open(), ..member(1, 2) });
    assert!(error.report().contains("shared secret"), "{}", error.report());
}

#[test]
fn another_job_is_refused_naming_both() {
    let error = refused(Member { job: JobName::new("fraud").unwrap(), ..member(1, 2) });
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let report = error.report();
    assert!(report.contains("`risk`") && report.contains("`fraud`"), "{report}");
}

#[test]
fn other_settings_are_refused_naming_both_fingerprints() {
    let fingerprint = Fingerprint::of(b"other settings");
    let report = refused(Member { fingerprint, ..member(1, 2) }).report();
    let ours = member(0, 2).fingerprint.to_string();
    assert!(report.contains(&ours) && report.contains(&fingerprint.to_string()), "{report}");
}

#[test]
fn another_number_of_workers_or_processes_is_refused() {
    let report = refused(Member { workers: 3, ..member(1, 2) }).report();
    assert!(report.contains("`--workers` differs: process 0 has 2, process 1 has 3"), "{report}");
    let report = refused(member(1, 3)).report();
    assert!(report.contains("number of processes differs"), "{report}");
}

#[test]
fn an_index_outside_the_set_is_refused() {
    for process in [0, 2, u32::MAX] {
        let report = refused(Member { process, ..member(1, 2) }).report();
        assert!(report.contains(&format!("index {process} cannot join")), "{report}");
    }
}

#[test]
fn a_second_process_of_the_same_index_is_refused_while_the_first_waits() {
    let hub = Hub::bind("127.0.0.1:0").unwrap();
    let address = hub.address();
    let (sender, _receiver) = events();
    thread::scope(|scope| {
        let gather = scope.spawn(|| hub.gather(&member(0, 3), SOON, &sender));
        let first = scope.spawn(|| Link::join(address, &member(1, 3), SOON, &sender));
        // In the first tries the second may be there before the first; it gives way then.
        let turned_away = support::eventually(|| {
            support::pause(100);
            let short = Duration::from_millis(300);
            let error = Link::join(address, &member(1, 3), short, &sender).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            error.report().contains("process 1 has joined already")
        });
        assert!(turned_away);
        let third = Link::join(address, &member(2, 3), SOON, &sender).unwrap();
        first.join().unwrap().unwrap();
        drop(third);
        assert_eq!(gather.join().unwrap().unwrap().len(), 2);
    });
}

#[test]
fn a_process_that_dies_while_it_waits_may_come_again() {
    let hub = Hub::bind("127.0.0.1:0").unwrap();
    let address = hub.address();
    let (sender, _receiver) = events();
    thread::scope(|scope| {
        let gather = scope.spawn(|| hub.gather(&member(0, 3), SOON, &sender));
        let short = Duration::from_millis(300);
        Link::join(address, &member(1, 3), short, &sender).unwrap_err();
        let again = scope.spawn(|| Link::join(address, &member(1, 3), SOON, &sender));
        let other = Link::join(address, &member(2, 3), SOON, &sender).unwrap();
        again.join().unwrap().unwrap();
        drop(other);
        assert_eq!(gather.join().unwrap().unwrap().len(), 2);
    });
}

#[test]
fn the_hub_names_who_is_missing_and_the_last_refusal() {
    let hub = Hub::bind("127.0.0.1:0").unwrap();
    let address = hub.address();
    let (sender, _receiver) = events();
    let time = Duration::from_secs(2);
    thread::scope(|scope| {
        let gather = scope.spawn(|| hub.gather(&member(0, 4), time, &sender));
        let wrong = Member { workers: 9, ..member(3, 4) };
        Link::join(address, &wrong, SOON, &sender).unwrap_err();
        let error = gather.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let text = error.to_string();
        assert!(text.contains("process 1, 2, 3 did not join within 2s"), "{text}");
        assert!(text.contains("`--workers` differs"), "{text}");
    });
}

#[test]
fn joining_waits_for_the_hub_to_come_up_and_gives_up_in_time() {
    let address = support::free_address();
    let (sender, _receiver) = events();
    let error =
        Link::join(address, &member(1, 2), Duration::from_millis(200), &sender).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    thread::scope(|scope| {
        let join = scope.spawn(|| Link::join(address, &member(1, 2), SOON, &sender));
        support::pause(150);
        let hub = Hub::bind(address).unwrap();
        assert_eq!(hub.gather(&member(0, 2), SOON, &sender).unwrap().len(), 1);
        join.join().unwrap().unwrap();
    });
}

#[test]
fn addresses_that_others_can_reach_need_a_secret() {
    let (sender, _receiver) = events();
    let open = Member { secret: Secret::open(), ..member(0, 2) };
    let hub = Hub::bind("0.0.0.0:0").unwrap();
    let error = hub.gather(&open, SOON, &sender).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("ISOCHRONE_SECRET"), "{error}");
}

#[test]
fn connections_that_close_at_once_do_no_harm() {
    gathers_in_spite_of(|address| {
        (0..50).for_each(|_| drop(TcpStream::connect(address).unwrap()));
    });
}

#[test]
fn garbage_does_no_harm_and_is_dropped() {
    gathers_in_spite_of(|address| {
        let request = b"GET / HTTP/1.1\r\nHost: hub\r\n\r\n".to_vec();
        for garbage in [request, vec![0; 8], vec![0xff; 100_000], b"ISOCHRON".repeat(20)] {
            let mut stream = TcpStream::connect(address).unwrap();
            let _may_be_closed = stream.write_all(&garbage);
            stream.set_read_timeout(Some(SOON)).unwrap();
            let mut answer = Vec::new();
            let _may_be_reset = stream.read_to_end(&mut answer);
            assert!(answer.len() <= 43, "an answer of {} bytes to garbage", answer.len());
        }
    });
}

/// Of the protocol between processes.
const VERSION: u16 = 2;

/// Magic, version, purpose "control", a nonce: the layout that every version keeps.
fn greeting(version: u16) -> Vec<u8> {
    let mut bytes = b"ISOCHRON".to_vec();
    bytes.extend_from_slice(&version.to_le_bytes());
    bytes.push(1);
    bytes.extend_from_slice(&[9; 32]);
    bytes
}

#[test]
fn half_a_greeting_then_silence_does_not_hold_up_the_good_one() {
    let mut held = Vec::new();
    gathers_in_spite_of(|address| {
        for length in [1, 8, 20, 43] {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(&greeting(VERSION)[..length]).unwrap();
            held.push(stream);
        }
    });
}

#[test]
fn more_strangers_than_may_knock_at_once_only_delay_the_good_one() {
    let mut held = Vec::new();
    gathers_in_spite_of(|address| {
        held.extend((0..150).map(|_| TcpStream::connect(address).unwrap()));
    });
}

#[test]
fn a_gigabyte_announced_is_dropped_at_once() {
    gathers_in_spite_of(|address| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(&greeting(VERSION)).unwrap();
        let mut answer = [0; 43];
        stream.read_exact(&mut answer).unwrap();
        let mut claim = (1_u32 << 30).to_le_bytes().to_vec();
        claim.extend_from_slice(&[1; 100]);
        stream.write_all(&claim).unwrap();
        // Less than who says nothing more may stay.
        stream.set_read_timeout(Some(Duration::from_secs(4))).unwrap();
        let closed = match stream.read(&mut answer) {
            Ok(length) => length == 0,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        };
        assert!(closed, "the connection stayed open");
    });
}

#[test]
fn a_proof_that_was_seen_is_worth_nothing_later() {
    // A listener in the middle records what a good peer says, and says it again to the hub.
    let middle = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, (sender, _receiver)) = (middle.local_addr().unwrap(), events());
    let short = Duration::from_secs(2);
    let peer = thread::spawn(move || drop(Link::join(address, &member(1, 2), short, &sender)));
    let (mut victim, _) = middle.accept().unwrap();
    let mut said = vec![0; 43];
    victim.read_exact(&mut said).unwrap();
    victim.write_all(&greeting(VERSION)).unwrap();
    let mut claim = vec![0; 5];
    victim.read_exact(&mut claim).unwrap();
    let length = u32::from_le_bytes([claim[0], claim[1], claim[2], claim[3]]) as usize;
    claim.resize(4 + length, 0);
    victim.read_exact(&mut claim[5..]).unwrap();
    peer.join().unwrap();
    gathers_in_spite_of(|address| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(&said).unwrap();
        stream.read_exact(&mut [0; 43]).unwrap();
        stream.write_all(&claim).unwrap();
        let mut answer = [0; 5];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer[4], 3, "the replay was not refused");
    });
}

#[test]
fn another_protocol_version_is_told_ours_and_named_on_both_sides() {
    gathers_in_spite_of(|address| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(&greeting(999)).unwrap();
        let mut answer = [0; 43];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer[..10], greeting(VERSION)[..10]);
        assert_eq!(stream.read(&mut answer).unwrap_or(0), 0);
    });
    let newer = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = newer.local_addr().unwrap();
    let answer = thread::spawn(move || {
        let (mut stream, _) = newer.accept().unwrap();
        stream.write_all(&greeting(999)).unwrap();
        let _until_closed = stream.read_to_end(&mut Vec::new());
    });
    let (sender, _receiver) = events();
    let error = Link::join(address, &member(1, 2), SOON, &sender).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.report().contains("version 999"), "{}", error.report());
    answer.join().unwrap();
}

#[test]
fn dropping_a_link_delivers_what_was_sent_and_tells_the_other_side() {
    for _ in 0..20 {
        let (hub, peer, receivers) = pair(2000, 2000);
        peer.send(b"from the peer").unwrap();
        (0..100_u8).for_each(|number| hub.send(&[number]).unwrap());
        drop(hub);
        let mut got = Vec::new();
        let reason = loop {
            match receivers.at_peer.recv_timeout(SOON).unwrap() {
                LinkEvent::Frame { bytes, .. } => got.extend(bytes),
                LinkEvent::Lost { reason, .. } => break reason,
            }
        };
        assert_eq!(got, (0..100).collect::<Vec<u8>>());
        assert_eq!(reason, LostReason::Closed);
        assert_eq!(peer.send(b"late").unwrap_err().kind(), ErrorKind::Unavailable);
        drop(peer);
        let lost = |event: LinkEvent| matches!(event, LinkEvent::Lost { .. });
        assert!(!receivers.at_hub.try_iter().any(lost), "a link dropped here is not lost");
    }
}

#[test]
fn heartbeats_keep_an_idle_link_alive_with_unlike_timeouts() {
    let (hub, peer, receivers) = pair(2_000, 60_000);
    support::pause(3_000);
    assert!(receivers.at_hub.is_empty() && receivers.at_peer.is_empty());
    hub.send(b"still here").unwrap();
    assert!(receivers.at_peer.recv_timeout(SOON).is_ok());
    drop(peer);
}

#[test]
fn a_receiver_that_does_not_take_events_does_not_hang_the_drop() {
    let hub = Hub::bind("127.0.0.1:0").unwrap();
    let address = hub.address();
    let (full, _never_read) = crossbeam_channel::bounded(1);
    let (sender, _receiver) = events();
    let peer = thread::spawn(move || Link::join(address, &member(1, 2), SOON, &full).unwrap());
    let links = hub.gather(&member(0, 2), SOON, &sender).unwrap();
    let peer = peer.join().unwrap();
    (0..100).for_each(|_| links[0].send(b"one more").unwrap());
    support::pause(100);
    drop(peer);
    drop(links);
}

const ROLE: &str = "peer at ";

/// As a child: joins the hub and stays until killed.
fn stay_if_child() -> bool {
    let Some(address) = role().and_then(|role| role.strip_prefix(ROLE).map(str::to_owned)) else {
        return false;
    };
    let (sender, receiver) = events();
    let link = Link::join(address, &member(1, 2), SOON, &sender).unwrap();
    let _until_lost = receiver.recv();
    drop(link);
    true
}

/// A hub with a child process as its peer; the child takes the test's name to come back here.
fn with_child(test: &str, then: impl FnOnce(&mut std::process::Child, Receivers)) {
    let hub = Hub::bind("127.0.0.1:0").unwrap();
    let mut child = again(test, &format!("{ROLE}{}", hub.address())).spawn().unwrap();
    let (sender, at_hub) = events();
    let heartbeat_timeout = Duration::from_secs(2);
    let me = Member { heartbeat_timeout, ..member(0, 2) };
    let links = hub.gather(&me, SOON, &sender).unwrap();
    then(&mut child, Receivers { at_hub, at_peer: crossbeam_channel::never() });
    drop(links);
    let _may_have_ended = child.kill();
    child.wait().unwrap();
}

#[test]
fn a_stopped_process_is_lost_within_the_timeout() {
    if stay_if_child() {
        return;
    }
    with_child("a_stopped_process_is_lost_within_the_timeout", |child, receivers| {
        let quiet = receivers.at_hub.recv_timeout(Duration::from_millis(2_500));
        assert!(quiet.is_err(), "lost while it was alive: {quiet:?}");
        support::signal("-STOP", child.id());
        let lost = receivers.at_hub.recv_timeout(SOON);
        assert_eq!(lost, Ok(LinkEvent::Lost { process: 1, reason: LostReason::Silent }));
        assert!(is_alive(child.id()), "stopped, not dead");
    });
}

#[test]
fn a_killed_process_is_lost_at_once() {
    if stay_if_child() {
        return;
    }
    with_child("a_killed_process_is_lost_at_once", |child, receivers| {
        child.kill().unwrap();
        let lost = receivers.at_hub.recv_timeout(SOON);
        let broken = |reason: &LostReason| matches!(reason, LostReason::Broken(_));
        assert!(matches!(&lost, Ok(LinkEvent::Lost { process: 1, reason }) if broken(reason)));
    });
}
