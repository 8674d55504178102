//! The new directory: its files one after the other, each hashed as it is written, then manifest and receipt.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::time::SystemTime;

use super::sink::{CHUNK, Sink};
use super::target::Target;
use super::{Installed, Listener, Progress, Stage};
use crate::format::{
    CAP_LAYOUT, EXPERTS_DIR, ExpertLayout, FileEntry, LAYOUT, Layout, MANIFEST, Manifest, RECEIPT, Receipt,
    ResidentIndex, SIDECAR_DIR, hash,
};
use crate::sys::disk;
use crate::sys::file::{self, Dir};
use crate::{Error, Result};

/// Written into receipts.
const TOOL: &str = concat!("fieldfare ", env!("CARGO_PKG_VERSION"));
/// Room for manifest, receipt, folders and what a file system adds.
pub(crate) const SLACK: u64 = 8 << 20;

/// Counts bytes and tells the caller.
pub(crate) struct Meter<'a> {
    listener: Listener<'a>,
    now: Progress,
}

impl<'a> Meter<'a> {
    /// A meter at 0 of `total` bytes.
    pub(crate) fn new(listener: Listener<'a>, total: u64) -> Self {
        Self { listener, now: Progress::of(Stage::Writing, 0, total) }
    }

    /// Adds bytes; [`Error::Cancelled`] if the caller wants no more.
    pub(crate) fn step(&mut self, bytes: u64) -> Result<()> {
        self.now.waiting = None;
        self.now.done = self.now.done.saturating_add(bytes).min(self.now.total);
        self.tell()
    }

    /// Says how far it is.
    #[cfg(feature = "install")]
    pub(crate) fn set(&mut self, done: u64, waiting: Option<super::Waiting>) -> Result<()> {
        self.now.done = done.min(self.now.total);
        self.now.waiting = waiting;
        self.tell()
    }

    /// Starts another stage.
    pub(crate) fn stage(&mut self, stage: Stage) -> Result<()> {
        self.now.stage = stage;
        self.tell()
    }

    fn tell(&mut self) -> Result<()> {
        if (self.listener)(self.now).is_break() { Err(Error::Cancelled) } else { Ok(()) }
    }
}

/// Writes the files of `NAME.partial`.
pub(crate) struct Builder<'a> {
    target: Target,
    dir: Dir,
    files: BTreeMap<String, FileEntry>,
    pub(crate) meter: Meter<'a>,
    /// The time of day, for the receipt.
    pub(crate) clock: fn() -> SystemTime,
}

impl<'a> Builder<'a> {
    /// Makes the unfinished directory with its folders, if there is room for `payload` bytes. `work` is the number of bytes
    /// that progress counts to.
    pub(crate) fn start(mut target: Target, payload: u64, work: u64, listener: Listener<'a>) -> Result<Self> {
        target.clear_leftover()?;
        target.check_space(payload.saturating_add(SLACK))?;
        let mut meter = Meter::new(listener, work);
        meter.tell()?;
        target.begin()?;
        let dir = Dir::open(target.partial()).map_err(Error::io("open", target.partial()))?;
        for folder in [EXPERTS_DIR, SIDECAR_DIR] {
            dir.create_dir(folder).map_err(Error::io("create", target.partial().join(folder)))?;
        }
        Ok(Self { target, dir, files: BTreeMap::new(), meter, clock: SystemTime::now })
    }

