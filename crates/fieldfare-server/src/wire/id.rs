//! Names of answers and calls: random, so that they do not collide across requests and restarts.

use fieldfare::sample::rng::{Rng, fresh_seed};
use std::sync::atomic::{AtomicU64, Ordering};

/// `prefix` and 32 hexadecimal digits.
pub(crate) fn answer(prefix: &str) -> String {
    let mut rng = fresh();
    format!("{prefix}{:016x}{:016x}", rng.next_u64(), rng.next_u64())
}

/// `call_` and 24 hexadecimal digits.
pub(crate) fn call() -> String {
    let mut rng = fresh();
    format!("call_{:016x}{:08x}", rng.next_u64(), rng.next_u64() >> 32)
}

/// Two calls within one tick of the clock still differ by the count.
fn fresh() -> Rng {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    Rng::new(fresh_seed() ^ count.rotate_left(40))
}
