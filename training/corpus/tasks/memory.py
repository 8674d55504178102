"""What the user told of himself and asks back some turns later; lists that grow; things never told.

Held out: a seventh of the values (names, cities, pets, colours, ...; tests use only those) and wordings of asking (`test`
below; in tests two of three questions, and every question about things that were never told in a dialogue without facts).
"""
from dataclasses import dataclass

from ..dialogue import Dialogue, Reply, assistant, system, user
from .arithmetic import NAMES, NAMES_TEST, NEUTRAL, chatter, pick, pick_some, rows, split_pool, style, wordings
from .words import CAPITAL

POOLS = {kind: split_pool(text.split(", ")) for kind, text in rows("skills_memory.tsv")}
POOLS["name"] = (NAMES * 4 + CAPITAL[False], NAMES_TEST * 4 + CAPITAL[True])
POOLS["petname"] = (POOLS["pet"][0] * 12 + CAPITAL[False][:300], POOLS["pet"][1] * 12 + CAPITAL[True][:60])
POOLS["place"] = (POOLS["city"][0] * 12 + CAPITAL[False][300:600], POOLS["city"][1] * 12 + CAPITAL[True][60:120])
POOLS["age"] = split_pool([str(n) for n in range(6, 100)])
POOLS["number"] = split_pool([str(n) for n in range(2, 200)])
POOLS["few"] = split_pool([str(n) for n in range(2, 16)], 5)
POOLS["time"] = split_pool([f"{h} o'clock" for h in range(5, 12)] +
                           [f"half past {w}" for w in ("five", "six", "seven", "eight", "nine", "ten")])


@dataclass
class Fact:
    """Something about the user: the pool of its values, ways to tell it and ask for it (with wordings for tests), the answer."""
    pool: str
    tell: list
    ask: list
    test: list
    answer: str
    missing: str


def _fact(pool, tell, ask, test, answer, missing):
    return Fact(pool, tell.split(" | "), ask.split(" | "), test.split(" | "), answer, f"You have not told me {missing}.")


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
        f"What's my favorite {word}? | my favourite {word}? | What {word} do I like most?",
        f"Which {word} did I say I like best? | Can you recall my favourite {word}? | Name my favourite {word}.",
        f"Your favourite {word} is {{v}}.", f"your favourite {word}")


def _pet(word):
    return _fact(
        "petname", f"My {word} is called {{v}}. | My {word}'s name is {{v}}. | I have a {word} called {{v}}. | "
        f"I have a {word} named {{v}}. | The name of my {word} is {{v}}. | "
        f"We have a {word}, {{v}}. | I own a {word}. It is called {{v}}.",
        f"What is my {word} called? | What is my {word}'s name? | What is the name of my {word}? | "
        f"Do you remember what my {word} is called? | "
        f"Do you remember the name of my {word}? | Tell me my {word}'s name. | How is my {word} called? | "
        f"Do you know my {word}'s name? | name of my {word}?",
        f"What do I call my {word}? | Can you recall the name of my {word}? | Which name does my {word} have?",
        f"Your {word} is called {{v}}.", f"what your {word} is called")


def _relative(word):
    return _fact(
        "name", f"My {word} is called {{v}}. | My {word}'s name is {{v}}. | The name of my {word} is {{v}}. | "
        f"I have a {word} called {{v}}. | {{v}} is my {word}. | "
        f"My {word} is {{v}}. | My {word} is named {{v}}.",
        f"What is my {word} called? | What is my {word}'s name? | What is the name of my {word}? | Who is my {word}? | "
        f"Do you remember my {word}'s name? | "
        f"Tell me the name of my {word}. | Do you know what my {word} is called? | What's the name of my {word}?",
        f"Can you recall what my {word} is called? | Which name does my {word} have? | Say the name of my {word}.",
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
    return pick(rng, POOLS[fact.pool][split == "test"])


def said(fact, v):
    """The answer with its value; articles put right."""
    text = fact.answer.replace("{v}", v)
    return text.replace("as a " + v, "as an " + v) if fact.pool == "job" and v[0] in "aeiou" else text


def told(rng, fact, v):
    """The user's sentence that tells the value."""
    text = pick(rng, fact.tell)
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
    return style(rng, pick(rng, fact.test if split == "test" and rng.random() < rate else fact.ask))


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
            first = told(rng, FACTS[key], values[key])
            if first[-1] == ".":
                second = told(rng, FACTS[other], values[other])
                together = key == "name" and rng.random() < 0.5 and second[0] == "I" and second[1] in " '"
                text = first[:-1] + " and " + second if together else first + " " + second
                ack = f"Nice to meet you, {values[key]}." if key == "name" else NOTE[0]
                messages += [user(text), assistant(ack)]
                i += 2
                continue
        messages += [user(told(rng, FACTS[key], values[key])), assistant(acknowledged(FACTS[key], values[key]))]
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
    messages.append(user(told(rng, FACTS[key], v)))
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
    text = told(rng, fact, new)
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
    names = pick_some(rng, POOLS["name"][split == "test"], len(kin))
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
    test = split == "test"
    messages = opening(rng)
    kind = pick(rng, LISTS)
    pool = POOLS["item"][test]
    items = pick_some(rng, pool, 1 + int(rng.random() * 3))
    listed = items[0] if len(items) == 1 else ", ".join(items) if rng.random() < 0.6 else ", ".join(items[:-1]) + " and " + items[-1]
    messages.append(user(style(rng, pick(rng, START)).format(k=kind, i=listed)))
    gone = []
    for _ in range(1 + int(rng.random() * 3)):
        messages.append(assistant(f"Your {kind}: {', '.join(items)}."))
        talk(rng, messages, 1 if rng.random() < 0.4 else 0)
        if len(items) > 2 and rng.random() < 0.25:
            item = items.pop(int(rng.random() * len(items)))
            gone.append(item)
            text = pick(rng, DROP_TEST if test and rng.random() < 0.5 else DROP)
        else:
            item = pick(rng, pool)
            while item in items or item in gone:
                item = pick(rng, pool)
            items = items + [item]
            text = pick(rng, EXTEND_TEST if test and rng.random() < 0.5 else EXTEND)
        messages.append(user(style(rng, text).format(i=item, k=kind)))
    if messages[-1]["role"] == "assistant" or rng.random() < 0.6:
        if messages[-1]["role"] == "user":
            messages.append(assistant(f"Your {kind}: {', '.join(items)}."))
        talk(rng, messages, 2)
        messages.append(user(style(rng, pick(rng, SHOW_TEST if test and rng.random() < 0.6 else SHOW)).format(k=kind)))
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
