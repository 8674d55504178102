//! `packed_experts/layout.json`: which file holds which layer, where in it each expert lies, and what a blob holds.
//!
//! The document says the same thing once for every expert (3,840 times in 26B-A4B, 8.45 MB), so it is read in one
//! streaming pass that keeps each distinct blob description once.

use super::json::{self, Cursor, Fields, Value};
use super::{CAP_LAYOUT, EXPERTS_DIR, LAYOUT, Layout, MANIFEST, Manifest, PAGE, fault, paths};
use crate::{Error, Result};
use std::collections::{HashMap, HashSet};

mod blob;
pub(super) use blob::tiled_span;
use blob::{blob_text, check_blob, read_blob};

/// How a part of a blob is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SubDType {
    /// Packed weights in source order.
    U32,
    /// Scales or biases.
    Bf16,
    /// Weights, scales and biases as 16 x 64 tiles.
    Tile16x64,
}

impl SubDType {
    /// Its name in the document.
    pub fn name(self) -> &'static str {
        match self {
            Self::U32 => "U32",
            Self::Bf16 => "BF16",
            Self::Tile16x64 => "TILE16X64",
        }
    }
}

/// One part of an expert blob.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SubTensor {
    /// `gate`, `up_scales` …
    pub role: String,
    /// How it is stored.
    pub dtype: SubDType,
    /// Logical shape.
    pub shape: Vec<u32>,
    /// Bits of a weight; weights only.
    pub bits: Option<u32>,
    /// First byte, relative to the blob.
    pub offset: u64,
    /// Bytes up to the part's last one. A tiled part whose panels are interleaved with another's spans more bytes than
    /// it owns.
    pub size: u64,
    /// Bytes from one panel to the next; tiled parts only.
    pub panel_stride: Option<u64>,
}

/// One expert of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertEntry {
    /// Blob number in the layer file.
    pub physical_rank: u32,
    /// Index into [`ExpertLayout::blobs`].
    pub blob: u32,
}

/// One layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerLayout {
    /// File name below `packed_experts/`.
    pub file: String,
    /// Experts by logical id.
    pub experts: Vec<ExpertEntry>,
}

/// `packed_experts/layout.json`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpertLayout {
    /// Bytes from one blob to the next.
    pub expert_stride: u64,
    /// Experts of every layer.
    pub experts_per_layer: usize,
    /// Layers by number.
    pub layers: Vec<LayerLayout>,
    /// The distinct blob descriptions; parts are sorted by role. Upstream and we write one.
    pub blobs: Vec<Vec<SubTensor>>,
}

impl ExpertLayout {
    /// Parses a layout and applies the rules of 1.6 of the specification, or of a tiled directory.
    pub fn parse(bytes: &[u8], layout: Layout) -> Result<Self> {
        let raw = Raw::read(bytes, layout)?;
        let fields = Fields::new(LAYOUT, "", &raw.top)?;
        let stride = fields.need("expertStride", "a positive multiple of 16384", |v| {
            v.as_u64().filter(|n| *n > 0 && n.is_multiple_of(PAGE))
        })?;
        let count = fields.positive("numLayers")?;
        let per = fields.positive("expertsPerLayer")?;
        if u32::try_from(per).is_err() {
            return Err(
                fields.fault("expertsPerLayer", format!("{per} is more than this program can number"))
            );
        }
        let Some(layers) = raw.layers else {
            return Err(fields.fault("layers", "expected an array, it is missing"));
        };
        if layers.len() != count {
            return Err(fields.fault("layers", format!("expected {count} entries, found {}", layers.len())));
        }
        for (parts, at) in raw.blobs.iter().zip(&raw.first_seen) {
            check_blob(parts, stride, layout, at)?;
        }
        let mut placed: Vec<Option<LayerLayout>> = vec![None; count];
        let mut names = HashSet::new();
        for (i, layer) in layers.into_iter().enumerate() {
            let at = |field: &str| format!("layers[{i}].{field}");
            let slot =
                usize::try_from(layer.layer).ok().and_then(|n| placed.get_mut(n)).ok_or_else(|| {
                    fault(LAYOUT, &at("layer"), format!("expected 0..{count}, found {}", layer.layer))
                })?;
            if slot.is_some() {
                return Err(fault(LAYOUT, &at("layer"), format!("layer {} appears twice", layer.layer)));
            }
            if let Some(problem) = paths::basename_problem(&layer.file) {
                return Err(fault(LAYOUT, &at("file"), format!("the name {problem}")));
            }
            let key = paths::key(&layer.file);
            if key == "layout.json" || !names.insert(key) {
                return Err(fault(
                    LAYOUT,
                    &at("file"),
                    format!("{:?} is reserved or used twice", layer.file),
                ));
            }
            let experts = place_experts(&layer.experts, per, stride, &at("experts"))?;
            *slot = Some(LayerLayout { file: layer.file, experts });
        }
        let layers = placed.into_iter().flatten().collect(); // all are set: as many layers as slots, none twice
        Ok(Self { expert_stride: stride, experts_per_layer: per, layers, blobs: raw.blobs })
    }

