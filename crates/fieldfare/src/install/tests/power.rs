//! Power loss, simulated. A listener at the disk's door keeps what was flushed: the content of files, and the names in
//! folders. At random moments it makes a copy of the place as a machine might find it after the power went: of everything
//! that was not flushed since, each block of 512 bytes, each length and each name may be the old or the new one, in any
//! mixture, so writes are lost, leave holes and change their order. From each copy the install is continued.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ThreadId;

use super::again::{questions, to_fetch};
use super::*;
use crate::install::target::MARKER;
use crate::sys::disk::Op;
use crate::sys::disk::plug::{Plug, plug};

type Names = BTreeMap<OsString, u64>;

#[derive(Default)]
struct Kept {
    /// By inode, what was flushed.
    files: HashMap<u64, Vec<u8>>,
    folders: HashMap<u64, Names>,
    /// What is being flushed.
    files_now: HashMap<(ThreadId, PathBuf), (u64, Vec<u8>)>,
    folders_now: HashMap<(ThreadId, PathBuf), (u64, Names)>,
    seen: usize,
    /// Numbers of the moments at which the power goes.
    moments: BTreeSet<usize>,
    copies: Vec<PathBuf>,
    dice: u64,
}

struct Power {
    root: PathBuf,
    /// Where copies go.
    copies: PathBuf,
    /// The disk says that it flushed the model's files and did not.
    lies: bool,
    kept: Mutex<Kept>,
}

fn inode(path: &Path) -> io::Result<u64> {
    Ok(fs::symlink_metadata(path)?.ino())
}

fn names_in(path: &Path) -> io::Result<Names> {
    fs::read_dir(path)?.map(|e| e.and_then(|e| Ok((e.file_name(), inode(&e.path())?)))).collect()
}

impl Plug for Power {
    fn before(&self, op: Op, path: &Path) -> io::Result<()> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (std::thread::current().id(), path.to_path_buf());
        // What is written while it is being flushed may not be flushed with it.
        match op {
            Op::Flush => drop(kept.files_now.insert(key, (inode(path)?, fs::read(path)?))),
            Op::FlushNames => drop(kept.folders_now.insert(key, (inode(path)?, names_in(path)?))),
            Op::Write | Op::Reserve => {}
        }
        kept.seen += 1;
        if kept.moments.contains(&kept.seen) {
            let copy = self.copies.join(kept.seen.to_string());
            let mut crash = Crash { dice: Dice(kept.dice ^ kept.seen as u64), kept: &kept };
            crash.folder(&self.root, inode(&self.root)?, &copy)?;
            kept.copies.push(copy);
        }
        Ok(())
    }

    fn after(&self, op: Op, path: &Path) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (std::thread::current().id(), path.to_path_buf());
        match op {
            Op::Flush => {
                if let Some((inode, bytes)) = kept.files_now.remove(&key)
                    && !(self.lies && path.extension().is_some_and(|of| of == "bin"))
                {
                    kept.files.insert(inode, bytes);
                }
            }
            Op::FlushNames => {
                if let Some((inode, names)) = kept.folders_now.remove(&key) {
                    kept.folders.insert(inode, names);
                }
            }
            Op::Write | Op::Reserve => {}
        }
    }
}

struct Crash<'a> {
    dice: Dice,
    kept: &'a Kept,
}

impl Crash<'_> {
    /// `now` is where the folder is at this moment, if it is still anywhere.
    fn folder(&mut self, now: &Path, number: u64, copy: &Path) -> io::Result<()> {
        fs::create_dir(copy)?;
        let current = names_in(now).unwrap_or_default();
        let flushed = self.kept.folders.get(&number).cloned().unwrap_or_default();
        let mut taken = HashSet::new();
        let all: BTreeSet<&OsString> = current.keys().chain(flushed.keys()).collect();
        // All old, all new, or a mixture, in which nothing has two names and nothing that has a name both times has none.
        let way = self.dice.below(3);
        let mut found = Names::new();
        for name in all {
            let (old, new) = (flushed.get(name), current.get(name));
            let pick = match way {
                0 => old,
                1 => new,
                _ if self.dice.below(2) == 0 => old,
                _ => new,
            };
            if let Some(inode) = pick
                && taken.insert(*inode)
            {
                found.insert(name.clone(), *inode);
            }
        }
        if way == 2 {
            let here: HashSet<u64> = current.values().copied().collect();
            for (name, inode) in &flushed {
                if here.contains(inode) && !taken.contains(inode) && !found.contains_key(name) {
                    found.insert(name.clone(), *inode);
                }
            }
        }
        let places: HashMap<u64, PathBuf> = current.iter().map(|(name, i)| (*i, now.join(name))).collect();
        for (name, number) in found {
            let place = places.get(&number).cloned().unwrap_or_else(|| PathBuf::from("/nowhere"));
            let to = copy.join(&name);
            let folder = place.is_dir() || self.kept.folders.contains_key(&number) && !place.is_file();
            if folder {
                self.folder(&place, number, &to)?;
            } else {
                fs::write(to, self.file(&place, number))?;
            }
        }
        Ok(())
    }

    fn file(&mut self, now: &Path, number: u64) -> Vec<u8> {
        let flushed = self.kept.files.get(&number).cloned().unwrap_or_default();
        let Ok(current) = fs::read(now) else { return flushed };
        let mut out = if self.dice.below(2) == 0 { vec![0; flushed.len()] } else { vec![0; current.len()] };
        // What has been flushed is long enough for what was flushed.
        out.resize(out.len().max(flushed.len().min(current.len())), 0);
        let whole = self.dice.below(4);
        for (at, block) in out.chunks_mut(512).enumerate() {
            let of = |bytes: &[u8]| {
                let start = bytes.len().min(at * 512);
                bytes[start..bytes.len().min(start + block.len())].to_vec()
            };
            let new = match whole {
                0 => false,
                1 => true,
                _ => self.dice.below(2) == 0,
            };
            let bytes = if new { of(&current) } else { of(&flushed) };
            block[..bytes.len()].copy_from_slice(&bytes);
        }
        out
    }
}

