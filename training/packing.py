"""Turns dialogues into rows of tokens: worker processes draw, render, encode and pack; the trainer takes rows in a fixed order.

A row is `length` tokens of whole dialogues, padded at its end. Beside each token stands how it is trained: 0 not at all, 1 as
context (a small weight), 2 as what the model is to write.
"""
import hashlib
import multiprocessing
import os
import random
import re

import numpy as np

from corpus.dialogue import CONTROL

CONTEXT, WRITTEN = 1, 2
CUT_DIALOGUES, CUT_WORDS = 0.4, 0.3
_PARTS = re.compile("(" + "|".join(re.escape(c) for c in CONTROL) + ")")
_WORD = re.compile(r"[^\W\d_]{3,}")
# Words of the format itself, always written the same way.
FRAME = frozenset("user model system thought call declaration response description parameters properties required type value items enum "
                  "STRING INTEGER NUMBER BOOLEAN OBJECT ARRAY".split())


def word_cuts(prompt, target, rng):
    """Where some words are cut before encoding: word -> parts. The same in prompt and target; none that only the target has.

    A word that the tokenizer has whole, or in two rare parts, is seldom copied piece by piece; a name that training never had is made
    of just such parts. With words cut at random, and alike wherever they stand, copying what stands there is the rule to learn.
    """
    cuts = {}
    for word in dict.fromkeys(_WORD.findall(prompt)):
        if word not in FRAME and rng.random() < CUT_WORDS:
            at = sorted({rng.randrange(1, len(word)) for _ in range(1 + (rng.random() < 0.4))})
            cuts[word] = [word[i:j] for i, j in zip([0] + at, at + [len(word)])]
    return cuts


def cut(text, cuts):
    """`text` as pieces to encode one by one: control tokens stay whole, words in `cuts` come apart."""
    pieces = []
    for part in _PARTS.split(text):
        if part in CONTROL:
            pieces.append(part)
            continue
        begin = 0
        for m in _WORD.finditer(part):
            parts = cuts.get(m.group())
            if parts:
                # What stands before goes with the first part: a word's leading space belongs to its token.
                pieces.append(part[begin:m.start()] + parts[0])
                pieces.extend(parts[1:-1])
                begin = m.end() - len(parts[-1])
        pieces.append(part[begin:])
    return [p for p in pieces if p]


class Encoder:
    """Dialogues to (ids, kinds)."""

    def __init__(self, tokenizer_file):
        from tokenizers import Tokenizer
        self.tokenizer = Tokenizer.from_file(str(tokenizer_file))
        one = lambda text: self.tokenizer.encode(text).ids
        (self.bos,), (self.pad,), (self.channel_close,) = one("<bos>"), one("<pad>"), one("<channel|>")
        self.model_turn = one("<|turn>model\n")
        self.empty_thought = one("<|channel>thought\n<channel|>")
        assert len(self.model_turn) == 3, "the tokenizer has no token for the word model"

    def kinds(self, prompt, target):
        """An answer in the history does not say how an answer begins (a thought, or none), and a given empty thought is no example."""
        kinds = np.full(len(prompt) + len(target), CONTEXT, np.uint8)
        kinds[len(prompt):] = WRITTEN
        kinds[0] = 0
        a, b, c = self.model_turn
        for i in range(3, len(prompt)):
            if prompt[i - 1] == c and prompt[i - 2] == b and prompt[i - 3] == a:
                kinds[i] = 0
        if prompt[-1] == self.channel_close:
            kinds[len(prompt) - len(self.empty_thought):len(prompt)] = 0
        return kinds

    def encode(self, rendered, rng=None):
        """For (prompt, target) texts: their ids, and the kinds of both. With `rng`, some dialogues have words cut."""
        pieces, counts = [], []
        for prompt, target in rendered:
            cuts = word_cuts(prompt, target, rng) if rng and rng.random() < CUT_DIALOGUES else None
            for text in (prompt, target):
                parts = cut(text, cuts) if cuts else [text]
                pieces.extend(parts)
                counts.append(len(parts))
        encoded = iter(self.tokenizer.encode_batch_fast(pieces))
        ids = [[i for _ in range(n) for i in next(encoded).ids] for n in counts]
        for prompt, target in zip(ids[::2], ids[1::2]):
            yield prompt, target, self.kinds(prompt, target)


class Packer:
    """Puts dialogues into the fullest of a few open rows that still has room."""

    def __init__(self, length, pad, open_rows=16):
        self.length, self.pad, self.limit, self.open = length, pad, open_rows, []

    def add(self, ids, kinds):
        """Takes one dialogue; returns a finished row or None."""
        if len(ids) > self.length:
            return None
        fitting = [r for r in self.open if r[2] + len(ids) <= self.length]
        done = None
        if fitting:
            row = max(fitting, key=lambda r: r[2])
        else:
            if len(self.open) == self.limit:
                fullest = max(range(self.limit), key=lambda i: self.open[i][2])
                done = self.open.pop(fullest)[:2]
            row = [np.full(self.length, self.pad, np.uint16), np.zeros(self.length, np.uint8), 0]
            self.open.append(row)
        end = row[2] + len(ids)
        row[0][row[2]:end], row[1][row[2]:end], row[2] = ids, kinds, end
        return done


def rows(tokenizer_file, split, seed, length):
    """An endless stream of (ids, kinds, hashes of the dialogues seen since the last row)."""
    from corpus.dialogue import render
    from corpus.mix import Mix
    encoder, mix, rng = Encoder(tokenizer_file), Mix(split), random.Random(seed)
    packer, hashes = Packer(length, encoder.pad), []
    while True:
        rendered = [render(mix.draw(rng)) for _ in range(256)]
        for (p, t), (prompt, target, kinds) in zip(rendered, encoder.encode(rendered, rng if split == "train" else None)):
            hashes.append(int.from_bytes(hashlib.blake2b((p + t).encode(), digest_size=8).digest(), "little"))
            done = packer.add(prompt + target, kinds)
            if done:
                yield done[0], done[1], np.array(hashes, np.uint64)
                hashes = []


def _work(queue, tokenizer_file, seed, length, group):
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    ids, kinds, hashes = [], [], []
    for i, k, h in rows(tokenizer_file, "train", seed, length):
        ids.append(i), kinds.append(k), hashes.append(h)
        if len(ids) == group:
            queue.put((np.stack(ids), np.stack(kinds), np.concatenate(hashes)))
            ids, kinds, hashes = [], [], []


class Feed:
    """Batches from worker processes, one group of rows from each in turn, so that the order is the same each time."""

    def __init__(self, tokenizer_file, workers, seed, length, group):
        context = multiprocessing.get_context("fork")
        self.queues = [context.Queue(maxsize=6) for _ in range(workers)]
        self.processes = [context.Process(target=_work, args=(q, tokenizer_file, f"{seed}/{n}", length, group), daemon=True)
                          for n, q in enumerate(self.queues)]
        for p in self.processes:
            p.start()
        self.turn = 0

    def take(self):
        """(ids [group, length], kinds, hashes)."""
        batch = self.queues[self.turn].get()
        self.turn = (self.turn + 1) % len(self.queues)
        return batch

    def close(self):
        for p in self.processes:
            p.terminate()
