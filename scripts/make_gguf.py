#!/usr/bin/env python3
"""Writes a GGUF file with the shapes of Gemma 4 26B-A4B and random weights, to time llama.cpp with (about 14.3 GB).

Own code; needs numpy. Memory stays below 0.3 GB: every tensor is made and written in pieces.

  make_gguf.py out.gguf                 # 30 layers, 128 experts, 8 used; matrices Q4_0, routers and norms F32
  make_gguf.py out.gguf --small         # 6 narrow layers (15 MB), to see that it loads
  make_gguf.py out.gguf --layers 12     # real shapes, fewer layers
  make_gguf.py --check out.gguf         # reads it back: layout, bytes a token, locality of the routing

Types. Q4_0 holds 32 values in 18 bytes (a float16 scale, 4-bit codes): 0.5625 bytes a weight, exactly what groups of 64
with a bfloat16 scale and bias take (36 bytes). The table of embeddings, which is the head as well, is Q4_0 too unless
--embedding says q8_0 (llama-quantize would take Q6_K, 0.82 bytes a weight). Routers stay F32, as in converted models.

Routing. Which experts are used decides what a small page cache is worth, so it must not be uniform. A share of every
row of the embedding table (--common, of its variance) is one direction for all tokens; a random router then prefers
some experts whatever the token. The branches add little to the residual (norms behind them are 0.02), so every layer
sees this. --check computes the hit rates of an LRU of experts from the file for tokens drawn at random, as
`llama-bench` draws them.

--repeat K gives layer l the expert bytes of layer l mod K and copies them within the file: a file system that shares
extents (XFS, Btrfs) stores them once. Each copy still takes page cache, memory and reads of its own.
"""
import argparse
import os
import struct
import sys
from collections import OrderedDict

import numpy as np

ALIGN = 4096  # of tensors in the file: whole pages, so that copies within the file can share extents
PIECE = 16 << 20
F32, Q4_0, Q8_0 = 0, 2, 8  # numbers of the types in GGUF
BLOCK = {F32: (1, 4), Q4_0: (32, 18), Q8_0: (32, 34)}  # values and bytes of a block
QUANTISED = {"q4_0": Q4_0, "q8_0": Q8_0}
BRANCH_NORM = 0.02  # weight of the norms behind attention and feed-forward

FULL = dict(
    name="26b-a4b", layers=30, every=6, hidden=2816, heads=16, kv_sliding=8, kv_full=2, dim_sliding=256, dim_full=512,
    window=1024, dense=2112, expert=704, experts=128, used=8, vocab=262144, context=262144,
)
SMALL = dict(
    FULL, name="small", layers=6, hidden=512, heads=4, kv_sliding=2, kv_full=1, dim_sliding=64, dim_full=128,
    window=64, dense=384, expert=128, experts=16, used=4, vocab=1024, context=4096,
)


def nbytes(kind, shape):
    """Bytes of a tensor; shape[0] is the length of a row."""
    values, size = BLOCK[kind]
    assert shape[0] % values == 0, shape
    return int(np.prod(shape, dtype=np.int64)) // values * size


class Random:
    """Random streams by name: the same bytes whatever else is written."""

    def __init__(self, seed):
        self.seed = seed

    def stream(self, name):
        return np.random.Generator(np.random.SFC64([self.seed, *name.encode()]))


# ---------------------------------------------------------------- tensors


def constant(kind, shape, value):
    def pieces(_):
        yield np.full(int(np.prod(shape)), value, np.float32).tobytes()

    return kind, shape, pieces


def values(shape, array):
    def pieces(_):
        yield np.asarray(array, np.float32).tobytes()

    return F32, shape, pieces


def normal(shape, stream, sigma):
    def pieces(random):
        rows = random.stream(stream).standard_normal(int(np.prod(shape)), np.float32)
        yield (rows * np.float32(sigma)).tobytes()

    return F32, shape, pieces


