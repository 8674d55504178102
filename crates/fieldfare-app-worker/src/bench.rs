//! The benchmark: for each budget a process of its own, one after the other, so that memory is measured for what it is and
//! none of it stays here.

use crate::message::{BenchRow, Event, Trouble};
use crate::process::{Heard, Process};
use crate::service::explain;
use crate::wire::{Rates, Task, Told};
use fieldfare::measure::median;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::PathBuf;

/// What is measured.
pub(crate) struct Bench {
    pub(crate) model: PathBuf,
    left: VecDeque<u64>,
    prompt: u32,
    decode: u32,
    locks: Option<PathBuf>,
    rates: Option<Rates>,
    rows: Vec<BenchRow>,
    failed: Option<Trouble>,
    process: Option<Process>,
    number: u64,
    stopped: bool,
}

/// How a benchmark ended.
pub(crate) struct Outcome {
    /// As the window is told.
    pub(crate) result: Result<(), Trouble>,
    /// What the machine gives.
    pub(crate) rates: Option<Rates>,
    /// The share that was reached of it.
    pub(crate) reached: Option<f64>,
}

impl Bench {
    /// Not begun yet.
    pub(crate) fn new(
        model: PathBuf,
        budgets: Vec<u64>,
        prompt: u32,
        decode: u32,
        locks: Option<PathBuf>,
    ) -> Self {
        Self {
            model,
            left: budgets.into(),
            prompt,
            decode,
            locks,
            rates: None,
            rows: Vec::new(),
            failed: None,
            process: None,
            number: 0,
            stopped: false,
        }
    }

    /// Starts the next process: first the measurement of the machine, then a row for each budget. False if there is none.
    pub(crate) fn next(&mut self, command: &[OsString], hear: impl Fn(u64, Heard) + Send + 'static) -> bool {
        let task = if self.number == 0 {
            Task::Measure { model: self.model.clone() }
        } else {
            let Some(memory_bytes) = self.left.pop_front().filter(|_| !self.stopped) else { return false };
            Task::Row {
                model: self.model.clone(),
                memory_bytes,
                prompt: self.prompt,
                decode: self.decode,
                rates: self.rates,
                locks: self.locks.clone(),
            }
        };
        self.number += 1;
        let number = self.number;
        match Process::start(command, &task, move |heard| hear(number, heard)) {
            Ok(process) => self.process = Some(process),
            Err(trouble) => {
                self.failed.get_or_insert(trouble);
                return false;
            }
        }
        true
    }

    /// Ends it after what runs, which is ended too.
    pub(crate) fn stop(&mut self) {
        self.stopped = true;
        if let Some(process) = &self.process {
            process.ask_to_end();
        }
    }

    /// Something was heard; true when the process is gone and the next may begin.
    pub(crate) fn hear(&mut self, number: u64, heard: Heard, say: &dyn Fn(Event)) -> bool {
        if number != self.number {
            return false;
        }
        match heard {
            Heard::Told(Told::Rates(rates)) => self.rates = Some(rates),
            Heard::Told(Told::Row(row)) => {
                say(Event::BenchRow(row.clone()));
                self.rows.push(row);
            }
            // A budget that does not work is no reason to leave out the others.
            Heard::Told(Told::Failed(trouble)) => {
                self.failed.get_or_insert(trouble);
            }
            Heard::Told(_) => {}
            Heard::Ended(ending) => {
                self.process = None;
                if ending.code.is_none() && !ending.asked {
                    self.failed.get_or_insert(explain(&ending));
                }
                return true;
            }
        }
        false
    }

    /// How it ended.
    pub(crate) fn outcome(self) -> Outcome {
        let shares: Vec<f64> = self
            .rows
            .iter()
            .filter(|row| row.decode_bound > 0.0)
            .map(|row| row.decode / row.decode_bound)
            .collect();
        let result = match self.failed {
            Some(trouble) if !self.stopped => Err(trouble),
            _ => Ok(()),
        };
        Outcome { result, rates: self.rates, reached: median(&shares) }
    }
}
