//! Unpacking: fresh, again, over an old one, over leftovers, by many at once, and where nothing can be written.

#![allow(clippy::unwrap_used)] // helpers of tests fail by panicking, as tests do

use fieldfare::Error;
use fieldfare::format::{self, Integrity, Layout, ModelDir, VerifyOptions};
use fieldfare::install::{InstallOptions, install_local};
use fieldfare_demo::{DIRECTORY, IDENTITY, Ready, Step, ensure_in, is_demo};
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

fn ensure(folder: &Path) -> fieldfare::Result<Ready> {
    ensure_in(&[folder.to_path_buf()], &mut |_| ControlFlow::Continue(()))
}

/// What is in the folder, but for lock files.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| !name.ends_with(".lock"));
    names.sort();
    names
}

/// The fixture at the place of the demonstration model, with this key in its `config.json`.
fn other_model(folder: &Path, key: &str) -> PathBuf {
    let source = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(fieldfare_testing::tiny_checkpoint()).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), source.path().join(entry.file_name())).unwrap();
    }
    let config = source.path().join("config.json");
    let text = fs::read_to_string(&config).unwrap().replacen('{', &format!("{{\"{key}\": \"older\","), 1);
    fs::write(&config, text).unwrap();
    let output = folder.join(DIRECTORY);
    let options = InstallOptions {
        from: source.path().to_path_buf(),
        output: output.clone(),
        layout: Layout::Tiled,
        overwrite: false,
    };
    install_local(&options, &mut |_| ControlFlow::Continue(())).unwrap();
    output
}

#[test]
fn it_is_made_once_and_is_an_ordinary_model() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("not yet/models");
    let first = ensure(&folder).unwrap();
    assert!(first.unpacked && first.warnings.is_empty(), "{first:?}");
    assert_eq!(first.path, folder.join(DIRECTORY));
    assert_eq!(names(&folder), [DIRECTORY]);
    assert!(is_demo(&first.path));
    assert_eq!(ModelDir::open(&first.path, Integrity::Full).unwrap().layout(), Layout::Tiled);
    let report =
        format::verify(&first.path, &VerifyOptions::default(), &mut |_| ControlFlow::Continue(())).unwrap();
    assert!(report.strays.is_empty() && report.warnings.is_empty(), "{report:?}");

    let manifest = fs::metadata(first.path.join("manifest.json")).unwrap().modified().unwrap();
    let again = ensure(&folder).unwrap();
    assert_eq!(again, Ready { unpacked: false, ..first.clone() });
    assert_eq!(fs::metadata(first.path.join("manifest.json")).unwrap().modified().unwrap(), manifest);
}

#[test]
fn an_older_one_and_a_damaged_one_are_replaced() {
    let temp = tempfile::tempdir().unwrap();
    let path = other_model(temp.path(), "fieldfare_demo");
    assert!(is_demo(&path));
    let config = path.join("tokenizer/config.json");
    assert!(!fs::read_to_string(&config).unwrap().contains(IDENTITY));
    assert!(ensure(temp.path()).unwrap().unpacked);
    assert!(fs::read_to_string(&config).unwrap().contains(IDENTITY));

    let layer = path.join("packed_experts/layer_00.bin");
    let whole = fs::metadata(&layer).unwrap().len();
    fs::File::options().write(true).open(&layer).unwrap().set_len(whole / 2).unwrap();
    assert!(ensure(temp.path()).unwrap().unpacked);
    assert_eq!(fs::metadata(&layer).unwrap().len(), whole);
    assert_eq!(names(temp.path()), [DIRECTORY]);
}

#[test]
fn somebody_elses_model_of_that_name_is_left_alone() {
    let temp = tempfile::tempdir().unwrap();
    let path = other_model(temp.path(), "my_own_key");
    assert!(!is_demo(&path));
    let manifest = fs::read(path.join("manifest.json")).unwrap();
    let error = ensure(temp.path()).unwrap_err();
    assert!(matches!(&error, Error::Refused { .. }), "{error}");
    assert!(error.to_string().contains("demo.gturbo") && error.to_string().contains("move it away"));
    assert_eq!(fs::read(path.join("manifest.json")).unwrap(), manifest);
    assert_eq!(names(temp.path()), [DIRECTORY]);
}

