//! What each command does.

use super::{Inner, Side, State, spawn};
use crate::bench::Bench;
use crate::jobs::After;
use crate::message::{
    Command, ConversationId, EngineSettings, Event, Job, Model, Service as ServiceState, Trouble,
};
use crate::plan::{Asked, Machine};
use crate::process::{Heard, Process};
use crate::trouble::plain;
use crate::wire::{Task, Told};
use crate::{documents, export, models, settings};
use fieldfare::install::hub::Remote;
use std::path::PathBuf;

impl State {
    pub(super) fn command(&mut self, command: Command) {
        match command {
            Command::FindModels { folders } => {
                self.folders = folders;
                self.find_models();
            }
            Command::AskOffer { folder } => self.ask_offer(folder),
            Command::Install { target } => self.install(target),
            Command::InstallDemo => {
                self.job(Job::Demo, &Task::Demo { folders: self.paths.models.clone() });
            }
            Command::Verify { model } => {
                if !self.jobs.is_running(Job::Verify) {
                    self.verifying.clone_from(&model);
                }
                self.job(Job::Verify, &Task::Verify { model });
            }
            Command::StopJob(job) => self.jobs.stop(job),
            Command::DiscardInstall { target } => {
                self.jobs.end_one(Job::Install);
                self.job(Job::Install, &Task::Discard { target });
            }
            Command::AskPlan { model, settings } => {
                self.planner.ask(Asked { model, settings, freed: self.service_memory });
            }
            Command::Load { model, settings } => self.load(model, settings),
            Command::Unload => {
                self.end_answer("the model was unloaded");
                self.sampler = None;
                self.service_memory = 0;
                self.service.unload();
                self.say.say(Event::Service(ServiceState::Off));
            }
            Command::Bench { model, memory_bytes, prompt, decode } => {
                self.begin_bench(model, memory_bytes, prompt, decode);
            }
            Command::StopBench => {
                if let Some(bench) = &mut self.bench {
                    bench.stop();
                }
            }
            Command::Ask { conversation, parent, text, documents, sampling } => {
                self.ask(conversation, parent, text, documents, sampling);
            }
            Command::Regenerate { conversation, question, sampling } => {
                self.regenerate(conversation, question, sampling);
            }
            Command::StopAnswer => self.stop_answer(),
            Command::ReadDocument { path } => self.read_document(path),
            Command::Count { text } => {
                if let Some(client) = self.service.client() {
                    self.counter.ask((client.clone(), text));
                }
            }
            Command::SaveSettings(text) => {
                let saved = settings::write(&self.paths.settings(), &text);
                self.told(saved);
            }
            Command::Watch(watch) => {
                self.watch = watch;
                self.tell_sampler();
            }
            // Taken before it comes here.
            Command::Close => {}
            other => self.library_command(other),
        }
    }

    fn library_command(&mut self, command: Command) {
        let changed = match command {
            Command::List { search } => {
                return match self.library.list(&search) {
                    Ok(conversations) => self.say.say(Event::Listed { search, conversations }),
                    Err(trouble) => self.told(Err(trouble)),
                };
            }
            Command::Open(id) => return self.open(id),
            Command::Create { system } => {
                let (conversation, saved) = self.library.create(system);
                let summary = conversation.summary.clone();
                self.say.say(Event::Opened(conversation));
                self.say.say(Event::Changed(summary));
                return self.told(saved);
            }
            Command::Rename(id, title) => {
                let saved = self.library.rename(id, title.trim());
                (id, saved)
            }
            Command::SetSystem(id, system) => (id, self.library.set_system(id, &system)),
            Command::SetLeaf(id, leaf) => (id, self.library.set_leaf(id, leaf)),
            Command::Delete(id) => {
                if self.is_answering(id) {
                    self.stop_answer();
                }
                let saved = self.library.hide(id, true);
                self.told(saved);
                return self.say.say(Event::Deleted(id));
            }
            Command::Restore(id) => (id, self.library.hide(id, false)),
            Command::Export { conversation, to } => return self.export(conversation, to),
            _ => return,
        };
        let (id, saved) = changed;
        self.told(saved);
        if let Some(summary) = self.library.summary(id) {
            self.say.say(Event::Changed(summary));
        }
    }

