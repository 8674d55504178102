//! Pages of mapped files that cannot be read: the disk failed or is gone, or the file was cut short.
//!
//! The system answers a touch of such a page with a signal (`SIGBUS`), which would end the process without a word. A program
//! that calls [`explain`] ends with one line that says so instead. Only faults within [`super::map::Map`]s are taken for
//! such; any other goes the way it went before.
#![allow(unsafe_code)] // a signal handler is not to be had otherwise

use std::sync::atomic::{AtomicUsize, Ordering};

/// Mappings that are watched at once; more are simply not known here.
const MOST: usize = 16;

/// First and last address but one of each mapping; (0, 0) is free.
static MAPPED: [(AtomicUsize, AtomicUsize); MOST] =
    [const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; MOST];

/// A mapping is there; its number for [`forget`].
pub(super) fn remember(bytes: &[u8]) -> Option<usize> {
    let range = bytes.as_ptr_range();
    let (start, end) = (range.start.addr(), range.end.addr());
    let number = MAPPED
        .iter()
        .position(|(at, _)| at.compare_exchange(0, start, Ordering::AcqRel, Ordering::Relaxed).is_ok())?;
    MAPPED[number].1.store(end, Ordering::Release);
    Some(number)
}

/// A mapping goes.
pub(super) fn forget(number: usize) {
    if let Some((start, end)) = MAPPED.get(number) {
        end.store(0, Ordering::Release);
        start.store(0, Ordering::Release);
    }
}

/// Whether an address lies in a mapping. Nothing but loads: a signal handler asks.
#[cfg_attr(not(unix), allow(dead_code))]
fn is_mapped(address: usize) -> bool {
    let within = |(start, end): &(AtomicUsize, AtomicUsize)| {
        (start.load(Ordering::Acquire)..end.load(Ordering::Acquire)).contains(&address)
    };
    MAPPED.iter().any(within)
}

/// From now on a page of a mapped file that cannot be read ends the process with a message on standard error and exit code
/// 1. For programs, once at their start; a library does not decide how a process ends.
pub fn explain() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(platform::install);
}

#[cfg(unix)]
mod platform {
    use std::cell::UnsafeCell;
    use std::mem::MaybeUninit;
    use std::sync::atomic::{AtomicBool, Ordering};

    const MESSAGE: &[u8] = b"error: the model's weights can no longer be read: the disk failed or is gone, or the file was cut short\n\
        hint: check the disk, then `fieldfare verify`\n";

    /// What was done about the signal before.
    struct Before(UnsafeCell<MaybeUninit<libc::sigaction>>);

    // SAFETY: written once, before the handler that reads it can run.
    unsafe impl Sync for Before {}

    static BEFORE: Before = Before(UnsafeCell::new(MaybeUninit::uninit()));
    static IS_KNOWN: AtomicBool = AtomicBool::new(false);

    pub(super) fn install() {
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_fault;
        // SAFETY: all zeros is a valid `sigaction`: no flags, an empty mask.
        let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
        action.sa_sigaction = handler as libc::sighandler_t;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: both structures are valid; the one for the old action is written by nobody else, as this runs once, and
        // read only after the flag is set.
        let done = unsafe {
            libc::sigemptyset(&mut action.sa_mask);
            libc::sigaction(libc::SIGBUS, std::ptr::null(), (*BEFORE.0.get()).as_mut_ptr()) == 0 && {
                IS_KNOWN.store(true, Ordering::Release);
                libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut()) == 0
            }
        };
        // Where the system refuses, such a fault ends the process as it always did.
        let _ = done;
    }

    /// Calls nothing but what a signal handler may call: `write`, `_exit`, `sigaction`.
    extern "C" fn on_fault(signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
        // SAFETY: the system passes a valid structure to a handler that asks for it.
        let address = unsafe { (*info).si_addr() }.addr();
        if super::is_mapped(address) {
            // SAFETY: the bytes are static; both calls are allowed here, and the process ends.
            unsafe {
                libc::write(libc::STDERR_FILENO, MESSAGE.as_ptr().cast(), MESSAGE.len());
                libc::_exit(1);
            }
        }
        if IS_KNOWN.load(Ordering::Acquire) {
            // SAFETY: what was there before is set again; the access is repeated when this returns and meets it.
            unsafe { libc::sigaction(signal, (*BEFORE.0.get()).as_ptr(), std::ptr::null_mut()) };
        }
    }
}

#[cfg(not(unix))]
mod platform {
    pub(super) fn install() {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_mappings_are_known_while_they_are_there() {
        let bytes = [0u8; 100];
        let start = bytes.as_ptr().addr();
        assert!(!is_mapped(start));
        let number = remember(&bytes).unwrap();
        assert!(is_mapped(start) && is_mapped(start + 99) && !is_mapped(start + 100) && !is_mapped(0));
        forget(number);
        assert!(!is_mapped(start));
        // More than can be watched are not an error.
        let all: Vec<Option<usize>> = (0..2 * MOST).map(|_| remember(&bytes)).collect();
        assert!(all.last().unwrap().is_none());
        all.into_iter().flatten().for_each(forget);
        assert!(!is_mapped(start));
    }
}
