//! What packages bring is made here from the icon's drawing and kept in `packaging/`, and is still what would be made.
//! `UPDATE_SNAPSHOTS=1 cargo test -p fieldfare-app --profile window --test ui packaging` makes it anew.

use fieldfare_app::icon::{pixels, windows};
use image::{ImageFormat, RgbaImage};
use std::io::Cursor;
use std::path::{Path, PathBuf};

/// Points across of the pictures for menus on Linux.
const MENU: [u32; 6] = [16, 32, 48, 64, 128, 256];
/// Names and sizes of the pictures in a Mac's file.
const MAC: [(&[u8; 4], u32); 5] =
    [(b"icp4", 16), (b"icp5", 32), (b"ic12", 64), (b"ic07", 128), (b"ic08", 256)];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging")
}

fn drawn(side: u32) -> RgbaImage {
    RgbaImage::from_raw(side, side, pixels(side)).expect("four bytes a point")
}

fn png(side: u32) -> Vec<u8> {
    let mut out = Cursor::new(Vec::new());
    drawn(side).write_to(&mut out, ImageFormat::Png).expect("memory holds it");
    out.into_inner()
}

/// The file's bytes, made anew first if that was asked for.
fn kept(name: &str, make: impl FnOnce() -> Vec<u8>) -> Vec<u8> {
    let path = folder().join(name);
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("the folder can be made");
        std::fs::write(&path, make()).expect("the folder can be written");
    }
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Sines differ in their last bits from machine to machine, so a few points at edges may.
#[track_caller]
fn must_be_the_drawing(name: &str, png: &[u8], side: u32) {
    let known = image::load_from_memory_with_format(png, ImageFormat::Png).expect(name).to_rgba8();
    assert_eq!(known.dimensions(), (side, side), "{name}");
    let off = known.pixels().zip(drawn(side).pixels()).filter(|(one, other)| one != other).count();
    assert!(off < 100, "{name}: {off} points differ");
}

#[test]
fn packaging_for_linux() {
    for side in MENU {
        let name = format!("linux/icons/{side}.png");
        must_be_the_drawing(&name, &kept(&name, || png(side)), side);
    }
}

#[test]
fn packaging_for_macs() {
    let file = kept("macos/fieldfare.icns", || {
        let mut body = Vec::new();
        for (kind, side) in MAC {
            let png = png(side);
            body.extend(kind);
            body.extend(u32::try_from(png.len() + 8).expect("small").to_be_bytes());
            body.extend(png);
        }
        let length = u32::try_from(body.len() + 8).expect("small").to_be_bytes();
        [&b"icns"[..], &length, &body].concat()
    });
    let length = |at: usize| u32::from_be_bytes(file[at..at + 4].try_into().expect("four bytes")) as usize;
    assert_eq!((&file[..4], length(4)), (&b"icns"[..], file.len()));
    let mut at = 8;
    for (kind, side) in MAC {
        assert_eq!(&file[at..at + 4], kind);
        let end = at + length(at + 4);
        must_be_the_drawing("fieldfare.icns", &file[at + 8..end], side);
        at = end;
    }
    assert_eq!(at, file.len());
}

#[test]
fn packaging_for_windows() {
    let pictures = windows::icon(pixels);
    let made = windows::ico(&pictures);
    let file = kept("windows/fieldfare.ico", || made.clone());
    assert_eq!(file.len(), made.len());
    let off = file.iter().zip(&made).filter(|(one, other)| one != other).count();
    assert!(off < 100, "{off} bytes differ");
    // Read back as a reader of such files does: a table, and each picture where it says.
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0usize, |sum, byte| sum << 8 | usize::from(*byte));
    assert_eq!((&file[..4], number(&file[4..6])), (&[0, 0, 1, 0][..], windows::SIDES.len()));
    for (place, side) in windows::SIDES.into_iter().enumerate() {
        let entry = &file[6 + 16 * place..][..16];
        let picture = &file[number(&entry[12..16])..][..number(&entry[8..12])];
        assert_eq!(number(&picture[4..8]), side as usize);
        let first = &picture[40..44];
        let drawn = drawn(side);
        let [r, g, b, a] = drawn.get_pixel(0, side - 1).0;
        assert_eq!(first, [b, g, r, a], "rows go from the bottom up");
    }
}

/// The resources that the build script hands to the linker, read back as the linker reads them.
#[test]
fn packaging_of_the_program_on_windows() {
    let pictures = windows::icon(pixels);
    let file = windows::resources(&pictures, [1, 2, 3]);
    let mut at = 0;
    let mut found = Vec::new();
    while at < file.len() {
        let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().expect("four bytes"));
        let (data, head) = (word(at) as usize, word(at + 4) as usize);
        let id = |at: usize| {
            assert_eq!(word(at) & 0xffff, 0xffff, "a number, not a name");
            word(at) >> 16
        };
        found.push((id(at + 8), id(at + 12), file[at + head..at + head + data].to_vec()));
        at = (at + head + data).next_multiple_of(4);
    }
    let kinds: Vec<(u32, u32)> = found.iter().map(|(kind, number, _)| (*kind, *number)).collect();
    assert_eq!(kinds, [(0, 0), (3, 1), (3, 2), (3, 3), (3, 4), (3, 5), (3, 6), (14, 1), (16, 1)]);
    for ((_, _, data), (_, picture)) in found[1..].iter().zip(&pictures) {
        assert_eq!(data, picture);
    }
    let version = &found[8].2;
    assert_eq!(usize::from(u16::from_le_bytes([version[0], version[1]])), version.len());
    let text: String =
        char::decode_utf16(version.chunks_exact(2).map(|two| u16::from_le_bytes([two[0], two[1]])))
            .map(|letter| letter.unwrap_or('?'))
            .collect();
    for word in ["VS_VERSION_INFO", "ProductName", "Fieldfare", "1.2.3", "Translation"] {
        assert!(text.contains(word), "{word}");
    }
}

#[test]
fn packaging_says_the_programs_version() {
    for (name, line) in [
        ("macos/Info.plist", format!("<string>{}</string>", env!("CARGO_PKG_VERSION"))),
        ("linux/fieldfare.metainfo.xml", format!("<release version=\"{}\"", env!("CARGO_PKG_VERSION"))),
    ] {
        let text = std::fs::read_to_string(folder().join(name)).expect(name);
        assert!(text.contains(&line), "{name}: no {line}");
    }
    let entry = std::fs::read_to_string(folder().join("linux/fieldfare.desktop")).expect("the menu's entry");
    assert!(entry.contains("\nExec=fieldfare-app\n") && entry.contains("\nIcon=fieldfare\n"));
}
