//! `packed_experts/layout.json`: which file holds which layer, where in it each expert lies, and what a blob holds.
//!
//! The document says the same thing once for every expert (3,840 times in 26B-A4B, 8.45 MB), so blob descriptions stay
//! text until they are told apart, and each distinct one is read and kept once.

use super::json::{self, Fields, Value, Wanted};
use super::{CAP_LAYOUT, EXPERTS_DIR, LAYOUT, Layout, MANIFEST, Manifest, PAGE, fault, paths};
use crate::Result;
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
        let wanted = Wanted { containers: &["layers", "experts"], text: "tensors" };
        let (value, texts) = json::parse_wanted(LAYOUT, bytes, CAP_LAYOUT, &wanted)?;
        let fields = Fields::new(LAYOUT, "", &value)?;
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
        let layers = fields.objects("layers")?;
        if layers.len() != count {
            return Err(fields.fault("layers", format!("expected {count} entries, found {}", layers.len())));
        }
        let mut blobs = Blobs::new(layout, stride, &texts);
        let mut placed: Vec<Option<LayerLayout>> = vec![None; count];
        let mut names = HashSet::new();
        for layer in layers {
            let layer = layer?;
            let number = layer.need("layer", "an integer >= 0", Value::as_int)?;
            let slot = usize::try_from(number)
                .ok()
                .and_then(|n| placed.get_mut(n))
                .ok_or_else(|| layer.fault("layer", format!("expected 0..{count}, found {number}")))?;
            if slot.is_some() {
                return Err(layer.fault("layer", format!("layer {number} appears twice")));
            }
            let file = layer.need("file", "a string", Value::as_str)?.to_owned();
            if let Some(problem) = paths::basename_problem(&file) {
                return Err(layer.fault("file", format!("the name {problem}")));
            }
            let key = paths::key(&file);
            if key == "layout.json" || !names.insert(key) {
                return Err(layer.fault("file", format!("{file:?} is reserved or used twice")));
            }
            let experts = place_experts(&layer, per, stride, &mut blobs)?;
            *slot = Some(LayerLayout { file, experts });
        }
        let layers = placed.into_iter().flatten().collect(); // all are set: as many layers as slots, none twice
        Ok(Self { expert_stride: stride, experts_per_layer: per, layers, blobs: blobs.finish()? })
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

/// Blob descriptions seen so far, by text and by meaning.
struct Blobs<'a> {
    layout: Layout,
    stride: u64,
    /// The distinct texts, and what each was found to mean.
    by_text: Vec<(&'a str, Option<u32>)>,
    by_meaning: HashMap<Vec<SubTensor>, u32>,
    all: Vec<Vec<SubTensor>>,
}

impl<'a> Blobs<'a> {
    fn new(layout: Layout, stride: u64, texts: &[&'a str]) -> Self {
        let by_text = texts.iter().map(|text| (*text, None)).collect();
        Self { layout, stride, by_text, by_meaning: HashMap::new(), all: Vec::new() }
    }

    /// The number of the description of `expert`.
    fn number(&mut self, expert: &Fields<'_>) -> Result<u32> {
        let text = |v: &Value| v.as_u64().and_then(|n| usize::try_from(n).ok());
        let text = expert.need("tensors", "an object", text)?;
        let Some((text, number)) = self.by_text.get_mut(text) else {
            return Err(expert.fault("tensors", "expected an object"));
        };
        if let Some(number) = number {
            return Ok(*number); // the same text was read before
        }
        let at = expert.path("tensors");
        let value = json::parse(&format!("{LAYOUT}: {at}"), text.as_bytes(), CAP_LAYOUT)?;
        let parts = read_blob(&value, self.layout, &at)?;
        check_blob(&parts, self.stride, self.layout, &at)?;
        let next = u32::try_from(self.all.len()).map_err(|_| expert.fault("tensors", "too many kinds"))?;
        Ok(*number.insert(*self.by_meaning.entry(parts).or_insert_with_key(|parts| {
            self.all.push(parts.clone());
            next
        })))
    }

    /// The descriptions by number. A `tensors` that no expert owns must be sound JSON too.
    fn finish(self) -> Result<Vec<Vec<SubTensor>>> {
        for (text, _) in self.by_text.iter().filter(|(_, number)| number.is_none()) {
            json::parse(LAYOUT, text.as_bytes(), CAP_LAYOUT)?;
        }
        Ok(self.all)
    }
}

fn place_experts(
    layer: &Fields<'_>,
    per: usize,
    stride: u64,
    blobs: &mut Blobs<'_>,
) -> Result<Vec<ExpertEntry>> {
    let experts = layer.objects("experts")?;
    if experts.len() != per {
        return Err(layer.fault("experts", format!("expected {per} entries, found {}", experts.len())));
    }
    let mut explicit = 0;
    let mut placed: Vec<Option<ExpertEntry>> = vec![None; per];
    let mut taken = vec![false; per];
    for (i, expert) in experts.enumerate() {
        let expert = expert?;
        let id = expert.optional("expert", "an integer", Value::as_int)?;
        explicit += usize::from(id.is_some());
        let id = id.unwrap_or(i as i128);
        if explicit != 0 && explicit != i + 1 {
            return Err(layer.fault("experts", "`expert` must be given for all or for none"));
        }
        let slot = usize::try_from(id)
            .ok()
            .and_then(|id| placed.get_mut(id))
            .filter(|slot| slot.is_none())
            .ok_or_else(|| expert.fault("expert", format!("{id} is repeated or not in 0..{per}")))?;
        let rank = expert.optional("physicalRank", "an integer", Value::as_int)?.unwrap_or(id);
        let free = usize::try_from(rank).ok().and_then(|rank| taken.get_mut(rank)).filter(|taken| !**taken);
        *free.ok_or_else(|| {
            expert.fault("physicalRank", format!("{rank} is repeated or not in 0..{per}"))
        })? = true;
        let physical_rank = u32::try_from(rank).map_err(|_| expert.fault("physicalRank", "too large"))?;
        let expected = stride.checked_mul(u64::from(physical_rank));
        let offset = expert.u64("offset")?;
        if expected != Some(offset) {
            let expected = expected.map_or_else(|| "one within 64 bits".to_owned(), |n| n.to_string());
            return Err(expert.fault("offset", format!("expected {expected}, found {offset}")));
        }
        let size = expert.u64("size")?;
        if size != stride {
            return Err(expert.fault("size", format!("expected {stride}, found {size}")));
        }
        *slot = Some(ExpertEntry { physical_rank, blob: blobs.number(&expert)? });
    }
    Ok(placed.into_iter().flatten().collect()) // all are set: as many experts as slots, none twice
}

#[cfg(test)]
mod tests;
