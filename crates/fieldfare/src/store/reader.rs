//! Reading expert blobs from the layer files: whole blobs, by position, with every way in which a read can
//! end.
//!
//! An interrupted call is repeated, a short one continued; the end of the file in the middle of a blob is
//! damage, any other refusal an I/O error that names the file. Direct reads continue at a block's border, and where
//! a file system refuses them, be it only at some read, the page cache serves instead and [`Reader::mode`] says so.

use super::{Reads, rdadvise};
use crate::sys::file::ReadFile;
use crate::{Error, Result};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Delivers the blob of one expert; several threads ask at once.
pub trait Reader: Send + Sync {
    /// Fills `into` with the blob of `expert` in `layer`, or the part of it that begins at byte `from`.
    ///
    /// # Errors
    /// [`Error::Damaged`] if the file ends too early, [`Error::Io`] if it cannot be read; `into` then holds
    /// anything.
    fn read(&self, layer: usize, expert: usize, from: usize, into: &mut [u8]) -> Result<()>;

    /// How blobs are read now.
    fn mode(&self) -> Reads {
        Reads::Buffered
    }

    /// Tells the page cache that these experts of a layer are about to be read: bytes, and the time of the slowest call. `None`
    /// where there is no page cache to tell, or no way to.
    fn advise(&self, layer: usize, experts: &[usize]) -> Option<(u64, Duration)> {
        let _ = (layer, experts);
        None
    }
}

/// One positional read, which may be short.
pub trait ReadAt {
    /// Reads some bytes at `offset`; 0 means the end of the file.
    ///
    /// # Errors
    /// As the operating system says.
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Has the page cache begin to read.
    ///
    /// # Errors
    /// As the operating system says; [`io::ErrorKind::Unsupported`] where it cannot be told.
    fn advise(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Turns direct reads on (then with what their offsets must be multiples of) or off.
    ///
    /// # Errors
    /// There are none here.
    fn set_direct(&self, on: bool) -> io::Result<usize> {
        if on { Err(io::ErrorKind::Unsupported.into()) } else { Ok(1) }
    }
}

impl ReadAt for File {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        crate::sys::file::read_at(self, into, offset)
    }
}

impl ReadAt for ReadFile {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        ReadFile::read_at(self, into, offset)
    }

    fn advise(&self, offset: u64, len: u64) -> io::Result<()> {
        ReadFile::advise(self, offset, len)
    }

    fn set_direct(&self, on: bool) -> io::Result<usize> {
        ReadFile::set_direct(self, on)?;
        Ok(if on { self.alignment() } else { 1 })
    }
}

/// Why [`read_full`] gave up.
enum Stop {
    /// The file ends at this offset.
    End(u64),
    /// The system refused.
    Refused(io::Error),
}

