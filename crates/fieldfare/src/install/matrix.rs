//! Quantised matrices from source order into a layout and back, a few rows at a time.

use std::ops::Range;

use fieldfare_kernels::tile::{self, TILE_ROWS};

use super::build::Meter;
use super::sink::{CHUNK, Sink};
use crate::format::{DType, Part, PartData};
use crate::{Error, Result};

/// Widest matrix handled, in columns: it bounds the buffers, which hold at least 16 rows.
pub(crate) const MAX_COLS: usize = 1 << 20;
/// Largest expert blob handled, in bytes. One is held at a time (two while converting).
pub(crate) const MAX_BLOB: u64 = 256 << 20;

/// The three arrays of a quantised matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Component {
    /// Packed values.
    Weights,
    /// bfloat16 scales of groups.
    Scales,
    /// bfloat16 biases of groups.
    Biases,
}

impl Component {
    /// In the order in which v1 stores them.
    pub(crate) const ALL: [Self; 3] = [Self::Weights, Self::Scales, Self::Biases];
}

/// Shape and width of a quantised matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) bits: u32,
}

impl Shape {
    /// Bytes of one row of a component. `cols` is a multiple of 64 and at most [`MAX_COLS`].
    pub(crate) fn row_bytes(self, component: Component) -> usize {
        match component {
            Component::Weights => self.cols / 8 * self.bits as usize,
            Component::Scales | Component::Biases => self.cols / tile::TILE_COLS * 2,
        }
    }

    /// Refuses what the buffers are not made for.
    pub(crate) fn check(self, name: &str) -> Result<()> {
        if self.cols > MAX_COLS || !self.cols.is_multiple_of(tile::TILE_COLS) || self.bits > 32 {
            let Self { rows, cols, bits } = self;
            return Err(Error::Unsupported(format!("{name}: a matrix of {rows} x {cols}, {bits} bit")));
        }
        Ok(())
    }

    /// Rows read at a time: whole panels of about 1 MiB of weights.
    fn step(self) -> usize {
        let panels = CHUNK / (self.row_bytes(Component::Weights) * TILE_ROWS).max(1);
        panels.max(1) * TILE_ROWS
    }
}

/// Fills `sink` with zeros up to `end`.
pub(crate) fn gap(sink: &mut Sink, end: u64, meter: &mut Meter<'_>) -> Result<()> {
    let bytes = end.saturating_sub(sink.position());
    sink.zeros_to(end)?;
    meter.step(bytes)
}

/// Fills the buffer with these rows of a component.
pub(crate) type ReadRows<'a> = &'a mut dyn FnMut(Component, Range<usize>, &mut [u8]) -> Result<()>;

/// Appends a matrix to `sink`: as tiles if `dtype` says so, otherwise weights, scales, biases in source order.
pub(crate) fn write(
    sink: &mut Sink,
    dtype: DType,
    shape: Shape,
    read: ReadRows<'_>,
    meter: &mut Meter<'_>,
) -> Result<()> {
    if dtype == DType::Tile16x64 {
        return write_tiles(sink, shape, read, meter);
    }
    let mut buffer = Vec::new();
    for component in Component::ALL {
        let row_bytes = shape.row_bytes(component);
        for rows in steps(shape) {
            buffer.resize(rows.len() * row_bytes, 0);
            read(component, rows, &mut buffer)?;
            sink.write(&buffer)?;
            meter.step(buffer.len() as u64)?;
        }
    }
    Ok(())
}

fn write_tiles(sink: &mut Sink, shape: Shape, read: ReadRows<'_>, meter: &mut Meter<'_>) -> Result<()> {
    let mut parts = [Vec::new(), Vec::new(), Vec::new()];
    let mut panel = vec![0; tile::panel_bytes(shape.cols)];
    for rows in steps(shape) {
        for (component, part) in Component::ALL.into_iter().zip(&mut parts) {
            part.resize(rows.len() * shape.row_bytes(component), 0);
            read(component, rows.clone(), part)?;
        }
        for i in 0..rows.len() / TILE_ROWS {
            let [weights, scales, biases] = panel_rows(shape, &parts, i);
            tile::pack_panel(shape.cols, weights, scales, biases, &mut panel);
            sink.write(&panel)?;
            meter.step(panel.len() as u64)?;
        }
    }
    Ok(())
}

