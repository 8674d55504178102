//! Models: those that are here, the download, the demonstration model.

use super::{button_or_why, card, note, primary, row, strong, unless};
use crate::state::{Action, JobState, State};
use crate::{theme, words};
use eframe::egui::{Align, Button, Label, Layout, ProgressBar, RichText, TextEdit, Ui};
use fieldfare_app_worker::message::{Job, Model, Offer, Step};
use std::path::PathBuf;

/// All of it.
pub fn show(ui: &mut Ui, state: &mut State, out: &mut Vec<Action>) {
    let none = state.models.found.as_ref().is_some_and(Vec::is_empty);
    if none {
        ui.label("Fieldfare needs a model, once. Nothing else is ever fetched from the network.");
        ui.add_space(8.0);
    } else {
        found(ui, state, out);
    }
    download(ui, state, out);
    demo(ui, state, out);
    card(ui, "A model that is on this machine already", |ui| {
        ui.label("Choose a folder that is or contains a model directory (“.gturbo”).");
        if ui.button("Choose a folder…").clicked() {
            out.push(Action::PickModelFolder);
        }
    });
}

fn found(ui: &mut Ui, state: &State, out: &mut Vec<Action>) {
    let Some(models) = &state.models.found else {
        ui.label("Looking for models…");
        return;
    };
    card(ui, "On this machine", |ui| {
        for (place, model) in models.iter().enumerate() {
            if place > 0 {
                ui.separator();
            }
            ui.push_id(&model.path, |ui| one(ui, state, model, out));
        }
    });
}

fn one(ui: &mut Ui, state: &State, model: &Model, out: &mut Vec<Action>) {
    let palette = theme::palette(ui);
    let loaded = state.loaded().is_some_and(|loaded| loaded.path == model.path);
    ui.horizontal(|ui| {
        ui.vertical(|ui| {
            ui.label(strong(model.name.as_str(), &palette));
            note(ui, format!("{} · {}", words::bytes(model.bytes), model.path.display()));
        });
    });
    let verifying = matches!(&state.models.verify, Some((path, JobState::Running(_))) if *path == model.path);
    ui.horizontal(|ui| {
        if loaded {
            if ui.button("Unload").clicked() {
                out.push(Action::Unload);
            }
        } else if button_or_why(ui, Button::new("Load"), state.bench.running.then_some("The benchmark runs."))
        {
            out.push(Action::Load(model.clone()));
        }
        if verifying {
            if ui.button("End the check").clicked() {
                out.push(Action::StopJob(Job::Verify));
            }
        } else {
            let why = state.busy_job().map(|_| "Something else is being written or checked.");
            if button_or_why(ui, Button::new("Check every byte"), why) {
                out.push(Action::Verify(model.path.clone()));
            }
        }
    });
    if let Some((path, job)) = &state.models.verify
        && *path == model.path
    {
        progress(ui, job, "Checking");
    }
}

fn download(ui: &mut Ui, state: &mut State, out: &mut Vec<Action>) {
    let name = state.models.offer.as_ref().map_or("Gemma 4 26B-A4B", |offer| offer.name.as_str()).to_owned();
    card(ui, &name, |ui| {
        ui.label("The large model: answers questions, writes, translates, programs. It stays on the disk and needs from 2 GB of memory.");
        ui.add_space(4.0);
        let running = matches!(state.models.install, Some(JobState::Running(_)));
        let why = running.then_some("A download into it is running; pause it first.");
        row(ui, "Folder", |ui| {
            let width = (ui.available_width() - 100.0).max(120.0);
            let edit = TextEdit::singleline(&mut state.models.folder).desired_width(width);
            let field = unless(ui, why, edit).accessible_name("Folder for the download");
            let asked = state.models.offer.as_ref().and_then(|offer| offer.target.parent());
            let folder = PathBuf::from(state.models.folder.trim());
            if field.lost_focus() && !running && asked != Some(folder.as_path()) {
                out.push(Action::InstallFolder(folder));
            }
            if unless(ui, why, Button::new("Choose…")).clicked() {
                out.push(Action::PickInstallFolder);
            }
        });
        if let Some(reason) = why {
            row(ui, "", |ui| note(ui, reason));
        }
        match &state.models.offer {
            None => {
                ui.label("Asking what would be fetched…");
            }
            Some(offer) if offer.fetch_bytes > 0 => sizes(ui, offer),
            // What stands in the way is said beside the button.
            Some(_) => {}
        }
        ui.add_space(6.0);
        if let Some(job) = &state.models.install {
            progress(ui, job, "Downloading");
        }
        install_buttons(ui, state, running, out);
        note(
            ui,
            "Fetched from the model hub in parts and checked; closing the window or losing the network loses nothing.",
        );
    });
}

