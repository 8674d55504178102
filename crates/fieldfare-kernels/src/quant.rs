//! Checked views of group-64 affine matrices, in source order or in [`crate::tile`] order.
//!
//! `w = q * scale + bias`, one bf16 scale and bias for 64 consecutive columns of a row; `q` unsigned, 4 bits
//! (column `i` in the low nibble of byte `i / 2` when even, in the high one when odd) or 8 bits. The product is
//! exact in f32, the sum rounds once. The bytes may start anywhere: nothing here needs an alignment.

use crate::tile;

/// Columns that share a scale and a bias.
pub const GROUP: usize = 64;

/// Bytes of a matrix.
#[derive(Debug, Clone, Copy)]
pub enum QuantData<'a> {
    /// Source order: row-major weights, then row-major little-endian bf16 scales and biases.
    Rows {
        /// `rows x cols x bits / 8` bytes.
        weights: &'a [u8],
        /// `rows x cols / 64` bf16.
        scales: &'a [u8],
        /// `rows x cols / 64` bf16.
        biases: &'a [u8],
    },
    /// Tile order (4 bits only): panels of 16 rows, see [`crate::tile`].
    Tiles {
        /// From the first byte of panel 0 to at least the last byte of the last panel.
        data: &'a [u8],
        /// Bytes from one panel to the next, at least [`tile::panel_bytes`]; more when panels are interleaved.
        panel_stride: usize,
    },
}

/// Why bytes are not the matrix they are said to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// Neither 4 nor 8 bits.
    #[error("{0} bits a weight: only 4 and 8 exist")]
    Bits(u32),
    /// No rows, no columns, columns that are not whole groups, or sizes beyond the address space.
    #[error("{rows} x {cols} is not a matrix of whole groups of 64 columns")]
    Shape {
        /// Rows given.
        rows: usize,
        /// Columns given.
        cols: usize,
    },
    /// The shape or width does not divide into tiles of 16 x 64.
    #[error("{rows} x {cols} at {bits} bits has no tile order")]
    NotTileable {
        /// Rows given.
        rows: usize,
        /// Columns given.
        cols: usize,
        /// Bits given.
        bits: u32,
    },
    /// Panels would overlap.
    #[error("panel stride of {stride} bytes is below the {panel} bytes of a panel")]
    Stride {
        /// Stride given.
        stride: usize,
        /// Bytes of a panel.
        panel: usize,
    },
    /// A part has the wrong number of bytes.
    #[error("{part} has {found} bytes, expected {expected}")]
    Length {
        /// `weights`, `scales`, `biases` or `tiles`.
        part: &'static str,
        /// Bytes needed.
        expected: usize,
        /// Bytes given.
        found: usize,
    },
}

/// A matrix `[rows, cols]` whose bytes have been checked against its shape; kernels trust it.
#[derive(Debug, Clone, Copy)]
pub struct QuantMatrix<'a> {
    rows: usize,
    cols: usize,
    bits: u32,
    data: QuantData<'a>,
}

