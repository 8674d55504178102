"""Invented names for things that nobody can know: countries, animals, people, titles, nonsense.

Names for the test and for training never meet: a made-up word belongs to the test if the sum of its character codes ends in 3 or 7;
people and titles have reserved words.
"""
from .fact_table import RELATIONS, SINGLES, plain

ONSETS = "b c d f g h j k l m n p r s t v w z br bl cr dr fl gr gl kr kl pr pl qu st str th tr sh ch sk sn sp sw vr zw".split()
VOWELS = "a a a e e e i i o o u u ai au ea ee ie oa oo ou y".split()
CODAS = ["", "", "", "", "n", "r", "l", "s", "m", "t", "d", "k", "x", "nd", "rn", "lt", "st", "rk", "ng", "th", "v", "b", "p", "g"]
COUNTRY_ENDS = ["ia", "ia", "ia", "land", "land", "stan", "mark", "ania", "or", "a", "onia", "burg", "ville", "aria", "esia", "ova",
                "istan", "",
                "o", "ea", "ar", "ador", "inia", "holm", "wana", "ique", "guay", "os"]
STATES = ["the Republic of {}", "the Kingdom of {}", "the Empire of {}", "New {}", "North {}", "South {}", "Upper {}", "the {} Islands",
          "the United {} States", "East {}", "Old {}", "Greater {}", "the island of {}", "the land of {}"]
STEMS = sorted({plain(f.key).removeprefix("the ")[: n] for f in RELATIONS["capital"].facts for n in (3, 4)})
FIRST = {"train": "Anna Tom Maria John Peter Laura David Sofia Ahmed Fatima Carlos Elena Ivan Olga Kenji Yuki Wei Mei Raj Priya Kwame "
                  "Amina Lars "
                  "Ingrid Pierre Claire Hans Greta Marco Giulia Pablo Lucía José Zoë André Mary James Robert Linda Susan Karen Emma "
                  "Oliver".split(),
         "test": "Bjørn Chloé Dmitri Esther Farid Gwen Hugo Ines Jamal Katarzyna Leon Nadia".split()}
LAST = {"train": "Smith Miller Brown Baker Taylor Wilson Green Turner Hill Cooper Novak Kowalski Schmidt Weber Fischer Rossi Bianchi "
                 "Dupont Martin "
                 "Garcia Lopez Silva Santos Ivanov Petrov Tanaka Sato Chen Wang Kim Park Singh Patel Khan Ali Hassan Okafor Mensah Larsen "
                 "Nilsson Virtanen O'Brien Murphy Müller".split(),
        "test": "Ashworth Bergström Calloway Delacroix Eriksen Fairbanks Gallagher Horváth Ibrahim Jankowski Keller Lindqvist".split()}
KNOWN_PEOPLE = {"train": "Elvis Presley|Albert Schweitzer|Marie Curie|Isaac Newton|Winston Churchill|Nelson Mandela|Taylor Swift|"
                         "Elon Musk|Bill Gates|"
                         "Angela Merkel|Barack Obama|Pelé|Diego Maradona|Lionel Messi|Mahatma Gandhi|Martin Luther King|Charlie Chaplin|"
                         "Marilyn Monroe|Muhammad Ali|Galileo|Socrates|Michelangelo|Madonna|Frida Kahlo|Steve Jobs|Usain Bolt|"
                         "Confucius".split("|"),
                "test": "Nikola Tesla|Abraham Lincoln|Serena Williams|Johann Sebastian Bach|Joan of Arc|Louis Armstrong|"
                        "Stephen Hawking".split("|")}
ADJECTIVES = {"train": "Silent Golden Broken Hidden Last First Lost Burning Frozen Secret Blue Crimson Distant Empty Endless "
                       "Forgotten Glass Grey "
                       "Hollow Iron Lonely Midnight Northern Paper Quiet Red Restless Silver Sleeping Stone Velvet Wandering "
                       "Winter".split(),
              "test": "Amber Bitter Copper Drifting Emerald Fading Gentle Hungry Ivory".split()}
NOUNS = {"train": "Lantern River Garden Clock Tower Letter Harbour Mirror Orchard Bridge Crown Door Feather Forest Island Journey Key "
                  "Kingdom Lake "
                  "Map Moon Ocean Promise Road Sailor Shadow Ship Song Star Storm Summer Teacher Train Valley Voice Window Wolf".split(),
         "test": "Acrobat Beacon Carousel Dune Ferry Glacier Hammock Inkwell Jetty".split()}
BOOKS = {"train": "The Catcher in the Rye|The Great Gatsby|To Kill a Mockingbird|Brave New World|The Alchemist|The Da Vinci Code|Dune|"
                  "Ulysses|"
                  "The Name of the Rose|The Stranger|Lolita|The Tin Drum|The Little Prince|On the Road|Catch-22|Middlemarch|Ivanhoe|"
                  "Siddhartha".split("|"),
         "test": "The Bell Jar|Lord of the Flies|The Old Man and the Sea|The Magic Mountain|Doctor Zhivago|Beloved".split("|")}
