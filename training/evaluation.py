"""Writes the committed evaluation: held-out cases, and what transformers says in float32 about the quantized checkpoint.

usage: python3 evaluation.py MODEL_FOLDER OUT_FOLDER     (needs torch, transformers, tokenizers, safetensors)
       python3 evaluation.py MODEL_FOLDER OUT_FOLDER --seed wide --each 1000 tool_call ...   (other and more cases, of some tasks)

cases.jsonl      held-out dialogues of every task, with the rule that judges a reply (`corpus/judge.py`)
reference.safetensors   ids, logprob, top_ids, top_logprobs, scored, lengths: `fieldfare-lab evaluate` compares with them
"""
import argparse
import json
import random
import re
from pathlib import Path

import torch
from safetensors.torch import save_file

import model as demo
from corpus.dialogue import render
from corpus.mix import Mix
from corpus.tasks import TASKS
from export import dequantized
from packing import WRITTEN, Encoder

EACH = {"facts": 200, "sums": 200, "tool_call": 400}
OTHERS = 100
ROWS, LENGTH, TOP = 40, 400, 32


def case(number, d):
    prompt, target = render(d)
    return {"id": f"{d.task}-{number:04}", "task": d.task, "group": d.task, "messages": d.messages, "tools": d.tools,
            "thinking": d.thinking, "expect": d.expect,
            "reply": {"content": d.reply.content, "reasoning": d.reply.reasoning, "calls": [list(c) for c in d.reply.calls]},
            "prompt_text": prompt, "target_text": target}


def declarable(d):
    """Whether every tool has a name that the chat format allows; words put together at random can be too long."""
    return all([re.fullmatch(r"[A-Za-z0-9_.:-]{1,64}", t["function"]["name"]) for t in d.tools or []])


def write_cases(path, seed="evaluation", each=None, only=()):
    count = 0
    with open(path, "w", encoding="utf-8") as f:
        for name, (_, make) in sorted(TASKS.items()):
            # Its own generator: a change in one task leaves the cases of the others as they were.
            rng, seen = random.Random(f"{seed}/{name}"), set()
            while len(seen) < (each or EACH.get(name, OTHERS)) and (not only or name in only):
                d = make(rng, "test")
                c = case(len(seen), d)
                if declarable(d) and c["prompt_text"] not in seen:
                    seen.add(c["prompt_text"])
                    f.write(json.dumps(c, ensure_ascii=False) + "\n")
                    count += 1
    return count


@torch.no_grad()
def write_reference(folder, path):
    model = demo.reference(demo.text_config()).eval()
    missing, unexpected = model.load_state_dict(dequantized(folder), strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    model.tie_weights()
    encoder, mix, rng = Encoder(folder / "tokenizer.json"), Mix("test"), random.Random("reference")
    ids = torch.full((ROWS, LENGTH), encoder.pad, dtype=torch.int32)
    lengths, scored = torch.zeros(ROWS, dtype=torch.int32), torch.zeros(ROWS, LENGTH, dtype=torch.uint8)
    logprob = torch.zeros(ROWS, LENGTH)
    top_ids, top_logprobs = torch.zeros(ROWS, LENGTH, TOP, dtype=torch.int32), torch.zeros(ROWS, LENGTH, TOP)
    row = 0
    while row < ROWS:
        prompt, target, kinds = next(encoder.encode([render(mix.draw(rng))]))
        tokens = prompt + target
        # Half of the rows are longer than the sliding window of 256.
        if not (260 <= len(tokens) <= LENGTH if row % 2 else 60 <= len(tokens) <= 200):
            continue
        n = len(tokens)
        ids[row, :n], lengths[row] = torch.tensor(tokens, dtype=torch.int32), n
        scored[row, :n] = torch.from_numpy(kinds == WRITTEN)
        p = model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0].double().log_softmax(-1)
        logprob[row, 1:n] = p[:-1].gather(1, torch.tensor(tokens[1:])[:, None])[:, 0].float()
        best = p.topk(TOP)
        top_ids[row, :n], top_logprobs[row, :n] = best.indices.int(), best.values.float()
        row += 1
    save_file({"ids": ids, "lengths": lengths, "scored": scored, "logprob": logprob, "top_ids": top_ids, "top_logprobs": top_logprobs}, path)
    return int(lengths.sum()), -float(logprob[scored.bool()].mean())


def main():
    p = argparse.ArgumentParser()
    p.add_argument("model", type=Path)
    p.add_argument("out", type=Path)
    p.add_argument("tasks", nargs="*")
    p.add_argument("--seed", default="evaluation")
    p.add_argument("--each", type=int)
    a = p.parse_args()
    folder, out = a.model, a.out
    out.mkdir(parents=True, exist_ok=True)
    count = write_cases(out / "cases.jsonl", a.seed, a.each, a.tasks)
    positions, nll = write_reference(folder, out / "reference.safetensors")
    print(f"{count} cases; reference over {positions} positions, mean NLL of what is written {nll:.4f}")


if __name__ == "__main__":
    main()
