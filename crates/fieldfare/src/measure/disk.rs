//! How fast experts can be read: random ones of the model's own layer files, or of a scratch file as large, through the
//! reader threads and slots that the engine uses.
//!
//! Direct reads where they work, else buffered ones, and then the page cache may answer instead of the disk: the mode is
//! always said.

use crate::format::ModelDir;
use crate::store::readers::{Done, Job, Place, Readers};
use crate::store::slots::SlotPool;
use crate::store::{LayerFile, LayerFiles, Reads};
use crate::sys::file::ReadFile;
use crate::sys::pages::Pages;
use crate::{Error, Result};
use std::io::{Seek as _, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

/// Reads under way at once that are tried.
pub const DEPTHS: [usize; 3] = [1, 2, 4];

/// Reads experts at random.
pub struct DiskProbe {
    readers: Readers,
    slots: SlotPool,
    layers: usize,
    experts: usize,
    stride: usize,
    state: u64,
}

impl DiskProbe {
    /// Reads experts of a model, directly if `reads` says so and the file system can.
    ///
    /// # Errors
    /// A layer file that cannot be opened, or no memory.
    pub fn of_model(dir: &ModelDir, reads: Reads) -> Result<Self> {
        let layers = dir.experts().layers.len();
        let mut files = Vec::with_capacity(layers);
        for layer in 0..layers {
            files.push(LayerFile {
                file: ReadFile::new(dir.open_layer(layer)?),
                name: dir.experts().layers[layer].file.clone(),
                rank_of: dir.expert_parts(layer)?.slot_of,
            });
        }
        Self::new(dir.path(), dir.manifest().expert_stride, dir.manifest().arch.num_experts, files, reads)
    }

    /// Reads blobs of `stride` bytes of a scratch file in `folder`, which has no name there and so is gone in every case
    /// when this is dropped or the process ends. It is written first: `most` bytes, or what `time` suffices for.
    ///
    /// # Errors
    /// The folder cannot be written to, or is full.
    pub fn of_scratch(folder: &Path, stride: u64, most: u64, time: Duration) -> Result<Self> {
        let mut file = tempfile::tempfile_in(folder).map_err(Error::io("make a scratch file in", folder))?;
        let blobs = write_blobs(&mut file, stride, most, time)
            .map_err(Error::io("write a scratch file in", folder))?;
        let experts = usize::try_from(blobs).unwrap_or(1);
        let layer = LayerFile {
            file: ReadFile::new(file),
            name: "a scratch file".to_owned(),
            rank_of: (0..u32::try_from(blobs).unwrap_or(1)).collect(),
        };
        Self::new(folder, stride, experts, vec![layer], Reads::Direct)
    }

    fn new(
        root: &Path,
        stride: u64,
        experts: usize,
        files: Vec<LayerFile<ReadFile>>,
        reads: Reads,
    ) -> Result<Self> {
        let layers = files.len();
        let bytes = usize::try_from(stride)
            .map_err(|_| Error::damaged("expertStride", "exceeds the address space"))?;
        let reader = LayerFiles::new(root, stride, files);
        if reads == Reads::Direct {
            let mut trial = Pages::new(64 << 10).map_err(Error::io("allocate for", root))?;
            reader.try_direct(trial.bytes_mut());
        }
        let most = DEPTHS.into_iter().max().unwrap_or(1);
        let mut slots = SlotPool::new(1, most, bytes)?;
        // Memory that is taken for the first time costs more than a read.
        for slot in 0..most {
            if let Some(mut loan) = slots.lend(0, slot) {
                loan.bytes().fill(1);
                slots.take_back(loan);
            }
        }
        let readers = Readers::new(Box::new(reader), most)?;
        Ok(Self { readers, slots, layers: layers.max(1), experts: experts.max(1), stride: bytes, state: 1 })
    }

    /// How the reads are made now.
    pub fn mode(&self) -> Reads {
        self.readers.reader().mode()
    }

    /// Reads random experts for about so long, `depth` at once; bytes a second.
    ///
    /// # Errors
    /// Those of the reads.
    pub fn sample(&mut self, depth: usize, time: Duration) -> Result<f64> {
        let depth = depth.clamp(1, self.slots.slots());
        let (start, mut bytes, mut failed) = (Instant::now(), 0u64, Ok(()));
        for slot in 0..depth {
            self.submit(slot);
        }
        while let Some(Done { job, result, .. }) = self.readers.wait() {
            let place = job.place;
            self.slots.take_back(job.loan);
            match result {
                Ok(Ok(())) => bytes += self.stride as u64,
                Ok(Err(error)) => failed = failed.and(Err(error)),
                Err(panic) => std::panic::resume_unwind(panic),
            }
            if let Place::Slot(slot) = place
                && failed.is_ok()
                && start.elapsed() < time
            {
                self.submit(slot);
            }
        }
        // The last few run with fewer beside them: a little less than the rate, never more.
        failed.map(|()| bytes as f64 / start.elapsed().as_secs_f64().max(1e-9))
    }

    fn submit(&mut self, slot: usize) {
        let (layer, expert) = (self.random(self.layers), self.random(self.experts));
        if let Some(loan) = self.slots.lend(0, slot) {
            self.readers.submit(Job { layer, expert, place: Place::Slot(slot), whole: true, loan });
        }
    }

    /// Below `limit`; xorshift, the same each time.
    fn random(&mut self, limit: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state % limit as u64) as usize
    }

    /// [`DiskProbe::sample`] with each of [`DEPTHS`] in turns, `rounds` times: by depth, the rates.
    ///
    /// # Errors
    /// Those of the reads.
    pub fn by_depth(&mut self, rounds: usize, time: Duration) -> Result<Vec<(usize, Vec<f64>)>> {
        let mut rates: Vec<(usize, Vec<f64>)> = DEPTHS.into_iter().map(|depth| (depth, Vec::new())).collect();
        for _ in 0..rounds {
            for (depth, rates) in &mut rates {
                rates.push(self.sample(*depth, time)?);
            }
        }
        Ok(rates)
    }
}

