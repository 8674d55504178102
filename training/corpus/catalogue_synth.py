"""Tools made from word lists (zap_lamp, get_kettle_owner, tool_17), so that declarations are read and not remembered.

Requests are imperatives, questions, plain statements of a wish, and statements of what the user did (`entry`).
Held out for test: the *_TEST wordings, the second list of ENTRIES, every seventh verb, noun, attribute and parameter of the
lists, and the values of `catalogue_values`.
"""
from . import noise
from .catalogue import Ask, BEFORE, BEFORE_TEST, ASKING, ASKING_TEST, AFTER, IMPERATIVE, TYPES, Tool, NOISE, described, segments, spelled
from .catalogue_values import DATA, draw, halves, invented, made, pick, word1

LISTS = {}
for _line in (DATA / "tools_words.txt").read_text(encoding="utf-8").splitlines():
    if not _line.startswith("#"):
        _kind, _, _words = _line.partition(": ")
        LISTS[_kind] = halves(_words.split(" | "))

KNOWN = {*LISTS["attr"][0], *LISTS["attr"][1]}

# name, kind, options, descriptions
PARAMS = halves([
    ("power", "int", [1, 100]), ("color", "colour", []), ("level", "int", [0, 20]), ("angle", "int", [1, 359]),
    ("size", "enum", ["small", "medium", "large"]),
    ("label", "made", []), ("speed", "int", [1, 300]), ("mode", "enum", ["fast", "slow", "auto"]), ("target", "thing", []),
    ("count", "int", [1, 60]),
    ("depth", "int", [1, 400]), ("owner", "person", []), ("city", "city", []), ("amount", "num", [1, 200]), ("code", "orderid", []),
    ("path", "file", []),
    ("silent", "bool", ["true", "false"]), ("flavour", "enum", ["sweet", "sour", "salty", "bitter"]), ("name", "person", []),
    ("day", "weekday", []),
    ("items", "list", ["item"]), ("max_weight", "int", [1, 900]), ("seconds", "int", [1, 600]),
    ("material", "enum", ["wood", "steel", "glass", "stone"]),
    ("reason", "noun", []), ("email", "email", []), ("start_time", "clock", []), ("date", "date", []), ("tags", "list", ["tag"]),
    ("ratio", "num", [1, 9]),
    ("direction", "enum", ["left", "right", "up", "down"]), ("key", "made", []), ("priority", "enum", ["low", "normal", "high"]),
    ("folder", "dir", []),
    ("dry_run", "bool", ["true", "false"]), ("height", "num", [1, 80]), ("room", "room", []), ("url", "url", []),
    ("user_id", "int", [1, 9999]),
    ("format", "enum", ["pdf", "png", "csv", "json"]), ("force", "bool", ["yes", "no"]), ("temperature", "int", [-20, 250]),
    ("ref", "orderid", []),
    ("zone", "enum", ["north", "south", "east", "west"]), ("password", "made", []), ("quantity", "int", [1, 900]), ("language",
    "lang", []),
    ("thickness", "num", [1, 30]), ("group", "enum", ["red team", "blue team", "guests"]), ("min_price", "int", [1, 500]),
    ("topic", "topic", [])])
ATTR_KINDS = {"price": ("num", [2, 400]), "status": ("enumfree", ["open", "ready", "broken", "active", "sold", "idle"]),
              "owner": ("person", []),
              "colour": ("colour", []), "location": ("city", []), "origin": ("country", []), "title": ("title", []),
              "version": ("version", []),
              "phone number": ("phone", []), "address": ("address", []), "email": ("email", []), "birthday": ("date", []),
              "due date": ("date", []),
              "expiry date": ("date", []), "serial number": ("orderid", []), "manager": ("person", []), "category": ("word", []),
              "language": ("lang", []),
              "password hint": ("made", []), "team": ("made", []), "brand": ("made", []), "texture": ("word", [])}
ID_KINDS = [("id", "int", [1, 9999]), ("name", "made", []), ("code", "orderid", []), ("name", "person", []), ("number", "int", [1, 400]),
            ("key", "made", [])]
