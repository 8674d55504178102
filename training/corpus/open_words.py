"""Words from open generators, so that copying what stands there is the only rule that works; and common English words.

A word belongs to the tests if a checksum of its letters says so (`held_word`), so that words of the training and of the tests never meet.
"""
import re
import zlib
from pathlib import Path

RUDE = ("cock", "dick", "fuck", "fuk", "shit", "tit", "cum", "nig", "pis", "fag", "cunt", "slut", "ass", "sex", "kik", "nazi", "poo",
        "wank", "twat", "gas", "porn", "rape")
HEADS = ("b br bl c ch cl cr d dr f fl fr g gl gr h j k kl kr l m n p pl pr qu r s sh sk sl sn sp st str sw t th tr v w y z "
         "zw ph wh").split() + ["", ""]
MIDDLES = "a a a e e e i i o o u u ai au ea ee ia oa oo ou y".split()
TAILS = ["", "", "", "", "n", "r", "l", "m", "s", "x", "ck", "sh", "nd", "t", "sk", "p", "d", "g", "rn", "lt", "st", "th", "ng", "b"]
FOREIGN = ("ović", "sson", "ová", "inen", "ez", "ski", "ańska", "oğlu", "escu", "idis", "adze", "ström", "eira", "etti", "ault", "wala",
           "aki", "ito", "ung", "ane", "ina", "ette", "ías", "ão", "øy", "ír", "ück", "elle", "onga", "isha", "uru", "eki")
FORBIDDEN = re.compile("|".join(RUDE)).search
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def held_word(word):
    """Whether the word is reserved for tests."""
    return zlib.crc32(word.lower().encode()) % 7 == 3


def _common():
    path = Path(__file__).parent / "data" / "common_words.txt"
    if not path.exists():
        path = path.with_name("skills_words.txt")
    words = [w.lower() for w in path.read_text("utf-8").split()]
    return [w for w in dict.fromkeys(words) if w.isalpha() and len(w) > 2 and w not in ("rape", "shit")]


COMMON = _common()
BY_SPLIT = {"train": [w for w in COMMON if not held_word(w)], "test": [w for w in COMMON if held_word(w)]}


def pick(rng, items):
    return items[int(rng.random() * len(items))]


def syllables(rng, count):
    return "".join([pick(rng, HEADS) + pick(rng, MIDDLES) + (pick(rng, TAILS) if i == count - 1 or rng.random() < 0.25 else "")
                    for i in range(count)])


def _letters(rng, low, high):
    return "".join([pick(rng, LETTERS) for _ in range(low + int(rng.random() * (high - low + 1)))])


def _plain(rng, pool):
    """A word of small letters."""
    r = rng.random()
    if r < 0.5:
        return syllables(rng, 1 + int(rng.random() * 2.6))
    if r < 0.62:
        return pick(rng, pool)[::-1]
    if r < 0.78:
        return pick(rng, pool) + pick(rng, pool)
    if r < 0.9:
        return pick(rng, pool)[:4] + syllables(rng, 1)
    return _letters(rng, 3, 7)


def _technical(rng, pool):
    """CamelCase, snake_case, digits, hyphens."""
    r = rng.random()
    if r < 0.2:
        return pick(rng, pool).capitalize() + pick(rng, pool).capitalize()
    if r < 0.4:
        return pick(rng, pool) + "_" + pick(rng, pool)
    if r < 0.55:
        return pick(rng, pool) + "-" + syllables(rng, 1)
    if r < 0.75:
        return syllables(rng, 1) + str(int(rng.random() * 1000))
    if r < 0.9:
        return _letters(rng, 1, 3).upper() + str(int(rng.random() * 100)) + _letters(rng, 0, 2)
    return pick(rng, pool).upper()


def _kept(rng, split, make):
    pool, test = BY_SPLIT[split], split == "test"
    while True:
        word = make(rng, pool)
        low = word.lower()
        if 3 <= len(word) <= 16 and held_word(word) == test and not FORBIDDEN(low):
            return word


def common(rng, split):
    """A common English word."""
    return pick(rng, BY_SPLIT[split])


def invented(rng, split):
    """A word of small letters that is none."""
    return _kept(rng, split, _plain)


def any_word(rng, split):
    """A common word, an invented one, or a technical one."""
    r = rng.random()
    return common(rng, split) if r < 0.4 else _kept(rng, split, _plain if r < 0.8 else _technical)


def _name(rng, pool):
    r = rng.random()
    if r < 0.3:
        return (syllables(rng, 1) + pick(rng, FOREIGN)).capitalize()
    if r < 0.55:
        return pick(rng, pool).capitalize()
    return _plain(rng, pool).capitalize()


def any_name(rng, split):
    """A name: invented, foreign-looking, or a common word with a capital."""
    return _kept(rng, split, _name)
