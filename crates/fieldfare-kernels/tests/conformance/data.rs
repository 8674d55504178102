//! Deterministic random operands.

#![allow(clippy::unwrap_used)] // helpers of tests

use fieldfare_kernels::{Isa, Kernels, QuantData, QuantMatrix, isas, tile};
use half::bf16;

/// SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// In -1..1.
    pub(crate) fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    pub(crate) fn vector(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| self.unit()).collect()
    }

    /// Like [`Random::vector`], a quarter of it from `edges`.
    pub(crate) fn vector_with(&mut self, len: usize, edges: &[f32]) -> Vec<f32> {
        let pick =
            |r: &mut Random| if r.below(4) == 0 { edges[r.below(edges.len())] } else { r.unit() * 8.0 };
        (0..len).map(|_| pick(self)).collect()
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// Values at the edges of f32 that stay finite in products of a few.
pub(crate) const EDGES: [f32; 12] =
    [0.0, -0.0, 1.0, -1.0, 1e-40, -1e-40, 1e-45, f32::MIN_POSITIVE, 1e9, -1e9, 65504.0, 65520.0];
/// The rest of f32.
pub(crate) const WILD: [f32; 7] =
    [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX, f32::MIN, f32::EPSILON, -f32::MIN_POSITIVE];

/// Same bits, or both NaN.
pub(crate) fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

#[track_caller]
pub(crate) fn assert_same(got: &[f32], expected: &[f32], what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}");
    for (i, (&g, &e)) in got.iter().zip(expected).enumerate() {
        assert!(same(g, e), "{what}: [{i}] is {g:e}, expected {e:e}");
    }
}

pub(crate) fn scalar() -> &'static Kernels {
    Kernels::for_isa(Isa::Scalar).unwrap()
}

/// Every instruction set here but the scalar one, which is compared with f64.
pub(crate) fn vector_kernels() -> Vec<&'static Kernels> {
    isas().into_iter().filter(|&isa| isa != Isa::Scalar).map(|isa| Kernels::for_isa(isa).unwrap()).collect()
}

pub(crate) fn all_kernels() -> Vec<&'static Kernels> {
    isas().into_iter().map(|isa| Kernels::for_isa(isa).unwrap()).collect()
}

/// The bytes of a matrix in source order, starting `offset` bytes into their vectors.
#[derive(Debug, Clone)]
pub(crate) struct Matrix {
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) bits: u32,
    offset: usize,
    weights: Vec<u8>,
    scales: Vec<u8>,
    biases: Vec<u8>,
}

impl Matrix {
    /// Random weights; scales of both signs around 0.01, biases of a size that centres the weights.
    pub(crate) fn random(r: &mut Random, rows: usize, cols: usize, bits: u32) -> Matrix {
        let sides: Vec<(f32, f32)> = (0..rows * cols / 64)
            .map(|_| {
                let scale = (0.01 + 0.005 * r.unit()) * if r.below(2) == 0 { -1.0 } else { 1.0 };
                (scale, -scale * (1u32 << (bits - 1)) as f32 + 0.01 * r.unit())
            })
            .collect();
        Matrix::with_sides(r, rows, cols, bits, &sides)
    }

    /// Random weights with these (scale, bias) pairs, row-major.
    pub(crate) fn with_sides(
        r: &mut Random,
        rows: usize,
        cols: usize,
        bits: u32,
        sides: &[(f32, f32)],
    ) -> Matrix {
        assert_eq!(sides.len(), rows * cols / 64);
        let encode = |v: f32| bf16::from_f32(v).to_le_bytes();
        Matrix {
            rows,
            cols,
            bits,
            offset: 0,
            weights: r.bytes(rows * cols * bits as usize / 8),
            scales: sides.iter().flat_map(|s| encode(s.0)).collect(),
            biases: sides.iter().flat_map(|s| encode(s.1)).collect(),
        }
    }

    /// The same scales and biases, every byte of the weights this one.
    pub(crate) fn filled(mut self, byte: u8) -> Matrix {
        self.weights.fill(byte);
        self
    }

    /// The same matrix with every part starting `offset` bytes further into its allocation.
    pub(crate) fn shifted(&self, offset: usize) -> Matrix {
        let shift = |bytes: &[u8]| [&vec![0xA5; offset], &bytes[self.offset..]].concat();
        let (weights, scales, biases) = (shift(&self.weights), shift(&self.scales), shift(&self.biases));
        Matrix { offset, weights, scales, biases, ..*self }
    }

    pub(crate) fn view(&self) -> QuantMatrix<'_> {
        let data = QuantData::Rows {
            weights: &self.weights[self.offset..],
            scales: &self.scales[self.offset..],
            biases: &self.biases[self.offset..],
        };
        QuantMatrix::new(self.rows, self.cols, self.bits, data).unwrap()
    }

    /// The tile form: bytes and panel stride, with `gap` bytes of something else after each panel but the last.
    pub(crate) fn tiles(&self, gap: usize) -> (Vec<u8>, usize) {
        let panel = tile::panel_bytes(self.cols);
        let panels = self.rows / 16;
        let mut bytes = vec![0xFF; (panels - 1) * (panel + gap) + panel];
        let (w, s) = (16 * self.cols / 2, 16 * self.cols / 64 * 2);
        for p in 0..panels {
            let part =
                |bytes: &'_ [u8], n: usize| bytes[self.offset + p * n..self.offset + (p + 1) * n].to_vec();
            tile::pack_panel(
                self.cols,
                &part(&self.weights, w),
                &part(&self.scales, s),
                &part(&self.biases, s),
                &mut bytes[p * (panel + gap)..][..panel],
            );
        }
        (bytes, panel + gap)
    }

    /// Element (row, c) in f64, straight from the definition.
    pub(crate) fn weight(&self, row: usize, c: usize) -> f64 {
        let at = row * self.cols + c;
        let weights = &self.weights[self.offset..];
        let q = if self.bits == 8 { weights[at] } else { weights[at / 2] >> (4 * (at % 2)) & 15 };
        let side = |bytes: &[u8]| {
            let i = self.offset + at / 64 * 2;
            f64::from(bf16::from_le_bytes([bytes[i], bytes[i + 1]]).to_f32())
        };
        f64::from(q) * side(&self.scales) + side(&self.biases)
    }
}