impl<'a> QuantMatrix<'a> {
    /// Checks the bytes against the shape. Source-order parts must have exactly their sizes, tiles may be followed
    /// by other bytes (the last panel's stride is not needed in full).
    ///
    /// # Errors
    /// [`ShapeError`] says what does not fit.
    pub fn new(
        rows: usize,
        cols: usize,
        bits: u32,
        data: QuantData<'a>,
    ) -> Result<QuantMatrix<'a>, ShapeError> {
        if bits != 4 && bits != 8 {
            return Err(ShapeError::Bits(bits));
        }
        let shape = ShapeError::Shape { rows, cols };
        if rows == 0 || cols == 0 || !cols.is_multiple_of(GROUP) {
            return Err(shape);
        }
        // One byte a weight bounds every later product.
        rows.checked_next_multiple_of(tile::TILE_ROWS).and_then(|r| r.checked_mul(cols)).ok_or(shape)?;
        match data {
            QuantData::Rows { weights, scales, biases } => {
                let side = rows * (cols / GROUP) * 2;
                let parts = [
                    ("weights", weights.len(), rows * (cols / 8 * bits as usize)),
                    ("scales", scales.len(), side),
                    ("biases", biases.len(), side),
                ];
                for (part, found, expected) in parts {
                    if found != expected {
                        return Err(ShapeError::Length { part, expected, found });
                    }
                }
            }
            QuantData::Tiles { data, panel_stride } => {
                if !tile::is_tileable(rows, cols, bits) {
                    return Err(ShapeError::NotTileable { rows, cols, bits });
                }
                let panel = tile::panel_bytes(cols);
                if panel_stride < panel {
                    return Err(ShapeError::Stride { stride: panel_stride, panel });
                }
                let expected = (rows / tile::TILE_ROWS - 1)
                    .checked_mul(panel_stride)
                    .and_then(|n| n.checked_add(panel))
                    .ok_or(shape)?;
                if data.len() < expected {
                    return Err(ShapeError::Length { part: "tiles", expected, found: data.len() });
                }
            }
        }
        Ok(QuantMatrix { rows, cols, bits, data })
    }

    /// Output width.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Input width, a multiple of 64.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// 4 or 8.
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// Groups of a row.
    pub fn groups(&self) -> usize {
        self.cols / GROUP
    }

    /// The bytes.
    pub fn data(&self) -> QuantData<'a> {
        self.data
    }

    /// Bytes of weights, scales and biases, without what lies between panels.
    pub fn bytes(&self) -> usize {
        self.rows * (self.cols / 8 * self.bits as usize) + self.rows * self.groups() * 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(rows: usize, cols: usize, bits: u32, lens: [usize; 3]) -> Result<(), ShapeError> {
        let bytes = [0u8; 8192];
        let data = QuantData::Rows {
            weights: &bytes[..lens[0]],
            scales: &bytes[..lens[1]],
            biases: &bytes[..lens[2]],
        };
        QuantMatrix::new(rows, cols, bits, data).map(|_| ())
    }

    fn tiles(rows: usize, cols: usize, bits: u32, len: usize, panel_stride: usize) -> Result<(), ShapeError> {
        let bytes = [0u8; 8192];
        QuantMatrix::new(rows, cols, bits, QuantData::Tiles { data: &bytes[..len], panel_stride }).map(|_| ())
    }

    #[test]
    fn source_order_needs_exact_lengths() {
        assert_eq!(rows(3, 128, 4, [192, 12, 12]), Ok(()));
        assert_eq!(rows(3, 128, 8, [384, 12, 12]), Ok(()));
        for (i, part) in ["weights", "scales", "biases"].into_iter().enumerate() {
            for d in [-1isize, 1] {
                let mut lens = [192usize, 12, 12];
                let expected = lens[i];
                lens[i] = expected.wrapping_add_signed(d);
                assert_eq!(rows(3, 128, 4, lens), Err(ShapeError::Length { part, expected, found: lens[i] }));
            }
        }
    }

    #[test]
    fn shapes_that_are_not_matrices() {
        assert_eq!(rows(1, 64, 3, [24, 2, 2]), Err(ShapeError::Bits(3)));
        for (r, c) in
            [(0, 64), (1, 0), (1, 32), (1, 65), (usize::MAX, 64), (usize::MAX / 32, 64), (2, usize::MAX - 63)]
        {
            assert_eq!(rows(r, c, 4, [32, 2, 2]), Err(ShapeError::Shape { rows: r, cols: c }));
            assert_eq!(tiles(r, c, 4, 32, usize::MAX), Err(ShapeError::Shape { rows: r, cols: c }));
        }
    }

    #[test]
    fn tiles_need_their_last_panel_only_to_its_end() {
        assert_eq!(tiles(32, 128, 4, 2 * 1152, 1152), Ok(()));
        assert_eq!(tiles(32, 128, 4, 2000 + 1152, 2000), Ok(()));
        let short = ShapeError::Length { part: "tiles", expected: 3152, found: 3151 };
        assert_eq!(tiles(32, 128, 4, 3151, 2000), Err(short));
        assert_eq!(tiles(32, 128, 4, 4000, 1151), Err(ShapeError::Stride { stride: 1151, panel: 1152 }));
        assert_eq!(
            tiles(17, 128, 4, 4000, 1152),
            Err(ShapeError::NotTileable { rows: 17, cols: 128, bits: 4 })
        );
        assert_eq!(
            tiles(16, 128, 8, 4000, 1152),
            Err(ShapeError::NotTileable { rows: 16, cols: 128, bits: 8 })
        );
        assert_eq!(tiles(48, 64, 4, 4000, usize::MAX / 2 + 1), Err(ShapeError::Shape { rows: 48, cols: 64 }));
    }
}
