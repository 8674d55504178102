"""Quantizes trained weights with mlx-lm, as the published 4-bit checkpoint of Gemma 4 26B-A4B was, and checks the result.

usage: python3 export.py WEIGHTS_FOLDER MODEL_FOLDER     (needs mlx[cpu], mlx-lm, torch, transformers)

MODEL_FOLDER has the tokenizer already and gets config.json, generation_config.json and model.safetensors with its index. What mlx
wrote must equal, bit for bit, what training computed with from `--quantize-from` on.
"""
import json
import sys
import tempfile
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import model as demo
from corpus.dialogue import CONTROL
from quant import bits_of, fake_quantize

STOP = [CONTROL.index(t) for t in ("<eos>", "<turn|>", "<|tool_response>")]


def trained(folder):
    """All parameters, bfloat16, named as in the class."""
    out = {}
    for f in sorted(Path(folder).glob("weights-*.safetensors")):
        out.update(load_file(f))
    return out


def dequantized(folder):
    """The quantized checkpoint as float32 tensors named as in the class: q * scale + bias."""
    with safe_open(Path(folder) / "model.safetensors", "pt") as f:
        raw = {k: f.get_tensor(k) for k in f.keys()}
    out, halves = {}, {}
    for name, t in raw.items():
        if name.endswith((".scales", ".biases")):
            continue
        key = name.removeprefix("language_model.")
        base = name.removesuffix(".weight")
        if base + ".scales" in raw:
            s, b = raw[base + ".scales"].float(), raw[base + ".biases"].float()
            bits = 32 * t.shape[-1] // (64 * s.shape[-1])
            words = t.view(torch.int32).unsqueeze(-1) >> torch.arange(0, 32, bits, dtype=torch.int32)
            q = (words & ((1 << bits) - 1)).reshape(*t.shape[:-1], -1, 64).float()
            t = (q * s.unsqueeze(-1) + b.unsqueeze(-1)).flatten(-2)
        if ".switch_glu." in key:
            experts, part = key.removesuffix(".weight").split(".switch_glu.")
            halves[experts, part] = t
        else:
            out[key] = t.float()
    for (experts, part), t in halves.items():
        if part == "down_proj":
            out[experts + ".down_proj"] = t
        elif part == "gate_proj":
            out[experts + ".gate_up_proj"] = torch.cat([t, halves[experts, "up_proj"]], 1)
    return out


def quantize(weights, config, folder):
    from mlx_lm.utils import load_model, quantize_model, save_config, save_model
    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        save_file({"model.language_model." + n.removeprefix("model."): t.contiguous() for n, t in weights.items()},
                  tmp / "model.safetensors", metadata={"format": "pt"})
        top = {"architectures": ["Gemma4ForConditionalGeneration"], "dtype": "bfloat16", "eos_token_id": STOP, "model_type": "gemma4",
               "text_config": config, "tie_word_embeddings": True, "vocab_size": config["vocab_size"]}
        (tmp / "config.json").write_text(json.dumps(top))
        made, made_config = quantize_model(*load_model(tmp), 64, 4, mode="affine")
        save_model(folder, made, donate_model=True)
        save_config(made_config, folder / "config.json")
    generation = {"bos_token_id": 2, "do_sample": True, "eos_token_id": STOP, "pad_token_id": 0, "temperature": 1.0, "top_k": 64, "top_p": 0.95}
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=1) + "\n")


def main():
    source, folder = Path(sys.argv[1]), Path(sys.argv[2])
    weights, config = trained(source), demo.text_config()
    declared = {n: p.shape for n, p in demo.reference(config).state_dict().items() if n != "lm_head.weight"}
    assert declared == {n: t.shape for n, t in weights.items()}, "the weights are not those of this configuration"
    quantize(weights, config, folder)
    read, different = dequantized(folder), []
    for n, t in weights.items():
        bits = bits_of(n, t.shape)
        want = fake_quantize(t, bits) if bits else t.float()
        if not torch.equal(read[n], want):
            different.append((n, (read[n] - want).abs().max().item()))
    assert not different, f"mlx quantizes differently: {different[:3]}"
    size = (folder / "model.safetensors").stat().st_size
    assert size <= 12_000_000, size
    print(f"{folder}: {sum(t.numel() for t in weights.values())} parameters, model.safetensors {size} bytes, {len(weights)} tensors, "
          "mlx and the training code quantize alike")


if __name__ == "__main__":
    main()
