//! From logits to a token id: penalties, Top-K, Top-P, min-p, temperature, the generator, stop strings.
