//! Which letters there are. The window brings Latin, Greek, Cyrillic, symbols and plain emoji; everything else (Chinese,
//! Japanese, Korean, Arabic, …) is looked for among the system's fonts when the first such letter is drawn, and mapped,
//! not copied: a window that never meets one never pays for it.

use eframe::egui::epaint::text::{FallbackRequest, FontInsert, FontProvider};
use eframe::egui::{Context, FontDefinitions, FontFamily};
use egui_system_font_provider::SystemFontProvider;
use std::sync::{Arc, OnceLock};

/// The family of strong text.
pub const STRONG: &str = "strong";

/// The system's fonts, found when the first letter is missing.
#[derive(Default)]
struct Lazy {
    provider: OnceLock<SystemFontProvider>,
}

impl FontProvider for Lazy {
    fn font_for(&self, request: &FallbackRequest<'_>) -> Option<FontInsert> {
        self.provider.get_or_init(SystemFontProvider::new).font_for(request)
    }
}

/// The fonts that are always there.
pub fn install(context: &Context) {
    let mut fonts = FontDefinitions::default();
    let proportional = fonts.families.get(&FontFamily::Proportional).cloned().unwrap_or_default();
    fonts.families.insert(FontFamily::Name(STRONG.into()), proportional);
    context.set_fonts(fonts);
}

/// The system's fonts for what is missing. Pictures in tests do without: they must not depend on a machine.
pub fn install_system(context: &Context) {
    context.add_font_provider(Arc::new(Lazy::default()));
}
