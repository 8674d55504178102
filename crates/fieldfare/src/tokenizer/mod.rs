//! The Gemma 4 BPE tokenizer: compiled form, encoding, streaming decoding.
