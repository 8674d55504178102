#![allow(unsafe_code)] // pointers into matrices whose shapes were checked

//! What AVX2 and AVX-512 share: where a block of `L` matrix rows lies (a vector lane is a row), and where results go.
//!
//! Both layouts become the same thing in registers: word k of a group for each of `L` rows. Tiles store it so; source
//! rows are transposed on the way, 4 words at a time. The arithmetic after that is one code for both, which is why
//! they give the same bits.

use super::Out;
pub(super) use super::output::store;
use crate::acts::{Acts, Line, Side as ActSide};
use crate::quant::{QuantData, QuantMatrix};
use crate::tile;
use std::arch::x86_64::*;
use std::ops::Range;

/// Groups whose scales and biases are gathered at once from source rows.
const SIDE_GROUPS: usize = 16;

/// Tiles between the one in use and the one asked for.
const AHEAD: usize = 4;
/// The same for the integer kernels.
const AHEAD_Q: usize = 3;
/// The same along a source row, in bytes.
const ROW_AHEAD: usize = 256;

/// Rows `first..first + L` of a matrix. Lanes beyond the last row repeat it; their results are dropped.
pub(super) enum Source<const L: usize> {
    /// Start of the panel, and which of its 16 rows is the first here.
    Tiles { panel: *const u8, lane: usize },
    /// Start of each row, and the bytes of a row of weights.
    Rows { weights: [*const u8; L], scales: [*const u8; L], biases: [*const u8; L], row_bytes: usize },
}

/// Scales and biases of some groups of source rows, as the tiles have them.
#[repr(align(64))]
pub(super) struct Side<const L: usize> {
    scales: [[u16; L]; SIDE_GROUPS],
    biases: [[u16; L]; SIDE_GROUPS],
}

impl<const L: usize> Side<L> {
    pub(super) fn new() -> Side<L> {
        Side { scales: [[0; L]; SIDE_GROUPS], biases: [[0; L]; SIDE_GROUPS] }
    }
}

impl<const L: usize> Source<L> {
    /// Block `block` of `L` rows; its first row is inside the matrix.
    pub(super) fn new(w: &QuantMatrix<'_>, block: usize) -> Source<L> {
        let first = block * L;
        match w.data() {
            QuantData::Tiles { data, panel_stride } => {
                let panel = &data[first / tile::TILE_ROWS * panel_stride..];
                Source::Tiles { panel: panel.as_ptr(), lane: first % tile::TILE_ROWS }
            }
            QuantData::Rows { weights, scales, biases } => {
                let row_bytes = w.cols() / 8 * w.bits() as usize;
                let side_bytes = w.groups() * 2;
                let row = |lane: usize| (first + lane).min(w.rows() - 1);
                Source::Rows {
                    weights: std::array::from_fn(|lane| weights[row(lane) * row_bytes..].as_ptr()),
                    scales: std::array::from_fn(|lane| scales[row(lane) * side_bytes..].as_ptr()),
                    biases: std::array::from_fn(|lane| biases[row(lane) * side_bytes..].as_ptr()),
                    row_bytes,
                }
            }
        }
    }

    /// Asks for what comes some way after group `g` of `bytes` bytes a row. The first half of a panel asks for the
    /// second one too, which is next.
    #[inline(always)]
    pub(super) fn ask(&self, g: usize, bytes: usize) {
        match self {
            Source::Tiles { panel, lane: 0 } => {
                for line in 0..tile::TILE_BYTES / 64 {
                    ask(*panel, (g + AHEAD_Q) * tile::TILE_BYTES + line * 64);
                }
            }
            Source::Rows { weights, row_bytes, .. } if (g * bytes).is_multiple_of(64) => {
                prefetch_rows(weights, *row_bytes, g * bytes);
            }
            _ => {}
        }
    }

    /// Addresses of the `L` scales and `L` biases (bf16) of group `g`.
    ///
    /// # Safety
    /// `g` is below `groups`, the matrix's. For source rows calls come in rising order of g from 0, with one `side`.
    #[inline(always)]
    pub(super) unsafe fn side(
        &self,
        g: usize,
        groups: usize,
        side: &mut Side<L>,
    ) -> (*const u16, *const u16) {
        match self {
            Source::Tiles { panel, lane } => {
                let offset = g * tile::TILE_BYTES + lane * 2;
                // SAFETY: the panel holds a tile for each group.
                let at = |part| unsafe { panel.add(offset + part) }.cast();
                (at(tile::TILE_SCALES), at(tile::TILE_BIASES))
            }
            Source::Rows { scales, biases, .. } => {
                let slot = g % SIDE_GROUPS;
                if slot == 0 {
                    let count = SIDE_GROUPS.min(groups - g);
                    if g == 0 {
                        // Those of the next block, which lie behind this one's.
                        let block = L * groups * 2;
                        ask_rows::<_MM_HINT_T0>(scales[0], block, block);
                        ask_rows::<_MM_HINT_T0>(biases[0], block, block);
                    }
                    // SAFETY: each row has a scale and a bias for each group; whoever multiplies with AVX2 or more has AVX2.
                    unsafe {
                        gather(scales, g, count, &mut side.scales);
                        gather(biases, g, count, &mut side.biases);
                    }
                }
                (side.scales[slot].as_ptr(), side.biases[slot].as_ptr())
            }
        }
    }
}

