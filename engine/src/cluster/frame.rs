//! Frames on a socket: `u32` length (little endian, of kind and payload), one kind byte, payload.
//! Knows nothing of what a kind means.

use std::io::{self, Read, Write};

/// One frame as read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) payload: Vec<u8>,
}

/// Reads one frame whose payload has at most `bytes_max` bytes. A larger length is an error before a
/// byte of payload is read or room for it is made; a true one costs memory only as bytes arrive.
pub(crate) fn read(from: &mut impl Read, bytes_max: usize) -> io::Result<Frame> {
    let mut head = [0_u8; 5];
    from.read_exact(&mut head)?;
    let [a, b, c, d, kind] = head;
    let length = u32::from_le_bytes([a, b, c, d]) as usize;
    if length == 0 || length - 1 > bytes_max {
        let message = format!("frame of {length} bytes where 1 to {} are allowed", bytes_max + 1);
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    let mut payload = Vec::new();
    from.take(length as u64 - 1).read_to_end(&mut payload)?;
    if payload.len() != length - 1 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Frame { kind, payload })
}

/// Writes one frame, in one write so that it leaves as one packet where it can.
pub(crate) fn write(to: &mut impl Write, kind: u8, payload: &[u8]) -> io::Result<()> {
    let length = u32::try_from(payload.len() + 1)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "payload of 4 GiB or more"))?;
    let mut bytes = Vec::with_capacity(payload.len() + 5);
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.push(kind);
    bytes.extend_from_slice(payload);
    to.write_all(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_comes_back_as_written() {
        let mut bytes = Vec::new();
        write(&mut bytes, 7, b"payload").unwrap();
        write(&mut bytes, 8, b"").unwrap();
        let mut from = bytes.as_slice();
        assert_eq!(read(&mut from, 7).unwrap(), Frame { kind: 7, payload: b"payload".to_vec() });
        assert_eq!(read(&mut from, 7).unwrap(), Frame { kind: 8, payload: Vec::new() });
        assert_eq!(read(&mut from, 7).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn every_cut_of_a_frame_is_an_error() {
        let mut bytes = Vec::new();
        write(&mut bytes, 7, b"payload").unwrap();
        for length in 0..bytes.len() {
            let found = read(&mut &bytes[..length], 7).unwrap_err().kind();
            assert_eq!(found, io::ErrorKind::UnexpectedEof, "cut at {length}");
        }
    }

    #[test]
    fn lengths_out_of_bounds_are_refused_before_the_payload() {
        for length in [0_u32, 9, 1 << 30, u32::MAX] {
            let mut bytes = length.to_le_bytes().to_vec();
            bytes.push(1);
            let found = read(&mut bytes.as_slice(), 7).unwrap_err().kind();
            assert_eq!(found, io::ErrorKind::InvalidData, "length {length}");
        }
    }
}
