"""Values that users state and tools return: cities, paths, dates, texts, numbers and so on.

`draw(rng, test, kind, options)` gives (text as shown, value as passed). Every pool of `data/tools_values.txt` and the common words
keep each seventh entry (3, 10, 17, ...) for the test split; test dialogues draw from those only. Half of all values and more come
from open generators (`made`): an invented word is for the test if the sum of its character codes leaves 3 when divided by 7.
"""
import json
import re
from pathlib import Path

COMPACT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
SPACED = json.JSONEncoder(ensure_ascii=False).encode
DATA = Path(__file__).parent / "data"


def pick(rng, seq):
    return seq[int(rng.random() * len(seq))]


def halves(values):
    """(train, test) parts of a list: every seventh entry is for test."""
    return [v for i, v in enumerate(values) if i % 7 != 3], [v for i, v in enumerate(values) if i % 7 == 3]


def _load():
    pools = {}
    for line in (DATA / "tools_values.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            kind, values = line.split(":", 1)
            pools[kind] = halves([v.strip() for v in values.split(" | ")])
    return pools


STOP = set("""
about above after again against also another around because been before behind being below between both but could does done down during
each either else every from have here into itself just like many more most much neither never next none nothing only other over please
quite same shall should since some such than that their them then there these they this those through till under unless until upon very
want wants well were what when where whether which while whom whose will with within without would your yours yourself and the for are was
not you all any can had her his how its let may new now off old one our out own per put say see she too two use who why yes yet equal call
today tomorrow yesterday tonight please thanks thank hello sorry right okay fine
good great morning evening
 afternoon night day task thing time boss job plan wish help take given request question quick assistant listen look
first second third last hurry possible urgent somebody parameters named called mean true false with without number error tool ask kind
actually really simply maybe perhaps basically honestly quickly briefly kindly here anyway finally literally exactly indeed surely somehow
rather frankly friend come came need want make made date year
""".split())


def _plain():
    """(train, test) plain words: data/common_words.txt, or the one-word entries of data/tools_words.txt as long as that is not there."""
    out = [], []
    if (DATA / "common_words.txt").exists():
        words = (DATA / "common_words.txt").read_text(encoding="utf-8").split()
        words = dict.fromkeys(w for w in words if w.isascii() and w.isalpha() and w.islower() and 3 <= len(w) <= 11 and w not in STOP)
        for mine, part in zip(out, halves(list(words))):
            mine += part
        return out
    for line in (DATA / "tools_words.txt").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            for mine, words in zip(out, halves(line.partition(": ")[2].split(" | "))):
                mine += [w for w in words if " " not in w]
    return out


ONSET = "b c d f g h j k l m n p r s t v w z br cl dr fl gr kr pl st tr sh th qu sk sp vl zw ch kh ts y".split()
VOWEL = "a e i o u a e i o u ai ea oo ou y ie au".split()
CODA = ["", "", "", "", "", "n", "l", "r", "s", "k", "m", "x", "rt", "nd", "t", "p", "g", "lk", "mp", "sh"]
CONSONANTS, VOWELS1 = "bcdfghjklmnprstvwz", "aeiou"
ACCENTS = str.maketrans("aeiouncsz", "áéíöüñčšž")
LOWERS = "abcdefghijklmnopqrstuvwxyz"
RUDE = re.compile("fuc|fuk|shit|cunt|nig|fag|slut|dick|cock|tit|cum|rape|nazi|wank|twat|piss|porn|sex|ass")


def syllables(rng):
    """An invented word such as 'zorvel' or 'takimo'."""
    r = rng.random()
    if r < 0.3:
        return "".join([pick(rng, CONSONANTS) + pick(rng, VOWELS1) for _ in range(2 + int(rng.random() * 2.6))])
    return "".join([pick(rng, ONSET) + pick(rng, VOWEL) + pick(rng, CODA) for _ in range(1 if r < 0.36 else 3 if r > 0.85 else 2)])


def _invented(rng):
    """A word that nobody knows, from one of several generators."""
    r = rng.random()
    if r < 0.62:
        word = syllables(rng)
        return word if len(word) > 2 else word + pick(rng, CODA[5:])
    if r < 0.74:
        return "".join([pick(rng, LOWERS) for _ in range(3 + int(rng.random() * 6))])
    if r < 0.84:
        return pick(rng, WORDS[0])[::-1]
    word = pick(rng, WORDS[0])
    k = int(rng.random() * len(word))
    return word[:k] + pick(rng, LOWERS) + word[k + (r < 0.92):]


def invented(rng, is_test):
    """An invented word of the split, in lower case."""
    while True:
        word = _invented(rng)
        if (sum(word.encode()) % 7 == 3) == bool(is_test) and not RUDE.search(word):
            return word


POOLS = _load()
WORDS = _plain()
LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"
MONTHS = "January February March April May June July August September October November December".split()
TASKS = ["call {person}", "buy {item}", "water the plants", "pay the {noun}", "finish the {noun}", "send the {noun} to {person}",
         "pick up the {thing}", "clean the {room}", "write to {person}", "order {item} and {item}", "take out the bins",
         "fix the {device}",
         "bring {item} to {person}", "book the {noun}", "check the {noun}", "read about {topic}", "return the {thing}", "feed the cat"]
TEXTS = ["{msgpart}", "{msgpart}", "{msgpart} and {msgpart}", "the {event} is at {clock}", "call {person} about the {noun}",
         "buy {item} and {item}", "hello {person}", "the {noun} is due on {date}", "{person} likes {food}", "{made} {made}",
         "fix the {noun}",
         "{person} moved to {city}", "the code is {number}", "{thing} and {thing}", "update the {noun}", "the {thing} is {colour}",
         "{made} is not {made}", "ask {person} for the {noun}", "{word} {word} {word}", "meet {person} in {city}",
         "add {made} to the {noun}"]
PICTURES = ["a {colour} {thing}", "a {thing} in the {room}", "a cat with a {thing}", "{city} at night", "a {colour} dog",
            "two birds on a {thing}",
            "a {colour} house", "a robot with a {colour} {thing}", "a lake near {city}", "a {made} with {colour} eyes"]
TITLES = ["The {Made} {Word}", "{Word} {Made}", "How to {Word}", "A {Word} Guide", "{Made} and {Made}", "The {Word} {Noun}",
          "New {Noun} in {city}"]
SQL = ["SELECT * FROM {table}", "SELECT {column} FROM {table}", "SELECT count(*) FROM {table}", "DELETE FROM {table} WHERE id = {number}",
       "SELECT {column} FROM {table} WHERE id = {number}", "SELECT {column}, {column} FROM {table} LIMIT {number}"]
IDENTS = ["{made}", "{word}_{made}", "{made}_id", "get_{made}", "{made}()", "{Made}", "TODO", "fn {made}", "def {made}", "import {made}",
          "{word}"]
TAGS = ["bug", "docs", "urgent", "ui", "backend", "test", "easy", "later", "security", "speed"]


def _pool(kind):
    train, test = POOLS[kind]

    def one(rng, is_test):
        return pick(rng, test if is_test else train)
    return one


def made(rng, is_test):
    """A name of any kind: mostly invented, else plain words, alone, joined, or with figures, as people name things."""
    r = rng.random()
    if r < 0.5:
        return invented(rng, is_test)
    if r < 0.72:
        return pick(rng, WORDS[is_test])
    if r < 0.8:
        return pick(rng, WORDS[is_test]) + pick(rng, ("", "_", "-")) + pick(rng, WORDS[is_test])
    if r < 0.84:
        return pick(rng, WORDS[is_test]) + pick(rng, WORDS[is_test]).capitalize()
    if r < 0.88:
        return invented(rng, is_test).capitalize()
    if r < 0.93:
        return (invented if r < 0.9 else word1)(rng, is_test) + pick(rng, ("", "", "_", "-")) + str(1 + int(rng.random() ** 2 * 400))
    if r < 0.96:
        return invented(rng, is_test) + pick(rng, "_-") + pick(rng, WORDS[is_test])
    if r < 0.98:
        return pick(rng, LOWERS) + str(int(rng.random() * 99)) + pick(rng, LOWERS) + str(int(rng.random() * 9)) + invented(rng, is_test)[:3]
    return invented(rng, is_test).upper()


def word1(rng, is_test):
    """A plain word."""
    return pick(rng, WORDS[is_test])


def name(rng, is_test):
    """An invented name with a capital, sometimes with accents or in two words."""
    r = rng.random()
    word = invented(rng, is_test) if r < 0.8 else pick(rng, WORDS[is_test])
    if r < 0.08:
        word = word.translate(ACCENTS)
    elif r < 0.14:
        return pick(rng, ("Mac", "De", "O'", "Van ", "San ", "El ", "St. ")) + word.capitalize()
    word = word.capitalize()
    return word + " " + invented(rng, is_test).capitalize() if 0.14 < r < 0.22 else word


def _or_made(kind, share, form):
    """A pool with a share of invented values, so that values are copied and not remembered."""
    pool = _pool(kind)

    def one(rng, is_test):
        return form(rng, is_test) if rng.random() < share else pool(rng, is_test)
    return one


def _fill(templates):
    """A generator for templates with slots of other kinds; a capital in the slot name gives a capital in the value."""
    parts = []
    for t in templates:
        pieces = t.replace("}", "{").split("{")
        parts.append([(p, i % 2 == 1) for i, p in enumerate(pieces) if p])

    def one(rng, is_test):
        out = []
        for p, slot in pick(rng, parts):
            if not slot:
                out.append(p)
            elif p[0].isupper():
                out.append(TEXT[p.lower()](rng, is_test).capitalize())
            else:
                out.append(TEXT[p](rng, is_test))
        return "".join(out)
    return one


def _file(rng, t):
    r = rng.random()
    stem = made(rng, t) if r < 0.5 else TEXT["stem"](rng, t) if not t else pick(rng, POOLS["stem"][t])
    if r > 0.85:
        stem += pick(rng, "_-") + made(rng, t)
    elif r > 0.78:
        stem += str(int(rng.random() * 99))
    path = stem + "." + pick(rng, POOLS["ext"][t and rng.random() < 0.3])
    r = rng.random()
    if r < 0.35:
        path = (pick(rng, POOLS["folder"][t]) if t else TEXT["folder"](rng, t)) + "/" + path
        if r < 0.1:
            path = made(rng, t) + "/" + path
    if r > 0.9:
        path = pick(rng, ("/tmp/", "./", "~/", "/home/sam/", "../", "/etc/", "C:\\work\\")) + path
    return path


def _dir(rng, t):
    r = rng.random()
    name = made(rng, t) if r < 0.5 else pick(rng, POOLS["folder"][t]) if t else TEXT["folder"](rng, t)
    if r > 0.75:
        name += "/" + made(rng, t)
    if 0.3 < r < 0.5:
        name = pick(rng, ("/tmp/", "./", "~/", "/home/sam/", "../", "/var/")) + name
    return name


def _date(rng, t):
    y, m, d = 2026 + int(rng.random() * 4), 1 + int(rng.random() * 12), 1 + int(rng.random() * 28)
    return (f"{y}-{m:02}-{d:02}", f"{y}-{m:02}-{d:02}", f"{d} {MONTHS[m - 1]}", f"{MONTHS[m - 1]} {d}", f"{d:02}/{m:02}/{y}",
            pick(rng, POOLS["weekday"][0][:6]))[int(rng.random() * 6)]


def _clock(rng, t):
    h, m = int(rng.random() * 24), int(rng.random() * 12) * 5
    r = rng.random()
    if r < 0.6:
        return f"{h:02}:{m:02}"
    return f"{h % 12 or 12} {'am' if h < 12 else 'pm'}" if r < 0.8 else f"{h % 12 or 12}:{m:02} {'am' if h < 12 else 'pm'}"


def _email(rng, t):
    name = made(rng, t) if rng.random() < 0.5 else pick(rng, POOLS["person"][t]).split()[0].lower()
    return name + ("" if rng.random() < 0.7 else "." + made(rng, t)) + "@" + pick(rng, POOLS["domain"][t])


def _expr(rng, t):
    a, b, c = (1 + int(rng.random() ** 2 * 400) for _ in range(3))
    op = pick(rng, "++-**")
    s = "" if rng.random() < 0.3 else " "
    return f"({a}{s}{op}{s}{b}){s}*{s}{c % 20 + 2}" if rng.random() < 0.15 else f"{a}{s}{op}{s}{b}"


def _phone(rng, t):
    return f"{pick(rng, ('+47', '+44', '0', '+1', '555'))} {int(rng.random() * 900) + 100} {int(rng.random() * 9000) + 1000}"


def _url(rng, t):
    return pick(rng, ("https://", "https://", "http://", "www.")) + (made(rng, t) + "." if rng.random() < 0.5 else "") + pick(
        rng, POOLS["domain"][t]) + ("" if rng.random() < 0.4 else "/" + made(rng, t))


TEXT = {kind: _pool(kind) for kind in POOLS}
TEXT.update(
    made=made, madeup=made, file=_file, dir=_dir, date=_date, clock=_clock, email=_email, expr=_expr, phone=_phone, url=_url,
    city=_or_made("city", 0.5, name),
    country=_or_made("country", 0.4, name),
    person=_or_made("person", 0.5, name),
    topic=_or_made("topic", 0.5, lambda r, t: word1(r, t) + " " + made(r, t)),
    thing=_or_made("thing", 0.5, lambda r, t: made(r, t) if r.random() < 0.7 else word1(r, t) + " " + word1(r, t)),
    item=_or_made("item", 0.4, lambda r, t: word1(r, t) if r.random() < 0.6 else invented(r, t)),
    food=_or_made("food", 0.4, lambda r, t: word1(r, t) if r.random() < 0.5 else invented(r, t)),
    noun=_or_made("noun", 0.4, lambda r, t: word1(r, t) if r.random() < 0.7 else invented(r, t)),
    genre=_or_made("genre", 0.45, lambda r, t: word1(r, t) if r.random() < 0.5 else invented(r, t)),
    event=_or_made("event", 0.4, lambda r, t: word1(r, t) + " " + pick(r, POOLS["event"][t]).split()[-1]),
    room=_or_made("room", 0.3, lambda r, t: word1(r, t) + pick(r, (" room", " hall", ""))),
    device=_or_made("device", 0.35, lambda r, t: word1(r, t) if r.random() < 0.7 else invented(r, t)),
    product=_or_made("product", 0.5, lambda r, t: word1(r, t) + " " + word1(r, t) if r.random() < 0.5 else made(r, t)),
    colour=_or_made("colour", 0.25, lambda r, t: invented(r, t)),
    word=_or_made("word", 0.6, made),
    stem=_or_made("stem", 0.5, made),
    folder=_or_made("folder", 0.5, made),
    table=_or_made("table", 0.5, lambda r, t: word1(r, t) + "s" if r.random() < 0.5 else made(r, t)),
    branch=_or_made("branch", 0.5, lambda r, t: pick(r, ("", "", "fix/", "feature/")) + made(r, t)),
    error=_or_made("error", 0.45, lambda r, t: pick(r, ("no such {}", "{} not found", "unknown {}", "invalid {}", "{} is locked",
                                                         "the {} is offline", "{} failed", "cannot open {}")).format(made(r, t))),
    song=_or_made("song", 0.6, lambda r, t: name(r, t) + " " + made(r, t).capitalize()),
    movie=_or_made("movie", 0.5, lambda r, t: "The " + made(r, t).capitalize()),
    book=_or_made("book", 0.5, lambda r, t: "The " + made(r, t).capitalize() if r.random() < 0.6 else name(r, t)),
    hotel=_or_made("hotel", 0.5, lambda r, t: "Hotel " + name(r, t)),
    restaurant=_or_made("restaurant", 0.5, name),
    artist=_or_made("artist", 0.5, lambda r, t: name(r, t) + " " + made(r, t).capitalize()),
    stock=_or_made("stock", 0.5, lambda r, t: "".join([pick(r, LETTERS) for _ in range(3 + int(r.random() * 2))])),
    package=_or_made("package", 0.5, made),
    command=_or_made("command", 0.4, lambda r, t: pick(r, ("cat ", "python3 ", "rm ", "wc -l ", "head ", "./", "sh ")) + _file(r, t)),
    flightno=lambda r, t: pick(r, LETTERS) + pick(r, LETTERS) + str(100 + int(r.random() * 9000)),
    orderid=lambda r, t: pick(r, ("", "", "A", "ORD-", "X", "B-")) + str(1000 + int(r.random() * 90000)),
    address=lambda r, t: f"{1 + int(r.random() * 99)} {made(r, t).capitalize()} {pick(r, ('Street', 'Road', 'Lane', 'Square'))}",
    number=lambda r, t: str(1 + int(r.random() * 999)),
    version=lambda r, t: f"{int(r.random() * 5)}.{int(r.random() * 20)}" + ("" if r.random() < 0.5 else f".{int(r.random() * 9)}"),
    globpat=lambda r, t: pick(r, ("*.", "**/*.", "src/*.",
    "test_*.")) + pick(r, POOLS["ext"][0]) if r.random() < 0.6 else made(r, t) + "*",
    envname=lambda r, t: (made(r, t) + pick(r, ("_URL", "_key", "_PORT", "_mode", ""))).upper(),
    envvalue=lambda r, t: made(r, t) if r.random() < 0.6 else str(int(r.random() * 9000)),
    short=lambda r, t: "https://s.example/" + made(r, t),
    tag=lambda r, t: pick(r, TAGS), headline=None)
TEXT.update(text=_fill(TEXTS), task=_fill(TASKS), picture=_fill(PICTURES), title=_fill(TITLES), sql=_fill(SQL), ident=_fill(IDENTS))
TEXT["topic1"] = _or_made("food", 0.5, made)


# Forms that values of a kind can have beyond its pool: for training, so that a value is what stands there and not what such values
# look like. The tests keep to the pools, whose forms training need not have seen.
FORMS = {
    "event": ["{word} with {person}", "{word} {person}", "{word} {word}", "the {word} of {person}", "{word} and {word}", "{word} in {city}"],
    "task": ["{word} the {word}", "{word} {person}", "{word} a {noun} for {person}", "{word} {made}", "the {word}", "{word} the {made}",
             "{word} my {noun}", "{word} and {word} the {thing}"],
    "text": ["let us {word} the {noun}", "let us {word}", "{person} will {word} {made}", "we {word} {word} {word}", "can you {word} the {made}",
             "do not {word} {person}", "I {word} you", "my {word} is {word}", "let me {word} this", "who has the {word}", "you {word} me"],
    "book": ["{Word} and {Word}", "{Word} of {Word}", "{Word} in {City}", "{Word} for {Person}", "{Word} and the {Made}", "A {Word} {Made}"],
    "movie": ["{Word} and {Word}", "{Word} of {Word}", "{Word} {Made}", "{Word} to {City}", "{Made} and {Made}"],
    "song": ["{Word} and {Word}", "{Word} of {Made}", "{Word} with {Person}", "{Word} to {Word}"],
    "title": ["{Word} and {Word}", "{word} {word} {word}", "{Word} with {Made}", "{Word} of the {Word}"],
    "topic": ["{word} {word}", "{word} and {word}", "{made} {word} {word}", "{word} in {city}", "{word}"],
    "thing": ["{word} {word}", "{word} of {word}", "{colour} {made}"],
    "restaurant": ["{Word} and {Word}", "The {Made} {Word}", "{Word} at {City}", "{Word} {Word}"],
    "hotel": ["{Word} and {Word}", "{Made} {Word} Hotel", "{Word} House", "The {Word} of {City}"],
    "artist": ["{Word} and {Word}", "The {Word}s", "{Person} {Word}", "{Made} and the {Word}s"]}


def _opened(kind, forms):
    """In training a value in four is one of these forms."""
    usual, form = TEXT[kind], _fill(forms)

    def one(rng, is_test):
        return form(rng, is_test) if not is_test and rng.random() < 0.25 else usual(rng, is_test)
    return one


def _unbound(kind, share, form):
    """In training a share of the values of a small pool is of any other text of its looks: what such a value is, is not to be learned."""
    usual, kept = TEXT[kind], set(POOLS[kind][1])

    def one(rng, is_test):
        v = form(rng) if not is_test and rng.random() < share else usual(rng, is_test)
        return v if is_test or v not in kept else pick(rng, POOLS[kind][0])
    return one


def _capitals(rng):
    return "".join([pick(rng, LETTERS) for _ in range(3)])


def _respelled(kind):
    """In training a plain value in three has an ending more, or one less: tests, photo, builds."""
    usual, kept = TEXT[kind], set(POOLS[kind][1])

    def one(rng, is_test):
        v = usual(rng, is_test)
        if is_test or rng.random() > 0.33:
            return v
        w = v[:-1] if len(v) > 3 and rng.random() < 0.4 else v + pick(rng, ("s", "s", "ed", "er", "ing", "y", "2"))
        return v if w in kept or RUDE.search(w) else w
    return one


TEXT.update({kind: _opened(kind, forms) for kind, forms in FORMS.items()})
TEXT.update(airport=_unbound("airport", 0.5, _capitals), currency=_unbound("currency", 0.3, _capitals),
            stock=_unbound("stock", 0.3, lambda r: "".join([pick(r, LETTERS) for _ in range(1 + int(r.random() * 5))])),
            lang=_unbound("lang", 0.4, lambda r: name(r, False)), column=_unbound("column", 0.4, lambda r: made(r, False)),
            cond=_unbound("cond", 0.3, lambda r: word1(r, False) + pick(r, ("", "y", " " + word1(r, False)))),
            weekday=_unbound("weekday", 0.2, lambda r: pick(r, ("in {} days", "in {} weeks", "on the {}th", "day {}")).format(
                2 + int(r.random() * 28))))
TEXT.update({kind: _respelled(kind) for kind in ("folder", "stem", "table", "branch")})
del TEXT["headline"]

# Kinds that are free text: quoted in the wording unless they stand at its end.
FREE = {"text"}
# Kinds whose values may be typed in lower case by the user (and are then passed so).
LOWER = {"city", "country", "person", "song", "artist", "lang"}


def draw_number(rng, low, high):
    if rng.random() < 0.6:
        return low + int(rng.random() * (high - low + 1))
    tenths = low * 10 + int(rng.random() * (high - low) * 10)
    return (tenths if tenths % 10 else tenths + 5) / 10 if rng.random() < 0.6 else (tenths * 10 + 25) / 100


def spoken(items):
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]


def draw(rng, test, kind, options):
    """(text as a user writes it, value as a call passes it)."""
    if kind == "int":
        v = options[0] + int(rng.random() * (options[1] - options[0] + 1))
        return str(v), v
    if kind == "num":
        v = draw_number(rng, *options)
        return str(v), v
    if kind in ("enum", "enumfree"):
        v = pick(rng, options)
        return v, v
    if kind == "bool":
        v = rng.random() < 0.5
        return options[0 if v else 1], v
    if kind == "flag":
        return "", True
    if kind == "list":
        items = list(dict.fromkeys(TEXT[options[0]](rng, test) for _ in range(1 + int(rng.random() * 4))))
        return spoken(items), items
    v = TEXT[kind](rng, test)
    if kind in LOWER and rng.random() < 0.08:
        v = v.lower()
    return v, v
