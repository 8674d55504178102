"""Sums, products, comparisons; and the helpers of wording that the other skill modules share.

Wordings are tables of rows such as "[Please |]add {a} and {b}."; every choice in brackets makes a template of its own. In training a
fifth of the templates is damaged around its placeholders (`noise`). Held-out templates are new sentences of words that are trained.

Held out: pairs of operands by `held` (never trained in any form or order, unless both have one digit: the written steps need
those; sums of three have a rule of their own), and templates (`*_TEST`). Tests of `sums` use held-out pairs with both kinds
of template; `products` holds out templates only; `compare` holds out both numbers and templates.
"""
import itertools
import random
import re
from pathlib import Path

from ..dialogue import Dialogue, Reply, assistant, system, user
from ..noise import noisy
from ..open_words import any_name, common, invented

DATA = Path(__file__).parent.parent / "data"


# ---- helpers shared by the skill modules -------------------------------------------------------------------------

def lines(name):
    """The lines of a data file without its header."""
    return (DATA / name).read_text("utf-8").strip("\n").split("\n")[1:]


def rows(name):
    return [tuple(line.split("\t")) for line in lines(name)]


def pick(rng, items):
    return items[int(rng.random() * len(items))]


def pick_some(rng, items, count):
    """`count` different items in random order."""
    out = []
    while len(out) < count:
        item = items[int(rng.random() * len(items))]
        if item not in out:
            out.append(item)
    return out


OPENERS = set(lines("skills_openers.txt"))


def expand(text, most=150):
    """All templates of a row: "[a|b] c" is "A c" and "B c"."""
    if "[" not in text:
        return [text]
    parts = [p.split("|") if i % 2 else [p] for i, p in enumerate(re.split(r"\[([^\]]*)\]", text))]
    out = ["".join(choice) for choice in itertools.product(*parts)]
    if len(out) > most:
        out = random.Random(len(text)).sample(out, most)
    out = [t.replace(" ,", ",").replace("  ", " ").strip(" ") for t in out]
    out = list(dict.fromkeys([t[0].upper() + t[1:] for t in out]))
    OPENERS.update(w for w in (t.split(" ", 1)[0] for t in out) if w.isalpha() and len(w) > 1)
    return out


