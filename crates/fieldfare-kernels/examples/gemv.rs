//! Rates of the matrix products on 704 x 2816 matrices of 4 bits, far more of them than any cache holds, against the
//! rate at which the same memory can be read.
//!
//! `cargo run --release -p fieldfare-kernels --example gemv [-- MATRICES [ISA]]`; 1,000 matrices are 1.1 GB. For huge
//! pages where the system gives them on request only: `GLIBC_TUNABLES=glibc.malloc.hugetlb=1`.
//!
//! Everything with one row of activations is measured in turns, a batch of matrices each, so that all see the same
//! moods of the machine; shown are GB/s of weights, scales and biases, the median and the fastest tenth, and the
//! median of each turn's ratio to that turn's streaming read. Several rows: GMAC/s, the median and the fastest tenth.

use fieldfare_kernels::{
    Acts, AlignedBuf, Isa, Kernels, Planes, Pool, QuantData, QuantMatrix, ShapeError, isas, tile,
};
use std::time::Instant;

const ROWS: usize = 704;
const COLS: usize = 2816;
const M_MAX: usize = 128;
/// Matrices that a turn of one kernel takes: some 0.1 ms with one row, short enough to be left alone mostly.
const BATCH: usize = 2;

#[derive(Clone, Copy)]
enum Kind {
    Stream,
    Float,
    Integer(Planes),
}

struct Bench<'a> {
    kernels: &'static Kernels,
    pool: Pool,
    data: &'a [u8],
    x: Vec<f32>,
    y: Vec<f32>,
    acts: [Acts; 2],
    sum: u64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let matrices: usize = args.next().map_or(Ok(500), |a| a.parse())?;
    let only: Option<Isa> = args.next().map(|a| a.parse()).transpose()?;
    let mut data = AlignedBuf::zeroed(matrices.max(BATCH) * bytes(), 2 << 20)?;
    fill(data.as_mut_slice());
    for threads in [1, 2] {
        for isa in isas() {
            if only.map_or(isa == Isa::Scalar, |only| only != isa) {
                continue; // the scalar oracle only when asked for by name
            }
            let Some(kernels) = Kernels::for_isa(isa) else { continue };
            let x: Vec<f32> = (0..M_MAX * COLS).map(|i| (i * 7 % 17) as f32 - 8.3).collect();
            let acts = [Acts::new(), Acts::new()];
            let pool = Pool::new(threads);
            let data = data.as_slice();
            let mut bench = Bench { kernels, pool, data, x, y: vec![0.0; M_MAX * ROWS], acts, sum: 0 };
            println!("-- {isa}, {threads} thread(s), {matrices} matrices of {ROWS} x {COLS}");
            bench.quantize();
            bench.single()?;
            bench.several()?;
            println!("   (sums {} {})", bench.y.iter().sum::<f32>(), bench.sum);
        }
    }
    Ok(())
}