fn sizes(ui: &mut Ui, offer: &Offer) {
    let palette = theme::palette(ui);
    row(ui, "Download", |ui| {
        let left = offer.fetch_bytes.saturating_sub(offer.kept_bytes);
        let text = if offer.kept_bytes > 0 {
            format!(
                "{} to go; {} of {} are here already",
                words::bytes(left),
                words::bytes(offer.kept_bytes),
                words::bytes(offer.fetch_bytes)
            )
        } else {
            words::bytes(offer.fetch_bytes)
        };
        ui.label(text);
    });
    row(ui, "Space", |ui| {
        let enough = offer.free_bytes >= offer.need_bytes;
        let color = if enough { palette.text } else { palette.bad };
        let text =
            format!("{} needed, {} free", words::bytes(offer.need_bytes), words::bytes(offer.free_bytes));
        ui.label(RichText::new(text).color(color));
    });
}

fn install_buttons(ui: &mut Ui, state: &State, running: bool, out: &mut Vec<Action>) {
    if running {
        if ui.button("Pause").clicked() {
            out.push(Action::StopJob(Job::Install));
        }
        return;
    }
    let kept = state.models.offer.as_ref().is_some_and(|offer| offer.kept_bytes > 0)
        || matches!(state.models.install, Some(JobState::Stopped(_) | JobState::Failed(_)));
    let obstacle = match &state.models.offer {
        None => Some("The sizes are not known yet."),
        Some(offer) => offer.obstacle.as_deref(),
    };
    let why = obstacle.or_else(|| state.busy_job().map(|_| "Something else is being written or checked."));
    let done = matches!(state.models.install, Some(JobState::Done(_)));
    let unknown = state.models.offer.as_ref().is_some_and(|offer| offer.obstacle.is_some());
    ui.horizontal_wrapped(|ui| {
        let name = if kept { "Resume" } else { "Download" };
        let button = primary(ui, name);
        if !done && unless(ui, why, button).clicked() {
            out.push(Action::Install);
        }
        if unknown && ui.button("Ask again").clicked() {
            out.push(Action::InstallFolder(PathBuf::from(state.models.folder.trim())));
        }
        if kept && !done && ui.button("Throw away").on_hover_text("Deletes what was fetched so far").clicked()
        {
            out.push(Action::Discard);
        }
    });
    // On lines of its own: it may be long.
    if let Some(reason) = why.filter(|_| !done) {
        note(ui, reason);
    }
}

fn demo(ui: &mut Ui, state: &State, out: &mut Vec<Action>) {
    let here = state.models.found.iter().flatten().any(|model| model.is_demo);
    card(ui, "Demonstration model", |ui| {
        ui.label("A toy of 18 million parameters that comes with the program (12.6 MB on the disk, no download). It answers simple questions and shows that everything works.");
        ui.add_space(4.0);
        if let Some(job) = &state.models.demo {
            progress(ui, job, "Unpacking");
        }
        let why = if here {
            Some("It is installed.")
        } else {
            state.busy_job().map(|_| "Something else is being written or checked.")
        };
        ui.horizontal(|ui| {
            if button_or_why(ui, Button::new("Try it"), why) {
                out.push(Action::InstallDemo);
            }
        });
    });
}

/// How far a job is, or how it ended.
fn progress(ui: &mut Ui, job: &JobState, verb: &str) {
    let palette = theme::palette(ui);
    match job {
        JobState::Running(None) => {
            ui.label(format!("{verb}…"));
        }
        JobState::Running(Some(step)) => running(ui, step),
        JobState::Done(text) => {
            ui.add(Label::new(RichText::new(text).color(palette.good)).wrap());
        }
        JobState::Stopped(text) => {
            ui.add(Label::new(text.as_str()).wrap());
        }
        JobState::Failed(trouble) => {
            ui.add(Label::new(RichText::new(&trouble.message).color(palette.bad)).wrap());
            if !trouble.remedy.is_empty() {
                ui.add(Label::new(trouble.remedy.as_str()).wrap());
            }
        }
    }
}

fn running(ui: &mut Ui, step: &Step) {
    let palette = theme::palette(ui);
    ui.label(&step.stage);
    let share = if step.total_bytes > 0 { step.done_bytes as f32 / step.total_bytes as f32 } else { 0.0 };
    let percent = format!("{:.0} %", (share * 100.0).floor());
    let width = ui.available_width();
    let bar = ProgressBar::new(share)
        .desired_width(width)
        .desired_height(16.0)
        .fill(palette.button)
        .corner_radius(4);
    ui.add(bar).accessible_name(format!("{}: {percent}", step.stage));
    ui.horizontal(|ui| {
        let of =
            format!("{percent} · {} of {}", words::bytes(step.done_bytes), words::bytes(step.total_bytes));
        ui.label(RichText::new(of).small());
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            let mut parts = Vec::new();
            if step.bytes_per_second > 0 {
                parts.push(format!("{}/s", words::bytes(step.bytes_per_second)));
            }
            parts.extend(step.seconds_left.map(|seconds| format!("{} left", words::duration(seconds))));
            ui.label(RichText::new(parts.join(" · ")).small());
        });
    });
    if let Some(text) = &step.note {
        ui.add(Label::new(RichText::new(text).color(palette.warning)).wrap());
    }
}
