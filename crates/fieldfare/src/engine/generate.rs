//! The token loop of one answer: read the prompt, choose, show, feed, until something ends it.

use super::answer::{Answer, Sink, Step};
use super::event::{Finish, Generation};
use super::options::{Cancel, GenerateOptions};
use super::score;
use super::session::Session;
use crate::model::Forward;
use crate::{Error, Result};
use std::ops::ControlFlow;

/// Runs one generation. The prompt is checked already.
pub(super) fn run<F: Forward>(
    session: &mut Session<'_, F>,
    prompt: &[u32],
    options: &GenerateOptions,
    cancel: &Cancel,
    sink: Sink<'_>,
) -> Result<Generation> {
    let counters = (session.counters)(session.forward);
    let mut answer = Answer::new(&session.setting(), prompt, options, counters)?;
    if let Some(top) = options.prompt_logprobs {
        let scores = score::run(session, prompt, 1, top, cancel, &mut |_| ControlFlow::Continue(()))?;
        answer.scored(scores, sink);
    }
    let finish = if answer.is_empty() {
        Finish::Length
    } else {
        token_loop(session, prompt, &mut answer, cancel, sink)?
    };
    let counters = (session.counters)(session.forward);
    Ok(answer.finish(finish, counters, sink))
}

fn token_loop<F: Forward>(
    session: &mut Session<'_, F>,
    prompt: &[u32],
    answer: &mut Answer<'_>,
    cancel: &Cancel,
    sink: Sink<'_>,
) -> Result<Finish> {
    let mut step = read_prompt(session, prompt, answer, cancel, sink)?;
    loop {
        let id = match step {
            Step::Next(id) => id,
            Step::End(finish) => return Ok(finish),
        };
        session.conversations.make_space(session.forward, 1, 0);
        let full = session.forward.position() + 1 >= session.forward.max_context();
        match session.forward.decode(id) {
            Ok(logits) => {
                session.conversations.push(id);
                step = answer.step(logits, full, cancel, sink)?;
            }
            Err(error) => {
                session.conversations.push(id);
                session.conversations.truncate(session.forward.position());
                return Err(error);
            }
        }
    }
}

/// Feeds what the cache lacks of the prompt and takes the first step.
fn read_prompt<F: Forward>(
    session: &mut Session<'_, F>,
    prompt: &[u32],
    answer: &mut Answer<'_>,
    cancel: &Cancel,
    sink: Sink<'_>,
) -> Result<Step> {
    let (reused, reuse) = session.converse(prompt);
    answer.met = (reused, reuse);
    if !answer.reading(reused, cancel, sink) {
        return Ok(Step::End(Finish::Cancelled));
    }
    let full = prompt.len() >= session.forward.max_context();
    let mut progress = |done: usize| {
        let goes_on = answer.reading(reused + done, cancel, sink);
        if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    let result = session.forward.prefill(&prompt[reused..], &mut progress);
    let result = result.and_then(|logits| answer.step(logits, full, cancel, sink));
    answer.fed = prompt.len() - reused;
    match result {
        Ok(step) => {
            session.conversations.set(prompt);
            Ok(step)
        }
        Err(error) => {
            session.resync(prompt);
            let asked = matches!(error, Error::Cancelled) && answer.is_unwanted(cancel);
            if asked { Ok(Step::End(Finish::Cancelled)) } else { Err(error) }
        }
    }
}