    /// A builder for a directory that exists already, with what is in it; `done` of the bytes that progress counts to are done.
    #[cfg(feature = "install")]
    pub(crate) fn resume(
        target: Target,
        (done, work): (u64, u64),
        stage: Stage,
        listener: Listener<'a>,
    ) -> Result<Self> {
        let dir = Dir::open(target.partial()).map_err(Error::io("open", target.partial()))?;
        for folder in [EXPERTS_DIR, SIDECAR_DIR] {
            match dir.create_dir(folder) {
                Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
                    return Err(Error::io("create", target.partial().join(folder))(e));
                }
                _ => {}
            }
        }
        // Also if they were there: a run that lost power may have left them unflushed. Steps in them are recorded soon.
        disk::flush_names(&dir, target.partial()).map_err(Error::io("sync", target.partial()))?;
        let mut meter = Meter::new(listener, work);
        meter.now = Progress::of(stage, done, work);
        meter.tell()?;
        Ok(Self { target, dir, files: BTreeMap::new(), meter, clock: SystemTime::now })
    }

    /// The unfinished directory.
    #[cfg(feature = "install")]
    pub(crate) fn dir(&self) -> &Dir {
        &self.dir
    }

    /// The place it goes to.
    #[cfg(feature = "install")]
    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    /// Gives up everything that was fetched for this place.
    #[cfg(feature = "install")]
    pub(crate) fn discard(&mut self) -> Result<()> {
        self.target.discard().map(|_| ())
    }

    /// Lists a file that is complete.
    #[cfg(feature = "install")]
    pub(crate) fn list_as(&mut self, path: &str, size: u64, sha256: [u8; 32]) {
        self.files.insert(path.to_owned(), FileEntry { size, sha256 });
    }

    /// Creates the file `path` of `len` bytes, in place of what a former run left there.
    #[cfg(feature = "install")]
    pub(crate) fn create_anew(&self, path: &str, len: u64) -> Result<Sink> {
        match self.dir.remove_file(path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::io("delete", self.target.partial().join(path))(e))
            }
            _ => self.create(path, len),
        }
    }

    /// Creates the file `path` of `len` bytes.
    pub(crate) fn create(&self, path: &str, len: u64) -> Result<Sink> {
        let full = self.target.partial().join(path);
        let file = self.dir.create_file(path).map_err(Error::io("create", &full))?;
        Sink::new(file, full, len)
    }

    /// Flushes a finished file and lists it.
    pub(crate) fn list(&mut self, path: &str, sink: Sink) -> Result<()> {
        let (size, sha256) = sink.finish()?;
        self.files.insert(path.to_owned(), FileEntry { size, sha256 });
        Ok(())
    }

    /// Writes a small file.
    pub(crate) fn put(&mut self, path: &str, bytes: &[u8]) -> Result<()> {
        let mut sink = self.create(path, bytes.len() as u64)?;
        sink.write(bytes)?;
        self.meter.step(bytes.len() as u64)?;
        self.list(path, sink)
    }

    /// Writes a small file in place of what a former run left there.
    #[cfg(feature = "install")]
    pub(crate) fn put_anew(&mut self, path: &str, bytes: &[u8]) -> Result<()> {
        let mut sink = self.create_anew(path, bytes.len() as u64)?;
        sink.write(bytes)?;
        self.list(path, sink)
    }

    /// Size and hash of a file that was listed.
    pub(crate) fn listed(&self, path: &str) -> Option<&FileEntry> {
        self.files.get(path)
    }

    /// Copies `len` bytes of an open file. If a hash is wanted, `name` is damaged unless its bytes have it.
    pub(crate) fn copy(
        &mut self,
        path: &str,
        name: &str,
        from: &File,
        len: u64,
        want: Option<&FileEntry>,
    ) -> Result<()> {
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.folders(parent)?;
        }
        let mut sink = self.create(path, len)?;
        let mut buffer = vec![0; CHUNK];
        let mut at = 0;
        while at < len {
            let n = usize::try_from(len - at).map_or(CHUNK, |left| left.min(CHUNK));
            file::read_exact_at(from, &mut buffer[..n], at).map_err(Error::io("read", name))?;
            sink.write(&buffer[..n])?;
            at += n as u64;
            self.meter.step(n as u64)?;
        }
        self.list(path, sink)?;
        match want {
            Some(want) if self.files.get(path) != Some(want) => Err(wrong_hash(name)),
            _ => Ok(()),
        }
    }

    /// Makes folders that only foreign extensions of the format have.
    fn folders(&self, path: &str) -> Result<()> {
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        for end in ends {
            let full = self.target.partial().join(&path[..end]);
            if !full.is_dir() {
                self.dir.create_dir(&path[..end]).map_err(Error::io("create", full))?;
            }
        }
        Ok(())
    }

    /// Writes `manifest` (its `files` are filled in here) or, for a copy, the very bytes given; then the receipt; then puts
    /// the directory in its place.
    pub(crate) fn finish(self, manifest: Manifest, verbatim: Option<Vec<u8>>) -> Result<Installed> {
        self.finish_from(manifest, verbatim, None)
    }

    /// The same with repository and commit of the source for the receipt.
    pub(crate) fn finish_from(
        mut self,
        mut manifest: Manifest,
        verbatim: Option<Vec<u8>>,
        origin: Option<(String, String)>,
    ) -> Result<Installed> {
        self.meter.stage(Stage::Finishing)?;
        manifest.files = std::mem::take(&mut self.files);
        let bytes = verbatim.unwrap_or_else(|| manifest.encode());
        // What is written must read back as what was meant; this also applies the reader's caps and rules.
        if Manifest::parse(&bytes)? != manifest {
            return Err(Error::damaged(MANIFEST, "does not read back as written"));
        }
        self.sync_folders()?;
        let named = self.target.named.clone();
        let path = named.to_str().unwrap_or_default();
        let mut receipt = Receipt::new(&manifest, &bytes, path, TOOL, (self.clock)());
        if let Some((repo, commit)) = origin {
            (receipt.source_repo_id, receipt.source_revision) = (Some(repo), Some(commit));
        }
        for (name, bytes) in [(MANIFEST, &bytes), (RECEIPT, &receipt.encode())] {
            file::write_atomic(&self.dir, self.target.partial(), name, bytes)
                .map_err(Error::io("write", self.target.partial().join(name)))?;
        }
        let (replaced, remark) = self.target.promote()?;
        Ok(Installed {
            path: named,
            layout: manifest.layout,
            model_id: manifest.model_id,
            source_snapshot_hash: manifest.source_snapshot_hash,
            manifest_sha256: hash::sha256(&bytes),
            files: manifest.files.len(),
            bytes: manifest.files.values().map(|f| f.size).sum(),
            dropped_tensors: 0,
            proof: Vec::new(),
            replaced,
            warnings: remark.into_iter().collect(),
        })
    }

    /// Flushes every folder, the deepest first.
    fn sync_folders(&self) -> Result<()> {
        let mut folders: Vec<&str> = vec![EXPERTS_DIR, SIDECAR_DIR];
        for path in self.files.keys() {
            folders.extend(path.match_indices('/').map(|(at, _)| &path[..at]));
        }
        folders.sort_by_key(|path| std::cmp::Reverse(path.len()));
        folders.dedup();
        for folder in folders {
            let full = self.target.partial().join(folder);
            let sync = self.dir.open_dir(folder).and_then(|dir| disk::flush_names(&dir, &full));
            sync.map_err(Error::io("sync", full))?;
        }
        disk::flush_names(&self.dir, self.target.partial()).map_err(Error::io("sync", self.target.partial()))
    }
}

