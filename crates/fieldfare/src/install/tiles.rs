//! What arrived of a matrix, in the order of the source, into the order of the layout: panels gathered into large writes.

use std::io;

use fieldfare_kernels::tile::{self, TILE_ROWS};

use super::matrix::{Component, Shape, shape_of};
use super::sink::CHUNK;
use crate::format::{Part, PartData};

/// Writes bytes at an offset from the beginning of the matrix, or of the blob.
type Put<'a> = &'a mut dyn FnMut(&[u8], u64) -> io::Result<()>;

/// A buffer for panels; reused from matrix to matrix.
#[derive(Default)]
pub(crate) struct Packer(Vec<u8>);

impl Packer {
    /// A matrix of whole panels, one behind the other.
    pub(crate) fn panels(&mut self, shape: Shape, arrays: [&[u8]; 3], put: Put<'_>) -> io::Result<()> {
        self.pack(shape, arrays, tile::panel_bytes(shape.cols), put)
    }

    /// A matrix of an expert into its place in the expert's blob.
    pub(crate) fn part(&mut self, part: &Part, arrays: [&[u8]; 3], put: Put<'_>) -> io::Result<()> {
        match &part.data {
            PartData::Rows { weights, scales, biases } => {
                for (place, bytes) in [weights, scales, biases].into_iter().zip(arrays) {
                    put(bytes, place.start as u64)?;
                }
                Ok(())
            }
            PartData::Tiles { offset, panel_stride } => {
                let base = *offset as u64;
                self.pack(shape_of(part), arrays, *panel_stride, &mut |bytes, at| put(bytes, base + at))
            }
        }
    }

    fn pack(&mut self, shape: Shape, arrays: [&[u8]; 3], stride: usize, put: Put<'_>) -> io::Result<()> {
        let size = tile::panel_bytes(shape.cols);
        let rows = Component::ALL.map(|component| shape.row_bytes(component) * TILE_ROWS);
        if arrays.iter().zip(rows).any(|(array, row)| array.len() != row * (shape.rows / TILE_ROWS)) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a matrix of another size than its shape",
            ));
        }
        // Panels with gaps between them are written one at a time.
        let most = if stride == size { (CHUNK / size).max(1) } else { 1 };
        let count = shape.rows / TILE_ROWS;
        for first in (0..count).step_by(most) {
            let here = most.min(count - first);
            self.0.resize(here * size, 0);
            for (i, panel) in self.0.chunks_exact_mut(size).enumerate() {
                let cut = |k: usize| &arrays[k][(first + i) * rows[k]..(first + i + 1) * rows[k]];
                tile::pack_panel(shape.cols, cut(0), cut(1), cut(2), panel);
            }
            put(&self.0, (first * stride) as u64)?;
        }
        Ok(())
    }
}
