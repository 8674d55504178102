"""Makes the demonstration model's tokenizer.json: BPE with byte fallback in the form of Gemma 4's, ids of its own.

usage: python3 tokenizer.py OUT_FOLDER [--dialogues N] [--size N]      (needs the package tokenizers)

Ids: the 24 control tokens, runs of 1 to 31 newlines, the 256 bytes, then the alphabet and the merges. While merges are learned,
text is cut before every space, around newlines, and around every digit, so no token crosses such a place; the file itself cuts
nowhere, as Gemma 4's does, and gives the same tokens. Digits stay single, which is what lets a small model add.
"""
import argparse
import json
import random
import re
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from corpus.dialogue import CONTROL, render
from corpus.mix import Mix

SPACE = "\u2581"
NEWLINES = 31


def texts(count, seed=1):
    """The text between control tokens of so many dialogues of the training part."""
    mix, rng = Mix("train"), random.Random(seed)
    cut = re.compile("|".join(re.escape(c) for c in CONTROL))
    for _ in range(count):
        for text in cut.split("".join(render(mix.draw(rng)))):
            if text:
                yield text.replace(" ", SPACE)


def learn(count, size):
    """The alphabet and the merges, most useful first."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex("\n+"), "isolated"),
        pre_tokenizers.Split(Regex(f"{SPACE}+"), "merged_with_next"),
        pre_tokenizers.Split(Regex(r"\d"), "isolated"),
        pre_tokenizers.Split(Regex(rf"(?!{SPACE})[\p{{P}}\p{{S}}]"), "isolated"),
    ])
    fixed = len(CONTROL) + NEWLINES + 256
    ascii_alphabet = [chr(c) for c in range(0x21, 0x7F)] + [SPACE]
    trainer = trainers.BpeTrainer(vocab_size=size - fixed + 1, min_frequency=20, initial_alphabet=ascii_alphabet, limit_alphabet=320,
                                  special_tokens=[], show_progress=False)
    bpe.train_from_iterator(texts(count), trainer)
    learned = json.loads(bpe.to_str())["model"]
    pieces = sorted(learned["vocab"], key=learned["vocab"].get)
    merges = [tuple(m) if not isinstance(m, str) else tuple(m.split(" ")) for m in learned["merges"]]
    return [p for p in pieces if "\n" not in p], [m for m in merges if "\n" not in m[0] + m[1]]


def document(pieces, merges, size):
    """The whole of tokenizer.json. What is left of `size` becomes unused entries, as in Gemma 4."""
    entries = CONTROL + ["\n" * n for n in range(1, NEWLINES + 1)] + [f"<0x{b:02X}>" for b in range(256)] + pieces
    entries = entries[:size] + [f"<unused{n}>" for n in range(size - len(entries))]
    vocab = {p: i for i, p in enumerate(entries)}
    assert len(vocab) == size
    # Runs of newlines are built like any other token: two halves that are tokens.
    runs = [("\n" * (n - n // 2), "\n" * (n // 2)) for n in range(2, NEWLINES + 1)]
    merges = [list(m) for m in runs + [m for m in merges if m[0] + m[1] in vocab]]
    added = [{"id": i, "content": c, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
             for i, c in enumerate(CONTROL)]
    sequence = [{"Sequence": {"id": "A", "type_id": 0}}]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
            "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": SPACE},
            "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
            "post_processor": {"type": "TemplateProcessing", "single": sequence,
                               "pair": sequence + [{"Sequence": {"id": "B", "type_id": 1}}], "special_tokens": {}},
            "decoder": {"type": "Sequence", "decoders": [
                {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]},
            "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
                      "vocab": vocab, "merges": merges}}


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("folder", type=Path)
    p.add_argument("--dialogues", type=int, default=300_000)
    p.add_argument("--size", type=int, default=6144)
    a = p.parse_args()
    a.folder.mkdir(parents=True, exist_ok=True)
    made = document(*learn(a.dialogues, a.size), a.size)
    (a.folder / "tokenizer.json").write_text(json.dumps(made, ensure_ascii=False, indent=1), encoding="utf-8")
    config = {"tokenizer_class": "GemmaTokenizer", "bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>", "unk_token": "<unk>",
              "model_max_length": 4096, "clean_up_tokenization_spaces": False}
    (a.folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    unused = sum(t.startswith("<unused") for t in made["model"]["vocab"])
    print(f"{a.folder}/tokenizer.json: {a.size} entries, {unused} unused, {len(made['model']['merges'])} merges")


if __name__ == "__main__":
    main()