    /// Checks agreement with the manifest: counts, stride, and that each layer file is listed with its size.
    pub fn check(&self, manifest: &Manifest) -> Result<()> {
        let pairs = [
            ("numLayers", self.layers.len() as u64, manifest.arch.num_hidden_layers as u64),
            ("expertsPerLayer", self.experts_per_layer as u64, manifest.arch.num_experts as u64),
            ("expertStride", self.expert_stride, manifest.expert_stride),
        ];
        for (field, found, expected) in pairs {
            if found != expected {
                return Err(fault(
                    LAYOUT,
                    field,
                    format!("expected {expected} as in the manifest, found {found}"),
                ));
            }
        }
        let size = self.file_bytes()?;
        for layer in &self.layers {
            let path = format!("{EXPERTS_DIR}/{}", layer.file);
            let listed = manifest.file(&path)?.size;
            if listed != size {
                return Err(fault(
                    MANIFEST,
                    &format!("files.{path}.size"),
                    format!("expected {size}, found {listed}"),
                ));
            }
        }
        Ok(())
    }

    /// Bytes of every layer file.
    pub fn file_bytes(&self) -> Result<u64> {
        self.expert_stride
            .checked_mul(self.experts_per_layer as u64)
            .ok_or_else(|| fault(LAYOUT, "expertStride", "the layer files would be too large"))
    }

    /// The parts of an expert's blob, sorted by role.
    pub fn parts_of(&self, expert: ExpertEntry) -> &[SubTensor] {
        self.blobs.get(expert.blob as usize).map_or(&[], Vec::as_slice)
    }

    /// The bytes of the file, in canonical form: every expert written out, layers and experts in ascending order,
    /// `physicalRank` only where it is not the logical id.
    pub fn encode(&self) -> Vec<u8> {
        const EXPERT_DEPTH: usize = 5;
        let blobs: Vec<String> = self.blobs.iter().map(|parts| blob_text(parts, EXPERT_DEPTH)).collect();
        // By the descriptions in use: a parsed document may have one that is far longer than the others.
        let text = |expert: &ExpertEntry| 200 + blobs.get(expert.blob as usize).map_or(0, String::len);
        let bytes = self.layers.iter().flat_map(|layer| &layer.experts).map(text).sum();
        let mut out = String::with_capacity(bytes);
        out.push_str("{\n");
        out.push_str(&format!("  \"expertsPerLayer\" : {},\n", self.experts_per_layer));
        out.push_str(&format!("  \"expertStride\" : {},\n", self.expert_stride));
        out.push_str("  \"layers\" : [\n");
        for (l, layer) in self.layers.iter().enumerate() {
            out.push_str("    {\n      \"experts\" : [\n");
            for (e, expert) in layer.experts.iter().enumerate() {
                let offset = self.expert_stride.wrapping_mul(u64::from(expert.physical_rank)); // checked when made
                out.push_str(&format!(
                    "        {{\n          \"expert\" : {e},\n          \"offset\" : {offset},\n"
                ));
                if expert.physical_rank as usize != e {
                    out.push_str(&format!("          \"physicalRank\" : {},\n", expert.physical_rank));
                }
                out.push_str(&format!(
                    "          \"size\" : {},\n          \"tensors\" : ",
                    self.expert_stride
                ));
                out.push_str(blobs.get(expert.blob as usize).map_or("{\n\n          }", String::as_str));
                out.push_str("\n        }");
                out.push_str(if e + 1 < layer.experts.len() { ",\n" } else { "\n" });
            }
            out.push_str("      ],\n      \"file\" : ");
            json::canonical_into(&mut out, &layer.file.as_str().into(), 3);
            out.push_str(&format!(",\n      \"layer\" : {l}\n    }}"));
            out.push_str(if l + 1 < self.layers.len() { ",\n" } else { "\n" });
        }
        out.push_str(&format!("  ],\n  \"numLayers\" : {}\n}}", self.layers.len()));
        out.into_bytes()
    }
}

