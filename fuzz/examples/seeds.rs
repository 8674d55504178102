//! Writes a seed corpus and a dictionary for every fuzz target, made from the fixtures: `seeds OUTPUT`.
//!
//! Each seed stands whole and, where it is large, cut down to a few entries, which is what mutation works well on.

use fieldfare::format::{ExpertLayout, Layout, ResidentIndex};
use fieldfare::install::{InstallOptions, install_local};
use fieldfare::tokenizer::Tokenizer;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

type Outcome<T> = Result<T, Box<dyn Error>>;

struct Seeds {
    out: PathBuf,
    fixtures: PathBuf,
}

impl Seeds {
    fn put(&self, target: &str, name: &str, bytes: &[u8]) -> Outcome<()> {
        let dir = self.out.join(target);
        fs::create_dir_all(&dir)?;
        Ok(fs::write(dir.join(name), bytes)?)
    }

    /// libFuzzer's dictionary of the keys and short texts of a target's documents.
    fn dictionary(&self, target: &str, documents: &[Value]) -> Outcome<()> {
        let mut words = BTreeSet::new();
        for document in documents {
            collect(document, &mut words);
        }
        let mut text = String::new();
        for word in words.iter().take(400) {
            text.push('"');
            for byte in word.bytes() {
                match byte {
                    b'"' | b'\\' => text.extend(['\\', char::from(byte)]),
                    b' '..=b'~' => text.push(char::from(byte)),
                    _ => text.push_str(&format!("\\x{byte:02X}")),
                }
            }
            text.push_str("\"\n");
        }
        Ok(fs::write(self.out.join(format!("{target}.dict")), text)?)
    }

    fn json(&self, path: &str) -> Outcome<Value> {
        Ok(serde_json::from_slice(&fs::read(self.fixtures.join(path))?)?)
    }
}

fn collect(value: &Value, words: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                if key.len() <= 40 {
                    words.insert(format!("\"{key}\":"));
                }
                collect(value, words);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, words)),
        Value::String(text) if (1..=40).contains(&text.len()) => {
            words.insert(format!("\"{text}\""));
        }
        _ => {}
    }
}

/// The first `count` members.
fn first(map: &Map<String, Value>, count: usize) -> Value {
    Value::Object(map.iter().take(count).map(|(k, v)| (k.clone(), v.clone())).collect())
}

/// Model directories of both layouts: manifest, receipt, expert layout, resident index.
fn model_files(seeds: &Seeds) -> Outcome<()> {
    let work = seeds.out.join("models");
    let (mut manifests, mut layouts) = (Vec::new(), Vec::new());
    for (layout, name) in [(Layout::V1, "v1"), (Layout::Tiled, "tiled")] {
        let output = work.join(name);
        let from = seeds.fixtures.join("tiny-gemma4-a");
        let options = InstallOptions { from, output: output.clone(), layout, overwrite: true };
        install_local(&options, &mut |_| ControlFlow::Continue(()))?;
        for file in ["manifest.json", "verified-install.json"] {
            let bytes = fs::read(output.join(file))?;
            seeds.put("manifest", &format!("{name}-{file}"), &bytes)?;
            manifests.push(serde_json::from_slice(&bytes)?);
        }
        let bytes = fs::read(output.join("packed_experts/layout.json"))?;
        layouts.push(serde_json::from_slice(&bytes)?);
        let mut experts = ExpertLayout::parse(&bytes, layout)?;
        experts.layers.truncate(2);
        experts.experts_per_layer = 2;
        experts.layers.iter_mut().for_each(|layer| layer.experts.truncate(2));
        for layer in &mut experts.layers {
            for (rank, expert) in layer.experts.iter_mut().enumerate() {
                expert.physical_rank = rank as u32;
            }
        }
        seeds.put("layout", name, &experts.encode())?;

        let weights = fs::read(output.join("model_weights.bin"))?;
        let header = weights.first_chunk::<24>().ok_or("a short model_weights.bin")?;
        let region = &weights[..ResidentIndex::region_size(header, weights.len() as u64)?];
        let mut index = ResidentIndex::parse(region, weights.len() as u64, layout)?;
        let with_len = |region: &[u8], len: u64| [&len.to_le_bytes()[..], region].concat();
        seeds.put("resident_index", &format!("{name}-whole"), &with_len(region, weights.len() as u64))?;
        index.entries.truncate(3);
        index.index_size = 16_384;
        // Payload offsets move to behind the shorter index.
        let back = region.len() as u64 - index.index_size;
        for entry in &mut index.entries {
            for range in [&mut entry.data, &mut entry.scales, &mut entry.biases] {
                if !range.is_empty() {
                    *range = range.start - back..range.end - back;
                }
            }
        }
        seeds.put(
            "resident_index",
            &format!("{name}-few"),
            &with_len(&index.encode()?, index.index_size + index.resident_size),
        )?;
    }
    seeds.dictionary("manifest", &manifests)?;
    seeds.dictionary("layout", &layouts)?;
    Ok(fs::remove_dir_all(work)?)
}

