//! Rates of `Kernels::matmul` on 704 x 2816 matrices of 4 bits, far more of them than any cache holds.
//!
//! `cargo run --release -p fieldfare-kernels --example gemv [-- MATRICES [THREADS]]`; 1,000 matrices are 1.1 GB. Each
//! line is one x row from tiles or source rows, or 8, 32 or 128 x rows over fewer matrices. Every matmul is timed;
//! shown are the median and the fastest tenth (on a busy machine: those that ran undisturbed). GB/s counts weights,
//! scales and biases once a matmul.

use fieldfare_kernels::{AlignedBuf, Isa, Kernels, Pool, QuantData, QuantMatrix, isas, tile};
use std::time::Instant;

const ROWS: usize = 704;
const COLS: usize = 2816;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let matrices: usize = args.next().map_or(Ok(500), |a| a.parse())?;
    let threads: usize = args.next().map_or(Ok(1), |a| a.parse())?;
    let bytes = ROWS / 16 * tile::panel_bytes(COLS);
    let mut data = AlignedBuf::zeroed(matrices.max(1) * bytes, 2 << 20)?;
    fill(data.as_mut_slice());
    let x: Vec<f32> = (0..128 * COLS).map(|i| (i % 17) as f32 - 8.0).collect();
    let mut y = vec![0.0; 128 * ROWS];
    let pool = Pool::new(threads);
    println!("{matrices} matrices of {ROWS} x {COLS}, {} threads", pool.threads());
    for isa in isas() {
        let Some(kernels) = Kernels::for_isa(isa) else { continue };
        for (layout, m_rows) in
            [("tiles", 1), ("rows", 1), ("tiles", 8), ("rows", 8), ("tiles", 32), ("tiles", 128)]
        {
            // The scalar oracle calls a function for each multiply-add: a few matrices tell enough.
            let count =
                if isa == Isa::Scalar { 8 / m_rows } else { matrices / m_rows.min(8) }.clamp(1, matrices);
            let mut times = Vec::with_capacity(count);
            for matrix in data.as_slice().chunks_exact(bytes).take(count) {
                let w = view(matrix, layout == "tiles")?;
                let start = Instant::now();
                kernels.matmul(&pool, &w, &x[..m_rows * COLS], m_rows, &mut y[..m_rows * ROWS]);
                times.push(start.elapsed().as_secs_f64());
            }
            times.sort_by(f64::total_cmp);
            let rates = |t: f64| ((m_rows * ROWS * COLS) as f64 / t / 1e9, bytes as f64 / t / 1e9);
            let ((median, _), (macs, gb)) = (rates(times[count / 2]), rates(times[count / 10]));
            println!(
                "{isa:>7} {layout:>5} {m_rows:>3} x rows: median {median:7.2}, fast {macs:7.2} GMAC/s {gb:6.2} GB/s"
            );
        }
    }
    println!("(last sum {})", y.iter().sum::<f32>());
    Ok(())
}

/// Any nibbles; scales and biases as bf16 of ordinary size wherever they lie in either layout.
fn fill(bytes: &mut [u8]) {
    let mut state = 1u64;
    for pair in bytes.chunks_exact_mut(2) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        // High byte 0x3C or 0xBC: as a bf16 about +-0.01.
        pair.copy_from_slice(&[(state >> 56) as u8, 0x3C | ((state >> 40) as u8 & 0x80)]);
    }
}

fn view(matrix: &[u8], tiles: bool) -> Result<QuantMatrix<'_>, fieldfare_kernels::ShapeError> {
    let (weights, sides) = matrix.split_at(ROWS * COLS / 2);
    let (scales, biases) = sides.split_at(sides.len() / 2);
    let data = if tiles {
        QuantData::Tiles { data: matrix, panel_stride: tile::panel_bytes(COLS) }
    } else {
        QuantData::Rows { weights, scales, biases }
    };
    QuantMatrix::new(ROWS, COLS, 4, data)
}
