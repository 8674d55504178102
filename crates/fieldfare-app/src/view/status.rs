//! The line at the bottom: what the engine does, how fast, and how much memory it has.

use crate::state::State;
use crate::{theme, words};
use eframe::egui::{self, Color32, RichText, Ui};
use fieldfare_app_worker::message::{Progress, Role, Service};

/// The engine's state in a few words, and its colour's meaning.
fn state_of(state: &State) -> (String, Tone) {
    match &state.service {
        Service::Off => ("No model loaded".to_owned(), Tone::Quiet),
        Service::Starting { model } => (format!("Loading {}…", model.name), Tone::Busy),
        Service::Crashed { restarting: true, .. } => ("Starting again…".to_owned(), Tone::Busy),
        Service::Crashed { restarting: false, .. } => ("The engine ended".to_owned(), Tone::Bad),
        Service::Failed(_) => ("The engine cannot start".to_owned(), Tone::Bad),
        Service::Ready { .. } if state.bench.running => ("Measuring".to_owned(), Tone::Busy),
        Service::Ready { .. } => match &state.answer {
            Some(answer) if answer.stopping => ("Stopping…".to_owned(), Tone::Busy),
            Some(answer) => match answer.prefill {
                Some((done, total)) => (format!("Prefill ({done}/{total})"), Tone::Busy),
                None if answer.pieces == 0 => ("Waiting for the first token".to_owned(), Tone::Busy),
                None if answer.text.is_empty() => ("Thinking".to_owned(), Tone::Busy),
                None => ("Answering".to_owned(), Tone::Busy),
            },
            None => ("Ready".to_owned(), Tone::Good),
        },
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Tone {
    Quiet,
    Good,
    Busy,
    Bad,
}

/// Tokens a second of the running answer, else of the last one shown.
fn speed(state: &State) -> Option<f64> {
    if let Some(answer) = &state.answer {
        let measured =
            state.seen.newest.as_ref().map(|sample| sample.tokens_per_second).filter(|rate| *rate > 0.0);
        return measured.or_else(|| {
            let seconds = state.now - answer.first_at?;
            (answer.pieces > 4 && seconds > 0.2).then(|| (answer.pieces - 1) as f64 / seconds)
        });
    }
    last_run(state).map(|run| run.decode_per_second)
}

fn last_run(state: &State) -> Option<fieldfare_app_worker::message::Run> {
    state.open.as_ref()?.shown().rev().find(|message| message.role == Role::Assistant)?.run
}

fn tokens(state: &State) -> Option<String> {
    if let Some(answer) = &state.answer {
        return Some(words::tokens(answer.pieces));
    }
    let run = last_run(state)?;
    let context = run.prompt_tokens + run.tokens;
    Some(match state.plan() {
        Some(plan) => {
            format!("{} of {} tokens", words::count(context), words::count(u64::from(plan.context)))
        }
        None => format!("{} tokens", words::count(context)),
    })
}

/// The line.
pub fn bar(ui: &mut Ui, state: &State) {
    let palette = theme::palette(ui);
    let (text, tone) = state_of(state);
    let color = match tone {
        Tone::Quiet => palette.weak,
        Tone::Good => palette.good,
        Tone::Busy => palette.accent,
        Tone::Bad => palette.bad,
    };
    ui.horizontal(|ui| {
        ui.spacing_mut().item_spacing.x = 7.0;
        dot(ui, color);
        ui.label(RichText::new(text).small().color(palette.text));
        for part in [speed(state).map(words::rate), tokens(state), memory(state)].into_iter().flatten() {
            ui.label(RichText::new("·").small().color(palette.weak));
            ui.label(RichText::new(part).small().color(palette.weak));
        }
        let cut = state.answer.is_none()
            && state
                .open
                .as_ref()
                .and_then(|open| open.shown().next_back())
                .is_some_and(|message| matches!(message.progress, Progress::Interrupted(_)));
        if cut {
            ui.label(RichText::new("· the last answer was interrupted").small().color(palette.warning));
        }
    });
}

fn memory(state: &State) -> Option<String> {
    let sample = state.seen.newest.as_ref()?;
    state.plan()?;
    let used = words::bytes(sample.memory_bytes);
    Some(if sample.budget_bytes > 0 {
        format!("memory {used} of {}", words::bytes(sample.budget_bytes))
    } else {
        format!("memory {used}")
    })
}

fn dot(ui: &mut Ui, color: Color32) {
    let (rect, _) = ui.allocate_exact_size(egui::vec2(10.0, 14.0), egui::Sense::hover());
    ui.painter().circle_filled(rect.center(), 4.0, color);
}
