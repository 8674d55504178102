//! Names below the model directory: which relative paths are safe, and which two name the same file.
//!
//! The rules model a case-insensitive, normalising volume and apply on every platform, so a directory that is
//! good on one machine is good on all.

use crate::sys::file::SEPARATORS;
use unicode_normalization::UnicodeNormalization;

/// Longest relative path accepted, in bytes. No file system of ours takes longer ones.
pub const MAX_PATH: usize = 4_096;

/// Why `path` is not a valid relative path, if it is not: it must be non-empty, not start with `/`, hold no NUL, and
/// no component may be empty, `.` or `..`.
pub fn problem(path: &str) -> Option<&'static str> {
    if path.is_empty() {
        Some("is empty")
    } else if path.len() > MAX_PATH {
        Some("is longer than 4096 bytes")
    } else if path.starts_with('/') {
        Some("is not relative")
    } else if path.contains('\0') {
        Some("contains a NUL")
    } else if path.split('/').any(|part| matches!(part, "" | "." | "..")) {
        Some("has an empty, `.` or `..` component")
    } else if path.contains(SEPARATORS) {
        Some("contains a character that is a separator on this platform")
    } else {
        None
    }
}

/// Like [`problem`], for a name without `/`.
pub fn basename_problem(name: &str) -> Option<&'static str> {
    problem(name).or_else(|| name.contains('/').then_some("is not a plain file name"))
}

/// The form in which two paths are compared: NFC, then lower case.
pub fn key(path: &str) -> String {
    path.nfc().collect::<String>().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_paths_are_named() {
        for bad in ["", "/a", "a//b", "a/", "./a", "a/..", "..", "a\0b"] {
            assert!(problem(bad).is_some(), "{bad:?}");
        }
        for good in ["a", "a/b.c", "packed_experts/layer_00.bin", "...", ".hidden"] {
            assert_eq!(problem(good), None, "{good:?}");
        }
        assert!(basename_problem("a/b").is_some());
        assert!(problem(&"a".repeat(MAX_PATH + 1)).is_some());
    }

    #[test]
    fn equivalent_spellings_share_a_key() {
        assert_eq!(key("Caf\u{e9}.BIN"), key("cafe\u{301}.bin"));
        assert_ne!(key("layer_00.bin"), key("layer_01.bin"));
    }
}
