//! Finds the model that a command is about: the option, the environment, the data folder, in this order.

use crate::Outcome;
use crate::failure::Failure;
use fieldfare::sys::paths;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Names the model directory of people who keep it somewhere of their own.
pub const MODEL_VARIABLE: &str = "FIELDFARE_MODEL";

/// The model directory that `--model` (or an argument) names, else `FIELDFARE_MODEL`, else the data folder holds.
///
/// # Errors
/// Says what was looked at and what to do.
pub fn model(option: Option<&Path>) -> Outcome<PathBuf> {
    find(option, std::env::var_os(MODEL_VARIABLE), paths::data_dir().as_deref())
}

/// Where `install` puts a model when it is not told.
///
/// # Errors
/// When there is no data folder, or the source has no name.
pub fn default_output(source: &Path) -> Outcome<PathBuf> {
    let data = paths::data_dir().ok_or_else(|| {
        Failure::usage("there is no data folder to install into (no home folder)")
            .with_hint("name the model directory with --output DIR.gturbo")
    })?;
    let whole = std::path::absolute(source).unwrap_or_else(|_| source.to_path_buf());
    let name = whole.file_name().ok_or_else(|| {
        Failure::usage(format!("{} has no name to install under", source.display()))
            .with_hint("name the model directory with --output DIR.gturbo")
    })?;
    let mut name = name.to_os_string();
    name.push(".gturbo");
    Ok(data.join("models").join(name))
}

fn find(option: Option<&Path>, variable: Option<OsString>, data: Option<&Path>) -> Outcome<PathBuf> {
    if let Some(path) = option {
        return named(path, "");
    }
    if let Some(value) = variable.filter(|value| !value.is_empty()) {
        return named(Path::new(&value), " (named by FIELDFARE_MODEL)");
    }
    let Some(data) = data else {
        return Err(none_found("no --model, no FIELDFARE_MODEL, and no data folder (no home folder)"));
    };
    let models = data.join("models");
    let default = models.join("default");
    if default.is_dir() {
        return Ok(default);
    }
    let mut candidates = directories_in(&models);
    candidates.extend(directories_in(data));
    candidates.sort();
    match candidates.as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(none_found(&format!(
            "no --model, no FIELDFARE_MODEL, and neither {} nor a *.gturbo in {} or {}",
            default.display(),
            models.display(),
            data.display()
        ))),
        several => {
            let names: Vec<_> = several.iter().take(5).map(|path| path.display().to_string()).collect();
            let more = if several.len() > names.len() { ", …" } else { "" };
            Err(Failure::usage(format!(
                "{} models are installed, and none is the default: {}{more}",
                several.len(),
                names.join(", ")
            ))
            .with_hint(format!(
                "choose one with --model DIR or FIELDFARE_MODEL, or make {} a link to it",
                default.display()
            )))
        }
    }
}

/// A place that somebody named must exist; what is in it is for the reader of the format to say.
fn named(path: &Path, by: &str) -> Outcome<PathBuf> {
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_dir() => Ok(path.to_path_buf()),
        Ok(_) => Err(Failure::failed(format!("no model at {}{by}: not a directory", path.display()))
            .with_hint("a model is a directory, usually named *.gturbo")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(Failure::failed(format!("no model at {}{by}: no such directory", path.display()))
                .with_hint("check the path, or make a model with `fieldfare install`"))
        }
        Err(error) => {
            Err(Failure::failed(format!("cannot open the model at {}{by}: {error}", path.display()))
                .with_hint("check the permissions of that directory and of those above it"))
        }
    }
}

fn none_found(looked_at: &str) -> Failure {
    Failure::failed(format!("no model found: {looked_at}"))
        .with_hint("install one with `fieldfare install --from DIR`, or name one with --model DIR")
}

fn directories_in(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    entries
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "gturbo") && path.is_dir())
        // `.x.gturbo` is somebody's unfinished work.
        .filter(|path| path.file_name().is_some_and(|name| !name.as_encoded_bytes().starts_with(b".")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::message;

    #[test]
    fn the_order_is_option_variable_data_folder() {
        let temp = tempfile::tempdir().unwrap();
        let dir = |name: &str| {
            let path = temp.path().join(name);
            std::fs::create_dir_all(&path).unwrap();
            path
        };
        let (option, variable, data) = (dir("a"), dir("b"), dir("data"));
        let with_all = find(Some(&option), Some(variable.clone().into()), Some(&data)).unwrap();
        assert_eq!(with_all, option);
        assert_eq!(find(None, Some(variable.clone().into()), Some(&data)).unwrap(), variable);

        let text = message(find(None, Some(OsString::new()), Some(&data)).unwrap_err());
        assert!(text.contains("FIELDFARE_MODEL") && text.contains("models/default"), "{text}");
        let one = dir("data/models/one.gturbo");
        assert_eq!(find(None, None, Some(&data)).unwrap(), one);
        dir("data/two.gturbo");
        let text = message(find(None, None, Some(&data)).unwrap_err());
        assert!(text.contains("one.gturbo") && text.contains("two.gturbo"), "{text}");
        let default = dir("data/models/default");
        assert_eq!(find(None, None, Some(&data)).unwrap(), default);
    }

    #[test]
    fn a_named_place_that_is_none_is_told_apart() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(message(find(Some(&file), None, None).unwrap_err()).contains("not a directory"));
        let missing = temp.path().join("missing");
        assert!(message(find(Some(&missing), None, None).unwrap_err()).contains("no such directory"));
        let by_variable = message(find(None, Some(missing.into()), None).unwrap_err());
        assert!(by_variable.contains("FIELDFARE_MODEL"), "{by_variable}");
        assert!(message(find(None, None, None).unwrap_err()).contains("no home folder"));
    }
}
