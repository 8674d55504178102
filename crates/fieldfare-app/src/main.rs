//! Fieldfare's desktop window: `fieldfare-app`.

// Without a console beside the window on Windows; other systems know no such thing.
#![windows_subsystem = "windows"]

use clap::Parser;
use eframe::NativeOptions;
use fieldfare_app::app::{App, HEARD};
use fieldfare_app::state::State;
use fieldfare_app::{dialogs, fonts, icon};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime};

/// Chat with Gemma 4 26B-A4B in a window, on this machine alone.
#[derive(Parser)]
#[command(name = "fieldfare-app", version)]
struct Arguments {
    /// Model directory to load
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// Folder for conversations and settings (models stay where they are)
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// What the window starts for itself: the process that owns the model
    #[arg(long, hide = true)]
    decode_service: bool,
    /// Prints at the end how long the start and the frames took
    #[arg(long, hide = true)]
    figures: bool,
    /// `glow` (OpenGL), or `wgpu` (Vulkan, Metal, DirectX) if built with it
    #[arg(long, hide = true, default_value = "glow")]
    renderer: String,
}

fn main() -> ExitCode {
    let began = Instant::now();
    let arguments = Arguments::parse();
    if arguments.decode_service {
        let code = fieldfare_app_worker::serve_decode();
        return ExitCode::from(u8::try_from(code).unwrap_or(1));
    }
    match run(arguments, began) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments, began: Instant) -> anyhow::Result<()> {
    let mut paths = fieldfare_app_worker::Paths::of_system().map_err(say)?;
    if let Some(data) = arguments.data {
        paths.data = data;
    }
    let mut state = State { wanted: arguments.model, ..State::default() };
    // Where a download goes unless another folder is chosen.
    if let Some(folder) = paths.models.first() {
        state.models.folder = folder.display().to_string();
    }
    let window: Arc<OnceLock<egui::Context>> = Arc::default();
    let wake = {
        let window = Arc::clone(&window);
        move || {
            if let Some(context) = window.get() {
                context.request_repaint_after(HEARD);
            }
        }
    };
    let how = fieldfare_app_worker::Start::of_system();
    let (commands, events) = fieldfare_app_worker::Worker::start(paths, how, wake).map_err(say)?;
    let options = NativeOptions {
        viewport: egui::ViewportBuilder::default()
            .with_title("Fieldfare")
            .with_app_id("fieldfare")
            .with_inner_size([1_100.0, 760.0])
            .with_min_inner_size([560.0, 400.0])
            .with_icon(icon::window()),
        renderer: arguments.renderer.parse().map_err(anyhow::Error::msg)?,
        system_font_fallback: false,
        ..NativeOptions::default()
    };
    let figures = arguments.figures;
    eframe::run_native(
        "Fieldfare",
        options,
        Box::new(move |creation| {
            let _ = window.set(creation.egui_ctx.clone());
            fonts::install_system(&creation.egui_ctx);
            let dialogs = Box::<dialogs::System>::default();
            let app =
                App::new(&creation.egui_ctx, commands, events, dialogs, Box::new(wall), state).since(began);
            Ok(Box::new(Window { app, figures }))
        }),
    )
    .map_err(|error| anyhow::anyhow!("the window cannot be opened: {error}"))
}

/// An error before there is a window.
fn say(trouble: fieldfare_app_worker::message::Trouble) -> anyhow::Error {
    anyhow::anyhow!("{} {}", trouble.message, trouble.remedy)
}

fn wall() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

/// The app, and figures about it at its end.
struct Window {
    app: App,
    figures: bool,
}

impl eframe::App for Window {
    fn logic(&mut self, context: &egui::Context, frame: &mut eframe::Frame) {
        if self.figures {
            self.app.frames.get_or_insert_default();
        }
        self.app.logic(context, frame);
    }

    fn ui(&mut self, ui: &mut egui::Ui, frame: &mut eframe::Frame) {
        self.app.ui(ui, frame);
    }

    fn clear_color(&self, visuals: &egui::Visuals) -> [f32; 4] {
        self.app.clear_color(visuals)
    }

    fn on_exit(&mut self, _gl: Option<&eframe::glow::Context>) {
        let Some(mut frames) = self.app.frames.take() else { return };
        frames.sort_by(f32::total_cmp);
        let at = |share: f32| frames.get((frames.len() as f32 * share) as usize).copied().unwrap_or_default();
        println!(
            "usable after {:.3} s; {} frames, {:.1} ms at the median, {:.1} at 99 %, {:.1} at most",
            self.app.usable_after.unwrap_or_default(),
            frames.len(),
            at(0.5),
            at(0.99),
            frames.last().copied().unwrap_or_default()
        );
    }
}