/// Fills `into` from `offset` on. A read that ends within a block of `block` bytes is continued at the block's start.
fn read_full(file: &impl ReadAt, block: usize, offset: u64, into: &mut [u8]) -> Result<(), Stop> {
    let mut done = 0;
    while done < into.len() {
        match file.read_at(&mut into[done..], offset + done as u64) {
            Ok(0) => return Err(Stop::End(offset + done as u64)),
            Ok(n) => {
                let reached = done + n.min(into.len() - done);
                let whole = if reached == into.len() { reached } else { reached / block * block };
                if whole <= done {
                    // Less than a block although a block was asked for: the rest of the file is no longer.
                    return Err(Stop::End(offset + reached as u64));
                }
                done = whole;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Stop::Refused(error)),
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

/// The layer files of a model directory.
#[derive(Debug)]
pub struct LayerFiles<F> {
    root: PathBuf,
    stride: u64,
    layers: Vec<LayerFile<F>>,
    /// Block of direct reads; 0 while reads are buffered.
    block: AtomicUsize,
}

impl<F> LayerFiles<F> {
    /// Files of the directory `root` with blobs of `stride` bytes, read through the page cache.
    pub fn new(root: &Path, stride: u64, layers: Vec<LayerFile<F>>) -> Self {
        Self { root: root.to_path_buf(), stride, layers, block: AtomicUsize::new(0) }
    }
}

impl<F: ReadAt> LayerFiles<F> {
    /// Reads directly from now on, where blobs lie on block borders and the file system can: `trial` is memory at a
    /// multiple of any block for one read from every file. Otherwise reads stay buffered; [`Reader::mode`] says which.
    pub fn try_direct(&self, trial: &mut [u8]) {
        let mut block = 1;
        for layer in &self.layers {
            match layer.file.set_direct(true) {
                Ok(needs) if self.stride.is_multiple_of(needs as u64) && needs <= trial.len() => {
                    block = block.max(needs);
                    // Some file systems take the flag and refuse the read.
                    if layer.file.read_at(&mut trial[..needs], 0).is_ok() {
                        continue;
                    }
                }
                _ => {}
            }
            return self.go_buffered();
        }
        self.block.store(block, Ordering::Relaxed);
    }

    fn go_buffered(&self) {
        self.block.store(0, Ordering::Relaxed);
        for layer in &self.layers {
            // Where turning off fails there was nothing on, or the next read says what is wrong.
            let _ = layer.file.set_direct(false);
        }
    }
}

impl<F: ReadAt + Send + Sync> Reader for LayerFiles<F> {
    fn read(&self, layer: usize, expert: usize, from: usize, into: &mut [u8]) -> Result<()> {
        let file = self
            .layers
            .get(layer)
            .ok_or_else(|| Error::bad("layer", format!("{layer} is not one of {}", self.layers.len())))?;
        let offset = file
            .rank_of
            .get(expert)
            .and_then(|&rank| u64::from(rank).checked_mul(self.stride))
            .and_then(|offset| offset.checked_add(from as u64))
            .ok_or_else(|| Error::damaged(file.name.as_str(), format!("has no expert {expert}")))?;
        let block = self.block.load(Ordering::Relaxed);
        let mut read = read_full(&file.file, block.max(1), offset, into);
        if block > 0
            && let Err(Stop::Refused(error)) = &read
            && matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported)
        {
            self.go_buffered();
            read = read_full(&file.file, 1, offset, into);
        }
        read.map_err(|stop| match stop {
            Stop::End(at) => {
                Error::damaged(file.name.as_str(), format!("ends at byte {at} in the middle of an expert"))
            }
            Stop::Refused(source) => Error::Io { action: "read", path: self.root.join(&file.name), source },
        })
    }

    fn mode(&self) -> Reads {
        if self.block.load(Ordering::Relaxed) > 0 { Reads::Direct } else { Reads::Buffered }
    }

    fn advise(&self, layer: usize, experts: &[usize]) -> Option<(u64, Duration)> {
        let file = self.layers.get(layer).filter(|_| self.mode() == Reads::Buffered)?;
        let ranks =
            experts.iter().filter_map(|&expert| file.rank_of.get(expert).map(|&rank| u64::from(rank)));
        let (mut bytes, mut slowest) = (0, Duration::ZERO);
        for (offset, len) in rdadvise::ranges(ranks.collect(), self.stride) {
            let start = Instant::now();
            file.file.advise(offset, len).ok()?; // it was only advice: the read tells what is wrong
            (bytes, slowest) = (bytes + len, slowest.max(start.elapsed()));
        }
        Some((bytes, slowest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// Bytes `0, 1, 2 …` of a given length, delivered as the script says: an error kind or the most bytes.
    struct Scripted {
        len: usize,
        script: Mutex<Vec<Result<usize, io::ErrorKind>>>,
        /// Block of direct reads, while they are on.
        block: Option<usize>,
        direct: Mutex<bool>,
        advised: Mutex<Vec<(u64, u64)>>,
    }

    impl Scripted {
        fn new(len: usize, script: &[Result<usize, io::ErrorKind>]) -> Self {
            let mut script = script.to_vec();
            script.reverse();
            Self {
                len,
                script: Mutex::new(script),
                block: None,
                direct: Mutex::default(),
                advised: Mutex::default(),
            }
        }

        fn with_block(self, block: usize) -> Self {
            Self { block: Some(block), ..self }
        }
    }

    impl ReadAt for Scripted {
        fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
            let most =
                self.script.lock().unwrap().pop().unwrap_or(Ok(usize::MAX)).map_err(io::Error::from)?;
            let at = usize::try_from(offset).unwrap();
            if let (true, Some(block)) = (*self.direct.lock().unwrap(), self.block) {
                assert!(at.is_multiple_of(block) && into.len().is_multiple_of(block), "{at} {}", into.len());
            }
            let n = into.len().min(self.len.saturating_sub(at)).min(most);
            for (i, byte) in into[..n].iter_mut().enumerate() {
                *byte = (at + i) as u8;
            }
            Ok(n)
        }

        fn advise(&self, offset: u64, len: u64) -> io::Result<()> {
            self.advised.lock().unwrap().push((offset, len));
            Ok(())
        }

        fn set_direct(&self, on: bool) -> io::Result<usize> {
            let block = self.block.ok_or(io::ErrorKind::Unsupported)?;
            *self.direct.lock().unwrap() = on;
            Ok(if on { block } else { 1 })
        }
    }

    fn files(file: Scripted) -> LayerFiles<Scripted> {
        let layer = LayerFile { file, name: "packed_experts/layer_00.bin".into(), rank_of: vec![2, 0, 1] };
        LayerFiles::new(Path::new("m.gturbo"), 16, vec![layer])
    }

    fn blob(reader: &LayerFiles<Scripted>, expert: usize) -> Result<Vec<u8>> {
        let mut blob = [0; 16];
        reader.read(0, expert, 0, &mut blob).map(|()| blob.to_vec())
    }

    const INTERRUPTED: Result<usize, io::ErrorKind> = Err(io::ErrorKind::Interrupted);

    #[test]
    fn ranks_interruptions_and_short_reads() {
        let reader = files(Scripted::new(48, &[INTERRUPTED, Ok(3), INTERRUPTED, INTERRUPTED, Ok(1)]));
        assert_eq!(blob(&reader, 0).unwrap(), (32..48).collect::<Vec<u8>>());
        assert_eq!(blob(&reader, 1).unwrap(), (0..16).collect::<Vec<u8>>());
        assert_eq!(reader.mode(), Reads::Buffered);
        let mut part = [0; 5];
        reader.read(0, 2, 4, &mut part).unwrap();
        assert_eq!(part, [20, 21, 22, 23, 24]);
    }

    #[test]
    fn ends_and_refusals_are_named() {
        let ends = blob(&files(Scripted::new(40, &[])), 0).unwrap_err();
        assert!(
            matches!(&ends, Error::Damaged { file, reason }
            if file == "packed_experts/layer_00.bin" && reason.contains("byte 40")),
            "{ends}"
        );
        let eio = blob(&files(Scripted::new(48, &[Ok(4), Err(io::ErrorKind::Other)])), 0).unwrap_err();
        assert!(
            matches!(&eio, Error::Io { action: "read", path, .. }
            if path.ends_with("packed_experts/layer_00.bin")),
            "{eio}"
        );
        assert!(blob(&files(Scripted::new(48, &[])), 3).is_err());
        assert!(files(Scripted::new(48, &[])).read(1, 0, 0, &mut [0; 16]).is_err());
    }

    fn direct(len: usize, block: usize, script: &[Result<usize, io::ErrorKind>]) -> LayerFiles<Scripted> {
        let script = [&[Ok(usize::MAX)], script].concat(); // the trial
        let reader = files(Scripted::new(len, &script).with_block(block));
        reader.try_direct(&mut [0; 64]);
        reader
    }

    #[test]
    fn direct_reads_go_on_at_block_borders() {
        let reader = direct(48, 4, &[Ok(7), INTERRUPTED, Ok(6), Ok(5)]);
        assert_eq!(reader.mode(), Reads::Direct);
        assert_eq!(blob(&reader, 2).unwrap(), (16..32).collect::<Vec<u8>>());
    }

    #[test]
    fn the_end_of_a_file_within_a_block_is_damage_and_no_endless_loop() {
        for (len, script, at) in [(42, &[][..], 42), (40, &[], 40), (48, &[Ok(9), Ok(2)], 42), (32, &[], 32)]
        {
            let error = blob(&direct(len, 4, script), 0).unwrap_err();
            assert!(error.to_string().contains(&format!("byte {at} ")), "{error}");
        }
        // An end that a read reports in full is none.
        assert!(blob(&direct(48, 4, &[Ok(12)]), 0).is_ok());
    }

    #[test]
    fn errors_of_direct_reads_are_errors_and_refusals_are_not() {
        let error = blob(&direct(48, 4, &[Ok(4), Err(io::ErrorKind::Other)]), 0).unwrap_err();
        assert!(matches!(error, Error::Io { .. }), "{error}");
        for refusal in [io::ErrorKind::InvalidInput, io::ErrorKind::Unsupported] {
            let reader = direct(48, 4, &[Ok(4), Err(refusal), Ok(3)]);
            assert_eq!(blob(&reader, 0).unwrap(), (32..48).collect::<Vec<u8>>());
            assert_eq!(reader.mode(), Reads::Buffered, "reported");
            assert_eq!(blob(&reader, 1).unwrap(), (0..16).collect::<Vec<u8>>());
        }
        // A buffered read that is refused alike is not tried for ever.
        let invalid = Err(io::ErrorKind::InvalidInput);
        assert!(blob(&direct(48, 4, &[invalid, invalid]), 0).is_err());
    }

    #[test]
    fn the_page_cache_is_told_where_it_serves() {
        let buffered = files(Scripted::new(48, &[]));
        assert_eq!(buffered.advise(0, &[2, 1, 9]).unwrap().0, 32);
        assert_eq!(*buffered.layers[0].file.advised.lock().unwrap(), [(0, 32)]);
        assert!(buffered.advise(1, &[0]).is_none());
        let direct = direct(48, 4, &[]);
        assert!(direct.advise(0, &[0]).is_none() && direct.layers[0].file.advised.lock().unwrap().is_empty());
    }

    #[test]
    fn without_direct_reads_the_page_cache_serves() {
        let none = files(Scripted::new(48, &[]));
        let uneven = files(Scripted::new(48, &[]).with_block(32)); // blobs are 16 bytes apart
        let refused = files(Scripted::new(48, &[Err(io::ErrorKind::InvalidInput)]).with_block(4));
        let small = files(Scripted::new(48, &[]).with_block(16));
        for (reader, trial) in [(none, 64), (uneven, 64), (refused, 64), (small, 8)] {
            reader.try_direct(&mut vec![0; trial]);
            assert_eq!(reader.mode(), Reads::Buffered);
            assert_eq!(blob(&reader, 0).unwrap(), (32..48).collect::<Vec<u8>>());
        }
    }
}
