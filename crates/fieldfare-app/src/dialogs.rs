//! Dialogs of the system for folders and files. Each runs beside the window, which goes on meanwhile; its answer comes
//! as an action. Everything that can be done with one can be done without: folders can be typed, documents dropped.

use crate::state::{Action, Dialog};
use std::future::Future;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, Sender};

/// Something that asks people for files.
pub trait Dialogs {
    /// Opens a dialog.
    fn ask(&mut self, dialog: Dialog, context: &egui::Context);
    /// What was answered since.
    fn answers(&mut self) -> Vec<Action>;
}

/// The system's own.
pub struct System {
    answers: Receiver<Action>,
    answer: Sender<Action>,
}

impl Default for System {
    fn default() -> Self {
        let (answer, answers) = mpsc::channel();
        Self { answers, answer }
    }
}

impl System {
    /// Waits for a dialog on a thread of its own. The dialog itself has begun here: a Mac wants that on this thread.
    fn wait<T: Send + 'static>(
        &self,
        dialog: impl Future<Output = Option<T>> + Send + 'static,
        context: &egui::Context,
        action: impl FnOnce(T) -> Action + Send + 'static,
    ) {
        let (answer, context) = (self.answer.clone(), context.clone());
        let wait = move || {
            if let Some(chosen) = pollster::block_on(dialog) {
                let _ = answer.send(action(chosen));
                context.request_repaint();
            }
        };
        // Without a thread there is no dialog; the fields for typing remain.
        let _ = std::thread::Builder::new().name("dialog".to_owned()).spawn(wait);
    }
}

impl Dialogs for System {
    fn ask(&mut self, dialog: Dialog, context: &egui::Context) {
        let ask = rfd::AsyncFileDialog::new();
        let path = |file: rfd::FileHandle| file.path().to_path_buf();
        match dialog {
            Dialog::InstallFolder(begin) => {
                let ask = ask.set_title("Folder for the model").set_directory(begin);
                self.wait(ask.pick_folder(), context, move |folder| Action::InstallFolder(path(folder)));
            }
            Dialog::ModelFolder => {
                let ask = ask.set_title("Folder with models");
                self.wait(ask.pick_folder(), context, move |folder| Action::ModelFolder(path(folder)));
            }
            Dialog::Documents => {
                let ask = ask.set_title("Text documents");
                self.wait(ask.pick_files(), context, move |files| {
                    Action::Documents(files.into_iter().map(path).collect::<Vec<PathBuf>>())
                });
            }
            Dialog::Export(conversation, name) => {
                let ask = ask
                    .set_title("Export the conversation")
                    .set_file_name(name)
                    .add_filter("Markdown", &["md"])
                    .add_filter("JSON", &["json"]);
                self.wait(ask.save_file(), context, move |file| Action::ExportTo(conversation, path(file)));
            }
        }
    }

    fn answers(&mut self) -> Vec<Action> {
        self.answers.try_iter().collect()
    }
}
