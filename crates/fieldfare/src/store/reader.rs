//! Reading expert blobs from the layer files: whole blobs, by position, with every way in which a read can
//! end.
//!
//! An interrupted call is repeated, a short one continued; the end of the file in the middle of a blob is
//! damage, any other refusal an I/O error that names the file.

use crate::{Error, Result};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Delivers the blob of one expert.
pub trait Reader: Send {
    /// Fills `into`, which is one blob long, with the blob of `expert` in `layer`.
    ///
    /// # Errors
    /// [`Error::Damaged`] if the file ends too early, [`Error::Io`] if it cannot be read; `into` then holds
    /// anything.
    fn read(&mut self, layer: usize, expert: usize, into: &mut [u8]) -> Result<()>;
}

/// One positional read, which may be short.
pub trait ReadAt {
    /// Reads some bytes at `offset`; 0 means the end of the file.
    ///
    /// # Errors
    /// As the operating system says.
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize>;
}

impl ReadAt for File {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        crate::sys::file::read_at(self, into, offset)
    }
}

/// Fills `into` from `offset` on. `name` is the file for messages, relative to the model directory `root`.
///
/// # Errors
/// As [`Reader::read`].
pub fn read_full(file: &impl ReadAt, root: &Path, name: &str, offset: u64, into: &mut [u8]) -> Result<()> {
    let mut done = 0;
    while done < into.len() {
        match file.read_at(&mut into[done..], offset + done as u64) {
            Ok(0) => {
                let at = offset + done as u64;
                return Err(Error::damaged(name, format!("ends at byte {at} in the middle of an expert")));
            }
            Ok(n) => done += n.min(into.len() - done),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(source) => return Err(Error::Io { action: "read", path: root.join(name), source }),
        }
    }
    Ok(())
}

/// One layer's file and where its experts lie.
#[derive(Debug)]
pub struct LayerFile<F> {
    /// The open file.
    pub file: F,
    /// Its name relative to the model directory.
    pub name: String,
    /// Physical rank (blob number in the file) by expert.
    pub rank_of: Vec<u32>,
}

/// The layer files of a model directory, read synchronously.
#[derive(Debug)]
pub struct LayerFiles<F> {
    root: PathBuf,
    stride: u64,
    layers: Vec<LayerFile<F>>,
}

impl<F> LayerFiles<F> {
    /// Files of the directory `root` with blobs of `stride` bytes.
    pub fn new(root: &Path, stride: u64, layers: Vec<LayerFile<F>>) -> Self {
        Self { root: root.to_path_buf(), stride, layers }
    }
}

impl<F: ReadAt + Send> Reader for LayerFiles<F> {
    fn read(&mut self, layer: usize, expert: usize, into: &mut [u8]) -> Result<()> {
        let file = self
            .layers
            .get(layer)
            .ok_or_else(|| Error::bad("layer", format!("{layer} is not one of {}", self.layers.len())))?;
        let offset = file
            .rank_of
            .get(expert)
            .and_then(|&rank| u64::from(rank).checked_mul(self.stride))
            .ok_or_else(|| Error::damaged(file.name.as_str(), format!("has no expert {expert}")))?;
        read_full(&file.file, &self.root, &file.name, offset, into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// Bytes `0, 1, 2 …` of a given length, delivered as the script says: an error kind or the most bytes.
    struct Scripted {
        len: usize,
        script: RefCell<Vec<Result<usize, io::ErrorKind>>>,
    }

    impl Scripted {
        fn new(len: usize, script: &[Result<usize, io::ErrorKind>]) -> Self {
            let mut script = script.to_vec();
            script.reverse();
            Self { len, script: RefCell::new(script) }
        }
    }

    impl ReadAt for Scripted {
        fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
            let most = self.script.borrow_mut().pop().unwrap_or(Ok(usize::MAX)).map_err(io::Error::from)?;
            let at = usize::try_from(offset).unwrap();
            let n = into.len().min(self.len.saturating_sub(at)).min(most);
            for (i, byte) in into[..n].iter_mut().enumerate() {
                *byte = (at + i) as u8;
            }
            Ok(n)
        }
    }

    fn files(file: Scripted) -> LayerFiles<Scripted> {
        let layer = LayerFile { file, name: "packed_experts/layer_00.bin".into(), rank_of: vec![2, 0, 1] };
        LayerFiles::new(Path::new("m.gturbo"), 16, vec![layer])
    }

    #[test]
    fn ranks_interruptions_and_short_reads() {
        let interrupted = Err(io::ErrorKind::Interrupted);
        let mut reader = files(Scripted::new(48, &[interrupted, Ok(3), interrupted, interrupted, Ok(1)]));
        let mut blob = [0; 16];
        reader.read(0, 0, &mut blob).unwrap();
        assert_eq!(blob.to_vec(), (32..48).collect::<Vec<u8>>());
        reader.read(0, 1, &mut blob).unwrap();
        assert_eq!(blob.to_vec(), (0..16).collect::<Vec<u8>>());
    }

    #[test]
    fn ends_and_refusals_are_named() {
        let mut blob = [0; 16];
        let ends = files(Scripted::new(40, &[])).read(0, 0, &mut blob).unwrap_err();
        assert!(
            matches!(&ends, Error::Damaged { file, reason }
            if file == "packed_experts/layer_00.bin" && reason.contains("byte 40")),
            "{ends}"
        );
        let eio =
            files(Scripted::new(48, &[Ok(4), Err(io::ErrorKind::Other)])).read(0, 0, &mut blob).unwrap_err();
        assert!(
            matches!(&eio, Error::Io { action: "read", path, .. }
            if path.ends_with("packed_experts/layer_00.bin")),
            "{eio}"
        );
        assert!(files(Scripted::new(48, &[])).read(0, 3, &mut blob).is_err());
        assert!(files(Scripted::new(48, &[])).read(1, 0, &mut blob).is_err());
    }
}