impl Bench<'_> {
    fn quantize(&mut self) {
        for (planes, acts) in [Planes::One, Planes::Two].into_iter().zip(&mut self.acts) {
            let mut times: Vec<f64> = (0..20)
                .map(|_| timed(|| self.kernels.quantize_acts(&self.pool, &self.x, M_MAX, COLS, planes, acts)))
                .collect();
            let rate = self.x.len() as f64 / median(&mut times) / 1e9;
            println!("   quantize {planes:?}: {rate:5.2} G activations/s");
        }
    }

    /// One row of activations, in turns.
    fn single(&mut self) -> Result<(), ShapeError> {
        let kinds = [
            ("streaming read", "", Kind::Stream),
            ("f32", "tiles", Kind::Float),
            ("int8 one plane", "tiles", Kind::Integer(Planes::One)),
            ("int8 two planes", "tiles", Kind::Integer(Planes::Two)),
            ("int8 two planes", "pairs", Kind::Integer(Planes::Two)),
            ("int8 two planes", "double", Kind::Integer(Planes::Two)),
            ("int8 one plane", "rows", Kind::Integer(Planes::One)),
            ("int8 two planes", "rows", Kind::Integer(Planes::Two)),
        ];
        let turns = (self.data.len() / bytes() / BATCH).max(12);
        let mut times = vec![Vec::with_capacity(turns); kinds.len()];
        for turn in 0..turns {
            for (i, &(_, layout, kind)) in kinds.iter().enumerate() {
                // Far from the last turn's matrices, and a different kind for each place over time.
                let batch = turn * (kinds.len() + 1) + i;
                times[i].push(timed_result(|| self.batch(batch, layout, kind, 1))?);
            }
        }
        let stream = times[0].clone();
        for ((name, layout, _), times) in kinds.iter().zip(&mut times) {
            let mut ratios: Vec<f64> = stream.iter().zip(times.iter()).map(|(s, t)| s / t).collect();
            let gb = |time: f64| (BATCH * bytes()) as f64 / time / 1e9;
            let (middle, ratio) = (gb(median(times)), median(&mut ratios));
            let fast = gb(times[turns / 10]);
            println!(
                "   {name:>15} {layout:>5}: {middle:6.2} (fast {fast:6.2}) GB/s, {ratio:5.3} of streaming"
            );
        }
        Ok(())
    }

    /// Several rows of activations.
    fn several(&mut self) -> Result<(), ShapeError> {
        for (name, kind) in [
            ("f32", Kind::Float),
            ("one plane", Kind::Integer(Planes::One)),
            ("two planes", Kind::Integer(Planes::Two)),
        ] {
            for layout in ["tiles", "rows"] {
                let mut line = format!("   {name:>10} {layout:>5}:");
                for m_rows in [2, 8, 32, 128] {
                    let turns = (400 / m_rows).clamp(8, 40);
                    let mut times = Vec::with_capacity(turns);
                    for turn in 0..turns {
                        times.push(timed_result(|| self.batch(turn, layout, kind, m_rows))?);
                    }
                    let work = (BATCH * ROWS * COLS * m_rows) as f64 / 1e9;
                    let middle = work / median(&mut times);
                    let fast = work / times[turns / 10];
                    line += &format!("  M={m_rows} {middle:6.1} ({fast:6.1})");
                }
                println!("{line} GMAC/s");
            }
        }
        Ok(())
    }

    /// One kernel over batch `index` of the matrices (they wrap around).
    fn batch(&mut self, index: usize, layout: &str, kind: Kind, m_rows: usize) -> Result<(), ShapeError> {
        let count = self.data.len() / bytes() / BATCH;
        let data = &self.data[index % count * BATCH * bytes()..][..BATCH * bytes()];
        if let ("double", Kind::Integer(planes)) = (layout, kind) {
            // The same bytes as one matrix.
            let data = QuantData::Tiles { data, panel_stride: tile::panel_bytes(COLS) };
            let w = QuantMatrix::new(BATCH * ROWS, COLS, 4, data)?;
            let acts = &self.acts[planes.count() - 1];
            self.kernels.matmul_q(&self.pool, &w, acts, m_rows, &mut self.y[..m_rows * BATCH * ROWS]);
            return Ok(());
        }
        for (i, matrix) in data.chunks_exact(bytes()).enumerate() {
            let y = &mut self.y[..m_rows * ROWS];
            let w = match layout {
                // As the gate and up of an expert lie: their panels take turns.
                "pairs" => {
                    let panel = tile::panel_bytes(COLS);
                    let data = QuantData::Tiles { data: &data[i * panel..], panel_stride: BATCH * panel };
                    QuantMatrix::new(ROWS, COLS, 4, data)?
                }
                layout => view(matrix, layout == "tiles")?,
            };
            match kind {
                Kind::Stream => self.sum ^= self.kernels.stream(&self.pool, matrix),
                Kind::Float => {
                    self.kernels.matmul(&self.pool, &w, &self.x[..m_rows * COLS], m_rows, y);
                }
                Kind::Integer(planes) => {
                    let acts = &self.acts[planes.count() - 1];
                    self.kernels.matmul_q(&self.pool, &w, acts, m_rows, y);
                }
            }
        }
        Ok(())
    }
}

fn timed(f: impl FnOnce()) -> f64 {
    let start = Instant::now();
    f();
    start.elapsed().as_secs_f64()
}

fn timed_result<E>(f: impl FnOnce() -> Result<(), E>) -> Result<f64, E> {
    let start = Instant::now();
    f()?;
    Ok(start.elapsed().as_secs_f64())
}

/// Sorts and takes the middle.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn bytes() -> usize {
    ROWS / tile::TILE_ROWS * tile::panel_bytes(COLS)
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

fn view(matrix: &[u8], tiles: bool) -> Result<QuantMatrix<'_>, ShapeError> {
    let (weights, sides) = matrix.split_at(ROWS * COLS / 2);
    let (scales, biases) = sides.split_at(sides.len() / 2);
    let data = if tiles {
        QuantData::Tiles { data: matrix, panel_stride: tile::panel_bytes(COLS) }
    } else {
        QuantData::Rows { weights, scales, biases }
    };
    QuantMatrix::new(ROWS, COLS, 4, data)
}
