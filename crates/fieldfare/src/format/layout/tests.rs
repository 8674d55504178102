use super::*;
use crate::format::hash::{hex, sha256};
use crate::format::json::tests::edit;

/// The layout of 1.11 of the specification, built from its description.
fn reference() -> ExpertLayout {
    let gate = SubTensor {
        role: "gate".into(),
        dtype: SubDType::U32,
        shape: vec![8, 8],
        bits: Some(4),
        offset: 0,
        size: 32,
        panel_stride: None,
    };
    let experts = vec![ExpertEntry { physical_rank: 0, blob: 0 }, ExpertEntry { physical_rank: 1, blob: 0 }];
    ExpertLayout {
        expert_stride: 16_384,
        experts_per_layer: 2,
        layers: vec![LayerLayout { file: "layer_00.bin".into(), experts }],
        blobs: vec![vec![gate]],
    }
}

fn document(layout: &ExpertLayout) -> Value {
    json::parse(LAYOUT, &layout.encode(), CAP_LAYOUT).unwrap()
}

fn parse(value: &Value, layout: Layout) -> Result<ExpertLayout> {
    ExpertLayout::parse(json::canonical(value).as_bytes(), layout)
}

#[test]
fn reference_bytes() {
    let bytes = reference().encode();
    assert_eq!(bytes.len(), 903);
    assert_eq!(hex(&sha256(&bytes)), "acf57a355128d1d8afb1d09b75dc1aa7fef98687871b1ff9f738dd511cb6e341");
    assert_eq!(ExpertLayout::parse(&bytes, Layout::V1).unwrap(), reference());
    assert_eq!(json::canonical(&document(&reference())).as_bytes(), bytes, "written in pieces as in one go");
}

/// One long description among many short ones must not be paid for by all.
#[test]
fn room_to_write_is_by_what_is_written() {
    let mut layout = reference();
    let mut long = layout.blobs[0].clone();
    long[0].shape = vec![1; 20_000];
    layout.blobs.push(long);
    layout.experts_per_layer = 20_000;
    layout.layers[0].experts =
        (0..20_000).map(|rank| ExpertEntry { physical_rank: rank, blob: u32::from(rank == 7) }).collect();
    let bytes = layout.encode();
    assert!(bytes.capacity() < 3 * bytes.len(), "{} for {}", bytes.capacity(), bytes.len());
    assert_eq!(ExpertLayout::parse(&bytes, Layout::V1).unwrap().experts_per_layer, 20_000);
}

#[test]
fn physical_ranks_and_positional_ids_are_honoured() {
    let mut value = document(&reference());
    for (path, new) in [
        ("layers|0|experts|0|physicalRank", 1u64),
        ("layers|0|experts|0|offset", 16_384),
        ("layers|0|experts|1|physicalRank", 0),
        ("layers|0|experts|1|offset", 0),
    ] {
        edit(&mut value, path, Some(new.into()));
    }
    let swapped = parse(&value, Layout::V1).unwrap();
    let ranks: Vec<u32> = swapped.layers[0].experts.iter().map(|e| e.physical_rank).collect();
    assert_eq!(ranks, [1, 0]);
    assert_eq!(ExpertLayout::parse(&swapped.encode(), Layout::V1).unwrap(), swapped);
    assert!(String::from_utf8(swapped.encode()).unwrap().contains("physicalRank"));

    let mut value = document(&reference());
    edit(&mut value, "layers|0|experts|0|expert", None);
    assert!(parse(&value, Layout::V1).unwrap_err().to_string().contains("for all or for none"));
    edit(&mut value, "layers|0|experts|1|expert", None);
    assert_eq!(parse(&value, Layout::V1).unwrap(), reference());

    // Explicit ids may stand in any order.
    let mut value = document(&reference());
    for (path, new) in [
        ("layers|0|experts|0|expert", 1u64),
        ("layers|0|experts|0|offset", 16_384),
        ("layers|0|experts|1|expert", 0),
        ("layers|0|experts|1|offset", 0),
    ] {
        edit(&mut value, path, Some(new.into()));
    }
    assert_eq!(parse(&value, Layout::V1).unwrap(), reference());
}

