"""Work on words: lists of things, case, grammar, order, counting, spelling, replacing, rhymes, sayings, translations.

Held out: templates (`*_TEST`) everywhere; they are new sentences of words that the training templates use. By content also words
(`held_word` and a seventh of the small pools), invented words, names and nouns, but only where a word is copied unchanged (reverse,
first and last, counting of words, replace, repeat, echo, sentences); more than half of them are from open generators.
A model cannot know the letters of a word that it never saw spelled, so spelling and counting of letters use one table of short
words (`SPELLED`), upper and lower case and sorting use the same trained words (`KNOWN`) in both splits: tests there take held-out
templates and, for case and sorting, held-out combinations of words (`kept`). Verbs, lists, rhymes, sayings and translations
hold out templates only.
"""
from ..open_words import COMMON, any_word, common, invented
from .arithmetic import NAMES, NUMBER_WORDS, ask, finish, lines, person, pick, rows, split_pool, wordings

WORDS, WORDS_TEST = split_pool(lines("skills_words.txt"))


def word(rng, split):
    """Some word: from a small pool, or a common one, or one from the open generators."""
    r = rng.random()
    if r < 0.25:
        return pick(rng, WORDS_TEST if split == "test" else WORDS)
    return common(rng, split) if r < 0.45 else invented(rng, split) if r < 0.6 else any_word(rng, split)


def some_words(rng, split, low, high):
    count = low + int(rng.random() * (high - low + 1))
    out = []
    while len(out) < count:
        w = word(rng, split)
        if w not in out:
            out.append(w)
    return out


def fill(rng, split, train, test, loose=True, keep=(), **parts):
    """A template of the split in some style, filled in."""
    return ask(rng, split, train, test, 0.6, loose, keep).format(**parts)


def always(rng, split, train, test, keep=(), **parts):
    """As `fill`, for content that is all trained: tests use held-out templates only."""
    return ask(rng, split, train, test, 1, keep=keep).format(**parts)


def equal(*texts):
    return {"kind": "equals", "any": list(texts)}


def within(*texts):
    return {"kind": "contains", "any": list(texts)}


def known(rng):
    """A word whose letters are trained: the same ones in both splits."""
    return pick(rng, KNOWN)


def kept(text):
    """Whether a combination of words is reserved for tests."""
    return sum([b * (i % 7 + 1) for i, b in enumerate(text.encode())]) % 10 == 3


def known_words(rng, split, low, high):
    """Different trained words in a combination of the split."""
    while True:
        count = low + int(rng.random() * (high - low + 1))
        out = []
        while len(out) < count:
            w = known(rng)
            if w not in out:
                out.append(w)
        if kept(" ".join(out)) == (split == "test"):
            return out


# ---- lists of things ------------------------------------------------------------------------------------------------

LISTS = [(one, many, items.split(", ")) for one, many, items in rows("skills_lists.tsv")]
(LIST, LIST_TEST, ONE, ONE_TEST, COMMA, UPPER, UPPER_TEST, LOWER, LOWER_TEST, PAST, PAST_TEST, ASK, ASK_TEST, NEGATE,
 NEGATE_TEST, PLURAL, PLURAL_TEST, PASTS, PASTS_TEST, REVERSE, REVERSE_TEST, ALPHABET, ALPHABET_TEST, FIRST, FIRST_TEST, LAST,
 LAST_TEST, JOIN, JOIN_TEST, COUNTING, COUNTING_TEST, LETTERS, LETTERS_TEST, SPELL, SPELL_TEST, REPLACE, REPLACE_TEST, REPEAT,
 REPEAT_TEST, ECHO, ECHO_TEST, RHYME, RHYME_TEST, SAYING, SAYING_TEST, TO, TO_TEST, FROM, FROM_TEST) = wordings("words")


def make_list(rng, split):
    one, many, items = pick(rng, LISTS)
    r = rng.random()
    if r < 0.1:
        answer = items[0][0].upper() + items[0][1:] + "."
        text = always(rng, split, ONE, ONE_TEST, k=one).replace(" a a", " an a").replace(" a i", " an i").replace(" a o", " an o")
        return finish(rng, "words_list", text, answer, within(items[0]), f"One {one} is enough.")
    count = min(len(items), 2 + int(rng.random() * (4 if r < 0.8 else 9)))
    n = NUMBER_WORDS[count] if rng.random() < 0.7 else str(count)
    text = always(rng, split, LIST, LIST_TEST, n=n, k=many)
    text = text[0].upper() + text[1:] if text[:1] == n[:1] else text
    if r > 0.85:
        text = text.rstrip(" :)") + ("" if text[-1] in ".?!" else ".") + pick(rng, COMMA)
        answer = ", ".join(items[:count])
    else:
        answer = "\n".join(f"{i + 1}. {w[0].upper()}{w[1:]}" for i, w in enumerate(items[:count]))
    return finish(rng, "words_list", text, answer, {"kind": "all", "of": items[:count]},
                  f"The user wants {NUMBER_WORDS[count]} {many}.", any_case=True)


