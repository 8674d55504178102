//! CPU kernels of Fieldfare: no I/O, no knowledge of the model, no logging.

pub mod tile;