#[test]
fn what_a_killed_process_left_goes() {
    let temp = tempfile::tempdir().unwrap();
    let source = temp.path().join(".demo.unpacking");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("model.safetensors"), "half").unwrap();
    let partial = temp.path().join("demo.gturbo.partial");
    fs::create_dir_all(partial.join("packed_experts")).unwrap();
    fs::write(partial.join(".fieldfare-partial"), "").unwrap();
    fs::write(partial.join("packed_experts/layer_00.bin"), "half").unwrap();
    assert!(ensure(temp.path()).unwrap().unpacked);
    assert_eq!(names(temp.path()), [DIRECTORY]);
}

#[test]
fn stopping_at_any_step_leaves_nothing_or_everything() {
    let mut steps = 0;
    let temp = tempfile::tempdir().unwrap();
    let folder = [temp.path().to_path_buf()];
    ensure_in(&folder, &mut |_| {
        steps += 1;
        ControlFlow::Continue(())
    })
    .unwrap();
    assert!(steps > 20, "{steps}");
    for stop in [1, 2, 6, 7, 8, steps / 2, steps - 1, steps] {
        let temp = tempfile::tempdir().unwrap();
        let mut seen = 0;
        let stopped = ensure_in(&[temp.path().to_path_buf()], &mut |_| {
            seen += 1;
            if seen == stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert!(matches!(stopped, Err(Error::Cancelled)), "{stop}: {stopped:?}");
        let left = names(temp.path());
        assert!(left.is_empty() || left == [DIRECTORY], "{stop}: {left:?}");
        ensure(temp.path()).unwrap();
        ModelDir::open(temp.path().join(DIRECTORY), Integrity::Full).unwrap();
    }
}

#[test]
fn many_at_once_unpack_once() {
    let temp = tempfile::tempdir().unwrap();
    let unpacked = std::thread::scope(|scope| {
        let all: Vec<_> = (0..4).map(|_| scope.spawn(|| ensure(temp.path()).unwrap())).collect();
        all.into_iter().map(|one| one.join().unwrap()).filter(|one| one.unpacked).count()
    });
    assert_eq!(unpacked, 1);
    assert_eq!(names(temp.path()), [DIRECTORY]);
}

#[test]
fn waiting_for_another_can_be_stopped() {
    let temp = tempfile::tempdir().unwrap();
    let lock = fs::File::create(temp.path().join("demo.gturbo.unpack.lock")).unwrap();
    lock.lock().unwrap();
    let mut last = None;
    let stopped = ensure_in(&[temp.path().to_path_buf()], &mut |step| {
        last = Some(step);
        ControlFlow::Break(())
    });
    assert!(matches!(stopped, Err(Error::Cancelled)));
    assert_eq!(last, Some(Step::Waiting));
    assert_eq!(names(temp.path()), Vec::<String>::new());
}

#[test]
fn where_nothing_can_be_written_the_next_folder_serves() {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("file");
    fs::write(&file, "").unwrap();
    let (bad, worse, good) = (file.join("models"), file.join("cache"), temp.path().join("run"));
    let mut quiet = |_| ControlFlow::Continue(());
    let ready = ensure_in(&[bad.clone(), worse.clone(), good.clone()], &mut quiet).unwrap();
    assert_eq!(ready.path, good.join(DIRECTORY));
    assert!(!ensure_in(&[bad.clone(), good], &mut quiet).unwrap().unpacked);
    let error = ensure_in(&[bad.clone(), worse], &mut quiet).unwrap_err().to_string();
    assert!(error.contains(&bad.display().to_string()) && error.contains("XDG_DATA_HOME"), "{error}");
    assert!(ensure_in(&[], &mut quiet).is_err());
}
