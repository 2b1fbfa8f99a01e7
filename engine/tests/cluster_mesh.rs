//! The data mesh: complete for the right run, closed to any other.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use isochrone_engine::ErrorKind;
use isochrone_engine::cluster::Secret;
use isochrone_engine::cluster::mesh::{self, Party, RunToken};
use isochrone_persistence::ids::{Generation, JobName};
use support::{SOON, secret};

/// For one that tries on as long as it may.
const TRIES_ON: Duration = Duration::from_millis(400);

fn token(generation: u64) -> RunToken {
    RunToken::new(&JobName::new("risk").unwrap(), Generation(generation)).unwrap()
}

fn party(process: u32, token: &RunToken) -> Party {
    Party { process, token: token.clone(), secret: secret() }
}

fn listeners(count: usize) -> (Vec<TcpListener>, Vec<SocketAddr>) {
    (0..count).map(|_| mesh::listen([127, 0, 0, 1].into(), 0).unwrap()).unzip()
}

#[test]
fn every_two_processes_have_one_socket_that_leads_to_the_right_one() {
    let (listeners, addresses) = listeners(4);
    let (token, addresses) = (token(1), &addresses);
    thread::scope(|scope| {
        let processes: Vec<_> = (0..)
            .zip(&listeners)
            .map(|(process, listener)| {
                let me = party(process, &token);
                scope.spawn(move || {
                    let sockets = mesh::connect(listener, &me, addresses, SOON).unwrap();
                    let own: Vec<bool> = sockets.iter().map(Option::is_none).collect();
                    assert_eq!(own, (0..4).map(|index| index == process).collect::<Vec<_>>());
                    for mut socket in sockets.iter().flatten() {
                        assert!(socket.nodelay().unwrap());
                        assert_eq!(socket.read_timeout().unwrap(), None);
                        socket.write_all(&[process as u8]).unwrap();
                    }
                    for (peer, socket) in sockets.iter().enumerate() {
                        let Some(mut socket) = socket.as_ref() else { continue };
                        let mut heard = [0];
                        socket.read_exact(&mut heard).unwrap();
                        assert_eq!(usize::from(heard[0]), peer);
                    }
                })
            })
            .collect();
        processes.into_iter().for_each(|process| process.join().unwrap());
    });
}

/// Process 0 of generation 5 is connected by a wrong dialer first, for so long or until that hears why it
/// is wrong, then by the right one.
fn turned_away(wrong: Party, within: Duration) -> isochrone_engine::Error {
    let (listeners, addresses) = listeners(2);
    let right = token(5);
    let me = party(0, &right);
    thread::scope(|scope| {
        let connect = scope.spawn(|| mesh::connect(&listeners[0], &me, &addresses, SOON));
        let error = mesh::connect(&listeners[1], &wrong, &addresses, within).unwrap_err();
        let peer = mesh::connect(&listeners[1], &party(1, &right), &addresses, SOON).unwrap();
        assert!(peer[0].is_some() && peer[1].is_none());
        assert!(connect.join().unwrap().unwrap()[1].is_some());
        error
    })
}

#[test]
fn a_process_of_an_older_generation_is_fenced_and_the_right_one_connects() {
    let error = turned_away(party(1, &token(4)), SOON);
    assert_eq!(error.kind(), ErrorKind::Fenced);
    let report = error.report();
    assert!(report.contains("generation 5") && report.contains("generation 4"), "{report}");
}

#[test]
fn a_process_of_a_newer_generation_tries_on_until_its_time_is_over() {
    assert_eq!(turned_away(party(1, &token(6)), TRIES_ON).kind(), ErrorKind::Unavailable);
}

#[test]
fn another_run_of_the_same_generation_is_not_ours() {
    assert_eq!(turned_away(party(1, &token(5)), TRIES_ON).kind(), ErrorKind::Unavailable);
}

