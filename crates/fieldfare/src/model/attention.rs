//! The attention half of a layer: norm, projections, head norms, rope, attention over the cache and the
//! block's own rows, output projection, residual.
//!
//! A block's keys and values are kept in scratch, rounded to the cache's type, and stored in the cache only
//! after all its rows have attended: a line then needs no more pages than the window. What a query sees is summed in
//! blocks of positions at fixed borders, whichever of cache and scratch they are in, so the result has the same bits for
//! every chunking.

use super::config::{Config, LayerKind};
use super::forward::{Pass, Texts};
use super::kv::{Line, OwnKv, Sequence};
use super::scratch::Scratch;
use super::weights::AttentionWeights;
use super::wide::{RopeRows, WideRows};
use crate::Result;
use fieldfare_kernels::{Attention, Kernels, KvSpan};
use std::ops::Range;

/// Fills the rope tables for so many rows at the given positions.
pub(super) fn fill_rope(
    config: &Config,
    rows: usize,
    position: impl Fn(usize) -> usize,
    tables: &mut [RopeRows<'_>; 2],
) {
    for (kind, table) in [LayerKind::Sliding, LayerKind::Full].into_iter().zip(tables) {
        let frequencies = &config.rope_frequencies[kind.index()];
        let half = frequencies.len();
        for row in 0..rows {
            let position = position(row) as f32;
            let entries =
                table.cos[row * half..][..half].iter_mut().zip(&mut table.sin[row * half..][..half]);
            for ((cos, sin), frequency) in entries.zip(frequencies) {
                // The angle is rounded to f32 as in the reference; its cosine and sine are then taken in f64,
                // which is the same on every platform.
                let angle = f64::from(position * frequency);
                *cos = angle.cos() as f32;
                *sin = angle.sin() as f32;
            }
        }
    }
}

/// `x += rms(attention(rms(x)))` for the rows of the block, `block` of the pass; stores their keys and values.
///
/// # Errors
/// The system has no memory for these.
pub(super) fn attend(
    pass: &mut Pass<'_>,
    layer: usize,
    weights: &AttentionWeights,
    texts: &mut Texts<'_, '_>,
    block: &Range<usize>,
    s: &mut Scratch,
    w: &mut WideRows<'_>,
) -> Result<()> {
    let (config, kernels, rows, eps) = (pass.config, pass.kernels, pass.rows, pass.config.rms_norm_eps);
    let hidden = config.hidden_size;
    let kind = config.layers[layer];
    let (width, kv_heads) = (config.head_width(kind), config.kv_heads(kind));
    let (q_len, kv_len) = (config.num_attention_heads * width, kv_heads * width);
    let x = &mut w.x[block.start * hidden..block.end * hidden];

    pass.norms(x, &weights.input_norm, &mut s.normed);
    pass.load(&s.normed, rows, hidden, &mut s.acts);
    pass.matmul(&weights.q_proj, &s.normed, &s.acts, &mut s.q);
    pass.matmul(&weights.k_proj, &s.normed, &s.acts, &mut s.k);
    match &weights.v_proj {
        Some(v_proj) => pass.matmul(v_proj, &s.normed, &s.acts, &mut s.v),
        // K as projected, before its norm and rope.
        None => s.v[..rows * kv_len].copy_from_slice(&s.k[..rows * kv_len]),
    }
    let table = &w.rope[kind.index()];
    let turn = |row: usize, head: &mut [f32]| {
        let at = (block.start + row) * table.half..(block.start + row + 1) * table.half;
        kernels.rope(head, &table.cos[at.clone()], &table.sin[at]);
    };
    pass.each(&mut s.q[..rows * q_len], width, |i, head| {
        kernels.rms_norm_in_place(head, Some(&weights.q_norm), eps);
        turn(i / config.num_attention_heads, head);
    });
    pass.each(&mut s.k[..rows * kv_len], width, |i, head| {
        kernels.rms_norm_in_place(head, Some(&weights.k_norm), eps);
        turn(i / kv_heads, head);
    });
    pass.each(&mut s.v[..rows * kv_len], width, |_, head| kernels.rms_norm_in_place(head, None, eps));
    pass.probe(Some(layer), "attn_q", q_len, &s.q);
    pass.probe(Some(layer), "attn_k", kv_len, &s.k);
    pass.probe(Some(layer), "attn_v", kv_len, &s.v);

    match texts {
        Texts::One(sequence) => look(pass, layer, sequence, pass.first, 0..rows, s)?,
        Texts::Each(sequences) => {
            for row in 0..rows {
                let position = pass.position(block.start + row);
                look(pass, layer, sequences[block.start + row], position, row..row + 1, s)?;
            }
        }
    }

    pass.load(&s.attended, rows, q_len, &mut s.acts);
    pass.matmul(&weights.o_proj, &s.attended, &s.acts, &mut s.branch);
    pass.probe(Some(layer), "attn_out", hidden, &s.branch);
    pass.norms_in_place(&mut s.branch, &weights.post_norm);
    let branch = &s.branch;
    pass.each(x, hidden, |row, x| kernels.add(x, &branch[row * hidden..(row + 1) * hidden]));
    pass.probe(Some(layer), "post_attn_hidden", hidden, x);
    Ok(())
}

/// Attention of some rows of the block, neighbours in one text from position `first` on, over its cache and themselves;
/// stores their keys and values.
fn look(
    pass: &Pass<'_>,
    layer: usize,
    sequence: &mut Sequence,
    first: usize,
    rows: Range<usize>,
    s: &mut Scratch,
) -> Result<()> {
    let (config, kernels) = (pass.config, pass.kernels);
    let kind = config.layers[layer];
    let (heads, width, kv_heads) =
        (config.num_attention_heads, config.head_width(kind), config.kv_heads(kind));
    keep_own(kernels, &rows, kv_heads, width, s);
    let window = config.window(kind);
    let seen = window.map_or(0, |window| (first + 1).saturating_sub(window))..first;
    let spans = spans(sequence.layer(layer), &s.own, seen, first, rows.len(), (kv_heads, width));
    let attention = Attention { heads, kv_heads, width, first, rows: rows.len(), window, spans: &spans };
    let part = rows.start * heads * width..rows.end * heads * width;
    let (q, attended) = (&s.q[part.clone()], &mut s.attended[part]);
    kernels.attend(pass.pool, &attention, q, &mut s.attend, attended);
    sequence.append(layer, first, rows.len(), &s.own)
}

/// Rounds the rows' keys and values to the cache's type, heads first.
fn keep_own(kernels: &Kernels, rows: &Range<usize>, kv_heads: usize, width: usize, s: &mut Scratch) {
    for row in 0..rows.len() {
        for head in 0..kv_heads {
            let from = ((rows.start + row) * kv_heads + head) * width;
            let to = (head * rows.len() + row) * width;
            s.own.k.store(kernels, to, &s.k[from..from + width]);
            s.own.v.store(kernels, to, &s.v[from..from + width]);
        }
    }
}

/// What the rows of a block see: for each KV head the positions `old` in the cache, then the block's own rows.
fn spans<'a>(
    cache: &'a Line,
    own: &'a OwnKv,
    old: Range<usize>,
    first: usize,
    rows: usize,
    (kv_heads, width): (usize, usize),
) -> Vec<KvSpan<'a>> {
    let mut spans = Vec::new();
    for head in 0..kv_heads {
        let mut at = old.start;
        for span in cache.spans(old.clone()) {
            spans.push(KvSpan { first: at, keys: cache.keys(span, head), values: cache.values(span, head) });
            at += span.len;
        }
        let mine = head * rows * width..(head + 1) * rows * width;
        spans.push(KvSpan { first, keys: own.k.slice(mine.clone()), values: own.v.slice(mine) });
    }
    spans
}