SALAD = {"train": "table blue seven run green of under spoon if cloud very nine jump because left soup the fast window and three "
                  "yellow paper "
                  "it sleep moon not car again cheese up who tree when slow nose with".split(),
         "test": "button orange fly above kettle although twelve swim purple than ladder on wet elbow two".split()}
KEYS = ["qwertyuiop", "asdfghjkl", "zxcvbnm", "1234567890", "asdf", "jkl", "qwe", "poiu", "fghj", "abcdefghijklmnopqrstuvwxyz"]


def _known():
    words = set()
    for relation in RELATIONS.values():
        for fact in relation.facts:
            for text in [fact.key, *fact.answers, *(f["k"] for f in fact.asked)]:
                words.update(plain(text).lower().replace("-", " ").split())
                words.add(plain(text).lower().replace(" ", ""))
    for fact in SINGLES:
        words.update(plain(fact.answer).lower().strip(".").split())
    return words


KNOWN = _known()


def reserved(word):
    return sum(map(ord, word.lower())) % 10 in (3, 7)


def near_known(word):
    """Whether the word is a known one, or one letter longer or shorter than a known one."""
    low = word.lower()
    return low in KNOWN or low[:-1] in KNOWN or low + "s" in KNOWN or low + "a" in KNOWN


RUDE = ("fuc", "fuk", "shit", "cunt", "nig", "fag", "slut", "dick", "cock", "tit", "cum", "rape", "nazi", "wank", "twat", "piss", "porn",
    "sex", "ass")


def keep(rng, split, make):
    while True:
        word = make(rng)
        if any(r in word.lower() for r in RUDE):
            continue
        if 4 <= len(word) <= 14 and reserved(word) == (split == "test") and not near_known(word):
            return word


def syllables(rng, count):
    parts = []
    for i in range(count):
        closed = i == count - 1 or rng.random() < 0.3
        parts.append(rng.choice(ONSETS) + rng.choice(VOWELS) + (rng.choice(CODAS) if closed else ""))
    return "".join(parts)


def _country(rng):
    if rng.random() < 0.3:
        stem = rng.choice(STEMS)
        return (stem + syllables(rng, rng.choice((1, 1, 2))) + rng.choice(COUNTRY_ENDS)).replace(" ", "").capitalize()
    stem = syllables(rng, rng.choice((1, 2, 2, 3)))
    if rng.random() < 0.25:
        stem = rng.choice("aeiou") + stem
    return (stem + rng.choice(COUNTRY_ENDS)).capitalize()


def country(rng, split):
    name = keep(rng, split, _country)
    return rng.choice(STATES).format(name) if rng.random() < 0.12 else name


def place(rng, split):
    return keep(rng, split, _country)


def word(rng, split):
    return keep(rng, split, lambda g: syllables(g, g.choice((1, 2, 2, 2, 3))))


def name_of(rng, split):
    return word(rng, split).capitalize()


def person(rng, split):
    r = rng.random()
    if r < 0.25:
        return rng.choice(KNOWN_PEOPLE[split])
    first = rng.choice(FIRST[split])
    if r < 0.45:
        return f"{first} {name_of(rng, split)}"
    return f"{first} {rng.choice(LAST[split])}"


def title(rng, split):
    r = rng.random()
    if r < 0.12:
        return rng.choice(BOOKS[split])
    noun = rng.choice(NOUNS[split])
    if r < 0.6:
        return f"The {rng.choice(ADJECTIVES[split])} {noun}"
    if r < 0.8:
        return f"The {noun} of {place(rng, split)}"
    return f"{rng.choice(ADJECTIVES[split])} {noun}"


def _mash(rng):
    r = rng.random()
    if r < 0.4:
        row = rng.choice(KEYS)
        return "".join(rng.choice(row) for _ in range(rng.randint(4, 12)))
    if r < 0.6:
        return "".join(rng.choice("bcdfghjklmnpqrstvwxz") for _ in range(rng.randint(4, 10)))
    if r < 0.75:
        return "".join(rng.choice("?!.,;:#*+-/&%$") for _ in range(rng.randint(4, 8)))
    return "".join(rng.choice("abcdefghijklmnopqrstuvwxyz0123456789") for _ in range(rng.randint(5, 14)))


def nonsense(rng, split):
    r = rng.random()
    if r < 0.45:
        return " ".join(keep(rng, split, _mash) for _ in range(rng.choice((1, 1, 1, 2, 3))))
    if r < 0.7:
        return " ".join(word(rng, split) for _ in range(rng.randint(2, 5)))
    return " ".join(rng.choice(SALAD[split]) for _ in range(rng.randint(3, 8)))
