//! Where a model may go: nothing of anybody else's is touched, whatever happens on the way.

use std::fs::{self, File};
use std::ops::ControlFlow;
use std::path::Path;

use fieldfare::Error;
use fieldfare::format::Layout;
use fieldfare::install::{ConvertOptions, InstallOptions, Stage, convert, install_local};
use fieldfare_testing::tiny_checkpoint;

use crate::support::{contents, go_on, install, install_over, listing, options, to};

fn refusal(result: fieldfare::Result<fieldfare::install::Installed>) -> String {
    match result {
        Err(e @ Error::Refused { .. }) => e.to_string(),
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn an_existing_target_is_kept_unless_it_is_a_model_and_asked_for() {
    let root = tempfile::tempdir().expect("temporary directory");
    let out = root.path().join("out");
    // Not a model: never, whatever is asked.
    fs::create_dir(&out).expect("create");
    fs::write(out.join("thesis.txt"), "years").expect("write");
    assert!(refusal(install(&tiny_checkpoint(), &out, Layout::V1)).contains("exists already"));
    assert!(refusal(install_over(&tiny_checkpoint(), &out)).contains("no manifest.json"));
    fs::write(out.join("manifest.json"), "{\"magic\":\"OTHER\"}").expect("write");
    assert!(refusal(install_over(&tiny_checkpoint(), &out)).contains("no manifest.json"));
    // Looks like one, but somebody keeps files in it.
    fs::write(out.join("manifest.json"), "{\"magic\":\"GTURBO\"}").expect("write");
    assert!(refusal(install_over(&tiny_checkpoint(), &out)).contains("thesis.txt"));
    assert_eq!(fs::read(out.join("thesis.txt")).expect("kept"), b"years");
    assert_eq!(listing(root.path()), ["out"]);
    // A model of either magic.
    fs::remove_file(out.join("thesis.txt")).expect("remove");
    fs::write(out.join(".DS_Store"), "").expect("write");
    assert!(install_over(&tiny_checkpoint(), &out).expect("install").replaced);
    let v1 = contents(&out);
    to(&out, &root.path().join("tiled"), Layout::Tiled).expect("convert");
    assert!(install_over(&tiny_checkpoint(), &root.path().join("tiled")).expect("install").replaced);
    assert!(contents(&root.path().join("tiled")) == v1);
    assert_eq!(listing(root.path()), ["out", "tiled"]);
    // A file in the way.
    fs::write(root.path().join("file"), "x").expect("write");
    assert!(refusal(install_over(&tiny_checkpoint(), &root.path().join("file"))).contains("not a directory"));
    assert_eq!(fs::read(root.path().join("file")).expect("kept"), b"x");
}

#[test]
fn a_model_can_be_converted_in_place() {
    let root = tempfile::tempdir().expect("temporary directory");
    let out = root.path().join("model");
    install(&tiny_checkpoint(), &out, Layout::V1).expect("install");
    let v1 = contents(&out);
    for layout in [Layout::Tiled, Layout::V1] {
        let options = ConvertOptions { layout, output: out.clone(), overwrite: true };
        assert!(convert(&out, &options, &mut go_on).expect("convert").replaced);
    }
    assert!(contents(&out) == v1);
    assert_eq!(listing(root.path()), ["model"]);
    assert!(refusal(to(&out, &out.join("inside"), Layout::Tiled)).contains("inside"));
    assert_eq!(listing(&out).len(), 5);
}

#[test]
fn cancelling_leaves_what_was_there() {
    let root = tempfile::tempdir().expect("temporary directory");
    let out = root.path().join("out");
    install(&tiny_checkpoint(), &out, Layout::V1).expect("install");
    let before = contents(&out);
    let mut reports = Vec::new();
    let options = InstallOptions { overwrite: true, ..options(&tiny_checkpoint(), &out, Layout::Tiled) };
    let count = |p| {
        reports.push(p);
        ControlFlow::Continue(())
    };
    let mut count = count;
    install_local(&options, &mut count).expect("install");
    let last = reports.last().expect("some");
    assert!(last.stage == Stage::Finishing && last.done == last.total, "{last:?}");
    assert!(reports.is_sorted_by_key(|p| p.done) && reports.len() > 100);
    let fresh = InstallOptions { output: root.path().join("fresh"), ..options.clone() };
    let over = InstallOptions { layout: Layout::V1, ..options };
    install_local(&over, &mut go_on).expect("install");
    for at in [0, 1, 50, reports.len() / 2, reports.len() - 1] {
        for options in [&over, &fresh] {
            let options = InstallOptions { layout: Layout::Tiled, ..options.clone() };
            let mut seen = 0;
            let result = install_local(&options, &mut |_| {
                seen += 1;
                if seen > at { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            assert!(matches!(result, Err(Error::Cancelled)), "{at}: {result:?}");
            assert!(contents(&out) == before, "{at}");
            assert_eq!(listing(root.path()), ["out"], "{at}");
        }
    }
}

#[test]
fn a_second_installer_is_told_who_is_at_work() {
    let root = tempfile::tempdir().expect("temporary directory");
    let out = root.path().join("out");
    let options = options(&tiny_checkpoint(), &out, Layout::V1);
    let mut told = None;
    install_local(&options, &mut |_| {
        if told.is_none() {
            told = Some(install_local(&options, &mut go_on));
        }
        ControlFlow::Continue(())
    })
    .expect("the first one goes on");
    match told {
        Some(Err(Error::Locked { what, owner })) => {
            assert!(what.ends_with("out"), "{what}");
            assert!(owner.contains(&std::process::id().to_string()), "{owner}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(listing(root.path()), ["out"]);
}

#[test]
fn leftovers_of_ours_are_replaced_and_others_kept() {
    let root = tempfile::tempdir().expect("temporary directory");
    let (out, partial) = (root.path().join("out"), root.path().join("out.partial"));
    // Somebody else's, upstream's included.
    fs::create_dir(&partial).expect("create");
    fs::write(partial.join("model_weights.bin"), "half").expect("write");
    assert!(refusal(install(&tiny_checkpoint(), &out, Layout::V1)).contains("out.partial"));
    assert_eq!(fs::read(partial.join("model_weights.bin")).expect("kept"), b"half");
    // Ours.
    fs::write(partial.join(".fieldfare-partial"), "").expect("write");
    install(&tiny_checkpoint(), &out, Layout::V1).expect("install");
    // Killed between the exchange of names and the deletion of the old model: the lock file says so.
    let lock = root.path().join("out.install.lock");
    copy_tree(&out, &partial);
    assert!(refusal(install_over(&tiny_checkpoint(), &out)).contains("out.partial"));
    fs::write(&lock, "4711\npromoting\n").expect("write");
    install_over(&tiny_checkpoint(), &out).expect("install");
    // An empty one is nobody's.
    fs::create_dir(&partial).expect("create");
    install_over(&tiny_checkpoint(), &out).expect("install");
    fs::write(&partial, "x").expect("write");
    assert!(refusal(install_over(&tiny_checkpoint(), &out)).contains("not a directory"));
    fs::remove_file(&partial).expect("remove");
    assert_eq!(listing(root.path()), ["out"]);
}

fn copy_tree(from: &Path, to: &Path) {
    for (path, bytes) in contents(from) {
        let path = to.join(path);
        fs::create_dir_all(path.parent().expect("parent")).expect("create");
        fs::write(path, bytes).expect("write");
    }
}

#[test]
fn names_with_spaces_and_letters_of_all_kinds() {
    let root = tempfile::tempdir().expect("temporary directory");
    let dir = root.path().join("Große Modelle/日本語 – été");
    let out = dir.join("mein modell.gturbo");
    let done = install(&tiny_checkpoint(), &out, Layout::V1).expect("install");
    assert_eq!(done.path, out);
    crate::check_strictly(&out);
    to(&out, &dir.join("x/../zweites"), Layout::Tiled).expect("convert");
    assert_eq!(listing(&dir), ["mein modell.gturbo", "zweites"]);
    let dots =
        |path: &Path| matches!(install(&tiny_checkpoint(), path, Layout::V1), Err(Error::BadRequest { .. }));
    assert!(dots(Path::new("")) && dots(&root.path().join("..")) && dots(Path::new("/")));
    let file = root.path().join("file");
    File::create(&file).expect("create");
    let below =
        install(&tiny_checkpoint(), &file.join("out"), Layout::V1).expect_err("a parent that is a file");
    assert!(below.to_string().contains("file"), "{below}");
}

#[cfg(unix)]
#[test]
fn symbolic_links() {
    use std::os::unix::fs::symlink;
    let root = tempfile::tempdir().expect("temporary directory");
    let path = |name: &str| root.path().join(name);
    fs::create_dir(path("real")).expect("create");
    symlink("real", path("alias")).expect("link");
    // A linked parent is fine, and means the same lock as the real one.
    install(&tiny_checkpoint(), &path("alias").join("out"), Layout::V1).expect("install");
    crate::check_strictly(&path("alias").join("out"));
    let mut told = None;
    let over = InstallOptions {
        overwrite: true,
        ..options(&tiny_checkpoint(), &path("real").join("out"), Layout::V1)
    };
    install_local(&over, &mut |_| {
        told = told.take().or_else(|| Some(install_over(&tiny_checkpoint(), &path("alias").join("out"))));
        ControlFlow::Continue(())
    })
    .expect("install");
    assert!(matches!(told, Some(Err(Error::Locked { .. }))), "{told:?}");
    // A linked target or lock is not followed.
    symlink("real/out", path("link")).expect("link");
    assert!(refusal(install_over(&tiny_checkpoint(), &path("link"))).contains("symbolic link"));
    symlink("victim", path("new.install.lock")).expect("link");
    let locked = install(&tiny_checkpoint(), &path("new"), Layout::V1);
    assert!(matches!(locked, Err(Error::Io { .. })), "{locked:?}");
    assert!(!path("victim").exists());
    // A cache of links to blobs is a fine source; a link to nothing is named.
    fs::create_dir(path("cache")).expect("create");
    for name in ["config.json", "model.safetensors", "model.safetensors.index.json", "tokenizer.json"] {
        symlink(tiny_checkpoint().join(name).canonicalize().expect("fixture"), path("cache").join(name))
            .expect("link");
    }
    let done = install(&path("cache"), &path("from-cache"), Layout::V1).expect("install");
    assert_eq!(done.warnings.len(), 1);
    symlink("gone", path("cache").join("chat_template.jinja")).expect("link");
    let error = install(&path("cache"), &path("again"), Layout::V1).expect_err("installed").to_string();
    assert!(error.contains("chat_template.jinja") && error.contains("link to nothing"), "{error}");
}
