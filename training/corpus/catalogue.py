"""The catalogue of tools (data/tools_*.txt): declarations, user wordings, results and answers.

Held out for test: the tools marked `tool!` (names, parameters, wordings), one wording of every other tool, and the values that
`catalogue_values` keeps. A test dialogue asks for a held-out tool, or for a trained one in a held-out wording. The held-out wording
is the longest one whose words all stand in other wordings of the tool, in its description, or in the wordings of many tools: nothing
else can tell a model that learned its English here what it means. For the same reason the wordings of `tool!` share a word with the
description. In training a fifth of the requests has noise in its frame (see `noise`), and names get additions that mean nothing.
"""
import re
from dataclasses import dataclass, field

from . import noise
from .catalogue_values import DATA, FREE, draw, invented, pick, word1

TYPES = {"int": "integer", "num": "number", "bool": "boolean", "flag": "boolean", "list": "array"}
NOISE = 0.2
IMPERATIVE = set("""
tell show check set start count wake add create write save take note jot remember keep search find look delete remove throw get
send mail email drop text message call phone ring give put schedule book plan list mark complete close tick play let pause stop
skip translate define explain google open fetch go load read calculate compute work evaluate convert change turn buy order
purchase reserve make track cancel navigate roll pick choose generate draw paint shorten transfer pay log record switch dim heat
lock vacuum clean secure activate run execute try replace rename edit append print erase move copy duplicate commit install query
file report resolve restart reboot format tidy zip compress pack ping test locate store
""".split())
BEFORE = [
    "hey, ", "hi, ", "hello, ", "ok, ", "ok ", "so, ", "now ", "next: ", "one more thing: ", "hi there, ", "hey there, ",
    "right, ", "well, ", "alright, ", "good morning, ", "hello again, ", "quick one: ", "my next wish: ", "good evening, ",
    "good afternoon, ", "good day, ", "listen, ", "look, ", "one small thing: ", "a small thing: ", "one quick thing: ",
    "another thing: ", "now listen: ", "by the way, ", "oh, ", "ah, ", "hmm, ", "um, ", "okay, ", "fine, ", "great, ", "good, ",
    "first, ", "then ", "and now ", "also, ", "again, ", "sorry, ", "excuse me, ", "quick request: ", "a request: ",
    "small request: ", "my request: ", "here is a task: ", "task: ", "next task: ", "next one: ", "another one: ", "one more: ",
    "and another: ", "for me: ", "to do: ", "job for you: ", "quickly: ", "just this: ", "only this: ", "a question: ",
    "quick question: ", "I have a wish: ", "I have a task for you: ", "when you have time: ", "if possible: ", "if you can: ",
    "today: ", "as for me, ", "morning, ", "evening, ", "dear assistant, ", "assistant, ", "Fieldfare, ", "hey Fieldfare, ",
    "hi Fieldfare, ", "hello Fieldfare, ", "thanks, now ", "thank you, next: ", "okay so ", "well then, ", "all right, ",
    "yes, ", "yo, ", "there is one thing: ", "hello you, ", "a little thing: ", "it is urgent: ", "urgent: ", "no hurry: ",
    "before I forget: ", "let us see, ",
    "help me: ", "I need help: ", "one thing: "]
BEFORE_TEST = [
    "one small request: ", "hello there, ", "my next request: ", "a quick thing: ", "another small thing: ", "and next: ",
    "okay, one more: ", "hey assistant, ", "so, next: ", "good morning, assistant, ", "hi again, ", "a quick request for you: "]
ASKING = [
    "please ", "can you ", "could you ", "can you please ", "could you please ", "would you ", "I want you to ",
    "I need you to ", "go ahead and ", "I'd like you to ", "would you please ", "pls ", "kindly ", "will you ",
    "be so good and ", "may I ask that you ", "I ask you to ", "you should ", "you need to ", "you can ", "just ", "now please ",
    "would you kindly ", "be kind and ", "do me a favour and ", "I would like you to ", "could you quickly ", "please go and ",
    "try to ", "it is time to ", "help me to ", "let's ", "we need to "]
ASKING_TEST = ["could you kindly ", "please try to ", "I would like to ask you to ", "can you now ", "would you be so good and "]
AFTER = [" please", ", please", " for me", ", thanks", " thanks", " now", ". Thank you", " asap", ", thank you", " right now",
         ", if you can", ", will you", " for me please", ". Thanks", ", that is all", " as soon as you can"]


# Kinds whose description may name an example, which is never what the user asked for.
EXAMPLES = {"city", "person", "file", "dir", "date", "clock", "email", "stock", "currency", "lang", "url", "country", "word", "command",
            "orderid"}
