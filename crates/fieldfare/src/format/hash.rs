//! SHA-256 of bytes and open files, and its hexadecimal form.

use crate::{Error, Result, sys::file};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::fs::File;
use std::ops::ControlFlow;

/// Bytes read at a time while hashing a file.
const BLOCK: usize = 1 << 20;

/// SHA-256 of `bytes`.
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// Lower-case hexadecimal form.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // writing to a String cannot fail
        text
    })
}

/// The 32 bytes of 64 hexadecimal digits of either case.
pub fn parse_hex(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    let mut out = [0; 32];
    for (byte, pair) in out.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let digit = |c: u8| char::from(c).to_digit(16);
        *byte = u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).ok()?;
    }
    Some(out)
}

/// SHA-256 of the first `size` bytes of an open file, in blocks of 1 MiB. `name` is for messages; `step` gets the
/// bytes of each block and may stop the work ([`Error::Cancelled`]).
pub fn sha256_file(
    file: &File,
    size: u64,
    name: &str,
    step: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<[u8; 32]> {
    let mut hasher = Sha256::new();
    let mut block = vec![0; BLOCK];
    let mut at = 0;
    while at < size {
        let want = usize::try_from(size - at).map_or(BLOCK, |left| left.min(BLOCK));
        file::read_exact_at(file, &mut block[..want], at).map_err(Error::io("read", name))?;
        hasher.update(&block[..want]);
        at += want as u64;
        if step(want as u64).is_break() {
            return Err(Error::Cancelled);
        }
    }
    Ok(hasher.finalize().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_round_trips_and_ignores_case() {
        let digest = sha256(b"abc");
        let text = hex(&digest);
        assert_eq!(text, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(parse_hex(&text.to_uppercase()), Some(digest));
        assert_eq!(parse_hex(&text[1..]), None);
        assert_eq!(parse_hex(&text.replace('b', "g")), None);
    }
}
