//! Activations as integers: what the integer matrix products ([`crate::Kernels::matmul_q`]) multiply with.
//!
//! A row is cut into groups of 64 columns, as the weights are. A group has one f32 step and one integer `X` for each
//! column, so that `x` is about `X * step`, in one of two widths ([`Planes`]). Two planes split X into bytes,
//! `X = 256 * high + low`, so a product needs integer dot products of bytes only, and joins them exactly.
//! [`crate::Kernels::quantize_acts`] says how X comes from x.

use crate::quant::GROUP;

/// How many bytes an activation becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Planes {
    /// X in -127..=127: a product is off by about 6e-3 of itself (root mean square, ordinary activations).
    One,
    /// X in -32512..=32512: about 2e-5.
    Two,
}

impl Planes {
    /// 1 or 2.
    pub fn count(self) -> usize {
        match self {
            Planes::One => 1,
            Planes::Two => 2,
        }
    }

    /// Largest X; a two-plane X of this size still has a high byte of at most 127.
    pub(crate) fn steps(self) -> f32 {
        match self {
            Planes::One => 127.0,
            Planes::Two => 127.0 * 256.0,
        }
    }
}

/// One plane of one group: a cache line. Column c is at [`place`]`(c)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(64))]
pub(crate) struct Line(pub(crate) [i8; GROUP]);

/// What a group has besides its planes.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub(crate) struct Side {
    /// x is about X * step.
    pub(crate) step: f32,
    /// Sum of the X, exact: the biases multiply with what was quantized, not with x (a third of the error).
    pub(crate) sum: f32,
}

/// Where column `c` of a group lies in its line: of each 8 columns first the even ones, then the odd ones, as the low
/// and the high nibbles of a word of 4-bit weights.
pub(crate) const fn place(c: usize) -> usize {
    c / 8 * 8 + c % 2 * 4 + c % 8 / 2
}

/// Rows of quantized activations. A buffer to keep: filling it again allocates only if it has to grow.
#[derive(Debug, Clone)]
pub struct Acts {
    rows: usize,
    cols: usize,
    planes: Planes,
    /// Row-major; within a row group by group, the high plane before the low one.
    lines: Vec<Line>,
    /// Row-major, one for each group.
    sides: Vec<Side>,
}

impl Acts {
    /// No rows, no memory yet.
    pub fn new() -> Acts {
        Acts { rows: 0, cols: 0, planes: Planes::One, lines: Vec::new(), sides: Vec::new() }
    }

    /// No rows yet, but memory for `rows` of `cols` columns in `planes`, or for anything that needs no more.
    ///
    /// # Panics
    /// If `cols` is not whole groups of 64, or the sizes are beyond the address space.
    pub fn with_capacity(rows: usize, cols: usize, planes: Planes) -> Acts {
        assert!(cols.is_multiple_of(GROUP), "columns {cols} are not whole groups");
        let groups = rows.checked_mul(cols / GROUP).expect("activations fit the address space");
        let lines = groups.checked_mul(planes.count()).expect("activations fit the address space");
        // Reserved, not touched: what is never used takes no memory.
        Acts { rows: 0, cols, planes, lines: Vec::with_capacity(lines), sides: Vec::with_capacity(groups) }
    }

    /// Rows that are filled.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns of a row, a multiple of 64.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Bytes an activation.
    pub fn planes(&self) -> Planes {
        self.planes
    }

    /// Bytes of memory held.
    pub fn bytes(&self) -> usize {
        self.lines.capacity() * size_of::<Line>() + self.sides.capacity() * size_of::<Side>()
    }

    /// Becomes rows `rows` of `from`, in that order (a row may come twice): the inputs of one expert out of those of
    /// a chunk, without quantizing again.
    ///
    /// # Panics
    /// If `from` has no such row.
    pub fn gather(&mut self, from: &Acts, rows: &[usize]) {
        self.shape(rows.len(), from.cols, from.planes);
        let groups = from.groups();
        let width = groups * from.planes.count();
        for (to, &row) in rows.iter().enumerate() {
            assert!(row < from.rows, "row {row} of {}", from.rows);
            self.lines[to * width..][..width].copy_from_slice(&from.lines[row * width..][..width]);
            self.sides[to * groups..][..groups].copy_from_slice(&from.sides[row * groups..][..groups]);
        }
    }

    /// Forgets the rows and takes a shape with none, which [`Acts::append`] then fills.
    ///
    /// # Panics
    /// If `cols` are not whole groups.
    pub fn clear(&mut self, cols: usize, planes: Planes) {
        self.shape(0, cols, planes);
    }

