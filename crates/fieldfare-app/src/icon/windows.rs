//! The icon as Windows keeps it: in a file of its own (`.ico`), and with the version as resources of a program (`.res`).
//! Both are old and simple forms; what a field means is in Microsoft's pages "ICO", "RESOURCEHEADER" and "VS_VERSIONINFO".

/// Sizes in the file, in points; the last is the one of large lists and the task bar of dense screens.
pub const SIDES: [u32; 6] = [16, 24, 32, 48, 64, 256];

/// A picture of the icon, without the table that says where it is: rows from the bottom up, blue before red, then a mask
/// of one bit a point (empty: the fourth byte of each point says how much it covers).
fn picture(side: u32, rgba: &[u8]) -> Vec<u8> {
    let mask = side.div_ceil(32) * 4 * side;
    let mut out = Vec::new();
    let words = |out: &mut Vec<u8>, words: &[u32]| {
        words.iter().for_each(|word| out.extend(word.to_le_bytes()));
    };
    // The height counts the mask.
    words(&mut out, &[40, side, side * 2]);
    out.extend(1u16.to_le_bytes());
    out.extend(32u16.to_le_bytes());
    words(&mut out, &[0, side * side * 4 + mask, 0, 0, 0, 0]);
    for row in rgba.chunks_exact(side as usize * 4).rev() {
        for point in row.chunks_exact(4) {
            out.extend([point[2], point[1], point[0], point[3]]);
        }
    }
    out.resize(out.len() + mask as usize, 0);
    out
}

/// An entry of the table of pictures: 256 is written as 0. `place` is the picture's offset, or its number.
fn entry(out: &mut Vec<u8>, side: u32, bytes: usize, place: &[u8]) {
    let short = u8::try_from(side).unwrap_or(0);
    out.extend([short, short, 0, 0]);
    out.extend(1u16.to_le_bytes());
    out.extend(32u16.to_le_bytes());
    out.extend(u32::try_from(bytes).unwrap_or(u32::MAX).to_le_bytes());
    out.extend(place);
}

fn table_head(count: usize) -> Vec<u8> {
    let mut out = vec![0, 0, 1, 0];
    out.extend(u16::try_from(count).unwrap_or(u16::MAX).to_le_bytes());
    out
}

/// The pictures of all sizes.
pub fn icon(draw: fn(u32) -> Vec<u8>) -> Vec<(u32, Vec<u8>)> {
    SIDES.iter().map(|&side| (side, picture(side, &draw(side)))).collect()
}

/// The `.ico` file.
#[allow(dead_code, reason = "the build script makes only the resources")]
pub fn ico(pictures: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let mut out = table_head(pictures.len());
    let mut offset = out.len() + 16 * pictures.len();
    for (side, picture) in pictures {
        entry(&mut out, *side, picture.len(), &u32::try_from(offset).unwrap_or(u32::MAX).to_le_bytes());
        offset += picture.len();
    }
    pictures.iter().for_each(|(_, picture)| out.extend(picture));
    out
}

/// Kinds of resources.
const ICON: u16 = 3;
const ICONS: u16 = 14;
const VERSION: u16 = 16;

/// One resource: its kind and number, flags that mean little, and its bytes, padded to four.
fn resource(out: &mut Vec<u8>, kind: u16, number: u16, data: &[u8]) {
    out.extend(u32::try_from(data.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend(32u32.to_le_bytes());
    for id in [kind, number] {
        out.extend(u16::MAX.to_le_bytes());
        out.extend(id.to_le_bytes());
    }
    out.extend(0u32.to_le_bytes());
    out.extend(0x1030u16.to_le_bytes());
    // American English, as the program speaks.
    out.extend(0x0409u16.to_le_bytes());
    out.extend([0; 8]);
    out.extend(data);
    out.resize(out.len().next_multiple_of(4), 0);
}

/// The `.res` file with the icon and the version.
pub fn resources(pictures: &[(u32, Vec<u8>)], version: [u16; 3]) -> Vec<u8> {
    let mut out = Vec::new();
    // The first one is empty: it says that numbers of 32 bits are used.
    resource(&mut out, 0, 0, &[]);
    out[20..].fill(0);
    let mut table = table_head(pictures.len());
    for (number, (side, picture)) in (1u16..).zip(pictures) {
        resource(&mut out, ICON, number, picture);
        entry(&mut table, *side, picture.len(), &number.to_le_bytes());
    }
    resource(&mut out, ICONS, 1, &table);
    resource(&mut out, VERSION, 1, &version_info(version));
    out
}

/// A block of the version's tree: its own length, that of its value, whether that is text, its name, value, children.
fn block(name: &str, text: bool, value: &[u8], children: &[Vec<u8>]) -> Vec<u8> {
    let mut out = vec![0; 2];
    let length = if text { value.len() / 2 } else { value.len() };
    out.extend(u16::try_from(length).unwrap_or(u16::MAX).to_le_bytes());
    out.extend(u16::from(text).to_le_bytes());
    out.extend(wide(name));
    out.resize(out.len().next_multiple_of(4), 0);
    out.extend(value);
    for child in children {
        out.resize(out.len().next_multiple_of(4), 0);
        out.extend(child);
    }
    let length = u16::try_from(out.len()).unwrap_or(u16::MAX).to_le_bytes();
    out[..2].copy_from_slice(&length);
    out
}

/// UTF-16 with a zero at the end.
fn wide(text: &str) -> Vec<u8> {
    text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect()
}

fn version_info([major, minor, patch]: [u16; 3]) -> Vec<u8> {
    let high = u32::from(major) << 16 | u32::from(minor);
    let low = u32::from(patch) << 16;
    // Signature, form, version of the file and of the product, flags, system (Windows NT), kind (a program), date.
    let fixed = [0xfeef_04bd, 0x0001_0000, high, low, high, low, 0x3f, 0, 0x0004_0004, 1, 0, 0, 0];
    let fixed: Vec<u8> = fixed.iter().flat_map(|word: &u32| word.to_le_bytes()).collect();
    let number = format!("{major}.{minor}.{patch}");
    let texts: Vec<Vec<u8>> = [
        ("FileDescription", "Fieldfare"),
        ("FileVersion", number.as_str()),
        ("LegalCopyright", "The Fieldfare authors, Apache-2.0"),
        ("OriginalFilename", "fieldfare-app.exe"),
        ("ProductName", "Fieldfare"),
        ("ProductVersion", number.as_str()),
    ]
    .iter()
    .map(|(name, value)| block(name, true, &wide(value), &[]))
    .collect();
    let table = block("040904B0", true, &[], &texts);
    let translation = [0x0409u16, 1200].map(u16::to_le_bytes).concat();
    let files = block("VarFileInfo", true, &[], &[block("Translation", false, &translation, &[])]);
    block("VS_VERSION_INFO", false, &fixed, &[block("StringFileInfo", true, &[], &[table]), files])
}
