//! Finds the model that a command is about: the option, the environment, the data folder, in this order.

use crate::args::OutputArgs;
use crate::failure::Failure;
use crate::ui::terminal;
use crate::{Outcome, demo};
use fieldfare::sys::paths;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Names the model directory of people who keep it somewhere of their own.
pub const MODEL_VARIABLE: &str = "FIELDFARE_MODEL";

/// Where the model is.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    /// In this directory.
    Directory(PathBuf),
    /// In this program.
    Demo,
    /// Nobody named one, and none is installed; says what was looked at.
    Nothing(String),
}

/// The model directory that `--model` (or an argument) names, else `FIELDFARE_MODEL`, else the data folder holds.
/// `demo` is unpacked if it has to be, with a remark unless `quiet`.
///
/// # Errors
/// Says what was looked at and what to do.
pub fn model(option: Option<&Path>, quiet: bool) -> Outcome<PathBuf> {
    ready(find_here(option)?, quiet)
}

/// As [`model`], for a person who came to talk: when no model is installed, a terminal asks whether the demonstration
/// model will do. Programs and pipes get the error, never a toy that they did not ask for.
///
/// # Errors
/// As [`model`].
pub fn model_or_offer(option: Option<&Path>, show: &OutputArgs) -> Outcome<PathBuf> {
    let mut found = find_here(option)?;
    if matches!(found, Found::Nothing(_)) && !show.quiet && !show.json && terminal::is_whole() {
        // Asked before Ctrl-C is listened to, so that it ends the question as it ends any program.
        if !demo::offer(&mut std::io::stdin().lock(), &mut std::io::stderr())? {
            return Err(
                Failure::failed("no model is installed").with_hint("install one with `fieldfare install`")
            );
        }
        found = Found::Demo;
    }
    ready(found, show.quiet)
}

fn ready(found: Found, quiet: bool) -> Outcome<PathBuf> {
    match found {
        Found::Directory(path) => Ok(path),
        Found::Demo => demo::ready(quiet),
        Found::Nothing(looked_at) => Err(none_found(&looked_at)),
    }
}

fn find_here(option: Option<&Path>) -> Outcome<Found> {
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
    let mut name = name.to_str().map_or_else(|| name.to_os_string(), |name| portable(name).into());
    name.push(".gturbo");
    if name == fieldfare_demo::DIRECTORY {
        return Err(Failure::usage("the name demo belongs to the built-in model")
            .with_hint("name the model directory with --output DIR.gturbo"));
    }
    Ok(data.join("models").join(name))
}

/// A name that every system takes: an address may have a port in it, a folder a question mark.
fn portable(name: &str) -> String {
    let plain = |c: char| !c.is_control() && !r#"<>:"/\|?*"#.contains(c);
    let name: String = name.chars().map(|c| if plain(c) { c } else { '-' }).collect();
    // Some names are devices, whatever stands behind the dot; a dot in front hides.
    let stem = name.split('.').next().unwrap_or_default().trim_end().to_ascii_uppercase();
    let numbered = |of: &str| {
        stem.strip_prefix(of).is_some_and(|n| n.chars().count() == 1 && n.chars().all(char::is_numeric))
    };
    let device = ["CON", "PRN", "AUX", "NUL"].contains(&&*stem) || numbered("COM") || numbered("LPT");
    if device || name.starts_with('.') || name.trim().is_empty() { format!("model-{name}") } else { name }
}

