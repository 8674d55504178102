//! Rates of the integer products in two planes with a few rows of activations, as steps of one text and of several have them, and
//! with 32, on the model's shapes: attention and experts (4 bits, tiles) and the shared expert (8 bits, source order).
//!
//! `cargo run --release -p fieldfare-kernels --example few [-- THREADS [ISA [MIB]]]`. Every call takes another matrix out of 600
//! MiB of them; with fewer than the caches hold it is arithmetic alone. Numbers of rows and the streaming read of the same bytes take turns; shown are GB/s of weights, scales and
//! biases, the median, and the median of each turn's ratio to that turn's streaming read; of 32 rows GMAC/s too.

use fieldfare_kernels::{
    Acts, AlignedBuf, Isa, Kernels, Planes, Pool, QuantData, QuantMatrix, ShapeError, tile,
};
use std::time::Instant;

const FEW: [usize; 7] = [1, 2, 3, 4, 5, 8, 32];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let pool = Pool::new(args.next().map_or(Ok(2), |a| a.parse())?);
    let isa: Option<Isa> = args.next().map(|a| a.parse()).transpose()?;
    let kernels = match isa {
        Some(isa) => Kernels::for_isa(isa).ok_or("not on this CPU")?,
        None => Kernels::detect(),
    };
    let all = args.next().map_or(Ok(600), |a| a.parse::<usize>())? << 20;
    let mut data = AlignedBuf::zeroed(all.max(16 << 20), 2 << 20)?;
    for (i, pair) in data.as_mut_slice().chunks_exact_mut(2).enumerate() {
        // Any nibbles; as a bf16 about 0.01.
        pair.copy_from_slice(&[((i * 37) >> 3) as u8, 0x3C]);
    }
    println!("{}, {} thread(s)", kernels.isa(), pool.threads());
    for (name, bits, rows, cols) in [
        ("expert gate and up", 4, 1408, 2816),
        ("expert down", 4, 2816, 704),
        ("q", 4, 4096, 2816),
        ("o", 4, 2816, 4096),
        ("shared gate", 8, 2112, 2816),
        ("shared down", 8, 2816, 2112),
    ] {
        let weights = rows * cols / 8 * bits as usize;
        let panel_stride = tile::panel_bytes(cols);
        let bytes =
            if bits == 4 { rows / tile::TILE_ROWS * panel_stride } else { weights + rows * cols / 16 };
        let matrix = |index: usize| -> Result<(&[u8], QuantMatrix<'_>), ShapeError> {
            let data = &data.as_slice()[index % (all / bytes).max(1) * bytes..][..bytes];
            let (weights, sides) = data.split_at(weights);
            let (scales, biases) = sides.split_at(sides.len() / 2);
            let layout = match bits {
                4 => QuantData::Tiles { data, panel_stride },
                _ => QuantData::Rows { weights, scales, biases },
            };
            Ok((data, QuantMatrix::new(rows, cols, bits, layout)?))
        };
        let x: Vec<f32> = (0..FEW[FEW.len() - 1] * cols).map(|i| (i * 7 % 17) as f32 - 8.3).collect();
        let mut acts = Acts::new();
        kernels.quantize_acts(&pool, &x, FEW[FEW.len() - 1], cols, Planes::Two, &mut acts);
        let mut y = vec![0.0; FEW[FEW.len() - 1] * rows];
        let (mut stream, mut times) = (Vec::new(), [(); FEW.len()].map(|()| Vec::new()));
        let (mut index, mut sum) = (0, 0);
        for _ in 0..((1800 << 20) / bytes / FEW.len()).min(600) {
            let mut timed = |f: &mut dyn FnMut(&[u8], &QuantMatrix<'_>)| -> Result<f64, ShapeError> {
                index += 1;
                let (data, w) = matrix(index)?;
                let start = Instant::now();
                f(data, &w);
                Ok(start.elapsed().as_secs_f64())
            };
            stream.push(timed(&mut |data, _| sum ^= kernels.stream(&pool, data))?);
            for (times, m_rows) in times.iter_mut().zip(FEW) {
                let y = &mut y[..m_rows * rows];
                times.push(timed(&mut |_, w| kernels.matmul_q(&pool, w, &acts, m_rows, y))?);
            }
        }
        let rate = |times: &mut Vec<f64>| bytes as f64 / median(times) / 1e9;
        let ratios: Vec<f64> = times
            .iter()
            .map(|times| median(&mut times.iter().zip(&stream).map(|(t, s)| s / t).collect::<Vec<f64>>()))
            .collect();
        print!("{name:>18} {bits} bits: streaming {:5.1};", rate(&mut stream));
        for ((m_rows, times), ratio) in FEW.iter().zip(&mut times).zip(ratios) {
            print!("  M={m_rows} {:5.1} ({ratio:4.2})", rate(times));
            if *m_rows > 8 {
                print!(" {:5.1} GMAC/s", rate(times) / bytes as f64 * (m_rows * rows * cols) as f64);
            }
        }
        println!("  [{}]", sum & 1);
    }
    Ok(())
}

/// Sorts and takes the middle.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