    fn open(&self, id: ConversationId) {
        match self.library.conversation(id) {
            Ok(Some(conversation)) => self.say.say(Event::Opened(conversation)),
            Ok(None) => self.told(Err(plain("this conversation is gone", ""))),
            Err(trouble) => self.told(Err(trouble)),
        }
    }

    fn export(&self, id: ConversationId, to: PathBuf) {
        let written = self.library.conversation(id).and_then(|conversation| {
            let conversation = conversation.ok_or_else(|| plain("this conversation is gone", ""))?;
            export::write(&conversation, &to)
        });
        match written {
            Ok(()) => self.say.say(Event::Exported(to)),
            Err(trouble) => self.told(Err(trouble)),
        }
    }

    fn read_document(&self, path: PathBuf) {
        let (say, client) = (self.say.clone(), self.service.client().cloned());
        let work = move || {
            let document = documents::read(&path).map(|mut document| {
                document.tokens = client.and_then(|client| client.count(&document.text).ok());
                document
            });
            say.say(Event::DocumentRead(document));
        };
        self.aside("document", work);
    }

    fn find_models(&self) {
        let say = self.say.clone();
        let folders: Vec<PathBuf> = self.paths.models.iter().chain(&self.folders).cloned().collect();
        self.aside("models", move || say.say(Event::Models(models::find(&folders))));
    }

    fn aside(&self, name: &str, work: impl FnOnce() + Send + 'static) {
        if let Err(error) = spawn(name, work) {
            self.told(Err(plain(format!("a thread cannot be started: {error}"), "Close other programs.")));
        }
    }

    fn ask_offer(&mut self, folder: PathBuf) {
        // A window that knows no folder asks for the usual one.
        let usual = self.paths.models.first().filter(|_| folder.as_os_str().is_empty());
        let folder = usual.cloned().unwrap_or(folder);
        let name = match &self.how.remote {
            Remote::Hub { repo, .. } => repo.rsplit('/').next().unwrap_or("model").to_owned(),
            Remote::Base { .. } => "model".to_owned(),
        };
        let task = Task::Offer { source: self.how.source(), target: folder.join(format!("{name}.gturbo")) };
        let inner = self.inner.clone();
        let started = Self::side(&mut self.offer, folder, &self.how.child, &task, move |number, heard| {
            drop(inner.send(Inner::Offer(number, heard)));
        });
        self.told(started);
    }

    /// Starts a small child in place of the one before.
    fn side(
        side: &mut Side,
        about: PathBuf,
        command: &[std::ffi::OsString],
        task: &Task,
        hear: impl Fn(u64, Heard) + Send + 'static,
    ) -> Result<(), Trouble> {
        side.number += 1;
        side.about = about;
        let number = side.number;
        side.process = None;
        side.process = Some(Process::start(command, task, move |heard| hear(number, heard))?);
        Ok(())
    }

    pub(super) fn heard_of_offer(&mut self, number: u64, heard: Heard) {
        if number != self.offer.number {
            return;
        }
        match heard {
            Heard::Told(Told::Offer(offer)) => self.say.say(Event::Offer(offer)),
            Heard::Told(Told::Failed(trouble)) => self.told(Err(trouble)),
            Heard::Told(_) => {}
            Heard::Ended(_) => self.offer.process = None,
        }
    }

    fn install(&mut self, target: PathBuf) {
        if self.jobs.is_running(Job::Install) {
            return;
        }
        self.installing.clone_from(&target);
        self.job(Job::Install, &Task::Install { source: self.how.source(), target });
    }