WITH = [(" - ", ", "), (": ", "; "), (", with ", " and "), (", ", " and "), (" where ", " and "), ("; ", "; "), (". ", ", "),
        (" with ", " and "), (" with ", ", "), (", ", ", "), (" using ", " and "), (": ", ", "), (" and use ", " and "), (" (", ", "),
        (" at ", " and ")]
LOOSE = (" with ", ": ", " (", ", ", " - ", "; ", ", with ")
FORMS = ("{} {}", "{} {}", "{} {}", "{} = {}", "{}: {}", "{}={}", "the {} {}", "{} is {}")
IS = ("{} is {}", "the {} is {}", "{} = {}")
ACTION = [
    "{v} the {n}", "{v} my {n}", "{v} the {n}", "{v} a {n}", "{v} that {n}", "{v} our {n}", "{v} this {n}", "{v} one {n}",
    "{v} the {n}"]
STATED = [
    "I want to {v} the {n}", "I need to {v} the {n}", "I'd like to {v} a {n}", "I would like to {v} my {n}",
    "we should {v} the {n}", "the {n}: {v} it", "{n}: {v} it", "there is a {n} to {v}", "time to {v} the {n}",
    "can you {v} the {n} for me", "let's {v} the {n}", "the {n} should be handled: {v} it", "I have a {n} to {v}",
    "I must {v} the {n}", "my {n} is waiting, {v} it", "it's the {n} that you should {v}"]
STATED_TEST = [
    "I must {v} my {n}", "I would like to {v} the {n}", "we should {v} a {n}", "I want to {v} my {n}", "I have my {n} to {v}"]
ACTION_DOES = ["{V} the {n}", "{V} a {n}", "{V} the {n} of the user", "{V} one {n}"]
FIND = [
    "what is the {a} of the {n} {x}?", "what's the {a} of {n} {x}?", "show me the {a} of the {n} {x}", "{a} of {n} {x}?",
    "tell me the {a} of {n} {x}", "look up the {a} of the {n} {x}", "which {a} does the {n} {x} have?",
    "I need the {a} of {n} {x}", "get the {a} for {n} {x}", "do you know the {a} of the {n} {x}?", "find out the {a} of {n} {x}",
    "{n} {x}, what is its {a}?", "give me the {a} of {n} {x}", "for {n} {x} I need the {a}",
    "for the {n} {x} I would like to know the {a}", "for {n} {x} tell me the {a}", "{n} {x}: {a}?", "{n} {x}, {a}",
    "the {a} of {n} {x} please", "the {a} of the {n} {x}, please", "I want to know the {a} of the {n} {x}",
    "I want the {a} of {n} {x}", "I would like the {a} of the {n} {x}", "I'd like to see the {a} of {n} {x}",
    "could I get the {a} of {n} {x}?", "can I see the {a} of the {n} {x}?", "can I have the {a} for {n} {x}?",
    "may I know the {a} of the {n} {x}?", "find the {a} for the {n} {x}", "fetch the {a} of {n} {x}",
    "load the {a} of the {n} {x}", "see which {a} {n} {x} has", "what {a} does {n} {x} have?", "what {a} has the {n} {x}?",
    "{a} for {n} {x}", "I would like to have the {a} of the {n} {x}", "what is the {a} for {n} {x}?",
    "how about the {a} of the {n} {x}?", "I am looking for the {a} of {n} {x}",
    "let me know the {a} of the {n} {x}", "let me see the {a} of {n} {x}", "say the {a} of the {n} {x}",
    "show the {a} for {n} {x}", "with {n} {x}, which {a} is it?", "about {n} {x}: what is the {a}?",
    "it's about {n} {x}, I need its {a}", "my {n} is {x}, what is the {a}?", "{n} {x} has which {a}?",
    "I forgot the {a} of {n} {x}", "search the {a} of the {n} {x}"]
FIND_TEST = [
    "could I see the {a} of the {n} {x}?", "about the {n} {x}, I want to know the {a}", "see which {a} the {n} {x} has",
    "can I know the {a} of {n} {x}?", "please give me the {a} for the {n} {x}", "I would like to see the {a} for {n} {x}"]
