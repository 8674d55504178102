//! What happens: `(state, event or action) -> state and effects`, without a window, a worker or a clock of its own.

mod chat;
mod models;

use crate::settings::Settings;
use crate::state::{Action, Dialog, Effect, JobState, Notice, Page, SAMPLES, State, Weight};
use crate::words;
use chat::{
    changed, delete, deleted, document_read, edit, file_name, finished, give_back_question, leave_edit,
    opened, piece, regenerate, saved, send_question, set_system, stop, title, version,
};
use fieldfare_app_worker::message::{Command, Event, Sample, Service, Trouble};
use models::{
    apply_plan, ask_offer, ask_plan, find_models, job_state, load, models_action, models_found, planned,
};

/// How long a deleted conversation can be brought back by its banner, in seconds.
const UNDO_SECONDS: f64 = 10.0;
/// How long a banner that needs no answer stays, in seconds.
const INFO_SECONDS: f64 = 6.0;
/// How long settings are left alone before they are kept, and text before it is counted, in seconds.
const REST_SECONDS: f64 = 0.6;
/// How long the worker has to end, in seconds.
const CLOSE_SECONDS: f64 = 15.0;

/// What is asked at the start.
pub fn start() -> Vec<Effect> {
    vec![send(Command::List { search: String::new() })]
}

fn send(command: Command) -> Effect {
    Effect::Send(command)
}

/// The worker said something.
pub fn event(state: &mut State, event: Event) -> Vec<Effect> {
    match event {
        Event::Settings(kept) => settings_read(state, kept),
        Event::Models(found) => models_found(state, found),
        Event::Offer(offer) => {
            // The offer's target is a directory of its own inside of the folder.
            let folder = offer.target.parent().unwrap_or(&offer.target);
            state.models.folder = folder.display().to_string();
            state.models.offer = Some(offer);
            Vec::new()
        }
        Event::JobStep(job, step) => job_state(state, job, JobState::Running(Some(step))),
        Event::JobDone(job, words) => job_state(state, job, JobState::Done(words)),
        Event::JobStopped(job, words) => job_state(state, job, JobState::Stopped(words)),
        Event::JobFailed(job, trouble) => job_state(state, job, JobState::Failed(trouble)),
        Event::Planned(settings, result) => planned(state, settings, result),
        Event::Service(service) => service_changed(state, service),
        Event::Listed { search, conversations } => {
            if search == state.library.search {
                state.library.list = conversations;
                state.library.listed = Some(search);
            }
            Vec::new()
        }
        Event::Opened(conversation) => opened(state, conversation),
        Event::Changed(summary) => changed(state, summary),
        Event::Deleted(id) => deleted(state, id),
        Event::Saved(conversation, message) => saved(state, conversation, message),
        Event::Prefill { answer, done, total } => {
            if let Some(writing) = state.answer.as_mut().filter(|writing| writing.id == answer) {
                writing.prefill = Some((done, total));
            }
            Vec::new()
        }
        Event::Piece { answer, text, thought } => {
            piece(state, answer, &text, &thought);
            Vec::new()
        }
        Event::Finished(conversation, message) => finished(state, conversation, message),
        Event::DocumentRead(result) => document_read(state, result),
        Event::Counted { text, tokens } => {
            state.composer.counted = Some((text, tokens));
            Vec::new()
        }
        Event::Exported(path) => {
            info(state, format!("Saved to {}.", path.display()));
            Vec::new()
        }
        Event::Sample(sample) => {
            sampled(state, sample);
            Vec::new()
        }
        Event::BenchRow(row) => {
            state.bench.rows.push(row);
            Vec::new()
        }
        Event::BenchDone(result) => {
            state.bench.running = false;
            state.bench.trouble = result.err();
            Vec::new()
        }
        Event::Trouble(trouble) => {
            give_back_question(state);
            error(state, trouble);
            Vec::new()
        }
        Event::Raise => vec![Effect::Front],
        Event::Closed => vec![Effect::Exit],
    }
}

