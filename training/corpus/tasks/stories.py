"""Short stories, poems of four lines, and stories to go on with, from small grammars; what the user names must occur.

Held out: a seventh of the heroes' names, animals, places and objects (tests use only those), common and invented words in their place, and
request wordings (`*_TEST`, three tests of five; always where the request names nothing).
"""
from ..open_words import any_name, any_word, common
from .arithmetic import NAMES, NAMES_TEST, ask, finish, pick, rows, split_pool, wordings

POOLS = {kind: split_pool(text.split(", ")) for kind, text in rows("skills_stories.tsv")}

# Two plots: the object is sought and found, or it is got, put in danger and saved.
# Parts of a story: {h} the hero's name, {a} "a small fox", {k} "fox", {p} the place, {o} the object.
(BEGIN, SEEK, SEEK_TROUBLE, SEEK_END, GET, GET_TROUBLE, GET_END, HELP, END, FRIENDS, ASK, ASK_TEST, ANY, ANY_TEST, GO_ON,
 GO_ON_TEST, POEM, POEM_TEST) = wordings("stories")
# Pairs of lines that rhyme: {t} is "the fox", {T} the same at a beginning.
COUPLETS = rows("skills_couplets.tsv")
SUBJECTS = ["sun", "moon", "sea", "rain", "snow", "wind", "night", "spring", "summer", "autumn", "winter", "river", "tree", "rose",
            "star", "morning", "evening", "sky", "rainbow", "cloud", "storm",
            "mountain", "lake", "bread", "tea", "train", "bicycle", "road", "door", "window", "old chair", "flower", "sunflower",
            "computer", "music", "song", "river bank", "leaf", "pine", "shadow"]
SUBJECTS, SUBJECTS_TEST = split_pool(SUBJECTS)


ON = ("island", "ship", "farm")


def a(word):
    return ("an " if word[0] in "aeioAEIO" or word.startswith("um") else "a ") + word


def tale(rng, split, hero, being, kind, place, thing):
    """A story of three to six sentences as a list; the object occurs with and without its article."""
    parts = {"h": hero, "a": being, "k": kind, "p": place, "o": thing, "b": a(thing), "f": pick(rng, FRIENDS)}
    want, trouble, solved = (SEEK, SEEK_TROUBLE, SEEK_END) if rng.random() < 0.6 else (GET, GET_TROUBLE, GET_END)
    chosen = [pick(rng, BEGIN), pick(rng, want)]
    r = rng.random()
    if r < 0.75:
        chosen.append(pick(rng, trouble))
    if r < 0.55 or r > 0.9:
        chosen.append(pick(rng, HELP))
    chosen += [pick(rng, solved), "From then on, they were friends." if "{f}" in chosen[-1] and rng.random() < 0.3 else pick(rng, END)]
    if not any("{p}" in c for c in chosen):
        chosen[-1] = pick(rng, [e for e in END if "{p}" in e])
    out = [c.format(**parts) for c in chosen]
    if place in ON:
        out = [s.replace("in the " + place, "on the " + place).replace("In the " + place, "On the " + place) for s in out]
    return [s[0].upper() + s[1:] for s in out]


def thing_of(rng, split):
    """An object; at times any word in its place."""
    return pick(rng, POOLS["object"][split == "test"]) if rng.random() < 0.65 else pick(rng, (common, any_word))(rng, split)


def cast(rng, split):
    test = split == "test"
    hero = any_name(rng, split) if rng.random() < 0.45 else pick(rng, NAMES_TEST if test else NAMES)
    kind = pick(rng, POOLS["animal"][test]) if rng.random() < 0.65 else pick(rng, (common, any_word))(rng, split)
    being = a((pick(rng, POOLS["trait"][0]) + " " if rng.random() < 0.7 else "") + kind)
    return hero, being, kind, pick(rng, POOLS["place"][test]), thing_of(rng, split)


