//! Large anonymous memory: zeroed, aligned to huge pages, given back in part.
//!
//! Reads from a fast disk into 4 KiB pages run at half the rate of reads into huge ones, and products over them
//! wait for the page walker, so the system is asked for huge pages (Linux: `madvise`; elsewhere it decides by itself).
//! Whether it gave them can be read back. Memory is taken when it is first written; what was given back is taken
//! again, zeroed, at the next write.
#![allow(unsafe_code)] // several parts of one mapping are written at once, each by its holder

use memmap2::{MmapMut, MmapOptions};
use std::io;
use std::ops::Range;

/// Size and alignment of a huge page.
pub const HUGE: usize = 2 << 20;

/// Anonymous memory.
#[derive(Debug)]
pub struct Pages {
    map: MmapMut,
    /// The first aligned byte of the mapping, from its mutable pointer.
    start: *mut u8,
    len: usize,
}

// SAFETY: the pointer leads into the mapping, which moves with its owner.
unsafe impl Send for Pages {}
// SAFETY: the methods on `&self` that reach the bytes are unsafe and leave it to the caller that no part is written
// while it is read.
unsafe impl Sync for Pages {}

impl Pages {
    /// `len` zeroed bytes at a multiple of [`HUGE`].
    ///
    /// # Errors
    /// The system has no such memory.
    pub fn new(len: usize) -> io::Result<Self> {
        let out_of_memory = || io::Error::from(io::ErrorKind::OutOfMemory);
        let whole =
            len.checked_next_multiple_of(HUGE).and_then(|n| n.checked_add(HUGE)).ok_or_else(out_of_memory)?;
        if isize::try_from(whole).is_err() {
            return Err(out_of_memory());
        }
        let mut map = MmapOptions::new().len(whole).no_reserve_swap().map_anon()?;
        advise_huge(&map);
        let base = map.as_mut_ptr();
        let offset = base.align_offset(HUGE).min(HUGE);
        // SAFETY: `offset` is at most HUGE, and the mapping is that much longer than `len`.
        let start = unsafe { base.add(offset) };
        Ok(Self { map, start, len })
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn check(&self, range: &Range<usize>) {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {} bytes", self.len);
    }

    /// Bytes `range`, to be read.
    ///
    /// # Safety
    /// Nobody writes to them, nor gives them back, while they are borrowed.
    pub unsafe fn part(&self, range: Range<usize>) -> &[u8] {
        self.check(&range);
        // SAFETY: within the mapping, which is initialized (zeroed or written) and lives as long as `self`; the
        // caller keeps writers away.
        unsafe { std::slice::from_raw_parts(self.start.add(range.start), range.len()) }
    }

    /// Bytes `range`, to be written, whoever else holds other parts.
    ///
    /// # Safety
    /// Nobody else reads or writes them, nor gives them back, while they are borrowed.
    #[allow(clippy::mut_from_ref)] // that is what the contract is about
    pub unsafe fn part_mut(&self, range: Range<usize>) -> &mut [u8] {
        self.check(&range);
        // SAFETY: as in `part`; the caller keeps everybody else away.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }

    /// All bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: as in `part`. Whoever writes through `part_mut` must not call this meanwhile, by its contract.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }

    /// All bytes, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `part`, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }

    /// Gives the memory of `from..` back to the system, as far as whole huge pages reach; it reads as zeros then (or as
    /// before, where the system only may take it). True if the system took it.
    pub fn release(&mut self, from: usize) -> bool {
        let offset = self.start.addr() - self.map.as_ptr().addr();
        let Some(from) = from.min(self.len).checked_next_multiple_of(HUGE) else { return true };
        let end = offset + self.len.next_multiple_of(HUGE);
        let from = offset.saturating_add(from);
        from >= end || release(&mut self.map, from..end)
    }

    /// How many of the bytes are in huge pages now; `None` where the system does not say.
    pub fn huge_bytes(&self) -> Option<u64> {
        huge_bytes(self.map.as_ptr().addr()..self.map.as_ptr().addr() + self.map.len())
    }
}

/// Whether [`Pages::release`] can give memory back on this platform.
pub const CAN_RELEASE: bool = cfg!(any(target_os = "linux", target_os = "android", target_vendor = "apple"));

#[cfg(any(target_os = "linux", target_os = "android"))]
fn advise_huge(map: &MmapMut) {
    // Refused where the kernel was built without huge pages: then there are none, and `huge_bytes` says so.
    let _ = map.advise(memmap2::Advice::HugePage);
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn advise_huge(_map: &MmapMut) {}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn release(map: &mut MmapMut, range: Range<usize>) -> bool {
    // SAFETY: the mapping is private and anonymous and borrowed exclusively; its pages become zeros, which are bytes as
    // good as any.
    unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, range.start, range.len()) }
        .is_ok()
}

#[cfg(target_vendor = "apple")]
fn release(map: &mut MmapMut, range: Range<usize>) -> bool {
    // SAFETY: as on Linux; the pages stay as they are until the system takes them and reads as zeros after.
    unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::FreeReusable, range.start, range.len()) }
        .is_ok()
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
fn release(_map: &mut MmapMut, _range: Range<usize>) -> bool {
    false
}

