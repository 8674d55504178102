//! What the machine is: its processor, its huge pages, the file system under a folder. For reports and advice; where the
//! system does not say, the answer is `None`, never a guess.

use std::path::Path;

/// The processor's name.
pub fn processor() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let name = text.lines().find_map(|line| line.strip_prefix("model name"))?;
    Some(name.trim_start_matches([' ', '\t', ':']).trim().to_owned())
}

/// The operating system: its name, and the kernel's release where it is known.
pub fn system() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    [std::env::consts::OS, release.trim()].join(" ").trim().to_owned()
}

/// Processors that this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Bytes of the largest cache of the first processor. Linux only; virtual machines may be told of their host's.
pub fn largest_cache() -> Option<u64> {
    let folder = std::fs::read_dir("/sys/devices/system/cpu/cpu0/cache").ok()?;
    let size = |entry: std::fs::DirEntry| {
        let text = std::fs::read_to_string(entry.path().join("size")).ok()?;
        text.trim().strip_suffix('K')?.parse::<u64>().ok()?.checked_mul(1024)
    };
    folder.filter_map(Result::ok).filter_map(size).max()
}

/// When the system gives huge pages to memory that is taken for the first time: `always`, `madvise` (on request, as this
/// program asks) or `never`. Linux only.
pub fn huge_pages() -> Option<String> {
    let text = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").ok()?;
    chosen(&text)
}

/// The word in brackets.
fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

/// The type of the file system that holds `path`, as the table of mounts names it. Linux only.
pub fn file_system(path: &Path) -> Option<String> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    kind_of(&mounts, &path.canonicalize().ok()?)
}

/// The type of the last of the longest mount points above `path`: later ones cover earlier ones.
fn kind_of(mounts: &str, path: &Path) -> Option<String> {
    let mut best: Option<(usize, &str)> = None;
    for line in mounts.lines() {
        let mut words = line.split(' ');
        let (Some(_), Some(point), Some(kind)) = (words.next(), words.next(), words.next()) else { continue };
        let point = point.replace("\\040", " ");
        if path.starts_with(&point) && best.is_none_or(|(len, _)| point.len() >= len) {
            best = Some((point.len(), kind));
        }
    }
    best.map(|(_, kind)| kind.to_owned())
}

/// Whether files of this type come over a network.
pub fn is_network(kind: &str) -> bool {
    const KINDS: [&str; 11] =
        ["nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "fuse.sshfs", "glusterfs", "lustre", "afs"];
    KINDS.contains(&kind)
}

/// Ends this process when its parent ends, where the system can (Linux). A child that measures must not go on alone.
pub fn end_with_parent() {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        // Refused, the closed pipe ends it all the same, if later.
        let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    }
}

/// Drops the clean pages of a file from the page cache, where the system can (Linux); whether it did is not said.
///
/// # Errors
/// The file cannot be opened or the system refuses.
pub fn forget_cached(path: &Path) -> std::io::Result<()> {
    let file = std::fs::File::open(path)?;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    drop(file);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_mount_point_counts() {
        let mounts = "rootfs / rootfs rw 0 0\n/dev/a / ext4 rw 0 0\nhost:/x /data nfs4 rw 0 0\n/dev/b /data/my\\040disk xfs rw 0 0\nbroken\n";
        let kind = |path: &str| kind_of(mounts, Path::new(path));
        assert_eq!(kind("/home/x").as_deref(), Some("ext4"));
        assert_eq!(kind("/data/models").as_deref(), Some("nfs4"));
        assert_eq!(kind("/database").as_deref(), Some("ext4"));
        assert_eq!(kind("/data/my disk/x").as_deref(), Some("xfs"));
        assert_eq!(kind_of("", Path::new("/")), None);
        assert!(is_network("nfs4") && !is_network("ext4"));
    }

    #[test]
    fn the_word_in_brackets() {
        assert_eq!(chosen("always [madvise] never\n").as_deref(), Some("madvise"));
        assert_eq!(chosen("always"), None);
        assert!(largest_cache().is_none_or(|bytes| bytes >= 1024));
        assert!(cores() >= 1 && system().starts_with(std::env::consts::OS));
    }

    #[test]
    fn a_file_out_of_the_cache_is_still_there() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), b"here").unwrap();
        forget_cached(file.path()).unwrap();
        assert_eq!(std::fs::read(file.path()).unwrap(), b"here");
        assert!(forget_cached(&file.path().join("missing")).is_err());
    }
}