SHOW = [
    "show me the {n} {x}", "look up the {n} {x}", "get {n} {x}", "load the {n} {x}", "give me all on the {n} {x}",
    "tell me about the {n} {x}", "find the {n} {x}", "fetch {n} {x}", "open {n} {x}", "show {n} {x}", "see the {n} {x}",
    "get me the record of {n} {x}", "give me the details of the {n} {x}", "get all data of {n} {x}", "load all on {n} {x}",
    "look at {n} {x}", "search {n} {x}", "give me the {n} {x}", "find all on {n} {x}", "list the details of {n} {x}",
    "show what we have on {n} {x}"]
SHOW_TEST = ["get the details of {n} {x}", "show me all on {n} {x}", "look up {n} {x}"]
LOAD_DOES = ["Get a {n} by its {p}", "Load the record of a {n}", "Get all data of a {n}", "Look up a {n}", "Return the details of a {n}",
             "Fetch a {n}"]
FIND_DOES = ["Get the {a} of a {n}", "Look up the {a} of a {n}", "Find the {a} of the {n}", "Return the {a} of a {n}"]
# What the user did: verb, past, unit, things; the first list is trained, the second is for tests.
ENTRIES = ([("eat", "ate", "grams", ["rice", "bread", "fruit", "cheese", "fish", "salad"]),
            ("drink", "drank", "ml", ["tea", "juice", "milk"]),
            ("drink", "drank", "cups", ["coffee", "cocoa"]), ("buy", "bought", "kilos", ["flour", "sugar", "sand", "coal"]),
            ("use", "used", "litres", ["petrol", "oil", "paint"]), ("sell", "sold", "boxes", ["apples", "pears", "books", "shoes"]),
            ("read", "read", "pages", ["history", "poetry"]), ("plant", "planted", "rows", ["beans", "onions", "carrots"]),
            ("practise", "practised", "minutes", ["piano", "guitar", "violin", "chess"]),
            ("cut", "cut", "metres", ["rope", "cloth", "wire"]),
            ("pick", "picked", "baskets", ["cherries", "plums", "nuts"]), ("take", "took", "drops", ["medicine", "syrup"])],
           [("eat", "ate", "grams", ["soup", "pasta"]), ("drink", "drank", "ml", ["lemonade", "broth"]),
            ("buy", "bought", "kilos", ["gravel", "salt"]), ("sell", "sold", "boxes", ["candles", "hats"]),
            ("practise", "practised", "minutes", ["drums", "singing"])])
ENTRY = ["I {p} {x} {u} of {t}", "I {p} {x} {u} of {t} today", "I just {p} {x} {u} of {t}", "log {x} {u} of {t}", "log {x} {u} {t}",
         "{t}: {x} {u}",
         "add {x} {u} of {t}", "record {x} {u} of {t}", "write down {x} {u} of {t}", "today I {p} {x} {u} of {t}",
         "we {p} {x} {u} of {t}",
         "{x} {u} of {t}", "I have had {x} {u} of {t}", "note {x} {u} of {t}", "put down {x} {u} of {t}", "{x} {u} of {t}, please log it",
         "that was {x} {u} of {t}", "save {x} {u} of {t}", "this morning I {p} {x} {u} of {t}", "track {x} {u} of {t}"]
ENTRY_TEST = ["today I just {p} {x} {u} of {t}", "please record {x} {u} of {t}", "put down {x} {u} {t}", "we {p} {x} {u} of {t} today"]
ENTRY_DOES = ["Log the {u} of {t}", "Record how much {t} there was", "Record {t} in {u}", "Save an amount of {t}", "Log {t}",
              "Keep a record of {t} ({u})", "Record how many {u} of {t}"]
OPAQUE = ["tool_{}", "fn_{}", "action_{}", "op{}", "t{}", "api_{}", "helper_{}"]


def _word(rng, test, kind):
    r = rng.random()
    if r < 0.35:
        return pick(rng, LISTS[kind][test])
    return invented(rng, test) if r < 0.6 else word1(rng, test)


def _name(rng, test, *words):
    """A tool name from words; sometimes one that says nothing, so that the description decides."""
    r = rng.random()
    if r < 0.1:
        return pick(rng, OPAQUE).format(int(rng.random() * 99))
    if r < 0.13:
        return made(rng, test)
    return spelled(rng, "_".join(words).replace(" ", "_"))