#[test]
fn each_fault_is_refused_and_named() {
    let int = |n: i64| Some(Value::from(n));
    let text = |s: &str| Some(Value::from(s));
    let gate = "layers|0|experts|0|tensors|gate";
    let at = |field: &str| format!("{gate}|{field}");
    let mut second = document(&reference()).get("layers").unwrap().as_array().unwrap()[0].clone();
    edit(&mut second, "layer", int(1));
    let faults: Vec<(String, Option<Value>, &str)> = vec![
        ("expertStride".into(), int(16_385), "expertStride"),
        ("expertStride".into(), None, "expertStride"),
        ("numLayers".into(), int(0), "numLayers"),
        ("numLayers".into(), int(2), "layers: expected 2 entries, found 1"),
        ("expertsPerLayer".into(), int(3), "layers[0].experts: expected 3 entries, found 2"),
        ("expertsPerLayer".into(), Some((1u64 << 40).into()), "expertsPerLayer"),
        ("layers".into(), None, "layers"),
        ("layers".into(), int(1), "layers: expected an array"),
        ("layers|0".into(), int(1), "layers[0]: expected an object"),
        ("layers|0|layer".into(), int(1), "layers[0].layer: expected 0..1, found 1"),
        ("layers|0|layer".into(), int(-1), "layers[0].layer"),
        ("layers|0|file".into(), text("a/b"), "layers[0].file"),
        ("layers|0|file".into(), text(".."), "layers[0].file"),
        ("layers|0|file".into(), text("LAYOUT.json"), "layers[0].file"),
        ("layers|0|file".into(), int(1), "layers[0].file"),
        ("layers|0|experts".into(), None, "layers[0].experts"),
        ("layers|0|experts|1".into(), None, "layers[0].experts: expected 2 entries, found 1"),
        ("layers|0|experts|1".into(), int(1), "layers[0].experts[1]: expected an object"),
        ("layers|0|experts|1|expert".into(), int(0), "layers[0].experts[1].expert"),
        ("layers|0|experts|1|expert".into(), int(2), "layers[0].experts[1].expert"),
        ("layers|0|experts|1|physicalRank".into(), int(0), "layers[0].experts[1].physicalRank"),
        ("layers|0|experts|1|physicalRank".into(), int(-1), "layers[0].experts[1].physicalRank"),
        ("layers|0|experts|1|offset".into(), int(0), "layers[0].experts[1].offset: expected 16384, found 0"),
        ("layers|0|experts|1|offset".into(), int(-1), "layers[0].experts[1].offset"),
        ("layers|0|experts|1|size".into(), int(1), "layers[0].experts[1].size: expected 16384, found 1"),
        ("layers|0|experts|1|tensors".into(), None, "layers[0].experts[1].tensors"),
        ("layers|0|experts|1|tensors".into(), int(1), "layers[0].experts[1].tensors"),
        (gate.into(), int(1), "layers[0].experts[0].tensors.gate: expected an object"),
        ("layers|0|experts|0|tensors|".into(), Some(Value::Object(vec![])), "an empty role"),
        (at("dtype"), text("FP16"), "layers[0].experts[0].tensors.gate.dtype"),
        (at("dtype"), text("TILE16X64"), "gate.dtype: expected \"U32\" or \"BF16\" (layout v1)"),
        (at("shape"), Some(vec![].into()), "gate.shape"),
        (at("shape|0"), int(0), "gate.shape"),
        (at("shape|0"), int(1 << 32), "gate.shape"),
        (at("bits"), int(0), "gate.bits"),
        (at("bits"), int(33), "gate.bits"),
        (at("size"), int(0), "gate.size"),
        (at("size"), int(16_385), "gate.offset: 16385 bytes at 0 do not fit"),
        (at("offset"), int(16_384), "gate.offset"),
        (at("offset"), Some(u64::MAX.into()), "gate.offset"),
    ];
    for (path, new, wanted) in faults {
        let mut value = document(&reference());
        edit(&mut value, &path, new.clone());
        let message = parse(&value, Layout::V1).expect_err(&path).to_string();
        assert!(
            message.starts_with("packed_experts/layout.json: ") && message.contains(wanted),
            "{path} {new:?}: {message}"
        );
    }
    for (change, wanted) in
        [(None, "layers[1].file"), (Some(("layer", 0)), "layers[1].layer: layer 0 appears twice")]
    {
        let mut value = document(&reference());
        let mut again = second.clone();
        if let Some((key, n)) = change {
            edit(&mut again, key, int(n));
        }
        edit(&mut value, "numLayers", int(2));
        edit(&mut value, "layers|1", Some(again));
        let message = parse(&value, Layout::V1).unwrap_err().to_string();
        assert!(message.contains(wanted), "{message}");
    }
}

#[test]
fn overlapping_parts() {
    let part = |offset: u64| {
        json::object([
            ("dtype", "BF16".into()),
            ("offset", offset.into()),
            ("shape", vec![Value::from(4u8)].into()),
            ("size", 8u8.into()),
        ])
    };
    let with = |offset| {
        let mut value = document(&reference());
        edit(&mut value, "layers|0|experts|0|tensors|up", Some(part(offset)));
        parse(&value, Layout::V1)
    };
    let message = with(31).unwrap_err().to_string();
    assert!(message.contains("layers[0].experts[0].tensors: gate and up overlap"), "{message}");
    assert_eq!(with(32).unwrap().blobs.len(), 2, "the two experts now differ");
    with(16_376).unwrap();
    assert!(with(16_377).is_err());
}

