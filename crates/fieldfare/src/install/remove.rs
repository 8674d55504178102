//! Which existing directory may be replaced, and deleting it afterwards: only what a model directory is made of, file
//! by file, and never a tree.

use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Read};
use std::path::Path;

use super::source::SIDECARS;
use super::target::MARKER;
use crate::format::json;
use crate::format::{
    CAP_MANIFEST, EXPERTS_DIR, LAYOUT, Layout, MANIFEST, RECEIPT, SIDECAR_DIR, WEIGHTS, paths,
};
use crate::sys::file::Dir;
use crate::{Error, Result};

/// What file managers leave behind; it goes with the directory.
const LITTER: [&str; 3] = [".DS_Store", "Thumbs.db", "desktop.ini"];
/// More entries than this in one folder are no model.
const MAX_ENTRIES: usize = 10_000;

/// The manifest of the directory `dir`, if it has one that calls itself ours or upstream's.
pub(crate) fn magic(dir: &Path) -> Result<Option<json::Value>> {
    let root = Dir::open(dir).map_err(Error::io("open", dir))?;
    let file = match root.open_file(MANIFEST) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::PermissionDenied => {
            return Err(Error::io("open", dir.join(MANIFEST))(e));
        }
        Err(_) => return Ok(None),
    };
    let mut bytes = Vec::new();
    file.take(CAP_MANIFEST + 1).read_to_end(&mut bytes).map_err(Error::io("read", dir.join(MANIFEST)))?;
    let Ok(value) = json::parse(MANIFEST, &bytes, CAP_MANIFEST) else { return Ok(None) };
    let ours = value
        .get("magic")
        .and_then(json::Value::as_str)
        .is_some_and(|m| m == Layout::V1.magic() || m == Layout::Tiled.magic());
    Ok(ours.then_some(value))
}

/// Whether something is at `path`; an error unless that is nothing or a model that may be replaced.
pub(crate) fn replaceable(path: &Path, overwrite: bool) -> Result<bool> {
    let refuse = |reason: String| Err(Error::Refused { path: path.to_path_buf(), reason });
    let meta = match fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(false),
        // A missing or unsuitable parent is reported by whoever creates it.
        Err(e) if e.kind() == ErrorKind::NotADirectory => return Ok(false),
        Err(e) => return Err(Error::io("open", path)(e)),
    };
    if meta.is_symlink() {
        return refuse("is a symbolic link; name the directory it leads to".into());
    }
    if !overwrite {
        return refuse("exists already; --overwrite replaces a model directory, and nothing else".into());
    }
    if !meta.is_dir() {
        return refuse("is not a directory; --overwrite replaces a model directory, and nothing else".into());
    }
    let Some(manifest) = magic(path)? else {
        let what = "has no manifest.json of a model";
        return refuse(format!("{what}; --overwrite replaces a model directory, and nothing else"));
    };
    let (_, stray) = inventory(path, &manifest)?;
    match stray {
        Some(stray) => refuse(format!("holds {stray}, which is not part of the model; move it away first")),
        None => Ok(true),
    }
}

/// Deletes the model directory `dir`: the files its manifest lists, those that every model has, then the folders if they
/// are empty. A foreign file stays, and the folders around it, with an error.
pub(crate) fn model(dir: &Path) -> Result<()> {
    let Some(manifest) = magic(dir)? else {
        return Err(Error::damaged(dir.display().to_string(), "is no model directory any more"));
    };
    let (found, stray) = inventory(dir, &manifest)?;
    if let Some(stray) = stray {
        return Err(Error::damaged(
            dir.join(&stray).display().to_string(),
            "appeared meanwhile and is not the model's",
        ));
    }
    let root = Dir::open(dir).map_err(Error::io("open", dir))?;
    // The manifest last: what is left by a killed run is still recognised.
    let last = |name: &str| name == MANIFEST;
    let (manifests, files): (Vec<_>, Vec<_>) = found.files.iter().partition(|name| last(name));
    for name in files {
        root.remove_file(name).map_err(Error::io("delete", dir.join(name)))?;
    }
    for name in found.dirs.iter().rev() {
        fs::remove_dir(dir.join(name)).map_err(Error::io("delete", dir.join(name)))?;
    }
    for name in manifests {
        root.remove_file(name).map_err(Error::io("delete", dir.join(name)))?;
    }
    fs::remove_dir(dir).map_err(Error::io("delete", dir))
}

/// What lies in a model directory; paths relative to it, parents before children.
#[derive(Default)]
struct Inventory {
    files: Vec<String>,
    dirs: Vec<String>,
}

/// Lists a model directory, and the first entry in it that is not a model's.
fn inventory(dir: &Path, manifest: &json::Value) -> Result<(Inventory, Option<String>)> {
    let mut known: BTreeSet<String> = [MANIFEST, RECEIPT, WEIGHTS, LAYOUT, MARKER].map(str::to_owned).into();
    known.extend(SIDECARS.iter().map(|(name, _)| format!("{SIDECAR_DIR}/{name}")));
    if let Some(files) = manifest.get("files").and_then(json::Value::as_object) {
        known
            .extend(files.iter().map(|(name, _)| name.clone()).filter(|name| paths::problem(name).is_none()));
    }
    let mut folders: BTreeSet<String> = [EXPERTS_DIR, SIDECAR_DIR].map(str::to_owned).into();
    for name in &known {
        folders.extend(name.match_indices('/').map(|(at, _)| name[..at].to_owned()));
    }
    let root = Dir::open(dir).map_err(Error::io("open", dir))?;
    let mut found = Inventory::default();
    let mut todo = vec![String::new()];
    while let Some(folder) = todo.pop() {
        let entries = if folder.is_empty() {
            root.entries(MAX_ENTRIES)
        } else {
            root.open_dir(&folder).and_then(|d| d.entries(MAX_ENTRIES))
        };
        for entry in entries.map_err(Error::io("read", dir.join(&folder)))? {
            let Some(name) = entry.name.to_str() else {
                return Ok((found, Some(entry.name.to_string_lossy().into_owned())));
            };
            let path = if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
            if entry.is_dir && folders.contains(&path) {
                found.dirs.push(path.clone());
                todo.push(path);
            } else if !entry.is_dir
                && (known.contains(&path)
                    || LITTER.contains(&name)
                    || name.starts_with("._")
                    || is_layer(&path))
            {
                found.files.push(path);
            } else {
                return Ok((found, Some(path)));
            }
        }
    }
    Ok((found, None))
}

/// True for the layer files that every writer makes, which a damaged manifest may fail to list.
fn is_layer(path: &str) -> bool {
    path.strip_prefix("packed_experts/layer_")
        .and_then(|rest| rest.strip_suffix(".bin"))
        .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}
