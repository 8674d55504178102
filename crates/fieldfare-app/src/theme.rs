//! Colours, sizes and spaces. One palette for each of light and dark, each also with high contrast.

use crate::settings::{Settings, Theme};
use eframe::egui::{
    self, Color32, Context, CornerRadius, FontFamily, FontId, Margin, Stroke, TextStyle, Ui, Visuals,
};

/// The colours that views use beside those of the widgets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Palette {
    /// Behind everything.
    pub ground: Color32,
    /// Behind the list of conversations and the bars.
    pub side: Color32,
    /// Cards and questions.
    pub card: Color32,
    /// Behind code.
    pub code: Color32,
    /// Borders.
    pub line: Color32,
    /// Text.
    pub text: Color32,
    /// Text that matters less.
    pub weak: Color32,
    /// Text that matters more.
    pub strong: Color32,
    /// The one colour of our own.
    pub accent: Color32,
    /// Behind the text of the button that is meant.
    pub button: Color32,
    /// On it.
    pub on_button: Color32,
    /// Links.
    pub link: Color32,
    /// What went well.
    pub good: Color32,
    /// What one should know.
    pub warning: Color32,
    /// What failed.
    pub bad: Color32,
    /// Series of plots and bars, apart also for those who see colours differently.
    pub series: [Color32; 4],
}

const fn rgb(hex: u32) -> Color32 {
    Color32::from_rgb((hex >> 16) as u8, (hex >> 8) as u8, hex as u8)
}

impl Palette {
    /// The colours of a theme.
    pub fn new(dark: bool, high_contrast: bool) -> Self {
        let mut palette = if dark { Self::dark() } else { Self::light() };
        if high_contrast {
            let (text, ground) =
                if dark { (Color32::WHITE, Color32::BLACK) } else { (Color32::BLACK, Color32::WHITE) };
            palette.text = text;
            palette.strong = text;
            palette.weak = if dark { rgb(0xd8dbe0) } else { rgb(0x2a2d33) };
            palette.ground = ground;
            palette.side = ground;
            palette.card = ground;
            palette.code = if dark { rgb(0x101114) } else { rgb(0xf4f4f4) };
            palette.line = if dark { rgb(0xb0b4bc) } else { rgb(0x40444c) };
            palette.link = if dark { rgb(0x9cc8ff) } else { rgb(0x003a8c) };
            palette.accent = if dark { rgb(0xffc48a) } else { rgb(0x7a3206) };
            palette.button = if dark { rgb(0xffc48a) } else { rgb(0x7a3206) };
            palette.on_button = ground;
        }
        palette
    }

    fn dark() -> Self {
        Self {
            ground: rgb(0x1a1c20),
            side: rgb(0x131518),
            card: rgb(0x24272d),
            code: rgb(0x121316),
            line: rgb(0x3a3e46),
            text: rgb(0xd3d6dc),
            weak: rgb(0x9ba1ac),
            strong: rgb(0xffffff),
            accent: rgb(0xe8a066),
            button: rgb(0xb0591f),
            on_button: rgb(0xffffff),
            link: rgb(0x7fb4f5),
            good: rgb(0x74c28a),
            warning: rgb(0xe5b454),
            bad: rgb(0xf0837a),
            series: [rgb(0x6aa5e8), rgb(0xe8a066), rgb(0x74c2a8), rgb(0x9ba1ac)],
        }
    }

    fn light() -> Self {
        Self {
            ground: rgb(0xffffff),
            side: rgb(0xf3f2f0),
            card: rgb(0xf4f2ee),
            code: rgb(0xf5f4f1),
            line: rgb(0xd5d2cc),
            text: rgb(0x33363c),
            weak: rgb(0x666b74),
            strong: rgb(0x000000),
            accent: rgb(0xa64e17),
            button: rgb(0xa64e17),
            on_button: rgb(0xffffff),
            link: rgb(0x1759b0),
            good: rgb(0x22753c),
            warning: rgb(0x8a5a00),
            bad: rgb(0xb3261e),
            series: [rgb(0x2f6fbd), rgb(0xc0641f), rgb(0x2a8a6c), rgb(0x8a8f98)],
        }
    }

    /// A colour between the ground and another.
    pub fn tint(&self, color: Color32, share: f32) -> Color32 {
        self.ground.lerp_to_gamma(color, share)
    }
}

fn id() -> egui::Id {
    egui::Id::unique("fieldfare palette")
}

/// The palette in force.
pub fn palette(ui: &Ui) -> Palette {
    let dark = ui.visuals().dark_mode;
    ui.data(|data| data.get_temp(id())).unwrap_or_else(|| Palette::new(dark, false))
}

/// Puts the settings' look into force. Costs nothing when nothing changed.
pub fn apply(context: &Context, settings: &Settings) {
    let preference = match settings.theme {
        Theme::System => egui::ThemePreference::System,
        Theme::Light => egui::ThemePreference::Light,
        Theme::Dark => egui::ThemePreference::Dark,
    };
    if context.options(|options| options.theme_preference) != preference {
        context.set_theme(preference);
    }
    let dark = context.theme() == egui::Theme::Dark;
    let palette = Palette::new(dark, settings.high_contrast);
    if context.data(|data| data.get_temp::<Palette>(id())) != Some(palette) {
        context.data_mut(|data| data.insert_temp(id(), palette));
        for theme in [egui::Theme::Dark, egui::Theme::Light] {
            let of = Palette::new(theme == egui::Theme::Dark, settings.high_contrast);
            context.style_mut_of(theme, |style| set_style(style, &of, settings.high_contrast));
        }
    }
    let zoom = settings.zoom_percent as f32 / 100.0;
    if (context.zoom_factor() - zoom).abs() > 1e-3 {
        context.set_zoom_factor(zoom);
    }
}