/// The files of a checkpoint: safetensors header, index, config, tokenizer.
fn checkpoint_files(seeds: &Seeds) -> Outcome<()> {
    let tiny = seeds.fixtures.join("tiny-gemma4-a");
    let shard = fs::read(tiny.join("model.safetensors"))?;
    let len = u64::from_le_bytes(*shard.first_chunk().ok_or("a short shard")?) as usize;
    let text = &shard[8..8 + len];
    let header: Map<String, Value> = serde_json::from_slice(text)?;
    let put = |name: &str, text: &[u8], payload: u64| {
        seeds.put("safetensors_header", name, &[&payload.to_le_bytes()[..], text].concat())
    };
    put("whole", text, (shard.len() - 8 - len) as u64)?;
    // A few small tensors moved together, as a header and as a file.
    let (mut few, mut end) = (Map::new(), 0);
    for (name, entry) in header.iter().filter(|(name, _)| *name != "__metadata__") {
        let range: Vec<u64> = serde_json::from_value(entry["data_offsets"].clone())?;
        if few.len() < 5 && range[1] - range[0] <= 512 {
            let mut entry = entry.clone();
            entry["data_offsets"] = vec![end, end + range[1] - range[0]].into();
            end += range[1] - range[0];
            few.insert(name.clone(), entry);
        }
    }
    let text = serde_json::to_vec(&few)?;
    put("few", &text, end)?;
    let mut file = [&(text.len() as u64).to_le_bytes()[..], &text].concat();
    file.resize(file.len() + end as usize, 0);
    seeds.put("safetensors_header", "file", &file)?;
    seeds.dictionary("safetensors_header", &[Value::Object(few)])?;

    let config = seeds.json("tiny-gemma4-a/config.json")?;
    let mut index = seeds.json("tiny-gemma4-a/model.safetensors.index.json")?;
    seeds.put("checkpoint_json", "config", &serde_json::to_vec(&config)?)?;
    let map = index["weight_map"].as_object().ok_or("an index without weight_map")?;
    index["weight_map"] = first(map, 6);
    seeds.put("checkpoint_json", "index", &serde_json::to_vec(&index)?)?;
    seeds.dictionary("checkpoint_json", &[config, index])?;

    let tokenizer = fs::read(tiny.join("tokenizer.json"))?;
    let mut document: Value = serde_json::from_slice(&tokenizer)?;
    seeds.put("tokenizer_json", "whole", &tokenizer)?;
    let merges = document["model"]["merges"].as_array_mut().ok_or("a tokenizer without merges")?;
    merges.truncate(12);
    seeds.put("tokenizer_json", "few-merges", &serde_json::to_vec(&document)?)?;
    document["model"]["vocab"] = Value::Null;
    seeds.dictionary("tokenizer_json", &[document])?;
    let header_patch = [1, 8, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0];
    let word_patch = [1, 90, 1, 0, 1, 255, 255, 255, 255, 255, 255, 255, 255];
    for (i, patch) in [&[0][..], &header_patch, &word_patch].into_iter().enumerate() {
        seeds.put("tokenizer_cache", &i.to_string(), &[patch, "the end 🎉 <|turn>".as_bytes()].concat())?;
    }
    Ok(())
}

