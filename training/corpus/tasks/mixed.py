"""Conversations that change the subject: what the user told of himself, or asked before, has nothing to do with the last question, or
is asked for again after turns about other things.

Each part is a dialogue of another task; held out is what that task holds out. Without these a model learns that a personal fact is
always asked back, and answers the next question about the user (experiment 0007).
"""
from ..dialogue import assistant, user
from . import memory
from .arithmetic import pick

# Tasks whose dialogues say nothing about what comes after them.
BEFORE = ["facts"] * 4 + ["facts_followup"] + ["facts_check"] * 2 + ["sums"] * 3 + ["products", "compare", "identity"] + ["smalltalk"] * 2 + [
    "stories", "words_list", "words_case", "words_grammar", "words_order", "words_count", "words_spell", "words_edit", "words_rhyme",
    "words_saying", "words_translate"]
LAST = BEFORE + ["facts"] * 4 + ["sums"] * 3 + ["unknown"] * 2 + ["reading", "json_answer", "facts_followup"]
MAKERS = {}
LONGEST = 700


def makers():
    if not MAKERS:
        from . import TASKS
        MAKERS.update({name: make for name, (_, make) in TASKS.items()})
    return MAKERS


def length(messages):
    return sum([len(m["content"] or "") for m in messages])


def dialogue(rng, split, name):
    """A short dialogue of that task without a system message and without tools."""
    while True:
        d = makers()[name](rng, split)
        if d.messages[0]["role"] == "user" and not d.tools and length(d.messages) < LONGEST:
            return d


def turns(rng, split):
    """Some question about anything, answered."""
    d = dialogue(rng, split, pick(rng, BEFORE))
    return d.messages + [assistant(d.reply.content)]


def telling(rng, split):
    """(what is told, its value, the turn in which the user tells it)."""
    key = memory.keys(rng, 1)[0]
    fact = memory.FACTS[key]
    v = memory.value(rng, split, fact)
    return fact, v, [user(memory.told(rng, fact, v, split == "train")), assistant(memory.acknowledged(fact, v))]


def personal(d):
    """Whether the last question may be about the user: what was told could be its answer."""
    words = d.messages[-1]["content"].lower().replace("?", " ").replace(".", " ").replace("'", " ").split()
    return not {"my", "i", "me", "mine", "am"}.isdisjoint(words)


def elsewhere(rng, split):
    """The user tells something of himself, then asks about something else."""
    messages = []
    for _ in range(1 + (rng.random() < 0.3)):
        messages += telling(rng, split)[2]
    if rng.random() < 0.3:
        messages += turns(rng, split)
    while True:
        d = dialogue(rng, split, pick(rng, LAST))
        if not (d.task == "unknown" and personal(d)):
            d.messages = messages + d.messages
            return d


def returning(rng, split):
    """The user tells something of himself, asks about other things, then asks it back."""
    fact, v, messages = telling(rng, split)
    for _ in range(1 + (rng.random() < 0.4)):
        messages += turns(rng, split)
    messages.append(user(memory.asked(rng, split, fact)))
    return memory.done(rng, messages, memory.said(fact, v), {"kind": "contains", "any": [v]}, f"The user said it: {v}.")


def unrelated(rng, split):
    """Two or three questions about different things; the last may be one that remembers."""
    messages = turns(rng, split)
    if rng.random() < 0.4:
        messages += turns(rng, split)
    d = dialogue(rng, split, "memory" if rng.random() < 0.2 else pick(rng, LAST))
    d.messages = messages + d.messages
    return d


def needs_a_tool(rng, split):
    """A request for a tool after talk about something else."""
    d = makers()["tool_call"](rng, split)
    messages = telling(rng, split)[2] if rng.random() < 0.6 else turns(rng, split)
    start = 1 if d.messages[0]["role"] == "system" else 0
    d.messages = d.messages[:start] + messages + d.messages[start:]
    return d


def mixed(rng, split):
    while True:
        r = rng.random()
        d = (elsewhere if r < 0.45 else returning if r < 0.65 else unrelated if r < 0.85 else needs_a_tool)(rng, split)
        if length(d.messages) < 1500 and d.messages[-1]["role"] == "user":
            d.task = "mixed"
            return d


TASKS = {"mixed": (28, mixed)}
