//! Affine matrices made directly in their stored form: random codes, one bf16 scale and bias for each group of
//! 64 columns. A uniform n-bit code has mean `(2^n - 1) / 2` and variance `(4^n - 1) / 12`, so a bias of minus mean
//! times scale gives weights around zero, and anything that is constant within groups can be added through the
//! bias for nothing. That is how the shared direction gets into the model.

use super::rng::Stream;
use half::bf16;

/// Columns of a group.
pub(crate) const GROUP: usize = 64;

/// What is added to row `r` in group `g`, beyond random codes: an amount of the row times [`Matrix::direction`]`[g]`.
#[derive(Clone, Debug)]
pub(crate) enum Shift {
    /// Nothing.
    None,
    /// The same for every row.
    Same(f32),
    /// One amount for each row, repeated every `len` rows.
    Rows(Vec<f32>),
}

/// Recipe of one affine matrix.
#[derive(Clone, Debug)]
pub(crate) struct Matrix {
    /// Rows.
    pub(crate) rows: usize,
    /// Columns, a multiple of 64.
    pub(crate) cols: usize,
    /// 4 or 8.
    pub(crate) bits: u32,
    /// Standard deviation of the random part.
    pub(crate) sigma: f32,
    /// Bias from the codes actually drawn instead of their expectation: the random part of a group then sums to zero,
    /// so that the matrix does not answer to the shared direction at all.
    pub(crate) centred: bool,
    /// The part along the shared direction.
    pub(crate) shift: Shift,
    /// Codes.
    codes: Stream,
    /// Choice of scales.
    scales: Stream,
}

/// Where the rows go: source order.
pub(crate) struct Rows<'a> {
    /// Packed codes, `cols * bits / 8` bytes a row.
    pub(crate) weights: &'a mut [u8],
    /// bf16, `cols / 64` a row.
    pub(crate) scales: &'a mut [u8],
    /// bf16, `cols / 64` a row.
    pub(crate) biases: &'a mut [u8],
}

impl Matrix {
    /// A matrix of random numbers with standard deviation `sigma` whose bytes are a function of `seed` and `name`.
    pub(crate) fn new(seed: u64, name: &str, rows: usize, cols: usize, bits: u32, sigma: f32) -> Self {
        let (codes, scales) = (Stream::new(seed, name), Stream::new(seed, &format!("{name}/scales")));
        Self { rows, cols, bits, sigma, centred: false, shift: Shift::None, codes, scales }
    }

    /// With sums of zero in every group.
    pub(crate) fn centred(mut self) -> Self {
        self.centred = true;
        self
    }

    /// With a part along the shared direction.
    pub(crate) fn shifted(mut self, shift: Shift) -> Self {
        self.shift = shift;
        self
    }

    /// Bytes of the packed codes of a row.
    pub(crate) fn row_bytes(&self) -> usize {
        self.cols * self.bits as usize / 8
    }

    /// Groups of a row.
    pub(crate) fn groups(&self) -> usize {
        self.cols / GROUP
    }

    /// Writes rows `first ..` in source order; the number of rows follows from `out`. `direction` is the sign of each
    /// group in the shared direction (not looked at without a shift).
    pub(crate) fn fill(&self, first: usize, direction: &[f32], out: &mut Rows<'_>) {
        let (row_bytes, groups) = (self.row_bytes(), self.groups());
        let steps = (1_u32 << self.bits) as f32;
        let mean = (steps - 1.0) / 2.0;
        let base = self.sigma / ((steps * steps - 1.0) / 12.0).sqrt();
        let choices: [f32; 16] = std::array::from_fn(|i| {
            // eight sizes around one, either sign (about half of the scales of real checkpoints are negative)
            let size = bf16::from_f32(base * (0.89 + (i % 8) as f32 / 32.0)).to_f32();
            if i < 8 { size } else { -size }
        });
        let rows = out.weights.len() / row_bytes;
        self.codes.fill((first * row_bytes / 8) as u64, out.weights);
        for row in 0..rows {
            let shift = match &self.shift {
                Shift::None => 0.0,
                Shift::Same(amount) => *amount,
                Shift::Rows(amounts) => amounts[(first + row) % amounts.len()],
            };
            let codes = &out.weights[row * row_bytes..(row + 1) * row_bytes];
            for (g, group) in codes.chunks_exact(row_bytes / groups).enumerate() {
                let at = (first + row) * groups + g;
                let scale = choices[(self.scales.word(at as u64) >> 60) as usize];
                let middle =
                    if self.centred { code_sum(group, self.bits) as f32 / GROUP as f32 } else { mean };
                let added = if shift == 0.0 { 0.0 } else { shift * direction[g] };
                let bias = bf16::from_f32(added - middle * scale);
                let to = (row * groups + g) * 2;
                out.scales[to..to + 2].copy_from_slice(&bf16::from_f32(scale).to_le_bytes());
                out.biases[to..to + 2].copy_from_slice(&bias.to_le_bytes());
            }
        }
    }
}