def _article(text, noun):
    return text.replace(f" a {noun}", f" an {noun}") if noun[0] in "aeiou" else text


def _schema(rng, name, kind, options):
    s = {"type": TYPES.get(kind, "string")}
    if rng.random() < 0.4:
        spoken = name.replace("_", " ")
        s["description"] = pick(rng, ("The {}", "{}", "Which {}", "The {} to use")).format(spoken) if rng.random() < 0.9 else spoken
    if kind == "enum":
        s["enum"] = options
    if kind == "list":
        s["items"] = {"type": "string"}
    return s


def _declaration(rng, name, does, properties, required):
    return {"type": "function", "function": {"name": name, "description": described(rng, does), "parameters": {
        "type": "object", "properties": properties, "required": required}}}


def _lead(rng, test, text, imperative):
    r = rng.random()
    if r < 0.4:
        return text[0].upper() + text[1:] if rng.random() < 0.6 else text
    lead = ""
    if r > 0.75 or not imperative:
        lead = pick(rng, BEFORE_TEST if test else BEFORE)
    if imperative:
        lead += pick(rng, ASKING_TEST if test else ASKING)
    lead = lead[0].upper() + lead[1:] if rng.random() < 0.65 else lead
    if lead and lead[-2:-1] in ".:," and text[:2] != "I " and rng.random() < 0.15:
        text = text[0].upper() + text[1:]
    return lead + text


def _noisy(rng, test, text, keep):
    return text if test or rng.random() >= NOISE else noise.noisy(rng, text, keep)


def attribute_kind(rng, attr):
    """(kind, options) of the values of an attribute; any for one that the table does not know."""
    return ATTR_KINDS.get(attr) or (("int", [1, 900]) if attr in KNOWN or rng.random() < 0.3 else ("made", []))


def action(rng, test, verb=None, noun=None):
    """A tool that does something to a thing, with 0 to 3 parameters named in the wording."""
    verb, noun = verb or _word(rng, test, "verb"), noun or _word(rng, test, "noun")
    does = _article(pick(rng, ACTION_DOES).format(v=verb, V=verb.capitalize(), n=noun), noun)
    name = _name(rng, test, verb, noun) if rng.random() < 0.85 else _name(rng, test, noun, verb)
    properties, required, args, stated = {}, [], {}, []
    for _ in range(int(rng.random() * 3.6)):
        p, kind, options = pick(rng, PARAMS[test and rng.random() < 0.6])
        if p in properties:
            continue
        properties[p] = _schema(rng, p, kind, options)
        needed = rng.random() < 0.65
        if needed:
            required.append(p)
        if needed or rng.random() < 0.4:
            shown, args[p] = draw(rng, test, kind, options)
            stated.append((p.replace("_", " "), shown))
    bare = rng.random() < 0.72
    text = _article(pick(rng, ACTION if bare else STATED_TEST if test else STATED).format(v=verb, n=noun), noun)
    if stated:
        if rng.random() < 0.3:
            stated.reverse()
        before, between = pick(rng, WITH)
        form = pick(rng, IS if before == " where " else FORMS if before in LOOSE else ("{} {}",))
        text += before + between.join([form.format(*s) for s in stated]) + (")" if before == " (" else "")
    text = _lead(rng, test, text, bare)
    if not stated and rng.random() < 0.2:
        text += pick(rng, AFTER)
    text = _noisy(rng, test, text, [verb, noun] + [w for s in stated for w in s])
    tool = Tool([name], test, done=segments(f"The tool {name} is done."))
    return Ask(tool, _declaration(rng, name, does, properties, required), name, text, args, {}, does, {})