/// Conversations, tools and outputs.
fn chat(seeds: &Seeds) -> Outcome<()> {
    let cases = seeds.json("chat/cases.json")?;
    let requests = seeds.json("chat/client-requests.json")?;
    let (mut messages, mut tools, mut bodies) = (Vec::new(), Vec::new(), Vec::new());
    let sources = [("case", &cases["cases"]), ("request", &requests["requests"])];
    for (kind, list) in sources {
        for (i, item) in list.as_array().ok_or("a fixture without its list")?.iter().enumerate() {
            let item = item.get("body").unwrap_or(item);
            if kind == "request" && item.is_object() {
                seeds.put("server_request", &i.to_string(), &serde_json::to_vec(item)?)?;
                bodies.push(item.clone());
                let schema = item.pointer("/response_format/json_schema/schema");
                if let Some(schema) = schema.or_else(|| item.pointer("/tools/0/function/parameters")) {
                    seeds.put("json_schema", &i.to_string(), &serde_json::to_vec(schema)?)?;
                }
            }
            for (target, key, all) in
                [("messages", "messages", &mut messages), ("tools", "tools", &mut tools)]
            {
                if let Some(value) = item.get(key).filter(|v| v.as_array().is_some_and(|a| !a.is_empty())) {
                    seeds.put(target, &format!("{kind}-{i}"), &serde_json::to_vec(value)?)?;
                    all.push(value.clone());
                }
            }
        }
    }
    let extra = serde_json::json!([
        {"$ref": "#/$defs/a", "$defs": {"a": {}}, "allOf": [], "anyOf": [], "oneOf": [], "const": "x", "enum": [1],
         "nullable": true, "items": {}, "prefixItems": [], "input_schema": {}, "response": {}},
        "#", "null", "integer", "object", "array", "string", "#/properties/a"
    ]);
    tools.push(extra);
    seeds.dictionary("server_request", &bodies)?;
    seeds.dictionary("json_schema", &tools)?;
    seeds.dictionary("messages", &messages)?;
    seeds.dictionary("tools", &tools)?;

    let tokenizer = Tokenizer::open(&seeds.fixtures.join("tiny-gemma4-a/tokenizer.json"), None)?;
    let cases = seeds.json("chat/parse-cases.json")?;
    for (i, case) in cases["cases"].as_array().ok_or("no cases")?.iter().enumerate() {
        let Some(text) = case["text"].as_str() else { continue };
        let mut ids = Vec::new();
        tokenizer.encode_with_control(text, &mut ids);
        let mut bytes = vec![u8::from(case["start"] == "reasoning") | u8::from(case["end"] == "length") << 1];
        ids.iter().for_each(|id| bytes.extend((*id as u16).to_le_bytes()));
        seeds.put("output_parser", &i.to_string(), &bytes)?;
        for (k, call) in text.split("<|tool_call>").skip(1).enumerate() {
            let body = call.split("<tool_call|>").next().unwrap_or(call).replace("<|\"|>", "\u{1}");
            seeds.put("call_body", &format!("{i}-{k}"), body.as_bytes())?;
        }
    }
    seeds.put(
        "call_body",
        "own",
        "call:f{a:\u{1}x\u{1},b:[1,-2.5e3,{c:null,d:\"e\\n\"}],g:'h',i:True}".as_bytes(),
    )?;
    let words =
        ["call:f{", "call:get_weather{", ":\\x01", "\\x01,", "\\x01}", "None", "1e5", "'", "\\\\u00e9"];
    let lines: String = words.iter().map(|word| format!("\"{word}\"\n")).collect();
    Ok(fs::write(seeds.out.join("call_body.dict"), lines)?)
}

fn main() -> Outcome<()> {
    let out = PathBuf::from(std::env::args_os().nth(1).ok_or("seeds OUTPUT")?);
    fs::create_dir_all(&out)?;
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures");
    let seeds = Seeds { out, fixtures };
    model_files(&seeds)?;
    checkpoint_files(&seeds)?;
    chat(&seeds)
}
