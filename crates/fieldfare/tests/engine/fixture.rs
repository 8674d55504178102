//! The installed fixture checkpoint and what tests do with it.

use fieldfare::Error;
use fieldfare::engine::{Cancel, Engine, EngineOptions, Event, GenerateOptions, Generation};
use fieldfare::format::Layout;
use fieldfare::install::{InstallOptions, install_local};
use fieldfare::model::Precision;
use fieldfare::sample::Sampling;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The installed fixture, for one test.
pub(crate) struct Fixture {
    pub(crate) dir: TempDir,
    pub(crate) path: PathBuf,
}

impl Fixture {
    pub(crate) fn new(layout: Layout) -> Self {
        Self::from(&fieldfare_testing::tiny_checkpoint(), layout)
    }

    pub(crate) fn from(from: &Path, layout: Layout) -> Self {
        let dir = TempDir::new().expect("a scratch folder");
        let path = dir.path().join("tiny.gturbo");
        let options =
            InstallOptions { from: from.to_path_buf(), output: path.clone(), layout, overwrite: false };
        install_local(&options, &mut |_| ControlFlow::Continue(())).expect("the fixture installs");
        Self { dir, path }
    }

    pub(crate) fn open(&self, options: EngineOptions) -> Engine {
        self.try_open(options).expect("the fixture opens")
    }

    /// Opens the model with a lock of this test's own, so that the same model in other hands does not matter.
    pub(crate) fn try_open(&self, options: EngineOptions) -> Result<Engine, Error> {
        let runtime_dir = Some(self.dir.path().to_path_buf());
        Engine::open(&self.path, EngineOptions { runtime_dir, ..options })
    }
}

pub(crate) fn exact() -> EngineOptions {
    EngineOptions {
        max_context: 256,
        precision: Precision::Exact,
        threads: Some(1),
        ..EngineOptions::default()
    }
}

pub(crate) fn ids(name: &str) -> Vec<u32> {
    let path = fieldfare_testing::tiny_checkpoint().join("reference.json");
    let bytes = std::fs::read(path).expect("the reference is there");
    let reference: serde_json::Value = serde_json::from_slice(&bytes).expect("the reference is JSON");
    serde_json::from_value(reference[name].clone()).expect("a list of ids")
}

pub(crate) fn greedy(max_new: usize) -> GenerateOptions {
    let sampling = Sampling { temperature: 0.0, ..Sampling::default() };
    GenerateOptions { sampling, max_new, ..GenerateOptions::default() }
}

pub(crate) fn generate(engine: &mut Engine, prompt: &[u32], options: &GenerateOptions) -> Generation {
    let mut seen = String::new();
    let generation = engine
        .session()
        .generate(prompt, options, &Cancel::new(), &mut |event| {
            if let Event::Text(text) = event {
                seen.push_str(text);
            }
            ControlFlow::Continue(())
        })
        .expect("the fixture generates");
    assert_eq!(seen, generation.text);
    generation
}