struct RawExpert {
    id: Option<i128>,
    rank: Option<i128>,
    offset: u64,
    size: u64,
    blob: u32,
}

struct RawLayer {
    layer: i128,
    file: String,
    experts: Vec<RawExpert>,
}

/// The document as read: fields checked one by one, not yet against each other.
struct Raw {
    /// The small top-level members.
    top: Value,
    layers: Option<Vec<RawLayer>>,
    blobs: Vec<Vec<SubTensor>>,
    /// Where each blob description stood first, for messages.
    first_seen: Vec<String>,
}

impl Raw {
    fn read(bytes: &[u8], layout: Layout) -> Result<Self> {
        let mut cursor = Cursor::new(LAYOUT, bytes, CAP_LAYOUT)?;
        if cursor.peek() != Some(b'{') {
            return Err(Error::damaged(LAYOUT, "expected an object"));
        }
        let mut top = Vec::new();
        let mut layers = None;
        let mut blobs = Blobs { layout, ..Blobs::default() };
        cursor.object(|cursor, key| {
            match key {
                "layers" => layers = Some(read_layers(cursor, &mut blobs)?),
                "expertStride" | "numLayers" | "expertsPerLayer" => {
                    top.push((key.to_owned(), cursor.leaf()?));
                }
                _ => cursor.skip()?,
            }
            Ok(())
        })?;
        cursor.end()?;
        Ok(Self { top: Value::Object(top), layers, blobs: blobs.all, first_seen: blobs.first_seen })
    }
}

fn expect_bracket(cursor: &mut Cursor<'_>, bracket: u8, at: &str) -> Result<()> {
    if cursor.peek() == Some(bracket) {
        return Ok(());
    }
    let what = if bracket == b'[' { "an array" } else { "an object" };
    Err(fault(LAYOUT, at, format!("expected {what}")))
}

fn read_layers<'a>(cursor: &mut Cursor<'a>, blobs: &mut Blobs<'a>) -> Result<Vec<RawLayer>> {
    let mut layers = Vec::new();
    expect_bracket(cursor, b'[', "layers")?;
    cursor.array(|cursor, i| {
        let at = format!("layers[{i}]");
        expect_bracket(cursor, b'{', &at)?;
        let (mut small, mut experts) = (Vec::new(), None);
        cursor.object(|cursor, key| {
            match key {
                "experts" => experts = Some(read_experts(cursor, &at, blobs)?),
                "layer" | "file" => small.push((key.to_owned(), cursor.leaf()?)),
                _ => cursor.skip()?,
            }
            Ok(())
        })?;
        let small = Value::Object(small);
        let fields = Fields::new(LAYOUT, at, &small)?;
        let Some(experts) = experts else {
            return Err(fields.fault("experts", "expected an array, it is missing"));
        };
        let layer = fields.need("layer", "an integer >= 0", Value::as_int)?;
        let file = fields.need("file", "a string", Value::as_str)?.to_owned();
        layers.push(RawLayer { layer, file, experts });
        Ok(())
    })?;
    Ok(layers)
}

