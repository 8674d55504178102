"""What the user told of himself and asks back some turns later; lists that grow; things never told.

Held out: a seventh of the values (names, cities, pets, colours, ...; tests use only those) and wordings of asking (`test`
below; in tests two of three questions, and every question about things that were never told in a dialogue without facts).
"""
from dataclasses import dataclass

from ..dialogue import Dialogue, Reply, assistant, system, user
from ..noise import noisy
from ..open_words import any_name, any_word, common, invented
from .arithmetic import NAMES, NAMES_TEST, NEUTRAL, ask, chatter, expand_all, pick, pick_some, rows, split_pool, style, wordings

POOLS = {kind: split_pool(text.split(", ")) for kind, text in rows("skills_memory.tsv")}
POOLS["name"] = (NAMES, NAMES_TEST)
POOLS["petname"], POOLS["place"] = POOLS["pet"], POOLS["city"]
POOLS["thing"] = tuple(["the " + w for w in side] for side in POOLS["item"])
POOLS["open"] = POOLS["pet"]
POOLS["age"] = split_pool([str(n) for n in range(6, 100)])
POOLS["number"] = split_pool([str(n) for n in range(2, 200)])
POOLS["few"] = split_pool([str(n) for n in range(2, 16)], 5)
HOURS = "five six seven eight nine ten eleven".split()
POOLS["time"] = split_pool([f"{h} o'clock" for h in range(5, 12)] + [f"{part} {w}" for w in HOURS for part in ("half past", "quarter to")] +
                           [f"{h} {half}" for h in range(1, 13) for half in ("am", "pm")] +
                           [f"{h}:{m:02d}" for h in range(5, 23) for m in (0, 15, 20, 30, 45, 50)])


@dataclass
class Fact:
    """Something about the user: the pool of its values, ways to tell it and ask for it (with wordings for tests), the answer."""
    pool: str
    tell: list
    ask: list
    test: list
    answer: str
    missing: str

    @property
    def keep(self):
        """What the answer says of the value must stay in the question."""
        return [w for w in self.missing[:-1].split(" ")[5:] if len(w) > 2]


def _fact(pool, tell, asking, test, answer, missing):
    test = expand_all(test.split(" | "))
    return Fact(pool, expand_all(tell.split(" | ")), expand_all(asking.split(" | "), test), test, answer,
                f"You have not told me {missing}.")


# How a pool is opened: the chance that its value is not from the table, and what makes it.
OPEN = {"name": (0.45, any_name), "petname": (0.55, any_name), "place": (0.5, any_name), "open": (1, any_word), "thing": (0.5, None),
        **{kind: (0.4, None) for kind in ("food", "drink", "item", "hobby", "animal")}, "job": (0.3, None), "colour": (0.25, None)}


def from_pool(rng, split, kind):
    """A value of that kind: from its table, or any word in its place."""
    rate, make = OPEN.get(kind, (0, None))
    if rng.random() >= rate:
        return pick(rng, POOLS[kind][split == "test"])
    if make:
        return make(rng, split)
    w = (common if rng.random() < 0.55 else invented)(rng, split)
    return f"{pick(rng, ('the', 'a', 'the', 'some'))} {w}" if kind == "thing" else w


def _many(word):
    return word[:-1] + "ies" if word.endswith("y") else word + "s"


def _favourite(pool, word, extra=""):
    return _fact(
        pool, f"My favourite {word} is {{v}}. | My favorite {word} is {{v}}. | The {word} I like best is {{v}}. | "
        f"{{v}} is my favourite {word}. | "
        f"Remember that my favourite {word} is {{v}}. | I like {{v}} best of all {_many(word)}. | "
        f"Please note: my favourite {word} is {{v}}." + extra,
        f"What is my favourite {word}? | What is my favorite {word}? | Which {word} do I like best? | "
        f"Do you remember my favourite {word}? | "
        f"Do you know my favourite {word}? | Tell me my favourite {word}. | Which {word} is my favourite? | "
        f"Can you tell me my favourite {word}? | "
        f"What's my favorite {word}? | my favourite {word}? | What {word} do I like most? | "
        f"[Can|Could] you [tell me|say|name|recall|remind me] [what my favourite {word} is|which {word} I like best]? | "
        f"[Please |][tell me|say|recall|remind me] [what my favourite {word} is|which {word} I like best|which is my favourite {word}]. | "
        f"[What|Which] [did I say|have I told you|was it that I said] about my favourite {word}? | "
        f"And [what was|what is|which is] it, my favourite {word}?",
        f"Which {word} did I say I like best? | Can you recall my favourite {word}? | Name my favourite {word}. | "
        f"Remind me of my favourite {word}.",
        f"Your favourite {word} is {{v}}.", f"your favourite {word}")


