//! What a killed run has to fetch again: bytes that were asked for and are not recorded yet, and the bound on them.
//!
//! There are two kinds. *Steps* are bytes of which each is recorded in time by itself: units, and experts of a strip. *Sides*
//! are scales and biases of a strip, which the next run needs again until the last expert of it is recorded; they may take
//! half of the room, so that there is always some for the experts that end them.
//!
//! Both together are never more than `most`, unless a single step, or the sides of a single strip, have more than half of that.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::stream::TICK;

/// Room for bytes that are asked for and not recorded.
#[derive(Debug)]
pub(crate) struct Window {
    most: u64,
    /// A run of experts is not begun for less than this, if it has so much and others are on their way.
    least: u64,
    open: Mutex<Open>,
    fewer: Condvar,
}

#[derive(Debug, Default)]
struct Open {
    steps: u64,
    sides: u64,
    /// Somebody was told to wait since this was last looked at.
    wanted: bool,
}

impl Open {
    fn room(&self, most: u64) -> u64 {
        most.saturating_sub(self.steps.saturating_add(self.sides))
    }
}

impl Window {
    /// Room for one longest request for each connection.
    pub(crate) fn new(connections: usize, longest: u64) -> Self {
        let most = longest.max(1).saturating_mul(connections.max(1) as u64);
        Self { most, least: longest / 4, open: Mutex::default(), fewer: Condvar::new() }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes room for a unit; false if there is none now.
    pub(crate) fn admit_unit(&self, bytes: u64) -> bool {
        let mut open = self.open();
        let fits = open.steps == 0 || bytes <= open.room(self.most);
        if fits {
            open.steps = open.steps.saturating_add(bytes);
        } else {
            open.wanted = true;
        }
        fits
    }

    /// Takes room for the sides of a strip; false if there is none now.
    pub(crate) fn admit_sides(&self, bytes: u64) -> bool {
        let mut open = self.open();
        let half = open.sides == 0 || open.sides.saturating_add(bytes) <= self.most / 2;
        let fits = half && (open.steps == 0 || bytes <= open.room(self.most));
        if fits {
            open.sides = open.sides.saturating_add(bytes);
        } else {
            open.wanted = true;
        }
        fits
    }

    /// Takes room for as many of `count` experts of `each` bytes as there is room for, one at least, and waits until that is
    /// worth a request. `None` if `stop` says so.
    pub(crate) fn admit_experts(&self, each: u64, count: u64, stop: &dyn Fn() -> bool) -> Option<u64> {
        let worth = each.saturating_mul(count).min(self.least.max(each));
        let mut open = self.open();
        loop {
            if stop() {
                return None;
            }
            let room = open.room(self.most);
            // What waits for nothing that is on its way would wait for ever.
            if room >= worth || open.steps == 0 {
                let count = (room / each.max(1)).clamp(1, count.max(1));
                open.steps = open.steps.saturating_add(each.saturating_mul(count));
                return Some(count);
            }
            open.wanted = true;
            open = self.fewer.wait_timeout(open, TICK).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Bytes that are recorded.
    pub(crate) fn recorded(&self, steps: u64, sides: u64) {
        let mut open = self.open();
        open.steps = open.steps.saturating_sub(steps);
        open.sides = open.sides.saturating_sub(sides);
        drop(open);
        self.fewer.notify_all();
    }

    /// Whether somebody was told to wait since this was last asked.
    pub(crate) fn take_wanted(&self) -> bool {
        std::mem::take(&mut self.open().wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_more_than_a_request_for_each_connection() {
        let window = Window::new(4, 100);
        let go = || false;
        assert!((0..8).all(|_| window.admit_unit(50)), "eight halves of a request");
        assert!(!window.admit_unit(1) && window.take_wanted() && !window.take_wanted());
        assert!(!window.admit_sides(10));
        assert_eq!(window.admit_experts(30, 3, &|| true), None, "stopped while there is no room");
        window.recorded(200, 0);
        // Sides may take half of all, one strip's whatever there is.
        assert!(window.admit_sides(150) && !window.admit_sides(60) && window.admit_sides(50));
        assert!(!window.admit_unit(1));
        window.recorded(60, 0);
        // As many experts as there is room for; a quarter of a request is worth one.
        assert_eq!(window.admit_experts(20, 5, &go), Some(3));
        window.recorded(30, 0);
        assert_eq!(window.admit_experts(20, 1, &go), Some(1));
        assert_eq!(window.admit_experts(20, 9, &|| true), None);
        // The end of a strip.
        window.recorded(20, 150);
        assert_eq!(window.admit_experts(20, 9, &go), Some(9));
    }

    #[test]
    fn what_is_larger_than_all_room_goes_alone() {
        let window = Window::new(1, 100);
        assert!(window.admit_sides(300), "the sides of one strip");
        assert_eq!(window.admit_experts(70, 2, &|| false), Some(1), "one expert at a time");
        assert_eq!(window.admit_experts(70, 2, &|| true), None);
        window.recorded(70, 300);
        assert!(window.admit_unit(300) && !window.admit_unit(1));
        window.recorded(300, 0);
        assert_eq!(window.admit_experts(70, 2, &|| false), Some(1));
    }

    #[test]
    fn who_waits_is_woken() {
        let window = Window::new(1, 100);
        assert!(window.admit_unit(100));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| window.admit_experts(10, 10, &|| false));
            while !window.take_wanted() {
                std::thread::yield_now();
            }
            window.recorded(100, 0);
            assert_eq!(waits.join().expect("no panic"), Some(10));
        });
    }
}