# ---- upper and lower case -------------------------------------------------------------------------------------------

QUOTES = ['"{}"', '"{}"', "'{}'", "{}", "the word {}", 'the word "{}"']
QUOTES_MANY = ['"{}"', '"{}"', "'{}'", 'the words "{}"', 'the text "{}"']


def quoted(rng, text):
    return pick(rng, QUOTES_MANY if " " in text else QUOTES).format(text)


def phrase(rng, split):
    """One to four words, or a sentence with a name."""
    r = rng.random()
    if r < 0.4:
        return word(rng, split)
    if r < 0.7:
        return " ".join(some_words(rng, split, 2, 4))
    if r < 0.8:
        return person(rng, split)
    return sentence(rng, split)[0].rstrip(".")


def known_phrase(rng, split):
    """As `phrase`, of trained words; only combinations of words are held out."""
    r = rng.random()
    if r < 0.45:
        return known(rng)
    if r < 0.75:
        return " ".join(known_words(rng, split, 2, 4))
    if r < 0.83:
        return pick(rng, NAMES)
    text = sentence(rng, "train", True)[0].rstrip(".")
    while kept(text) != (split == "test"):
        text = sentence(rng, "train", True)[0].rstrip(".")
    return text


def case(rng, split):
    text = known_phrase(rng, split)
    worded = fill if " " in text else always
    if rng.random() < 0.6:
        thought = "Every letter must be a capital."
        asked, answer = worded(rng, split, UPPER, UPPER_TEST, q=quoted(rng, text), w=text), text.upper()
    else:
        thought = "Every letter must be small."
        text = text.upper() if rng.random() < 0.6 else text.title()
        asked, answer = worded(rng, split, LOWER, LOWER_TEST, q=quoted(rng, text), w=text), text.lower()
    return finish(rng, "words_case", asked, answer, equal(answer), thought)


# ---- grammar ----------------------------------------------------------------------------------------------------------

NOUNS, NOUNS_TEST = split_pool(rows("skills_nouns.tsv"), 8)
VERBS = [(b, t, p, o.split(", ")) for b, t, p, o in rows("skills_verbs.tsv")]
BEINGS = [n for n in ("dog cat horse cow teacher farmer doctor driver baker girl boy king queen child man woman "
                      "nurse painter friend lady robot bear "
                      "monkey fox wolf rabbit").split()]
BEINGS, BEINGS_TEST = split_pool(BEINGS, 6)
ADJECTIVES = ("big small old new red blue green cold warm happy sad quiet loud clean dirty heavy light long short dark bright soft hard "
              "wet dry empty full "
              "strong slow fast cheap strange pretty kind tired hungry").split()
# Every real word of the pools, in a fixed order; what is made of several words is left out.
KNOWN = list(dict.fromkeys(
    w for w in WORDS + WORDS_TEST + BEINGS + BEINGS_TEST + ADJECTIVES + [w for n in NOUNS + NOUNS_TEST for w in n] +
    [w for v in VERBS for w in (*v[:3], *" ".join(v[3]).split())] if w.isalpha() and len(w) > 1))


SPELLED = list(dict.fromkeys([w for w in KNOWN if len(w) <= 5] + [w for w in COMMON if len(w) <= 4]))[:400]


def sentence(rng, split, plain=False):
    """(present, past, question, negation) of a simple sentence; a plain one has trained words only."""
    test = split == "test"
    r = rng.random()
    if r < 0.3:
        noun, other = (pick(rng, NOUNS_TEST if test else NOUNS)[0], pick(rng, ADJECTIVES))
        if not plain and rng.random() < 0.35:
            noun = word(rng, split)
        s, start = "the " + noun, "The " + noun
        if rng.random() < 0.3:
            s = start = pick(rng, NAMES) if plain else person(rng, split)
        return f"{start} is {other}.", f"{start} was {other}.", f"Is {s} {other}?", f"{start} is not {other}."
    base, third, past, objects = pick(rng, VERBS)
    thing = pick(rng, objects)
    if not plain and rng.random() < 0.4:
        thing = pick(rng, ("the {}", "a new {}", "the old {}", "some {}s", "the {} again")).format(
            word(rng, split) if rng.random() < 0.6 else pick(rng, NOUNS_TEST if test else NOUNS)[0])
    if r < 0.65:
        s = start = pick(rng, NAMES) if plain else person(rng, split)
    else:
        noun = pick(rng, BEINGS_TEST if test else BEINGS)
        s, start = "the " + noun, "The " + noun
    return f"{start} {third} {thing}.", f"{start} {past} {thing}.", f"Does {s} {base} {thing}?", f"{start} does not {base} {thing}."