def _pet(word):
    return _fact(
        "petname", f"My {word} is called {{v}}. | My {word}'s name is {{v}}. | I have a {word} called {{v}}. | "
        f"I have a {word} named {{v}}. | The name of my {word} is {{v}}. | "
        f"We have a {word}, {{v}}. | I own a {word}. It is called {{v}}.",
        f"What is my {word} called? | What is my {word}'s name? | What is the name of my {word}? | "
        f"Do you remember what my {word} is called? | "
        f"Do you remember the name of my {word}? | Tell me my {word}'s name. | How is my {word} called? | "
        f"Do you know my {word}'s name? | name of my {word}? | "
        f"[Can|Could] you [tell me|say|recall|remind me] [what my {word} is called|what name my {word} has]? | "
        f"[Please |][tell me|say|recall|remind me] [what my {word} is called|what name my {word} has]. | "
        f"[What|How] [did I say|have I told you] my {word} is called? | Which name [did I give|do I give] my {word}? | "
        f"[And |So ][what|how] do I call [her|him|it], my {word}?",
        f"What do I call my {word}? | Can you recall the name of my {word}? | Which name does my {word} have? | "
        f"Remind me of the name of my {word}.",
        f"Your {word} is called {{v}}.", f"what your {word} is called")


def _relative(word):
    return _fact(
        "name", f"My {word} is called {{v}}. | My {word}'s name is {{v}}. | The name of my {word} is {{v}}. | "
        f"I have a {word} called {{v}}. | {{v}} is my {word}. | "
        f"My {word} is {{v}}. | My {word} is named {{v}}.",
        f"What is my {word} called? | What is my {word}'s name? | What is the name of my {word}? | Who is my {word}? | "
        f"Do you remember my {word}'s name? | "
        f"Tell me the name of my {word}. | Do you know what my {word} is called? | What's the name of my {word}? | "
        f"[Can|Could] you [tell me|say|recall|remind me] [who my {word} is|what name my {word} has]? | "
        f"[Please |][tell me|say|recall|remind me] [what my {word} is called|who my {word} is]. | "
        f"[What|How] [did I say|have I told you] my {word} is called? | [What|Which] [is|was] the name that my {word} has?",
        f"Can you recall what my {word} is called? | Which name does my {word} have? | Say the name of my {word}. | "
        f"How did I say that my {word} is called?",
        f"Your {word} is called {{v}}.", f"what your {word} is called")


ABOUT = {
    **{row[0]: _fact(*row[1:]) for row in rows("skills_about.tsv")},
    "colour": _favourite("colour", "colour"), "food": _favourite("food", "food"), "drink": _favourite("drink", "drink"),
    "animal": _favourite("animal", "animal"), "number": _favourite("number", "number"), "sport": _favourite("hobby", "activity"),
    "town": _favourite("city", "city"),
    "dog": _pet("dog"), "cat": _pet("cat"), "horse": _pet("horse"), "parrot": _pet("parrot"), "rabbit": _pet("rabbit"),
         "hamster": _pet("hamster"),
}
RELATIVES = {w: _relative(w) for w in ("sister brother mother father friend neighbour teacher boss son daughter wife husband "
                                       "uncle aunt cousin").split()}
KEYS = ["name"] * 9 + ["city", "colour", "dog"] * 3 + ["age", "job", "cat", "hobby", "food"] * 2 + list(ABOUT)
KIN = list(RELATIVES)
FACTS = {**ABOUT, **RELATIVES}
(FIX, START, EXTEND, EXTEND_TEST, DROP, DROP_TEST, SHOW, SHOW_TEST) = wordings("memory")
NOTE = ["Okay, I will remember that."]


def value(rng, split, fact):
    return from_pool(rng, split, fact.pool)


def said(fact, v):
    """The answer with its value; articles put right."""
    text = fact.answer.replace("{v}", v)
    return text.replace("as a " + v, "as an " + v) if fact.pool == "job" and v[0] in "aeiou" else text


def told(rng, fact, v, noise=False):
    """The user's sentence that tells the value."""
    text = pick(rng, fact.tell)
    if noise and rng.random() < 0.15:
        text = noisy(rng, text, fact.keep)
    if fact.pool == "job" and v[0] in "aeiou":
        text = text.replace("a {v}", "an {v}")
    if text.startswith("{v}"):
        text = text.replace("{v}", v[0].upper() + v[1:])
    text = text.replace("{v}", v)
    r = rng.random()
    if r < 0.1 and fact.pool in ("name", "petname", "place") and v.capitalize() == v:
        return text.lower()
    if r < 0.2:
        return text[:-1]
    if r < 0.26:
        return text[0].lower() + text[1:]
    return text


