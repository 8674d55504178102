//! Typed places of every tensor of the model, found and checked once.
//!
//! Big matrices stay mapped: a [`Matrix`] knows its shape and where its bytes lie, and becomes a kernel's
//! view for the length of a call. Small vectors (norms, scales) are decoded to f32 once. Nothing else of the
//! file is touched here.

use super::config::{Config, LayerKind};
use crate::format::{DType, IndexEntry, ModelDir, PartData, ResidentIndex};
use crate::format::{ExpertParts, Part};
use crate::{Error, Result};
use fieldfare_kernels::{QuantData, QuantMatrix, tile};
use half::{bf16, f16};
use std::collections::HashMap;
use std::ops::Range;

/// The resident file, for messages.
const FILE: &str = "model_weights.bin";
/// What all names start with.
const PREFIX: &str = "language_model.model.";

/// Where the bytes of a matrix lie in the resident file or in an expert's blob.
#[derive(Debug, Clone)]
enum Place {
    Rows { weights: Range<usize>, scales: Range<usize>, biases: Range<usize> },
    Tiles { data: Range<usize>, panel_stride: usize },
}

/// A group-64 affine matrix `[rows, cols]` somewhere in a file.
#[derive(Debug, Clone)]
pub(super) struct Matrix {
    rows: usize,
    cols: usize,
    bits: u32,
    place: Place,
}

impl Matrix {
    /// A matrix whose bytes are known to fit its shape in any file of at least `len` bytes.
    fn new(rows: usize, cols: usize, bits: u32, place: Place, bytes: &[u8], what: &str) -> Result<Self> {
        let matrix = Self { rows, cols, bits, place };
        match matrix.try_view(bytes) {
            Some(Ok(_)) => Ok(matrix),
            Some(Err(error)) => Err(Error::damaged(what, error.to_string())),
            None => Err(Error::damaged(what, "reaches beyond its file")),
        }
    }

    /// This matrix and another as one, if their panels take turns in `blob`.
    fn in_turns(&self, other: &Self, blob: &[u8]) -> Option<Self> {
        let (Place::Tiles { data, panel_stride }, Place::Tiles { data: second, panel_stride: its }) =
            (&self.place, &other.place)
        else {
            return None;
        };
        let panel = tile::panel_bytes(self.cols);
        let alike = (self.rows, self.cols, self.bits) == (other.rows, other.cols, other.bits);
        let turns = panel_stride == its && *its == panel.checked_mul(2)?;
        if !alike || !turns || second.start != data.start.checked_add(panel)? {
            return None;
        }
        let place = Place::Tiles { data: data.start..second.end, panel_stride: panel };
        Self::new(self.rows.checked_mul(2)?, self.cols, self.bits, place, blob, "gate and up").ok()
    }

    /// Output width.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Input width.
    pub(super) fn cols(&self) -> usize {
        self.cols
    }

    /// The kernel's view. `bytes` is the file or blob that the matrix was checked against, or one of the same
    /// size.
    pub(super) fn view<'a>(&self, bytes: &'a [u8]) -> QuantMatrix<'a> {
        self.try_view(bytes)
            .and_then(Result::ok)
            .expect("shape and ranges were checked when the matrix was made")
    }

    fn try_view<'a>(
        &self,
        bytes: &'a [u8],
    ) -> Option<Result<QuantMatrix<'a>, fieldfare_kernels::ShapeError>> {
        let data = match &self.place {
            Place::Rows { weights, scales, biases } => QuantData::Rows {
                weights: bytes.get(weights.clone())?,
                scales: bytes.get(scales.clone())?,
                biases: bytes.get(biases.clone())?,
            },
            Place::Tiles { data, panel_stride } => {
                QuantData::Tiles { data: bytes.get(data.clone())?, panel_stride: *panel_stride }
            }
        };
        Some(QuantMatrix::new(self.rows, self.cols, self.bits, data))
    }
}

