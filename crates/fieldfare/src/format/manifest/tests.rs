use super::*;

/// The manifest of 1.11 of the specification, built from its description, and its bytes.
pub(in crate::format) fn reference() -> (Manifest, Vec<u8>) {
    let file = |size| FileEntry { size, sha256: [0; 32] };
    let manifest = Manifest {
        layout: Layout::V1,
        version_minor: 0,
        flags: Manifest::default_flags(),
        model_id: "fixture/model".into(),
        source_snapshot_hash: Some("fixture-snapshot".into()),
        arch: Arch {
            hidden_size: 64,
            intermediate_size: 128,
            moe_intermediate_size: 32,
            num_attention_heads: 4,
            num_key_value_heads: 2,
            num_global_key_value_heads: 1,
            head_dim: 16,
            global_head_dim: 32,
            vocab_size: 1024,
            sliding_window: 128,
            final_logit_softcapping: 30.0,
            rope_theta: 10_000.0,
            global_rope_theta: 1_000_000.0,
            partial_rotary_factor: 0.25,
            num_hidden_layers: 1,
            num_experts: 2,
            top_k_experts: 1,
            tie_word_embeddings: true,
            attention_k_eq_v: true,
            hidden_activation: "gelu_pytorch_tanh".into(),
            full_attention: vec![false],
        },
        quant: Some(Quant {
            embedding: QuantSlot::affine(4),
            attention: QuantSlot::affine(4),
            router: QuantSlot::affine(8),
            shared_expert: QuantSlot::affine(4),
            routed_expert: QuantSlot::affine(4),
        }),
        files: [(WEIGHTS, 16416), ("packed_experts/layer_00.bin", 32768), (LAYOUT, 1)]
            .map(|(path, size)| (path.to_owned(), file(size)))
            .into(),
        expert_stride: 16384,
        bit_width_overrides_honored: Some(120),
    };
    let bytes = manifest.encode();
    (manifest, bytes)
}

#[test]
fn reference_bytes() {
    let (manifest, bytes) = reference();
    assert_eq!(bytes.len(), 2219);
    assert_eq!(
        hash::hex(&hash::sha256(&bytes)),
        "f0c4d01ac7f1747416a0274dd26bb585e2e43ae294b02a8daf272e7129d46dce"
    );
    assert_eq!(Manifest::parse(&bytes).unwrap(), manifest);
}
