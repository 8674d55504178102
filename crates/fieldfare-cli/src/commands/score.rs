//! `fieldfare score`: how likely the model finds each token of a text, given those before it.

use crate::Outcome;
use crate::args::ScoreArgs;
use crate::commands::answer;
use crate::failure::Failure;
use crate::ui::progress::{Progress, Unit};
use crate::ui::report::{self, Table};
use crate::ui::style::Style;
use crate::ui::{output, terminal};
use crate::{input, interrupt};
use fieldfare::engine::{Cancel, Engine, Scores};
use serde_json::json;

/// Unlikely tokens that the summary names.
const SURPRISES: usize = 5;

/// Scores a text or tokens.
///
/// # Errors
/// Bad input, no model, a failure on the way, or Ctrl-C.
pub fn run(args: &ScoreArgs) -> Outcome {
    let (text, tokens) = match (&args.text_file, &args.tokens_file) {
        (Some(path), _) => (Some(input::text_file(path)?), Vec::new()),
        (None, Some(path)) => (None, input::tokens_file(path)?),
        // Clap has seen to it that one of the two is there.
        (None, None) => return Err(Failure::usage("nothing to score")),
    };
    interrupt::listen();
    let mut engine = answer::open(&args.model, &args.engine, &args.output, false)?;
    let ids = match text {
        Some(text) => answer::with_bos(&text, &engine)?,
        None => {
            input::check_vocabulary(&tokens, engine.vocab_size())?;
            tokens
        }
    };
    let progress = Progress::new("scoring", Unit::Tokens, args.output.quiet);
    let started = std::time::Instant::now();
    let scores = engine.session().score(&ids, args.top, &Cancel::new(), &mut |done| {
        progress.set(done as u64, ids.len() as u64);
        interrupt::flow()
    });
    progress.clear();
    let scores = scores?;
    if args.output.json {
        return print_json(&scores, args.top);
    }
    output::document(summary(&scores, &engine).text(Style::stdout()).as_bytes())?;
    if !args.output.quiet {
        let time = started.elapsed();
        let rate =
            report::rate(ids.len(), time).map(|rate| format!(" ({rate:.1} tok/s)")).unwrap_or_default();
        report::statistics(&format!("{} in {}{rate}", report::count(ids.len(), "token"), report::span(time)));
    }
    Ok(())
}

fn print_json(scores: &Scores, top: usize) -> Outcome {
    let mut object = json!({
        "tokens": scores.tokens,
        "logprobs": scores.logprobs,
        "argmax": scores.argmax,
        "perplexity": scores.perplexity,
    });
    if top > 0 {
        object["top"] = json!(scores.top);
    }
    output::json_line(&object)
}

fn summary(scores: &Scores, engine: &Engine) -> Table {
    let count = scores.logprobs.len();
    let mut table = Table::default();
    table.row("tokens", scores.tokens.len().to_string());
    if count == 0 {
        return table;
    }
    let mean = scores.logprobs.iter().map(|&p| f64::from(p)).sum::<f64>() / count as f64;
    let hits = scores.tokens.iter().skip(1).zip(&scores.argmax).filter(|(token, best)| token == best).count();
    table
        .row("perplexity", format!("{:.4}", scores.perplexity))
        .row("log-probability", format!("{mean:.4} a token ({:.4} bits)", -mean / std::f64::consts::LN_2))
        .row(
            "most likely",
            format!("{hits} of {count} tokens ({:.1} %)", 100.0 * hits as f64 / count as f64),
        );
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|&a, &b| scores.logprobs[a].total_cmp(&scores.logprobs[b]));
    for (rank, &at) in order.iter().take(SURPRISES).enumerate() {
        let name = if rank == 0 { "least likely" } else { "" };
        let id = scores.tokens[at + 1];
        let piece = engine.tokenizer().ok().and_then(|tokenizer| tokenizer.piece(id));
        let shown = piece.map(|piece| format!(" {:?}", terminal::one_line(piece))).unwrap_or_default();
        table.row(name, format!("{:9.4}  token {} = {id}{shown}", scores.logprobs[at], at + 1));
    }
    table
}
