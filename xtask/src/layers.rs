//! The rooms of the library and who may use whom, read from its `crate::room` paths.

use anyhow::{Context, Result};
use std::path::Path;

/// Each room with the rooms it may use. `error` and itself always.
const ROOMS: &[(&str, &[&str])] = &[
    ("error", &[]),
    ("sys", &[]),
    ("format", &["sys"]),
    ("store", &["sys", "format"]),
    ("tokenizer", &["sys", "format"]),
    ("model", &["sys", "format", "store"]),
    ("chat", &["sys", "format", "store", "tokenizer", "model"]),
    ("sample", &["sys", "format", "store", "tokenizer", "model"]),
    ("grammar", &["tokenizer", "chat", "sample"]),
    ("engine", &["sys", "format", "store", "tokenizer", "model", "chat", "sample"]),
    ("install", &["sys", "format"]),
    ("measure", &["sys", "format", "store", "model"]),
];

/// Complaints about `crate::` paths that go against the order.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let src = root.join("crates/fieldfare/src");
    let mut found = Vec::new();
    for file in crate::sources::files_below(&src, &["rs"])? {
        let relative = file.strip_prefix(&src).context("below src")?;
        let Some(room) = relative.components().next().and_then(|c| c.as_os_str().to_str()) else { continue };
        let room = room.trim_end_matches(".rs");
        if room == "lib" {
            continue;
        }
        let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let Some(allowed) = ROOMS.iter().find(|(name, _)| *name == room).map(|(_, rooms)| *rooms) else {
            found.push(format!("{}: room `{room}` has no place in the order", relative.display()));
            continue;
        };
        for (number, used) in uses(&text) {
            if used != room && used != "error" && !allowed.contains(&used) {
                found.push(format!("{}:{number}: `{room}` may not use `{used}`", relative.display()));
            }
        }
    }
    Ok(found)
}

/// Line number and room of each `crate::room` path outside line comments.
fn uses(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let code = line.split("//").next().unwrap_or("");
        for (at, _) in code.match_indices("crate::") {
            // `fieldfare_kernels::…` and macro crates do not end in a bare `crate::`.
            if code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '$') {
                continue;
            }
            let rest = &code[at + "crate::".len()..];
            let names: Vec<&str> = match rest.strip_prefix('{') {
                Some(group) => {
                    group.split(['}', ';']).next().unwrap_or("").split(',').map(str::trim).collect()
                }
                None => vec![rest],
            };
            for name in names {
                let end = name.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(name.len());
                let name = &name[..end];
                if ROOMS.iter().any(|(room, _)| *room == name) {
                    found.push((index + 1, name));
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_found_and_comments_are_not() {
        let text = "use crate::format::Manifest;\n// crate::engine\nlet x = crate::sys::now();\nuse crate::{Result, model::Forward};";
        assert_eq!(uses(text), [(1, "format"), (3, "sys"), (4, "model")]);
    }

    #[test]
    fn the_order_has_no_circle() {
        for (room, allowed) in ROOMS {
            for other in *allowed {
                let back = ROOMS.iter().find(|(name, _)| name == other).map(|(_, rooms)| *rooms);
                assert!(back.is_some_and(|rooms| !rooms.contains(room)), "{room} and {other}");
            }
        }
    }
}