/// Writes whole blobs, at least one, each step down to the disk; how many there are.
fn write_blobs(file: &mut std::fs::File, stride: u64, most: u64, time: Duration) -> std::io::Result<u64> {
    /// Blobs of a step.
    const STEP: u64 = 4;
    let start = Instant::now();
    let mut blob = vec![0u8; usize::try_from(stride).unwrap_or(1 << 20)];
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    // Not all zeros and not all alike: some file systems and disks leave such blocks out.
    for word in blob.chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
    let mut blobs = 0u64;
    loop {
        blob[..8].copy_from_slice(&blobs.to_le_bytes());
        file.write_all(&blob)?;
        blobs += 1;
        let enough = (blobs + 1).saturating_mul(stride) > most;
        if enough || blobs.is_multiple_of(STEP) {
            file.sync_data()?;
        }
        if enough || start.elapsed() >= time {
            file.sync_data()?;
            file.rewind()?;
            return Ok(blobs);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scratch_file_is_read_at_every_depth_and_leaves_nothing() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let mut probe =
            DiskProbe::of_scratch(folder.path(), 65_536, 1 << 20, Duration::from_secs(5)).unwrap();
        assert_eq!(probe.experts, 16);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "it has no name");
        let rates = probe.by_depth(1, Duration::from_millis(5)).unwrap();
        assert_eq!(rates.iter().map(|(depth, _)| *depth).collect::<Vec<_>>(), DEPTHS);
        assert!(rates.iter().all(|(_, rates)| rates[0] > 0.0));
        assert!(probe.sample(100, Duration::ZERO).unwrap() > 0.0, "at least one read each");
        let missing = folder.path().join("missing");
        assert!(DiskProbe::of_scratch(&missing, 4096, 4096, Duration::ZERO).is_err());
    }

    #[test]
    fn little_room_or_time_is_one_blob() {
        let folder = tempfile::tempdir().unwrap();
        for (most, time) in [(0, Duration::from_secs(9)), (u64::MAX, Duration::ZERO)] {
            assert_eq!(DiskProbe::of_scratch(folder.path(), 4096, most, time).unwrap().experts, 1);
        }
    }
}
