//! One suite for every instruction set that this CPU can run: each operation against the scalar one, bit for bit,
//! and the scalar one against plain f64 loops. Random shapes, lengths around the block sizes, the model's shapes,
//! starts at every offset, and values at the edges.

mod attention;
mod data;
mod integer;
mod matmul;
mod rows;
