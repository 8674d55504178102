//! How fast the kernels multiply when memory does not hold them up: many rows at once, as in a prompt.

use crate::{Error, Result};
use fieldfare_kernels::{Acts, AlignedBuf, Kernels, Planes, Pool, QuantData, QuantMatrix, tile};
use std::time::{Duration, Instant};

/// One expert's gate of the full-size model.
const ROWS: usize = 704;
const COLS: usize = 2816;
/// Rows of activations: enough that weights are read from the caches for most of them.
const M: usize = 128;
/// Matrices, so that the weights are not simply in the innermost cache.
const MATRICES: usize = 8;

/// Some matrices and who multiplies them.
pub struct ProductProbe {
    kernels: &'static Kernels,
    pool: Pool,
    weights: AlignedBuf,
    x: Vec<f32>,
    y: Vec<f32>,
    acts: Acts,
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
        let x = (0..M * COLS).map(|i| (i % 17) as f32 - 8.3).collect();
        Ok(Self {
            kernels,
            pool: Pool::new(threads.max(1)),
            weights,
            x,
            y: vec![0.0; M * ROWS],
            acts: Acts::new(),
        })
    }

    /// Multiplies for about so long, with activations in `planes` (`None`: in f32); multiplications and additions a
    /// second, rounding the activations included.
    ///
    /// # Errors
    /// There are none but faults of this program.
    pub fn sample(&mut self, planes: Option<Planes>, time: Duration) -> Result<f64> {
        let wrong = |error: fieldfare_kernels::ShapeError| Error::bad("matrix", error.to_string());
        let (start, mut done) = (Instant::now(), 0u64);
        for bytes in self.weights.as_slice().chunks_exact(matrix_bytes()).cycle() {
            let data = QuantData::Tiles { data: bytes, panel_stride: tile::panel_bytes(COLS) };
            let w = QuantMatrix::new(ROWS, COLS, 4, data).map_err(wrong)?;
            match planes {
                Some(planes) => {
                    self.kernels.quantize_acts(&self.pool, &self.x, M, COLS, planes, &mut self.acts);
                    self.kernels.matmul_q(&self.pool, &w, &self.acts, M, &mut self.y);
                }
                None => self.kernels.matmul(&self.pool, &w, &self.x, M, &mut self.y),
            }
            done += (ROWS * COLS * M) as u64;
            if start.elapsed() >= time {
                break;
            }
        }
        Ok(done as f64 / start.elapsed().as_secs_f64().max(1e-9))
    }
}

fn matrix_bytes() -> usize {
    ROWS / tile::TILE_ROWS * tile::panel_bytes(COLS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_precision_has_a_rate() {
        let mut probe = ProductProbe::new(Kernels::detect(), 2).unwrap();
        for planes in [Some(Planes::One), Some(Planes::Two), None] {
            assert!(probe.sample(planes, Duration::ZERO).unwrap() > 1e6);
        }
        assert!(probe.y.iter().all(|y| y.is_finite()));
    }
}
