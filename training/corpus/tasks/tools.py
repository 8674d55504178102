"""Calls of tools: one call, two calls at once, and requests that need none.

Held out for test: tools, the last wording of every tool, names and nouns of generated tools, argument values (see `catalogue`,
`catalogue_synth`, `catalogue_values`), polite prefixes; for `tool_none` also the wordings in the *_TEST tables.
"""
from .. import catalogue, catalogue_synth, tool_frame
from ..catalogue import thought
from ..catalogue_values import made, pick
from .arithmetic import held
from ..dialogue import Dialogue, Reply, assistant, user

THINK = 0.25


def calls_dialogue(task, messages, tools, calls, reasoning):
    """A dialogue whose reply is these calls."""
    return Dialogue(task, messages, Reply("", reasoning, calls), {"kind": "calls", "calls": [[n, a] for n, a in calls]}, tools,
                    reasoning is not None)


def missing_question(param):
    """The question for an argument that was not given: "Which city do you mean?"."""
    param = {"q": "query", "n": "number", "b": "destination", "a": "origin", "to": "destination", "cmd": "command"}.get(param, param)
    words = "".join([" " + c.lower() if c.isupper() else c for c in param]).replace("_", " ").strip()
    return f"Which {words} do you mean?"


MISSING = [t for t in catalogue.TRAIN if t.miss]
PREFIXES = tuple(catalogue.BEFORE + catalogue.BEFORE_TEST)
# Kinds of which a request can name two in one breath, and whose values have no "and" of their own.
PAIRED = {"city", "country", "file", "dir", "person", "table", "stock", "word", "device", "room", "package", "url", "branch", "orderid", "int",
          "lang", "currency"}
SINGLE = [t for t in catalogue.TRAIN if len(t.args) == 1 and not t.opts and t.args[0].kind in PAIRED]
BOTH = ([t for t in catalogue.TRAIN if t.both], [t for t in catalogue.TEST if t.both])


def tool_call(rng, split):
    test = split == "test"
    if rng.random() < 0.04:
        return _answered(rng, test)
    a = tool_frame.ask(rng, test, 0.6 if test else 0.56)
    messages = tool_frame.opening(rng, test) + [user(a.text)]
    think = thought(a.name, a.args, a.does) if rng.random() < THINK else None
    return calls_dialogue("tool_call", messages, tool_frame.declared(rng, test, [a]), [(a.name, a.args)], think)


def _answered(rng, test):
    """The user left something out, was asked for it, and now gives it."""
    t = pick(rng, MISSING)
    while len(t.args) != 1 or t.args[0].kind in ("bool", "list"):
        t = pick(rng, MISSING)
    a = catalogue.ask(rng, test, t)
    p = t.args[0]
    a.args = {a.names[p.key]: a.args[a.names[p.key]]}
    given = a.shown[p.key]
    messages = tool_frame.opening(rng, test, 0) + [
        user(catalogue.wording(rng, test, pick(rng, t.miss[test]), {})), assistant(missing_question(a.names[p.key])),
        user(given if rng.random() < 0.6 else pick(rng, ("{} please", "{}, please", "I mean {}", "{}, thanks",
                                                         "the one I mean is {}", "it is {}", "make it {}", "let us say {}",
                                                         "{} of course", "ok, {}", "then {}",
                                                         "{}, ok?", "take {}", "sorry, {}")[: 8 if test else 14]).format(given))]
    think = thought(a.name, a.args, a.does) if rng.random() < THINK else None
    return calls_dialogue("tool_call", messages, tool_frame.declared(rng, test, [a]), [(a.name, a.args)], think)


def pair(rng, test):
    """(request, arguments of the first call, of the second, what was shown for both): "weather in Oslo and Rome"."""
    t = pick(rng, BOTH[test and rng.random() < 0.5])
    a = catalogue.ask(rng, test, t)
    p = t.args[0]
    name = a.names[p.key]
    if t.opts:
        a.args = {a.names[q.key]: a.args[a.names[q.key]] for q in t.args}
    shown, value = catalogue.draw(rng, test, p.kind, p.options)
    while value == a.args[name]:
        shown, value = catalogue.draw(rng, test, p.kind, p.options)
    both = {**a.shown, p.key + "2": shown}
    a.text = catalogue.wording(rng, test, pick(rng, t.both[test]), both)
    return a, a.args, {**a.args, name: value}, {**a.shown, p.key: shown}


def stretched(rng):
    """A pair like those of `pair` for any trained tool that takes one value: the value in the request becomes two. Or None."""
    t = pick(rng, SINGLE)
    a = catalogue.ask(rng, False, t)
    p = t.args[0]
    name, first = a.names[p.key], a.shown[p.key]
    shown, value = catalogue.draw(rng, False, p.kind, p.options)
    if value == a.args[name] or " and " in first or a.text.count(first) != 1 or f'"{first}"' in a.text:
        return None
    a.text = a.text.replace(first, f"{first} and {shown}")
    return a, a.args, {**a.args, name: value}, {**a.shown, p.key: shown}


