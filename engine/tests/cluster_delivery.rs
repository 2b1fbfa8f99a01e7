//! What must not be lost while a link lasts: a peer that is slow is waited for, one that is stuck is not.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::thread;
use std::time::Duration;

use crossbeam_channel::Receiver;
use isochrone_engine::ErrorKind;
use isochrone_engine::cluster::{Hub, Link, LinkEvent, Member};
use support::{SOON, events, member};

const MESSAGE_BYTES: usize = 1 << 20;
/// More than a link queues and the system keeps of a connection, which takes on for seconds.
const MORE_THAN_FITS: usize = 256;

/// A hub and its one peer, which takes an event only when asked to.
fn pair(heartbeat_timeout: Duration) -> (Link, Link, Receiver<LinkEvent>) {
    let of = |process| Member { heartbeat_timeout, ..member(process, 2) };
    let hub = Hub::bind("127.0.0.1:0").unwrap();
    let (address, me) = (hub.address(), of(1));
    let (slow, at_peer) = crossbeam_channel::bounded(0);
    let peer = thread::spawn(move || Link::join(address, &me, SOON, &slow).unwrap());
    let (sender, _receiver) = events();
    let mut links = hub.gather(&of(0), SOON, &sender).unwrap();
    (links.remove(0), peer.join().unwrap(), at_peer)
}

/// Sends until no more fits, or until the link is over; answers how many messages that were.
fn fill(link: &Link) -> usize {
    let message = vec![1; MESSAGE_BYTES];
    let mut sent = 0;
    let error = loop {
        match link.send(&message) {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
    };
    let text = error.to_string();
    assert!(text.contains("does not take its messages") || text.contains("is over"), "{text}");
    sent
}

/// The report of a failure was once dropped like any other message for which there was no room.
#[test]
fn what_is_delivered_waits_for_a_slow_peer_and_arrives() {
    let (hub, peer, at_peer) = pair(Duration::from_secs(60));
    let sent = fill(&hub);
    let delivering = thread::spawn(move || {
        (0..MORE_THAN_FITS).for_each(|_| hub.deliver(&[2; MESSAGE_BYTES]).unwrap());
        hub
    });
    support::pause(50);
    assert!(!delivering.is_finished());
    let arrived: Vec<u8> = (0..sent + MORE_THAN_FITS)
        .map(|_| match at_peer.recv_timeout(SOON).unwrap() {
            LinkEvent::Frame { bytes, .. } if bytes.len() == MESSAGE_BYTES => bytes[0],
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(arrived, [vec![1; sent], vec![2; MORE_THAN_FITS]].concat());
    drop(delivering.join().unwrap());
    drop(peer);
}

#[test]
fn what_is_delivered_to_a_peer_that_takes_nothing_fails_with_the_link() {
    let (hub, peer, _never_taken) = pair(Duration::from_secs(2));
    fill(&hub);
    let error = (0..MORE_THAN_FITS)
        .find_map(|_| hub.deliver(&[2; MESSAGE_BYTES]).err())
        .expect("more than fits is refused");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("is over"), "{error}");
    drop(peer);
}