MORE = ["Returns JSON.", "Returns a short text.", "Use it when the user asks for it.", "The result is a JSON object.",
        "Works for all users.",
        "Returns an error if something is wrong.", "Only call this when it is needed.", "The answer comes at once.",
        "All parameters are given by the user."]


@dataclass
class Param:
    key: str
    names: list
    kind: str
    options: list
    descriptions: list
    phrases: list = field(default_factory=list)


@dataclass
class Tool:
    names: list
    test: bool
    does: list = field(default_factory=list)
    args: list = field(default_factory=list)
    opts: list = field(default_factory=list)
    asks: tuple = ()
    miss: tuple = ()
    both: tuple = ()
    gives: list = field(default_factory=list)
    says: str = ""
    done: str = ""
    brief: list = field(default_factory=list)
    plain: list = field(default_factory=list)
    beside: list = field(default_factory=list)
    sure: list = field(default_factory=list)
    kept: bool = False

    @property
    def key(self):
        return self.names[0]


@dataclass
class Ask:
    """A request to one tool: what is declared, what the user writes, what is to be called."""
    tool: object
    declared: dict
    name: str
    text: str
    args: dict
    shown: dict
    does: str
    names: dict
    rivals: list = field(default_factory=list)


def _options(kind, words):
    return [int(w) for w in words] if kind in ("int", "num") else words


def _param(line):
    left, _, phrases = line.partition(" :: ")
    head, _, descriptions = left.partition(" ; ")
    names, _, kind = head.partition(" = ")
    words = kind.split()
    return Param(names.split()[0], names.split(), words[0], _options(words[0], words[1:]), [d.strip() for d in descriptions.split(" | ")],
                 [segments(p.strip()) for p in phrases.split(" | ")] if phrases else [])


def segments(template):
    """A template as a tuple of literals (even places) and slot names (odd places)."""
    return tuple(template.replace("}", "{").split("{"))


def join(parts, shown):
    return "".join([shown[p] if i % 2 else p for i, p in enumerate(parts)])


def _first_upper(parts):
    return (parts[0][:1].upper() + parts[0][1:],) + parts[1:]


def typo(template):
    """The wording with two letters swapped in its first long word, or none."""
    parts = list(segments(template))
    for i in range(0, len(parts), 2):
        for w in parts[i].split(" "):
            if len(w) >= 6 and w.isalpha():
                k = 1 + len(template) % (len(w) - 3)
                parts[i] = parts[i].replace(w, w[:k] + w[k + 1] + w[k] + w[k + 2:], 1)
                return tuple(parts)
    return None


def casings(template):
    """(variants of a wording as it stands, variants for use after a prefix): capitals, apostrophes and question marks come and go."""
    parts = segments(template)
    plain = tuple(p.replace("'", "") if i % 2 == 0 else p for i, p in enumerate(parts))
    low = tuple(p.replace("I ", "i ").replace("I'", "i'") if i % 2 == 0 else p for i, p in enumerate(parts))
    inner = [parts, parts, low, plain]
    outer = [_first_upper(parts)] * 3 + [parts, low, _first_upper(plain)]
    if parts[-1].endswith("?"):
        cut = [p[:-1] + (p[-1][:-1],) for p in (low, plain, _first_upper(parts))]
        outer += cut
        inner += cut[:1]
    if parts[-1][-1:].isalnum() and len(parts) % 2:
        outer.append(_first_upper(parts[:-1] + (parts[-1] + ".",)))
    return outer, inner


class Wording:
    """One user wording with its variants."""

    def __init__(self, template):
        self.fair, self.inner = casings(template)
        wrong = typo(template)
        self.outer = self.fair + [wrong] if wrong else self.fair
        self.imperative = template.split(" ", 1)[0] in IMPERATIVE
        self.question = template.endswith("?")
        slots = segments(template)
        self.last = slots[-2] if len(slots) > 1 and slots[-1] == "" else None
        self.words = set(re.findall(r"[a-z']+", " ".join(slots[::2]).lower()))
        self.quoted = {slots[i] for i in range(1, len(slots), 2) if slots[i - 1].endswith('"')}


def _wordings(line):
    return [Wording(t.strip()) for t in line.split(" | ")]


