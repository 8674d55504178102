//! The model directory of the demonstration model: whether it is there, and making it.
//!
//! The checkpoint is written to a folder beside the target, installed from there with the ordinary installer, verified,
//! and deleted. `config.json` gets one more key, [`KEY`], with the identity of the embedded files: so the directory says
//! itself whose it is, that goes in with the directory's name in one step, and a program with newer weights knows an old
//! one. A directory of that name without the key is somebody's own model and is never touched.
//!
//! One process at a time works in a folder, under `demo.gturbo.unpack.lock`; others wait for it. What a killed process
//! leaves (the written checkpoint, the installer's `.partial`) has fixed names and goes with the next try.
//!
//! Memory: the installer's buffers; the embedded files are written from where the program has them.

use crate::embedded::{CONFIG, FILES, IDENTITY};
use fieldfare::format::{self, Integrity, ModelDir, SIDECAR_DIR, VerifyOptions, VerifyProgress, json};
use fieldfare::install::{self, InstallOptions};
use fieldfare::sys::{paths, volume};
use fieldfare::{Error, Result};
use std::fs::{self, File, TryLockError};
use std::io::{ErrorKind, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The name of the model directory.
pub const DIRECTORY: &str = "demo.gturbo";
/// Where the checkpoint is while it is installed.
const SOURCE: &str = ".demo.unpacking";
/// Held while the folder is worked on.
const LOCK: &str = "demo.gturbo.unpack.lock";
/// The key of `config.json` with the identity of the embedded files.
const KEY: &str = "fieldfare_demo";
/// Largest `config.json` that is looked at, in bytes.
const CONFIG_CAP: u64 = 1 << 20;
/// Between two looks at a lock that another process holds.
const WAIT: Duration = Duration::from_millis(20);

/// How far [`ensure`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Another process unpacks the same model.
    Waiting,
    /// Bytes written, of how many.
    Unpacking {
        /// Bytes done.
        done: u64,
        /// Bytes to do.
        total: u64,
    },
}

/// The demonstration model, ready to be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ready {
    /// Its model directory.
    pub path: PathBuf,
    /// True if this call has made it.
    pub unpacked: bool,
    /// What the person should know, such as an old one that could not be deleted.
    pub warnings: Vec<String>,
}

/// The caller's ear for progress, and its way to stop.
type Listener<'a> = &'a mut dyn FnMut(Step) -> ControlFlow<()>;

/// Where the model directory may be, the best place first: with the installed models, else where things are that can be
/// made again, else (for services without a home folder) in the runtime folder.
pub fn folders() -> Vec<PathBuf> {
    [paths::data_dir(), paths::cache_dir(), paths::runtime_dir().ok()]
        .into_iter()
        .flatten()
        .map(|folder| folder.join("models"))
        .collect()
}

/// The model directory of the demonstration model, unpacked into the person's data folder unless it is there. `listener`
/// is told of progress and may stop the work.
///
/// # Errors
/// As [`ensure_in`].
pub fn ensure(listener: Listener<'_>) -> Result<Ready> {
    ensure_in(&folders(), listener)
}

/// As [`ensure`], in the first of these folders that can be written.
///
/// # Errors
/// [`Error::Refused`] if no folder can be written, or if something else has the name of the model directory;
/// [`Error::Cancelled`]; those of the installer. Nothing is left but lock files.
pub fn ensure_in(folders: &[PathBuf], listener: Listener<'_>) -> Result<Ready> {
    // A folder may be read-only today and have been writable yesterday.
    let mut places = folders.iter().map(|folder| folder.join(DIRECTORY));
    if let Some(path) = places.find(|path| is_current(path)) {
        return Ok(Ready { path, unpacked: false, warnings: Vec::new() });
    }
    let mut reasons = Vec::new();
    for folder in folders {
        match unpack(folder, listener) {
            Err(Error::Io { path, source, .. }) if is_unwritable(source.kind()) => {
                reasons.push(format!("{}: {source}", path.display()));
            }
            other => return other,
        }
    }
    let reason = if reasons.is_empty() { "this person has no folder".to_owned() } else { reasons.join("; ") };
    Err(Error::bad(
        "the demonstration model",
        format!("no place to unpack it ({reason}); name a writable data folder, on Linux with XDG_DATA_HOME"),
    ))
}

/// Whether the model directory at `path` holds a demonstration model, of this build or another.
pub fn is_demo(path: &Path) -> bool {
    identity_of(path).is_some()
}