fn set_style(style: &mut egui::Style, palette: &Palette, high_contrast: bool) {
    style.text_styles = [
        (TextStyle::Small, FontId::new(12.5, FontFamily::Proportional)),
        (TextStyle::Body, FontId::new(15.0, FontFamily::Proportional)),
        (TextStyle::Button, FontId::new(14.5, FontFamily::Proportional)),
        (TextStyle::Heading, FontId::new(22.0, FontFamily::Proportional)),
        (TextStyle::Monospace, FontId::new(13.5, FontFamily::Monospace)),
    ]
    .into();
    style.spacing.item_spacing = egui::vec2(8.0, 6.0);
    style.spacing.button_padding = egui::vec2(10.0, 5.0);
    style.spacing.interact_size = egui::vec2(40.0, 28.0);
    style.spacing.menu_margin = Margin::same(6);
    style.spacing.combo_width = 160.0;
    style.spacing.slider_width = 220.0;
    style.spacing.text_edit_width = 240.0;
    style.animation_time = 0.1;
    style.visuals = visuals(palette, style.visuals.dark_mode, high_contrast);
}

fn visuals(palette: &Palette, dark: bool, high_contrast: bool) -> Visuals {
    let mut visuals = if dark { Visuals::dark() } else { Visuals::light() };
    visuals.panel_fill = palette.ground;
    visuals.window_fill = palette.card;
    visuals.window_stroke = Stroke::new(1.0, palette.line);
    visuals.extreme_bg_color = if dark { palette.side } else { Color32::WHITE };
    visuals.faint_bg_color = palette.tint(palette.line, 0.25);
    visuals.code_bg_color = palette.code;
    visuals.hyperlink_color = palette.link;
    visuals.warn_fg_color = palette.warning;
    visuals.error_fg_color = palette.bad;
    visuals.weak_text_color = Some(palette.weak);
    visuals.selection.bg_fill = palette.tint(palette.link, if high_contrast { 0.6 } else { 0.35 });
    visuals.selection.stroke = Stroke::new(1.0, palette.strong);
    visuals.slider_trailing_fill = true;
    visuals.disabled_alpha = 0.6;
    let corner = CornerRadius::same(6);
    let widgets = &mut visuals.widgets;
    // With high contrast a border says what a button is, not its ground.
    let fill = |share: f32| palette.tint(palette.line, if high_contrast { share * 0.15 } else { share });
    for (widget, fill, border, text) in [
        (&mut widgets.noninteractive, palette.ground, palette.line, palette.text),
        (&mut widgets.inactive, fill(0.5), palette.line, palette.text),
        (&mut widgets.hovered, fill(0.9), palette.weak, palette.strong),
        (&mut widgets.active, fill(1.0), palette.strong, palette.strong),
        (&mut widgets.open, fill(0.6), palette.line, palette.strong),
    ] {
        widget.weak_bg_fill = fill;
        widget.bg_fill = fill;
        widget.bg_stroke = Stroke::new(1.0, border);
        widget.fg_stroke = Stroke::new(if high_contrast { 1.5 } else { 1.0 }, text);
        widget.corner_radius = corner;
        widget.expansion = 0.0;
    }
    // The rail of a slider has to be seen on cards as on the ground.
    widgets.inactive.bg_fill = fill(0.8);
    visuals
}

/// How far two colours are apart, as WCAG counts it: 1 to 21.
pub fn contrast(one: Color32, other: Color32) -> f32 {
    let luminance = |color: Color32| {
        let linear = |byte: u8| {
            let value = f32::from(byte) / 255.0;
            if value <= 0.040_45 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * linear(color.r()) + 0.7152 * linear(color.g()) + 0.0722 * linear(color.b())
    };
    let (a, b) = (luminance(one), luminance(other));
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Text of every colour on every ground that it stands on: WCAG AA (4.5), AAA (7) with high contrast.
    #[test]
    fn text_can_be_read_everywhere() {
        for dark in [true, false] {
            for high in [true, false] {
                let palette = Palette::new(dark, high);
                let least = if high { 7.0 } else { 4.5 };
                for (name, color) in [
                    ("text", palette.text),
                    ("weak", palette.weak),
                    ("strong", palette.strong),
                    ("link", palette.link),
                ] {
                    for ground in [palette.ground, palette.side, palette.card, palette.code] {
                        let found = contrast(color, ground);
                        assert!(found >= least, "{name}: {found} (dark {dark}, high contrast {high})");
                    }
                }
                let on_button = contrast(palette.on_button, palette.button);
                assert!(on_button >= 4.5, "button: {on_button} (dark {dark}, high contrast {high})");
                for color in [palette.good, palette.warning, palette.bad, palette.accent] {
                    let found = contrast(color, palette.ground);
                    assert!(found >= 4.5, "{color:?}: {found} (dark {dark}, high contrast {high})");
                }
            }
        }
    }
}
