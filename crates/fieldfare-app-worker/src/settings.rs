//! The window's settings: one JSON document in a file, replaced in one step.

use crate::message::Trouble;
use crate::trouble::plain;
use std::io::{ErrorKind, Read, Write};
use std::path::Path;

/// Larger files are no settings of ours.
const CAP: u64 = 1 << 20;

/// What is kept; none if there is nothing, or nothing that can be read. A file that is no JSON is moved aside, not
/// overwritten.
pub(crate) fn read(path: &Path) -> Option<String> {
    let text = read_text(path)?;
    if serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok() {
        return Some(text);
    }
    // Whatever becomes of the name: the settings begin anew.
    let _ = std::fs::rename(path, path.with_extension("damaged.json"));
    None
}

fn read_text(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    std::fs::File::open(path).ok()?.take(CAP + 1).read_to_end(&mut bytes).ok()?;
    if bytes.len() as u64 > CAP {
        return None;
    }
    // What is not UTF-8 is not JSON either, and takes the same way out.
    Some(String::from_utf8(bytes).unwrap_or_else(|_| "not UTF-8".to_owned()))
}

/// Keeps it: the old document or the new one is there, never half of one.
///
/// # Errors
/// The disk is full, or the folder cannot be written.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), Trouble> {
    let written = || -> std::io::Result<()> {
        let folder = path.parent().ok_or(ErrorKind::NotFound)?;
        let mut file = tempfile::Builder::new().prefix(".settings").tempfile_in(folder)?;
        file.write_all(text.as_bytes())?;
        file.as_file().sync_all()?;
        file.persist(path).map_err(|error| error.error)?;
        Ok(())
    };
    written().map_err(|error| {
        plain(
            format!("the settings cannot be kept in {}: {error}", path.display()),
            "They hold until the app ends.",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_back_and_what_is_none_is_moved_aside() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("settings.json");
        assert_eq!(read(&path), None);
        write(&path, r#"{"a": 1}"#).unwrap();
        write(&path, r#"{"a": 2}"#).unwrap();
        assert_eq!(read(&path).as_deref(), Some(r#"{"a": 2}"#));
        for broken in [&b"{\"a\": "[..], b"\xff\xfe"] {
            std::fs::write(&path, broken).unwrap();
            assert_eq!(read(&path), None);
            assert_eq!(std::fs::read(temp.path().join("settings.damaged.json")).unwrap(), broken);
        }
        std::fs::write(&path, vec![b' '; CAP as usize + 1]).unwrap();
        assert_eq!(read(&path), None);
        let said = write(&temp.path().join("missing/settings.json"), "{}").unwrap_err();
        assert!(said.message.contains("cannot be kept"), "{said:?}");
        // Nothing is left of the way there.
        assert!(
            std::fs::read_dir(temp.path())
                .unwrap()
                .all(|entry| { !entry.unwrap().file_name().to_string_lossy().starts_with(".settings") })
        );
    }
}