def two_calls(rng, test):
    """(requests, user text, the two calls, what was shown for each)."""
    r = rng.random()
    if r < 0.6:
        made_pair = stretched(rng) if not test and r < 0.35 else None
        a, first, second, shown2 = made_pair or pair(rng, test)
        return [a], a.text, [(a.name, first), (a.name, second)], [a.shown, shown2]
    if r < 0.75:
        a = catalogue_synth.find(rng, test)
        p = next(iter(a.args))
        extra = made(rng, test) if isinstance(a.args[p], str) else a.args[p] + 1 + int(rng.random() * 50)
        while extra == a.args[p]:
            extra = made(rng, test)
        text = a.text.rstrip("?")
        text = text.replace(a.shown["x"], f"{a.shown['x']} and {extra}", 1) if a.shown["x"] in text else f"{text} and {extra}"
        return [a], text, [(a.name, a.args), (a.name, {p: extra})], [a.shown, {"x": str(extra)}]
    a, b = tool_frame.ask(rng, test, 0.35), tool_frame.ask(rng, test, 0.35)
    while b.name == a.name or b.tool.key in tool_frame.CLASH.get(a.tool.key, ()) or b.does == a.does or b.text.lower().startswith(PREFIXES):
        b = tool_frame.ask(rng, test, 0.35)
    joiner = pick(rng, (" and ", " and also ", ". Also, ", ", and ", ". And ", "; ", "\n"))
    tail = b.text if joiner == "\n" or len(b.text) < 2 or b.text[:2] == "I " else b.text[0].lower() + b.text[1:]
    if b.text.startswith(tuple(v for v in b.shown.values() if v)):
        tail = b.text
    return [a, b], a.text.rstrip("?.") + joiner + tail, [(a.name, a.args), (b.name, b.args)], [a.shown, b.shown]


def tool_parallel(rng, split):
    test = split == "test"
    requests, text, calls, _ = two_calls(rng, test)
    think = None
    if rng.random() < THINK:
        think = "This needs two calls. " + " ".join([thought(n, a) for n, a in calls])
    return calls_dialogue("tool_parallel", tool_frame.opening(rng, test, 0.06) + [user(text)],
                          tool_frame.declared(rng, test, requests, 2), calls, think)


CAPITALS = dict(zip(
    """France Italy Spain Germany Norway Sweden Denmark Finland Poland Austria Hungary Greece Portugal Ireland Iceland Belgium Japan
    China India Egypt Kenya Peru Chile Cuba Canada Australia Russia Ukraine Turkey Iran Iraq Thailand Vietnam Croatia Serbia
    Romania Bulgaria Estonia Latvia Lithuania""".split(),
    """Paris Rome Madrid Berlin Oslo Stockholm Copenhagen Helsinki Warsaw Vienna Budapest Athens Lisbon Dublin Reykjavik Brussels
    Tokyo Beijing New-Delhi Cairo Nairobi Lima Santiago Havana Ottawa Canberra Moscow Kyiv Ankara Tehran Baghdad Bangkok Hanoi
    Zagreb Belgrade Bucharest Sofia Tallinn Riga Vilnius""".split()))
CAPITALS = [(c, v.replace("-", " ")) for c, v in CAPITALS.items()]
CAPITAL_ASK = ["what is the capital of {}?", "capital of {}?", "which city is the capital of {}?", "what's the capital of {}?",
               "name the capital of {}",
               "tell me the capital of {}", "the capital of {} is?", "do you know the capital of {}?", "{}'s capital?",
               "give me the capital of {}"]
CAPITAL_TEST = ["what is {}'s capital?", "tell me which city is the capital of {}", "do you know which city is the capital of {}?"]
SUM_ASK = ["what is {}?", "{}?", "how much is {}?", "{} = ?", "what's {}?", "tell me {}", "{} makes?", "do you know {}?", "{}"]
SUM_TEST = ["tell me what {} is", "do you know how much {} is?", "how much makes {}?"]
GREET = ["hi", "hello", "hey", "hello there", "hi there", "hey!", "Hello!", "Hi!", "good day", "greetings", "hi, how are you?",
         "hello assistant", "yo", "hallo", "hi assistant", "hey there", "my friend, hello", "hi my friend", "hello again",
         "good day assistant", "hey, how are you?", "hello!!", "hey you"]
GREET_TEST = ["hi again!", "hello my friend", "hey assistant", "hello you", "good day, my friend"]
HELLO = "Hello! How can I help you?"
THANKS = ["thanks", "thank you", "thanks a lot", "thank you very much", "great, thanks", "Thanks!", "perfect, thank you", "cheers",
          "ok thanks", "many thanks", "thank you so much", "that was all, thanks", "good, thank you", "nice, thanks", "thanks again",
          "lovely, thanks", "super, thank you", "thank you for that", "thanks, that helps", "thanks for the help"]
THANKS_TEST = ["thanks so much", "lovely, thank you", "great, thank you very much", "thanks for that"]
KNOWING = {"capital": {"web_search", "wikipedia", "get_population"}, "sum": {"calculate", "tip_calculator", "percent_of"}, "": set()}
NO_TOOL = "I do not have a tool for that."


