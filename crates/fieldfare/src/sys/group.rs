//! A control group with a hard memory limit, made for one child process and removed after it.
//!
//! Linux only; both versions of control groups are tried, below the group of this process first. Not every user may make
//! one: then [`MemoryGroup::create`] says why. A child joins by writing its own process id (see [`join`]) before it
//! takes memory, so that everything it takes is counted.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// One version's files.
#[derive(Debug, Clone, Copy)]
struct Version {
    limit: &'static str,
    peak: &'static str,
    /// Where swap is bounded, and with what, for a limit of so many bytes.
    swap: fn(u64) -> (&'static str, u64),
}

const V2: Version = Version { limit: "memory.max", peak: "memory.peak", swap: |_| ("memory.swap.max", 0) };
const V1: Version = Version {
    limit: "memory.limit_in_bytes",
    peak: "memory.max_usage_in_bytes",
    swap: |bytes| ("memory.memsw.limit_in_bytes", bytes),
};

/// A group of our own. Dropped, it is removed.
#[derive(Debug)]
pub struct MemoryGroup {
    path: PathBuf,
    version: Version,
}

impl MemoryGroup {
    /// Makes a group whose processes together get at most `bytes`, page cache that they cause included.
    ///
    /// # Errors
    /// There is no memory controller here, or this user may not make groups below it.
    pub fn create(name: &str, bytes: u64) -> io::Result<Self> {
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mut last = io::Error::new(io::ErrorKind::Unsupported, "no memory control group here");
        for (parent, version) in parents(&groups, Path::new("/sys/fs/cgroup")) {
            match Self::create_below(&parent, version, name, bytes) {
                Ok(group) => return Ok(group),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn create_below(parent: &Path, version: Version, name: &str, bytes: u64) -> io::Result<Self> {
        let path = parent.join(name);
        if let Err(error) = fs::create_dir(&path) {
            // Left by a process of that name that was killed, or in use: then it cannot be removed.
            if error.kind() != io::ErrorKind::AlreadyExists || fs::remove_dir(&path).is_err() {
                return Err(error);
            }
            fs::create_dir(&path)?;
        }
        // From here on a failure removes it again.
        let group = Self { path, version };
        fs::write(group.path.join(version.limit), bytes.to_string())?;
        let (swap, most) = (version.swap)(bytes);
        // Without it the limit could be passed into swap; not every kernel counts that.
        let _ = fs::write(group.path.join(swap), most.to_string());
        Ok(group)
    }

    /// What [`join`] takes.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The most that was ever counted, as the kernel says.
    pub fn peak(&self) -> Option<u64> {
        fs::read_to_string(self.path.join(self.version.peak)).ok()?.trim().parse().ok()
    }

    /// How often the kernel killed for want of memory.
    pub fn kills(&self) -> Option<u64> {
        ["memory.events", "memory.oom_control"].iter().find_map(|file| {
            let text = fs::read_to_string(self.path.join(file)).ok()?;
            text.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()
        })
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // A process that has just ended may still be counted for a moment.
        for _ in 0..50 {
            match fs::remove_dir(&self.path) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                    std::thread::sleep(std::time::Duration::from_millis(20));
                }
                _ => return,
            }
        }
    }
}

/// Moves this process into the group at `path`.
///
/// # Errors
/// The system refuses.
pub fn join(path: &Path) -> io::Result<()> {
    fs::write(path.join("cgroup.procs"), std::process::id().to_string())
}

/// Folders below which a group may be made, the likeliest first: where this process is, then above it up to the root,
/// since a group of version 2 that has processes of its own hands no memory down.
fn parents(groups: &str, root: &Path) -> Vec<(PathBuf, Version)> {
    let mut found = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let (base, version) = if controllers.is_empty() {
            (root.to_path_buf(), V2)
        } else if controllers.split(',').any(|name| name == "memory") {
            (root.join("memory"), V1)
        } else {
            continue;
        };
        let mut group = PathBuf::from(path.trim_start_matches('/'));
        loop {
            let folder = base.join(&group);
            if hands_memory_down(&folder, version) {
                found.push((folder, version));
            }
            if !group.pop() {
                break;
            }
        }
    }
    found
}

fn hands_memory_down(folder: &Path, version: Version) -> bool {
    if version.limit == V1.limit {
        return folder.join(V1.limit).exists();
    }
    let controllers = fs::read_to_string(folder.join("cgroup.subtree_control")).unwrap_or_default();
    controllers.split_whitespace().any(|name| name == "memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_made_where_memory_is_handed_down() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("a/b/cgroup.subtree_control", "");
        write("a/cgroup.subtree_control", "cpu memory\n");
        write("cgroup.subtree_control", "cpu\n");
        write("memory/x/memory.limit_in_bytes", "1");
        let found = parents("7:cpu,memory:/x\n3:pids:/x\n0::/a/b\nnonsense\n", root.path());
        let paths: Vec<_> = found.iter().map(|(path, _)| path.strip_prefix(root.path()).unwrap()).collect();
        assert_eq!(paths, [Path::new("memory/x"), Path::new("a")]);

        let (parent, version) = (found[1].0.clone(), found[1].1);
        let group = MemoryGroup::create_below(&parent, version, "test", 4096).unwrap();
        assert_eq!(fs::read_to_string(group.path().join("memory.max")).unwrap(), "4096");
        assert_eq!((group.peak(), group.kills()), (None, None));
        fs::write(group.path().join("memory.peak"), "77\n").unwrap();
        fs::write(group.path().join("memory.events"), "low 0\noom 3\noom_kill 2\n").unwrap();
        assert_eq!((group.peak(), group.kills()), (Some(77), Some(2)));
        join(group.path()).unwrap();
        assert_eq!(
            fs::read_to_string(group.path().join("cgroup.procs")).unwrap(),
            std::process::id().to_string()
        );
        assert!(MemoryGroup::create_below(&parent, version, "test", 1).is_err(), "it is there already");
    }
}
