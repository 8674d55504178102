//! The drawing itself, without anything else of the program: the build script draws it too, for the file of Windows.

/// Points across, in the drawing's own measure.
const SIDE: f32 = 64.0;

/// An ellipse: its middle, its half axes, its turn, its colour.
struct Ellipse {
    x: f32,
    y: f32,
    a: f32,
    b: f32,
    turn: f32,
    color: [u8; 3],
}

const fn ellipse(x: f32, y: f32, a: f32, b: f32, turn: f32, color: [u8; 3]) -> Ellipse {
    Ellipse { x, y, a, b, turn, color }
}

const SLATE: [u8; 3] = [0x5d, 0x6f, 0x84];
const CHESTNUT: [u8; 3] = [0xa6, 0x4e, 0x17];
const OCHRE: [u8; 3] = [0xe8, 0xb5, 0x6b];
const DARK: [u8; 3] = [0x22, 0x25, 0x2b];
const CREAM: [u8; 3] = [0xfb, 0xf6, 0xec];

/// Painted in this order.
const PARTS: &[Ellipse] = &[
    ellipse(32.0, 32.0, 31.0, 31.0, 0.0, CREAM),
    ellipse(14.0, 47.0, 12.0, 3.6, -0.55, DARK),
    ellipse(31.0, 37.0, 17.0, 12.5, -0.35, OCHRE),
    ellipse(34.0, 44.5, 9.0, 4.5, -0.25, CREAM),
    ellipse(27.0, 34.0, 15.0, 8.6, -0.5, CHESTNUT),
    ellipse(22.0, 40.0, 12.0, 4.0, -0.55, DARK),
    ellipse(43.0, 23.0, 9.4, 8.6, 0.0, SLATE),
    ellipse(53.5, 24.0, 5.4, 1.9, 0.1, OCHRE),
    ellipse(45.8, 21.4, 1.8, 1.8, 0.0, DARK),
    ellipse(46.4, 20.8, 0.6, 0.6, 0.0, CREAM),
    ellipse(41.0, 34.5, 1.1, 1.7, 0.4, DARK),
    ellipse(44.5, 37.5, 1.1, 1.7, 0.4, DARK),
    ellipse(40.0, 39.5, 1.1, 1.7, 0.4, DARK),
    ellipse(36.0, 42.5, 1.1, 1.7, 0.4, DARK),
    ellipse(30.0, 52.5, 0.9, 4.6, 0.15, DARK),
    ellipse(36.0, 52.5, 0.9, 4.6, -0.1, DARK),
];

/// RGBA of the icon, `side` points across, each averaged over sixteen places.
pub fn pixels(side: u32) -> Vec<u8> {
    const GRID: u32 = 4;
    let mut out = Vec::with_capacity((side * side * 4) as usize);
    for y in 0..side {
        for x in 0..side {
            let mut sum = [0u32; 4];
            for sample in 0..GRID * GRID {
                let place = |pixel: u32, part: u32| {
                    (pixel as f32 + (part as f32 + 0.5) / GRID as f32) * SIDE / side as f32
                };
                if let Some(color) = color_at(place(x, sample % GRID), place(y, sample / GRID)) {
                    for (sum, part) in sum.iter_mut().zip(color) {
                        *sum += u32::from(part);
                    }
                    sum[3] += 1;
                }
            }
            let hits = sum[3].max(1);
            out.extend(sum[..3].iter().map(|part| (part / hits) as u8));
            out.push((sum[3] * 255 / (GRID * GRID)) as u8);
        }
    }
    out
}

fn color_at(x: f32, y: f32) -> Option<[u8; 3]> {
    PARTS
        .iter()
        .rev()
        .find(|part| {
            let (dx, dy) = (x - part.x, y - part.y);
            let (sin, cos) = part.turn.sin_cos();
            let (u, v) = (dx * cos + dy * sin, dy * cos - dx * sin);
            (u / part.a).powi(2) + (v / part.b).powi(2) <= 1.0
        })
        .map(|part| part.color)
}