def hold_out(tools):
    """Splits the wordings of every trained tool into (for training, for test)."""
    uses = {}
    for t in tools:
        for word in set().union(*[w.words for w in t.asks]):
            uses[word] = uses.get(word, 0) + (not t.test)
    common = {w for w, n in uses.items() if n >= 10}
    for t in tools:
        own = common | set(re.findall(r"[a-z']+", " ".join(t.names + t.does).lower().replace("_", " ")))
        for part in ("asks", "miss", "both"):
            every = list(getattr(t, part))
            if t.test or not every:
                setattr(t, part, (every, every) if every else ())
                continue
            fit = [w for w in every if w.words <= own.union(*[o.words for o in every if o is not w])] if len(every) > 2 else []
            own_words = own - common
            fit = [w for w in fit if part != "asks" or w.words & own_words]
            held = max(fit, key=lambda w: len(w.words), default=None)
            setattr(t, part, ([w for w in every if w is not held], [held] if held else every))
            t.kept = t.kept or part == "asks" and held is not None
    return tools


def _given(text):
    """A key of a result: (key, kind of value, options)."""
    w = text.split()
    kind = w[1] if len(w) > 1 else w[0]
    return w[0], kind, _options(kind, w[2:])


def _tool(block):
    lines = block.splitlines()
    head = lines[0].split()
    t = Tool(head[1:], head[0] == "tool!")
    for line in lines[1:]:
        word, _, rest = line.partition(" ")
        if word == "does":
            t.does = [d.strip() for d in rest.split(" | ")]
        elif word == "arg":
            t.args.append(_param(rest))
        elif word == "opt":
            t.opts.append(_param(rest))
        elif word in ("ask", "miss", "both"):
            setattr(t, "asks" if word == "ask" else word, _wordings(rest))
        elif word == "gives":
            t.gives = [_given(g) for g in rest.split(", ")]
        elif word == "says":
            t.says = segments(rest)
        elif word == "brief":
            t.brief = [segments(b) for b in rest.split(" | ")]
        elif word == "plain":
            t.plain = [segments(b) for b in rest.split(" | ")]
        elif word == "beside":
            t.beside = [_given(g) for g in rest.split(", ")]
        elif word == "done":
            t.done = segments(rest)
        else:
            raise ValueError(line)
    return t


def _read(*files):
    tools = []
    for name in files:
        text = (DATA / f"tools_{name}.txt").read_text(encoding="utf-8")
        tools += [_tool(b) for b in text.strip().split("\n\n")]
    for t in tools:
        t.sure = sorted({w for w in re.findall(r"[a-z]+", " ".join(t.names + t.does).lower().replace("_", " ")) if len(w) > 3})
    return tools


def load():
    """The tools of which wordings are held out, then those for training alone: more of the world's tools, none of the tests'."""
    more = _read("more")
    for t in more:
        for part in ("asks", "miss", "both"):
            every = list(getattr(t, part))
            setattr(t, part, (every, every) if every else ())
    return hold_out(_read("life", "world", "home", "code")) + more


TOOLS = load()
BY_KEY = {t.key: t for t in TOOLS}
TRAIN = [t for t in TOOLS if not t.test]
TEST = [t for t in TOOLS if t.test]
KEPT = [t for t in TRAIN if t.kept]
assert all(t.does and t.asks[0] for t in TOOLS)


def camel(name):
    head, *rest = name.split("_")
    return head + "".join(w.capitalize() for w in rest)


def spelled(rng, name):
    """A tool name in one of the usual spellings."""
    if "_" not in name:
        return name
    r = rng.random()
    if r < 0.62:
        return name
    if r < 0.8:
        return camel(name)
    return name.replace("_", "-") if r < 0.9 else name.replace("_", ".", 1)


def decorated(rng, test, name):
    """The name with an addition that means nothing, so that names are read and not remembered."""
    r = rng.random()
    if r < 0.7:
        return name
    odd = invented(rng, test) if r < 0.85 else word1(rng, test)
    return (f"{odd}_{name}", f"{name}_{odd}", f"{name}_v{1 + int(r * 97) % 9}", f"{odd}.{name}", f"{name}{int(r * 997) % 100}",
            f"my_{name}", f"{name}_tool", f"{odd}-{name}", odd)[int(rng.random() * (9 if r < 0.85 else 8))]


def schema(rng, param, sure=False):
    s = {"type": TYPES.get(param.kind, "string")}
    if param.kind == "int" and rng.random() < 0.15:
        s["type"] = "number"
    if sure or rng.random() < 0.75:
        s["description"] = pick(rng, param.descriptions) + ("." if rng.random() < 0.15 else "")
        if rng.random() < 0.12 and param.kind in EXAMPLES:
            s["description"] = s["description"].rstrip(".") + ", e.g. " + draw(rng, False, param.kind, param.options)[0]
    if param.kind == "enum" or (param.kind == "enumfree" and rng.random() < 0.4):
        s["enum"] = list(param.options)
    if param.kind == "list":
        s["items"] = {"type": "string"}
    return s