    /// Takes the rows of `from` behind its own: a prompt's rows are quantized block by block.
    ///
    /// # Panics
    /// If columns or planes differ.
    pub fn append(&mut self, from: &Acts) {
        assert_eq!((self.cols, self.planes), (from.cols, from.planes), "the shape of what is appended");
        let (rows, groups, planes) = (self.rows, self.groups(), self.planes.count());
        let (lines, sides) = self.shape(rows + from.rows, from.cols, from.planes);
        lines[rows * groups * planes..].copy_from_slice(&from.lines[..from.rows * groups * planes]);
        sides[rows * groups..].copy_from_slice(&from.sides[..from.rows * groups]);
    }

    /// Row `row` as f32, `X * step`: what a product really multiplies with. NaN where a group had no finite values.
    ///
    /// # Panics
    /// If there is no such row or `out` is not [`Acts::cols`] long.
    pub fn dequantize_row(&self, row: usize, out: &mut [f32]) {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        assert_eq!(out.len(), self.cols, "out against columns");
        let (planes, groups) = (self.planes.count(), self.groups());
        for (g, out) in out.chunks_exact_mut(GROUP).enumerate() {
            let group = row * groups + g;
            let (lines, step) = (&self.lines[group * planes..][..planes], self.sides[group].step);
            for (c, out) in out.iter_mut().enumerate() {
                let x = lines.iter().fold(0, |x, line| x * 256 + i32::from(line.0[place(c)]));
                *out = x as f32 * step;
            }
        }
    }

    pub(crate) fn groups(&self) -> usize {
        self.cols / GROUP
    }

    pub(crate) fn lines(&self) -> &[Line] {
        &self.lines
    }

    pub(crate) fn sides(&self) -> &[Side] {
        &self.sides
    }

    /// Takes a shape; the contents are whatever was there and must be written before they are read.
    pub(crate) fn shape(&mut self, rows: usize, cols: usize, planes: Planes) -> (&mut [Line], &mut [Side]) {
        assert!(cols.is_multiple_of(GROUP), "columns {cols} are not whole groups");
        let groups = rows.checked_mul(cols / GROUP).expect("activations fit the address space");
        let lines = groups.checked_mul(planes.count()).expect("activations fit the address space");
        // Only growing writes; a smaller shape leaves a tail that nobody looks at.
        if self.lines.len() < lines {
            self.lines.resize(lines, Line([0; GROUP]));
        }
        if self.sides.len() < groups {
            self.sides.resize(groups, Side { step: 0.0, sum: 0.0 });
        }
        (self.rows, self.cols, self.planes) = (rows, cols, planes);
        (&mut self.lines[..lines], &mut self.sides[..groups])
    }
}

impl Default for Acts {
    fn default() -> Acts {
        Acts::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_a_permutation_of_eights() {
        let mut seen = [false; GROUP];
        for c in 0..GROUP {
            assert_eq!(place(c) / 8, c / 8);
            assert!(!std::mem::replace(&mut seen[place(c)], true));
        }
        assert_eq!([0, 1, 2, 3, 4, 5, 6, 7].map(place), [0, 4, 1, 5, 2, 6, 3, 7]);
    }

    #[test]
    fn rows_are_appended_in_order() {
        let block = |first: u8, rows: usize| {
            let mut acts = Acts::new();
            let (lines, sides) = acts.shape(rows, 128, Planes::Two);
            for (i, line) in lines.iter_mut().enumerate() {
                line.0[0] = (usize::from(first) + i / 4) as i8;
            }
            sides.iter_mut().enumerate().for_each(|(i, side)| side.sum = f32::from(first) + (i / 2) as f32);
            acts
        };
        // A buffer that was longer before.
        let mut all = block(90, 7);
        all.clear(128, Planes::Two);
        assert_eq!(all.rows(), 0);
        all.append(&block(0, 3));
        all.append(&block(3, 2));
        let (rows, mut picked) = ([4, 0, 2], Acts::new());
        picked.gather(&all, &rows);
        assert_eq!(all.rows(), 5);
        for (at, &row) in rows.iter().enumerate() {
            assert!(picked.lines()[at * 4..][..4].iter().all(|line| line.0[0] == row as i8));
            assert!(picked.sides()[at * 2..][..2].iter().all(|side| side.sum == row as f32));
        }
    }

    #[test]
    fn a_buffer_is_used_again() {
        let mut acts = Acts::with_capacity(3, 128, Planes::Two);
        assert_eq!((acts.rows(), acts.cols()), (0, 128));
        let bytes = acts.bytes();
        assert_eq!(bytes, 3 * 2 * (2 * 64 + 8));
        acts.shape(6, 128, Planes::One);
        assert_eq!(acts.bytes(), bytes + 6 * 8, "as many lines, more sides");
        acts.shape(1, 64, Planes::Two);
        assert_eq!((acts.rows(), acts.cols(), acts.planes()), (1, 64, Planes::Two));
        assert_eq!(acts.bytes(), bytes + 6 * 8);
    }
}
