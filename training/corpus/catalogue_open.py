"""Tools made from any words at all (mark_fence, blim-tower, getZorvelOwner) with one to four parameters, and requests for them.

The request shares its words with the declaration; every argument stands literally in it and is tied to its parameter by the name, by
its type or by being the only one left. Declared beside it are tools that share its verb or its noun. Held out for test: every seventh
common word and a seventh of all invented ones (as verb, noun, parameter and value), and the *_TEST templates, which are new sentences
of the words that the training templates have.
"""
from . import noise
from .catalogue import AFTER, ASKING, ASKING_TEST, BEFORE, BEFORE_TEST, NOISE, TYPES, Ask, Tool, camel, described, segments
from .catalogue_values import TEXT, draw, draw_number, invented, made, name as proper, pick, word1

VERBS = """add mark paint check open close lock move lift clean count sort pack send load save stop start print copy scan test fill empty
wash fold cut mix heat cool turn push pull drop raise lower hide show build fix break join split draw feed wake order book rent sell buy
find get read write list set reset update remove delete create make change rename assign track log record plan schedule cancel approve
reject publish export import sync merge compress rotate resize""".split()
VERBS = ([v for i, v in enumerate(VERBS) if i % 7 != 3], [v for i, v in enumerate(VERBS) if i % 7 == 3])
# Kinds of parameters: (kind, names that fit, share).
FIT = {"int": ["count", "size", "level", "amount", "number", "width", "height", "power", "speed", "year", "limit", "age", "floor"],
       "num": ["weight", "price", "ratio", "length", "amount", "depth", "rate"],
       "made": ["name", "label", "code", "key", "title", "tag", "owner", "group", "team", "kind", "place", "brand"],
       "proper": ["person", "customer", "city", "owner", "author", "country", "name", "driver", "guest"],
       "two": ["title", "topic", "subject", "label", "note"],
       "enum": ["mode", "style", "shape", "quality", "direction", "format"],
       "bool": ["silent", "force", "public", "urgent", "active", "wet", "hidden"],
       "date": ["date", "day", "due_date", "start_date"], "clock": ["time", "start", "end", "at"], "email": ["email", "contact", "mail"],
       "file": ["path", "file", "input", "output", "target"], "list": ["items", "names", "tags", "parts"], "orderid": ["id", "ref",
       "code"],
       "url": ["url", "link"], "colour": ["color", "paint", "background"]}
KINDS = ["int"] * 5 + ["num"] * 2 + ["made"] * 7 + ["proper"] * 4 + ["two"] * 2 + ["enum"] * 2 + ["bool", "date", "clock", "email",
    "file",
                                                                                            "file", "list", "orderid", "url", "colour"]
# Kinds that can be told from the rest by their looks.
CLEAR = {"int": "n", "num": "n", "date": "d", "clock": "d", "email": "e", "url": "u", "file": "f", "made": "s", "proper": "s", "two": "s",
         "orderid": "s", "colour": "s"}
DOES = ["{V} the {n}", "{V} a {n}", "{V} the {n} of the user", "{V} one {n}", "{V} any {n}", "{V} a {n} with the given parameters",
        "{V} {n}", "Lets the user {v} a {n}", "Call this to {v} a {n}", "Here you can {v} the {n}", "For {n}: {v} it",
        "The user wants to {v} a {n}", "{V} a given {n}", "{V} some {n} for the user", "{n}: {v}"]
CLAUSE = ["{v} the {n}", "{v} the {n}", "{v} the {n}", "{v} {n}", "{v} my {n}", "{v} a {n}", "{v} that {n}", "{v} our {n}",
    "{v} this {n}",
          "{v} one {n}", "{v} the new {n}", "{v} the old {n}", "{v} any {n}", "{v} her {n}", "{v} your {n}", "{v} their {n}"]
