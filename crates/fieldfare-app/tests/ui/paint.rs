//! A painter of triangles, so that pictures of the window need no driver and are the same on every machine.

use egui::epaint::{ImageData, Primitive, Vertex};
use egui::{Color32, Context, FullOutput, Rect, TextureId, TexturesDelta};
use egui_kittest::TestRenderer;
use image::{Rgb, RgbImage};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// Textures by their ids: width, height, pixels. The harness keeps one end, the test the other.
#[derive(Clone, Default)]
pub(crate) struct Painter {
    textures: Rc<RefCell<HashMap<TextureId, Texture>>>,
}

type Texture = (usize, usize, Vec<Color32>);

impl TestRenderer for Painter {
    fn handle_delta(&mut self, delta: &mut TexturesDelta) {
        let mut textures = self.textures.borrow_mut();
        for (id, changes) in std::mem::take(&mut delta.set) {
            for change in changes {
                let ImageData::Color(image) = &change.image;
                let [width, height] = image.size;
                match change.pos {
                    None => {
                        textures.insert(id, (width, height, image.pixels.clone()));
                    }
                    Some([left, top]) => {
                        let (all, _, pixels) = textures.get_mut(&id).expect("a part of a known texture");
                        for row in 0..height {
                            let to = (top + row) * *all + left;
                            pixels[to..to + width].copy_from_slice(&image.pixels[row * width..][..width]);
                        }
                    }
                }
            }
        }
        for id in std::mem::take(&mut delta.free) {
            textures.remove(&id);
        }
    }
}

impl Painter {
    /// The picture of a frame.
    pub(crate) fn paint(&self, context: &Context, output: &FullOutput) -> RgbImage {
        let textures = self.textures.borrow();
        let scale = output.pixels_per_point;
        let size = context.content_rect().size() * scale;
        let (width, height) = (size.x.round() as usize, size.y.round() as usize);
        let mut canvas = vec![[0.0f32; 3]; width * height];
        for primitive in context.tessellate(output.shapes.clone(), scale) {
            let Primitive::Mesh(mesh) = &primitive.primitive else { panic!("the window draws meshes alone") };
            let texture = textures.get(&mesh.texture_id).expect("a known texture");
            let clip = clip(primitive.clip_rect, scale, width, height);
            for corners in mesh.indices.chunks_exact(3) {
                let vertex = |index: usize| &mesh.vertices[corners[index] as usize];
                triangle(&mut canvas, width, clip, [vertex(0), vertex(1), vertex(2)], scale, texture);
            }
        }
        RgbImage::from_fn(width as u32, height as u32, |x, y| {
            let pixel = canvas[y as usize * width + x as usize];
            Rgb(pixel.map(|part| (part + 0.5).clamp(0.0, 255.0) as u8))
        })
    }
}

/// Pixels from, to: left, top, right, bottom.
type Clip = [usize; 4];

fn clip(rect: Rect, scale: f32, width: usize, height: usize) -> Clip {
    let at = |value: f32, most: usize| ((value * scale).round().max(0.0) as usize).min(most);
    [at(rect.min.x, width), at(rect.min.y, height), at(rect.max.x, width), at(rect.max.y, height)]
}

fn triangle(
    canvas: &mut [[f32; 3]],
    width: usize,
    clip: Clip,
    corners: [&Vertex; 3],
    scale: f32,
    texture: &Texture,
) {
    let [a, b, c] = corners.map(|corner| corner.pos.to_vec2() * scale);
    let cross = |from: egui::Vec2, to: egui::Vec2, x: f32, y: f32| {
        (to.x - from.x) * (y - from.y) - (to.y - from.y) * (x - from.x)
    };
    let area = cross(a, b, c.x, c.y);
    if area == 0.0 || !area.is_finite() {
        return;
    }
    // An edge belongs to one of the two triangles that share it: to the one on its left or above.
    let turn = area.signum();
    let owns = |from: egui::Vec2, to: egui::Vec2| {
        let edge = (to - from) * turn;
        edge.y < 0.0 || (edge.y == 0.0 && edge.x > 0.0)
    };
    let own = [owns(b, c), owns(c, a), owns(a, b)];
    let low = |one: f32, two: f32, three: f32, least: usize| {
        (one.min(two).min(three).floor().max(0.0) as usize).max(least)
    };
    let high = |one: f32, two: f32, three: f32, most: usize| {
        (one.max(two).max(three).ceil().max(0.0) as usize).min(most)
    };
    let colors = corners.map(|corner| corner.color.to_array().map(f32::from));
    let one_color =
        corners.iter().all(|corner| corner.color == corners[0].color && corner.uv == corners[0].uv);
    let fixed = sample(texture, corners[0].uv.x, corners[0].uv.y);
    for y in low(a.y, b.y, c.y, clip[1])..high(a.y, b.y, c.y, clip[3]) {
        for x in low(a.x, b.x, c.x, clip[0])..high(a.x, b.x, c.x, clip[2]) {
            let (px, py) = (x as f32 + 0.5, y as f32 + 0.5);
            let weights =
                [cross(b, c, px, py) / area, cross(c, a, px, py) / area, cross(a, b, px, py) / area];
            if weights.iter().zip(own).any(|(weight, own)| *weight < 0.0 || (*weight == 0.0 && !own)) {
                continue;
            }
            let mix = |part: &dyn Fn(usize) -> f32| {
                (0..3).map(|corner| weights[corner] * part(corner)).sum::<f32>()
            };
            let texel = if one_color {
                fixed
            } else {
                sample(texture, mix(&|corner| corners[corner].uv.x), mix(&|corner| corners[corner].uv.y))
            };
            let color: [f32; 4] = std::array::from_fn(|part| {
                let own = if one_color { colors[0][part] } else { mix(&|corner| colors[corner][part]) };
                own * texel[part] / 255.0
            });
            let behind = 1.0 - color[3] / 255.0;
            for (to, from) in canvas[y * width + x].iter_mut().zip(color) {
                *to = from + *to * behind;
            }
        }
    }
}

/// Between the four nearest texels.
fn sample((width, height, pixels): &Texture, u: f32, v: f32) -> [f32; 4] {
    let (x, y) = ((u * *width as f32 - 0.5).max(0.0), (v * *height as f32 - 0.5).max(0.0));
    let (left, top) = ((x as usize).min(width - 1), (y as usize).min(height - 1));
    let (right, bottom) = ((left + 1).min(width - 1), (top + 1).min(height - 1));
    let (fx, fy) = (x - left as f32, y - top as f32);
    let at = |x: usize, y: usize| pixels[y * width + x].to_array().map(f32::from);
    let (nw, ne, sw, se) = (at(left, top), at(right, top), at(left, bottom), at(right, bottom));
    std::array::from_fn(|part| {
        let above = nw[part] + (ne[part] - nw[part]) * fx;
        let below = sw[part] + (se[part] - sw[part]) * fx;
        above + (below - above) * fy
    })
}