/// Groups `g..g + count` of `L` rows, group by group. A function by itself: as a part of a kernel's loop its 32 addresses
/// are carried along as 32 counters in memory, which took up to half of a product's time.
///
/// # Safety
/// The CPU has AVX2. Each row has a value for each of these groups.
#[target_feature(enable = "avx2")]
#[inline(never)]
unsafe fn gather<const L: usize>(
    rows: &[*const u8; L],
    g: usize,
    count: usize,
    to: &mut [[u16; L]; SIDE_GROUPS],
) {
    let whole = count / 8 * 8;
    for first in (0..whole).step_by(8) {
        for lane in (0..L).step_by(8) {
            // SAFETY: 8 rows have 8 values each from there on; L is a multiple of 8, and so are the places.
            unsafe {
                let from = std::array::from_fn(|i| rows[lane + i].add((g + first) * 2));
                transpose_8x8(&from, std::array::from_fn(|i| to[first + i][lane..].as_mut_ptr().cast()));
            }
        }
    }
    for (at, to) in to.iter_mut().enumerate().take(count).skip(whole) {
        for (lane, row) in to.iter_mut().zip(rows) {
            // SAFETY: by the caller.
            *lane = unsafe { row.add((g + at) * 2).cast::<u16>().read_unaligned() };
        }
    }
}

/// 8 rows of 8 values of 16 bits, turned.
///
/// # Safety
/// 16 bytes can be read from each of `rows`, and written to each of `to`.
#[inline(always)]
unsafe fn transpose_8x8(rows: &[*const u8; 8], to: [*mut __m128i; 8]) {
    // SAFETY: the addresses by the caller; SSE2 is part of x86-64.
    unsafe {
        let r = rows.map(|row| _mm_loadu_si128(row.cast()));
        let low = |i: usize, j: usize| _mm_unpacklo_epi16(r[i], r[j]);
        let high = |i: usize, j: usize| _mm_unpackhi_epi16(r[i], r[j]);
        // Pairs of rows, then fours, then all eight.
        let (a, b, c, d) = (low(0, 1), low(2, 3), low(4, 5), low(6, 7));
        let (e, f, g, h) = (high(0, 1), high(2, 3), high(4, 5), high(6, 7));
        let fours = [
            (_mm_unpacklo_epi32(a, b), _mm_unpacklo_epi32(c, d)),
            (_mm_unpackhi_epi32(a, b), _mm_unpackhi_epi32(c, d)),
            (_mm_unpacklo_epi32(e, f), _mm_unpacklo_epi32(g, h)),
            (_mm_unpackhi_epi32(e, f), _mm_unpackhi_epi32(g, h)),
        ];
        for (i, (first, second)) in fours.into_iter().enumerate() {
            _mm_storeu_si128(to[2 * i], _mm_unpacklo_epi64(first, second));
            _mm_storeu_si128(to[2 * i + 1], _mm_unpackhi_epi64(first, second));
        }
    }
}

/// A row of activations.
pub(super) struct ActRow {
    pub(super) lines: *const Line,
    pub(super) sides: *const ActSide,
}

impl ActRow {
    /// Rows `first..first + M`, which exist. A function of its own, without the features of a kernel: the closure of one
    /// with features cannot become part of `from_fn`, and was called for every row of every block.
    #[inline(always)]
    pub(super) fn several<const M: usize>(acts: &Acts, first: usize) -> [ActRow; M] {
        let (groups, planes) = (acts.groups(), acts.planes().count());
        let lines = acts.lines()[first * groups * planes..(first + M) * groups * planes].as_ptr();
        let sides = acts.sides()[first * groups..(first + M) * groups].as_ptr();
        std::array::from_fn(|m| ActRow {
            lines: lines.wrapping_add(m * groups * planes),
            sides: sides.wrapping_add(m * groups),
        })
    }
}

/// Byte shuffle of 16 columns from the order of a line to their own.
pub(super) const NATURAL: [u8; 16] = [0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15];

/// Asks for the cache line `distance` bytes after `at`.
#[inline(always)]
pub(super) fn ask(at: *const u8, distance: usize) {
    // SAFETY: a hint; it reads nothing and cannot fault.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(distance).cast()) };
}

/// Asks for `len` bytes from `offset` on.
#[inline(always)]
pub(super) fn ask_rows<const HINT: i32>(at: *const u8, offset: usize, len: usize) {
    for line in (0..len).step_by(64) {
        // SAFETY: a hint; it reads nothing and cannot fault.
        unsafe { _mm_prefetch::<HINT>(at.wrapping_add(offset + line).cast()) };
    }
}

/// Asks for a cache line of each row, some way after `offset`; two groups of 4 bits are one line. Beyond its end a row asks
/// for the beginning of the one that takes its place in the next block.
#[inline(always)]
pub(super) fn prefetch_rows<const L: usize>(rows: &[*const u8; L], row_bytes: usize, offset: usize) {
    let at = offset + ROW_AHEAD;
    let at = if at < row_bytes { at } else { at + (L - 1) * row_bytes };
    for row in rows {
        // SAFETY: a hint; it reads nothing and cannot fault.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(row.wrapping_add(at).cast()) };
    }
}

