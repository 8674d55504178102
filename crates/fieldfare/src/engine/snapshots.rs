//! Conversations in files: they outlive the process, and memory that is needed for others.
//!
//! ```text
//! magic  identity[32]  count of ids  ids  count of stops  stops  sha256 of all that[32]  length of body  body  sha256 of body[32]
//! ```
//!
//! Numbers are little-endian, u32 for ids, u64 for the rest. The identity names the model, its numbers and this format; the
//! stops are the positions from which one can go on, ascending; the body is what [`Kept::write`] wrote. A file
//! appears under its name when it is complete, and is named by the hash of identity and ids. What cannot be read is left
//! out, with a note. Files are removed, the least recently used first, when there are too many bytes of them: those that
//! nobody here can use too (of another model or version, or damaged), which go after a month in any case.

use super::conversations::common;
use crate::format::hash;
use crate::model::{Forward, Kept};
use crate::{Error, Result};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const MAGIC: &[u8; 8] = b"FFTALK\0\x01";
/// How a file's name ends.
const ENDING: &str = ".conversation";
/// How the name of a file begins that is being written.
const PREFIX: &str = ".unfinished-";
/// Age from which nobody is writing it any more.
const UNFINISHED: Duration = Duration::from_secs(3600);
/// Age from which a file that is of no use here is removed.
const STALE: Duration = Duration::from_secs(30 * 24 * 3600);
/// Most ids of a conversation.
const MOST_IDS: usize = 1 << 20;
/// Bytes of a read or write.
const CHUNK: usize = 1 << 20;

/// One file.
struct Entry {
    path: PathBuf,
    /// None where it is of no use here: another model's, another version's, damaged.
    ids: Vec<u32>,
    /// Where one can go on, ascending.
    stops: Vec<usize>,
    bytes: u64,
    used: SystemTime,
}

/// A folder of conversations of one model.
pub(super) struct Snapshots {
    dir: PathBuf,
    limit: u64,
    identity: [u8; 32],
    /// All conversations there.
    entries: Vec<Entry>,
    notes: Vec<String>,
}

impl Snapshots {
    /// Looks into `dir`, which is made if it is not there.
    ///
    /// # Errors
    /// The folder cannot be made or read.
    pub(super) fn open(dir: &Path, limit: u64, identity: [u8; 32]) -> Result<Self> {
        fs::create_dir_all(dir).map_err(Error::io("create", dir))?;
        let mut snapshots =
            Self { dir: dir.to_path_buf(), limit, identity, entries: Vec::new(), notes: Vec::new() };
        snapshots.sweep();
        for found in fs::read_dir(dir).map_err(Error::io("list", dir))? {
            let path = found.map_err(Error::io("list", dir))?.path();
            if path.file_name().is_some_and(|name| is_name(&name.to_string_lossy())) {
                snapshots.take_in(path);
            }
        }
        snapshots.shrink_to(limit);
        Ok(snapshots)
    }