fn read_experts<'a>(cursor: &mut Cursor<'a>, layer: &str, blobs: &mut Blobs<'a>) -> Result<Vec<RawExpert>> {
    let mut experts = Vec::new();
    expect_bracket(cursor, b'[', &format!("{layer}.experts"))?;
    cursor.array(|cursor, i| {
        if cursor.peek() != Some(b'{') {
            return Err(fault(LAYOUT, &format!("{layer}.experts[{i}]"), "expected an object"));
        }
        let (mut small, mut blob) = (Vec::new(), None);
        cursor.object(|cursor, key| {
            match key {
                "tensors" => blob = Some(blobs.read(cursor, &|| format!("{layer}.experts[{i}].tensors"))?),
                "expert" | "physicalRank" | "offset" | "size" => {
                    small.push((key.to_owned(), cursor.leaf()?));
                }
                _ => cursor.skip()?,
            }
            Ok(())
        })?;
        let small = Value::Object(small);
        let fields = Fields::new(LAYOUT, format!("{layer}.experts[{i}]"), &small)?;
        experts.push(RawExpert {
            id: fields.optional("expert", "an integer", Value::as_int)?,
            rank: fields.optional("physicalRank", "an integer", Value::as_int)?,
            offset: fields.u64("offset")?,
            size: fields.u64("size")?,
            blob: blob.ok_or_else(|| fields.fault("tensors", "expected an object, it is missing"))?,
        });
        Ok(())
    })?;
    Ok(experts)
}

/// Blob descriptions seen so far, by text and by meaning.
#[derive(Default)]
struct Blobs<'a> {
    layout: Layout,
    by_text: HashMap<&'a str, u32>,
    by_meaning: HashMap<Vec<SubTensor>, u32>,
    all: Vec<Vec<SubTensor>>,
    first_seen: Vec<String>,
}

impl<'a> Blobs<'a> {
    fn read(&mut self, cursor: &mut Cursor<'a>, at: &dyn Fn() -> String) -> Result<u32> {
        if cursor.peek() != Some(b'{') {
            return Err(fault(LAYOUT, &at(), "expected an object"));
        }
        let text = cursor.raw_object()?;
        if let Some(number) = self.by_text.get(text) {
            return Ok(*number); // the same text was parsed before
        }
        let mut inner = cursor.nested(text);
        let value = inner.value()?;
        inner.end()?;
        let parts = read_blob(&value, self.layout, &at())?;
        let next =
            u32::try_from(self.all.len()).map_err(|_| fault(LAYOUT, &at(), "too many descriptions"))?;
        let number = *self.by_meaning.entry(parts).or_insert_with_key(|parts| {
            self.all.push(parts.clone());
            self.first_seen.push(at());
            next
        });
        self.by_text.insert(text, number);
        Ok(number)
    }
}

fn place_experts(raw: &[RawExpert], per: usize, stride: u64, at: &str) -> Result<Vec<ExpertEntry>> {
    if raw.len() != per {
        return Err(fault(LAYOUT, at, format!("expected {per} entries, found {}", raw.len())));
    }
    let explicit = raw.iter().filter(|expert| expert.id.is_some()).count();
    if explicit != 0 && explicit != per {
        return Err(fault(LAYOUT, at, "`expert` must be given for all or for none"));
    }
    let mut placed: Vec<Option<ExpertEntry>> = vec![None; per];
    let mut taken = vec![false; per];
    for (i, expert) in raw.iter().enumerate() {
        let wrong = |field: &str, reason: String| fault(LAYOUT, &format!("{at}[{i}].{field}"), reason);
        let id = expert.id.unwrap_or(i as i128);
        let slot = usize::try_from(id)
            .ok()
            .and_then(|id| placed.get_mut(id))
            .filter(|slot| slot.is_none())
            .ok_or_else(|| wrong("expert", format!("{id} is repeated or not in 0..{per}")))?;
        let rank = expert.rank.unwrap_or(id);
        let free = usize::try_from(rank).ok().and_then(|rank| taken.get_mut(rank)).filter(|taken| !**taken);
        *free.ok_or_else(|| wrong("physicalRank", format!("{rank} is repeated or not in 0..{per}")))? = true;
        let physical_rank = u32::try_from(rank).map_err(|_| wrong("physicalRank", "too large".into()))?;
        let offset = stride.checked_mul(u64::from(physical_rank));
        if offset != Some(expert.offset) {
            let expected = offset.map_or_else(|| "one within 64 bits".to_owned(), |n| n.to_string());
            return Err(wrong("offset", format!("expected {expected}, found {}", expert.offset)));
        }
        if expert.size != stride {
            return Err(wrong("size", format!("expected {stride}, found {}", expert.size)));
        }
        *slot = Some(ExpertEntry { physical_rank, blob: expert.blob });
    }
    Ok(placed.into_iter().flatten().collect()) // all are set: as many experts as slots, none twice
}

#[cfg(test)]
mod tests;