/// The attention half of a layer.
#[derive(Debug)]
pub(super) struct AttentionWeights {
    /// `input_layernorm`, `[hidden]`.
    pub(super) input_norm: Vec<f32>,
    /// `[heads * head_dim, hidden]`.
    pub(super) q_proj: Matrix,
    /// `[kv heads * head_dim, hidden]`.
    pub(super) k_proj: Matrix,
    /// `[kv heads * head_dim, hidden]`; full layers have none and use K as projected.
    pub(super) v_proj: Option<Matrix>,
    /// `[hidden, heads * head_dim]`.
    pub(super) o_proj: Matrix,
    /// `[head_dim]`.
    pub(super) q_norm: Vec<f32>,
    /// `[head_dim]`.
    pub(super) k_norm: Vec<f32>,
    /// `post_attention_layernorm`, `[hidden]`.
    pub(super) post_norm: Vec<f32>,
}

/// The matrices inside one expert's blob, the same in every expert of the layer.
#[derive(Debug)]
pub(super) struct ExpertShape {
    /// `[moe_intermediate, hidden]`.
    pub(super) gate: Matrix,
    /// `[moe_intermediate, hidden]`.
    pub(super) up: Matrix,
    /// `[hidden, moe_intermediate]`.
    pub(super) down: Matrix,
    /// `[2 * moe_intermediate, hidden]`: gate and up as one, where their panels of 16 rows take turns in the blob, so that
    /// a few rows of input find one long run of memory instead of two with gaps. 16 rows of gate, 16 of up, and so on.
    pub(super) gate_up: Option<Matrix>,
}

/// The feed-forward half of a layer.
#[derive(Debug)]
pub(super) struct FeedForwardWeights {
    /// `pre_feedforward_layernorm`, `[hidden]`.
    pub(super) shared_pre_norm: Vec<f32>,
    /// `[intermediate, hidden]`.
    pub(super) shared_gate: Matrix,
    /// `[intermediate, hidden]`.
    pub(super) shared_up: Matrix,
    /// `[hidden, intermediate]`.
    pub(super) shared_down: Matrix,
    /// `post_feedforward_layernorm_1`, `[hidden]`.
    pub(super) shared_post_norm: Vec<f32>,
    /// `router.scale` times `hidden^-1/2`, `[hidden]`.
    pub(super) router_scale: Vec<f32>,
    /// `[experts, hidden]`.
    pub(super) router: Matrix,
    /// `[experts]`.
    pub(super) per_expert_scale: Vec<f32>,
    /// `pre_feedforward_layernorm_2`, `[hidden]`.
    pub(super) routed_pre_norm: Vec<f32>,
    /// Inside a blob.
    pub(super) experts: ExpertShape,
    /// `post_feedforward_layernorm_2`, `[hidden]`.
    pub(super) routed_post_norm: Vec<f32>,
    /// `post_feedforward_layernorm`, `[hidden]`.
    pub(super) post_norm: Vec<f32>,
    /// What the whole residual is multiplied by at the end.
    pub(super) layer_scalar: f32,
}

/// One layer.
#[derive(Debug)]
pub(super) struct LayerWeights {
    /// Its attention half.
    pub(super) attention: AttentionWeights,
    /// Its feed-forward half.
    pub(super) feed_forward: FeedForwardWeights,
}

/// Embedding table and last norm.
#[derive(Debug)]
pub(super) struct HeadWeights {
    /// `[vocab, hidden]`: looked up in at the start, multiplied by at the end.
    pub(super) embedding: Matrix,
    /// `[hidden]`.
    pub(super) norm: Vec<f32>,
}

/// The whole model, but for the experts' bytes.
#[derive(Debug)]
pub(super) struct Weights {
    /// Start and end of the model.
    pub(super) head: HeadWeights,
    /// Its layers, in order.
    pub(super) layers: Vec<LayerWeights>,
}

