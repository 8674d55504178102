//! Text documents that are dropped into the window: what is text, and what is said of what is not.

use crate::message::{Document, Trouble};
use crate::trouble::plain;
use std::io::Read;
use std::path::Path;

/// Largest file that is read, in bytes.
pub(crate) const LIMIT: u64 = 4 << 20;
/// Share of control characters (1 in so many) from which a text counts as binary.
const CONTROLS: usize = 100;

/// Reads a file as text.
///
/// # Errors
/// It cannot be read, is too large, empty, or no text; the reason is for people.
pub(crate) fn read(path: &Path) -> Result<Document, Trouble> {
    let name =
        path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into());
    let refuse = |reason: &str, remedy: &str| plain(format!("{name:?} {reason}"), remedy);
    let failed = |error: std::io::Error| refuse(&format!("cannot be read: {error}"), "");
    let meta = std::fs::metadata(path).map_err(failed)?;
    if meta.is_dir() {
        return Err(refuse("is a folder", "Drop the files in it."));
    }
    if !meta.is_file() {
        return Err(refuse("is no ordinary file", ""));
    }
    let too_large = || refuse("is larger than 4 MB", "Give the part that matters.");
    if meta.len() > LIMIT {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(LIMIT + 1).read_to_end(&mut bytes))
        .map_err(failed)?;
    if bytes.len() as u64 > LIMIT {
        return Err(too_large());
    }
    let text = decode(bytes).map_err(|reason| refuse(reason, "Only text can be given to the model."))?;
    if text.trim().is_empty() {
        return Err(refuse("is empty", ""));
    }
    Ok(Document { name, text, tokens: None })
}

/// Bytes as text: UTF-8 with or without a mark, UTF-16 with one.
fn decode(bytes: Vec<u8>) -> Result<String, &'static str> {
    let known = [
        (&b"%PDF-"[..], "is a PDF, not plain text"),
        (b"PK\x03\x04", "is a ZIP archive or an office document, not plain text"),
        (b"\x89PNG", "is a picture, not text"),
        (b"\xff\xd8\xff", "is a picture, not text"),
        (b"GIF8", "is a picture, not text"),
        (b"\xd0\xcf\x11\xe0", "is an office document, not plain text"),
    ];
    if let Some((_, what)) = known.iter().find(|(magic, _)| bytes.starts_with(magic)) {
        return Err(what);
    }
    let text = match bytes.as_slice() {
        [0xff, 0xfe, rest @ ..] => utf16(rest, u16::from_le_bytes)?,
        [0xfe, 0xff, rest @ ..] => utf16(rest, u16::from_be_bytes)?,
        [0xef, 0xbb, 0xbf, rest @ ..] => {
            std::str::from_utf8(rest).map_err(|_| "is not UTF-8 text")?.to_owned()
        }
        _ => String::from_utf8(bytes).map_err(|_| "is neither UTF-8 nor marked as UTF-16")?,
    };
    let controls =
        text.chars().filter(|&c| c.is_control() && !matches!(c, '\n' | '\r' | '\t' | '\u{c}')).count();
    if text.contains('\0') || controls * CONTROLS > text.chars().count() {
        return Err("is binary, not text");
    }
    Ok(text.replace("\r\n", "\n"))
}

fn utf16(bytes: &[u8], word: fn([u8; 2]) -> u16) -> Result<String, &'static str> {
    let (pairs, rest) = bytes.as_chunks::<2>();
    if !rest.is_empty() {
        return Err("is marked as UTF-16 and ends inside a character");
    }
    char::decode_utf16(pairs.iter().map(|&pair| word(pair)))
        .collect::<Result<String, _>>()
        .map_err(|_| "is marked as UTF-16 and is not")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: &[u8]) -> Result<String, String> {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("a name.txt");
        std::fs::write(&path, bytes).unwrap();
        read(&path).map(|document| document.text).map_err(|trouble| trouble.message)
    }

    #[test]
    fn text_is_read_in_its_encodings() {
        assert_eq!(of("Grüße\r\n漢字 🐦".as_bytes()).unwrap(), "Grüße\n漢字 🐦");
        assert_eq!(of(b"\xef\xbb\xbfwith a mark").unwrap(), "with a mark");
        for (mark, word) in
            [([0xff, 0xfe], u16::to_le_bytes as fn(u16) -> [u8; 2]), ([0xfe, 0xff], u16::to_be_bytes)]
        {
            let mut bytes = mark.to_vec();
            bytes.extend("Grüße 🐦".encode_utf16().flat_map(word));
            assert_eq!(of(&bytes).unwrap(), "Grüße 🐦");
        }
    }

    #[test]
    fn what_is_no_text_is_refused_with_its_reason() {
        for (bytes, reason) in [
            (&b"%PDF-1.7 and so on"[..], "is a PDF"),
            (b"\x89PNG\r\n", "is a picture"),
            (b"text with \0 in it", "is binary"),
            (b"\x01\x02\x03\x04", "is binary"),
            (b"latin \xe9", "neither UTF-8 nor marked as UTF-16"),
            (b"\xff\xfea", "ends inside a character"),
            (b"\xff\xfe\x00\xd8", "is marked as UTF-16 and is not"),
            (b"", "is empty"),
            (b" \n", "is empty"),
        ] {
            let said = of(bytes).unwrap_err();
            assert!(said.contains(reason) && said.contains("a name.txt"), "{said}");
        }
        assert!(of(&vec![b'a'; LIMIT as usize]).is_ok());
        assert!(of(&vec![b'a'; LIMIT as usize + 1]).unwrap_err().contains("larger than 4 MB"));
        let temp = tempfile::tempdir().unwrap();
        assert!(read(temp.path()).unwrap_err().message.contains("is a folder"));
        assert!(read(&temp.path().join("none")).unwrap_err().message.contains("cannot be read"));
    }
}
