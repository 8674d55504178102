//! Which letters there are. The window brings Latin, Greek, Cyrillic, symbols and plain emoji, the first three also in a
//! heavier weight for strong text; everything else (Chinese, Japanese, Korean, Arabic, …) is looked for among the system's
//! fonts when the first such letter is drawn, and mapped, not copied: a window that never meets one never pays for it.

use eframe::egui::epaint::text::{FallbackRequest, FontInsert, FontProvider};
use eframe::egui::{Context, FontData, FontDefinitions, FontFamily};
use egui_system_font_provider::SystemFontProvider;
use std::sync::{Arc, OnceLock};

/// The family of strong text.
pub const STRONG: &str = "strong";
/// The weight beside Ubuntu Light, which egui brings (licence: `fonts/Ubuntu-font-licence.txt`).
const MEDIUM: &str = "Ubuntu-Medium";

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
    let medium = FontData::from_static(include_bytes!("../fonts/Ubuntu-Medium.ttf"));
    fonts.font_data.insert(MEDIUM.to_owned(), Arc::new(medium));
    let mut strong = fonts.families.get(&FontFamily::Proportional).cloned().unwrap_or_default();
    // What it lacks, symbols and emoji, is taken from the others.
    strong.insert(0, MEDIUM.to_owned());
    fonts.families.insert(FontFamily::Name(STRONG.into()), strong);
    context.set_fonts(fonts);
}

/// The system's fonts for what is missing. Pictures in tests do without: they must not depend on a machine.
pub fn install_system(context: &Context) {
    context.add_font_provider(Arc::new(Lazy::default()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use eframe::egui::{Color32, FontId, RawInput};

    fn width(context: &Context, text: &str, family: FontFamily) -> f32 {
        let mut width = 0.0;
        let mut output = context.run_ui(RawInput::default(), |ui| {
            let font = FontId::new(15.0, family.clone());
            width = ui.painter().layout_no_wrap(text.to_owned(), font, Color32::WHITE).size().x;
        });
        // Nobody paints them.
        output.textures_delta.clear();
        width
    }

    #[test]
    fn strong_text_is_heavier_and_has_every_letter_that_plain_text_has() {
        let context = Context::default();
        install(&context);
        for text in ["Fieldfare", "Σίσυφος", "Дрозд рябинник"] {
            let (plain, strong) = (FontFamily::Proportional, FontFamily::Name(STRONG.into()));
            let (plain, strong) = (width(&context, text, plain), width(&context, text, strong));
            assert!(strong > plain * 1.02, "{text}: {strong} and {plain}");
        }
        // Symbols come from the same fonts.
        let strong = FontId::new(15.0, FontFamily::Name(STRONG.into()));
        context.fonts_mut(|fonts| assert!(fonts.has_glyphs(&strong, "⏷☑•√😀")));
    }

    /// On a machine whose fonts have none of these, it says so.
    #[test]
    fn other_scripts_come_from_the_systems_fonts() {
        let system = Lazy::default();
        for text in ["日本語", "한국어", "العربية", "עברית", "हिन्दी"] {
            for family in [FontFamily::Proportional, FontFamily::Name(STRONG.into())] {
                let request = FallbackRequest {
                    cluster: &text[..text.chars().next().map_or(0, char::len_utf8)],
                    family: &family,
                };
                let Some(found) = system.font_for(&request) else {
                    println!("{text}: skipped, no font of this machine has it");
                    continue;
                };
                let context = Context::default();
                install(&context);
                install_system(&context);
                assert!(width(&context, text, family) > 10.0);
                let names: Vec<String> = context
                    .fonts(|fonts| fonts.discovered_fonts().iter().map(|font| font.name.clone()).collect());
                assert!(names.contains(&found.name), "{text}: {names:?}, not {}", found.name);
            }
        }
    }
}