fn steps(shape: Shape) -> impl Iterator<Item = Range<usize>> {
    let step = shape.step();
    (0..shape.rows).step_by(step).map(move |first| first..shape.rows.min(first + step))
}

/// The rows of panel `i` in each of three arrays.
fn panel_rows<T: AsRef<[u8]>>(shape: Shape, parts: &[T; 3], i: usize) -> [&[u8]; 3] {
    let cut = |k: usize| {
        let bytes = shape.row_bytes(Component::ALL[k]) * TILE_ROWS;
        &parts[k].as_ref()[i * bytes..(i + 1) * bytes]
    };
    [cut(0), cut(1), cut(2)]
}

/// Unpacks panels (without gaps between them) and hands out the rows of one component.
pub(crate) struct Unpacker {
    shape: Shape,
    panel: Vec<u8>,
}

impl Unpacker {
    /// For a tiled matrix of this shape.
    pub(crate) fn new(shape: Shape) -> Self {
        Self { shape, panel: vec![0; tile::panel_bytes(shape.cols)] }
    }

    /// Fills `out` with whole panels' rows of a component. `read` fills its buffer from an offset inside the matrix.
    pub(crate) fn rows(
        &mut self,
        component: Component,
        rows: Range<usize>,
        out: &mut [u8],
        read: &mut dyn FnMut(u64, &mut [u8]) -> Result<()>,
    ) -> Result<()> {
        let bytes = self.shape.row_bytes(component) * TILE_ROWS;
        for (i, out) in out.chunks_exact_mut(bytes).enumerate() {
            let number = (rows.start / TILE_ROWS + i) as u64;
            read(number * self.panel.len() as u64, &mut self.panel)?;
            unpack(self.shape.cols, &self.panel, component, out);
        }
        Ok(())
    }
}

/// One component of one panel.
fn unpack(cols: usize, panel: &[u8], component: Component, out: &mut [u8]) {
    match component {
        Component::Weights => tile::unpack_weights(cols, panel, out),
        Component::Scales => tile::unpack_scales(cols, panel, out),
        Component::Biases => tile::unpack_biases(cols, panel, out),
    }
}

/// Shape of one matrix of an expert.
pub(crate) fn shape_of(part: &Part) -> Shape {
    Shape { rows: part.rows, cols: part.cols, bits: part.bits }
}

/// One matrix of an expert in source order; reused from expert to expert.
#[derive(Default)]
pub(crate) struct Scratch([Vec<u8>; 3]);

impl Scratch {
    /// Puts one matrix into its place in a blob. `read` fills a buffer with a whole component.
    pub(crate) fn put(
        &mut self,
        part: &Part,
        blob: &mut [u8],
        read: &mut dyn FnMut(Component, &mut [u8]) -> Result<()>,
    ) -> Result<()> {
        match &part.data {
            PartData::Rows { weights, scales, biases } => {
                read(Component::Weights, &mut blob[weights.clone()])?;
                read(Component::Scales, &mut blob[scales.clone()])?;
                read(Component::Biases, &mut blob[biases.clone()])
            }
            PartData::Tiles { offset, panel_stride } => {
                let shape = shape_of(part);
                for (component, buffer) in Component::ALL.into_iter().zip(&mut self.0) {
                    buffer.resize(shape.rows * shape.row_bytes(component), 0);
                    read(component, buffer)?;
                }
                let bytes = tile::panel_bytes(shape.cols);
                for i in 0..shape.rows / TILE_ROWS {
                    let [weights, scales, biases] = panel_rows(shape, &self.0, i);
                    let at = offset + i * panel_stride;
                    tile::pack_panel(shape.cols, weights, scales, biases, &mut blob[at..at + bytes]);
                }
                Ok(())
            }
        }
    }

    /// One component of a matrix in a blob, in source order.
    pub(crate) fn get(&mut self, part: &Part, blob: &[u8], component: Component, out: &mut [u8]) {
        match &part.data {
            PartData::Rows { weights, scales, biases } => out.copy_from_slice(match component {
                Component::Weights => &blob[weights.clone()],
                Component::Scales => &blob[scales.clone()],
                Component::Biases => &blob[biases.clone()],
            }),
            PartData::Tiles { offset, panel_stride } => {
                // Components are asked for in order; the first asks for the work.
                if component == Component::Weights {
                    self.unpack(shape_of(part), blob, *offset, *panel_stride);
                }
                out.copy_from_slice(&self.0[component as usize]);
            }
        }
    }