KEPT = ("question", "past", "negat", "tense", "plural", "yesterday")


def grammar(rng, split):
    r = rng.random()
    if r < 0.2:
        one, many = pick(rng, NOUNS + NOUNS_TEST)
        text = always(rng, split, PLURAL, PLURAL_TEST, KEPT, w=one)
        return finish(rng, "words_grammar", text, f"The plural of {one} is {many}.", within(many), f"One {one}, two {many}.")
    if r < 0.27:
        base, _, past, _ = pick(rng, VERBS)
        text = always(rng, split, PASTS, PASTS_TEST, KEPT, w=base)
        return finish(rng, "words_grammar", text, f"The past tense of {base} is {past}.", within(past),
                      f"Today I {base}, yesterday I {past}.")
    now, past, asked, negated = sentence(rng, split)
    train, test, answer, thought = (
        (PAST, PAST_TEST, past, "The verb goes into the past.") if r < 0.55 else
        (ASK, ASK_TEST, asked, "The verb goes to the front.") if r < 0.8 else (NEGATE, NEGATE_TEST, negated, "A not goes to the verb."))
    if rng.random() < 0.1:
        now = now[:-1]
    return finish(rng, "words_grammar", fill(rng, split, train, test, keep=KEPT, s=now), answer, equal(answer), thought)


# ---- order ---------------------------------------------------------------------------------------------------------


def order(rng, split):
    r = rng.random()
    if r < 0.28:
        words = some_words(rng, split, 2, 5)
        listed = pick(rng, (", ", ", ", " ")).join(words)
        answer = ", ".join(words[::-1])
        return finish(rng, "words_order", fill(rng, split, REVERSE, REVERSE_TEST, l=listed), answer, equal(answer),
                      f"The last word, {words[-1]}, comes first.")
    if r < 0.5:
        words = known_words(rng, split, 3, 4)
        while len({w[0] for w in words}) < len(words):
            words = known_words(rng, split, 3, 4)
        listed = pick(rng, (", ", ", ", " ")).join(words)
        answer = ", ".join(sorted(words))
        thought = f"The first letters are {', '.join(w[0] for w in words)}."
        return finish(rng, "words_order", fill(rng, split, ALPHABET, ALPHABET_TEST, l=listed), answer, equal(answer), thought)
    if r < 0.85:
        text = " ".join(some_words(rng, split, 3, 6)) if rng.random() < 0.5 else sentence(rng, split)[0]
        first = rng.random() < 0.5
        found = text.rstrip(".").split(" ")[0 if first else -1]
        asked = fill(rng, split, *((FIRST, FIRST_TEST) if first else (LAST, LAST_TEST)), q=pick(rng, ('"{}"', '"{}"', "'{}'")).format(text))
        place = "first" if first else "last"
        return finish(rng, "words_order", asked, f"The {place} word is {found}.", equal(f"The {place} word is {found}."),
                      f"The user wants the {place} word.")
    words = some_words(rng, split, 3, 5)
    answer = ", ".join(words)
    return finish(rng, "words_order", fill(rng, split, JOIN, JOIN_TEST, l=" ".join(words)), answer, equal(answer),
                  "A comma goes after each word but the last.")


def count(rng, split):
    if rng.random() < 0.55:
        text = " ".join(some_words(rng, split, 2, 8)) if rng.random() < 0.6 else sentence(rng, split)[0]
        total = text.count(" ") + 1
        thought = ", ".join(f"{w.rstrip('.')} {i + 1}" for i, w in enumerate(text.split(" "))) + "."
        asked = fill(rng, split, COUNTING, COUNTING_TEST, q=pick(rng, ('"{}"', '"{}"', "'{}'")).format(text), w=text)
        return finish(rng, "words_count", asked, f"There are {total} words.", {"kind": "number", "value": total}, thought)
    w = pick(rng, SPELLED)
    asked = always(rng, split, LETTERS, LETTERS_TEST, q=quoted(rng, w), w=w)
    thought = ", ".join(f"{c} {i + 1}" for i, c in enumerate(w)) + "."
    return finish(rng, "words_count", asked, f"{w[0].upper()}{w[1:]} has {len(w)} letters.", {"kind": "number", "value": len(w)}, thought)


