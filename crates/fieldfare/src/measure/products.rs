//! How fast the kernels multiply when memory does not hold them up: many rows at once, as in a prompt.
//!
//! Every thread multiplies for itself, and the rates are added up: a limit is what the machine does, not what is left of it
//! after the joins of a [`Pool`], which stays alone for a while after a worker was kept from its core. And of a few short
//! samples the best counts, because whatever else runs on the machine can only make one slower.

use crate::{Error, Result};
use fieldfare_kernels::{Acts, AlignedBuf, Kernels, Planes, Pool, QuantData, QuantMatrix, tile};
use std::panic::resume_unwind;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// One expert's gate of the full-size model.
const ROWS: usize = 704;
const COLS: usize = 2816;
/// Rows of activations: enough that weights are read from the caches for most of them.
const M: usize = 128;
/// Matrices, so that the weights are not simply in the innermost cache.
const MATRICES: usize = 8;
/// Parts of a matrix: a thread's smallest piece of work takes a millisecond at most.
const PARTS: usize = 4;
/// Samples that the time is shared among.
const SLICES: u32 = 5;

/// Some matrices and activations, and how many threads multiply them.
pub struct ProductProbe {
    kernels: &'static Kernels,
    threads: usize,
    weights: AlignedBuf,
    x: Vec<f32>,
    acts: [Acts; 2],
    /// A thread's results, once for each.
    y: Vec<Vec<f32>>,
}

impl ProductProbe {
    /// Matrices in tiles, multiplied by `threads` threads.
    ///
    /// # Errors
    /// No memory.
    pub fn new(kernels: &'static Kernels, threads: usize) -> Result<Self> {
        let none = |error: fieldfare_kernels::AllocError| Error::bad("memory", error.to_string());
        let mut weights = AlignedBuf::zeroed(MATRICES * matrix_bytes(), 4096).map_err(none)?;
        // 0x3c3c is a bfloat16 of about 0.01: an ordinary scale wherever one lies.
        weights.as_mut_slice().fill(0x3c);
        let x: Vec<f32> = (0..M * COLS).map(|i| (i % 17) as f32 - 8.3).collect();
        let acts = [Planes::One, Planes::Two].map(|planes| {
            let mut acts = Acts::new();
            kernels.quantize_acts(&Pool::new(1), &x, M, COLS, planes, &mut acts);
            acts
        });
        let mut probe = Self { kernels, threads: 0, weights, x, acts, y: Vec::new() };
        probe.use_threads(threads);
        Ok(probe)
    }

    /// From now on with so many threads (0 counts as 1).
    pub fn use_threads(&mut self, threads: usize) {
        self.threads = threads.max(1);
        self.y.resize_with(self.threads, || vec![0.0; M * ROWS / PARTS]);
    }

    /// Multiplies for about so long, with activations in `planes` (`None`: in f32); multiplications and additions a
    /// second, the most of a few short samples.
    ///
    /// # Errors
    /// There are none but faults of this program.
    pub fn sample(&mut self, planes: Option<Planes>, time: Duration) -> Result<f64> {
        let slice = time / SLICES;
        let mut best = 0.0_f64;
        for _ in 0..SLICES {
            best = best.max(self.slice(planes, slice)?);
        }
        Ok(best)
    }

    /// The sum of the threads' rates while all of them multiply.
    fn slice(&mut self, planes: Option<Planes>, time: Duration) -> Result<f64> {
        let panel_stride = tile::panel_bytes(COLS);
        let wrong = |error: fieldfare_kernels::ShapeError| Error::bad("matrix", error.to_string());
        let matrices = self
            .weights
            .as_slice()
            .chunks_exact(matrix_bytes())
            .map(|data| QuantMatrix::new(ROWS, COLS, 4, QuantData::Tiles { data, panel_stride }))
            .collect::<std::result::Result<Vec<_>, _>>()
            .map_err(wrong)?;
        let (kernels, x, acts) = (self.kernels, &self.x, &self.acts);
        let until = Instant::now() + time;
        let work = |thread: usize, y: &mut [f32]| {
            let (from, mut done) = (Instant::now(), 0u64);
            // Not all at the same matrix.
            for piece in thread * PARTS.. {
                let w = &matrices[piece / PARTS % MATRICES];
                let rows = ROWS / PARTS * (piece % PARTS)..ROWS / PARTS * (piece % PARTS + 1);
                match planes {
                    Some(planes) => {
                        kernels.matmul_q_rows(w, rows, &acts[planes.count() - 1], M, y);
                    }
                    None => kernels.matmul_rows(w, rows, x, M, y),
                }
                done += (ROWS / PARTS * COLS * M) as u64;
                if Instant::now() >= until {
                    break;
                }
            }
            done as f64 / from.elapsed().as_secs_f64().max(1e-9)
        };
        let (mine, others) = self.y.split_at_mut(1);
        let rates = std::thread::scope(|scope| {
            let work = &work;
            let others: Vec<_> = others
                .iter_mut()
                .enumerate()
                .map(|(index, y)| scope.spawn(move || work(index + 1, y)))
                .collect();
            let mine = work(0, &mut mine[0]);
            let rate =
                |other: ScopedJoinHandle<'_, f64>| other.join().unwrap_or_else(|panic| resume_unwind(panic));
            others.into_iter().map(rate).fold(mine, std::ops::Add::add)
        });
        Ok(rates)
    }
}

fn matrix_bytes() -> usize {
    ROWS / tile::TILE_ROWS * tile::panel_bytes(COLS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_precision_and_number_of_threads_has_a_rate() {
        let mut probe = ProductProbe::new(Kernels::detect(), 2).unwrap();
        for planes in [Some(Planes::One), Some(Planes::Two), None] {
            for threads in [2, 3, 1] {
                probe.use_threads(threads);
                assert_eq!(probe.y.len(), threads);
                assert!(probe.sample(planes, Duration::ZERO).unwrap() > 1e6);
                // Each has multiplied something, of its own.
                assert!(probe.y.iter().all(|y| y.iter().all(|y| y.is_finite() && *y != 0.0)));
                probe.y.iter_mut().for_each(|y| y.fill(0.0));
            }
        }
    }
}
