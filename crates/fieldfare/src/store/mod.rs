//! The expert store: slots, replacement policy, reads from the layer files.