STATED = ["I want to {v} the {n}", "I need to {v} the {n}", "I'd like to {v} a {n}", "I would like to {v} my {n}",
    "we should {v} the {n}",
          "there is a {n} to {v}", "it is time to {v} the {n}", "can you {v} the {n} for me", "let's {v} the {n}", "I have a {n} to {v}",
          "I must {v} the {n}", "I am here to {v} the {n}", "help me to {v} the {n}", "you should {v} the {n} now",
          "somebody must {v} the {n}",
          "the {n} is what I want to {v}", "we want to {v} a {n}", "I have to {v} a {n}", "is it possible to {v} the {n}",
          "would it be possible to {v} my {n}", "my boss wants you to {v} the {n}", "the plan is to {v} the {n}", "I wish to {v} the {n}",
          "here is a {n} that we want to {v}", "my job is to {v} the {n}", "do {v} the {n}", "I came to {v} the {n}"]
STATED_TEST = ["I would like you to {v} the {n}", "I wish to {v} my {n}", "we have to {v} the {n}", "here is a {n} to {v}",
               "is it possible to {v} my {n}", "the plan is to {v} a {n}", "you must {v} the {n}"]
# How a parameter is stated beside its name.
NAMED = ["{p} {x}", "{p} {x}", "{p} {x}", "{p}: {x}", "{p} = {x}", "{p}={x}", "the {p} {x}", "{x} as {p}", "{x} as the {p}",
    "a {p} of {x}",
         "{p} set to {x}", "{x} for the {p}", "{p} is {x}", "the {p} is {x}", "its {p} is {x}", "{x} for {p}", "{p} being {x}"]
WITH = [" with {}", " with {}", ", with {}", ": {}", " - {}", ", {}", " ({}", "; {}", ". {}", " using {}", ", using {}", " and use {}",
        " where {}", ". Use {}", ". Take {}", ", please use {}", "\n{}", ". Parameters: {}", " for {}", ", please with {}", " given {}"]
WITH_TEST = [". Please use {}", ", given {}", " - use {}", ". With {}"]
IS = [": {}", " - {}", ", {}", " ({}", "; {}", ". {}", " where {}", ", where {}", "\n{}"]
AHEAD = ["with {}, ", "with {}: ", "{}: ", "for {}: ", "{}, ", "use {} and ", "take {} and ", "with {} please ", "given {}, "]
AHEAD_TEST = ["take {}, ", "using {}, "]
BETWEEN = [" and ", ", ", "; ", " and with ", ", and ", ", with "]
# How a value stands without the name of its parameter.
PLAIN = {"n": [" {}", " - {}", ": {}", " with {}", ", {}", " by {}", " at {}", " to {}", ", it is {}", " number {}"],
         "s": [" {}", ": {}", " for {}", " with {}", ", {}", " to {}", " called {}", " - {}", ", I mean {}",
         " named {}", ', it is "{}"', ' "{}"'],
         "d": [" on {}", " at {}", ", {}", " for {}", ": {}", " - {}"], "e": [" for {}", ", {}", ": {}", " and use {}", " with {}"],
         "u": [", {}", ": {}", " from {}", " with {}", " at {}"], "f": [" {}", ": {}", " in {}", " from {}", ", {}", " with {}"]}
OPAQUE = ["tool_{}", "fn_{}", "action_{}", "op{}", "t{}", "api_{}", "helper_{}", "f{}", "step-{}"]


def a_word(rng, test, share=0.35):
    return invented(rng, test) if rng.random() < share else word1(rng, test)


def a_verb(rng, test):
    return pick(rng, VERBS[test]) if rng.random() < 0.4 else a_word(rng, test, 0.25)


def a_noun(rng, test):
    n = a_word(rng, test)
    return f"{word1(rng, test)} {n}" if rng.random() < 0.12 else n


def name_of(rng, test, verb, noun):
    r = rng.random()
    if r < 0.05:
        return pick(rng, OPAQUE).format(int(rng.random() * 99))
    if r < 0.08:
        return made(rng, test)
    words = f"{verb}_{noun}" if r < 0.85 else f"{noun}_{verb}" if r < 0.92 else f"{verb}_the_{noun}"
    words = f"{words}_{a_word(rng, test)}" if 0.88 < r < 0.91 else words
    words = words.replace(" ", "_")
    r = rng.random()
    return words if r < 0.6 else camel(words) if r < 0.78 else words.replace("_", "-") if r < 0.88 else (
        words.replace("_", ".", 1) if r < 0.94 else camel(words)[0].upper() + camel(words)[1:])