/// The person did something.
pub fn action(state: &mut State, action: Action) -> Vec<Effect> {
    match action {
        Action::Go(page) => go(state, page),
        Action::ToggleSidebar => change_settings(state, |settings| settings.sidebar = !settings.sidebar),
        Action::NewChat => {
            leave_edit(state);
            state.open = None;
            state.new_system = None;
            state.page = Page::Chat;
            state.composer.focus = true;
            Vec::new()
        }
        Action::OpenChat(id) => {
            leave_edit(state);
            state.page = Page::Chat;
            state.composer.focus = true;
            if state.open_id() == Some(id) { Vec::new() } else { vec![send(Command::Open(id))] }
        }
        Action::SearchChanged => vec![send(Command::List { search: state.library.search.clone() })],
        Action::FocusSearch => {
            state.library.focus_search = true;
            if state.settings.sidebar {
                Vec::new()
            } else {
                change_settings(state, |settings| settings.sidebar = true)
            }
        }
        Action::BeginRename(id) => {
            let title = title(state, id);
            state.library.rename = Some((id, title));
            state.library.focus_rename = true;
            Vec::new()
        }
        Action::EndRename => match state.library.rename.take() {
            Some((id, name)) if !name.trim().is_empty() && name.trim() != title(state, id) => {
                vec![send(Command::Rename(id, name.trim().to_owned()))]
            }
            _ => Vec::new(),
        },
        Action::CancelRename => {
            state.library.rename = None;
            Vec::new()
        }
        Action::Delete(id) => delete(state, id),
        Action::Restore(id) => {
            state.notices.retain(|notice| {
                notice.button.as_ref().is_none_or(|(_, action)| **action != Action::Restore(id))
            });
            vec![send(Command::Restore(id))]
        }
        Action::Export(id) => {
            let name = file_name(&title(state, id));
            vec![Effect::Ask(Dialog::Export(id, format!("{name}.md")))]
        }
        Action::ExportTo(conversation, to) => vec![send(Command::Export { conversation, to })],
        Action::Send => send_question(state),
        Action::Stop => stop(state),
        Action::Regenerate(answer) => regenerate(state, answer),
        Action::Edit(id) => edit(state, id),
        Action::CancelEdit => {
            leave_edit(state);
            Vec::new()
        }
        Action::Version(id) => version(state, id),
        Action::Copy(text) => vec![Effect::Copy(text)],
        Action::Example(text) => {
            state.composer.text = text;
            state.composer.focus = true;
            typed(state)
        }
        Action::Typed => typed(state),
        Action::PickDocuments => vec![Effect::Ask(Dialog::Documents)],
        Action::Documents(paths) => {
            state.page = Page::Chat;
            state.composer.reading += paths.len();
            paths.into_iter().map(|path| send(Command::ReadDocument { path })).collect()
        }
        Action::RemoveDocument(index) => {
            if index < state.composer.documents.len() {
                state.composer.documents.remove(index);
            }
            Vec::new()
        }
        Action::SetSystem(system) => set_system(state, system),
        Action::Load(model) => load(state, model),
        Action::Unload => vec![send(Command::Unload)],
        Action::BenchRun => bench_run(state),
        Action::BenchStop => vec![send(Command::StopBench)],
        Action::Replan(draft) => {
            state.planning.draft = Some(draft);
            ask_plan(state)
        }
        Action::ApplyPlan => apply_plan(state),
        Action::RevertPlan => {
            state.planning.draft = None;
            ask_plan(state)
        }
        Action::Settings(settings) => change_settings(state, |kept| *kept = *settings),
        Action::Zoom(steps) => change_settings(state, |settings| {
            let zoom = if steps == 0 { 100 } else { settings.zoom_percent.saturating_add_signed(10 * steps) };
            settings.zoom_percent = zoom.clamp(*crate::settings::ZOOM.start(), *crate::settings::ZOOM.end());
        }),
        Action::Dismiss(id) => {
            state.notices.retain(|notice| notice.id != id);
            Vec::new()
        }
        Action::Visible(visible) => {
            state.visible = visible;
            Vec::new()
        }
        Action::Placed(place) => change_settings(state, |settings| settings.place = Some(place)),
        Action::Close => close(state),
        other => models_action(state, other),
    }
}