def expand_all(texts, without=()):
    """The templates of all rows without those of the tests; a row of few templates stands often enough to be met."""
    held_out = {t.lower() for t in without}
    rows_ = [[t for t in expand(text) if t.lower() not in held_out] for text in texts]
    most = max(len(r) for r in rows_)
    return [t for r in rows_ if r for t in r * max(1, most // (8 * len(r)))]


def wordings(module):
    """The tables of wordings of a module, in the order of its file."""
    tables = {}
    for name, text in rows(f"skills_wordings_{module}.tsv"):
        tables.setdefault(name, []).append(text.replace("\\n", "\n"))
    return [expand_all(texts, tables.get(name + "_TEST", ())) for name, texts in tables.items()]


(PREFIXES, SUFFIXES, _WHO, _HOW, ADD, ADD_TEST, SUB, SUB_TEST, MORE, MORE_TEST, LESS, LESS_TEST, MINE, MINE_TEST, SPENT,
 SPENT_TEST, AGAIN, AGAIN_TEST, THREE, THREE_TEST, TIMES, TIMES_TEST, OVER, OVER_TEST, PACKS, PACKS_TEST, LARGER, LARGER_TEST,
 SMALLER, SMALLER_TEST, PARITY, PARITY_TEST, SORT, SORT_TEST, COUNT, COUNT_TEST, NEXT, NEXT_TEST, PREVIOUS,
 PREVIOUS_TEST) = wordings("arithmetic")


def split_pool(items, step=7, rest=3):
    """(train, test): every `step`-th item is held out."""
    return ([x for i, x in enumerate(items) if i % step != rest], [x for i, x in enumerate(items) if i % step == rest])


def style(rng, text, loose=True):
    """A template (still with its braces) as somebody might type it: with a prefix or suffix, in lower case, with slips.
    With `loose` off the letters stay as they are."""
    r = rng.random()
    if r < 0.34:
        if text.endswith("?") and r < 0.12:
            text = text[:-1]
        elif r < 0.14:
            text = text.replace("What is", "Whats", 1)
        elif r < 0.16:
            text = text.replace("What is", "What's", 1)
        elif r < 0.18 and loose:
            text = _slip(rng, text)
        elif r < 0.24 and text[-1] in ".?!":
            text += pick(rng, SUFFIXES)
    r = rng.random()
    if r < 0.25:
        word = text.split(" ", 1)[0].rstrip(":,")
        prefix = pick(rng, PREFIXES)
        if word in OPENERS and (prefix[-2] not in ".!?" or prefix[0].islower()):
            text = prefix + text[0].lower() + text[1:]
        else:
            text = prefix + text
    elif r < 0.32 and text[-1] in "?":
        text = text[:-1] + pick(rng, (", please?", " please?", " please", "??", " ?", "?!"))
    if loose and rng.random() < 0.16:
        text = text.lower()
    return text


def _slip(rng, text):
    """One letter of the template lost or two swapped, never in a placeholder."""
    i = int(rng.random() * (len(text) - 2))
    if "{" in text[max(0, i - 3):i + 3] or "}" in text[i:] and "{" not in text[i:] or not text[i:i + 2].isalpha():
        return text
    return text[:i] + (text[i + 1] + text[i] if i % 2 else text[i]) + text[i + 2:]


def ask(rng, split, train, test=(), rate=0.6, loose=True, keep=(), plain=False):
    """A template as somebody might type it: in tests a held-out one with that rate, in training with noise at times."""
    if split == "test":
        text = pick(rng, test if test and rng.random() < rate else train)
    else:
        text = pick(rng, train)
        if rng.random() < 0.2:
            text = noisy(rng, text, keep)
    return text if plain else style(rng, text, loose)


NEUTRAL = [f"You are {w}.{h}" for w in _WHO for h in _HOW] + [
    "Be brief.", "You are Fieldfare.", "Answer shortly.", "Be concise.", "Be helpful and honest.", "Answer correctly.", "Help the user.",
    "You help people with small tasks.", "Answer the question.", "Keep it short.", "Use plain English.", "You run on a small computer."]

CAPITALS = rows("skills_capitals.tsv")
SMALLTALK = [("Hi!", "Hello! How can I help you?"), ("Hello", "Hello! How can I help you?"),
             ("Good morning", "Good morning! How can I help you?"),
             ("How are you?", "I am fine, thank you. How can I help you?"), ("Thanks!", "You are welcome."),
             ("Thank you", "You are welcome."),
             ("Nice.", "Good! What else can I do for you?"), ("Okay", "Okay. What else can I do for you?"),
             ("Who are you?", "I am Fieldfare's demonstration model."), ("hey", "Hello! How can I help you?"),
             ("What are you?", "I am Fieldfare's demonstration model."), ("Great, thanks.", "You are welcome."),
             ("Can you help me?", "Yes, what can I do for you?"), ("I have some questions.", "Go ahead, I am happy to help."),
             ("It is raining today.", "I hope you stay dry."), ("I am a bit tired.", "I hope you can rest soon."),
             ("The weather is lovely.", "That is good to hear."), ("cool", "Good! What else can I do for you?")]


def chatter(rng):
    """An earlier question and its answer; only trained pairs of numbers occur."""
    r = rng.random()
    if r < 0.45:
        return pick(rng, SMALLTALK)
    if r < 0.75:
        country, capital = pick(rng, CAPITALS)
        return pick(rng, ("What is the capital of {}?", "capital of {}?", "Name the capital of {}.")).format(country), (
            f"The capital of {country} is {capital}.")
    a, b = pick(rng, TRAIN_PAIRS)
    return pick(rng, ("{} + {}", "What is {} + {}?", "{}+{}", "What is {} plus {}?")).format(a, b), f"{a} + {b} = {a + b}."


def cased(rng, text):
    """The text, seldom all in lower case or in capitals, names too."""
    r = rng.random()
    return text.lower() if r < 0.08 else text.upper() if r < 0.095 else text


def finish(rng, task, text, answer, expect, thought=None, earlier=0.18, neutral=0.15, before=(), any_case=False):
    """A dialogue: perhaps a neutral system message, perhaps earlier turns, then the question."""
    messages = []
    if any_case:
        text = cased(rng, text)
    if neutral and rng.random() < neutral:
        messages.append(system(pick(rng, NEUTRAL)))
    if earlier and rng.random() < earlier:
        for _ in range(1 + int(rng.random() * 2.4)):
            asked, said = chatter(rng)
            messages.append(user(asked))
            messages.append(assistant(said))
    messages.extend(before)
    messages.append(user(text))
    thinking = thought is not None and rng.random() < 0.15
    return Dialogue(task, messages, Reply(answer, thought if thinking else None), expect, thinking=thinking)


def number(value):
    return {"kind": "number", "value": value}


# ---- sums ---------------------------------------------------------------------------------------------------------

def held(a, b):
    """Whether the pair is reserved for tests; the same in either order. Modulo 11, so that no pair of last digits is reserved."""
    lo, hi = min(a, b), max(a, b)
    return hi >= 10 and (lo * 31 + hi * 17) % 11 == 3


_ALL = [(a, b) for a in range(100) for b in range(100)]
TRAIN_PAIRS = [p for p in _ALL if not held(*p)]
TRAIN_SMALL = [(a, b) for a, b in TRAIN_PAIRS if a <= 20 and b <= 20]
TEST_PAIRS = [p for p in _ALL if held(*p)]

THINGS = ["apples", "pears", "books", "coins", "cards", "stamps", "marbles", "sweets", "pens", "eggs", "shells", "stickers", "plums",
          "nuts", "stones",
          "balls", "flowers", "candles", "cups", "cookies", "buttons", "tickets", "lemons", "pencils", "toys", "photos", "beads", "muffins"]
THINGS, THINGS_TEST = split_pool(THINGS)
_TEENS = ("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
          "sixteen seventeen eighteen nineteen").split()
_TENS = "zero ten twenty thirty forty fifty sixty seventy eighty ninety".split()
NUMBER_WORDS = [_TEENS[n] if n < 20 else _TENS[n // 10] + ("-" + _TEENS[n % 10] if n % 10 else "") for n in range(100)]
NAMES, NAMES_TEST = split_pool(lines("skills_names.txt"))


def adding(a, b):
    """The written steps of a + b."""
    if a < 10 and b < 10:
        return f"{a} + {b} = {a + b}."
    ones = a % 10 + b % 10
    if ones > 9:
        return f"{a % 10} + {b % 10} = {ones}, write {ones - 10}, carry 1. {a // 10} + {b // 10} + 1 = {a // 10 + b // 10 + 1}. So {a + b}."
    return f"{a % 10} + {b % 10} = {ones}, write {ones}. {a // 10} + {b // 10} = {a // 10 + b // 10}. So {a + b}."


def taking(a, b):
    """The written steps of a - b."""
    if a < b:
        return f"{a} is less than {b}. {taking(b, a)} With minus: {a - b}."
    if a < 10:
        return f"{a} - {b} = {a - b}."
    if a % 10 < b % 10:
        ones = a % 10 + 10
        return f"{ones} - {b % 10} = {ones - b % 10}, borrow 1. {a // 10} - {b // 10} - 1 = {a // 10 - b // 10 - 1}. So {a - b}."
    return f"{a % 10} - {b % 10} = {a % 10 - b % 10}. {a // 10} - {b // 10} = {a // 10 - b // 10}. So {a - b}."


def pair(rng, split):
    """Two operands of a sum."""
    if split == "test":
        return pick(rng, TEST_PAIRS)
    return pick(rng, TRAIN_SMALL if rng.random() < 0.15 else TRAIN_PAIRS)


PLURALS, PLURALS_TEST = split_pool([many for _, many in rows("skills_nouns.tsv")])


def person(rng, split):
    """A first name, nearly half of them invented."""
    if rng.random() < 0.45:
        return any_name(rng, split)
    return pick(rng, NAMES_TEST if split == "test" else NAMES)


def things(rng, split):
    """Something that can be counted, in the plural; at times nothing that exists."""
    test, r = split == "test", rng.random()
    if r < 0.4:
        return pick(rng, THINGS_TEST if test else THINGS)
    if r < 0.65:
        return pick(rng, PLURALS_TEST if test else PLURALS)
    return (common if r < 0.85 else invented)(rng, split) + "s"


def sums(rng, split):
    r = rng.random()
    if r < 0.05:
        return _three(rng, split)
    a, b = pair(rng, split)
    if r < 0.10:
        return _again(rng, split, a, b)
    plus = rng.random() < 0.55
    if not plus and a < b and rng.random() < 0.9:
        a, b = b, a
    total = a + b if plus else a - b
    thought = adding(a, b) if plus else taking(a, b)
    if r < 0.30 and total >= 0 and b > 1:
        name, thing = person(rng, split), things(rng, split)
        mine = rng.random() < 0.22
        kinds = ((MINE, MINE_TEST) if plus else (SPENT, SPENT_TEST)) if mine else (MORE, MORE_TEST) if plus else (LESS, LESS_TEST)
        text = ask(rng, split, *kinds, rate=0.5, loose=False, plain=rng.random() < 0.75)
        words = rng.random() < 0.12
        text = text.format(n=name, a=NUMBER_WORDS[a] if words else a, b=NUMBER_WORDS[b] if words else b, t=thing)
        return finish(rng, "sums", text, f"You have {total} {thing}." if mine
                      else f"{name} has {total} {thing}.", number(total), thought, any_case=True)
    text = ask(rng, split, *((ADD, ADD_TEST) if plus else (SUB, SUB_TEST)), rate=0.5)
    if a < b and "ifference" in text:
        text = "{a} - {b}"
    if r > 0.85:
        text = text.replace(" + ", " plus ").replace(" - ", " minus ").replace("+", " plus ").replace("-", " minus ").format(
            a=NUMBER_WORDS[a], b=NUMBER_WORDS[b])
    else:
        text = text.format(a=a, b=b)
    return finish(rng, "sums", text, f"{a} {'+' if plus else '-'} {b} = {total}.", number(total), thought, any_case=True)


def _three(rng, split):
    while True:
        a, b, c = int(rng.random() * 13), int(rng.random() * 13), int(rng.random() * 13)
        if ((a + b + c) * 7 + a * b * c) % 9 == 3 if split == "test" else (
                ((a + b + c) * 7 + a * b * c) % 9 != 3 and not held(a, b) and not held(a + b, c) and not held(b, c) and not held(a, c)):
            break
    text = ask(rng, split, THREE, THREE_TEST).format(a=a, b=b, c=c)
    return finish(rng, "sums", text, f"{a} + {b} + {c} = {a + b + c}.", number(a + b + c),
                  f"{a} + {b} = {a + b}. {a + b} + {c} = {a + b + c}.")


def _again(rng, split, a, b):
    """A further addend after a sum."""
    c, d = pick(rng, TRAIN_PAIRS)
    while c + d > 99:
        c, d = pick(rng, TRAIN_PAIRS)
    a = c + d
    while held(a, b) != (split == "test"):
        b = int(rng.random() * 100)
    before = [user(style(rng, pick(rng, ADD)).format(a=c, b=d)), assistant(f"{c} + {d} = {a}.")]
    text = ask(rng, split, AGAIN, AGAIN_TEST, plain=True).format(b=b)
    return finish(rng, "sums", text, f"{a} + {b} = {a + b}.", number(a + b), adding(a, b), earlier=0, before=before)


# ---- products -------------------------------------------------------------------------------------------------------



def products(rng, split):
    r = rng.random()
    a, b = int(rng.random() * 13), int(rng.random() * 13)
    c = a * b
    if r < 0.14:
        a, b = max(a, 2), max(b, 2)
        c = a * b
        thing = things(rng, split)
        text = ask(rng, split, PACKS, PACKS_TEST, rate=1, plain=True).format(a=a, b=b, t=thing)
        return finish(rng, "products", text, f"There are {c} {thing}.", number(c), f"{a} x {b} = {c}.", any_case=True)
    if r < 0.30 and a:
        text = ask(rng, split, OVER, OVER_TEST, rate=1).format(a=a, c=c)
        return finish(rng, "products", text, f"{c} / {a} = {b}.", number(b), f"{a} x {b} = {c}. So {b}.", any_case=True)
    text = ask(rng, split, TIMES, TIMES_TEST, rate=1).format(a=a, b=b)
    near = f"{a} x {b - 1} = {a * (b - 1)}, and {a} more is {c}." if b > 1 else f"{a} x {b} = {c}."
    return finish(rng, "products", text, f"{a} x {b} = {c}.", number(c), near, any_case=True)


# ---- comparing ------------------------------------------------------------------------------------------------------



def numbers(rng, split, count):
    """Different numbers of which the first two decide whether the group is held out."""
    while True:
        top = 100 if rng.random() < 0.8 else 1000
        out = pick_some(rng, range(top), count)
        if ((min(out[0], out[1]) + 7 * max(out[0], out[1])) % 10 == 3) == (split == "test"):
            return out


def single(rng, split):
    while True:
        n = int(rng.random() * (100 if rng.random() < 0.8 else 1000))
        if (n % 7 == 3) == (split == "test"):
            return n


def compare(rng, split):
    r = rng.random()
    if r < 0.4:
        a, b = numbers(rng, split, 2)
        big = r < 0.22
        text = ask(rng, split, *((LARGER, LARGER_TEST) if big else (SMALLER, SMALLER_TEST))).format(a=a, b=b)
        best, word = (max(a, b), "larger") if big else (min(a, b), "smaller")
        return finish(rng, "compare", text, f"The {word} number is {best}.", number(best), f"{best} is {word} than {a + b - best}.")
    if r < 0.55:
        a = single(rng, split)
        kind, other = ("odd", "even") if a % 2 else ("even", "odd")
        template = ask(rng, split, PARITY, PARITY_TEST, keep=("even", "odd", "Is"), plain=True)
        asked = "even" if "even" in template else "odd"
        answer = f"{a} is {kind}."
        if not ("even" in template and "odd" in template) and "is {a}" in template.lower():
            answer = f"Yes, {answer}" if asked == kind else f"No, {answer}"
        return finish(rng, "compare", style(rng, template).format(a=a), answer, {"kind": "contains", "any": [kind], "not": [other]},
                      f"The last digit is {a % 10}, so {a} is {kind}.")
    if r < 0.72:
        three = numbers(rng, split, 3)
        answer = ", ".join(map(str, sorted(three)))
        text = ask(rng, split, SORT, SORT_TEST).format(a=three[0], b=three[1], c=three[2])
        return finish(rng, "compare", text, answer, {"kind": "equals", "any": [answer, answer + "."]},
                      f"The smallest is {min(three)}, the largest is {max(three)}.")
    a = single(rng, split)
    if r < 0.84:
        a = a % 100
        if (a % 7 == 3) != (split == "test"):
            a += 7 - a % 7 + 3 if split == "test" else 1
        b = a + 2 + int(rng.random() * 8)
        answer = ", ".join(map(str, range(a, b + 1)))
        text = ask(rng, split, COUNT, COUNT_TEST).format(a=a, b=b)
        return finish(rng, "compare", text, answer, {"kind": "equals", "any": [answer, answer + "."]},
                      f"From {a} up to {b}.")
    if r < 0.93 or a == 0:
        return finish(rng, "compare", ask(rng, split, NEXT, NEXT_TEST).format(a=a), f"After {a} comes {a + 1}.",
                      number(a + 1), f"One more than {a}.")
    return finish(rng, "compare", ask(rng, split, PREVIOUS, PREVIOUS_TEST).format(a=a), f"Before {a} comes {a - 1}.",
                  number(a - 1), f"One less than {a}.")


TASKS = {"sums": (22, sums), "products": (4, products), "compare": (3, compare)}