impl Weights {
    /// Finds and checks all tensors of `config`'s shape in the directory.
    ///
    /// # Errors
    /// [`Error::Damaged`] names the tensor that is missing or of another shape.
    pub(super) fn open(dir: &ModelDir, config: &Config) -> Result<Self> {
        // They lie all over the file: asked for at once they are one wave of small reads, not one wait each.
        for entry in dir.index().entries.iter().filter(|entry| is_vector(entry)) {
            if let (Ok(start), Ok(end)) = (usize::try_from(entry.data.start), usize::try_from(entry.data.end))
            {
                dir.resident().map().will_need(start..end);
            }
        }
        let tensors = Tensors::new(dir.index(), dir.resident().bytes());
        let (hidden, vocab) = (config.hidden_size, config.vocab_size);
        let head = HeadWeights {
            embedding: tensors.matrix("embed_tokens.weight", vocab, hidden)?,
            norm: tensors.vector("norm.weight", hidden)?,
        };
        // A stand-in for every blob: only lengths are looked at.
        let stride = usize::try_from(dir.manifest().expert_stride)
            .ok()
            .filter(|&stride| stride <= LARGEST_BLOB)
            .ok_or_else(|| {
                Error::Unsupported(format!("expert blobs of {} bytes", dir.manifest().expert_stride))
            })?;
        let blob = vec![0; stride];
        let mut layers = Vec::with_capacity(config.layers.len());
        for (layer, &kind) in config.layers.iter().enumerate() {
            let experts = ExpertShape::new(&dir.expert_parts(layer)?, config, layer, &blob)?;
            layers.push(LayerWeights {
                attention: tensors.attention(layer, kind, config)?,
                feed_forward: tensors.feed_forward(layer, config, experts)?,
            });
        }
        Ok(Self { head, layers })
    }
}

impl Weights {
    /// True if no key can exceed half precision: a normed head has at most `sqrt(head_dim)` in one element,
    /// its weight scales that, and rope can put the lengths of two elements into one. Values have no weight
    /// and always fit.
    pub(super) fn keys_fit_f16(&self) -> bool {
        self.layers.iter().all(|layer| {
            let weight = &layer.attention.k_norm;
            let largest = weight.iter().fold(0.0f32, |most, w| most.max(w.abs()));
            largest * (2.0 * weight.len() as f32).sqrt() < f16::MAX.to_f32()
        })
    }
}

/// Whether an entry is one of the vectors that are decoded when the model is opened.
fn is_vector(entry: &IndexEntry) -> bool {
    matches!(entry.dtype, DType::Bf16 | DType::F16 | DType::F32) && entry.shape[1] == 0
}

/// Largest expert blob accepted, some hundred times that of 26B-A4B.
const LARGEST_BLOB: usize = 1 << 29;

impl ExpertShape {
    fn new(parts: &ExpertParts, config: &Config, layer: usize, blob: &[u8]) -> Result<Self> {
        let (hidden, inner) = (config.hidden_size, config.moe_intermediate_size);
        let matrix = |name: &str, part: &Part, rows: usize, cols: usize| {
            let what = format!("packed_experts/layout.json: layers[{layer}] {name}");
            if (part.rows, part.cols) != (rows, cols) {
                let reason = format!("is {} x {}, expected {rows} x {cols}", part.rows, part.cols);
                return Err(Error::damaged(what, reason));
            }
            let place = match &part.data {
                PartData::Rows { weights, scales, biases } => {
                    Place::Rows { weights: weights.clone(), scales: scales.clone(), biases: biases.clone() }
                }
                PartData::Tiles { offset, panel_stride } => {
                    Place::Tiles { data: *offset..part.span.end, panel_stride: *panel_stride }
                }
            };
            Matrix::new(rows, cols, part.bits, place, blob, &what)
        };
        let gate = matrix("gate", &parts.gate, inner, hidden)?;
        let up = matrix("up", &parts.up, inner, hidden)?;
        Ok(Self {
            gate_up: gate.in_turns(&up, blob),
            gate,
            up,
            down: matrix("down", &parts.down, hidden, inner)?,
        })
    }
}

/// The resident tensors by name.
struct Tensors<'a> {
    entries: HashMap<&'a str, &'a IndexEntry>,
    bytes: &'a [u8],
}

impl<'a> Tensors<'a> {
    fn new(index: &'a ResidentIndex, bytes: &'a [u8]) -> Self {
        let entries = index
            .entries
            .iter()
            .filter_map(|entry| Some((entry.name.strip_prefix(PREFIX)?, entry)))
            .collect();
        Self { entries, bytes }
    }

