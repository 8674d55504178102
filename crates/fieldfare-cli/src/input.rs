//! What people hand in: texts, token ids, conversations; from files or standard input, checked before any model is
//! opened, with messages that say where the fault is.

use crate::Outcome;
use crate::failure::Failure;
use serde::de::{Deserialize, Deserializer, Error as _, SeqAccess, Visitor};
use std::io::Read;
use std::path::Path;

/// Longest text that is read. A context of a million tokens is about 5 MB of it; a file of gigabytes is a mistake.
const TEXT_CAP: u64 = 64 << 20;

/// Reads a text file, or standard input for `-`.
///
/// # Errors
/// Unreadable, too long, not UTF-8 (with the offset of the first bad byte), or empty.
pub fn text_file(path: &Path) -> Outcome<String> {
    let (bytes, name) = read(path)?;
    text(bytes, &name)
}

/// Reads a message from standard input.
///
/// # Errors
/// As [`text_file`], and for white space alone.
pub fn message_stdin() -> Outcome<String> {
    let (bytes, name) = read(Path::new("-"))?;
    let text = utf8(bytes, &name)?;
    not_blank(&text, &name)?;
    Ok(text)
}

/// Refuses a text of no characters: there is nothing to continue or to score.
///
/// # Errors
/// Wrong use.
pub fn not_empty(text: &str, name: &str) -> Outcome {
    if text.is_empty() {
        return Err(Failure::usage(format!("{name} is empty"))
            .with_hint("give some text; to start from <bos> alone use a tokens file with [2]"));
    }
    Ok(())
}

/// Refuses a message of white space: the chat format trims it to nothing.
///
/// # Errors
/// Wrong use.
pub fn not_blank(text: &str, name: &str) -> Outcome {
    if text.trim().is_empty() {
        return Err(Failure::usage(format!("{name} is empty"))
            .with_hint("say something: `fieldfare chat \"Why is the sky blue?\"`"));
    }
    Ok(())
}

/// Reads a JSON array of token ids, or standard input for `-`. The ids are used as they are.
///
/// # Errors
/// Unreadable, not such an array (with the index of the first bad entry), or empty.
pub fn tokens_file(path: &Path) -> Outcome<Vec<u32>> {
    let (bytes, name) = read(path)?;
    let text = utf8(bytes, &name)?;
    tokens(&text, &name)
}

/// Refuses ids that the model has no row for.
///
/// # Errors
/// Names the index and the id.
pub fn check_vocabulary(ids: &[u32], vocab_size: usize) -> Outcome {
    for (index, &id) in ids.iter().enumerate() {
        if usize::try_from(id).map_or(true, |id| id >= vocab_size) {
            return Err(Failure::failed(format!(
                "token {index} has the id {id}, but the vocabulary ends at {}",
                vocab_size.saturating_sub(1)
            )));
        }
    }
    Ok(())
}

/// Reads the bytes of a JSON document, or standard input for `-`; the second part is its name for messages.
///
/// # Errors
/// Unreadable, too long or not UTF-8.
pub fn json_file(path: &Path) -> Outcome<(String, String)> {
    let (bytes, name) = read(path)?;
    Ok((utf8(bytes, &name)?, name))
}

fn text(bytes: Vec<u8>, name: &str) -> Outcome<String> {
    let text = utf8(bytes, name)?;
    not_empty(&text, name)?;
    Ok(text)
}

fn utf8(bytes: Vec<u8>, name: &str) -> Outcome<String> {
    match String::from_utf8(bytes) {
        // Editors on Windows put a mark in front that is no part of the text.
        Ok(text) => Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text)),
        Err(error) => {
            let at = error.utf8_error().valid_up_to();
            let byte = error.as_bytes().get(at).copied().unwrap_or_default();
            Err(Failure::failed(format!("{name} is not UTF-8: bad byte 0x{byte:02x} at offset {at}"))
                .with_hint("convert it first, for instance with `iconv -t UTF-8`"))
        }
    }
}

