//! What the window remembers between two starts: one JSON document, kept by the worker, which does not look into it.
//!
//! Every field has a default and unknown fields are ignored, so that an older or newer program reads the same document;
//! values out of their range are brought into it, never refused: settings must not keep a window from opening.

use fieldfare_app_worker::message::{EngineSettings, Sampling};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Light or dark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Theme {
    /// As the system says.
    #[default]
    System,
    /// Dark on light.
    Light,
    /// Light on dark.
    Dark,
}

/// Which key sends a question; the other one of the two begins a new line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SendKey {
    /// Return; Shift-Return is a new line.
    #[default]
    Return,
    /// Ctrl-Return, Cmd-Return on a Mac; Return is a new line.
    CommandReturn,
}

/// A system prompt with a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Preset {
    /// What the list shows.
    pub name: String,
    /// The prompt.
    pub text: String,
}

/// Where the window was, in points.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Place {
    /// Width of its inside.
    pub width: f32,
    /// Height of its inside.
    pub height: f32,
    /// Whether it filled the screen.
    pub maximized: bool,
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// Light or dark.
    pub theme: Theme,
    /// Stronger lines and text.
    pub high_contrast: bool,
    /// Size of everything, in per cent.
    pub zoom_percent: u32,
    /// Which key sends.
    pub send_key: SendKey,
    /// The list of conversations is shown.
    pub sidebar: bool,
    /// The model that was loaded last.
    pub model: Option<PathBuf>,
    /// Load it at the start.
    pub load_at_start: bool,
    /// More folders in which to look for models.
    pub folders: Vec<PathBuf>,
    /// Bytes of memory; none for what the machine bears.
    pub memory_bytes: Option<u64>,
    /// Tokens of context.
    pub context: Option<u32>,
    /// Slots of each layer.
    pub slots: Option<u32>,
    /// Threads.
    pub threads: Option<u32>,
    /// Prompts in passes.
    pub prefill: bool,
    /// Advice about reads.
    pub advice: String,
    /// 0 picks the likeliest.
    pub temperature: f32,
    /// 0 for all.
    pub top_k: u32,
    /// 0 to 1.
    pub top_p: f32,
    /// Think before answering.
    pub thinking: bool,
    /// Most tokens of an answer.
    pub max_tokens: Option<u32>,
    /// Same answer again.
    pub seed: Option<u64>,
    /// System prompts.
    pub presets: Vec<Preset>,
    /// The one that new conversations begin with, by its place.
    pub preset: Option<usize>,
    /// The window.
    pub place: Option<Place>,
}

impl Default for Settings {
    fn default() -> Self {
        let (engine, sampling) = (EngineSettings::default(), Sampling::default());
        Self {
            theme: Theme::System,
            high_contrast: false,
            zoom_percent: 100,
            send_key: SendKey::Return,
            sidebar: true,
            model: None,
            load_at_start: true,
            folders: Vec::new(),
            memory_bytes: engine.memory_bytes,
            context: engine.context,
            slots: engine.slots,
            threads: engine.threads,
            prefill: engine.prefill,
            advice: engine.advice,
            temperature: sampling.temperature,
            top_k: sampling.top_k,
            top_p: sampling.top_p,
            thinking: sampling.thinking,
            max_tokens: sampling.max_tokens,
            seed: sampling.seed,
            presets: vec![
                Preset { name: "Brief".to_owned(), text: "Answer briefly and plainly.".to_owned() },
                Preset {
                    name: "Careful reviewer".to_owned(),
                    text: "You review text and code. Point out errors first, with the place, then say what is good."
                        .to_owned(),
                },
            ],
            preset: None,
            place: None,
        }
    }
}

/// The kinds of advice that the engine knows.
pub const ADVICE: [&str; 4] = ["off", "default", "bounded", "adaptive"];
/// Bounds of the size of everything, in per cent.
pub const ZOOM: std::ops::RangeInclusive<u32> = 70..=250;

