//! The demonstration model for tests.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::OnceLock;
use tempfile::TempDir;

/// The unpacked model; shared by all tests of a program, to be changed by none.
///
/// # Panics
/// There is no room for it.
pub fn demo() -> PathBuf {
    static MODEL: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = MODEL.get_or_init(|| {
        let temp = tempfile::tempdir().expect("a temporary folder");
        let folders = [temp.path().to_path_buf()];
        let ready = fieldfare_demo::ensure_in(&folders, &mut |_| ControlFlow::Continue(()));
        (temp, ready.expect("room for the model").path)
    });
    path.clone()
}