def random_q4(shape, stream):
    """Uniform codes under scales that keep the size of a vector: y = W x has the RMS of x."""

    def pieces(random):
        rng = random.stream(stream)
        # Codes are uniform in -8..7: standard deviation 4.6. 64 scales around the wanted one.
        scales = np.linspace(0.75, 1.25, 64) / (4.6 * np.sqrt(shape[0]))
        scales = scales.astype(np.float16).view(np.uint16)
        left = nbytes(Q4_0, shape)
        while left:
            size = min(left, PIECE // 144 * 144)
            raw = rng.integers(0, 1 << 64, -(-size // 8), np.uint64).view(np.uint8)[:size]
            halves = raw.reshape(-1, 9, 2).view(np.uint16)[:, 0, 0]
            halves[:] = scales[halves & 63]
            yield raw.tobytes()
            left -= size

    return Q4_0, shape, pieces


def pack_q4_0(rows):
    """Blocks of 32: scale = (the value of largest size) / -8, codes of value/scale + 8; low nibbles first."""
    blocks = rows.reshape(-1, 32)
    peak = np.take_along_axis(blocks, np.abs(blocks).argmax(1)[:, None], 1)
    scale = (peak / -8).astype(np.float16)
    step = scale.astype(np.float32)
    codes = np.clip(np.rint(blocks / np.where(step == 0, 1, step)) + 8, 0, 15).astype(np.uint8)
    out = np.empty((len(blocks), 18), np.uint8)
    out[:, :2] = scale.view(np.uint8)
    out[:, 2:] = codes[:, :16] | codes[:, 16:] << 4
    return out.tobytes()


def pack_q8_0(rows):
    blocks = rows.reshape(-1, 32)
    scale = (np.abs(blocks).max(1, keepdims=True) / 127).astype(np.float16)
    step = scale.astype(np.float32)
    out = np.empty((len(blocks), 34), np.uint8)
    out[:, :2] = scale.view(np.uint8)
    out[:, 2:] = np.clip(np.rint(blocks / np.where(step == 0, 1, step)), -127, 127).astype(np.int8).view(np.uint8)
    return out.tobytes()


def embedding(kind, hidden, vocab, common):
    """Rows of RMS 1/sqrt(hidden), so 1 behind the model's own factor sqrt(hidden)."""

    def pieces(random):
        rng = random.stream("token_embd")
        shared = rng.choice(np.float32([-1, 1]), hidden)
        pack = {Q4_0: pack_q4_0, Q8_0: pack_q8_0}[kind]
        step = max(1, PIECE // (4 * hidden))
        for first in range(0, vocab, step):
            rows = rng.standard_normal((min(step, vocab - first), hidden), np.float32)
            rows = np.sqrt(1 - common) * rows + np.sqrt(common) * shared
            yield pack((rows / np.sqrt(hidden)).astype(np.float32))

    return kind, [hidden, vocab], pieces


def full_attention(s, layer):
    return layer % s["every"] == s["every"] - 1


def layer_tensors(s, layer, repeat):
    """Name -> (type, shape, pieces) of one layer, in the order in which they are used."""
    full = full_attention(s, layer)
    dim, kv = (s["dim_full"], s["kv_full"]) if full else (s["dim_sliding"], s["kv_sliding"])
    h, dense, expert, experts = s["hidden"], s["dense"], s["expert"], s["experts"]
    at, donor = f"blk.{layer}.", f"blk.{layer % repeat}."
    matrix = lambda name, shape: (at + name + ".weight", random_q4(shape, at + name))
    shared = lambda name, shape: (at + name + ".weight", random_q4(shape, donor + name))
    norm = lambda name, n, value=1.0: (at + name + ".weight", constant(F32, [n], value))
    out = [norm("attn_norm", h), matrix("attn_q", [h, s["heads"] * dim]), matrix("attn_k", [h, kv * dim])]
    if not full:
        out.append(matrix("attn_v", [h, kv * dim]))  # full layers take V from K
    # Queries and keys of RMS 1/4 each: scores of a head of 256 have a standard deviation of 1.
    out += [norm("attn_q_norm", dim, 0.25), norm("attn_k_norm", dim, 0.25)]
    out += [matrix("attn_output", [s["heads"] * dim, h]), norm("post_attention_norm", h, BRANCH_NORM)]
    out += [norm("ffn_norm", h), matrix("ffn_gate", [h, dense]), matrix("ffn_up", [h, dense])]
    out += [matrix("ffn_down", [dense, h]), norm("post_ffw_norm_1", h)]
    out.append((at + "ffn_gate_inp.weight", normal([h, experts], at + "ffn_gate_inp", 1.0)))
    out.append((at + "ffn_gate_inp.scale", constant(F32, [h], 1.0)))
    out.append(norm("pre_ffw_norm_2", h))
    out += [shared("ffn_gate_up_exps", [h, 2 * expert, experts]), shared("ffn_down_exps", [expert, h, experts])]
    out.append((at + "ffn_down_exps.scale", constant(F32, [experts], 1.0)))
    out += [norm("post_ffw_norm_2", h), norm("post_ffw_norm", h, BRANCH_NORM)]
    out.append((at + "layer_output_scale.weight", constant(F32, [1], 1.0)))
    return out


def all_tensors(s, args):
    turning = s["dim_full"] // 8  # a quarter of the pairs of a full layer's head turn
    factors = [1.0] * turning + [1e30] * (s["dim_full"] // 2 - turning)
    out = [("token_embd.weight", embedding(QUANTISED[args.embedding], s["hidden"], s["vocab"], args.common))]
    out.append(("rope_freqs.weight", values([len(factors)], factors)))
    for layer in range(s["layers"]):
        out += layer_tensors(s, layer, args.repeat or s["layers"])
    out.append(("output_norm.weight", constant(F32, [s["hidden"]], 1.0)))
    return out


# ---------------------------------------------------------------- the file


def text(s):
    raw = s.encode()
    return struct.pack("<Q", len(raw)) + raw


def entry(key, kind, value):
    """One metadata entry. kind: u32, f32, bool, str, or [kind] for an array."""
    numbers = {"u32": 4, "i32": 5, "f32": 6, "bool": 7, "str": 8}
    forms = {"u32": "<I", "i32": "<i", "f32": "<f", "bool": "<B"}
    one = lambda k, v: text(v) if k == "str" else struct.pack(forms[k], v)
    if isinstance(kind, list):
        head = struct.pack("<IIQ", 9, numbers[kind[0]], len(value))
        return text(key) + head + b"".join(one(kind[0], v) for v in value)
    return text(key) + struct.pack("<I", numbers[kind]) + one(kind, value)


def vocabulary(n):
    """Dummy tokens: special ones in their places, single printable characters, a line feed, then made-up words."""
    words = {0: "<pad>", 1: "<eos>", 2: "<bos>", 3: "<unk>", 105: "<|turn>", 106: "<turn|>", 107: "\n"}
    control = set(words) - {107}
    for i in range(33, 127):
        words[200 + i] = chr(i)
    words[200 + 127] = "\u2581"
    tokens = [words.get(i, f"w{i:06d}") for i in range(n)]
    return tokens, [3 if i in control else 1 for i in range(n)]


def metadata(s):
    a = "gemma4."
    full = [full_attention(s, i) for i in range(s["layers"])]
    tokens, kinds = vocabulary(s["vocab"])
    return [
        entry("general.architecture", "str", "gemma4"),
        entry("general.name", "str", f"random weights, shapes of {s['name']}"),
        entry("general.alignment", "u32", ALIGN),
        entry("general.file_type", "u32", 2),
        entry("general.quantization_version", "u32", 2),
        entry(a + "context_length", "u32", s["context"]),
        entry(a + "embedding_length", "u32", s["hidden"]),
        entry(a + "embedding_length_per_layer_input", "u32", 0),
        entry(a + "block_count", "u32", s["layers"]),
        entry(a + "feed_forward_length", "u32", s["dense"]),
        entry(a + "expert_feed_forward_length", "u32", s["expert"]),
        entry(a + "expert_count", "u32", s["experts"]),
        entry(a + "expert_used_count", "u32", s["used"]),
        entry(a + "attention.head_count", "u32", s["heads"]),
        entry(a + "attention.head_count_kv", ["i32"], [s["kv_full"] if f else s["kv_sliding"] for f in full]),
        entry(a + "attention.key_length", "u32", s["dim_full"]),
        entry(a + "attention.value_length", "u32", s["dim_full"]),
        entry(a + "attention.key_length_swa", "u32", s["dim_sliding"]),
        entry(a + "attention.value_length_swa", "u32", s["dim_sliding"]),
        entry(a + "attention.sliding_window", "u32", s["window"]),
        entry(a + "attention.sliding_window_pattern", ["bool"], [not f for f in full]),
        entry(a + "attention.shared_kv_layers", "u32", 0),
        entry(a + "attention.layer_norm_rms_epsilon", "f32", 1e-6),
        entry(a + "final_logit_softcapping", "f32", 30.0),
        entry(a + "rope.freq_base", "f32", 1e6),
        entry(a + "rope.freq_base_swa", "f32", 1e4),
        entry(a + "rope.dimension_count", "u32", s["dim_full"]),
        entry(a + "rope.dimension_count_swa", "u32", s["dim_sliding"]),
        entry("tokenizer.ggml.model", "str", "gemma4"),
        entry("tokenizer.ggml.tokens", ["str"], tokens),
        entry("tokenizer.ggml.scores", ["f32"], [0.0] * len(tokens)),
        entry("tokenizer.ggml.token_type", ["i32"], kinds),
        entry("tokenizer.ggml.merges", ["str"], ["a b"]),
        entry("tokenizer.ggml.bos_token_id", "u32", 2),
        entry("tokenizer.ggml.eos_token_id", "u32", 1),
        entry("tokenizer.ggml.unknown_token_id", "u32", 3),
        entry("tokenizer.ggml.padding_token_id", "u32", 0),
        entry("tokenizer.ggml.add_bos_token", "bool", 1),
        entry("tokenizer.ggml.add_space_prefix", "bool", 0),
    ]


def aligned(n):
    return -(-n // ALIGN) * ALIGN


def header(s, tensors):
    """The bytes before the data, and the offset of each tensor behind them."""
    entries, infos, offset, offsets = metadata(s), [], 0, {}
    for name, (kind, shape, _) in tensors:
        offsets[name] = offset
        infos.append(
            text(name)
            + struct.pack("<I", len(shape))
            + struct.pack(f"<{len(shape)}Q", *shape)
            + struct.pack("<IQ", kind, offset)
        )
        offset += aligned(nbytes(kind, shape))
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(entries)) + b"".join(entries) + b"".join(infos)
    return head.ljust(aligned(len(head)), b"\0"), offsets


def copy_within(file, source, target, size):
    """Copies whole pages, by sharing them where the file system can."""
    file.flush()
    while size:
        done = os.copy_file_range(file.fileno(), file.fileno(), min(size, 1 << 30), source, target)
        if not done:
            raise OSError("nothing copied within the file")
        source, target, size = source + done, target + done, size - done


def donor_of(name, repeat):
    """The tensor whose bytes this one repeats, or None."""
    part = name.split(".")
    if not repeat or part[0] != "blk" or int(part[1]) < repeat or part[2:] not in (
        ["ffn_gate_up_exps", "weight"],
        ["ffn_down_exps", "weight"],
    ):
        return None
    return ".".join(["blk", str(int(part[1]) % repeat), *part[2:]])


def write(path, s, args):
    tensors, random = all_tensors(s, args), Random(args.seed)
    head, offsets = header(s, tensors)
    with open(path, "x+b") as file:
        file.write(head)
        for name, (kind, shape, pieces) in tensors:
            start, size = len(head) + offsets[name], nbytes(kind, shape)
            donor = donor_of(name, args.repeat)
            if donor:
                copy_within(file, len(head) + offsets[donor], start, aligned(size))
                file.seek(start + aligned(size))
                continue
            assert file.tell() == start, name
            for piece in pieces(random):
                file.write(piece)
            assert file.tell() == start + size, name
            file.write(bytes(aligned(size) - size))
        file.flush()
        os.fsync(file.fileno())
        print(f"{path}: {file.tell():,} bytes, {len(tensors)} tensors")
    report(s, [(name, kind, shape) for name, (kind, shape, _) in tensors])


def report(s, tensors):
    """What one token of decoding reads, here and in the 4-bit model with groups of 64."""
    parts = OrderedDict((k, [0, 0]) for k in ("head", "attention", "dense", "router", "experts used", "norms"))
    for name, kind, shape in tensors:
        size, params = nbytes(kind, shape), int(np.prod(shape, dtype=np.int64))
        ours = params * 9 // 16
        if name == "token_embd.weight":
            part = "head"
        elif kind == F32 and "ffn_gate_inp.weight" in name:
            part, ours = "router", params * 17 // 16
        elif kind == F32:
            part, ours = "norms", 2 * params
        elif "_exps" in name:
            part, size, ours = "experts used", size * s["used"] // s["experts"], ours * s["used"] // s["experts"]
        else:
            part = "attention" if ".attn_" in name else "dense"
        parts[part][0] += size
        parts[part][1] += ours
    print("bytes a token            this file    4 bits, groups of 64")
    for part, (here, ours) in [*parts.items(), ("all", [sum(v[i] for v in parts.values()) for i in (0, 1)])]:
        print(f"  {part:16} {here:15,} {ours:15,}")


# ---------------------------------------------------------------- reading it back


class Reader:
    def __init__(self, path):
        self.file = open(path, "rb")
        if self.take("<4s")[0] != b"GGUF" or self.take("<I")[0] != 3:
            raise SystemExit(f"{path} is not a GGUF file of version 3")
        count, entries = self.take("<QQ")
        self.meta = dict(self.entry() for _ in range(entries))
        self.tensors = dict(self.tensor() for _ in range(count))
        self.data = aligned(self.file.tell())

    def take(self, form):
        return struct.unpack(form, self.file.read(struct.calcsize(form)))

    def text(self):
        return self.file.read(self.take("<Q")[0]).decode()

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            inner, n = self.take("<IQ")
            return [self.value(inner) for _ in range(n)]
        return self.take({4: "<I", 5: "<i", 6: "<f", 7: "<B"}[kind])[0]

    def entry(self):
        key = self.text()
        return key, self.value(self.take("<I")[0])

    def tensor(self):
        name = self.text()
        shape = list(self.take(f"<{self.take('<I')[0]}Q"))
        kind, offset = self.take("<IQ")
        return name, (kind, shape, offset)

    def rows(self, name, wanted):
        """Some rows of a matrix as float32."""
        kind, shape, offset = self.tensors[name]
        size, out = nbytes(kind, shape[:1]), []
        for row in wanted:
            self.file.seek(self.data + offset + size * int(row))
            out.append(self.file.read(size))
        raw = np.frombuffer(b"".join(out), np.uint8)
        if kind == F32:
            return raw.view(np.float32).reshape(len(out), -1)
        blocks = raw.reshape(-1, BLOCK[kind][1])
        scale = blocks[:, :2].copy().view(np.float16).astype(np.float32)
        if kind == Q8_0:
            codes = blocks[:, 2:].view(np.int8).astype(np.float32)
        else:
            codes = np.concatenate([blocks[:, 2:] & 15, blocks[:, 2:] >> 4], 1).astype(np.float32) - 8
        return (codes * scale).reshape(len(out), -1)


def lru_hits(choices, slots, warm):
    """Share of the experts of each token that the last `slots` different ones of the layer held."""
    hits = total = 0
    for layer in choices:
        held = OrderedDict()
        for t, experts in enumerate(layer):
            if t >= warm:
                hits += sum(e in held for e in experts)
                total += len(experts)
            for e in experts:
                held[e] = None
                held.move_to_end(e)
            while len(held) > slots:
                held.popitem(last=False)
    return hits / total


def check(path, tokens=288, warm=32):
    r = Reader(path)
    s = dict(experts=r.meta["gemma4.expert_count"], used=r.meta["gemma4.expert_used_count"])
    end = max(o + aligned(nbytes(k, shape)) for k, shape, o in r.tensors.values())
    size = os.stat(path).st_size
    print(f"{path}: {len(r.tensors)} tensors, {len(r.meta)} entries, {size:,} bytes")
    if r.data + end != size:
        raise SystemExit(f"the tensors end at {r.data + end:,}, the file at {size:,}")
    report(s, [(name, kind, shape) for name, (kind, shape, _) in r.tensors.items()])
    rng = np.random.Generator(np.random.SFC64(1))
    x = r.rows("token_embd.weight", rng.integers(0, r.meta["gemma4.vocab_size"] if "gemma4.vocab_size" in r.meta
                                                 else len(r.meta["tokenizer.ggml.tokens"]), tokens))
    x /= np.sqrt(np.square(x).mean(1, keepdims=True))
    choices = []
    for layer in range(r.meta["gemma4.block_count"]):
        router = r.rows(f"blk.{layer}.ffn_gate_inp.weight", range(s["experts"]))
        choices.append(np.argsort(-(x @ router.T), 1)[:, : s["used"]].tolist())
    rates = ", ".join(f"{n} slots {100 * lru_hits(choices, n, warm):.1f} %" for n in (6, 8, 16, 24, 32, 64) if n < s["experts"])
    print(f"routing of random tokens (branches left out), hits of an LRU of experts: {rates}")
    uses = np.mean([len({e for t in layer[:128] for e in t}) for layer in choices])
    print(f"experts of a layer used within 128 tokens: {uses:.0f}")


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("path", metavar="FILE")
    p.add_argument("--check", action="store_true", help="read FILE back instead of writing it")
    p.add_argument("--small", action="store_true", help="6 narrow layers instead of the real shapes")
    p.add_argument("--layers", type=int, help="layers (a multiple of 6, so that the last is a full one)")
    p.add_argument("--embedding", choices=QUANTISED, default="q4_0", help="type of the table of embeddings")
    p.add_argument("--common", type=float, default=0.65, help="share of the embeddings' variance in one direction")
    p.add_argument("--repeat", type=int, help="experts of layer l are those of layer l mod REPEAT")
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    if args.check:
        return check(args.path)
    s = dict(SMALL if args.small else FULL)
    s["layers"] = args.layers or s["layers"]
    if s["layers"] < 1 or s["layers"] % s["every"]:
        p.error(f"the layers come in groups of {s['every']}")
    write(args.path, s, args)


if __name__ == "__main__":
    sys.exit(main())