impl Settings {
    /// From a kept document; what is missing or wrong in it becomes its default.
    pub fn read(document: &str) -> Self {
        // A field of a wrong type must not cost the others: fields are taken one by one.
        let mut kept = serde_json::to_value(Self::default()).unwrap_or_default();
        if let (Some(kept), Ok(serde_json::Value::Object(given))) =
            (kept.as_object_mut(), serde_json::from_str::<serde_json::Value>(document))
        {
            for (name, value) in given {
                let Some(old) = kept.insert(name.clone(), value) else {
                    kept.remove(&name);
                    continue;
                };
                if serde_json::from_value::<Self>(serde_json::Value::Object(kept.clone())).is_err() {
                    kept.insert(name, old);
                }
            }
        }
        serde_json::from_value::<Self>(kept).unwrap_or_default().in_range()
    }

    /// The document to keep.
    pub fn write(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    fn in_range(mut self) -> Self {
        self.zoom_percent = self.zoom_percent.clamp(*ZOOM.start(), *ZOOM.end());
        let usual = Sampling::default();
        let within = |value: f32, least: f32, most: f32, usual: f32| {
            if value.is_finite() { value.clamp(least, most) } else { usual }
        };
        self.temperature = within(self.temperature, 0.0, 2.0, usual.temperature);
        self.top_p = within(self.top_p, 0.01, 1.0, usual.top_p);
        if !ADVICE.contains(&self.advice.as_str()) {
            self.advice = EngineSettings::default().advice;
        }
        self.preset = self.preset.filter(|index| *index < self.presets.len());
        self.place = self.place.filter(|place| place.width >= 300.0 && place.height >= 200.0);
        self
    }

    /// What the engine is started with.
    pub fn engine(&self) -> EngineSettings {
        EngineSettings {
            memory_bytes: self.memory_bytes,
            context: self.context,
            slots: self.slots,
            threads: self.threads,
            prefill: self.prefill,
            advice: self.advice.clone(),
        }
    }

    /// Takes over what an engine was started with.
    pub fn set_engine(&mut self, engine: &EngineSettings) {
        self.memory_bytes = engine.memory_bytes;
        self.context = engine.context;
        self.slots = engine.slots;
        self.threads = engine.threads;
        self.prefill = engine.prefill;
        self.advice.clone_from(&engine.advice);
    }

    /// How answers are drawn.
    pub fn sampling(&self) -> Sampling {
        Sampling {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            thinking: self.thinking,
            max_tokens: self.max_tokens,
            seed: self.seed,
        }
    }

    /// The system prompt that a new conversation begins with.
    pub fn system(&self) -> String {
        self.preset
            .and_then(|index| self.presets.get(index))
            .map(|preset| preset.text.clone())
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_comes_back_and_a_wrong_field_costs_only_itself() {
        let kept = Settings { zoom_percent: 150, theme: Theme::Dark, top_k: 7, ..Settings::default() };
        assert_eq!(Settings::read(&kept.write()), kept);
        let broken = kept.write().replace("\"top_k\":7", "\"top_k\":\"many\"");
        let read = Settings::read(&broken);
        assert_eq!(read.top_k, Settings::default().top_k);
        assert_eq!(read.zoom_percent, 150);
        assert_eq!(Settings::read("no document"), Settings::default());
        assert_eq!(Settings::read(r#"{"of_the_future": 1}"#), Settings::default());
    }

    #[test]
    fn values_are_brought_into_their_range() {
        let read = Settings::read(
            r#"{"zoom_percent": 9000, "temperature": -1.0, "top_p": 7.0, "advice": "shout", "preset": 99}"#,
        );
        assert_eq!(read.zoom_percent, 250);
        assert_eq!(read.temperature, 0.0);
        assert_eq!(read.top_p, 1.0);
        assert_eq!(read.advice, "default");
        assert_eq!(read.preset, None);
    }
}