def value(rng, test, kind, options):
    if kind == "proper":
        v = proper(rng, test) if rng.random() < 0.7 else TEXT["person"](rng, test)
        v = v if rng.random() < 0.85 else v.lower()
        return v, v
    if kind == "two":
        v = " ".join([a_word(rng, test) for _ in range(2 + int(rng.random() * 1.5))])
        return v, v
    if kind == "int":
        v = int(10 ** (rng.random() * (4 if rng.random() < 0.4 else 2)))
        return str(v), v
    if kind == "num":
        v = draw_number(rng, 1, 300)
        return str(v), v
    if kind == "list":
        items = list(dict.fromkeys(a_word(rng, test) for _ in range(2 + int(rng.random() * 2))))
        return ", ".join(items[:-1]) + (" and " if len(items) > 1 else "") + items[-1], items
    return draw(rng, test, kind, options)


def parameter(rng, test, used):
    """(name, kind, options) of a parameter whose name is not used."""
    kind = pick(rng, KINDS)
    p = pick(rng, FIT[kind]) if rng.random() < 0.5 else a_word(rng, test)
    if rng.random() < 0.12:
        p = f"{p}_{a_word(rng, test)}" if rng.random() < 0.5 else f"{a_word(rng, test)}_{p}"
    if p in used or any(p in u or u in p for u in used):
        return None
    options = []
    if kind == "enum":
        options = list(dict.fromkeys(a_word(rng, test, 0.3) for _ in range(2 + int(rng.random() * 3))))
    if kind == "bool":
        options = pick(rng, (["true", "false"], ["yes", "no"], ["true", "false"]))
    return p, kind, options


def schema(rng, p, kind, options):
    s = {"type": TYPES.get(kind, "string")}
    if kind == "int" and rng.random() < 0.1:
        s["type"] = "number"
    if rng.random() < 0.35:
        s["description"] = pick(rng, ("The {}", "{}", "Which {}", "The {} to use", "{} of it",
        "What {} it has")).format(p.replace("_", " "))
    if kind == "enum":
        s["enum"] = options
    if kind == "list":
        s["items"] = {"type": "string"}
    return s


def declaration(rng, name, does, params, needed):
    properties = {p: schema(rng, p, kind, options) for p, kind, options in params}
    return {"type": "function", "function": {"name": name, "description": described(rng, does), "parameters": {
        "type": "object", "properties": properties, "required": [p for p in properties if p in needed]}}}


def parameters(rng, test, avoid=()):
    params, used = [], set(avoid)
    for _ in range(min(3 if test else 4, pick(rng, (0, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 4)))):
        p = parameter(rng, test, used)
        if p:
            used.add(p[0])
            params.append(p)
    return params


def make(rng, test, verb, noun, params=None):
    """(name, does, declaration, parameters, names of the required ones)."""
    does = pick(rng, DOES).format(v=verb, V=verb.capitalize(), n=noun)
    params = parameters(rng, test, avoid=(verb, noun)) if params is None else params
    needed = {p for p, _, _ in params if rng.random() < 0.7}
    name = name_of(rng, test, verb, noun)
    return name, does, declaration(rng, name, does, params, needed), params, needed


def camel_words(p):
    return p.replace("_", " ")


def look(p, kind):
    """The class of values among which a parameter can be told without its name; odd names of dates and so on are any text."""
    c = CLEAR.get(kind, "")
    return "s" if c in ("d", "e", "u", "f") and p not in FIT[kind] else c


