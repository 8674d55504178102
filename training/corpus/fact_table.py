"""The facts that the demonstration model learns, read from the tables in `data/`.

`RELATIONS` maps a name to a Relation: its facts and its wordings (see `data/fact_wordings.tsv`; "test" wordings are held out).
`SINGLES` are facts that stand alone, each with wordings of its own.
"""
import unicodedata
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

DATA = Path(__file__).parent / "data"
IRREGULAR = {"sheep": "sheep", "mouse": "mice", "goose": "geese", "fish": "fish", "wolf": "wolves", "deer": "deer", "moose": "moose",
             "swine": "swine", "child": "children", "ox": "oxen", "calf": "calves", "thief": "thieves", "giant panda": "giant pandas"}
LOCKED = {"element", "letter_after", "letter_before"}  # here upper and lower case matter
FREE_OF_CHECKS = {"season_after", "season_before"}


def rows(name):
    with open(DATA / name, encoding="utf-8") as file:
        next(file)
        return [line.rstrip("\n").split("\t") for line in file if line.strip()]


def expand(text):
    """All texts behind one with alternatives: "(a/b/) c" is "a c", "b c" and "c"."""
    return list(dict.fromkeys(" ".join(t.split()) for t in _alternatives(text)))


def _alternatives(text):
    head, found, rest = text.partition("(")
    if not found:
        return [text]
    inside, _, rest = rest.partition(")")
    rest = _alternatives(rest)
    return [f"{head}{one}{tail}" for one in inside.split("/") for tail in rest]


def grammar(texts, each=8):
    """Lists of variants, one for every text; a text with many variants stands in it up to `each` times. See `draw`."""
    return [variants for variants in map(expand, texts) for _ in range(min(each, len(variants)))]


def draw(rng, lists):
    return rng.choice(rng.choice(lists))


def with_article(word):
    if word[:1].lower() in "aeiou" and not word.lower().startswith(("uni", "eu", "one", "ewe", "use")):
        return "an " + word
    return "a " + word


def plural(word):
    if word in IRREGULAR:
        return IRREGULAR[word]
    if word.endswith("man") and word != "human":
        return word[:-3] + "men"
    if word.endswith(("s", "x", "ch", "sh")):
        return word + "es"
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + "s"


def capital(text):
    return text[:1].upper() + text[1:]


def plain(text):
    """Without accents, as people type names."""
    return "".join(c for c in unicodedata.normalize("NFD", text) if not unicodedata.combining(c)).replace("ł", "l")


def forms(key, value="", unit=""):
    """What the placeholders of a wording stand for."""
    a = with_article(key)
    return {"k": key, "ak": a, "AK": capital(a), "ks": plural(key), "v": value, "av": with_article(value) if value else "", "u": unit}


@dataclass
class Fact:
    key: str
    answers: list
    forms: dict
    asked: list  # the forms under which a question may name it


@dataclass
class Relation:
    name: str
    weight: float = 1.0
    facts: list = field(default_factory=list)
    wordings: dict = field(default_factory=dict)  # (kind, split) -> texts
    locked: bool = False

    def texts(self, kind, split="train"):
        return self.wordings.get((kind, split), [])

    def answer(self, fact):
        return sentence(self.texts("answer")[0].format_map(fact.forms))


def sentence(text):
    return capital(text).replace("..", ".")


def make_fact(key, answers, aliases=()):
    unit = ""
    if "|" in key:
        unit, key = key.split("|")
    names = [key, *aliases]
    if plain(key) != key:
        names.append(plain(key))
    return Fact(key, answers, forms(key, answers[0], unit), [forms(n, answers[0], unit) for n in names])


def countries(relations):
    for name, article, city, also, continent, language, currency, aliases in rows("countries.tsv"):
        name = f"{article} {name}" if article else name
        aliases = [a for a in aliases.split(";") if a]
        accepted = [city] + [a for a in also.split(";") if a]
        if plain(city) not in accepted:
            accepted.append(plain(city))
        relations["capital"].facts.append(make_fact(name, accepted, aliases))
        if city != name and name != "England":
            country = [name, *aliases] + [a.removeprefix("the ") for a in [name, *aliases] if a.startswith("the ")]
            if city == "London":
                country += ["England"]
            if name in ("Scotland", "Wales", "Northern Ireland"):
                country += ["the United Kingdom", "the UK"]
            for relation in ("capital_of", "city_country"):
                relations[relation].facts.append(make_fact(city, country, accepted[1:] if city.startswith("Washington") else ()))
        for relation, text in (("continent", continent), ("language", language), ("currency", currency)):
            if text != "-":
                answers = text.split(";")
                answers += [plain(a) for a in answers if plain(a) not in answers]
                relations[relation].facts.append(make_fact(name, answers, aliases))


def load():
    relations = {}
    for name, kind, split, text in rows("fact_wordings.tsv"):
        relation = relations.setdefault(name, Relation(name, locked=name in LOCKED))
        if kind == "weight":
            relation.weight = float(text)
        else:
            relation.wordings.setdefault((kind, split), []).append(text)
    countries(relations)
    for name, key, answers in rows("facts.tsv"):
        relations[name].facts.append(make_fact(key, answers.split(";")))
    relations["element"].facts = [make_fact(f.answers[0], [f.key]) for f in relations["symbol"].facts]
    return relations


@dataclass
class Single:
    answer: str
    accepted: list
    nouns: list
    questions: list
    held_out: list


def load_singles():
    singles = []
    for answer, accepted, texts in rows("fact_singles.tsv"):
        texts = texts.split(" | ")
        singles.append(Single(answer, accepted.split(";"), [t[2:] for t in texts if t.startswith("N:")],
                              [t[2:] for t in texts if t.startswith("Q:")], [t[3:] for t in texts if t.startswith("*Q:")]))
    return singles


RELATIONS = load()
SINGLES = load_singles()
NAMES = list(RELATIONS)
CUMULATIVE = list(accumulate(r.weight for r in RELATIONS.values()))


def any_relation(rng):
    return RELATIONS[rng.choices(NAMES, cum_weights=CUMULATIVE)[0]]