    /// Removes what a killed process left long ago.
    fn sweep(&self) {
        let old = |path: &Path| {
            let modified = fs::symlink_metadata(path).and_then(|meta| meta.modified()).ok();
            modified.and_then(|time| time.elapsed().ok()).is_some_and(|age| age > UNFINISHED)
        };
        for found in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            if found.file_name().to_string_lossy().starts_with(PREFIX) && old(&found.path()) {
                let _ = fs::remove_file(found.path());
            }
        }
    }

    /// Takes a file into account: for use, or as something that lies there until it is removed.
    fn take_in(&mut self, path: PathBuf) {
        let Ok(meta) = fs::symlink_metadata(&path) else { return };
        let used = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        let (ids, stops) = match self.look_at(&path, &meta) {
            Ok(found) => found.unwrap_or_default(),
            Err(error) => {
                self.notes.push(format!("{}: left out: {error}", path.display()));
                Default::default()
            }
        };
        let stale = ids.is_empty() && used.elapsed().is_ok_and(|age| age > STALE);
        if meta.is_file() {
            self.entries.push(Entry { path, ids, stops, bytes: meta.len(), used });
            if stale {
                self.remove(self.entries.len() - 1);
            }
        }
    }

    /// Reads the head of a file; `None` if it is another model's.
    fn look_at(&self, path: &Path, meta: &fs::Metadata) -> io::Result<Option<(Vec<u32>, Vec<usize>)>> {
        if !meta.is_file() {
            return Err(bad("is no file"));
        }
        self.read_head(&mut BufReader::with_capacity(64 << 10, File::open(path)?))
    }

    fn read_head(&self, file: &mut dyn Read) -> io::Result<Option<(Vec<u32>, Vec<usize>)>> {
        let mut file = Hashing { inner: file, hash: Sha256::new() };
        let mut start = [0; 40];
        file.read_exact(&mut start)?;
        if &start[..8] != MAGIC {
            return Err(bad("is of another format"));
        }
        if start[8..] != self.identity {
            return Ok(None);
        }
        let count = word(&mut file)?.filter_most(MOST_IDS)?;
        let mut bytes = vec![0; count * 4];
        file.read_exact(&mut bytes)?;
        let ids: Vec<u32> =
            bytes.chunks_exact(4).map(|id| u32::from_le_bytes([id[0], id[1], id[2], id[3]])).collect();
        let stops = word(&mut file)?.filter_most(64)?;
        let stops =
            (0..stops).map(|_| word(&mut file)?.filter_most(ids.len())).collect::<io::Result<Vec<_>>>()?;
        let (sum, file) = (file.hash.finalize(), file.inner);
        let mut written = [0; 32];
        file.read_exact(&mut written)?;
        if sum[..] != written || ids.is_empty() {
            return Err(bad("is damaged"));
        }
        Ok(Some((ids, stops)))
    }

    /// Conversations, and the bytes of all files.
    pub(super) fn kept(&self) -> (usize, u64) {
        let ours = self.entries.iter().filter(|entry| !entry.ids.is_empty()).count();
        (ours, self.entries.iter().map(|entry| entry.bytes).sum())
    }

    /// What went wrong since the last time.
    pub(super) fn notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// The file from which the most of `prompt` can be had, but its last id, and how much.
    pub(super) fn best(&self, prompt: &[u32]) -> Option<(usize, PathBuf)> {
        let reach = |entry: &Entry| {
            let wanted = common(&entry.ids, prompt).min(prompt.len().saturating_sub(1));
            entry.stops.iter().rev().copied().find(|&stop| stop <= wanted)
        };
        let found = self.entries.iter().filter_map(|entry| Some((reach(entry)?, entry)));
        found.max_by_key(|(reach, _)| *reach).map(|(reach, entry)| (reach, entry.path.clone()))
    }

    /// Bytes of a file.
    pub(super) fn bytes(&self, path: &Path) -> u64 {
        self.entries.iter().find(|entry| entry.path == path).map_or(0, |entry| entry.bytes)
    }

    /// Reads a conversation. One that is damaged is noted and forgotten.
    pub(super) fn load<F: Forward>(
        &mut self,
        path: &Path,
        forward: &mut F,
    ) -> Option<(F::Sequence, Vec<u32>)> {
        let file = self.entries.iter().position(|entry| entry.path == path)?;
        match self.read(&self.entries[file].path, self.entries[file].bytes, forward) {
            Ok(sequence) => {
                let entry = &mut self.entries[file];
                entry.used = SystemTime::now();
                // So that the order outlives the process; where the system does not let us, it is the order of writing.
                let _ =
                    File::options().append(true).open(&entry.path).and_then(|f| f.set_modified(entry.used));
                Some((sequence, entry.ids.clone()))
            }
            Err(error) => {
                self.pass_over(path, &error.to_string());
                None
            }
        }
    }

    /// Never offers a file again. It stays counted, so that it is removed in its turn.
    pub(super) fn pass_over(&mut self, path: &Path, why: &str) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.path == path) {
            entry.stops.clear();
        }
        self.notes.push(format!("{}: left out: {why}", path.display()));
    }

    fn read<F: Forward>(&self, path: &Path, bytes: u64, forward: &mut F) -> Result<F::Sequence> {
        let io = |error: io::Error| Error::io("read", path)(error);
        let mut file = BufReader::with_capacity(CHUNK, File::open(path).map_err(io)?);
        let Some((ids, _)) = self.read_head(&mut file).map_err(io)? else {
            return Err(Error::damaged(path.display().to_string(), "is another model's"));
        };
        let length = word(&mut file).map_err(io)?;
        let mut body = Hashing { inner: (&mut file).take(length), hash: Sha256::new() };
        let sequence = forward.read_sequence(&mut body, bytes)?;
        let (left, sum) = (body.inner.limit(), body.hash.finalize());
        let mut written = [0; 32];
        file.read_exact(&mut written).map_err(io)?;
        if left > 0 || sum[..] != written || sequence.position() != ids.len() {
            return Err(Error::damaged(
                path.display().to_string(),
                "does not have the hash that it was written with",
            ));
        }
        Ok(sequence)
    }

    /// Writes a conversation, in the place of those that it goes on from. What cannot be written is noted.
    pub(super) fn save<K: Kept>(&mut self, kept: &K, ids: &[u32]) {
        if self.entries.iter().any(|entry| !entry.stops.is_empty() && entry.ids.starts_with(ids)) {
            return;
        }
        let mut count = Counting(0);
        // Counting cannot fail.
        let _ = kept.write(&mut count);
        let bytes = count.0 + (200 + 4 * ids.len()) as u64;
        if bytes > self.limit {
            self.notes.push(format!("a conversation of {} tokens is too large for its folder", ids.len()));
            return;
        }
        let entry = match self.write(kept, ids, count.0) {
            Ok(entry) => entry,
            Err(error) => {
                self.notes.push(format!("{}: not written: {error}", self.dir.display()));
                return;
            }
        };
        // Others go only now that this one is safe; one of the same name is gone already.
        self.entries.retain(|old| old.path != entry.path);
        while let Some(at) =
            self.entries.iter().position(|old| !old.ids.is_empty() && ids.starts_with(&old.ids))
        {
            self.remove(at);
        }
        self.shrink_to(self.limit.saturating_sub(entry.bytes));
        self.entries.push(entry);
    }

    fn write<K: Kept>(&self, kept: &K, ids: &[u32], length: u64) -> io::Result<Entry> {
        let mut stops: Vec<usize> = kept.points().to_vec();
        stops.push(kept.position());
        stops.retain(|&stop| kept.reachable(stop) == stop);
        stops.dedup();
        let mut name = Sha256::new();
        name.update(self.identity);
        ids.iter().for_each(|id| name.update(id.to_le_bytes()));
        let path = self.dir.join(format!("{}{ENDING}", hash::hex(&name.finalize()[..16])));
        let temporary = tempfile::Builder::new().prefix(PREFIX).tempfile_in(&self.dir)?;
        let mut file = BufWriter::with_capacity(CHUNK, temporary.as_file());
        let mut head = Hashing { inner: &mut file, hash: Sha256::new() };
        head.write_all(MAGIC)?;
        head.write_all(&self.identity)?;
        head.write_all(&(ids.len() as u64).to_le_bytes())?;
        for id in ids {
            head.write_all(&id.to_le_bytes())?;
        }
        head.write_all(&(stops.len() as u64).to_le_bytes())?;
        for &stop in &stops {
            head.write_all(&(stop as u64).to_le_bytes())?;
        }
        let sum = head.hash.finalize();
        file.write_all(&sum)?;
        file.write_all(&length.to_le_bytes())?;
        let mut body = Hashing { inner: &mut file, hash: Sha256::new() };
        kept.write(&mut body)?;
        let sum = body.hash.finalize();
        file.write_all(&sum)?;
        file.flush()?;
        drop(file);
        temporary.as_file().sync_all()?;
        let bytes = temporary.as_file().metadata()?.len();
        temporary.persist(&path).map_err(|error| error.error)?;
        Ok(Entry { path, ids: ids.to_vec(), stops, bytes, used: SystemTime::now() })
    }

    /// Removes files until the others have at most so many bytes.
    fn shrink_to(&mut self, bytes: u64) {
        while self.kept().1 > bytes {
            let oldest = (0..self.entries.len()).min_by_key(|&at| self.entries[at].used);
            let Some(oldest) = oldest else { return };
            self.remove(oldest);
        }
    }

    fn remove(&mut self, at: usize) {
        let entry = self.entries.remove(at);
        if let Err(error) = fs::remove_file(&entry.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            self.notes.push(format!("{}: not removed: {error}", entry.path.display()));
        }
    }
}

/// Whether a file of this name is one of those that are written here.
fn is_name(name: &str) -> bool {
    let digits = name.strip_suffix(ENDING).unwrap_or_default();
    digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

fn word(from: &mut dyn Read) -> io::Result<u64> {
    let mut bytes = [0; 8];
    from.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

/// A count that is checked before anything is made of it.
trait FilterMost {
    fn filter_most(self, most: usize) -> io::Result<usize>;
}

impl FilterMost for u64 {
    fn filter_most(self, most: usize) -> io::Result<usize> {
        usize::try_from(self).ok().filter(|&count| count <= most).ok_or_else(|| bad("is damaged"))
    }
}

/// Hashes what goes through.
struct Hashing<T> {
    inner: T,
    hash: Sha256,
}

impl<T: Read> Read for Hashing<T> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(to)?;
        self.hash.update(&to[..count]);
        Ok(count)
    }
}

impl<T: Write> Write for Hashing<T> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(from)?;
        self.hash.update(&from[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Counts what would be written.
struct Counting(u64);

impl Write for Counting {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.0 += from.len() as u64;
        Ok(from.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
