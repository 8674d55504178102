//! Fieldfare's desktop window.
//!
//! ```text
//! state     what is true                      view      what is on the screen, page by page
//! update    (state, event) -> state, effects  markdown  text that grows, in blocks
//! app       the frame loop: worker, system    theme     colours and sizes
//! settings  what is remembered                fonts     letters
//! tree      versions of messages              keys      keys that work everywhere
//! words     numbers for people                icon      the window's icon
//! dialogs   dialogs of the system
//! ```
//!
//! The window opens no file and no socket and holds no model: it asks `fieldfare_app_worker` and draws what it hears.
//! It draws when something happened, not sixty times a second: the processors belong to the engine.

pub mod app;
pub mod dialogs;
pub mod fonts;
pub mod icon;
pub mod keys;
pub mod markdown;
pub mod settings;
pub mod state;
pub mod theme;
pub mod tree;
pub mod update;
pub mod view;
pub mod words;
