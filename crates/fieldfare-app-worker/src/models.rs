//! Model directories on this machine.

use crate::message::Model;
use fieldfare::format::MANIFEST;
use fieldfare::install::default_remote;
use fieldfare::install::hub::Remote;
use std::fs;
use std::path::{Path, PathBuf};

/// Names the model directory of people who keep it somewhere of their own, as for the command line.
const VARIABLE: &str = "FIELDFARE_MODEL";
/// More entries than this in one folder are not looked at.
const MAX_ENTRIES: usize = 10_000;
/// The manifest is read up to here for its model id.
const MANIFEST_CAP: u64 = 8 << 20;

/// All in these folders (and these folders themselves, if they are models), sorted by name, the demonstration model last.
pub(crate) fn find(folders: &[PathBuf]) -> Vec<Model> {
    let variable = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
    let mut places: Vec<PathBuf> = Vec::new();
    for folder in folders.iter().chain(&variable) {
        places.push(folder.clone());
        let Ok(entries) = fs::read_dir(folder) else { continue };
        places.extend(entries.take(MAX_ENTRIES).filter_map(Result::ok).map(|entry| entry.path()).filter(
            |path| {
                let unfinished =
                    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
                path.extension().is_some_and(|end| end == "gturbo") && !unfinished
            },
        ));
    }
    let mut seen = Vec::new();
    let mut models: Vec<Model> = places
        .iter()
        .filter_map(|path| {
            let whole = fs::canonicalize(path).ok()?;
            if !whole.join(MANIFEST).is_file() || seen.contains(&whole) {
                return None;
            }
            seen.push(whole);
            Some(describe(path))
        })
        .collect();
    models.sort_by(|a, b| (a.is_demo, &a.name, &a.path).cmp(&(b.is_demo, &b.name, &b.path)));
    models
}

/// The directory for people.
pub(crate) fn describe(path: &Path) -> Model {
    let is_demo = fieldfare_demo::is_demo(path);
    let stem = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let stem = stem.strip_suffix(".gturbo").unwrap_or(&stem).to_owned();
    let name = if is_demo {
        "Demonstration model (a toy)".to_owned()
    } else if id(path).is_some_and(|id| id == known_id()) {
        known_name()
    } else {
        stem
    };
    Model { path: path.to_path_buf(), name, bytes: bytes_below(path, 3), is_demo }
}

/// The model that is downloaded, for people.
pub(crate) fn known_name() -> String {
    "Gemma 4 26B-A4B".to_owned()
}

fn known_id() -> String {
    match default_remote(None) {
        Remote::Hub { repo, .. } => repo,
        Remote::Base { url } => url,
    }
}

/// The manifest's model id.
fn id(path: &Path) -> Option<String> {
    let file = path.join(MANIFEST);
    if fs::metadata(&file).ok()?.len() > MANIFEST_CAP {
        return None;
    }
    #[derive(serde::Deserialize)]
    struct Head {
        #[serde(rename = "modelID")]
        model_id: String,
    }
    let head: Head = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
    Some(head.model_id)
}

/// Bytes of the files in a folder and in those in it, `depth` deep; links are not followed.
fn bytes_below(folder: &Path, depth: usize) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    entries
        .take(MAX_ENTRIES)
        .filter_map(Result::ok)
        .filter_map(|entry| Some((entry.metadata().ok()?, entry.path())))
        .map(|(meta, path)| {
            if meta.is_dir() && depth > 0 {
                bytes_below(&path, depth - 1)
            } else if meta.is_file() {
                meta.len()
            } else {
                0
            }
        })
        .fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_found_once_and_unfinished_ones_are_not() {
        let temp = tempfile::tempdir().unwrap();
        let model = |name: &str, text: &str| {
            let path = temp.path().join(name);
            fs::create_dir_all(path.join("packed_experts")).unwrap();
            fs::write(path.join(MANIFEST), text).unwrap();
            fs::write(path.join("packed_experts/layer_00.bin"), [0; 100]).unwrap();
            path
        };
        let known = format!("{{\"modelID\": \"{}\"}}", known_id());
        let (a, b) = (model("b.gturbo", &known), model("a.gturbo", "{}"));
        model(".c.gturbo", "{}");
        model("d.gturbo.partial", "{}");
        fs::create_dir(temp.path().join("empty.gturbo")).unwrap();
        let found = find(&[temp.path().to_path_buf(), a.clone(), temp.path().join("none")]);
        let names: Vec<_> = found.iter().map(|model| model.name.as_str()).collect();
        assert_eq!(names, ["Gemma 4 26B-A4B", "a"]);
        assert_eq!((&found[0].path, &found[1].path), (&a, &b));
        assert_eq!(found[1].bytes, 102);
        assert!(!found[0].is_demo);
    }
}