def _cased(rng, text):
    return text[0].upper() + text[1:] if rng.random() < 0.6 else text.replace("?", "") if rng.random() < 0.3 else text


# Tools that could answer what other tasks ask; not declared beside a question that needs none.
ABLE = {"web_search", "wikipedia", "calculate", "define_word", "find_synonyms", "translate", "spell_check", "count_words",
        "convert_units", "now",
        "get_time", "get_population", "random_number", "roll_dice", "generate_image", "get_distance", "book_info", "movie_info",
        "tip_calculator",
        "create_note", "find_recipe", "get_timezone", "airport_info", "get_news", "public_holidays", "convert_currency", "get_weather",
        "get_forecast", "set_timer", "create_reminder", "percent_of", "opposite_of", "rhyme_words", "pronounce", "remember_that",
        "currency_of", "birthday_of", "write_diary", "area_of_room"}
MINE = {"tool_call", "tool_parallel", "tool_none", "tool_result", "agents", "json_answer", "mixed"}
OTHER = []


def _borrowed(rng, split):
    """A dialogue of another task with tools declared that do not matter, or None."""
    if not OTHER:
        from . import TASKS as every
        OTHER.extend([every[k][1] for k in sorted(every) if k not in MINE] or [None])
    make = pick(rng, OTHER)
    d = make and make(rng, split)
    if not d or d.tools or d.reply.calls or sum([len(m["content"] or "") for m in d.messages]) > 1200:
        return None
    while not d.tools:
        d.tools = tool_frame.declared(rng, split == "test", [], 3, ABLE)
    d.task = "tool_none"
    return d


def _needless(rng, test):
    """(user text, answer, thought, rule, keys of tools that must not be declared) for a question that needs no tool."""
    r = rng.random()
    lead = pick(rng, catalogue.BEFORE_TEST if test else catalogue.BEFORE) if rng.random() < 0.3 else ""
    if r < 0.4:
        country, city = pick(rng, CAPITALS)
        answer = f"The capital of {country} is {city}."
        text = lead + pick(rng, CAPITAL_TEST if test else CAPITAL_ASK).format(country)
        return text, answer, answer + " No tool is needed.", {"kind": "contains", "any": [city]}, KNOWING["capital"]
    if r < 0.75:
        a, b = 1 + int(rng.random() * 60), 1 + int(rng.random() * 40)
        while held(a, b) != test:
            a, b = 1 + int(rng.random() * 60), 1 + int(rng.random() * 40)
        s = pick(rng, ("{} + {}", "{}+{}", "{} plus {}")).format(a, b)
        answer = f"{a} + {b} = {a + b}."
        text = lead + pick(rng, SUM_TEST if test else SUM_ASK).format(s)
        return text, answer, f"This is a sum. {a} + {b} = {a + b}. No tool is needed.", {"kind": "number", "value": a + b}, KNOWING["sum"]
    if r < 0.9:
        return pick(rng, GREET_TEST if test else GREET), HELLO, "The user greets me. No tool is needed.", {"kind": "contains",
                                                            "any": ["help"]}, ()
    return (pick(rng, THANKS_TEST if test else THANKS), "You are welcome.", "The user says thanks. No tool is needed.",
            {"kind": "contains", "any": ["welcome"]}, ())


def tool_none(rng, split):
    test = split == "test"
    r = rng.random()
    if r < 0.3:
        d = _borrowed(rng, split)
        if d:
            return d
    if r < 0.6:
        text, answer, think, expect, avoid = _needless(rng, test)
        tools, text = [], _cased(rng, text)
        while not tools:
            tools = tool_frame.declared(rng, test, [], 4, avoid)
    elif r < 0.88:
        t = pick(rng, MISSING)
        a = catalogue.ask(rng, test, t)
        name = a.names[t.args[0].key]
        text = catalogue.wording(rng, test, pick(rng, t.miss[test]), {})
        answer = missing_question(name)
        think = f"The user wants to {a.does[0].lower()}{a.does[1:]}. The {name} is missing. I ask for it."
        tools, expect = tool_frame.declared(rng, test, [a]), {"kind": "equals", "any": [answer]}
    else:
        a = tool_frame.ask(rng, test)
        text, answer = a.text, NO_TOOL
        think = f"The user wants to {a.does[0].lower()}{a.does[1:]}. No tool here does that."
        avoid = {a.tool.key} | tool_frame.CLASH.get(a.tool.key, frozenset())
        tools = []
        while not tools:
            tools = [t for t in tool_frame.declared(rng, test, [], 3, avoid) if t["function"]["name"] != a.name]
        expect = {"kind": "contains", "any": ["not have a tool", "no tool"]}
    reasoning = think if rng.random() < THINK else None
    messages = tool_frame.opening(rng, test) + [user(text)]
    return Dialogue("tool_none", messages, Reply(answer, reasoning), expect, tools, reasoning is not None)


TASKS = {"tool_call": (56, tool_call), "tool_parallel": (12, tool_parallel), "tool_none": (4, tool_none)}