/// Sum of the codes of one group: 64 nibbles in 32 bytes, or 64 bytes.
fn code_sum(group: &[u8], bits: u32) -> u32 {
    if bits == 8 {
        return group.iter().map(|&b| u32::from(b)).sum();
    }
    group.iter().map(|&b| u32::from(b & 15) + u32::from(b >> 4)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Source bytes of rows `first .. first + rows`.
    fn bytes(matrix: &Matrix, first: usize, rows: usize, direction: &[f32]) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
        let mut weights = vec![0; rows * matrix.row_bytes()];
        let (mut scales, mut biases) =
            (vec![0; rows * matrix.groups() * 2], vec![0; rows * matrix.groups() * 2]);
        matrix.fill(
            first,
            direction,
            &mut Rows { weights: &mut weights, scales: &mut scales, biases: &mut biases },
        );
        (weights, scales, biases)
    }

    fn values(matrix: &Matrix, direction: &[f32]) -> Vec<f32> {
        let (weights, scales, biases) = bytes(matrix, 0, matrix.rows, direction);
        let number = |bytes: &[u8], i: usize| bf16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]]).to_f32();
        (0..matrix.rows * matrix.cols)
            .map(|i| {
                let code = match matrix.bits {
                    8 => weights[i],
                    _ => (weights[i / 2] >> (4 * (i % 2))) & 15,
                };
                f32::from(code) * number(&scales, i / GROUP) + number(&biases, i / GROUP)
            })
            .collect()
    }

    #[test]
    fn the_spread_is_as_asked_and_the_mean_is_zero() {
        for bits in [4, 8] {
            let matrix = Matrix::new(3, "m", 64, 512, bits, 0.25);
            let w = values(&matrix, &[]);
            let mean = w.iter().sum::<f32>() / w.len() as f32;
            let sigma = (w.iter().map(|v| v * v).sum::<f32>() / w.len() as f32).sqrt();
            assert!(mean.abs() < 0.005 && (sigma / 0.25 - 1.0).abs() < 0.03, "bits {bits}: {mean} {sigma}");
        }
    }

    #[test]
    fn parts_are_the_bytes_of_the_whole() {
        let matrix =
            Matrix::new(3, "m", 32, 128, 4, 1.0).centred().shifted(Shift::Rows(vec![0.5, -0.5, 0.25]));
        let direction = [1.0, -1.0];
        let whole = bytes(&matrix, 0, 32, &direction);
        let part = bytes(&matrix, 16, 16, &direction);
        assert_eq!(part.0, whole.0[16 * 64..]);
        assert_eq!(part.1, whole.1[16 * 4..]);
        assert_eq!(part.2, whole.2[16 * 4..]);
    }

    #[test]
    fn a_shift_shows_along_the_direction_only() {
        let direction = [1.0, -1.0, -1.0, 1.0];
        let matrix = Matrix::new(9, "m", 2, 256, 8, 1.0).centred().shifted(Shift::Rows(vec![0.5, -2.0]));
        for (row, amount) in values(&matrix, &direction).chunks_exact(256).zip([0.5, -2.0]) {
            let along: f32 =
                row.iter().enumerate().map(|(i, w)| w * direction[i / GROUP]).sum::<f32>() / 256.0;
            assert!((along - amount).abs() < 0.02, "{along} for {amount}");
        }
    }
}