fn find(option: Option<&Path>, variable: Option<OsString>, data: Option<&Path>) -> Outcome<Found> {
    if let Some(path) = option {
        return named(path, "");
    }
    if let Some(value) = variable.filter(|value| !value.is_empty()) {
        return named(Path::new(&value), " (named by FIELDFARE_MODEL)");
    }
    let Some(data) = data else {
        let looked_at = "no --model, no FIELDFARE_MODEL, and no data folder (no home folder)";
        return Ok(Found::Nothing(looked_at.to_owned()));
    };
    let models = data.join("models");
    let default = models.join("default");
    if default.is_dir() {
        return Ok(Found::Directory(default));
    }
    let mut candidates = directories_in(&models);
    candidates.extend(directories_in(data));
    // A toy that was tried once must not stand for the model, nor make a choice of two out of one model.
    candidates.retain(|path| !fieldfare_demo::is_demo(path));
    candidates.sort();
    match candidates.as_slice() {
        [one] => Ok(Found::Directory(one.clone())),
        [] => Ok(Found::Nothing(format!(
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
fn named(path: &Path, by: &str) -> Outcome<Found> {
    if demo::is_meant(path) {
        return Ok(Found::Demo);
    }
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_dir() => Ok(Found::Directory(path.to_path_buf())),
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
    Failure::failed(format!("no model found: {looked_at}")).with_hint(
        "install one with `fieldfare install`, name one with --model DIR, or try the built-in toy with --model demo",
    )
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
        assert_eq!(with_all, Found::Directory(option));
        let by_variable = find(None, Some(variable.clone().into()), Some(&data)).unwrap();
        assert_eq!(by_variable, Found::Directory(variable));

        let Found::Nothing(text) = find(None, Some(OsString::new()), Some(&data)).unwrap() else {
            panic!("nothing is there")
        };
        assert!(text.contains("FIELDFARE_MODEL") && text.contains("models/default"), "{text}");
        let one = dir("data/models/one.gturbo");
        assert_eq!(find(None, None, Some(&data)).unwrap(), Found::Directory(one));
        dir("data/two.gturbo");
        let text = message(find(None, None, Some(&data)).unwrap_err());
        assert!(text.contains("one.gturbo") && text.contains("two.gturbo"), "{text}");
        let default = dir("data/models/default");
        assert_eq!(find(None, None, Some(&data)).unwrap(), Found::Directory(default));
    }

    #[test]
    fn names_that_every_system_takes() {
        for (name, want) in [
            ("gemma-4-26b", "gemma-4-26b"),
            ("mein Modell, größer", "mein Modell, größer"),
            ("127.0.0.1:8080", "127.0.0.1-8080"),
            ("a?b*c|d", "a-b-c-d"),
            ("nul.x", "model-nul.x"),
            ("Com1", "model-Com1"),
            ("command", "command"),
            (".hidden", "model-.hidden"),
        ] {
            assert_eq!(portable(name), want);
        }
        let Ok(output) = default_output(Path::new("localhost:80")) else { return };
        assert!(output.ends_with("models/localhost-80.gturbo"), "{}", output.display());
    }

    #[test]
    fn the_demonstration_model_is_taken_by_name_only() {
        let temp = tempfile::tempdir().unwrap();
        let models = temp.path().join("models");
        let unpacked = models.join(fieldfare_demo::DIRECTORY);
        std::fs::create_dir_all(unpacked.join("tokenizer")).unwrap();
        let config = unpacked.join("tokenizer/config.json");
        std::fs::write(&config, r#"{"fieldfare_demo": "any"}"#).unwrap();
        assert!(matches!(find(None, None, Some(temp.path())).unwrap(), Found::Nothing(_)));
        let real = models.join("real.gturbo");
        std::fs::create_dir(&real).unwrap();
        assert_eq!(find(None, None, Some(temp.path())).unwrap(), Found::Directory(real));

        assert_eq!(find(Some(Path::new("demo")), None, None).unwrap(), Found::Demo);
        assert_eq!(find(None, Some("demo".into()), None).unwrap(), Found::Demo);
        assert!(message(find(Some(Path::new("./demo")), None, None).unwrap_err()).contains("./demo"));
        // Somebody's own model under that name is a model like any other.
        std::fs::write(&config, "{}").unwrap();
        let text = message(find(None, None, Some(temp.path())).unwrap_err());
        assert!(text.contains("demo.gturbo") && text.contains("real.gturbo"), "{text}");
        assert!(default_output(Path::new("somewhere/demo")).is_err());
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
        let Found::Nothing(text) = find(None, None, None).unwrap() else { panic!("nothing is there") };
        assert!(text.contains("no home folder"), "{text}");
    }
}