/// `AnonHugePages` of the mappings that overlap `range`. The kernel merges neighbours that were asked for alike, and then
/// counts them together: no more than the length of `range` is taken for its own.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn huge_bytes(range: Range<usize>) -> Option<u64> {
    use std::io::BufRead;
    let file = std::fs::File::open("/proc/self/smaps").ok()?;
    let (mut ours, mut sum) = (false, 0u64);
    for line in io::BufReader::new(file).lines() {
        let line = line.ok()?;
        let first = line.split_whitespace().next().unwrap_or("");
        if let Some((start, end)) = first.split_once('-')
            && let (Ok(start), Ok(end)) = (usize::from_str_radix(start, 16), usize::from_str_radix(end, 16))
        {
            ours = start < range.end && end > range.start;
        } else if ours && let Some(rest) = line.strip_prefix("AnonHugePages:") {
            let kib: u64 = rest.split_whitespace().next()?.parse().ok()?;
            sum = sum.saturating_add(kib.saturating_mul(1024));
        }
    }
    Some(sum.min(range.len() as u64))
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn huge_bytes(_range: Range<usize>) -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeroed_aligned_and_apart() {
        for len in [0, 1, 4096, HUGE - 1, HUGE, HUGE + 1, 3 * HUGE + 5] {
            let mut pages = Pages::new(len).unwrap();
            assert_eq!((pages.len(), pages.is_empty()), (len, len == 0));
            assert_eq!(pages.bytes().as_ptr().addr() % HUGE, 0);
            assert!(pages.bytes().iter().all(|&byte| byte == 0));
            pages.bytes_mut().fill(7);
            let (a, b) = (len / 3, len / 2);
            // SAFETY: the parts do not overlap and nothing else is borrowed.
            let (left, right) = unsafe { (pages.part(0..a), pages.part_mut(b..len)) };
            right.fill(9);
            assert!(left.iter().all(|&byte| byte == 7) && right.iter().all(|&byte| byte == 9));
        }
        assert!(Pages::new(usize::MAX).is_err());
        assert!(Pages::new(isize::MAX as usize).is_err());
    }

    #[test]
    fn what_is_given_back_is_zero_and_the_rest_stays() {
        let mut pages = Pages::new(4 * HUGE).unwrap();
        pages.bytes_mut().fill(5);
        assert!(pages.release(HUGE + 1) || !CAN_RELEASE);
        assert!(pages.bytes()[..2 * HUGE].iter().all(|&byte| byte == 5), "only whole huge pages go");
        if cfg!(target_os = "linux") {
            assert!(pages.bytes()[2 * HUGE..].iter().all(|&byte| byte == 0));
        }
        pages.bytes_mut()[3 * HUGE] = 8;
        assert_eq!(pages.bytes()[3 * HUGE], 8);
        assert!(pages.release(4 * HUGE) && pages.release(usize::MAX), "nothing to give");
    }

    /// In a process of its own: the system counts neighbours of the same kind as one, and those of other tests come and go.
    #[test]
    fn huge_pages_are_counted() {
        const ALONE: &str = "FIELDFARE_TEST_ALONE";
        if std::env::var_os(ALONE).is_none() {
            let mut again = std::process::Command::new(std::env::current_exe().unwrap());
            again.args(["--exact", "sys::pages::tests::huge_pages_are_counted"]).env(ALONE, "");
            let ran = again.output().unwrap();
            let said = String::from_utf8_lossy(&ran.stdout);
            assert!(ran.status.success() && said.contains("1 passed"), "{said}");
            return;
        }
        let mut pages = Pages::new(8 * HUGE).unwrap();
        assert!(pages.huge_bytes().is_none_or(|bytes| bytes == 0));
        pages.bytes_mut().fill(1);
        // How many there are is the system's affair.
        assert!(pages.huge_bytes().is_none_or(|bytes| bytes <= 9 * HUGE as u64));
    }

    #[test]
    #[should_panic(expected = "of 10 bytes")]
    fn parts_beyond_the_end_are_refused() {
        let pages = Pages::new(10).unwrap();
        // SAFETY: nothing else is borrowed; the call panics.
        let _ = unsafe { pages.part(5..11) };
    }
}
