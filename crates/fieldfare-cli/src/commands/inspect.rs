//! `fieldfare inspect`: what a model directory is, where it came from, how large it is, what memory it takes.

use crate::Outcome;
use crate::args::InspectArgs;
use crate::locate;
use crate::ui::output;
use crate::ui::report::{self, Table};
use crate::ui::style::Style;
use fieldfare::engine::{self, EngineOptions};
use fieldfare::format::{self, Inspection, QuantSlot};
use serde_json::json;

/// Shows the directory.
///
/// # Errors
/// No model, a damaged one, a closed pipe.
pub fn run(args: &InspectArgs) -> Outcome {
    let directory = locate::model(args.place.path(), false)?;
    let inspection = format::inspect(&directory)?;
    let options =
        EngineOptions { memory: args.memory, max_context: args.max_context, ..EngineOptions::default() };
    let plan = engine::plan(&directory, &options);
    if args.json {
        // What cannot be planned here may be planned elsewhere: the rest is worth showing.
        let plan = match &plan {
            Ok(plan) => json!(plan),
            Err(error) => json!({ "error": error.to_string() }),
        };
        return output::json_line(&Described { inspection: &inspection, plan });
    }
    let mut table = table(&inspection);
    match plan {
        Ok(plan) => {
            table.section("Memory plan");
            for (at, line) in plan.lines().iter().enumerate() {
                table.row(if at == 0 { "now" } else { "" }, line.trim_start());
            }
        }
        Err(error) => {
            table.section("Memory plan").row("none", error.to_string());
        }
    }
    output::document(table.text(Style::stdout()).as_bytes())
}

/// The JSON object.
#[derive(serde::Serialize)]
struct Described<'a> {
    #[serde(flatten)]
    inspection: &'a Inspection,
    plan: serde_json::Value,
}

fn table(found: &Inspection) -> Table {
    let mut table = Table::default();
    table
        .section("Model")
        .row("directory", found.path.display().to_string())
        .row("source", source(found))
        .row("identity", found.manifest_sha256.clone())
        .row("layout", format!("{} (format {})", found.layout, found.version))
        .row("receipt", found.receipt.clone())
        .row("tokenizer", if found.has_tokenizer { "yes" } else { "no: token ids only" });
    architecture(&mut table, found);
    let quant = &found.quantization;
    table
        .section("Quantization")
        .row("embedding", bits(&quant.embedding))
        .row("attention", bits(&quant.attention))
        .row("router", bits(&quant.router))
        .row("shared expert", bits(&quant.shared_expert))
        .row("routed experts", bits(&quant.routed_expert));
    let (sizes, tensors) = (&found.sizes, &found.tensors);
    table
        .section("On disk")
        .row("resident weights", report::bytes(sizes.resident_bytes))
        .row(
            "of these",
            format!(
                "{} tensors: {} tiled, {} in source order, {} plain",
                tensors.total, tensors.tiled, tensors.source_order, tensors.plain
            ),
        )
        .row("experts", report::bytes(sizes.expert_bytes))
        .row("one expert", report::bytes(sizes.expert_stride_bytes))
        .row("sidecars", format!("{} ({})", report::bytes(sizes.sidecar_bytes), found.sidecars.join(", ")))
        .row("total", report::bytes(sizes.total_bytes));
    let memory = &found.memory;
    table
        .section("In memory")
        .row(
            "resident weights",
            format!("{} (mapped; the system may drop them)", report::bytes(memory.core_bytes)),
        )
        .row("KV cache", format!("{} at {} tokens", report::bytes(memory.kv_bytes), memory.context_tokens))
        .row(
            "expert slots",
            format!("{} at {} in each layer", report::bytes(memory.slots_bytes), memory.slots_per_layer),
        )
        .row("total", report::bytes(memory.total_bytes));
    table
}

fn source(found: &Inspection) -> String {
    if fieldfare_demo::is_demo(&found.path) {
        return "the demonstration model, a toy".to_owned();
    }
    let source = &found.source;
    let mut text = source.repo_id.clone().unwrap_or_else(|| found.model_id.clone());
    if let Some(revision) = source.revision.as_ref().or(source.snapshot_hash.as_ref()) {
        text.push_str(&format!(" at {revision}"));
    }
    if source.pinned {
        text.push_str(" (the pinned checkpoint)");
    }
    text
}

fn architecture(table: &mut Table, found: &Inspection) {
    let arch = &found.architecture;
    let full: Vec<_> = found.full_attention_layers.iter().map(usize::to_string).collect();
    table
        .section("Architecture")
        .row(
            "layers",
            format!(
                "{}, of which {} attend to everything ({}), the others to {} tokens",
                arch.num_hidden_layers,
                full.len(),
                full.join(" "),
                arch.sliding_window
            ),
        )
        .row("hidden size", arch.hidden_size.to_string())
        .row(
            "attention",
            format!(
                "{} heads; sliding {} KV heads of {}, full {} of {}",
                arch.num_attention_heads,
                arch.num_key_value_heads,
                arch.head_dim,
                arch.num_global_key_value_heads,
                arch.global_head_dim
            ),
        )
        .row(
            "experts",
            format!(
                "{} a layer, {} a token, width {}; shared one {}",
                arch.num_experts, arch.top_k_experts, arch.moe_intermediate_size, arch.intermediate_size
            ),
        )
        .row("vocabulary", arch.vocab_size.to_string());
}

fn bits(slot: &QuantSlot) -> String {
    format!(
        "{} bits, {}, groups of {} ({} scales, {} biases)",
        slot.weight_bits, slot.scheme, slot.group_size, slot.scale_type, slot.bias_type
    )
}
