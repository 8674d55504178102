"""How much worse a model is on held-out dialogues than on fresh ones of the trained part: what its corpus lacks, not its training.

usage: python3 generalize.py MODEL_FOLDER [task ...]     (needs torch, transformers, tokenizers, safetensors; no GPU)

Prints for each task the share of replies in which greedy decoding of the quantized model is right at every token.
"""
import sys
from pathlib import Path

import model as demo
from export import dequantized
from packing import Encoder
from train import Weights, exact, task_cases


def main():
    folder, only = Path(sys.argv[1]), sys.argv[2:]
    config, encoder = demo.text_config(), Encoder(folder / "tokenizer.json")
    model = demo.make_dense(demo.reference(config, "sdpa"))
    weights = Weights(model, 0.0, 0.0)
    weights.load(dequantized(folder))
    weights.place(False)
    shares = [exact(model, task_cases(folder / "tokenizer.json", 128, split, only), encoder.bos, encoder.pad, config["sliding_window"],
                    config["final_logit_softcapping"], "cpu") for split in ("train", "test")]
    for name, trained in shares[0].items():
        print(f"{name:24} trained part {trained:.3f}, held out {shares[1][name]:.3f}")


if __name__ == "__main__":
    main()