def find(rng, test, noun=None):
    """A tool that looks up an attribute of a thing by its id or name."""
    noun, attr = noun or _word(rng, test, "noun"), _word(rng, test, "attr")
    while attr == noun:
        attr = _word(rng, test, "attr")
    p, kind, options = pick(rng, ID_KINDS)
    r = rng.random()
    p = p if r < 0.4 else noun.replace(" ", "_") + "_" + p if r < 0.8 else noun.replace(" ", "_")
    shown, value = draw(rng, test, kind, options)
    does = _article(pick(rng, FIND_DOES).format(a=attr, n=noun), noun)
    name = _name(rng, test, *pick(rng, (("get", noun, attr), ("find", noun, attr), ("lookup", attr), ("get", attr), (noun, attr))))
    if rng.random() < 0.25:
        does, name = load(rng, test, noun, p)
    template = pick(rng, FIND_TEST if test else FIND)
    text = template.format(a=attr, n=noun, x=shown)
    if text[-1] == "?" and rng.random() < 0.25:
        text = text[:-1]
    text = _lead(rng, test, text, template.split(" ", 1)[0] in IMPERATIVE and not template.startswith("let"))
    text = _noisy(rng, test, text, [noun, attr, shown])
    kind2, options2 = attribute_kind(rng, attr)
    tool = Tool([name], test, gives=[(attr.replace(" ", "_"), kind2, options2)],
                says=segments(f"The {attr} of the {noun} {shown} is {{{attr.replace(' ', '_')}}}."))
    return Ask(tool, _declaration(rng, name, does, {p: _schema(rng, p, kind, options)}, [p]), name, text, {p: value}, {"x": shown}, does,
               {"x": p})


def load(rng, test, noun, p):
    """(what it does, name) of a tool that gives the whole record of a thing."""
    does = _article(pick(rng, LOAD_DOES).format(n=noun, p=p.replace("_", " ")), noun)
    return does, _name(rng, test, *pick(rng, (("get", noun), ("load", noun), ("fetch", noun), (noun, "details"), ("show", noun),
                                              ("get", noun, "info"))))


def record(rng, test):
    """A request for the whole record of a thing."""
    noun = _word(rng, test, "noun")
    p, kind, options = pick(rng, ID_KINDS)
    shown, value = draw(rng, test, kind, options)
    does, name = load(rng, test, noun, p)
    template = pick(rng, SHOW_TEST if test else SHOW)
    text = _lead(rng, test, template.format(n=noun, x=shown), not template.startswith("let"))
    text = _noisy(rng, test, text, [noun, shown])
    declared = _declaration(rng, name, does, {p: _schema(rng, p, kind, options)}, [p])
    return Ask(Tool([name], test), declared, name, text, {p: value}, {"x": shown}, does, {"x": p})


def entry(rng, test):
    """A tool that records what the user did, asked for by a plain statement: "I ate 200 grams of rice"."""
    verb, past, unit, things = pick(rng, ENTRIES[test])
    thing = pick(rng, things) if rng.random() < 0.4 else _word(rng, test, "noun")
    shown, value = draw(rng, test, "int", [2, 900])
    p = pick(rng, ("amount", unit, unit, "quantity", "value", "how_much"))
    does = pick(rng, ENTRY_DOES).format(v=verb, t=thing, u=unit)
    name = _name(rng, test, *pick(rng, (("log", thing), ("record", thing), ("add", thing), (verb, thing), (thing, "log"),
                                        ("track", thing))))
    template = pick(rng, ENTRY_TEST if test else ENTRY)
    text = _lead(rng, test, template.format(p=past, x=shown, u=unit, t=thing), template.split(" ", 1)[0] in IMPERATIVE)
    text = _noisy(rng, test, text, [shown, unit, thing])
    declared = _declaration(rng, name, does, {p: _schema(rng, p, "int", [])}, [p])
    return Ask(Tool([name], test, done=segments(f"The tool {name} is done.")), declared, name, text, {p: value}, {}, does, {})


def ask(rng, test):
    r = rng.random()
    return find(rng, test) if r < 0.35 else record(rng, test) if r < 0.42 else entry(rng, test) if r < 0.52 else action(rng, test)


def rivals(rng, test, request):
    """A declaration that is easily mistaken for that of the request: the same verb or the same thing."""
    words = request.does.split()
    if len(words) >= 3 and rng.random() < 0.5:
        if rng.random() < 0.5:
            return action(rng, test, noun=words[-1]).declared
        return action(rng, test, verb=words[0].lower()).declared
    return find(rng, test, noun=words[-1]).declared if rng.random() < 0.5 else action(rng, test).declared
