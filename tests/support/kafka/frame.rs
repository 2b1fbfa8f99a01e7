//! As much of Kafka's protocol as a proxy has to understand: where a message ends, and what a request
//! asks for on behalf of a transactional id.

use std::io::{self, Read};

const PRODUCE: i16 = 0;
const END_TXN: i16 = 26;
/// From these versions on, strings and headers are written in the compact way.
const PRODUCE_FLEXIBLE: i16 = 9;
const END_TXN_FLEXIBLE: i16 = 3;
/// Far beyond what the tests send; more means that this is no such protocol.
const BYTES_MAX: usize = 256 << 20;

/// A request or an answer, its length in front.
pub(super) type Frame = Vec<u8>;

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// Records of a transaction.
    Produce {
        id: String,
    },
    /// The end of a transaction.
    EndTxn {
        id: String,
    },
    Other,
}

/// The next message; `None` at the end of the stream.
pub(super) fn read(from: &mut impl Read) -> io::Result<Option<Frame>> {
    let mut frame = vec![0; 4];
    match from.read_exact(&mut frame) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let bytes = usize::try_from(int32(&frame, 0)).unwrap_or(usize::MAX);
    if bytes > BYTES_MAX {
        return Err(io::Error::other(format!("a message of {bytes} bytes")));
    }
    frame.resize(4 + bytes, 0);
    from.read_exact(&mut frame[4..])?;
    Ok(Some(frame))
}

/// By which a client knows the answer to its request; in an answer, and in a request.
pub(super) fn correlation_of_answer(frame: &[u8]) -> i32 {
    int32(frame, 4)
}

pub(super) fn correlation_of_request(frame: &[u8]) -> i32 {
    int32(frame, 8)
}

/// Length, api, version, correlation, client id; then, in both requests, the transactional id.
pub(super) fn asked(frame: &[u8]) -> Asked {
    let (api, version) = (int16(frame, 4), int16(frame, 6));
    let flexible = match api {
        PRODUCE => PRODUCE_FLEXIBLE,
        END_TXN => END_TXN_FLEXIBLE,
        _ => return Asked::Other,
    };
    let client = usize::try_from(int16(frame, 12)).unwrap_or(0);
    let at = 14 + client;
    let id = if version >= flexible {
        // No client of these tests writes tagged fields, or an id that needs a second byte of length.
        assert_eq!((frame[at], frame[at + 1] & 0x80), (0, 0), "a request that is not understood");
        let length = usize::from(frame[at + 1]).saturating_sub(1);
        &frame[at + 2..at + 2 + length]
    } else {
        let length = usize::try_from(int16(frame, at)).unwrap_or(0);
        &frame[at + 2..at + 2 + length]
    };
    let id = String::from_utf8_lossy(id).into_owned();
    if api == PRODUCE { Asked::Produce { id } } else { Asked::EndTxn { id } }
}

/// The error code in the answer to an `EndTxn` of the version that librdkafka speaks.
pub(super) fn error_of_end(answer: &[u8]) -> i16 {
    // Length, correlation, throttle time.
    int16(answer, 12)
}

fn int16(bytes: &[u8], at: usize) -> i16 {
    i16::from_be_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

fn int32(bytes: &[u8], at: usize) -> i32 {
    i32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}
