"""Averages the weights of two runs of one training, which is a little better than either on held-out dialogues (experiment 0007).

usage: python3 average.py WEIGHTS_A WEIGHTS_B SHARE_OF_B OUT     (needs torch, safetensors)
"""
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file


def main():
    a, b, share, out = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]), Path(sys.argv[4])
    out.mkdir(parents=True, exist_ok=True)
    for file in sorted(a.glob("weights-*.safetensors")):
        first, second = load_file(file), load_file(b / file.name)
        assert first.keys() == second.keys(), file.name
        mixed = {n: torch.lerp(first[n].float(), second[n].float(), share).to(torch.bfloat16) for n in first}
        save_file(mixed, out / file.name)


if __name__ == "__main__":
    main()
