//! The tile order of a 4-bit affine matrix: what the kernels stream and what tiled model files store.
//!
//! A *tile* covers 16 rows by 64 columns (one quantization group of each row) and is 576 bytes, nine cache
//! lines, in the order in which a kernel consumes them:
//!
//! ```text
//! for k in 0..8:  for row in 0..16:  u32 word k of that row's group   (8 values, low nibble first)
//! for row in 0..16: bf16 scale
//! for row in 0..16: bf16 bias
//! ```
//!
//! A *panel* is the `cols / 64` tiles of 16 rows, in column order. A matrix is its `rows / 16` panels in row
//! order, one after the other or at a fixed stride (an expert blob interleaves the panels of gate and up).
//! The permutation keeps every byte of the source (weights, scales, biases), so it is lossless and invertible.

/// Rows of a tile.
pub const TILE_ROWS: usize = 16;
/// Columns of a tile: one quantization group.
pub const TILE_COLS: usize = 64;
/// Bytes of a tile: 8 x 16 words, 16 scales, 16 biases.
pub const TILE_BYTES: usize = TILE_ROWS * TILE_COLS / 2 + TILE_ROWS * 2 * 2;
/// Offset of the scales inside a tile.
pub const TILE_SCALES: usize = TILE_ROWS * TILE_COLS / 2;
/// Offset of the biases inside a tile.
pub const TILE_BIASES: usize = TILE_SCALES + TILE_ROWS * 2;

const WORDS: usize = TILE_COLS / 8;

/// True if a matrix of this shape and width divides into tiles.
pub fn is_tileable(rows: usize, cols: usize, bits: u32) -> bool {
    bits == 4 && rows > 0 && cols > 0 && rows.is_multiple_of(TILE_ROWS) && cols.is_multiple_of(TILE_COLS)
}

/// Bytes of one panel (16 rows) of `cols` columns.
pub fn panel_bytes(cols: usize) -> usize {
    cols / TILE_COLS * TILE_BYTES
}

/// Turns 16 rows of source order into one panel.
///
/// `weights` is 16 x `cols / 2` bytes, `scales` and `biases` 16 x `cols / 64` bf16 each, `panel`
/// [`panel_bytes`]`(cols)` bytes.
///
/// # Panics
/// If a length does not fit `cols`.
pub fn pack_panel(cols: usize, weights: &[u8], scales: &[u8], biases: &[u8], panel: &mut [u8]) {
    let (row_bytes, groups) = check(cols, weights, scales, biases, panel.len());
    for (g, tile) in panel.chunks_exact_mut(TILE_BYTES).enumerate() {
        for row in 0..TILE_ROWS {
            let from = row * row_bytes + g * (TILE_COLS / 2);
            for k in 0..WORDS {
                let to = (k * TILE_ROWS + row) * 4;
                tile[to..to + 4].copy_from_slice(&weights[from + k * 4..from + k * 4 + 4]);
            }
            let s = (row * groups + g) * 2;
            tile[TILE_SCALES + row * 2..TILE_SCALES + row * 2 + 2].copy_from_slice(&scales[s..s + 2]);
            tile[TILE_BIASES + row * 2..TILE_BIASES + row * 2 + 2].copy_from_slice(&biases[s..s + 2]);
        }
    }
}

/// The inverse of [`pack_panel`].
///
/// # Panics
/// If a length does not fit `cols`.
pub fn unpack_panel(cols: usize, panel: &[u8], weights: &mut [u8], scales: &mut [u8], biases: &mut [u8]) {
    check(cols, weights, scales, biases, panel.len());
    unpack_weights(cols, panel, weights);
    unpack_scales(cols, panel, scales);
    unpack_biases(cols, panel, biases);
}

/// The weights alone.
///
/// # Panics
/// As [`unpack_panel`].
pub fn unpack_weights(cols: usize, panel: &[u8], weights: &mut [u8]) {
    let row_bytes = cols / 2;
    assert_eq!(
        (panel.len(), weights.len()),
        (panel_bytes(cols), TILE_ROWS * row_bytes),
        "weights of a panel"
    );
    for (g, tile) in panel.chunks_exact(TILE_BYTES).enumerate() {
        for row in 0..TILE_ROWS {
            let to = row * row_bytes + g * (TILE_COLS / 2);
            for k in 0..WORDS {
                let from = (k * TILE_ROWS + row) * 4;
                weights[to + k * 4..to + k * 4 + 4].copy_from_slice(&tile[from..from + 4]);
            }
        }
    }
}

/// The scales alone.
///
/// # Panics
/// As [`unpack_panel`].
pub fn unpack_scales(cols: usize, panel: &[u8], scales: &mut [u8]) {
    unpack_sides(cols, panel, TILE_SCALES, scales);
}

/// The biases alone.
///
/// # Panics
/// As [`unpack_panel`].
pub fn unpack_biases(cols: usize, panel: &[u8], biases: &mut [u8]) {
    unpack_sides(cols, panel, TILE_BIASES, biases);
}

fn unpack_sides(cols: usize, panel: &[u8], at: usize, sides: &mut [u8]) {
    let groups = cols / TILE_COLS;
    assert_eq!((panel.len(), sides.len()), (panel_bytes(cols), TILE_ROWS * groups * 2), "sides of a panel");
    for (g, tile) in panel.chunks_exact(TILE_BYTES).enumerate() {
        for row in 0..TILE_ROWS {
            let to = (row * groups + g) * 2;
            sides[to..to + 2].copy_from_slice(&tile[at + row * 2..at + row * 2 + 2]);
        }
    }
}

fn check(cols: usize, weights: &[u8], scales: &[u8], biases: &[u8], panel: usize) -> (usize, usize) {
    assert!(cols > 0 && cols.is_multiple_of(TILE_COLS), "columns {cols} are not whole groups");
    let (row_bytes, groups) = (cols / 2, cols / TILE_COLS);
    assert_eq!(weights.len(), TILE_ROWS * row_bytes, "weights of a panel");
    assert_eq!(scales.len(), TILE_ROWS * groups * 2, "scales of a panel");
    assert_eq!(biases.len(), TILE_ROWS * groups * 2, "biases of a panel");
    assert_eq!(panel, panel_bytes(cols), "bytes of a panel");
    (row_bytes, groups)
}