    fn job(&mut self, job: Job, task: &Task) {
        let inner = self.inner.clone();
        let started = self.jobs.start(job, task, &self.how.child, move |number, heard| {
            drop(inner.send(Inner::Job(job, number, heard)));
        });
        if let Err(trouble) = started {
            self.say.say(Event::JobFailed(job, trouble));
        }
    }

    pub(super) fn heard_of_job(&mut self, job: Job, number: u64, heard: Heard) {
        let say = self.say.clone();
        let After::Look { well } = self.jobs.hear(job, number, heard, &|event| say.say(event)) else {
            return;
        };
        self.find_models();
        let model = match job {
            Job::Install => &self.installing,
            Job::Verify => &self.verifying,
            Job::Demo => return,
        };
        if well {
            self.begin_measure(model.clone());
        }
    }

    /// Measures what the machine gives to a model, unless one runs: plans can then say what speed to expect.
    fn begin_measure(&mut self, model: PathBuf) {
        let runs = self.service.wanted().is_some() || self.bench.is_some();
        if runs || Machine::read(&self.paths.machine()).of(&model).is_some() {
            return;
        }
        let (inner, task) = (self.inner.clone(), Task::Measure { model: model.clone() });
        // Nobody asked for it, so nobody is told if it does not work.
        let _ = Self::side(&mut self.measure, model, &self.how.child, &task, move |number, heard| {
            drop(inner.send(Inner::Measure(number, heard)));
        });
    }

    pub(super) fn heard_of_measure(&mut self, number: u64, heard: Heard) {
        if number != self.measure.number {
            return;
        }
        match heard {
            Heard::Told(Told::Rates(rates)) => {
                Machine::note(&self.paths.machine(), &self.measure.about, Some(rates), None);
            }
            Heard::Told(_) => {}
            Heard::Ended(_) => self.measure.process = None,
        }
    }

    fn load(&mut self, model: Model, settings: EngineSettings) {
        if let Some(trouble) = self.busy() {
            return self.told(Err(trouble));
        }
        self.end_answer("a model was loaded meanwhile");
        // It measures nothing of use beside a model that loads.
        self.measure.process = None;
        self.sampler = None;
        self.service_memory = 0;
        let hear = self.hear_service();
        let state = self.service.load(model, settings, hear);
        self.say.say(Event::Service(state));
    }

    fn begin_bench(&mut self, model: PathBuf, budgets: Vec<u64>, prompt: u32, decode: u32) {
        if let Some(trouble) = self.busy() {
            return self.told(Err(trouble));
        }
        self.end_answer("a measurement was begun");
        self.measure.process = None;
        if self.service.wanted().is_some() {
            self.sampler = None;
            self.service_memory = 0;
            self.service.end_process();
            self.say.say(Event::Service(ServiceState::Off));
        }
        self.bench = Some(Bench::new(model, budgets, prompt, decode, self.how.locks.clone()));
        self.next_of_bench();
    }

    fn next_of_bench(&mut self) {
        let Some(bench) = &mut self.bench else { return };
        let inner = self.inner.clone();
        let more = bench.next(&self.how.child, move |number, heard| {
            drop(inner.send(Inner::Bench(number, heard)));
        });
        if more {
            return;
        }
        let Some(bench) = self.bench.take() else { return };
        let model = bench.model.clone();
        let outcome = bench.outcome();
        Machine::note(&self.paths.machine(), &model, outcome.rates, outcome.reached);
        self.say.say(Event::BenchDone(outcome.result));
        if self.service.wanted().is_some() {
            let hear = self.hear_service();
            let state = self.service.start(hear);
            self.say.say(Event::Service(state));
        }
    }

    pub(super) fn heard_of_bench(&mut self, number: u64, heard: Heard) {
        let say = self.say.clone();
        let Some(bench) = &mut self.bench else { return };
        if bench.hear(number, heard, &|event| say.say(event)) {
            self.next_of_bench();
        }
    }
}
