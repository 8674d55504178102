//! Models: the download, loading, and what a budget would mean.

use super::{change_settings, send};
use crate::state::{Action, Dialog, Effect, JobState, Page, Planning, State};
use fieldfare_app_worker::message::{Command, EngineSettings, Job, Model, Plan, Service, Trouble};
use std::path::PathBuf;

/// What a person does on the page of models.
pub(super) fn models_action(state: &mut State, action: Action) -> Vec<Effect> {
    match action {
        Action::PickInstallFolder => {
            vec![Effect::Ask(Dialog::InstallFolder(PathBuf::from(&state.models.folder)))]
        }
        Action::InstallFolder(folder) => {
            state.models.folder = folder.display().to_string();
            state.models.offer = None;
            vec![send(Command::AskOffer { folder })]
        }
        Action::Install => match &state.models.offer {
            Some(offer) if offer.obstacle.is_none() => {
                let target = offer.target.clone();
                state.models.install = Some(JobState::Running(None));
                state.models.load_next = true;
                vec![send(Command::Install { target })]
            }
            _ => Vec::new(),
        },
        Action::StopJob(job) => vec![send(Command::StopJob(job))],
        Action::Discard => match &state.models.offer {
            Some(offer) => {
                let target = offer.target.clone();
                state.models.install = None;
                let folder = PathBuf::from(state.models.folder.trim());
                vec![send(Command::DiscardInstall { target }), send(Command::AskOffer { folder })]
            }
            None => Vec::new(),
        },
        Action::InstallDemo => {
            state.models.demo = Some(JobState::Running(None));
            state.models.load_next = true;
            vec![send(Command::InstallDemo)]
        }
        Action::Verify(model) => {
            state.models.verify = Some((model.clone(), JobState::Running(None)));
            vec![send(Command::Verify { model })]
        }
        Action::FindModels => vec![find_models(state)],
        Action::PickModelFolder => vec![Effect::Ask(Dialog::ModelFolder)],
        Action::ModelFolder(folder) => {
            let mut effects = Vec::new();
            if !state.settings.folders.contains(&folder) {
                effects = change_settings(state, |settings| settings.folders.push(folder));
            }
            effects.push(find_models(state));
            effects
        }
        _ => Vec::new(),
    }
}

pub(super) fn find_models(state: &State) -> Effect {
    let mut folders = state.settings.folders.clone();
    folders.extend(state.wanted.clone());
    send(Command::FindModels { folders })
}

pub(super) fn models_found(state: &mut State, found: Vec<Model>) -> Vec<Effect> {
    let first_time = state.models.found.is_none();
    let newest = found
        .iter()
        .find(|model| !state.models.found.as_ref().is_some_and(|known| known.contains(model)))
        .cloned();
    state.models.found = Some(found);
    if state.models.found.as_ref().is_some_and(Vec::is_empty) {
        if first_time {
            state.page = Page::Models;
        }
        return ask_offer(state);
    }
    let mut effects = Vec::new();
    if state.models.load_next && newest.is_some() && state.busy_job().is_none() {
        state.models.load_next = false;
        state.page = Page::Chat;
        state.composer.focus = true;
        if let Some(model) = newest {
            effects.extend(load(state, model));
        }
    } else if first_time && (state.settings.load_at_start || state.wanted.is_some()) {
        if let Some(model) = state.chosen().cloned() {
            effects.extend(load(state, model));
        }
    } else {
        effects.extend(ask_plan(state));
    }
    effects
}

pub(super) fn ask_offer(state: &State) -> Vec<Effect> {
    if state.models.offer.is_some() {
        return Vec::new();
    }
    // An empty folder stands for the usual place.
    vec![send(Command::AskOffer { folder: PathBuf::from(state.models.folder.trim()) })]
}

pub(super) fn job_state(state: &mut State, job: Job, new: JobState) -> Vec<Effect> {
    let done = matches!(new, JobState::Done(_));
    match job {
        Job::Install => state.models.install = Some(new),
        Job::Demo => state.models.demo = Some(new),
        Job::Verify => {
            let path = state.models.verify.take().map(|(path, _)| path).unwrap_or_default();
            state.models.verify = Some((path, new));
        }
    }
    if done && job != Job::Verify { vec![find_models(state)] } else { Vec::new() }
}

pub(super) fn load(state: &mut State, model: Model) -> Vec<Effect> {
    // A plan for another model says nothing about this one.
    if state.planning.model.as_ref() != Some(&model.path) {
        state.planning = Planning::default();
        // A budget that was set for one model is not meant for a much smaller or larger one.
        if state.settings.model.as_ref().is_some_and(|last| *last != model.path) {
            let _ = change_settings(state, |settings| {
                settings.memory_bytes = None;
                settings.slots = None;
                settings.context = None;
            });
        }
    }
    let path = model.path.clone();
    let _ = change_settings(state, |settings| settings.model = Some(path));
    state.wanted = None;
    vec![send(Command::Load { model, settings: state.settings.engine() })]
}

pub(super) fn ask_plan(state: &mut State) -> Vec<Effect> {
    let Some(model) = state.chosen().map(|model| model.path.clone()) else { return Vec::new() };
    if state.planning.model.as_ref() != Some(&model) {
        let draft = state.planning.draft.take();
        state.planning = Planning { draft, model: Some(model.clone()), ..Default::default() };
    }
    // The end of the slider first; only the newest question is answered.
    let question = if state.planning.automatic.is_none() {
        EngineSettings { memory_bytes: None, slots: None, ..state.draft() }
    } else {
        state.draft()
    };
    let known = state.planning.planned.as_ref().is_some_and(|(settings, _)| *settings == question);
    if known || state.planning.asked.as_ref() == Some(&question) {
        return Vec::new();
    }
    state.planning.asked = Some(question.clone());
    vec![send(Command::AskPlan { model, settings: question })]
}

pub(super) fn planned(
    state: &mut State,
    settings: EngineSettings,
    result: Result<Plan, Trouble>,
) -> Vec<Effect> {
    if state.planning.asked.as_ref() == Some(&settings) {
        state.planning.asked = None;
    }
    if state.planning.automatic.is_none() && settings.memory_bytes.is_none() {
        state.planning.automatic = result.as_ref().ok().cloned();
    }
    let failed_at_all = state.planning.automatic.is_none() && result.is_err();
    state.planning.planned = Some((settings, result));
    if failed_at_all { Vec::new() } else { ask_plan(state) }
}

pub(super) fn apply_plan(state: &mut State) -> Vec<Effect> {
    let draft = state.draft();
    let effects = change_settings(state, |settings| settings.set_engine(&draft));
    state.planning.draft = None;
    match (&state.service, state.chosen().cloned()) {
        (Service::Off, _) | (_, None) => effects,
        (_, Some(model)) => load(state, model),
    }
}