    /// One component of a matrix in a blob, whatever was asked for before.
    #[cfg(feature = "install")]
    pub(crate) fn component(&mut self, part: &Part, blob: &[u8], component: Component, out: &mut [u8]) {
        let PartData::Tiles { offset, panel_stride } = &part.data else {
            return self.get(part, blob, component, out);
        };
        // Of this component alone: scales and biases are an eighth of what there is.
        let shape = shape_of(part);
        let (rows, bytes) = (shape.row_bytes(component) * TILE_ROWS, tile::panel_bytes(shape.cols));
        for (i, out) in out.chunks_exact_mut(rows).enumerate() {
            let at = offset + i * panel_stride;
            unpack(shape.cols, &blob[at..at + bytes], component, out);
        }
    }

    fn unpack(&mut self, shape: Shape, blob: &[u8], offset: usize, panel_stride: usize) {
        for (component, buffer) in Component::ALL.into_iter().zip(&mut self.0) {
            buffer.resize(shape.rows * shape.row_bytes(component), 0);
        }
        let [weights, scales, biases] = &mut self.0;
        let per = Component::ALL.map(|c| shape.row_bytes(c) * TILE_ROWS);
        let bytes = tile::panel_bytes(shape.cols);
        for i in 0..shape.rows / TILE_ROWS {
            let at = offset + i * panel_stride;
            tile::unpack_panel(
                shape.cols,
                &blob[at..at + bytes],
                &mut weights[i * per[0]..(i + 1) * per[0]],
                &mut scales[i * per[1]..(i + 1) * per[1]],
                &mut biases[i * per[2]..(i + 1) * per[2]],
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_whole_panels_of_bounded_size() {
        // The embedding, Q of a full layer and the router of 26B-A4B; a tiny matrix; the widest one accepted.
        for (rows, cols, bits) in
            [(262_144, 2816, 4), (8192, 2816, 4), (128, 2816, 8), (16, 64, 4), (1 << 20, MAX_COLS, 8)]
        {
            let shape = Shape { rows, cols, bits };
            shape.check("m").expect("handled");
            let step = shape.step();
            let bytes = step * shape.row_bytes(Component::Weights);
            assert!(
                step.is_multiple_of(TILE_ROWS) && bytes <= CHUNK.max(TILE_ROWS * MAX_COLS),
                "{shape:?}: {bytes}"
            );
            assert_eq!(steps(shape).map(|r| r.len()).sum::<usize>(), rows);
        }
        assert!(Shape { rows: 16, cols: MAX_COLS + 64, bits: 4 }.check("m").is_err());
        assert!(Shape { rows: 16, cols: 32, bits: 4 }.check("m").is_err());
    }

    #[test]
    fn parts_go_in_and_come_out() {
        let (rows, cols) = (32, 128);
        let shape = Shape { rows, cols, bits: 4 };
        let parts = Component::ALL.map(|c| {
            (0..rows * shape.row_bytes(c))
                .map(|i| u8::try_from((i * 7 + c as usize) % 251).expect("small"))
                .collect::<Vec<_>>()
        });
        let size = tile::panel_bytes(cols);
        let data = PartData::Tiles { offset: 64, panel_stride: size + 128 };
        let part = Part { rows, cols, bits: 4, span: 64..64 + 2 * size + 128, data };
        let mut blob = vec![0xee; 64 + 2 * size + 256];
        let mut put = Scratch::default();
        put.put(&part, &mut blob, &mut |c, buf| {
            buf.copy_from_slice(&parts[c as usize]);
            Ok(())
        })
        .expect("packed");
        assert!(
            blob[..64].iter().chain(&blob[64 + size..64 + size + 128]).all(|b| *b == 0xee),
            "gaps are not written"
        );
        let mut get = Scratch::default();
        for c in Component::ALL {
            let mut out = vec![0; parts[c as usize].len()];
            get.get(&part, &blob, c, &mut out);
            assert_eq!(out, parts[c as usize], "{c:?}");
            #[cfg(feature = "install")]
            {
                out.fill(0);
                Scratch::default().component(&part, &blob, c, &mut out);
                assert_eq!(out, parts[c as usize], "{c:?} alone");
            }
        }
    }
}
