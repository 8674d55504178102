//! `fieldfare generate`: raw text or ids go on, without the chat format.

use crate::Outcome;
use crate::args::GenerateArgs;
use crate::commands::answer;
use crate::{input, interrupt};
use fieldfare::engine::{Engine, GenerateOptions, OutputMode};

/// What was given to continue.
enum Given {
    Text(String),
    Tokens(Vec<u32>),
}

/// Continues the prompt.
///
/// # Errors
/// Bad input, no model, a failure on the way, or Ctrl-C.
pub fn run(args: &GenerateArgs) -> Outcome {
    let given = read(args)?;
    let schema = answer::schema(&args.sampling)?;
    interrupt::listen();
    let mut engine = answer::open(&args.model, &args.engine, &args.output, schema.is_some())?;
    let prompt = ids(&given, &engine)?;
    let plan = answer::plan(schema, &engine, false, false)?;
    let options = GenerateOptions { plan, ..answer::generate_options(&args.sampling, OutputMode::Raw) };
    let generation = answer::run(&mut engine.session(), &prompt, &options, &args.output)?;
    answer::finish(&generation, &engine, &args.output)
}

/// Reads the input before the model is opened, so that a mistake in it is known at once.
fn read(args: &GenerateArgs) -> Outcome<Given> {
    if let Some(text) = &args.prompt {
        input::not_empty(text, "--prompt")?;
        return Ok(Given::Text(text.clone()));
    }
    if let Some(path) = &args.prompt_file {
        return Ok(Given::Text(input::text_file(path)?));
    }
    // Clap has seen to it that one of the three is there.
    let path = args.tokens_file.as_deref().unwrap_or(std::path::Path::new("-"));
    Ok(Given::Tokens(input::tokens_file(path)?))
}

fn ids(given: &Given, engine: &Engine) -> Outcome<Vec<u32>> {
    match given {
        Given::Text(text) => answer::with_bos(text, engine),
        Given::Tokens(ids) => {
            input::check_vocabulary(ids, engine.vocab_size())?;
            Ok(ids.clone())
        }
    }
}
