//! Serving a model over loopback: the existing server, for one client.

use super::tell;
use crate::message::{EngineSettings, Trouble};
use crate::setup;
use crate::trouble::{plain, trouble};
use crate::wire::Told;
use fieldfare::engine::Engine;
use fieldfare_server::{Facts, Options, StartError, Stop, bind};
use std::path::Path;
use std::time::Duration;

/// Largest request: a conversation with all its documents.
const MAX_BODY: usize = 64 << 20;
/// Pause after which a stream gives a sign of life.
const KEEP_ALIVE: Duration = Duration::from_secs(1);

/// Serves until the process ends.
///
/// # Errors
/// The model cannot be opened, or there is no port.
pub(super) fn run(
    model: &Path,
    settings: &EngineSettings,
    key: String,
    locks: Option<&Path>,
) -> Result<(), Trouble> {
    let options = Options {
        port: 0,
        api_key: Some(key),
        max_body: MAX_BODY,
        keep_alive: KEEP_ALIVE,
        ..Options::default()
    };
    let bound = bind(options).map_err(|error| match error {
        StartError::Usage { message, hint } | StartError::Failed { message, hint } => plain(message, hint),
    })?;
    tell(&Told::Loading);
    let opened = || -> fieldfare::Result<_> {
        let (options, _) = setup::planned(model, settings, locks)?;
        let engine = Engine::open(model, options)?;
        let facts = Facts::of(&engine)?;
        Ok((engine, facts))
    };
    let (engine, facts) = opened().map_err(|error| trouble(&error))?;
    let plan = setup::shown(settings, engine.plan());
    tell(&Told::Ready { address: bound.address().to_string(), plan, model: facts.id.clone() });
    let log = Box::new(|line: &str| {
        if line.starts_with("internal error") {
            eprintln!("{line}");
        }
    });
    bound
        .serve(engine, facts, &Stop::default(), log)
        .map_err(|error| plain(format!("the model's server ended: {error}"), ""))
}