#[test]
fn another_job_or_secret_is_refused() {
    let other = RunToken { job: JobName::new("fraud").unwrap(), ..token(5) };
    let error = turned_away(party(1, &other), SOON);
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.report().contains("`fraud`"), "{}", error.report());
    let stranger = Party { secret: Secret::open(), ..party(1, &token(5)) };
    let error = turned_away(stranger, SOON);
    assert!(error.report().contains("shared secret"), "{}", error.report());
}

#[test]
fn garbage_on_the_data_port_does_no_harm() {
    let (listeners, addresses) = listeners(2);
    let token = token(1);
    let me = party(0, &token);
    thread::scope(|scope| {
        let connect = scope.spawn(|| mesh::connect(&listeners[0], &me, &addresses, SOON));
        let mut held = Vec::new();
        for garbage in [&[][..], &[0; 8], &[0xff; 4096], b"ISOCHRON"] {
            let mut stream = TcpStream::connect(addresses[0]).unwrap();
            let _may_be_closed = stream.write_all(garbage);
            held.push(stream);
            drop(TcpStream::connect(addresses[0]).unwrap());
        }
        let peer = mesh::connect(&listeners[1], &party(1, &token), &addresses, SOON).unwrap();
        assert!(connect.join().unwrap().unwrap()[1].is_some());
        drop((peer, held));
    });
}

#[test]
fn missing_processes_are_named() {
    let (listeners, addresses) = listeners(3);
    let short = Duration::from_millis(200);
    let me = party(0, &token(1));
    let error = mesh::connect(&listeners[0], &me, &addresses, short).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("process 1, 2 did not connect to process 0"), "{error}");
    let me = party(2, &token(1));
    let error = mesh::connect(&listeners[2], &me, &addresses, short).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("process 2 cannot reach process"), "{error}");
}

#[test]
fn a_single_process_needs_no_sockets() {
    let (listeners, addresses) = listeners(1);
    let sockets = mesh::connect(&listeners[0], &party(0, &token(1)), &addresses, SOON).unwrap();
    assert!(sockets.len() == 1 && sockets[0].is_none());
}

#[test]
fn timely_runs_over_the_sockets() {
    use timely::communication::allocator::ProcessBuilder;
    use timely::communication::allocator::zero_copy::initialize::initialize_networking_from_sockets;
    use timely::communication::{AllocatorBuilder, Hooks};
    use timely::dataflow::operators::{Exchange, Inspect, ToStream};

    let (listeners, addresses) = listeners(2);
    let (token, addresses) = (token(1), &addresses);
    let (sent, seen) = crossbeam_channel::unbounded();
    thread::scope(|scope| {
        for (process, listener) in (0..).zip(&listeners) {
            let (me, sent) = (party(process, &token), sent.clone());
            scope.spawn(move || {
                let sockets = mesh::connect(listener, &me, addresses, SOON).unwrap();
                let hooks = Hooks::default();
                let local = ProcessBuilder::new_typed_vector(1, hooks.refill.clone(), None);
                let index = process as usize;
                let (tcp, guard) =
                    initialize_networking_from_sockets(local, sockets, index, 1, hooks).unwrap();
                let builders = tcp.into_iter().map(AllocatorBuilder::Tcp).collect();
                let config = timely::WorkerConfig::default();
                let workers = timely::execute::execute_from(
                    builders,
                    Box::new(guard),
                    config,
                    move |worker| {
                        let (index, sent) = (worker.index(), sent.clone());
                        worker.dataflow::<u64, _, _>(|scope| {
                            (0..10_u64)
                                .to_stream(scope)
                                .container::<Vec<u64>>()
                                .exchange(|number| *number)
                                .inspect(move |number| sent.send((index, *number)).unwrap());
                        });
                    },
                );
                workers.unwrap().join().into_iter().for_each(|worker| worker.unwrap());
            });
        }
    });
    drop(sent);
    let mut seen: Vec<(usize, u64)> = seen.iter().collect();
    seen.sort_unstable();
    let mut expected: Vec<_> = (0..10).flat_map(|n| [(n as usize % 2, n); 2]).collect();
    expected.sort_unstable();
    assert_eq!(seen, expected);
}
