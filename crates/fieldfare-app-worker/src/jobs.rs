//! Long jobs as seen from the window's process: each is a child that can be let go at any time.

use crate::message::{Event, Job, Trouble};
use crate::process::{Heard, Process};
use crate::service::explain;
use crate::wire::{Task, Told};
use std::collections::HashMap;
use std::ffi::OsString;

/// A running job.
struct Running {
    process: Process,
    /// Which start it is: what an earlier one still says is nothing to it.
    number: u64,
    /// The child has said how it ended.
    said: bool,
    /// It went well.
    well: bool,
    /// It throws away instead of making.
    discards: bool,
}

/// Those that run.
#[derive(Default)]
pub(crate) struct Jobs {
    running: HashMap<Job, Running>,
    next: u64,
}

/// What a job's end means for the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// Nothing.
    Nothing,
    /// It ended, and models may have changed.
    Look {
        /// It did what it was to do, and a model is there.
        well: bool,
    },
}

impl Jobs {
    /// Starts a job.
    ///
    /// # Errors
    /// It runs already, or the system starts no process.
    pub(crate) fn start(
        &mut self,
        job: Job,
        task: &Task,
        command: &[OsString],
        hear: impl Fn(u64, Heard) + Send + 'static,
    ) -> Result<(), Trouble> {
        if self.running.contains_key(&job) {
            return Ok(());
        }
        self.next += 1;
        let number = self.next;
        let process = Process::start(command, task, move |heard| hear(number, heard))?;
        let discards = matches!(task, Task::Discard { .. });
        self.running.insert(job, Running { process, number, said: false, well: false, discards });
        Ok(())
    }

    /// Pauses a download, ends a check.
    pub(crate) fn stop(&self, job: Job) {
        if let Some(running) = self.running.get(&job) {
            running.process.ask_to_end();
        }
    }

    /// Ends one and waits for it; nothing more is heard of it.
    pub(crate) fn end_one(&mut self, job: Job) {
        self.running.remove(&job);
    }

    /// Whether one runs.
    pub(crate) fn is_running(&self, job: Job) -> bool {
        self.running.contains_key(&job)
    }

    /// Ends all and waits for them.
    pub(crate) fn end(&mut self) {
        self.running.values().for_each(|running| running.process.ask_to_end());
        self.running.clear();
    }

    /// Something was heard of one.
    pub(crate) fn hear(&mut self, job: Job, number: u64, heard: Heard, say: &dyn Fn(Event)) -> After {
        let Some(running) = self.running.get_mut(&job).filter(|running| running.number == number) else {
            return After::Nothing;
        };
        let told = match heard {
            Heard::Told(told) => told,
            Heard::Ended(ending) => {
                let (said, well) = (running.said, running.well);
                self.running.remove(&job);
                if !said && ending.asked {
                    say(Event::JobStopped(job, stopped(job).to_owned()));
                } else if !said {
                    say(Event::JobFailed(job, explain(&ending)));
                }
                return After::Look { well };
            }
        };
        running.said |= matches!(told, Told::Done { .. } | Told::Stopped | Told::Failed(_));
        let discards = running.discards;
        running.well |= matches!(told, Told::Done { .. }) && !discards;
        match told {
            Told::Step(step) => say(Event::JobStep(job, step)),
            // Nothing was installed.
            Told::Done { words } if discards => say(Event::JobStopped(job, words)),
            Told::Done { words } => say(Event::JobDone(job, words)),
            Told::Stopped => say(Event::JobStopped(job, stopped(job).to_owned())),
            Told::Failed(trouble) => say(Event::JobFailed(job, trouble)),
            _ => {}
        }
        After::Nothing
    }
}

/// How to go on.
fn stopped(job: Job) -> &'static str {
    match job {
        Job::Install => "Paused. What has been downloaded is kept; go on at any time.",
        Job::Verify => "The check was ended; nothing is known of the rest.",
        Job::Demo => "Unpacking was ended.",
    }
}
