//! `fieldfare chat`: one answer to a text, a pipe or a file of messages, or a conversation on a terminal.

pub mod conversation;
pub mod editor;
pub mod messages;

use crate::Outcome;
use crate::args::{ChatArgs, OutputArgs};
use crate::commands::answer;
use crate::ui::report;
use crate::{demo, input, interrupt, locate};
use conversation::{Conversation, Reply, Respond};
use fieldfare::chat::{self, Message, RenderOptions};
use fieldfare::engine::{Finish, GenerateOptions, Generation, OutputMode, Session};
use fieldfare::grammar::Schema;
use fieldfare::tokenizer::Tokenizer;
use std::io::IsTerminal;
use std::path::Path;

/// Answers, or talks.
///
/// # Errors
/// Bad input, no model, a failure on the way, or Ctrl-C.
pub fn run(args: &ChatArgs) -> Outcome {
    let messages = read(args)?;
    let schema = answer::schema(&args.sampling)?;
    let directory = locate::model_or_offer(args.model.model.as_deref(), &args.output)?;
    match messages {
        Some(messages) => one_answer(args, &directory, &messages, schema),
        None => talk(args, &directory, schema),
    }
}

/// The conversation to answer, or `None` for one on the terminal.
fn read(args: &ChatArgs) -> Outcome<Option<Vec<Message>>> {
    let mut messages: Vec<Message> = system(args).map(Message::system).into_iter().collect();
    if let Some(file) = &args.messages_file {
        messages.extend(messages::read(file)?);
        return Ok(Some(messages));
    }
    let terminal = std::io::stdin().is_terminal();
    let text = if !args.text.is_empty() {
        let text = args.text.join(" ");
        input::not_blank(&text, "the message")?;
        text
    } else if terminal && std::io::stdout().is_terminal() && !args.output.json {
        return Ok(None);
    } else {
        if terminal && !args.output.quiet {
            report::note("(type the message; Ctrl-D on a line of its own ends it)");
        }
        input::message_stdin()?
    };
    messages.push(Message::user(text));
    Ok(Some(messages))
}

/// The instructions; blank ones are none.
fn system(args: &ChatArgs) -> Option<&str> {
    args.system.as_deref().filter(|text| !text.trim().is_empty())
}

fn render_options(args: &ChatArgs) -> RenderOptions {
    RenderOptions { enable_thinking: args.think, ..RenderOptions::default() }
}

fn mode(starts_in_reasoning: bool) -> OutputMode {
    OutputMode::Chat { starts_in_reasoning, tools: Vec::new() }
}

fn one_answer(args: &ChatArgs, directory: &Path, messages: &[Message], schema: Option<Schema>) -> Outcome {
    interrupt::listen();
    let mut engine = answer::open_at(directory, &args.engine, &args.output, 0, schema.is_some())?;
    let tokenizer = engine.tokenizer()?.clone();
    let prompt = chat::prompt(messages, &[], &render_options(args), &tokenizer)?;
    let plan = answer::plan(schema, &engine, args.think, prompt.starts_in_reasoning)?;
    let options = GenerateOptions {
        plan,
        ..answer::generate_options(&args.sampling, mode(prompt.starts_in_reasoning))
    };
    let generation = answer::run(&mut engine.session(), &prompt.ids, &options, &args.output)?;
    answer::finish(&generation, &engine, &args.output)
}

fn talk(args: &ChatArgs, directory: &Path, schema: Option<Schema>) -> Outcome {
    let lines = editor::TerminalLines::open(!args.no_history)?;
    interrupt::listen();
    let mut engine = answer::open_at(directory, &args.engine, &args.output, 1, schema.is_some())?;
    let tokenizer = engine.tokenizer()?.clone();
    if !args.output.quiet {
        if fieldfare_demo::is_demo(directory) {
            report::note(&demo::banner());
        }
        report::note("Talk with the model. /help lists commands, Ctrl-C stops an answer, Ctrl-D leaves.");
    }
    // A conversation without tools never begins inside a thought.
    let plan = answer::plan(schema, &engine, args.think, false)?;
    interrupt::at_prompt();
    let engine_answers = EngineAnswers {
        session: engine.session(),
        tokenizer: &tokenizer,
        render: render_options(args),
        options: GenerateOptions { plan, ..answer::generate_options(&args.sampling, mode(false)) },
        output: &args.output,
    };
    Conversation::new(lines, engine_answers, system(args).map(str::to_owned), &mut std::io::stderr()).run()
}

/// The engine as the other side of a conversation.
struct EngineAnswers<'a> {
    session: Session<'a>,
    tokenizer: &'a Tokenizer,
    render: RenderOptions,
    options: GenerateOptions,
    output: &'a OutputArgs,
}

impl Respond for EngineAnswers<'_> {
    fn respond(&mut self, messages: &[Message]) -> Outcome<Reply> {
        interrupt::answering();
        let result = self.answer(messages);
        interrupt::at_prompt();
        result
    }
}

impl EngineAnswers<'_> {
    fn answer(&mut self, messages: &[Message]) -> Outcome<Reply> {
        let prompt = chat::prompt(messages, &[], &self.render, self.tokenizer)?;
        self.options.mode = mode(prompt.starts_in_reasoning);
        let generation = answer::run(&mut self.session, &prompt.ids, &self.options, self.output)?;
        self.remarks(&generation);
        Ok(Reply { content: generation.text, reasoning: generation.reasoning })
    }

    fn remarks(&self, generation: &Generation) {
        if self.output.quiet {
            return;
        }
        match generation.finish {
            Finish::Length => {
                report::note("(cut short: the limit of new tokens or of the context is reached)");
            }
            Finish::Cancelled => report::note("(stopped)"),
            Finish::Stop | Finish::ToolCalls => {}
        }
        answer::remark_calls(generation);
        report::statistics(&answer::statistics(generation));
    }
}