def tell(rng, test, clause, stated, params):
    """The clause with the values: stated are (parameter, kind, text), each by name or, where only one can be meant, without."""
    ahead = []
    told, plain = [], ""
    every = [look(p, kind) for p, kind, _ in params]
    numbers = "n" in every
    classes = ["" if kind == "orderid" and numbers else look(p, kind) for p, kind, _ in stated]
    for (p, kind, x), c in zip(stated, classes):
        if c and every.count(c) == 1 and not plain and rng.random() < 0.4:
            plain = pick(rng, PLAIN[c]).format(x)
        elif kind == "enum" and not plain and rng.random() < 0.25:
            plain = pick(rng, (" {}", ", {}", ": {}", " - {}", " ({})")).format(x)
        else:
            told.append((camel_words(p), x))
    r = rng.random()
    if told:
        one = pick(rng, NAMED)
        loose = rng.random() < 0.15
        said = [(pick(rng, NAMED) if loose else one).format(p=p, x=x) for p, x in told]
        if r < 0.13:
            ahead, said = said, []
        elif r < 0.22 and len(said) > 1:
            ahead, said = said[:1], said[1:]
    else:
        said = []
    between = pick(rng, BETWEEN)
    text = clause + plain
    if said:
        head = ", ".join(said[:-1]) if rng.random() < 0.6 else between.join(said[:-1])
        joined = head + between + said[-1] if head else said[0]
        opener = pick(rng, IS if " is " in joined else WITH_TEST if test and rng.random() < 0.6 else WITH)
        text += opener.format(joined) + (")" if opener[-3:] == "({}" else "")
    if ":" in "".join(ahead) or " is " in "".join(ahead):
        return between.join(ahead) + pick(rng, (", ", ". ", "; ")), text
    lead = pick(rng, AHEAD_TEST if test and rng.random() < 0.6 else AHEAD).format(between.join(ahead)) if ahead else ""
    return lead, text


def framed(rng, test, lead, text, bare):
    """The request with a prefix or a polite form."""
    r = rng.random()
    if lead:
        text = lead + text
        bare = False
    elif bare and r < 0.3:
        text = pick(rng, ASKING_TEST if test else ASKING) + text
        bare = False
    if 0.2 < r < 0.45:
        text = pick(rng, BEFORE_TEST if test else BEFORE) + text
    if rng.random() < 0.6 and not (lead and r > 0.45 and rng.random() < 0.7):
        text = text[0].upper() + text[1:]
    return text


def request(rng, test, verb, noun, tool):
    """An Ask for a made tool."""
    name, does, declared, params, needed = tool
    args, stated = {}, []
    for p, kind, options in params:
        if p in needed or rng.random() < 0.45:
            shown, args[p] = value(rng, test, kind, options)
            stated.append((p, kind, shown))
    if len(stated) > 1 and rng.random() < 0.5:
        stated.reverse()
    bare = rng.random() < 0.7
    clause = pick(rng, CLAUSE if bare else STATED_TEST if test else STATED).format(v=verb, n=noun)
    lead, text = tell(rng, test, clause, stated, params)
    text = framed(rng, test, lead, text, bare)
    if not stated and rng.random() < 0.25:
        text += pick(rng, AFTER)
    if not test and rng.random() < NOISE:
        text = noise.noisy(rng, text, [verb, noun] + [camel_words(p) for p, _, _ in stated] + [x for _, _, x in stated])
    done = Tool([name], test, done=segments(f"The tool {name} is done."))
    return Ask(done, declared, name, text, args, {}, does, {}, others(rng, test, verb, noun, params, name))


def others(rng, test, verb, noun, params, name):
    """Declarations that share the verb, the noun or the parameters of a request, but never both words."""
    out, names = [], {name}
    for _ in range(int(rng.random() * 3.6)):
        r = rng.random()
        v, n = (verb, a_noun(rng, test)) if r < 0.45 else (a_verb(rng, test), noun)
        if (v, n) == (verb, noun) or v in noun or n in verb:
            continue
        same = params if rng.random() < 0.35 else None
        rival = make(rng, test, v, n, same)
        if rival[0] not in names:
            names.add(rival[0])
            out.append(rival[2])
    return out


def ask(rng, test):
    """A request to a made tool, with declarations of tools that share words with it."""
    verb, noun = a_verb(rng, test), a_noun(rng, test)
    while verb in noun:
        noun = a_noun(rng, test)
    return request(rng, test, verb, noun, make(rng, test, verb, noun))
