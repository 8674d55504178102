//! The installed fixture, its reference tensors, and short ways to run it.

use fieldfare::format::{Integrity, Layout, ModelDir};
use fieldfare::install::{InstallOptions, install_local};
use fieldfare::model::{Forward, Precision, Runner, RunnerOptions};
use safetensors::SafeTensors;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

/// Sliding window of the fixture.
pub(crate) const WINDOW: usize = 32;

thread_local! {
    /// Scratch of this test, removed when its thread ends.
    static SCRATCH: TempDir = TempDir::new().expect("a scratch folder");
    static TINY: RefCell<HashMap<Layout, Arc<ModelDir>>> = RefCell::default();
}

/// A path of this name in the test's own scratch folder.
pub(crate) fn scratch(name: &str) -> PathBuf {
    SCRATCH.with(|scratch| scratch.path().join(name))
}

/// Installs the checkpoint at `from` as `name` in the scratch folder.
pub(crate) fn install(from: &Path, name: &str, layout: Layout) -> PathBuf {
    let output = scratch(name);
    let options =
        InstallOptions { from: from.to_path_buf(), output: output.clone(), layout, overwrite: false };
    install_local(&options, &mut |_| ControlFlow::Continue(())).expect("the fixture installs");
    output
}

/// The fixture in the layout asked for, installed once a test.
pub(crate) fn tiny(layout: Layout) -> Arc<ModelDir> {
    TINY.with_borrow_mut(|tiny| {
        let dir = tiny.entry(layout).or_insert_with(|| {
            let path =
                install(&fieldfare_testing::tiny_checkpoint(), &format!("tiny-{layout}.gturbo"), layout);
            Arc::new(ModelDir::open(&path, Integrity::Full).expect("what was installed opens"))
        });
        Arc::clone(dir)
    })
}

/// Exact precision, whole context, one thread.
pub(crate) fn exact() -> RunnerOptions {
    RunnerOptions {
        max_context: 256,
        prefill_chunk_tokens: 256,
        precision: Precision::Exact,
        threads: Some(1),
        ..RunnerOptions::default()
    }
}

pub(crate) fn runner(layout: Layout, options: &RunnerOptions) -> Runner {
    Runner::new(tiny(layout), options).expect("the fixture runs")
}

/// All logits rows of `ids`, fed by `prefill_each`.
pub(crate) fn all_logits(runner: &mut Runner, ids: &[u32]) -> Vec<Vec<f32>> {
    let mut rows = Vec::new();
    runner
        .prefill_each(ids, &mut || ControlFlow::Continue(()), &mut |index, logits| {
            assert_eq!(index, rows.len());
            rows.push(logits.to_vec());
            ControlFlow::Continue(())
        })
        .expect("prefill");
    rows
}

pub(crate) fn prefill(runner: &mut Runner, ids: &[u32]) -> Vec<f32> {
    runner.prefill(ids, &mut |_| ControlFlow::Continue(())).expect("prefill").to_vec()
}

pub(crate) fn argmax(logits: &[f32]) -> u32 {
    let best = (0..logits.len()).rev().max_by(|&a, &b| logits[a].total_cmp(&logits[b])).expect("logits");
    u32::try_from(best).expect("small vocabulary")
}

pub(crate) fn bits(row: &[f32]) -> Vec<u32> {
    row.iter().map(|x| x.to_bits()).collect()
}

/// The golden tensors.
pub(crate) struct Reference {
    pub(crate) prompt: Vec<u32>,
    pub(crate) generated: Vec<u32>,
    pub(crate) floats: HashMap<String, Vec<f32>>,
    pub(crate) ints: HashMap<String, Vec<i32>>,
}

impl Reference {
    pub(crate) fn load() -> Self {
        let path = fieldfare_testing::tiny_checkpoint().join("reference.safetensors");
        let bytes = std::fs::read(path).expect("reference.safetensors");
        let file = SafeTensors::deserialize(&bytes).expect("a safetensors file");
        let (mut floats, mut ints) = (HashMap::new(), HashMap::new());
        for (name, tensor) in file.tensors() {
            let words = tensor.data().chunks_exact(4).map(|b| [b[0], b[1], b[2], b[3]]);
            match tensor.dtype() {
                safetensors::Dtype::F32 => {
                    floats.insert(name, words.map(f32::from_le_bytes).collect());
                }
                safetensors::Dtype::I32 => {
                    ints.insert(name, words.map(i32::from_le_bytes).collect());
                }
                other => panic!("{name} is {other:?}"),
            }
        }
        let ids = |name: &str| {
            let ids: &Vec<i32> = &ints[name];
            ids.iter().map(|&id| u32::try_from(id).expect("an id")).collect()
        };
        Self { prompt: ids("prompt_ids"), generated: ids("generated_ids"), floats, ints }
    }

    /// Prompt and generated ids.
    pub(crate) fn all_ids(&self) -> Vec<u32> {
        [&self.prompt[..], &self.generated].concat()
    }

    /// Row `position` of the logits.
    pub(crate) fn logits(&self, position: usize) -> &[f32] {
        let vocab = self.floats["logits"].len() / (self.prompt.len() + self.generated.len());
        &self.floats["logits"][position * vocab..(position + 1) * vocab]
    }
}

/// Largest and mean absolute difference of two sets of rows.
pub(crate) fn difference<'a>(pairs: impl Iterator<Item = (&'a [f32], &'a [f32])>) -> (f32, f32) {
    let (mut largest, mut sum, mut count) = (0.0f32, 0.0f64, 0u32);
    for (a, b) in pairs {
        assert_eq!(a.len(), b.len());
        for (x, y) in a.iter().zip(b) {
            let d = (x - y).abs();
            assert!(d.is_finite(), "{x} against {y}");
            largest = largest.max(d);
            sum += f64::from(d);
            count += 1;
        }
    }
    (largest, (sum / f64::from(count)) as f32)
}