def acknowledged(fact, v):
    """The reply to being told."""
    if fact is ABOUT["name"]:
        return f"Nice to meet you, {v}."
    text = said(fact, v)
    return "Okay, " + text[0].lower() + text[1:]


def asked(rng, split, fact, rate=0.67):
    return ask(rng, split, fact.ask, fact.test, rate, keep=fact.keep)


def opening(rng):
    return [system(pick(rng, NEUTRAL))] if rng.random() < 0.15 else []


def talk(rng, messages, most):
    """Up to `most` turns about other things."""
    for _ in range(int(rng.random() * (most + 1))):
        a, b = chatter(rng)
        messages += [user(a), assistant(b)]


def done(rng, messages, answer, expect, thought=None):
    thinking = thought is not None and rng.random() < 0.15
    return Dialogue("memory", messages, Reply(answer, thought if thinking else None), expect, thinking=thinking)


def keys(rng, count):
    out = []
    while len(out) < count:
        key = pick(rng, KEYS) if rng.random() < 0.8 else pick(rng, KIN)
        if key not in out and not (key in ("sport", "hobby") and ("sport" in out or "hobby" in out)):
            out.append(key)
    return out


def recall(rng, split):
    """Some facts, other turns, then a question about one of them, or about one never told."""
    messages = opening(rng)
    wanted = keys(rng, 1 + int(rng.random() * 4))
    missing = wanted.pop() if rng.random() < 0.13 else None
    values = {k: value(rng, split, FACTS[k]) for k in wanted}
    talk(rng, messages, 1)
    i = 0
    while i < len(wanted):
        key = wanted[i]
        if i + 1 < len(wanted) and rng.random() < 0.35:
            other = wanted[i + 1]
            first = told(rng, FACTS[key], values[key], split == "train")
            if first[-1] == ".":
                second = told(rng, FACTS[other], values[other])
                together = key == "name" and rng.random() < 0.5 and second[0] == "I" and second[1] in " '"
                text = first[:-1] + " and " + second if together else first + " " + second
                ack = f"Nice to meet you, {values[key]}." if key == "name" else NOTE[0]
                messages += [user(text), assistant(ack)]
                i += 2
                continue
        messages += [user(told(rng, FACTS[key], values[key], split == "train")), assistant(acknowledged(FACTS[key], values[key]))]
        i += 1
        talk(rng, messages, 1)
        if rng.random() < 0.08:
            messages += [user(pick(rng, FACTS[key].ask)), assistant(said(FACTS[key], values[key]))]
    if missing:
        messages.append(user(asked(rng, split, FACTS[missing], 0.67 if wanted else 1)))
        return done(rng, messages, FACTS[missing].missing, {"kind": "contains", "any": ["not told"]}, "The user has not said this.")
    talk(rng, messages, 2)
    if len(wanted) > 1 and rng.random() < 0.08:
        one, two = pick_some(rng, wanted, 2)
        a, b = FACTS[one], FACTS[two]
        second = pick(rng, b.ask)
        messages.append(user(pick(rng, a.ask) + " " + second if rng.random() < 0.5 else pick(rng,
                                                            a.ask).rstrip("?.") + " and " + second[0].lower() + second[1:]))
        return done(rng, messages, said(a, values[one]) + " " + said(b, values[two]), {"kind": "all", "of": [values[one], values[two]]})
    key = pick(rng, wanted)
    messages.append(user(asked(rng, split, FACTS[key])))
    return done(rng, messages, said(FACTS[key], values[key]), {"kind": "contains", "any": [values[key]]},
                f"The user said it: {values[key]}.")


def acknowledge(rng, split):
    """The reply to being told one or two facts."""
    messages = opening(rng)
    talk(rng, messages, 1)
    key = pick(rng, KEYS) if rng.random() < 0.8 else pick(rng, KIN)
    v = value(rng, split, FACTS[key])
    messages.append(user(told(rng, FACTS[key], v, split == "train")))
    return done(rng, messages, acknowledged(FACTS[key], v), {"kind": "contains", "any": [v]}, f"The user tells me this: {v}.")


