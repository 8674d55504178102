"""Checks the tasks: rules hold, the renderer takes them, lengths, speed, and that no test prompt is trained.

Words of a test's last request that the task's training part never has, and that the reply does not copy, are listed: a model that
learned its English here can only guess what they mean, so a held-out wording should be a new sentence of known words.

usage: python3 -m corpus.check [--show N] [task ...]     (from the folder training/)
"""
import argparse
import collections
import json
import random
import re
import time

from . import tasks
from .dialogue import render
from .judge import right


def order_faults(messages):
    """What is wrong with the order of the speakers."""
    roles = [m["role"] for m in messages]
    bad = []
    if roles[1 if roles[:1] == ["system"] else 0:][:1] != ["user"]:
        bad.append("first message (after an optional system one) is not the user's")
    if any(a == b == "assistant" for a, b in zip(roles, roles[1:])) or roles[-1:] == ["assistant"]:
        bad.append("two messages of the assistant in a row")
    return bad


def words(text):
    return set(re.findall(r"[a-z']+", text.lower()))


def unseen(name, make, tests, count):
    """Words of test requests that are in no training dialogue of the task and in no other part of their own, most frequent first."""
    rng, known = random.Random(11), set()
    for _ in range(count):
        d = make(rng, "train")
        known |= words(" ".join(str(m.get("content")) for m in d.messages if m["role"] == "user"))
    found = collections.Counter()
    for d in tests:
        rest = json.dumps([d.messages[:-1], d.tools, d.reply.content, d.reply.calls, d.expect])
        found.update(words(d.messages[-1]["content"] or "") - known - words(rest))
    return found.most_common(20)


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--show", type=int, default=0, help="print so many samples of each task")
    p.add_argument("--count", type=int, default=2000)
    p.add_argument("task", nargs="*")
    a = p.parse_args()
    failed = False
    for name, (weight, make) in sorted(tasks.TASKS.items()):
        if a.task and name not in a.task:
            continue
        seen = {}
        for split in ("train", "test"):
            rng = random.Random(7)
            start = time.perf_counter()
            made = [make(rng, split) for _ in range(a.count)]
            rate = a.count / (time.perf_counter() - start)
            texts = []
            for d in made:
                prompt, target = render(d)
                texts.append(prompt)
                bad = []
                if d.task != name:
                    bad.append(f"task is {d.task}")
                if d.thinking != bool(d.reply.reasoning):
                    bad.append("thinking and reasoning disagree")
                if not right(d.expect, d.reply.content, d.reply.calls):
                    bad.append("the rule refuses the reply")
                bad += order_faults(d.messages)
                if len(prompt + target) > 3600:
                    bad.append(f"{len(prompt + target)} characters")
                if bad:
                    failed = True
                    print(f"BAD {name} {split}: {', '.join(bad)}\n  {prompt}\n  {target}")
                    break
            seen[split] = set(texts)
            length = sum(map(len, texts)) // len(texts)
            print(f"{name:24} {split:5} weight {weight:<5} distinct {len(seen[split]):5}/{a.count} mean prompt {length:4} chars {rate:8.0f}/s")
            for d in made[: a.show]:
                print("   ", repr("".join(render(d))))
        new = unseen(name, make, made, 10 * a.count)
        if new:
            print(f"  unseen in {name}: " + ", ".join(f"{w} {n}" for w, n in new))
        both = seen["train"] & seen["test"]
        if both:
            failed = True
            print(f"BAD {name}: {len(both)} test prompts are trained, such as {sorted(both)[0]!r}")
    raise SystemExit(failed)


main()