/// A source file whose bytes are not those of its manifest.
pub(crate) fn wrong_hash(name: &str) -> Error {
    Error::damaged(name, "SHA-256 differs from the manifest's; nothing was converted")
}

/// The bytes of `layout.json`, checked against what a reader will make of them.
pub(crate) fn layout_bytes(experts: &ExpertLayout, layout: Layout) -> Result<Vec<u8>> {
    let bytes = experts.encode();
    if bytes.len() as u64 > CAP_LAYOUT {
        let count = experts.experts_per_layer.saturating_mul(experts.layers.len());
        return Err(Error::Unsupported(format!("{count} experts: {LAYOUT} would exceed {CAP_LAYOUT} bytes")));
    }
    if ExpertLayout::parse(&bytes, layout)? != *experts {
        return Err(Error::damaged(LAYOUT, "does not read back as written"));
    }
    Ok(bytes)
}

/// The index region, checked the same way.
pub(crate) fn index_bytes(index: &ResidentIndex, layout: Layout) -> Result<Vec<u8>> {
    let bytes = index.encode()?;
    if ResidentIndex::parse(&bytes, index.index_size + index.resident_size, layout)? != *index {
        return Err(Error::damaged(crate::format::WEIGHTS, "the index does not read back as written"));
    }
    Ok(bytes)
}

/// A v1 receipt holds the path as text.
pub(crate) fn check_name(path: &Path, layout: Layout) -> Result<()> {
    if layout == Layout::V1 && path.to_str().is_none() {
        let what = format!(
            "{}: a v1 receipt needs a path that is valid Unicode; --layout tiled does not",
            path.display()
        );
        return Err(Error::Unsupported(what));
    }
    Ok(())
}