    fn entry(&self, name: &str, shape: &[usize]) -> Result<&'a IndexEntry> {
        let entry = self
            .entries
            .get(name)
            .copied()
            .ok_or_else(|| Error::damaged(FILE, format!("has no tensor {PREFIX}{name}")))?;
        let found: Vec<usize> = entry.shape.iter().take_while(|&&n| n > 0).map(|&n| n as usize).collect();
        if found != shape {
            let reason = format!("has the shape {found:?}, expected {shape:?}");
            return Err(Error::damaged(format!("{FILE}: {PREFIX}{name}"), reason));
        }
        Ok(entry)
    }

    fn matrix(&self, name: &str, rows: usize, cols: usize) -> Result<Matrix> {
        let entry = self.entry(name, &[rows, cols])?;
        let what = format!("{FILE}: {PREFIX}{name}");
        let range = |range: &Range<u64>| -> Result<Range<usize>> {
            let end = usize::try_from(range.end)
                .map_err(|_| Error::damaged(&*what, "exceeds the address space"))?;
            Ok(range.start as usize..end) // start <= end
        };
        let data = range(&entry.data)?;
        let (bits, place) = match entry.dtype {
            DType::Tile16x64 => (4, Place::Tiles { data, panel_stride: tile::panel_bytes(cols) }),
            DType::U32 => {
                // rows and cols are below 2^24 each, so 8 bits a byte fit 64 bits.
                let bits = data.len() as u64 * 8 / (rows as u64 * cols as u64);
                let (scales, biases) = (range(&entry.scales)?, range(&entry.biases)?);
                (u32::try_from(bits).unwrap_or(u32::MAX), Place::Rows { weights: data, scales, biases })
            }
            other => {
                return Err(Error::Unsupported(format!(
                    "{other:?} for {PREFIX}{name}, which is to be quantized"
                )));
            }
        };
        Matrix::new(rows, cols, bits, place, self.bytes, &what)
    }

    fn vector(&self, name: &str, len: usize) -> Result<Vec<f32>> {
        let entry = self.entry(name, &[len])?;
        let what = || format!("{FILE}: {PREFIX}{name}");
        let bytes = usize::try_from(entry.data.start)
            .ok()
            .zip(usize::try_from(entry.data.end).ok())
            .and_then(|(start, end)| self.bytes.get(start..end))
            .ok_or_else(|| Error::damaged(what(), "reaches beyond the file"))?;
        let pair = |b: &[u8]| [b[0], b[1]];
        let (width, decoded): (usize, Vec<f32>) = match entry.dtype {
            DType::Bf16 => {
                (2, bytes.chunks_exact(2).map(|b| bf16::from_le_bytes(pair(b)).to_f32()).collect())
            }
            DType::F16 => (2, bytes.chunks_exact(2).map(|b| f16::from_le_bytes(pair(b)).to_f32()).collect()),
            DType::F32 => {
                (4, bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
            }
            other => return Err(Error::Unsupported(format!("{other:?} for {PREFIX}{name}, a vector"))),
        };
        if bytes.len() != len * width {
            return Err(Error::damaged(
                what(),
                format!("has {} bytes, expected {}", bytes.len(), len * width),
            ));
        }
        if let Some(value) = decoded.iter().find(|value| !value.is_finite()) {
            return Err(Error::damaged(what(), format!("holds {value}")));
        }
        Ok(decoded)
    }

    fn attention(&self, layer: usize, kind: LayerKind, config: &Config) -> Result<AttentionWeights> {
        let name = |part: &str| format!("layers.{layer}.{part}");
        let (hidden, width) = (config.hidden_size, config.head_width(kind));
        let (q_len, kv_len) = (config.num_attention_heads * width, config.kv_heads(kind) * width);
        let v_proj = match kind {
            LayerKind::Sliding => Some(self.matrix(&name("self_attn.v_proj.weight"), kv_len, hidden)?),
            LayerKind::Full => None,
        };
        Ok(AttentionWeights {
            input_norm: self.vector(&name("input_layernorm.weight"), hidden)?,
            q_proj: self.matrix(&name("self_attn.q_proj.weight"), q_len, hidden)?,
            k_proj: self.matrix(&name("self_attn.k_proj.weight"), kv_len, hidden)?,
            v_proj,
            o_proj: self.matrix(&name("self_attn.o_proj.weight"), hidden, q_len)?,
            q_norm: self.vector(&name("self_attn.q_norm.weight"), width)?,
            k_norm: self.vector(&name("self_attn.k_norm.weight"), width)?,
            post_norm: self.vector(&name("post_attention_layernorm.weight"), hidden)?,
        })
    }

    fn feed_forward(
        &self,
        layer: usize,
        config: &Config,
        experts: ExpertShape,
    ) -> Result<FeedForwardWeights> {
        let name = |part: &str| format!("layers.{layer}.{part}");
        let (hidden, inner) = (config.hidden_size, config.intermediate_size);
        let root = (hidden as f32).sqrt();
        let mut router_scale = self.vector(&name("router.scale"), hidden)?;
        router_scale.iter_mut().for_each(|scale| *scale /= root);
        Ok(FeedForwardWeights {
            shared_pre_norm: self.vector(&name("pre_feedforward_layernorm.weight"), hidden)?,
            shared_gate: self.matrix(&name("mlp.gate_proj.weight"), inner, hidden)?,
            shared_up: self.matrix(&name("mlp.up_proj.weight"), inner, hidden)?,
            shared_down: self.matrix(&name("mlp.down_proj.weight"), hidden, inner)?,
            shared_post_norm: self.vector(&name("post_feedforward_layernorm_1.weight"), hidden)?,
            router_scale,
            router: self.matrix(&name("router.proj.weight"), config.num_experts, hidden)?,
            per_expert_scale: self.vector(&name("router.per_expert_scale"), config.num_experts)?,
            routed_pre_norm: self.vector(&name("pre_feedforward_layernorm_2.weight"), hidden)?,
            experts,
            routed_post_norm: self.vector(&name("post_feedforward_layernorm_2.weight"), hidden)?,
            post_norm: self.vector(&name("post_feedforward_layernorm.weight"), hidden)?,
            layer_scalar: self.vector(&name("layer_scalar"), 1)?[0],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fieldfare_kernels::{Kernels, Pool};

    #[test]
    fn panels_that_take_turns_are_one_matrix() {
        let (rows, cols) = (32, 128);
        let panel = tile::panel_bytes(cols);
        // Nibbles of all kinds, scales and biases of ordinary size wherever they lie.
        let blob: Vec<u8> =
            (0..4 * panel).map(|i| if i % 2 == 0 { (i * 7 / 2) as u8 } else { 0x3c }).collect();
        let place = |start: usize, stride: usize| {
            let data = start..start + panel + stride;
            Place::Tiles { data, panel_stride: stride }
        };
        let matrix = |start, stride| Matrix::new(rows, cols, 4, place(start, stride), &blob, "x").unwrap();
        let (gate, up) = (matrix(0, 2 * panel), matrix(panel, 2 * panel));
        let both = gate.in_turns(&up, &blob).unwrap();
        assert_eq!((both.rows(), both.cols()), (2 * rows, cols));
        let x: Vec<f32> = (0..cols).map(|i| (i % 13) as f32 - 6.0).collect();
        let product = |w: &Matrix| {
            let mut y = vec![0.0; w.rows()];
            Kernels::detect().matmul(&Pool::new(1), &w.view(&blob), &x, 1, &mut y);
            y
        };
        let (gate_y, up_y, both_y) = (product(&gate), product(&up), product(&both));
        assert_eq!(both_y, [&gate_y[..16], &up_y[..16], &gate_y[16..], &up_y[16..]].concat());
        assert_ne!(gate_y, up_y);
        // Up before gate, one after the other, and other shapes are two matrices.
        assert!(up.in_turns(&gate, &blob).is_none());
        assert!(matrix(0, panel).in_turns(&matrix(2 * panel, panel), &blob).is_none());
        let short = Matrix::new(
            16,
            cols,
            4,
            Place::Tiles { data: panel..2 * panel, panel_stride: 2 * panel },
            &blob,
            "x",
        );
        assert!(gate.in_turns(&short.unwrap(), &blob).is_none());
    }
}