def described(rng, does):
    r = rng.random()
    if r < 0.1:
        return does + ". " + pick(rng, MORE)
    if r < 0.5:
        return does + "."
    if r < 0.85:
        return does
    return ("Use this to " if r < 0.93 else "A tool to ") + does[0].lower() + does[1:] + "."


def declare(rng, tool, test=False, plain=False):
    """(declaration, name, what it does, key -> parameter name, the optional parameters it has)."""
    name = spelled(rng, pick(rng, tool.names) if rng.random() < 0.7 else tool.names[0])
    name = name if plain else decorated(rng, test, name)
    does = pick(rng, tool.does)
    opts = [o for o in tool.opts if rng.random() < 0.7]
    names, used, properties = {}, set(), {}
    turn = rng.random() < 0.12
    for p in tool.args + opts:
        n = pick(rng, p.names)
        while n in used:
            n = pick(rng, p.names + [p.key, p.key + "_value"])
        used.add(n)
        n = camel(n) if turn else n
        r = rng.random()
        if r < 0.1 and not plain:
            odd = f"{n}_{invented(rng, test)}" if r < 0.04 else f"{word1(rng, test)}_{n}" if r < 0.07 else f"{n}{1 + int(r * 1000) % 9}"
            n = n if odd in used else odd
            used.add(n)
        names[p.key] = n
        properties[n] = schema(rng, p, tool.test and len(tool.args) > 1)
    required = [names[p.key] for p in tool.args]
    declared = {"type": "function", "function": {"name": name, "description": described(rng, does), "parameters": {
        "type": "object", "properties": properties, "required": required}}}
    return declared, name, does, names, opts


def wording(rng, test, w, shown, suffix="", free=()):
    """The user text for a wording; `free` are the slots with free text."""
    if free:
        shown = dict(shown)
        for k in free:
            if k not in w.quoted and (k != w.last or suffix or rng.random() < 0.4):
                shown[k] = '"' + shown[k] + '"'
    r = rng.random()
    if r < 0.5 and not (test and rng.random() < 0.5):
        text = join(pick(rng, w.fair if test else w.outer), shown)
    else:
        lead = ""
        if r > 0.8 or not w.imperative:
            lead = pick(rng, BEFORE_TEST if test else BEFORE)
        if w.imperative and r < 0.93:
            lead += pick(rng, ASKING_TEST if test else ASKING)
        text = join(pick(rng, w.inner), shown)
        text = (lead[0].upper() + lead[1:] if rng.random() < 0.65 else lead) + text
    if suffix:
        mark = text[-1:] == "?"
        text = (text[:-1] if text[-1:] in "?." else text) + ("" if suffix[0] == "," else " ") + suffix
        text += "?" if mark and rng.random() < 0.6 else ""
    elif not free and w.imperative and text[-1:].isalnum() and rng.random() < 0.15:
        text += pick(rng, AFTER)
    return text


def values(rng, test, params):
    shown, given = {}, {}
    for p in params:
        shown[p.key], given[p.key] = draw(rng, test, p.kind, p.options)
    return shown, given


def ask(rng, test, tool=None):
    """A request to a tool of the catalogue. In the test split a held-out tool, or a trained one in a held-out wording."""
    if tool is None:
        tool = pick(rng, (TEST if rng.random() < 0.4 else KEPT) if test else TRAIN)
    declared, name, does, names, opts = declare(rng, tool, test)
    shown, given = values(rng, test, tool.args)
    w = pick(rng, tool.asks[test])
    args = {names[k]: v for k, v in given.items()}
    suffix = ""
    for o in opts:
        if o.phrases and rng.random() < (0.45 if not suffix else 0.2):
            text, v = draw(rng, test, o.kind, o.options)
            shown[o.key] = text
            suffix += (" " if suffix else "") + join(pick(rng, o.phrases), shown)
            args[names[o.key]] = v
    free = [p.key for p in tool.args if p.kind in FREE]
    text = wording(rng, test, w, shown, suffix, free)
    if not test and rng.random() < NOISE and not any([p.kind in ("task", "list", "topic", "title") for p in tool.args]):
        text = noise.noisy(rng, text, tool.sure + [v for v in shown.values() if v])
    return Ask(tool, declared, name, text, args, shown, does, names)


def said(value):
    """A value as a thought names it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return ", ".join(value) if isinstance(value, list) else str(value)


def thought(name, args, does=None):
    """What the model thinks before a call."""
    call = f"I call {name} with " + ", ".join([f"{k} {said(v)}" for k, v in args.items()]) + "." if args else f"I call {name}."
    return f"The user wants to {does[0].lower()}{does[1:]}. {call}" if does else call