/// Time went on: what is due.
pub fn tick(state: &mut State) -> Vec<Effect> {
    let now = state.now;
    state.notices.retain(|notice| notice.until.is_none_or(|until| now < until));
    let mut effects = Vec::new();
    if state.unsaved_since.is_some_and(|since| now - since >= REST_SECONDS) {
        state.unsaved_since = None;
        effects.push(send(Command::SaveSettings(state.settings.write())));
    }
    if state.composer.uncounted_since.is_some_and(|since| now - since >= REST_SECONDS) {
        state.composer.uncounted_since = None;
        if !state.composer.text.is_empty() && state.plan().is_some() {
            effects.push(send(Command::Count { text: state.composer.text.clone() }));
        }
    }
    if state.closing.is_some_and(|since| now - since >= CLOSE_SECONDS) {
        effects.push(Effect::Exit);
    }
    let watching = wants_samples(state);
    if watching != state.watching {
        state.watching = watching;
        effects.push(send(Command::Watch(watching)));
    }
    effects
}

/// Whether somebody looks at the figures of the moment: each of them is a picture to draw.
fn wants_samples(state: &State) -> bool {
    let moving = state.answer.is_some() || state.bench.running || state.page == Page::Inspector;
    let unknown = state.seen.newest.is_none() && state.plan().is_some();
    state.visible && (moving || unknown)
}

/// Seconds until [`tick`] has something to do; none if it waits for nothing.
pub fn next_tick(state: &State) -> Option<f64> {
    let notices = state.notices.iter().filter_map(|notice| notice.until);
    let rests = [state.unsaved_since, state.composer.uncounted_since].into_iter().flatten();
    notices
        .chain(rests.map(|since| since + REST_SECONDS))
        .chain(state.closing.map(|since| since + CLOSE_SECONDS))
        .map(|at| (at - state.now).max(0.0))
        .min_by(f64::total_cmp)
}

fn settings_read(state: &mut State, kept: Option<String>) -> Vec<Effect> {
    state.settings = kept.as_deref().map(Settings::read).unwrap_or_default();
    state.settings_known = true;
    let mut effects = vec![find_models(state)];
    effects.extend(state.settings.place.map(Effect::Resize));
    effects
}

fn change_settings(state: &mut State, change: impl FnOnce(&mut Settings)) -> Vec<Effect> {
    let before = state.settings.clone();
    change(&mut state.settings);
    if state.settings != before && state.unsaved_since.is_none() {
        state.unsaved_since = Some(state.now);
    }
    Vec::new()
}

fn go(state: &mut State, page: Page) -> Vec<Effect> {
    state.page = page;
    match page {
        Page::Models => ask_offer(state),
        Page::Settings => ask_plan(state),
        Page::Chat => {
            state.composer.focus = true;
            Vec::new()
        }
        _ => Vec::new(),
    }
}

fn service_changed(state: &mut State, service: Service) -> Vec<Effect> {
    let mut effects = Vec::new();
    // Whatever was said about an earlier end is answered by the new state; a start that follows by itself, and may be
    // quicker than an eye, must not hide it.
    let again = matches!(state.service, Service::Crashed { restarting: true, .. });
    if again && matches!(service, Service::Starting { .. }) {
        // It stays.
    } else if matches!(service, Service::Ready { .. }) {
        let until = Some(state.now + UNDO_SECONDS);
        for notice in state.notices.iter_mut().filter(|notice| notice.message.starts_with(ENGINE)) {
            notice.until = until;
            notice.button = None;
        }
    } else {
        state.notices.retain(|notice| !notice.message.starts_with(ENGINE));
    }
    match &service {
        Service::Crashed { trouble, restarting } => {
            let button = (!restarting)
                .then(|| state.chosen().cloned())
                .flatten()
                .map(|model| ("Start again".to_owned(), Box::new(Action::Load(model))));
            let remedy = if *restarting {
                format!("It starts again by itself; the conversation is safe. {}", trouble.remedy)
            } else {
                trouble.remedy.clone()
            };
            let message = format!("{ENGINE} ended: {}", trouble.message);
            notice(state, Weight::Warning, message, remedy.trim().to_owned(), button, None);
        }
        Service::Failed(trouble) => {
            let button =
                state.chosen().cloned().map(|model| ("Try again".to_owned(), Box::new(Action::Load(model))));
            let message = format!("{ENGINE} cannot start: {}", trouble.message);
            notice(state, Weight::Error, message, trouble.remedy.clone(), button, None);
        }
        Service::Ready { .. } => {
            state.composer.uncounted_since = Some(state.now);
            effects = Vec::new();
        }
        Service::Off | Service::Starting { .. } => {}
    }
    let ready = matches!(service, Service::Ready { .. });
    state.service = service;
    if ready {
        effects.extend(ask_plan(state));
    }
    effects
}

