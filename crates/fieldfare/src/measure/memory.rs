//! How fast memory can be read: the kernels' streaming read over far more bytes than the caches hold, in huge pages as
//! the weights are.

use crate::sys::pages::Pages;
use crate::{Error, Result};
use fieldfare_kernels::{Kernels, Pool};
use std::time::{Duration, Instant};

/// Least and most bytes that are read.
const LEAST: u64 = 64 << 20;
const MOST: u64 = 1 << 30;

/// A buffer to read, and who reads it.
pub struct MemoryProbe {
    buffer: Pages,
    kernels: &'static Kernels,
    pool: Pool,
    /// Keeps the reads from being left out.
    sum: u64,
}

impl MemoryProbe {
    /// A buffer of `bytes` (see [`usual_bytes`]), read by up to `threads` threads.
    ///
    /// # Errors
    /// The system has no such memory.
    pub fn new(kernels: &'static Kernels, threads: usize, bytes: usize) -> Result<Self> {
        let mut buffer =
            Pages::new(bytes).map_err(Error::io("allocate memory for", "the bandwidth measurement"))?;
        // Memory that was never written is one page of zeros.
        buffer.bytes_mut().fill(0x5a);
        Ok(Self { buffer, kernels, pool: Pool::new(threads.max(1)), sum: 0 })
    }

    /// Threads of [`MemoryProbe::sample`].
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// From now on with so many threads (0 counts as 1).
    pub fn use_threads(&mut self, threads: usize) {
        if threads.max(1) != self.threads() {
            self.pool = Pool::new(threads.max(1));
        }
    }

    /// Reads for about so long with all threads; bytes a second.
    pub fn sample(&mut self, time: Duration) -> f64 {
        let (rate, sum) = sample(self.kernels, &self.pool, self.buffer.bytes(), time);
        self.sum ^= sum;
        rate
    }

    /// [`MemoryProbe::sample`] with 1, 2, 4 … and all threads in turns, `rounds` times: by number of threads, the rates.
    pub fn by_threads(&mut self, rounds: usize, time: Duration) -> Vec<(usize, Vec<f64>)> {
        let most = self.threads();
        let mut counts: Vec<usize> = (0..).map(|power| 1 << power).take_while(|&n| n < most).collect();
        counts.push(most);
        let pools: Vec<Pool> = counts.iter().map(|&count| Pool::new(count)).collect();
        let mut rates = vec![Vec::new(); counts.len()];
        for _ in 0..rounds {
            for (pool, rates) in pools.iter().zip(&mut rates) {
                let (rate, sum) = sample(self.kernels, pool, self.buffer.bytes(), time);
                self.sum ^= sum;
                rates.push(rate);
            }
        }
        counts.into_iter().zip(rates).collect()
    }

    /// Share of the buffer in huge pages; `None` where the system does not say.
    pub fn huge_share(&self) -> Option<f64> {
        let huge = self.buffer.huge_bytes()? as f64;
        Some((huge / self.buffer.len().max(1) as f64).min(1.0))
    }

    /// What was read, folded. No use but that it was read.
    pub fn checksum(&self) -> u64 {
        self.sum
    }
}

fn sample(kernels: &Kernels, pool: &Pool, bytes: &[u8], time: Duration) -> (f64, u64) {
    // In parts, so that a slow machine does not take seconds for the whole buffer, and one after the other, so that
    // the next one is not what the caches still hold.
    let part = (bytes.len() / 8).max(1 << 20).min(bytes.len().max(1));
    let mut parts = bytes.chunks(part).cycle();
    let (start, mut done, mut sum) = (Instant::now(), 0u64, 0u64);
    loop {
        if let Some(part) = parts.next() {
            sum ^= kernels.stream(pool, part);
            done += part.len() as u64;
        }
        let elapsed = start.elapsed();
        if elapsed >= time || bytes.is_empty() {
            return (done as f64 / elapsed.as_secs_f64().max(1e-9), sum);
        }
    }
}

/// Bytes that suffice on this machine: twice the largest cache, but no more than 1 GiB and a quarter of what is free.
pub fn usual_bytes(free: Option<u64>, cache: Option<u64>) -> usize {
    let wanted = cache.map_or(MOST / 2, |cache| cache.saturating_mul(2)).clamp(LEAST * 4, MOST);
    let room = free.map_or(wanted, |free| free / 4);
    usize::try_from(wanted.min(room).max(LEAST)).unwrap_or(LEAST as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_buffer_is_beyond_the_caches_and_within_what_is_free() {
        assert_eq!(usual_bytes(None, Some(32 << 20)), 256 << 20);
        assert_eq!(usual_bytes(Some(64 << 30), Some(480 << 20)), 960 << 20);
        assert_eq!(usual_bytes(Some(64 << 30), Some(4 << 30)), 1 << 30);
        assert_eq!(usual_bytes(Some(2 << 30), Some(480 << 20)), 512 << 20);
        assert_eq!(usual_bytes(Some(0), None), 64 << 20);
    }

    #[test]
    fn every_number_of_threads_has_a_rate() {
        let mut probe = MemoryProbe::new(Kernels::detect(), 3, 8 << 20).unwrap();
        let rates = probe.by_threads(2, Duration::from_millis(2));
        assert_eq!(rates.iter().map(|(threads, _)| *threads).collect::<Vec<_>>(), [1, 2, 3]);
        assert!(rates.iter().all(|(_, rates)| rates.len() == 2 && rates.iter().all(|&rate| rate > 1e6)));
        probe.use_threads(2);
        assert_eq!(probe.threads(), 2);
        assert!(probe.sample(Duration::ZERO) > 0.0);
        assert!(probe.huge_share().is_none_or(|share| (0.0..=1.0).contains(&share)));
    }
}