def wish(rng, hero, being, kind, place, thing):
    """(what the user asks for, what must occur, the words for the hero) of a story."""
    r = rng.random()
    if r < 0.2:
        return f"{being} called {hero}", [kind, hero], being
    if r < 0.35:
        return f"{a(kind)} and {a(thing)}", [kind, thing], being
    if r < 0.5:
        return f"{a(kind)} in {a(place) if rng.random() < 0.6 else 'the ' + place}".replace('in the ' + place,
                                                            ('on' if place in ON else 'in') + ' the ' + place), [kind, place], being
    if r < 0.65:
        return a(kind), [kind], being
    if r < 0.73:
        return f"{hero} and {a(thing)}", [hero, thing], being
    if r < 0.8:
        return f"{hero} in {a(place)}", [hero, place], being
    if r < 0.87:
        return f"{a(kind)}, {a(thing)} and {a(place)}", [kind, thing, place], being
    if r < 0.94:
        return f"{being} named {hero} who finds {a(thing)}", [kind, hero, thing], being
    return hero, [hero], being


def stories(rng, split):
    r = rng.random()
    if r < 0.27:
        return poem(rng, split)
    hero, being, kind, place, thing = cast(rng, split)
    if r < 0.35:
        text = ask(rng, split, ANY, ANY_TEST, 1)
        return finish(rng, "stories", text, " ".join(tale(rng, "train", *cast(rng, "train"))), {"kind": "free", "min_words": 15},
                      "A short story with a hero.")
    if r < 0.5:
        story = tale(rng, split, hero, being, kind, place, thing)
        cut = 1 if rng.random() < 0.6 else 2
        text = ask(rng, split, GO_ON, GO_ON_TEST, loose=False).format(s=" ".join(story[:cut]))
        rest = " ".join(story[cut:])
        if hero not in rest:
            rest += f" And {hero} smiled."
        return finish(rng, "stories", text, rest, {"kind": "all", "of": [hero]}, f"The story of {hero} goes on.")
    wanted, must, being = wish(rng, hero, being, kind, place, thing)
    text = ask(rng, split, ASK, ASK_TEST).format(x=wanted)
    return finish(rng, "stories", text, " ".join(tale(rng, split, hero, being, kind, place, thing)), {"kind": "all", "of": must},
                  f"A short story with {' and '.join(must)}.")


def poem(rng, split):
    """Four lines, two pairs that rhyme; the subject occurs."""
    test = split == "test"
    r = rng.random()
    if r < 0.4:
        subject = pick(rng, SUBJECTS_TEST if test else SUBJECTS)
    elif r < 0.6:
        subject = pick(rng, (common, any_word))(rng, split)
    else:
        subject = pick(rng, POOLS["animal" if r < 0.85 else "object"][test])
    named = "music" if subject == "music" else "the " + subject
    asked = named if rng.random() < 0.5 or subject in ("music", "bread", "tea", "rain", "snow", "spring", "summer", "autumn",
                                                       "winter") else a(subject)
    alive = 0.6 <= r < 0.85
    first = pick(rng, WITH if alive else WITH_THING)
    second = pick(rng, COUPLETS if alive else THINGS)
    while second is first:
        second = pick(rng, COUPLETS if alive else THINGS)
    pair = [first, second] if rng.random() < 0.6 else [second, first]
    lines_ = [line.format(t=named, T=named[0].upper() + named[1:]) for couplet in pair for line in couplet]
    text = ask(rng, split, POEM, POEM_TEST).format(x=asked)
    return finish(rng, "stories", text, "\n".join(x[0].upper() + x[1:] for x in lines_), {"kind": "all", "of": [subject]},
                  f"Four lines about {named}.")


LIVING = ("sat down", "woke up", "piece of bread", "stood still", "and I, we", "is dreaming", "looked up", "so happy in", "goes where")
THINGS = [c for c in COUPLETS if not any(x in c[0] + c[1] for x in LIVING)]
WITH_THING = [c for c in THINGS if "{t}" in c[0] + c[1] or "{T}" in c[0] + c[1]]
WITH = [c for c in COUPLETS if "{t}" in c[0] + c[1] or "{T}" in c[0] + c[1]]
TASKS = {"stories": (4, stories)}
