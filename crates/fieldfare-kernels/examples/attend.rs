//! Time of attention in the model's two kinds of layer, prompt and generated token.
//!
//! `cargo run --release -p fieldfare-kernels --example attend [-- ISA]`. Keys and values are f16 and lie in pages of
//! 256 positions; the model has more of them than a cache holds, so each turn uses the next of several layers.
//! Shown are microseconds a row, the fastest of some turns.

use fieldfare_kernels::{AttendScratch, Attention, Isa, Kernels, KvSlice, KvSpan, Pool};
use std::time::Instant;

const HEADS: usize = 16;
const PAGE: usize = 256;
const LAYERS: usize = 8;

struct Layer {
    kv_heads: usize,
    width: usize,
    window: Option<usize>,
    /// Keys and values, `[KV head][position][width]`.
    data: [Vec<u16>; 2],
}

impl Layer {
    fn new(kv_heads: usize, width: usize, window: Option<usize>, positions: usize) -> Layer {
        let data = [17usize, 29].map(|factor| {
            // About -0.5 to 0.5 in f16.
            (0..kv_heads * positions * width)
                .map(|i| (0x3000 + (i * factor % 0x7FF) as u16) | ((i / 3 % 2) as u16) << 15)
                .collect()
        });
        Layer { kv_heads, width, window, data }
    }

    fn slice(&self, which: usize, head: usize, positions: std::ops::Range<usize>) -> KvSlice<'_> {
        let all = self.data[which].len() / self.kv_heads;
        let (start, end) =
            (head * all + positions.start * self.width, head * all + positions.end * self.width);
        KvSlice::F16(&self.data[which][start..end])
    }

    fn pages(&self, first: usize, rows: usize) -> Vec<KvSpan<'_>> {
        let oldest = self.window.map_or(0, |w| (first + 1).saturating_sub(w));
        let mut spans = Vec::new();
        for head in 0..self.kv_heads {
            let mut at = oldest;
            while at < first + rows {
                let end = (at / PAGE * PAGE + PAGE).min(first + rows);
                let [keys, values] = [0, 1].map(|i| self.slice(i, head, at..end));
                spans.push(KvSpan { first: at, keys, values });
                at = end;
            }
        }
        spans
    }

    fn attend(
        &self,
        k: &Kernels,
        pool: &Pool,
        first: usize,
        q: &[f32],
        s: &mut AttendScratch,
        out: &mut [f32],
    ) {
        let rows = q.len() / HEADS / self.width;
        let spans = self.pages(first, rows);
        let a = Attention {
            heads: HEADS,
            kv_heads: self.kv_heads,
            width: self.width,
            first,
            rows,
            window: self.window,
            spans: &spans,
        };
        k.attend(pool, &a, q, s, out);
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let isa: Option<Isa> = std::env::args().nth(1).map(|a| a.parse()).transpose()?;
    let kernels = match isa {
        Some(isa) => Kernels::for_isa(isa).ok_or("not on this CPU")?,
        None => Kernels::detect(),
    };
    for (name, kv_heads, width, window) in [("sliding", 8, 256, Some(1024)), ("full", 2, 512, None)] {
        for context in [1024usize, 4096] {
            let layers: Vec<Layer> =
                (0..LAYERS).map(|_| Layer::new(kv_heads, width, window, context)).collect();
            for rows in [1usize, 8, 64] {
                for threads in [1, 2] {
                    let pool = Pool::new(threads);
                    let first = context - rows;
                    let q: Vec<f32> =
                        (0..rows * HEADS * width).map(|i| (i * 7 % 31) as f32 / 16.0 - 1.0).collect();
                    let mut out = vec![0.0; q.len()];
                    let mut scratch = AttendScratch::new();
                    let mut best = f64::MAX;
                    for turn in 0..(96 / rows).clamp(6, 48) {
                        let layer = &layers[turn % LAYERS];
                        let start = Instant::now();
                        layer.attend(kernels, &pool, first, &q, &mut scratch, &mut out);
                        best = best.min(start.elapsed().as_secs_f64());
                    }
                    let seen = window.map_or(first, |w| w.min(first)) as f64;
                    let work = seen * (HEADS * width * 2 * rows) as f64;
                    println!(
                        "{name:>8} at {context:5}, {rows:3} rows, {threads} threads: {:8.1} us a row, {:5.1} GMAC/s",
                        best * 1e6 / rows as f64,
                        work / best / 1e9
                    );
                }
            }
        }
    }
    Ok(())
}
