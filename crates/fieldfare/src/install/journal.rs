//! What of an install is durably done: `NAME.install.journal` beside the target, lines with the numbers of steps, appended and
//! flushed after the data that they speak of.
//!
//! A line is eight hexadecimal digits of its SHA-256, a space, and its text. The first line binds the journal to a source, a
//! plan and an unfinished directory. A last line that was cut short by a crash does not count; any other damage is refused.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::plan::Done;
use crate::format::hash;
use crate::sys::{disk, volume};
use crate::{Error, Result};

/// Most bytes of a journal: far more than the lines of any plan.
const CAP: u64 = 16 << 20;
const MAGIC: &str = "fieldfare-install-3";
/// Largest number of a step: far more than any plan has.
const MOST: usize = 1 << 20;

/// An open journal.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    /// Where the next line goes.
    at: u64,
}

/// What a journal says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// Hash of source and plan.
    pub(crate) binding: String,
    /// The unfinished directory that it speaks of has this in its marker.
    pub(crate) nonce: String,
    /// For people: the source.
    pub(crate) source: String,
    /// Numbers of the steps that are done.
    pub(crate) done: Done,
    /// SHA-256 of the output files that were complete and hashed, by number.
    pub(crate) files: BTreeMap<usize, [u8; 32]>,
    /// Numbers of shards whose content was proven.
    pub(crate) proven: Vec<usize>,
}

impl Journal {
    /// Begins a journal; one that is there is replaced.
    pub(crate) fn begin(path: &Path, binding: &str, nonce: &str, source: &str) -> Result<Self> {
        match std::fs::remove_file(path) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(Error::io("delete", path)(e)),
            _ => {}
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        let file = options.open(path).map_err(Error::io("create", path))?;
        let mut journal = Self { path: path.to_path_buf(), file, at: 0 };
        let source: String = source.chars().filter(|c| !c.is_control()).collect();
        journal.append(&format!("{MAGIC} {binding} {nonce} {source}"))?;
        Ok(journal)
    }

    /// Opens the journal at `path` and reads it; `None` if there is none or it holds nothing yet.
    ///
    /// # Errors
    /// [`Error::Journal`] if it is damaged or no journal.
    pub(crate) fn open(path: &Path) -> Result<Option<(Self, State)>> {
        match std::fs::symlink_metadata(path) {
            Ok(meta) if meta.is_file() => {}
            Ok(_) => return Err(damaged(path, "is not a regular file")),
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Error::io("open", path)(e)),
        }
        let file = volume::open_lock(path).map_err(Error::io("open", path))?;
        let mut bytes = Vec::new();
        (&file).take(CAP + 1).read_to_end(&mut bytes).map_err(Error::io("read", path))?;
        if bytes.len() as u64 > CAP {
            return Err(damaged(path, "is too long"));
        }
        let (state, good) = read(&bytes).map_err(|reason| damaged(path, &reason))?;
        let Some(state) = state else { return Ok(None) };
        // A torn tail goes, so that what is appended is whole.
        file.set_len(good as u64).map_err(Error::io("write", path))?;
        Ok(Some((Self { path: path.to_path_buf(), file, at: good as u64 }, state)))
    }

    /// What the journal at `path` says, if there is a good one; nothing is changed.
    pub(crate) fn peek(path: &Path) -> Option<State> {
        let meta = std::fs::symlink_metadata(path).ok().filter(|meta| meta.is_file() && meta.len() <= CAP)?;
        let mut bytes = Vec::new();
        File::open(path).ok()?.take(meta.len()).read_to_end(&mut bytes).ok()?;
        read(&bytes).ok()?.0
    }

    /// Records, durably, that these steps are done.
    pub(crate) fn done(&mut self, mut steps: Vec<usize>) -> Result<()> {
        steps.sort_unstable();
        let mut runs: Vec<Range<usize>> = Vec::new();
        for step in steps {
            match runs.last_mut() {
                Some(run) if step <= run.end => run.end = run.end.max(step + 1),
                _ => runs.push(step..step + 1),
            }
        }
        let words: Vec<String> = runs.iter().map(word).collect();
        self.append(&format!("done {}", words.join(" ")))
    }

    /// Records that an output file is complete and has this hash.
    pub(crate) fn file(&mut self, output: usize, sha256: &[u8; 32]) -> Result<()> {
        self.append(&format!("file {output} {}", hash::hex(sha256)))
    }

    /// Records that these steps, which are those of an output file, are not done after all.
    pub(crate) fn undo(&mut self, output: usize, steps: &Range<usize>) -> Result<()> {
        self.append(&format!("undo {output} {}", word(steps)))
    }

    /// Records that a shard's content was proven.
    pub(crate) fn proven(&mut self, shard: usize) -> Result<()> {
        self.append(&format!("proven {shard}"))
    }

    fn append(&mut self, text: &str) -> Result<()> {
        let line = format!("{} {text}\n", check(text));
        disk::write(&self.file, &self.path, line.as_bytes(), self.at)
            .and_then(|()| disk::flush(&self.file, &self.path))
            .map_err(Error::io("write", &self.path))?;
        self.at += line.len() as u64;
        Ok(())
    }
}

fn damaged(path: &Path, reason: &str) -> Error {
    Error::Journal { path: path.to_path_buf(), reason: reason.to_owned() }
}

