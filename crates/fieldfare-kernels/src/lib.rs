//! CPU kernels of Fieldfare: no I/O, no knowledge of the model, no logging.
//!
//! [`Kernels`] is a table of functions for one instruction set, chosen once at run time; its methods are safe and
//! check shapes. The promise that the rest of the house builds on: **the result of one output element depends only
//! on its own operands**, never on the number of `x` rows in the call, the size of the [`Pool`], how rows are split
//! over it or the layout of the weights (source rows or tiles). Today all instruction sets even give the same bits,
//! because every reduction has one order (see `arch`), and the tests hold them to it.
//!
//! There are two families of matrix products, each of which keeps the promise: in f32 (`matmul`), and with integer
//! activations (`matmul_q` on [`Acts`]), which are faster and off by a known, small amount.
//!
//! Matrices are group-64 affine ([`QuantMatrix`]): `w = q * scale + bias`, 4 or 8 bits, bf16 scale and bias.

pub mod acts;
pub mod aligned;
mod arch;
mod dispatch;
mod kv;
pub mod pool;
pub mod quant;
mod select;
pub mod tile;

pub use acts::{Acts, Planes};
pub use aligned::{AlignedBuf, AllocError};
pub use dispatch::{AttendScratch, Attention, ISA_VARIABLE, Isa, IsaError, Kernels, KvSpan, isas};
pub use kv::KvSlice;
pub use pool::{Pool, split};
pub use quant::{GROUP, QuantData, QuantMatrix, ShapeError};
pub use select::top_k;
