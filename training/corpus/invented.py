"""Invented names for things that nobody can know: countries, animals, people, titles, nonsense.

Names for the test and for training never meet: a made-up word belongs to the test if the sum of its character codes ends in 3 or 7;
people and titles have reserved words. Half of the made-up words are open: random letters, reversed or joined common words, common words
in a place where they make no sense, digits, CamelCase, snake_case and foreign-looking names, so that no list of them can be learned.
"""
from .fact_table import RELATIONS, SINGLES, plain
from .noise import COMMON, LETTERS

ONSETS = "b c d f g h j k l m n p r s t v w z br bl cr dr fl gr gl kr kl pr pl qu st str th tr sh ch sk sn sp sw vr zw".split()
VOWELS = "a a a e e e i i o o u u ai au ea ee ie oa oo ou y".split()
CODAS = ["", "", "", "", "n", "r", "l", "s", "m", "t", "d", "k", "x", "nd", "rn", "lt", "st", "rk", "ng", "th", "v", "b", "p", "g"]
COUNTRY_ENDS = ["ia", "ia", "ia", "land", "land", "stan", "mark", "ania", "or", "a", "onia", "burg", "ville", "aria", "esia", "ova",
                "istan", "",
                "o", "ea", "ar", "ador", "inia", "holm", "wana", "ique", "guay", "os"]
FOREIGN = [
    (("ken", "yo", "haru", "saka", "miya", "naga", "tomo"), ("shi", "ka", "ru", "to"), ("moto", "ko", "mura", "zawa", "ta", "no")),
    (("vlad", "mir", "bor", "kras", "nov", "zla", "sto"), ("o", "a", "islav", "en"), ("ovsk", "grad", "ovich", "ina", "sky", "ev")),
    (("bjor", "sven", "gud", "thor", "stig", "hall"), ("ne", "u", "i", "a"), ("sson", "vik", "heim", "dottir", "berg", "fjord")),
    (("gio", "fran", "bel", "cas", "mon", "lor"), ("ce", "ta", "li", "ro"), ("etti", "ello", "ini", "ano", "acci", "ucci")),
    (("abd", "kha", "raz", "zay", "nur", "sal"), ("a", "i", "al", "ou"), ("din", "mani", "rab", "far", "bad", "shah")),
    (("chu", "kwa", "oba", "aze", "ndi", "sefu", "tem"), ("ka", "zu", "mba", "ki"), ("nde", "olu", "wele", "mbo", "eke", "bari")),
    (("xo", "quet", "tla", "ix", "hua", "coa"), ("chi", "za", "te", "lo"), ("pan", "huac", "tl", "capa", "coatl", "lco")),
    (("saint-", "beau", "mont", "cha", "ville", "roc"), ("e", "re", "li", "che"), ("ville", "eau", "ois", "ault", "ette", "champ")),
    (("mc", "o'", "fitz", "glen", "bal", "kil"), ("a", "do", "la", "ro"), ("nnan", "gall", "more", "kenny", "brae", "narney")),
    (("wei", "zhao", "xin", "qing", "lian", "shu"), ("a", "e", "yu", "min"), ("ng", "zhou", "shan", "jin", "hai", "guo"))]
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


def keep(rng, split, make, longest=14):
    while True:
        word = make(rng)
        if any(r in word.lower() for r in RUDE):
            continue
        if 4 <= len(word) <= longest and reserved(word) == (split == "test") and not near_known(word):
            return word


def syllables(rng, count):
    parts = []
    for i in range(count):
        closed = i == count - 1 or rng.random() < 0.3
        parts.append(rng.choice(ONSETS) + rng.choice(VOWELS) + (rng.choice(CODAS) if closed else ""))
    return "".join(parts)


def foreign(rng):
    """A name with the look of some other language."""
    heads, middles, tails = rng.choice(FOREIGN)
    middle = rng.choice(middles) if rng.random() < 0.7 else ""
    return (rng.choice(heads) + middle + rng.choice(tails)).capitalize()


def open_word(rng):
    """A word from anywhere; may have capitals, digits and underscores in it."""
    r = rng.random()
    if r < 0.2:
        return "".join(rng.choice(LETTERS) for _ in range(rng.randint(4, 10)))
    if r < 0.38:
        return rng.choice(COMMON)[::-1]
    if r < 0.56:
        one, two = rng.choice(COMMON), rng.choice(COMMON)
        return rng.choice((one + two, one + two, one.capitalize() + two.capitalize(), f"{one}_{two}", f"{one}-{two}"))
    if r < 0.68:
        return rng.choice(COMMON)
    if r < 0.78:
        return syllables(rng, rng.choice((1, 2, 2))) + rng.choice(("", "-")) + str(rng.randint(1, 999))
    if r < 0.9:
        return foreign(rng)
    word = rng.choice(COMMON)
    at = rng.randrange(len(word))
    return word[:at] + rng.choice(LETTERS) + word[at:] if rng.random() < 0.5 else word[:at] + rng.choice(LETTERS) + word[at + 1:]


def label(rng, split):
    """A name for a thing, from any generator."""
    r = rng.random()
    word = keep(rng, split, open_word, 18) if r < 0.6 else name_of(rng, split)
    return word[:1].upper() + word[1:] if r < 0.45 else word


def _country(rng):
    if rng.random() < 0.3:
        word = open_word(rng)
        return word[:1].upper() + word[1:]
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
    return keep(rng, split, _word)


def _word(rng):
    return open_word(rng) if rng.random() < 0.4 else syllables(rng, rng.choice((1, 2, 2, 2, 3)))


def name_of(rng, split):
    name = word(rng, split)
    return name[:1].upper() + name[1:]


def person(rng, split):
    r = rng.random()
    if r < 0.25:
        return rng.choice(KNOWN_PEOPLE[split])
    first = rng.choice(FIRST[split])
    if r < 0.45:
        return f"{first} {name_of(rng, split)}"
    if r < 0.7:
        return f"{keep(rng, split, foreign)} {keep(rng, split, foreign)}"
    return f"{first} {rng.choice(LAST[split])}"


def _common(rng):
    return rng.choice(COMMON)


def title(rng, split):
    r = rng.random()
    if r < 0.12:
        return rng.choice(BOOKS[split])
    noun = rng.choice(NOUNS[split])
    if r < 0.6:
        return f"The {rng.choice(ADJECTIVES[split])} {noun}"
    if r < 0.75:
        return f"The {noun} of {place(rng, split)}"
    if r < 0.93:
        one, two = (name_of(rng, split) if rng.random() < 0.3 else keep(rng, split, _common).capitalize() for _ in "12")
        return rng.choice(("{} {}", "The {} {}", "{} and {}", "A {} for {}", "The {} of the {}", "{} without {}")).format(one, two)
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