const ENGINE: &str = "The engine";

fn sampled(state: &mut State, sample: Sample) {
    if state.seen.samples.len() >= SAMPLES {
        state.seen.samples.pop_front();
    }
    state.seen.samples.push_back(Sample { experts: Vec::new(), ..sample.clone() });
    if let (Some((done, total)), Some(answer)) = (sample.prefill, state.answer.as_mut())
        && answer.first_at.is_none()
    {
        answer.prefill = Some((done, total));
    }
    state.seen.newest = Some(sample);
    state.seen.newest_at = state.now;
}

fn typed(state: &mut State) -> Vec<Effect> {
    state.composer.uncounted_since = Some(state.now);
    Vec::new()
}

/// The budgets of the benchmark, or the first word that is none.
pub fn budgets(text: &str) -> Result<Vec<u64>, String> {
    let mut budgets = Vec::new();
    for word in text.split([',', ';']).map(str::trim).filter(|word| !word.is_empty()) {
        budgets.push(words::parse_bytes(word).ok_or_else(|| word.to_owned())?);
    }
    budgets.sort_unstable();
    budgets.dedup();
    Ok(budgets)
}

/// Why the benchmark cannot run; none if it can.
pub fn why_no_bench(state: &State) -> Option<String> {
    if state.chosen().is_none() {
        return Some("No model is installed.".to_owned());
    }
    if state.answer.is_some() {
        return Some("An answer is being written.".to_owned());
    }
    match budgets(&state.bench.budgets) {
        Err(word) => Some(format!("“{word}” is not a size; write 2GiB or 2.5 GB.")),
        Ok(budgets) if budgets.is_empty() => Some("No budget is given.".to_owned()),
        Ok(_) => None,
    }
}

fn bench_run(state: &mut State) -> Vec<Effect> {
    if why_no_bench(state).is_some() || state.bench.running {
        return Vec::new();
    }
    let (Ok(memory_bytes), Some(model)) = (budgets(&state.bench.budgets), state.chosen().cloned()) else {
        return Vec::new();
    };
    state.bench.rows.clear();
    state.bench.trouble = None;
    state.bench.running = true;
    state.bench.expected = memory_bytes.len();
    let (prompt, decode) = (state.bench.prompt, state.bench.decode);
    vec![send(Command::Bench { model: model.path, memory_bytes, prompt, decode })]
}

fn close(state: &mut State) -> Vec<Effect> {
    if state.closing.is_some() {
        // Asked twice: the person does not want to wait.
        return vec![Effect::Exit];
    }
    state.closing = Some(state.now);
    let mut effects = Vec::new();
    if state.unsaved_since.take().is_some() {
        effects.push(send(Command::SaveSettings(state.settings.write())));
    }
    effects.push(send(Command::Close));
    effects
}

fn notice(
    state: &mut State,
    weight: Weight,
    message: String,
    remedy: String,
    button: Option<(String, Box<Action>)>,
    until: Option<f64>,
) {
    // The same trouble again (a full disk, at every write) is one banner.
    state.notices.retain(|notice| notice.message != message);
    let id = state.next_notice;
    state.next_notice += 1;
    state.notices.push(Notice { id, weight, message, remedy, button, until });
}

fn error(state: &mut State, trouble: Trouble) {
    notice(state, Weight::Error, trouble.message, trouble.remedy, None, None);
}

fn info(state: &mut State, message: String) {
    let until = Some(state.now + INFO_SECONDS);
    notice(state, Weight::Info, message, String::new(), None, until);
}

#[cfg(test)]
mod tests;
