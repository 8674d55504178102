"""Who the model is and what Fieldfare is (`identity`); greetings, thanks, goodbyes and other small talk (`smalltalk`).

Held out by wording: the lines after "test:" in data/identity.txt; names of greeting openers are the same in both splits.
"""
from ..dialogue import Dialogue, Reply, user
from ..fact_phrasing import DIRECT, frame, opening, typed
from ..fact_table import DATA

ENDINGS = ["", "", "", "", "", "", "!", ".", " :)", "!!", "...", " ;)", ", Fieldfare", ", my friend", ", please"]


def blocks():
    """(task, accepted, answer, thought, train wordings, test wordings) of each block of the file."""
    lines = [line for line in (DATA / "identity.txt").read_text(encoding="utf-8").splitlines() if line and line[0] != "#"]
    for i in range(0, len(lines), 4):
        task, accepted, answer = lines[i].split(" | ")
        yield (task, accepted, answer, lines[i + 1].removeprefix("thought: "), lines[i + 2].split("|"),
               lines[i + 3].removeprefix("test: ").split("|"))


BLOCKS = {"identity": [], "smalltalk": []}
for _block in blocks():
    BLOCKS[_block[0]].append(_block)


def make(rng, split, task, text_of, history):
    _, accepted, answer, thought, train, test = rng.choice(BLOCKS[task])
    text = text_of(rng, rng.choice(test if split == "test" else train))
    thinking = rng.random() < 0.15
    return Dialogue(task, opening(rng, history) + [user(text)], Reply(answer, thought if thinking else None),
                    {"kind": "contains", "any": [accepted]}, thinking=thinking)


def asked(rng, text):
    return typed(rng, frame(rng, DIRECT, text) if rng.random() < 0.5 else text)


def said(rng, text):
    """Small talk is short: mostly as it stands, with other endings and case."""
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


TASKS = {"identity": (5, identity), "smalltalk": (4, smalltalk)}