def correct(rng, split):
    """A fact that is taken back and told anew; then its acknowledgement or the question."""
    messages = opening(rng)
    key = pick(rng, KEYS) if rng.random() < 0.8 else pick(rng, KIN)
    fact = FACTS[key]
    old, new = value(rng, split, fact), value(rng, split, fact)
    while new == old or old in new or new in old:
        new = value(rng, split, fact)
    messages += [user(told(rng, fact, old)), assistant(acknowledged(fact, old))]
    talk(rng, messages, 1)
    text = told(rng, fact, new, False)
    fix = pick(rng, FIX)
    if text[:2] in ("My", "Th", "We", "You", "Re", "Pl") and fix[-5] in ",:":
        text = text[0].lower() + text[1:]
    messages.append(user(fix.format(t=text)))
    right = {"kind": "contains", "any": [new], "not": [old]}
    ack = "Okay, " + said(fact, new)[0].lower() + said(fact, new)[1:]
    if rng.random() < 0.25:
        return done(rng, messages, ack, right, f"First it was {old}, now it is {new}.")
    messages.append(assistant(ack))
    talk(rng, messages, 2)
    messages.append(user(asked(rng, split, fact)))
    return done(rng, messages, said(fact, new), right, f"First it was {old}, but the user changed it to {new}.")


def people(rng, split):
    """Several relatives told of in one turn; one is asked for."""
    messages = opening(rng)
    kin = pick_some(rng, KIN, 2 + int(rng.random() * 2))
    names = list(dict.fromkeys(from_pool(rng, split, "name") for _ in range(12)))[:len(kin)]
    sentences = [f"my {k} {w} {n}" for k, n, w in zip(kin, names, ["is called", pick(rng, ("is called", "is", "is named")), pick(rng,
                                                            ("is called", "is"))])]
    text = pick(rng, (" and ", ", and ", ". ", ", ")).join(sentences) + "."
    text = ". ".join(s[0].upper() + s[1:] for s in text.split(". "))
    messages += [user(text), assistant(NOTE[0])]
    talk(rng, messages, 2)
    i = int(rng.random() * len(kin))
    if rng.random() < 0.3:
        messages.append(user(style(rng, pick(rng, ("Who is {n}?", "Do you remember who {n} is?", "Who was {n}?", "Tell me who {n} is.")),
                                   False).format(n=names[i])))
        return done(rng, messages, f"{names[i]} is your {kin[i]}.", {"kind": "contains", "any": [f"your {kin[i]}"]},
                    f"The user told me about {names[i]}.")
    messages.append(user(asked(rng, split, RELATIVES[kin[i]])))
    return done(rng, messages, said(RELATIVES[kin[i]], names[i]), {"kind": "contains", "any": [names[i]]},
                f"The user said it: {names[i]}.")


LISTS = ["list", "list", "shopping list", "shopping list", "packing list", "to-do list"]


def keep_list(rng, split):
    """A list that is extended and asked for; every reply of the assistant shows it in full."""
    messages = opening(rng)
    kind = pick(rng, LISTS) if rng.random() < 0.6 else f"{(common if rng.random() < 0.7 else invented)(rng, split)} list"
    items = list(dict.fromkeys(from_pool(rng, split, "item") for _ in range(12)))[:1 + int(rng.random() * 3)]
    listed = items[0] if len(items) == 1 else ", ".join(items) if rng.random() < 0.6 else ", ".join(items[:-1]) + " and " + items[-1]
    messages.append(user(ask(rng, split, START).format(k=kind, i=listed)))
    gone = []
    for _ in range(1 + int(rng.random() * 3)):
        messages.append(assistant(f"Your {kind}: {', '.join(items)}."))
        talk(rng, messages, 1 if rng.random() < 0.4 else 0)
        if len(items) > 2 and rng.random() < 0.25:
            item = items.pop(int(rng.random() * len(items)))
            gone.append(item)
            text = ask(rng, split, DROP, DROP_TEST, 0.5)
        else:
            item = from_pool(rng, split, "item")
            while item in items or item in gone:
                item = from_pool(rng, split, "item")
            items = items + [item]
            text = ask(rng, split, EXTEND, EXTEND_TEST, 0.5)
        messages.append(user(text.format(i=item, k=kind)))
    if messages[-1]["role"] == "assistant" or rng.random() < 0.6:
        if messages[-1]["role"] == "user":
            messages.append(assistant(f"Your {kind}: {', '.join(items)}."))
        talk(rng, messages, 2)
        messages.append(user(ask(rng, split, SHOW, SHOW_TEST).format(k=kind)))
    return done(rng, messages, f"Your {kind}: {', '.join(items)}.", {"kind": "all", "of": items, "not": [g for g in gone
                                                            if g not in items]})


def memory(rng, split):
    r = rng.random()
    if r < 0.6:
        return recall(rng, split)
    if r < 0.7:
        return acknowledge(rng, split)
    if r < 0.78:
        return correct(rng, split)
    if r < 0.86:
        return people(rng, split)
    return keep_list(rng, split)


TASKS = {"memory": (10, memory)}
