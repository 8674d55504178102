//! The window's icon, drawn here: a fieldfare, a thrush with a slate head, a chestnut back and a speckled breast, on a
//! light disc. Everything in `packaging/` that shows it is made from this drawing (see `tests/ui/pictures.rs`), and so is
//! the icon inside of the program's file on Windows (`build.rs`).

mod pixels;
pub mod windows;

use eframe::egui::IconData;

pub use pixels::pixels;

/// For the window.
pub fn window() -> IconData {
    let side = 64;
    IconData { rgba: pixels(side), width: side, height: side }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_icon_is_a_disc_with_a_bird_in_it() {
        let pixels = pixels(32);
        assert_eq!(pixels.len(), 32 * 32 * 4);
        assert_eq!(pixels[3], 0, "corners are clear");
        let middle = &pixels[(16 * 32 + 13) * 4..][..4];
        assert_eq!(middle[3], 255);
        assert_ne!(middle[..3], [0xfb, 0xf6, 0xec], "not the disc's colour");
    }
}