# ---- spelling, replacing, repeating ----------------------------------------------------------------------------------


def spell(rng, split):
    w = pick(rng, SPELLED)
    answer = "-".join(w)
    return finish(rng, "words_spell", always(rng, split, SPELL, SPELL_TEST, q=quoted(rng, w), w=w), answer, equal(answer),
                  f"The word is {w}, letter by letter.")


REPEATED, REPEATED_TEST = ([t.replace("{n} times", "{n}") for t in table] for table in (REPEAT, REPEAT_TEST))


def edit(rng, split):
    r = rng.random()
    if r < 0.45:
        words = some_words(rng, split, 3, 5) if rng.random() < 0.5 else sentence(rng, split)[0].rstrip(".").split(" ")
        new, old = word(rng, split), pick(rng, words)
        if old in ("The", "the", "a", "an", "is") or words.count(old) > 1:
            old = words[-1]
        text = " ".join(words)
        answer = " ".join(new if w == old else w for w in words)
        return finish(rng, "words_edit", fill(rng, split, REPLACE, REPLACE_TEST, a=old, b=new, t=text), answer, equal(answer),
                      f"{old} becomes {new}.")
    w = phrase(rng, split)
    if r < 0.7:
        n = 2 + int(rng.random() * 4)
        said = ("twice", "three times", "four times", "five times")[n - 2] if rng.random() < 0.7 else f"{n} times"
        q = pick(rng, ('"{}"', '"{}"', "'{}'", "{}")).format(w)
        text = ask(rng, split, REPEATED, REPEATED_TEST).format(q=q, n=said)
        return finish(rng, "words_edit", text, " ".join([w] * n), equal(" ".join([w] * n)), f"I say it {n} times.")
    return finish(rng, "words_edit", fill(rng, split, ECHO, ECHO_TEST, w=w, q=quoted(rng, w).replace("the text ", "")), w,
                  equal(w, w + "."),
                  "I copy the text as it is.")


# ---- rhymes, sayings, translations ------------------------------------------------------------------------------------

# Words that rhyme; the answer is always the first of its line, for that one itself the second.
RHYMES = [line.split() for line in lines("skills_rhymes.txt")]


def rhyme(rng, split):
    group = pick(rng, RHYMES)
    w = pick(rng, group)
    other = group[1] if w == group[0] else group[0]
    text = always(rng, split, RHYME, RHYME_TEST, w=w)
    return finish(rng, "words_rhyme", text, f"{other[0].upper()}{other[1:]} rhymes with {w}.", within(*[x for x in group if x != w]),
                  f"{w} and {other} sound alike at the end.",
                  any_case=True)


SAYINGS = rows("skills_sayings.tsv")


def saying(rng, split):
    start, missing = pick(rng, SAYINGS)
    return finish(rng, "words_saying", always(rng, split, SAYING, SAYING_TEST, s=start), f"{start} {missing}.",
                  within(f"{start} {missing}"),
                  f"The missing word is {missing}.", any_case=True)


TRANSLATIONS = rows("skills_translations.tsv")


FROM_NAMED = [t for t in FROM if "{l}" in t]
# Words that are English too, or the same in two of the languages.
AMBIGUOUS = ("pan pez table train chat main pain café sol no rot Kind lit rue gut Hand sal sel alt mar rue mer "
             "grand petit six dos tag Tag thé "
             "once pomme Bett vent dix vino Ei time").split()


def translate(rng, split):
    row = pick(rng, TRANSLATIONS)
    i = 1 + int(rng.random() * 3)
    language, foreign = ("French", "German", "Spanish")[i - 1], row[i]
    if rng.random() < 0.72:
        text = always(rng, split, TO, TO_TEST, w=row[0], l=language)
        return finish(rng, "words_translate", text, f"The {language} word for {row[0]} is {foreign}.", within(foreign),
                      f"{row[0]} in {language} is {foreign}.", any_case=True)
    template = FROM_NAMED if foreign in AMBIGUOUS or foreign.lower() == row[0] else FROM
    text = always(rng, split, template, FROM_TEST, w=foreign, l=language)
    return finish(rng, "words_translate", text, f"The {language} word {foreign} means {row[0]}.", within(f"means {row[0]}"),
                  f"{foreign} is {language}.", any_case=True)


TASKS = {"words_list": (4, make_list), "words_case": (3, case), "words_grammar": (4, grammar), "words_order": (6, order),
         "words_count": (2, count),
         "words_spell": (3, spell), "words_edit": (4, edit), "words_rhyme": (2, rhyme), "words_saying": (2, saying),
         "words_translate": (4, translate)}
