//! How a sequence of small parallel regions fares when another program wants one of the cores.
//!
//! `cargo run --release -p fieldfare-kernels --example pool [-- SECONDS]`, alone and beside
//! `taskset -c 1 sh -c 'while :; do :; done'`. A round is 400 products of one row of activations with a 704 x 1408
//! matrix of 4 bits (some 10 us each on two threads), out of 64 MB of them, with 1 us of serial work after each, as
//! a decoding step has it. Pools of one and two threads take turns; shown are rounds a second, the median of the
//! turns, and the ratio.

use fieldfare_kernels::{Acts, AlignedBuf, Kernels, Planes, Pool, QuantData, QuantMatrix, tile};
use std::time::{Duration, Instant};

const ROWS: usize = 704;
const COLS: usize = 1408;
const JOBS: usize = 400;
const MATRICES: usize = 100;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds: f64 = std::env::args().nth(1).map_or(Ok(6.0), |a| a.parse())?;
    let kernels = Kernels::detect();
    let bytes = ROWS / tile::TILE_ROWS * tile::panel_bytes(COLS);
    let mut data = AlignedBuf::zeroed(MATRICES * bytes, 2 << 20)?;
    for (i, pair) in data.as_mut_slice().chunks_exact_mut(2).enumerate() {
        pair.copy_from_slice(&[((i * 37) >> 3) as u8, 0x3C]);
    }
    let matrices: Vec<QuantMatrix<'_>> = data
        .as_slice()
        .chunks_exact(bytes)
        .map(|data| {
            QuantMatrix::new(ROWS, COLS, 4, QuantData::Tiles { data, panel_stride: tile::panel_bytes(COLS) })
        })
        .collect::<Result<_, _>>()?;
    let x: Vec<f32> = (0..COLS).map(|i| (i * 7 % 17) as f32 - 8.3).collect();
    let mut acts = Acts::new();
    kernels.quantize_acts(&Pool::new(1), &x, 1, COLS, Planes::Two, &mut acts);
    let mut y = vec![0.0; ROWS];

    let pools = [Pool::new(1), Pool::new(2)];
    let mut rates = [Vec::new(), Vec::new()];
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    while Instant::now() < end {
        for (pool, rates) in pools.iter().zip(&mut rates) {
            // Turns longer than the time slices of the system's scheduler.
            let (start, mut rounds) = (Instant::now(), 0);
            while start.elapsed() < Duration::from_millis(300) {
                for job in 0..JOBS {
                    kernels.matmul_q(pool, &matrices[job % MATRICES], &acts, 1, &mut y);
                    let serial = Instant::now();
                    while serial.elapsed() < Duration::from_micros(1) {}
                }
                rounds += 1;
            }
            rates.push(f64::from(rounds) / start.elapsed().as_secs_f64());
        }
    }
    let [one, two] = rates.map(|mut rates| {
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    });
    println!("one thread {one:6.1}, two threads {two:6.1} rounds/s: {:.2} times", two / one);
    println!("(sum {})", y.iter().sum::<f32>());
    Ok(())
}
