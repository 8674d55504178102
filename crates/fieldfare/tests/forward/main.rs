//! The forward pass against the float32 reference of `fixtures/tiny-gemma4-a`, and against itself: the same
//! bits for every chunking, slot count, policy, thread count and layout.

mod damage;
mod reference;
mod same_bits;
mod support;
