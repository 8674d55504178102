use super::*;
use crate::format::hash::{hex, sha256};
use crate::format::{QuantSlot, parts::affine_bytes};
use proptest::prelude::*;

/// The shape of the pinned Gemma 4 26B-A4B.
pub(in crate::format) fn production() -> (Arch, Quant) {
    let arch = Arch {
        hidden_size: 2816,
        intermediate_size: 2112,
        moe_intermediate_size: 704,
        num_attention_heads: 16,
        num_key_value_heads: 8,
        num_global_key_value_heads: 2,
        head_dim: 256,
        global_head_dim: 512,
        vocab_size: 262_144,
        sliding_window: 1024,
        final_logit_softcapping: 30.0,
        rope_theta: 10_000.0,
        global_rope_theta: 1_000_000.0,
        partial_rotary_factor: 0.25,
        num_hidden_layers: 30,
        num_experts: 128,
        top_k_experts: 8,
        tie_word_embeddings: true,
        attention_k_eq_v: true,
        hidden_activation: "gelu_pytorch_tanh".into(),
        full_attention: (0..30).map(|layer| layer % 6 == 5).collect(),
    };
    let slot = QuantSlot::affine;
    let quant = Quant {
        embedding: slot(4),
        attention: slot(4),
        router: slot(8),
        shared_expert: slot(4),
        routed_expert: slot(4),
    };
    (arch, quant)
}

#[test]
fn production_index_is_upstreams() {
    let (arch, quant) = production();
    let mut tensors = inventory(&arch, &quant).unwrap();
    tensors.reverse(); // the order given must not matter
    let index = resident_index(&tensors, Layout::V1).unwrap();
    let bytes = index.encode().unwrap();
    assert_eq!((bytes.len(), index.entries.len()), (81_920, 597));
    assert_eq!(index.resident_size, 1_353_689_148);
    assert_eq!(hex(&sha256(&bytes)), "0c99c7dffed86d99ba1756854b130e8b9f721d4483a410ece99f9dc134fcd293");
    let file_len = index.index_size + index.resident_size;
    assert_eq!(ResidentIndex::parse(&bytes, file_len, Layout::V1).unwrap(), index);
    schema::check_resident(&index, &arch, &quant, Layout::V1).unwrap();
    // Nobody takes one layout for the other.
    assert!(ResidentIndex::parse(&bytes, file_len, Layout::Tiled).is_err());
    assert!(schema::check_resident(&index, &arch, &quant, Layout::Tiled).is_err());
}

#[test]
fn production_layout_is_upstreams() {
    let (arch, _) = production();
    let layout = expert_layout(&arch, 4, Layout::V1).unwrap();
    assert_eq!(layout.expert_stride, 3_358_720);
    assert_eq!(layout.file_bytes().unwrap(), 429_916_160);
    let bytes = layout.encode();
    assert_eq!(bytes.len(), 8_450_186);
    assert_eq!(hex(&sha256(&bytes)), "1fc209dfda8c3f50e26ff8add469aa50fff497a41ba4dca19960e60a60d31593");
    assert_eq!(ExpertLayout::parse(&bytes, Layout::V1).unwrap(), layout);
}

#[test]
fn production_tiled() {
    let (arch, quant) = production();
    let index = resident_index(&inventory(&arch, &quant).unwrap(), Layout::Tiled).unwrap();
    let bytes = index.encode().unwrap();
    let file_len = index.index_size + index.resident_size;
    assert_eq!(ResidentIndex::parse(&bytes, file_len, Layout::Tiled).unwrap(), index);
    schema::check_resident(&index, &arch, &quant, Layout::Tiled).unwrap();
    let tiled = index.entries.iter().filter(|e| e.dtype == DType::Tile16x64).count();
    assert_eq!(tiled, 236 - 30, "all but the routers");
    assert!(ResidentIndex::parse(&bytes, file_len, Layout::V1).unwrap_err().to_string().contains("dtype"));
    // Alignment costs little: under 4 KiB for each of 597 tensors.
    assert!(index.resident_size < 1_353_689_148 + 597 * 4096);

    let layout = expert_layout(&arch, 4, Layout::Tiled).unwrap();
    assert_eq!(layout.expert_stride, 3_358_720, "a permutation: the blob keeps its size");
    assert_eq!(ExpertLayout::parse(&layout.encode(), Layout::Tiled).unwrap(), layout);
    let message = ExpertLayout::parse(&layout.encode(), Layout::V1).unwrap_err().to_string();
    assert!(
        message.contains("layers[0].experts[0].tensors.down.dtype") && message.contains("v1"),
        "{message}"
    );
    let parts = layout.expert_parts(29, &arch, 4, Layout::Tiled).unwrap();
    assert_eq!(parts.used(), 3_345_408);
    assert_eq!(parts.down.span, 2_230_272..3_345_408);
    let panel = tile::panel_bytes(2816);
    for (part, offset) in [(&parts.gate, 0), (&parts.up, panel)] {
        let data = crate::format::PartData::Tiles { offset, panel_stride: 2 * panel };
        assert_eq!(part.data, data);
    }
    assert!(layout.expert_parts(0, &arch, 4, Layout::V1).is_err());
    assert!(layout.expert_parts(30, &arch, 4, Layout::Tiled).is_err());
}