/// The identity that the directory claims.
fn identity_of(path: &Path) -> Option<String> {
    let file = File::open(path.join(SIDECAR_DIR).join(CONFIG)).ok()?;
    let mut bytes = Vec::new();
    file.take(CONFIG_CAP + 1).read_to_end(&mut bytes).ok()?;
    let config = json::parse(CONFIG, &bytes, CONFIG_CAP).ok()?;
    config.get(KEY)?.as_str().map(str::to_owned)
}

/// Whether `path` is the model of this build and whole, as far as that is seen without reading its weights.
fn is_current(path: &Path) -> bool {
    identity_of(path).is_some_and(|identity| identity == IDENTITY)
        && ModelDir::open(path, Integrity::Structure).is_ok()
}

/// A place that will not do, where another may.
fn is_unwritable(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem | ErrorKind::NotADirectory)
}

fn unpack(folder: &Path, listener: Listener<'_>) -> Result<Ready> {
    fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
    let _lock = lock(&folder.join(LOCK), listener)?;
    let source = Source { path: folder.join(SOURCE) };
    source.remove()?;
    let path = folder.join(DIRECTORY);
    if is_current(&path) {
        // Somebody else made it while this process waited.
        return Ok(Ready { path, unpacked: false, warnings: Vec::new() });
    }
    let replace = may_replace(&path)?;
    source.write(listener)?;
    let options = InstallOptions {
        from: source.path.clone(),
        output: path.clone(),
        layout: format::Layout::Tiled,
        overwrite: replace,
    };
    let installed = install::install_local(&options, &mut |now| {
        listener(Step::Unpacking { done: now.done, total: now.total })
    })?;
    source.remove()?;
    verify(&path, listener)?;
    Ok(Ready { path, unpacked: true, warnings: installed.warnings })
}

/// Whether something of ours is at `path` and goes; an error if something of somebody else's is.
fn may_replace(path: &Path) -> Result<bool> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Error::io("open", path)(error)),
        Ok(_) if is_demo(path) => Ok(true),
        Ok(_) => Err(Error::Refused {
            path: path.to_path_buf(),
            reason: "is in the way of the demonstration model and was not made for it; move it away".into(),
        }),
    }
}

/// Reads back what was written. A model that does not read back is of no use to anybody and would be taken for a good
/// one next time, so it goes.
fn verify(path: &Path, listener: Listener<'_>) -> Result<()> {
    let checked = format::verify(path, &VerifyOptions::default(), &mut |step| match step {
        VerifyProgress::Bytes { done, total } => listener(Step::Unpacking { done, total }),
        _ => ControlFlow::Continue(()),
    });
    match checked {
        Ok(_) => Ok(()),
        // Whole as far as anybody knows, since every byte was hashed on its way.
        Err(Error::Cancelled) => Err(Error::Cancelled),
        Err(error) => {
            let _ = fs::remove_dir_all(path);
            Err(error)
        }
    }
}

/// Takes the lock of the folder; waits while another process has it.
fn lock(path: &Path, listener: Listener<'_>) -> Result<File> {
    let file = volume::open_lock(path).map_err(Error::io("create", path))?;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(Error::io("lock", path)(error)),
        }
        if listener(Step::Waiting).is_break() {
            return Err(Error::Cancelled);
        }
        std::thread::sleep(WAIT);
    }
}

/// The folder of the written checkpoint, gone when this is dropped. Used under the lock only.
struct Source {
    path: PathBuf,
}

impl Source {
    fn write(&self, listener: Listener<'_>) -> Result<()> {
        fs::create_dir(&self.path).map_err(Error::io("create", &self.path))?;
        let total = FILES.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        for (name, bytes) in FILES {
            if listener(Step::Unpacking { done: 0, total }).is_break() {
                return Err(Error::Cancelled);
            }
            let path = self.path.join(name);
            let written =
                if name == CONFIG { fs::write(&path, marked(bytes)?) } else { fs::write(&path, bytes) };
            written.map_err(Error::io("write", &path))?;
        }
        Ok(())
    }

    fn remove(&self) -> Result<()> {
        match fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::io("delete", &self.path)(error)),
            _ => Ok(()),
        }
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        // Best effort: the next try removes what is left.
        let _ = self.remove();
    }
}

/// `config.json` with the identity as its first key.
fn marked(config: &[u8]) -> Result<Vec<u8>> {
    let rest = config.trim_ascii_start().strip_prefix(b"{");
    let rest = rest.ok_or_else(|| Error::damaged(CONFIG, "not a JSON object"))?;
    Ok([format!("{{\n    \"{KEY}\": \"{IDENTITY}\",").as_bytes(), rest].concat())
}