fn read(path: &Path) -> Outcome<(Vec<u8>, String)> {
    let mut bytes = Vec::new();
    let (result, name) = if path == Path::new("-") {
        (std::io::stdin().lock().take(TEXT_CAP + 1).read_to_end(&mut bytes), "standard input".to_owned())
    } else {
        let name = path.display().to_string();
        let file = std::fs::File::open(path)
            .map_err(|error| Failure::failed(format!("cannot open {name}: {error}")))?;
        (file.take(TEXT_CAP + 1).read_to_end(&mut bytes), name)
    };
    result.map_err(|error| Failure::failed(format!("cannot read {name}: {error}")))?;
    if bytes.len() as u64 > TEXT_CAP {
        return Err(Failure::failed(format!("{name} is longer than {} MiB", TEXT_CAP >> 20)));
    }
    Ok((bytes, name))
}

fn tokens(text: &str, name: &str) -> Outcome<Vec<u32>> {
    let form = "it must be a JSON array of token ids, such as [2, 10979]";
    let TokenIds(ids) = serde_json::from_str(text)
        .map_err(|error| Failure::failed(format!("{name}: {error}")).with_hint(form))?;
    if ids.is_empty() {
        return Err(Failure::usage(format!("{name} holds no tokens")).with_hint(form));
    }
    Ok(ids)
}

/// Ids read one by one: a tree of JSON values of a file takes forty times its size.
struct TokenIds(Vec<u32>);

impl<'de> Deserialize<'de> for TokenIds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Ids;
        impl<'de> Visitor<'de> for Ids {
            type Value = TokenIds;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an array of token ids")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<TokenIds, A::Error> {
                let mut ids = Vec::new();
                loop {
                    let entry = entries.next_element::<u32>();
                    match entry.map_err(|error| A::Error::custom(format!("entry {}: {error}", ids.len())))? {
                        Some(id) => ids.push(id),
                        None => return Ok(TokenIds(ids)),
                    }
                }
            }
        }
        deserializer.deserialize_seq(Ids)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::message;

    #[test]
    fn bad_bytes_are_named_with_their_offset() {
        let text = message(text(b"Gr\xc3\xbc\xdfe".to_vec(), "in.txt").unwrap_err());
        assert_eq!(text, "in.txt is not UTF-8: bad byte 0xdf at offset 4");
    }

    #[test]
    fn a_mark_in_front_is_dropped_and_emptiness_refused() {
        assert_eq!(text(b"\xef\xbb\xbfhello".to_vec(), "f").unwrap(), "hello");
        assert_eq!(message(text(Vec::new(), "f").unwrap_err()), "f is empty");
        assert_eq!(text(b"\n".to_vec(), "f").unwrap(), "\n");
        assert!(not_blank(" \n", "f").is_err());
    }

    #[test]
    fn tokens_are_plain_ids() {
        assert_eq!(tokens("[2, 4294967295]", "f").unwrap(), [2, u32::MAX]);
        for (given, says) in [
            ("{}", "f: invalid type: map, expected an array of token ids at line 1 column 0"),
            ("[1, 2", "f: entry 2: EOF while parsing a list at line 1 column 5"),
            ("[1] 2", "f: trailing characters at line 1 column 5"),
            ("[]", "f holds no tokens"),
            ("[1, -2]", "f: entry 1: invalid value: integer `-2`"),
            ("[1.0]", "f: entry 0: invalid type: floating point `1.0`"),
            ("[4294967296]", "f: entry 0: invalid value: integer `4294967296`"),
            ("[1, \"2\"]", "f: entry 1: invalid type: string \"2\""),
            ("[1, [2]]", "f: entry 1: invalid type: sequence"),
        ] {
            let text = message(tokens(given, "f").unwrap_err());
            assert!(text.starts_with(says), "{given}: {text}");
        }
        assert!(check_vocabulary(&[0, 511], 512).is_ok());
        let text = message(check_vocabulary(&[0, 512], 512).unwrap_err());
        assert_eq!(text, "token 1 has the id 512, but the vocabulary ends at 511");
    }

    #[test]
    fn deep_nesting_is_an_error_not_a_crash() {
        assert!(tokens(&"[".repeat(100_000), "f").is_err());
    }
}
