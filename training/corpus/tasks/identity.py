"""Who the model is and what Fieldfare is (`identity`); greetings, thanks, goodbyes and other small talk (`smalltalk`).

Held out by wording: the lines after "test:" in data/identity.txt, new sentences made of words that the training wordings of the same
block use; what stands around a wording is the same in both splits, except that only training has noise. Invented names are held out too.
"""
from .. import invented
from ..dialogue import Dialogue, Reply, user
from ..fact_phrasing import DIRECT, frame, opening, typed
from ..fact_table import DATA, draw, grammar
from ..noise import COMMON, maybe

ENDINGS = ["", "", "", "", "", "", "!", ".", " :)", "!!", "...", " ;)", ", Fieldfare", ", my friend", ", please"]
KEEP = ("Fieldfare", "fieldfare", "Gemma", "human", "name", "not", "wrong", "good", "bad")


def blocks():
    """(task, accepted, answer, thought, train wordings, test wordings) of each block of the file."""
    lines = [line for line in (DATA / "identity.txt").read_text(encoding="utf-8").splitlines() if line and line[0] != "#"]
    for i in range(0, len(lines), 4):
        task, accepted, answer = lines[i].split(" | ")
        yield (task, accepted, answer, lines[i + 1].removeprefix("thought: "), grammar(lines[i + 2].split("|")),
               grammar(lines[i + 3].removeprefix("test: ").split("|")))


BLOCKS = {"identity": [], "smalltalk": []}
for _block in blocks():
    BLOCKS[_block[0]].append(_block)


def filled(rng, split, lists):
    """One of the wordings, with a common word and an invented name where it has room for them."""
    text = draw(rng, lists)
    if "{" in text:
        text = text.replace("{w}", rng.choice(COMMON)).replace("{n}", invented.label(rng, split))
    return text


def make(rng, split, task, text_of, history):
    _, accepted, answer, thought, train, test = rng.choice(BLOCKS[task])
    text = text_of(rng, split, filled(rng, split, test if split == "test" else train))
    thinking = rng.random() < 0.15
    return Dialogue(task, opening(rng, history) + [user(text)], Reply(answer, thought if thinking else None),
                    {"kind": "contains", "any": [accepted]}, thinking=thinking)


def asked(rng, split, text):
    text = maybe(rng, split, text, KEEP)
    return typed(rng, frame(rng, DIRECT, text) if rng.random() < 0.4 else text)


def said(rng, split, text):
    """Small talk is short: mostly as it stands, with other endings and case."""
    text = maybe(rng, split, text, KEEP, 0.15, clauses=False)
    if text[-1] not in "?!.":
        text += rng.choice(ENDINGS)
    elif text[-1] == "?":
        r = rng.random()
        text = text[:-1] if r < 0.2 else text + "?" if r < 0.25 else text
    r = rng.random()
    if r < 0.3:
        return text.lower()
    return text.upper() if r < 0.33 else text


def identity(rng, split):
    return make(rng, split, "identity", asked, 0.25)


def smalltalk(rng, split):
    return make(rng, split, "smalltalk", said, 0.5)


TASKS = {"identity": (6, identity), "smalltalk": (5, smalltalk)}