#[test]
fn documents_that_are_no_layout() {
    for text in ["", "[]", "{}", "{\"layers\":[]}", "null", "{\"layers\":[{\"experts\":[{\"tensors\":{"] {
        assert!(ExpertLayout::parse(text.as_bytes(), Layout::V1).is_err(), "{text}");
    }
    // A fault inside a blob description is found although descriptions are compared as text.
    let text = String::from_utf8(reference().encode()).unwrap();
    for (from, to) in [
        ("\"bits\" : 4,", "\"bits\" : 4,,"),
        ("\"bits\" : 4", "\"bits\" : 4, \"bits\" : 4"),
        ("[\n", "[\n\"}\","),
    ] {
        assert!(ExpertLayout::parse(text.replacen(from, to, 1).as_bytes(), Layout::V1).is_err(), "{from}");
    }
    // Nor does one hide where nothing is looked for.
    for extra in [r#""x":[{"a":1,"a":1}]"#, r#""tensors":{"a":1,"a":1}"#, r#""numLayers":1"#] {
        let twice = text.replacen('{', &format!("{{{extra},"), 1);
        let message = ExpertLayout::parse(twice.as_bytes(), Layout::V1).unwrap_err().to_string();
        assert!(message.contains("packed_experts/layout.json: duplicate key"), "{message}");
    }
    let apart = text.replacen('{', r#"{"tensors":[],"x":{"y":0},"#, 1);
    assert_eq!(ExpertLayout::parse(apart.as_bytes(), Layout::V1).unwrap(), reference());
    let wide = format!("{{\"expertStride\":[{}0]}}", "0,".repeat(1 << 20));
    let message = ExpertLayout::parse(wide.as_bytes(), Layout::V1).unwrap_err().to_string();
    assert!(
        message.contains("expertStride: expected a positive multiple of 16384, found an array"),
        "{message}"
    );
    let deep = format!("{{\"unknown\":{}", "[".repeat(1 << 20));
    assert!(ExpertLayout::parse(deep.as_bytes(), Layout::V1).is_err());
}

#[test]
fn interleaved_panels() {
    let tiles = |role: &str, offset: u64, rows: u32, stride: u64| SubTensor {
        role: role.into(),
        dtype: SubDType::Tile16x64,
        shape: vec![rows, 64],
        bits: Some(4),
        offset,
        size: u64::from(rows / 16 - 1) * stride + 576,
        panel_stride: Some(stride),
    };
    let check = |parts: Vec<SubTensor>| {
        let layout = ExpertLayout { blobs: vec![parts], ..reference() };
        ExpertLayout::parse(&layout.encode(), Layout::Tiled).map(drop)
    };
    check(vec![tiles("gate", 0, 48, 1152), tiles("up", 576, 48, 1152)]).unwrap();
    check(vec![tiles("gate", 0, 48, 1728), tiles("up", 576, 48, 1728), tiles("more", 1152, 32, 1728)])
        .unwrap();
    for (why, parts) in [
        ("same place", vec![tiles("gate", 0, 48, 1152), tiles("up", 0, 48, 1152)]),
        ("touching", vec![tiles("gate", 0, 48, 1152), tiles("up", 512, 48, 1152)]),
        ("touching the next", vec![tiles("gate", 0, 48, 1152), tiles("up", 640, 48, 1152)]),
        ("other strides", vec![tiles("gate", 0, 48, 1152), tiles("up", 576, 48, 1728)]),
        ("stride below a panel", vec![tiles("gate", 0, 48, 512)]),
        ("stride not of 64", vec![tiles("gate", 0, 48, 600)]),
        ("start not of 64", vec![tiles("gate", 32, 48, 1152)]),
        ("rows", vec![SubTensor { shape: vec![40, 64], ..tiles("gate", 0, 48, 1152) }]),
        ("bits", vec![SubTensor { bits: Some(8), ..tiles("gate", 0, 48, 1152) }]),
        ("span", vec![SubTensor { size: 1152, ..tiles("gate", 0, 48, 1152) }]),
        ("rank", vec![SubTensor { shape: vec![16, 64, 1], ..tiles("gate", 0, 16, 576) }]),
        ("no stride", vec![SubTensor { panel_stride: None, ..tiles("gate", 0, 16, 576) }]),
        ("too far", vec![tiles("gate", 0, 48, 16_384)]),
        (
            "too many roles",
            (0..65).map(|i| SubTensor { role: format!("r{i}"), ..tiles("", i * 576, 16, 576) }).collect(),
        ),
    ] {
        assert!(check(parts).is_err(), "{why}");
    }
}

proptest::proptest! {
    #[test]
    fn no_damage_panics(at in 0usize..903, byte in proptest::prelude::any::<u8>(), cut in 0usize..903) {
        let mut bytes = reference().encode();
        bytes[at] = byte;
        for layout in [Layout::V1, Layout::Tiled] {
            let _ = ExpertLayout::parse(&bytes, layout);
            let _ = ExpertLayout::parse(&bytes[..cut], layout);
        }
    }
}