/// Asks for the `lines` cache lines that lie some tiles after `at`. The hardware's own prefetcher falls behind a
/// kernel that computes between its loads (measured: 15 % of a matrix times one row). Beyond the end of a panel or
/// of memory it asks for nothing useful and does no harm.
#[inline(always)]
pub(super) fn prefetch(at: *const u8, lines: usize) {
    for line in 0..lines {
        let address = at.wrapping_add(AHEAD * tile::TILE_BYTES + line * 64);
        // SAFETY: a hint; it reads nothing and cannot fault.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
}

/// Where an integer kernel's results go: from activation row `m` and matrix row `first` on, as far as in `rows`.
pub(super) struct Place<'a> {
    pub(super) out: Out,
    pub(super) m: usize,
    pub(super) first: usize,
    pub(super) rows: &'a Range<usize>,
    /// The block is not in the caches yet.
    pub(super) new: bool,
}

impl Place<'_> {
    /// [`store`] for the activation row `m` after ours.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub(super) unsafe fn store<const L: usize>(&self, m: usize, sums: &[f32; L]) {
        // SAFETY: by the caller.
        unsafe { store(self.out, self.m + m, self.first, self.rows, sums) };
    }
}

/// The scalar loops that vectorize by themselves, compiled once more for the features of a folder. The same source
/// keeps the same bits: Rust neither reorders nor fuses float operations.
macro_rules! recompiled {
    ($features:literal) => {
        use crate::acts::{Line, Planes, Side};
        use crate::arch::scalar::{glu, matmul, norm, quantize as integer, rope as turn, softmax as soft};
        use crate::quant::QuantMatrix;

        #[target_feature(enable = $features)]
        pub(super) fn quantize(x: &[f32], planes: Planes, lines: &mut [Line], sides: &mut [Side]) {
            integer::quantize(x, planes, lines, sides);
        }
        #[target_feature(enable = $features)]
        pub(super) fn dequantize_row(w: &QuantMatrix<'_>, row: usize, out: &mut [f32]) {
            matmul::dequantize_row(w, row, out);
        }
        #[target_feature(enable = $features)]
        pub(super) fn rms_norm(x: &[f32], weight: Option<&[f32]>, eps: f32, out: &mut [f32]) {
            norm::rms_norm(x, weight, eps, out);
        }
        #[target_feature(enable = $features)]
        pub(super) fn rms_norm_in_place(x: &mut [f32], weight: Option<&[f32]>, eps: f32) {
            norm::rms_norm_in_place(x, weight, eps);
        }
        #[target_feature(enable = $features)]
        pub(super) fn rope(head: &mut [f32], cos: &[f32], sin: &[f32]) {
            turn::rope(head, cos, sin);
        }
        #[target_feature(enable = $features)]
        pub(super) fn gelu_mul(gate: &mut [f32], up: &[f32]) {
            glu::gelu_mul(gate, up);
        }
        #[target_feature(enable = $features)]
        pub(super) fn add(x: &mut [f32], y: &[f32]) {
            norm::add(x, y);
        }
        #[target_feature(enable = $features)]
        pub(super) fn add_scaled(x: &mut [f32], a: f32, y: &[f32]) {
            norm::add_scaled(x, a, y);
        }
        #[target_feature(enable = $features)]
        pub(super) fn scale(x: &mut [f32], a: f32) {
            norm::scale(x, a);
        }
        #[target_feature(enable = $features)]
        pub(super) fn soft_cap(x: &mut [f32], cap: f32) {
            soft::soft_cap(x, cap);
        }
        #[target_feature(enable = $features)]
        pub(super) fn exps(x: &mut [f32]) -> (f32, f32) {
            soft::exps(x)
        }
        #[target_feature(enable = $features)]
        pub(super) fn join(side: &mut (f32, f32), o: &mut [f32], with: (f32, f32), part: &[f32]) {
            soft::join(side, o, with, part);
        }
    };
}
pub(super) use recompiled;

/// The table of a folder with modules `plain`, `matmul`, `matmul_q`, `attend`, `attend_many` and `stream`.
macro_rules! table {
    () => {
        crate::arch::Table {
            matmul: matmul::matmul,
            matmul_q: matmul_q::matmul_q,
            quantize: plain::quantize,
            xor: crate::arch::avx2::stream::xor,
            dequantize_row: plain::dequantize_row,
            rms_norm: plain::rms_norm,
            rms_norm_in_place: plain::rms_norm_in_place,
            rope: plain::rope,
            gelu_mul: plain::gelu_mul,
            add: plain::add,
            add_scaled: plain::add_scaled,
            scale: plain::scale,
            soft_cap: plain::soft_cap,
            scores_many: attend_many::scores_many,
            weighted_many: attend_many::weighted_many,
            exps: plain::exps,
            join: plain::join,
            to_f16: attend::to_f16,
        }
    };
}
pub(super) use table;
