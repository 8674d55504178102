//! The command in surroundings of its own, and the tiny model, installed once.

use assert_cmd::Command;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use tempfile::TempDir;

/// Folders of one test: nothing of the person who runs it is read or written, and no other test's lock is met.
pub(crate) struct Home {
    dir: TempDir,
}

impl Home {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["data", "cache", "run", "home"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        Self { dir }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// The environment of the command.
    pub(crate) fn environment(&self) -> Vec<(&'static str, PathBuf)> {
        vec![
            ("HOME", self.path("home")),
            ("XDG_DATA_HOME", self.path("data")),
            ("XDG_CACHE_HOME", self.path("cache")),
            ("XDG_RUNTIME_DIR", self.path("run")),
        ]
    }

    /// `fieldfare ARGS`.
    pub(crate) fn command<S: AsRef<std::ffi::OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(binary());
        command.envs(self.environment()).env_remove("FIELDFARE_MODEL").args(args);
        // For what hangs; a busy machine is slow.
        command.timeout(std::time::Duration::from_secs(300));
        command
    }

    /// Runs `fieldfare ARGS`.
    pub(crate) fn run<S: AsRef<std::ffi::OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Ran {
        ran(self.command(args))
    }

    /// As [`Home::run`], on the tiny model.
    pub(crate) fn run_model<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Ran {
        ran(self.model_command(args))
    }

    /// As [`Home::command`], on the tiny model.
    pub(crate) fn model_command<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = self.command(args);
        command.env("FIELDFARE_MODEL", tiny_model());
        command
    }
}

/// What a command did.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// The only line of standard output, as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        assert_eq!(self.out.lines().count(), 1, "{self:?}");
        assert!(self.out.ends_with('\n'), "{self:?}");
        serde_json::from_str(&self.out).unwrap()
    }

    /// Checks the code, that standard output is empty, and the message; gives the whole of standard error.
    #[track_caller]
    pub(crate) fn fails(&self, code: i32, says: &str) -> &str {
        assert_eq!(self.code, code, "{self:?}");
        assert_eq!(self.out, "", "{self:?}");
        let errors = self.err.lines().filter(|line| line.starts_with("error: "));
        assert_eq!(errors.count(), 1, "{self:?}");
        assert!(self.err.contains(says), "wanted {says:?} in {self:?}");
        &self.err
    }
}

pub(crate) fn ran(mut command: Command) -> Ran {
    let output = command.output().unwrap();
    Ran {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).expect("standard output is UTF-8"),
        err: String::from_utf8(output.stderr).expect("standard error is UTF-8"),
    }
}

pub(crate) fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_fieldfare"))
}

/// The fixture, installed in our layout; shared by all tests, changed by none.
pub(crate) fn tiny_model() -> &'static Path {
    static MODEL: OnceLock<(Home, PathBuf)> = OnceLock::new();
    let (_, path) = MODEL.get_or_init(|| {
        let home = Home::new();
        let path = home.path("tiny.gturbo");
        let ran = install(&home, &path, "tiled");
        assert_eq!(ran.code, 0, "{ran:?}");
        (home, path)
    });
    path
}

/// `fieldfare install` of the fixture.
pub(crate) fn install(home: &Home, output: &Path, layout: &str) -> Ran {
    let from = fieldfare_testing::tiny_checkpoint();
    home.run([
        "install".as_ref(),
        "--from".as_ref(),
        from.as_os_str(),
        "--output".as_ref(),
        output.as_os_str(),
        "--layout".as_ref(),
        layout.as_ref(),
    ])
}

/// Copies a folder.
pub(crate) fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}