fn check(text: &str) -> String {
    hash::hex(&hash::sha256(text.as_bytes())[..4])
}

/// The state, and the number of bytes that count. No state if not even the first line is whole.
fn read(bytes: &[u8]) -> Result<(Option<State>, usize), String> {
    let (mut state, mut at) = (None, 0);
    while at < bytes.len() {
        let end = bytes[at..].iter().position(|b| *b == b'\n').map(|n| at + n);
        let Some(text) = end.and_then(|end| whole(&bytes[at..end])) else {
            // Only the last append may be torn: no good line is behind it.
            let good = |line: &[u8]| whole(line).is_some();
            let torn = !end.is_some_and(|end| bytes[end + 1..].split(|b| *b == b'\n').any(good));
            return if torn { Ok((state, at)) } else { Err("is damaged".into()) };
        };
        at = end.map_or(bytes.len(), |end| end + 1);
        match &mut state {
            None => state = Some(first(text)?),
            Some(state) => next(state, text)?,
        }
    }
    Ok((state, at))
}

/// The text of a line that is as it was written.
fn whole(line: &[u8]) -> Option<&str> {
    let (sum, text) = std::str::from_utf8(line).ok()?.split_once(' ')?;
    (sum == check(text)).then_some(text)
}

fn first(text: &str) -> Result<State, String> {
    let mut words = text.splitn(4, ' ');
    let mut word = || words.next().unwrap_or_default().to_owned();
    if word() != MAGIC {
        return Err("is no journal of this version".into());
    }
    Ok(State { binding: word(), nonce: word(), source: word(), ..State::default() })
}

fn next(state: &mut State, text: &str) -> Result<(), String> {
    const STRANGE: &str = "has a line that does not belong there";
    let number = |word: &str| word.parse::<usize>().ok().filter(|n| *n < MOST).ok_or(STRANGE);
    let run = |word: &str| match word.split_once('-') {
        None => number(word).map(|n| n..n + 1),
        Some((first, last)) => Ok(number(first)?..number(last)? + 1),
    };
    let words: Vec<&str> = text.split(' ').collect();
    match words[..] {
        ["done", ref runs @ ..] if !runs.is_empty() => {
            for word in runs {
                state.done.extend(run(word)?);
            }
        }
        ["file", output, sha] => {
            let sha = hash::parse_hex(sha).ok_or("has a file without a hash")?;
            state.files.insert(number(output)?, sha);
        }
        ["undo", output, steps] => {
            for step in run(steps)? {
                state.done.remove(&step);
            }
            state.files.remove(&number(output)?);
            state.proven.clear();
        }
        ["proven", shard] => state.proven.push(number(shard)?),
        _ => return Err(STRANGE.into()),
    }
    Ok(())
}

/// `first-last`, or one number.
fn word(run: &Range<usize>) -> String {
    if run.len() == 1 { run.start.to_string() } else { format!("{}-{}", run.start, run.end.max(1) - 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cut_leaves_a_prefix_and_every_flip_is_noticed_or_last() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("j");
        let mut journal = Journal::begin(&path, "b", "n", "a source").expect("begin");
        journal.done(vec![3, 1, 0, 7, 4]).expect("append");
        journal.file(2, &[9; 32]).expect("append");
        journal.undo(2, &(3..5)).expect("append");
        journal.done(vec![4]).expect("append");
        journal.file(1, &[7; 32]).expect("append");
        journal.proven(1).expect("append");
        drop(journal);
        let bytes = std::fs::read(&path).expect("read");
        let (whole, good) = read(&bytes).expect("good");
        let whole = whole.expect("state");
        assert_eq!(good, bytes.len());
        assert_eq!((&whole.done, &whole.proven[..]), (&Done::from([0, 1, 4, 7]), &[1][..]));
        assert_eq!(whole.files, BTreeMap::from([(1, [7; 32])]));
        assert_eq!(
            (whole.binding.as_str(), whole.nonce.as_str(), whole.source.as_str()),
            ("b", "n", "a source")
        );
        for cut in 0..bytes.len() {
            let (state, good) = read(&bytes[..cut]).expect("a cut is no damage");
            assert!(good <= cut && (good == 0) == state.is_none(), "{cut}");
        }
        let last = bytes[..bytes.len() - 1].iter().rposition(|b| *b == b'\n').expect("lines") + 1;
        for bit in 0..bytes.len() * 8 {
            let mut bent = bytes.clone();
            bent[bit / 8] ^= 1 << (bit % 8);
            match read(&bent) {
                Err(_) => assert!(bit / 8 < last - 1, "{bit}"),
                Ok((state, _)) => {
                    assert!(bit / 8 >= last - 1, "{bit}: accepted");
                    assert!(state.expect("state").proven.is_empty());
                }
            }
        }
        // A torn tail is cut off, so that what is appended is whole.
        std::fs::write(&path, &bytes[..bytes.len() - 3]).expect("write");
        assert!(Journal::peek(&path).expect("good").proven.is_empty());
        assert_eq!(
            std::fs::metadata(&path).expect("there").len() as usize,
            bytes.len() - 3,
            "a look changes nothing"
        );
        let (mut journal, state) = Journal::open(&path).expect("good").expect("there");
        assert!(state.proven.is_empty());
        journal.proven(0).expect("append");
        assert_eq!(Journal::open(&path).expect("good").expect("there").1.proven, [0]);
    }
}
