//! Rate of the integer products with many rows of activations, on the model's shapes, 4 bits, in both layouts.
//!
//! `cargo run --release -p fieldfare-kernels --example gemm [-- THREADS [ISA]]`. Every call takes another matrix out
//! of 200 MB of them, as a prompt does. Shown are GMAC/s, the median of the calls and the fastest: layouts and planes take
//! turns.

use fieldfare_kernels::{
    Acts, AlignedBuf, Isa, Kernels, Planes, Pool, QuantData, QuantMatrix, ShapeError, tile,
};
use std::time::Instant;

const BYTES: usize = 200 << 20;
const CASES: [(&str, bool, Planes); 4] = [
    ("one plane, tiles", true, Planes::One),
    ("two planes, tiles", true, Planes::Two),
    ("one plane, rows", false, Planes::One),
    ("two planes, rows", false, Planes::Two),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let pool = Pool::new(args.next().map_or(Ok(1), |a| a.parse())?);
    let isa: Option<Isa> = args.next().map(|a| a.parse()).transpose()?;
    let kernels = match isa {
        Some(isa) => Kernels::for_isa(isa).ok_or("not on this CPU")?,
        None => Kernels::detect(),
    };
    let mut data = AlignedBuf::zeroed(BYTES, 2 << 20)?;
    for (i, pair) in data.as_mut_slice().chunks_exact_mut(2).enumerate() {
        // Any nibbles; as a bf16 about 0.01.
        pair.copy_from_slice(&[((i * 37) >> 3) as u8, 0x3C]);
    }
    for (name, rows, cols) in [
        ("gate, up", 704, 2816),
        ("down", 2816, 704),
        ("q", 4096, 2816),
        ("o", 2816, 4096),
        ("kv", 1024, 2816),
    ] {
        let panel_stride = tile::panel_bytes(cols);
        let bytes = rows / tile::TILE_ROWS * panel_stride;
        let matrix = |index: usize, tiled: bool| -> Result<QuantMatrix<'_>, ShapeError> {
            let data = &data.as_slice()[index % (BYTES / bytes) * bytes..][..bytes];
            let (weights, sides) = data.split_at(rows * cols / 2);
            let (scales, biases) = sides.split_at(sides.len() / 2);
            let data = if tiled {
                QuantData::Tiles { data, panel_stride }
            } else {
                QuantData::Rows { weights, scales, biases }
            };
            QuantMatrix::new(rows, cols, 4, data)
        };
        println!("-- {name}: {rows} x {cols}, {}, {} thread(s)", kernels.isa(), pool.threads());
        for m_rows in [1usize, 2, 4, 8, 32, 64, 128, 256] {
            let x: Vec<f32> = (0..m_rows * cols).map(|i| (i * 7 % 17) as f32 - 8.3).collect();
            let mut y = vec![0.0; m_rows * rows];
            let mut acts = [Acts::new(), Acts::new()];
            for (planes, acts) in [Planes::One, Planes::Two].into_iter().zip(&mut acts) {
                kernels.quantize_acts(&pool, &x, m_rows, cols, planes, acts);
            }
            let mut times = [(); CASES.len()].map(|()| Vec::new());
            let mut index = 0;
            let turns = (300_000_000 / (m_rows * rows * cols)).clamp(7, 60);
            for _ in 0..turns {
                for (times, &(_, tiled, planes)) in times.iter_mut().zip(&CASES) {
                    index += 1;
                    let w = matrix(index, tiled)?;
                    let start = Instant::now();
                    kernels.matmul_q(&pool, &w, &acts[planes.count() - 1], m_rows, &mut y);
                    times.push(start.elapsed().as_secs_f64());
                }
            }
            let work = (m_rows * rows * cols) as f64 / 1e9;
            let line: Vec<String> = CASES
                .iter()
                .zip(times)
                .map(|((case, ..), mut times)| {
                    times.sort_by(f64::total_cmp);
                    format!("{case} {:5.1} ({:5.1})", work / times[times.len() / 2], work / times[0])
                })
                .collect();
            println!("   M = {m_rows:3}: {}", line.join(", "));
        }
    }
    Ok(())
}
