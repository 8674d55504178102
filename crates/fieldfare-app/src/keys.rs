//! Keys that work everywhere in the window; fields have the usual ones of their own.

use crate::state::{Action, Page, State};
use eframe::egui::{self, Key, KeyboardShortcut, Modifiers};

/// A key, what it does, and in words.
pub struct Shortcut {
    /// The key.
    pub keys: KeyboardShortcut,
    /// In words, for the list in About.
    pub words: &'static str,
    action: fn(&State) -> Option<Action>,
}

const fn command(key: Key) -> KeyboardShortcut {
    KeyboardShortcut::new(Modifiers::COMMAND, key)
}

/// All of them.
pub const SHORTCUTS: &[Shortcut] = &[
    Shortcut { keys: command(Key::N), words: "New conversation", action: |_| Some(Action::NewChat) },
    Shortcut { keys: command(Key::F), words: "Search conversations", action: |_| Some(Action::FocusSearch) },
    Shortcut {
        keys: command(Key::B),
        words: "Show or hide the list",
        action: |_| Some(Action::ToggleSidebar),
    },
    Shortcut { keys: command(Key::Num1), words: "Chat", action: |_| Some(Action::Go(Page::Chat)) },
    Shortcut { keys: command(Key::Num2), words: "Models", action: |_| Some(Action::Go(Page::Models)) },
    Shortcut { keys: command(Key::Num3), words: "Inspector", action: |_| Some(Action::Go(Page::Inspector)) },
    Shortcut { keys: command(Key::Num4), words: "Benchmark", action: |_| Some(Action::Go(Page::Bench)) },
    Shortcut { keys: command(Key::Comma), words: "Settings", action: |_| Some(Action::Go(Page::Settings)) },
    Shortcut {
        keys: KeyboardShortcut::new(Modifiers::NONE, Key::F1),
        words: "About, and these keys",
        action: |_| Some(Action::Go(Page::About)),
    },
    Shortcut { keys: command(Key::O), words: "Add documents", action: |_| Some(Action::PickDocuments) },
    Shortcut {
        keys: command(Key::E),
        words: "Export this conversation",
        action: |state| state.open_id().map(Action::Export),
    },
    Shortcut { keys: command(Key::Plus), words: "Larger", action: |_| Some(Action::Zoom(1)) },
    Shortcut { keys: command(Key::Equals), words: "Larger", action: |_| Some(Action::Zoom(1)) },
    Shortcut { keys: command(Key::Minus), words: "Smaller", action: |_| Some(Action::Zoom(-1)) },
    Shortcut { keys: command(Key::Num0), words: "Normal size", action: |_| Some(Action::Zoom(0)) },
    Shortcut { keys: command(Key::Q), words: "Quit", action: |_| Some(Action::Close) },
];

/// What the keys of this frame ask for.
pub fn actions(context: &egui::Context, state: &State) -> Vec<Action> {
    let mut actions = Vec::new();
    context.input_mut(|input| {
        for shortcut in SHORTCUTS {
            if input.consume_shortcut(&shortcut.keys) {
                actions.extend((shortcut.action)(state));
            }
        }
    });
    // Escape belongs to an open menu or field first, then to the answer.
    let popup = context.any_popup_open();
    if !popup && context.input(|input| input.key_pressed(Key::Escape)) {
        if state.library.rename.is_some() {
            actions.push(Action::CancelRename);
        } else if state.answer.is_some() {
            actions.push(Action::Stop);
        } else if state.composer.editing.is_some() {
            actions.push(Action::CancelEdit);
        }
    }
    actions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_has_two_meanings() {
        for (place, one) in SHORTCUTS.iter().enumerate() {
            for other in &SHORTCUTS[place + 1..] {
                assert!(one.keys != other.keys, "{} and {}", one.words, other.words);
            }
        }
    }
}