/// Installs again and again and loses power at eight moments each time; `then` gets the places as they are found after that,
/// until there were `all` of them. Returns how many moments an install has.
fn lose_power(hub: &FakeHub, base: &Path, all: usize, lies: bool, then: &mut dyn FnMut(&Path)) -> usize {
    let mut dice = Dice(2_026);
    let (mut cuts, mut events) = (0, 0);
    for round in 0.. {
        if cuts >= all {
            break;
        }
        let place = base.join(format!("disk {round}"));
        fs::create_dir(&place).expect("create");
        let copies = base.join(format!("after {round}"));
        fs::create_dir(&copies).expect("create");
        let mut moments: BTreeSet<usize> = BTreeSet::new();
        if events > 0 {
            moments.extend((0..5).map(|_| 1 + usize::try_from(dice.below(events as u64)).expect("small")));
            // And among the last ones, when names change.
            moments.extend((0..3).map(|_| events - usize::try_from(dice.below(24)).expect("small")));
        }
        let kept = Mutex::new(Kept { moments, dice: dice.below(u64::MAX), ..Kept::default() });
        let power = Arc::new(Power { root: place.clone(), copies: copies.clone(), lies, kept });
        let plugged = plug(&place, power.clone());
        run(&options(hub, &place.join("m.gturbo"))).expect("install");
        drop(plugged);
        let kept = power.kept.lock().unwrap_or_else(PoisonError::into_inner);
        events = kept.seen;
        for copy in &kept.copies {
            cuts += 1;
            then(copy);
        }
        fs::remove_dir_all(&place).expect("delete");
        fs::remove_dir_all(&copies).expect("delete");
    }
    events
}

/// `FIELDFARE_INSTALL_CUTS` sets the number of moments.
#[test]
fn power_loss_at_any_moment() {
    let root = tempfile::tempdir().expect("temporary directory");
    let base = root.path().canonicalize().expect("a path");
    let (wanted, hub) = (wanted(&base), hub());
    let whole = to_fetch(&options(&hub, &base.join("none")));
    let (mut cuts, mut done, mut saved) = (0, 0, 0);
    let all = rounds("FIELDFARE_INSTALL_CUTS", 40);
    let events = lose_power(&hub, &base, all, false, &mut |copy| {
        let (output, at) = (copy.join("m.gturbo"), copy.display());
        cuts += 1;
        if output.is_dir() && !output.join(MARKER).exists() {
            // All was done, so all of it must be there.
            done += 1;
        } else {
            let options = options(&hub, &output);
            // If it has its name, nothing but the questions is sent.
            let named = output.is_dir();
            let (expected, before) = (if named { questions() } else { to_fetch(&options) }, hub.sent());
            run(&options).unwrap_or_else(|e| panic!("{at}: {e}"));
            let sent = hub.sent() - before;
            assert!(sent <= expected, "{at}: {sent} bytes, not {expected}");
            saved += usize::from(expected < whole);
        }
        assert!(contents(&output) == wanted, "{at}");
    });
    println!("{cuts} power losses among {events} moments: {saved} continued, {done} had ended");
    assert!(saved > 5 && events > 500);
}

/// What the losses above would do if a flush were forgotten: with a disk that does not do what it says, bytes are missing, and the
/// proof of the source notices every time. No wrong byte is accepted, and the test above can fail.
#[test]
fn a_disk_that_lies_about_flushes_is_found_out() {
    let root = tempfile::tempdir().expect("temporary directory");
    let base = root.path().canonicalize().expect("a path");
    let (wanted, hub) = (wanted(&base), hub());
    let (mut wrong, mut right) = (0, 0);
    lose_power(&hub, &base, 16, true, &mut |copy| {
        let output = copy.join("m.gturbo");
        if output.is_dir() {
            return;
        }
        match run(&options(&hub, &output)) {
            Ok(_) => right += 1,
            Err(error) => {
                wrong += 1;
                assert!(matches!(&error, crate::Error::Damaged { .. }), "{error:?}");
                assert!(error.to_string().contains("does not have the published SHA-256"), "{error}");
                assert!(!output.exists());
                run(&options(&hub, &output)).expect("anew");
            }
        }
        assert!(contents(&output) == wanted, "{}", copy.display());
    });
    println!("{wrong} found out, {right} without harm");
    assert!(wrong > 3, "{wrong}");
}
