//! The handshake against a wire that changes one byte.

use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use super::*;

const CLAIM_BYTES: &[u8] = b"process 1";
const REPLY: &[u8] = b"process 0";
/// Greeting, frame head, proof, claim.
const SAID_BYTES: usize = GREETING_BYTES + 5 + PROOF_BYTES + CLAIM_BYTES.len();

/// A wire from dialer to acceptor; `flip` names a byte, counted from the start of each direction, of
/// which the lowest bit is inverted on its way.
#[derive(Clone, Copy, Default)]
struct Wire {
    flip_said: Option<usize>,
    flip_answered: Option<usize>,
}

fn carry(mut from: TcpStream, mut to: TcpStream, flip: Option<usize>) {
    let mut byte = [0];
    for index in 0.. {
        if !matches!(from.read(&mut byte), Ok(1)) {
            break;
        }
        byte[0] ^= u8::from(flip == Some(index));
        if to.write_all(&byte).is_err() {
            break;
        }
    }
    let _gone = to.shutdown(std::net::Shutdown::Both);
}

/// What the dialer and the acceptor learn of each other over the wire.
fn shake(wire: Wire) -> (Result<Vec<u8>>, Result<Vec<u8>>) {
    let secret = Secret::new("a secret for tests").unwrap();
    let acceptor = TcpListener::bind("127.0.0.1:0").unwrap();
    let middle = TcpListener::bind("127.0.0.1:0").unwrap();
    let dialer = TcpStream::connect(middle.local_addr().unwrap()).unwrap();
    let near = middle.accept().unwrap().0;
    let far = TcpStream::connect(acceptor.local_addr().unwrap()).unwrap();
    let accepted = acceptor.accept().unwrap().0;
    for stream in [&dialer, &near, &far, &accepted] {
        stream.set_nodelay(true).unwrap();
    }
    let (near_back, far_back) = (near.try_clone().unwrap(), far.try_clone().unwrap());
    let deadline =
        Deadline::after(Duration::from_millis(if wire.is_faithful() { 10_000 } else { 300 }));
    thread::scope(|scope| {
        scope.spawn(|| carry(near, far, wire.flip_said));
        scope.spawn(|| carry(far_back, near_back, wire.flip_answered));
        let received = scope.spawn(|| {
            let (pending, claim) = receive(accepted, Purpose::Control, &secret, &deadline)?;
            pending.accept(REPLY, &deadline).map(|_stream| claim)
        });
        let dialled = dial(&dialer, Purpose::Control, &secret, CLAIM_BYTES, &deadline);
        drop(dialer);
        (dialled, received.join().unwrap())
    })
}

impl Wire {
    fn is_faithful(self) -> bool {
        self.flip_said.is_none() && self.flip_answered.is_none()
    }
}

#[test]
fn both_sides_learn_what_the_other_claims() {
    let (dialled, received) = shake(Wire::default());
    assert_eq!((dialled.unwrap(), received.unwrap()), (REPLY.to_vec(), CLAIM_BYTES.to_vec()));
}

#[test]
fn no_byte_of_what_the_dialer_says_can_change_unnoticed() {
    for index in 0..SAID_BYTES {
        let (dialled, received) = shake(Wire { flip_said: Some(index), ..Wire::default() });
        assert!(dialled.is_err() && received.is_err(), "byte {index}: {dialled:?} {received:?}");
    }
}

#[test]
fn no_byte_of_the_answer_can_change_unnoticed() {
    for index in 0..SAID_BYTES {
        let (dialled, _) = shake(Wire { flip_answered: Some(index), ..Wire::default() });
        assert!(dialled.is_err(), "byte {index}: {dialled:?}");
    }
}

#[test]
fn a_proof_of_one_kind_side_or_purpose_is_none_of_another() {
    let session = |purpose| Session { key: [1; 32], purpose, dialer: [2; 32], acceptor: [3; 32] };
    let (control, mesh) = (session(Purpose::Control), session(Purpose::Mesh));
    let mut wire = Vec::new();
    control.write(&mut wire, Side::Dialer, CLAIM, b"body").unwrap();
    let payload = frame::read(&mut wire.as_slice(), 100).unwrap().payload;
    assert_eq!(control.checked(Side::Dialer, CLAIM, &payload), Some(b"body".to_vec()));
    assert_eq!(control.checked(Side::Acceptor, CLAIM, &payload), None);
    assert_eq!(control.checked(Side::Dialer, ACCEPT, &payload), None);
    assert_eq!(mesh.checked(Side::Dialer, CLAIM, &payload), None);
    for length in 0..payload.len() {
        assert_eq!(control.checked(Side::Dialer, CLAIM, &payload[..length]), None);
    }
}

#[test]
fn a_long_refusal_is_cut_between_letters() {
    let text = "\u{e4}".repeat(HANDSHAKE_BYTES_MAX);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let dialer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let accepted = listener.accept().unwrap().0;
    let (secret, deadline) = (Secret::open(), Deadline::after(Duration::from_secs(10)));
    thread::scope(|scope| {
        scope.spawn(|| {
            let (pending, _) = receive(accepted, Purpose::Mesh, &secret, &deadline).unwrap();
            pending.refuse(&Error::fenced(text), &deadline);
        });
        let error = dial(&dialer, Purpose::Mesh, &secret, b"", &deadline).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Fenced);
        assert!(error.to_string().ends_with('\u{e4}'));
    });
}
