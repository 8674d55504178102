//! From a local checkpoint to a model directory, and from one layout to the other, in bounded memory.