#[test]
fn what_does_not_divide_stays_in_source_order() {
    let (mut arch, quant) = production();
    arch.hidden_size = 64 * 3; // 192 rows divide by 16
    arch.moe_intermediate_size = 64 + 8; // 72 columns are no whole groups
    assert!(expert_blob(&arch, 4, Layout::Tiled).is_err());
    arch.moe_intermediate_size = 64;
    let blob = expert_blob(&arch, 8, Layout::Tiled).unwrap();
    assert_eq!(blob.parts.len(), 9, "8-bit experts keep nine parts");
    let blob = expert_blob(&arch, 4, Layout::Tiled).unwrap();
    assert_eq!(blob.parts.iter().map(|p| p.role.as_str()).collect::<Vec<_>>(), ["gate", "up", "down"]);
    arch.hidden_size = 64;
    arch.num_attention_heads = 8;
    arch.num_key_value_heads = 1;
    arch.head_dim = 8; // the K projection is 8 x 64: half a panel
    let index = resident_index(&inventory(&arch, &quant).unwrap(), Layout::Tiled).unwrap();
    let k = index.by_name()["language_model.model.layers.0.self_attn.k_proj.weight"];
    assert_eq!((k.dtype, k.shape), (DType::U32, [8, 64, 0, 0]));
    assert!(k.data.start.is_multiple_of(4096) && k.scales.start == k.data.end);
}

#[test]
fn unknown_tensors_find_their_place() {
    let plain = |name: &str| SourceTensor {
        name: name.into(),
        kind: SourceKind::Plain { dtype: DType::F16, shape: [2, 3, 0, 0] },
    };
    let order = |names: &[&str]| {
        let tensors: Vec<_> = names.iter().map(|name| plain(name)).collect();
        resident_index(&tensors, Layout::V1)
            .map(|i| i.entries.into_iter().map(|e| e.name).collect::<Vec<_>>())
    };
    let m = "language_model.model.";
    let sorted = order(&[
        &format!("{m}norm.weight"),
        "language_model.extra",
        &format!("{m}layers.10.layer_scalar"),
        &format!("{m}layers.2.zzz"),
        &format!("{m}layers.2.aaa"),
        &format!("{m}layers.2.layer_scalar"),
        &format!("{m}embed_tokens.weight"),
    ]);
    let suffixes: Vec<_> = sorted.unwrap().iter().map(|n| n.trim_start_matches(m).to_owned()).collect();
    assert_eq!(
        suffixes,
        [
            "embed_tokens.weight",
            "layers.2.layer_scalar",
            "layers.2.aaa",
            "layers.2.zzz",
            "layers.10.layer_scalar",
            "language_model.extra",
            "norm.weight"
        ]
    );
    assert!(order(&["vision_tower.x"]).is_err());
    assert!(order(&["language_model.a", "language_model.a"]).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// Any shape: what is planned is accepted, covers what it must, and never overlaps.
    #[test]
    fn plans_are_accepted_by_the_reader(
        hidden in 1usize..6, inner in 1usize..6, heads in 1usize..4, head_dim in 1usize..9, layers in 1usize..4,
        experts in 1usize..5, vocab in 1usize..70, tiled in any::<bool>(), shared_bits in prop_oneof![Just(4u32), Just(8)],
    ) {
        let (mut arch, mut quant) = production();
        (arch.hidden_size, arch.moe_intermediate_size, arch.intermediate_size) = (hidden * 64, inner * 64, inner * 64);
        (arch.num_attention_heads, arch.head_dim, arch.global_head_dim) = (heads * 8, head_dim * 8, head_dim * 16);
        (arch.num_hidden_layers, arch.num_experts, arch.vocab_size) = (layers, experts, vocab);
        arch.top_k_experts = 1;
        arch.full_attention = (0..layers).map(|l| l % 2 == 1).collect();
        quant.shared_expert = QuantSlot::affine(shared_bits);
        let layout = if tiled { Layout::Tiled } else { Layout::V1 };
        let index = resident_index(&inventory(&arch, &quant).unwrap(), layout).unwrap();
        let len = index.index_size + index.resident_size;
        prop_assert_eq!(&ResidentIndex::parse(&index.encode().unwrap(), len, layout).unwrap(), &index);
        schema::check_resident(&index, &arch, &quant, layout).unwrap();
        let plan = expert_layout(&arch, 4, layout).unwrap();
        prop_assert_eq!(&ExpertLayout::parse(&plan.encode(), layout).unwrap(), &plan);
        let parts = plan.expert_parts(layers - 1, &arch, 4, layout).unwrap();
        let (weights, scales) = affine_bytes(arch.moe_intermediate_size, arch.hidden_size, 4).unwrap();
        prop_assert!(parts.used() as u64 >= 3 * (weights + 2 * scales));
        prop_assert!(plan.expert_stride.is_multiple_of(PAGE) && parts.used() as u64 <= plan.expert_stride);
    }
}
