"""Answers as JSON: fields out of a sentence, lists, "key: value" lines, facts, true and false.

One form always: `{"name": "Anna", "age": 31}`, keys in the order asked for. Held out for test: values (`catalogue_values`), the
sentences marked * in data/tools_sentences.txt, the wordings in the *_TEST tables, and every seventh of LABELS as a key.
"""
import json
import re

from .. import noise
from ..catalogue_values import DATA, TEXT, draw_number, invented, made, pick, spoken, word1
from .arithmetic import held
from ..dialogue import Dialogue, Reply, assistant, system, user
from .tools import CAPITALS

THINK = 0.15
SYSTEM = ["You answer in JSON.", "Always answer with JSON.", "Reply with JSON only.", "You are a helpful assistant.",
          "You are Fieldfare.", "Output JSON, nothing else.",
          "Your answers are JSON objects.", "You extract data as JSON.", "Answer only with valid JSON.",
          "You are a data extraction tool.", "JSON only, no prose."]
SYSTEM_TEST = ["Your answers are JSON only.", "You answer with JSON objects, nothing else.", "Answer with valid JSON, no prose."]
ASK = ["Give me JSON with {k}: {s}", "JSON with {k}: {s}", "Extract {k} as JSON: {s}", "Extract {k} as JSON from this text: {s}",
       "Make a JSON object with {k}. {s}", "{s} Give me {k} as JSON.", "{s} Turn this into JSON with the keys {k}.",
       "{s} Answer as JSON with {k}.", "Return {k} as JSON: {s}", "{s}\nJSON with {k} please", "Read this: {s} Now write {k} as JSON.",
       "I need {k} in JSON from this sentence: {s}", "Convert to JSON ({k}): {s}", "{s} -> JSON with {k}",
       "As JSON with the fields {k}: {s}",
       "Please extract {k} from the text below as a JSON object.\n{s}", "Text: {s}\nKeys: {k}\nFormat: JSON",
       "Parse this into JSON with {k}: {s}", "Write a JSON object with {k} for: {s}", "Pull {k} out of this and answer in JSON: {s}",
       "to json, {k}: {s}", "What are {k} in this text? Answer in JSON. {s}", "Fill a JSON object with {k}. Text: {s}",
       "json please, {k}\n{s}",
       "{s}\n\nExtract {k}. Reply with JSON only.", "Get me {k} from \"{s}\" as JSON", "Can you give {k} as JSON? {s}",
       "Summarise as JSON, keys {k}: {s}", "Put {k} in a JSON object: {s}", "{s} I would like {k} of that in JSON.",
       "Produce JSON holding {k} out of: {s}", "Take {k} out of this text and put them into JSON: {s}", "Text: {s} JSON keys: {k}.",
       "Here is a text: {s} I want JSON with {k} from it.", "{s}\nPut {k} of this text into JSON.", "Keys {k}, format JSON, text: {s}",
       "Find {k} in this text and write them as JSON: {s}", "JSON object, keys {k}, from this: {s}", "{k} as JSON please: {s}",
       "Look at this sentence: {s} Give {k} of it in JSON.", "Create JSON with the keys {k} from the text: {s}",
       "Read {k} out of: {s} Use JSON.",
       "Build a JSON object that has {k}. The text is: {s}", "Use JSON for {k} here: {s}", "Show {k} as a JSON object: {s}",
       "{s} Please answer with JSON that has the keys {k}.", "Return a JSON object with the keys {k} for this text: {s}",
       "From \"{s}\" make JSON with {k}.", "{s}\n\nGive me a JSON object with {k}.", "I want {k} as JSON. {s}", "JSON ({k}) from: {s}",
       "In JSON, what are {k} here? {s}", "Write {k} of this text in JSON: {s}", "With the keys {k}, turn this into JSON: {s}",
       "Here: {s} Now JSON with {k}.", "Could you put {k} in JSON? {s}", "Make JSON of {k} in: {s}",
       "Take {k} from this and reply in JSON: {s}", "Look for {k}, then answer in JSON: {s}", "Get {k} and give me JSON: {s}",
       "Extract {k} and answer with JSON: {s}", "Read {k} and write JSON: {s}", "Pull out {k} and answer as JSON: {s}",
       "Tell me {k} and answer in JSON only: {s}", "{s} Find {k}, answer in JSON."]
ASK_TEST = ["Put {k} of this sentence in a JSON object: {s}", "{s} I want {k} of that in JSON.",
    "Make JSON with the keys {k} out of: {s}",
            "Summarise this text as JSON with {k}: {s}", "Look at this text: {s} Extract {k} as JSON.",
            "Please write {k} as a JSON object: {s}",
            "Text: {s} Now return {k} as JSON.", "As a JSON object with the keys {k}: {s}", "Find {k} and answer in JSON: {s}"]
BARE = ["Extract {k}: {s}", "{k}: {s}", "{s}\nFields: {k}", "Get {k} from: {s}", "{s} I need {k}.", "Read out {k}: {s}",
    "Find {k}: {s}", "{s} Extract {k}.", "I need {k} from: {s}",
        "Pull {k} out of: {s}", "Get {k}: {s}", "{s} Give me {k}."]
BARE_TEST = ["Read {k} out of: {s}", "Extract {k} from: {s}"]


def _int(low, high):
    return lambda rng, test: low + int(rng.random() * (high - low + 1))


def _price(rng, test):
    return draw_number(rng, 2, 300)


JOBS = ("teacher nurse baker pilot plumber painter farmer lawyer gardener cook driver writer doctor dentist "
        "carpenter tailor singer judge clerk").split()
SPORTS = "tennis football chess hockey rugby golf volleyball badminton handball basketball".split()
PETS = "dog cat parrot horse rabbit hamster turtle goat".split()


def _of(values):
    """One of the values, or any word."""
    if len(values) < 8:
        return lambda rng, test: pick(rng, values)
    return lambda rng, test: pick(rng, values) if rng.random() < 0.6 else _open(rng, test)


def _open(rng, test):
    return word1(rng, test) if rng.random() < 0.5 else invented(rng, test)


def _proper(rng, test):
    return invented(rng, test).capitalize()


def _kind(text):
    """The maker of the values of a kind as data/tools_sentences.txt names it."""
    word, *options = text.split()
    if word == "int":
        return _int(int(options[0]), int(options[1]))
    return KINDS_HERE.get(word) or TEXT[word]


KINDS_HERE = {"job": _of(JOBS), "sport": _of(SPORTS), "pet": _of(PETS), "price": _price, "state": _of(["on", "off"]), "proper": _proper,
              "orderid2": lambda rng, test: pick(rng, ("A", "B", "ORD-", "X", "K-")) + TEXT["number"](rng, test),
              "country2": lambda rng, test: _proper(rng, test)}


def _groups():
    """(fields with the makers of their values, sentences for training, sentences for test) of data/tools_sentences.txt."""
    lines = (DATA / "tools_sentences.txt").read_text(encoding="utf-8").splitlines()[1:]
    out = []
    for fields, train, test in zip(lines[::3], lines[1::3], lines[2::3]):
        fields = {f.split(" ", 1)[0]: _kind(f.split(" ", 1)[1]) for f in fields.split(", ")}
        out.append((fields, train.split(" | "), test.removeprefix("* ").split(" | ")))
    return out


GROUPS = _groups()
LABELS = ("name age city job email phone product price quantity title author year color size status country id owner model weight category "
          "room total date count version language brand street level").split()
LABELS_TRAIN = [k for i, k in enumerate(LABELS) if i % 7 != 3]
LABEL_KINDS = {"name": TEXT["person"], "age": _int(3, 95), "city": TEXT["city"], "job": _of(JOBS), "email": TEXT["email"],
               "phone": TEXT["phone"],
               "product": TEXT["thing"], "price": _price, "quantity": _int(1, 90), "title": TEXT["title"], "author": TEXT["person"],
               "year": _int(1900, 2030),
               "color": TEXT["colour"], "status": _of(["open", "closed", "new", "active", "done"]), "country": TEXT["country"],
               "id": _int(1, 9999),
               "owner": TEXT["person"], "weight": _price, "total": _price, "date": TEXT["date"], "count": _int(0, 500),
              
               "language": TEXT["lang"], "size": _of(["small", "medium", "large"]), "room": TEXT["room"], "level": _int(1, 50)}
LINES = ["Convert to JSON:\n{s}", "Turn this into JSON:\n{s}", "{s}\nas JSON please", "Make JSON of this:\n{s}",
         "Write this as a JSON object:\n{s}", "to json:\n{s}",
         "{s}\n\nConvert these lines to JSON.", "Here are some lines:\n{s}\nGive them as JSON.", "JSON of the following:\n{s}",
         "I need this in JSON:\n{s}",
         "{s}\n-> JSON", "Please format as JSON:\n{s}", "Parse this to JSON:\n{s}", "make that json\n{s}",
         "Change this to a JSON object.\n{s}"]
LINES += ["The JSON form of\n{s}", "Rewrite in JSON:\n{s}", "Put these lines into JSON:\n{s}", "{s}\nPlease write this as JSON.",
          "Give me these lines as a JSON object:\n{s}", "{s}\n\nGive me that in JSON.", "json:\n{s}", "Create JSON from this:\n{s}",
          "Take these lines and make JSON:\n{s}", "{s}\nas a JSON object", "Return the lines as JSON:\n{s}", "Show this in JSON:\n{s}",
          "{s}\nTurn that into JSON", "I want JSON for\n{s}", "Fields:\n{s}\nFormat: JSON", "Read the lines and answer in JSON:\n{s}"]
LINES_TEST = ["Write these lines as JSON:\n{s}", "{s}\nMake a JSON object of this.", "Convert the following to JSON:\n{s}",
              "I need these lines as a JSON object:\n{s}"]
LISTS = {"colours": ["red", "blue", "green", "yellow", "black", "white"], "fruits": ["apple", "banana", "orange", "pear", "grape",
    "lemon"],
         "animals": ["cat", "dog", "horse", "cow", "sheep", "goat"], "days of the week": ["Monday", "Tuesday", "Wednesday", "Thursday",
                                                            "Friday", "Saturday"],
         "months": ["January", "February", "March", "April", "May", "June"],
         "planets": ["Mercury", "Venus", "Earth", "Mars", "Jupiter", "Saturn"],
         "countries": ["France", "Italy", "Spain", "Norway", "Japan", "Kenya"],
         "vegetables": ["carrot", "onion", "potato", "tomato", "cabbage", "pea"],
         "birds": ["robin", "crow", "eagle", "owl", "duck", "swan"], "metals": ["iron", "gold", "silver", "copper", "tin", "lead"],
         "seasons": ["spring", "summer", "autumn", "winter"], "tools": ["hammer", "saw", "drill", "pliers", "wrench", "screwdriver"],
         "numbers": [1, 2, 3, 4, 5, 6], "even numbers": [2, 4, 6, 8, 10, 12], "letters": ["a", "b", "c", "d", "e", "f"]}
COUNTS = {2: "two", 3: "three", 4: "four", 5: "five"}
NAME_N = ["Give me {n} {x} as a JSON array", "a JSON list of {n} {x}", "{n} {x} as JSON", "name {n} {x}, answer as a JSON array",
          "List {n} {x} in JSON.",
          "JSON array with {n} {x} please", "write {n} {x} as a JSON list", "Tell me {n} {x} as a JSON array.",
          "I want {n} {x} in a JSON array", "Output {n} {x} as JSON."]
NAME_N += ["Make a JSON array of {n} {x}", "Answer with a JSON array of {n} {x}.", "Could I get {n} {x} in JSON?",
    "{n} {x}, as a JSON array",
           "I need a JSON array that has {n} {x}", "Return {n} {x} as a JSON list.", "Show me {n} {x} in a JSON array",
           "which {n} {x} do you know? JSON array",
           "In JSON, give me {n} {x}", "Give {n} {x} as an array in JSON", "Can you list {n} {x} as JSON?",
           "Please name {n} {x} as a JSON array."]
NAME_N_TEST = ["Could I get {n} {x} as a JSON array?", "I want a JSON list of {n} {x}.", "Return a JSON array with {n} {x}."]
ARRAY = ["Turn this list into a JSON array: {s}", "JSON array of {s}", "Make a JSON array: {s}", "{s} as a JSON array",
         "{s} -> JSON list", "Write {s} as a JSON array.",
         "put these in a JSON array: {s}", "as JSON list: {s}", "List in JSON: {s}", "Convert {s} to a JSON array",
         "json array please: {s}", "I have {s}. Give me that as a JSON array."]
ARRAY += ["A JSON array of {s}", "I want a JSON array of {s}", "Make a JSON list of {s}", "Return {s} as a JSON array",
    "Give me {s} as a JSON array",
          "Put {s} in a JSON array", "{s}: as a JSON array please", "Here is a list: {s}. JSON array please", "this list as JSON: {s}",
          "Please give these as a JSON list: {s}", "Show {s} as a JSON list", "Create a JSON array with {s}",
          "Take {s} and make a JSON array"]
ARRAY_TEST = ["I want {s} as a JSON array", "Please make a JSON list of {s}", "Convert this list to a JSON array: {s}"]
FACT = ["Give the capital of {c} as JSON with country and capital", "{c} and its capital as JSON with country and capital",
        "JSON with country and capital for {c}",
        "What is the capital of {c}? Answer as JSON with country and capital.", "Write a JSON object with country and capital: {c}",
        "country and capital of {c} in JSON",
        "capital of {c}, as JSON with the keys country and capital", "Return JSON with country and capital for {c}."]
FACT += ["JSON for {c}: country and capital", "I need country and capital of {c} as JSON",
    "Which capital has {c}? JSON with country and capital",
         "Put {c} and its capital in JSON with country and capital", "Make a JSON object with country and capital for {c}."]
FACT_TEST = ["I need JSON with country and capital for {c}.", "Make JSON with country and capital of {c}"]
TRUTH = [("Is {a} greater than {b}?", "greater", lambda a, b: a > b), ("Is {a} smaller than {b}?", "smaller", lambda a, b: a < b),
         ("Is {a} equal to {b}?", "equal", lambda a, b: a == b), ("Is {a} more than {b}?", "more", lambda a, b: a > b),
         ("Is {a} less than {b}?", "less", lambda a, b: a < b)]
TRUTH_ASK = ["{q} Answer as JSON with {k} true or false.", "{q} JSON with the key {k}", "JSON with {k} (true or false): {q}",
             "{q} Reply with JSON, key {k}.",
             "Answer in JSON with {k}: {q}"]
TRUTH_ASK += ["{q} Give me JSON with {k}.", "{q} Write a JSON object with {k}, true or false.", "{q} I want JSON with the key {k}.",
              "JSON please, key {k}: {q}", "{q} (JSON, {k})", "Say it in JSON with {k}: {q}", "{q} Use the key {k} and JSON."]
TRUTH_TEST = ["{q} Answer in JSON with the key {k}.", "Give me JSON with {k} true or false: {q}"]
FLAGS = [("active", "The account of {n} is active.", "The account of {n} is not active."),
         ("open", "The shop {n} is open.", "The shop {n} is closed."),
         ("member", "{n} is a member.", "{n} is not a member."), ("paid", "{n} has paid.", "{n} has not paid yet."),
         ("sold", "The house of {n} is sold.", "The house of {n} is not sold."),
         ("vegetarian", "{n} eats no meat.", "{n} eats meat."), ("married", "{n} is married.", "{n} is not married."),
         ("late", "{n} came too late.", "{n} was on time.")]


dumps = json.JSONEncoder(ensure_ascii=False).encode


def _keys(rng, keys):
    r = rng.random()
    if r < 0.7:
        return spoken(keys)
    return ", ".join(keys) if r < 0.9 else ", ".join([f'"{k}"' for k in keys])


def _sentence(rng, test):
    fields, sentences, held = pick(rng, GROUPS)
    values = {k: f(rng, test) for k, f in fields.items()}
    s = pick(rng, held if test else sentences).format(**values)
    keys = list(fields)
    for i in range(len(keys) - 1, 0, -1):
        j = int(rng.random() * (i + 1))
        keys[i], keys[j] = keys[j], keys[i]
    if rng.random() < 0.55:
        keys = [k for k in fields if k in keys]
    keys = keys[: pick(rng, (1, 2, 2, 3, 3, 3))]
    shown = {k: k for k in keys}
    if rng.random() < 0.15:
        shown[keys[0]] = pick(rng, {"name": ["person", "who", "full_name"], "city": ["place", "town"], "age": ["years"]}.get(keys[0],
                                                            [keys[0]]))
    bare = rng.random() < 0.2
    templates = (BARE_TEST if test else BARE) if bare else (ASK_TEST if test else ASK)
    text = pick(rng, templates).format(k=_keys(rng, list(shown.values())), s=s)
    return text, {shown[k]: values[k] for k in keys}, bare


def _lines(rng, test):
    fields = {}
    while len(fields) < 2 or (len(fields) < 5 and rng.random() < 0.5):
        k = _label(rng, test)
        fields[k] = LABEL_KINDS[k](rng, test) if k in LABEL_KINDS and rng.random() < 0.7 else _anything(rng, test)
    if rng.random() < 0.2:
        fields[pick(rng, ("active", "paid", "open", "valid", "admin"))] = rng.random() < 0.5
    mark, between = pick(rng, ((": ", "\n"), (": ", "\n"), (" = ", "\n"), ("=", "\n"), (": ", ", "), (": ", "; ")))
    s = between.join([f"{k}{mark}{dumps(v) if isinstance(v, bool) else v}" for k, v in fields.items()])
    return pick(rng, LINES_TEST if test else LINES).format(s=s), fields, False


STATES = ["the {k} is {v}", "{k} is {v}", "its {k} is {v}", "{k} {v}", "a {k} of {v}", "the {k} was {v}", "with {k} set to {v}",
          "with the {k} {v}", "the {k} {v}", "my {k} is {v}", "{v} is the {k}", "{v} as {k}", "{k} = {v}", "we have the {k} {v}",
          "it has the {k} {v}", "{v} is its {k}", "{k}: {v}", "our {k} is {v}", "the {k} should be {v}", "a {k} that is {v}"]
STATES_TEST = ["its {k} was {v}", "with a {k} of {v}", "{v} was the {k}", "it has a {k} of {v}", "the {k} set to {v}"]


def _label(rng, test):
    r = rng.random()
    if r < 0.4:
        return pick(rng, LABELS if test else LABELS_TRAIN)
    return _open(rng, test) if r < 0.85 else f"{_open(rng, test)}_{_open(rng, test)}" if r < 0.92 else made(rng, test)


def _anything(rng, test):
    r = rng.random()
    if r < 0.35:
        return int(10 ** (rng.random() * 5))
    if r < 0.45:
        return _price(rng, test)
    return _proper(rng, test) if r < 0.6 else _open(rng, test) + " " + _open(rng, test) if r < 0.7 else made(rng, test)


def _stated(rng, test):
    """Any keys at all: "The colour is red, the size is small and the pulim is 7."."""
    fields = {}
    while len(fields) < 1 or (len(fields) < 4 and rng.random() < 0.7):
        k = _label(rng, test)
        fields[k] = LABEL_KINDS[k](rng, test) if k in LABEL_KINDS and rng.random() < 0.7 else _anything(rng, test)
    form = pick(rng, STATES_TEST if test else STATES)
    s = spoken([form.format(k=k, v=v) for k, v in fields.items()])
    keys = [k for k in fields if rng.random() < 0.75] or [k]
    if rng.random() < 0.4:
        keys.reverse()
    text = pick(rng, ASK_TEST if test else ASK).format(k=_keys(rng, keys), s=s[0].upper() + s[1:] + ".")
    return text, {k: fields[k] for k in keys}, False


EXAMPLE = {"name": "Anna", "age": 31, "city": "Oslo", "email": "anna@example.com", "job": "teacher", "price": 10, "quantity": 2,
           "color": "red", "id": 1,
           "title": "Hello", "year": 2026, "country": "Norway", "active": True, "date": "2026-11-29", "product": "lamp", "count": 3}
SAMPLE = ["Give me an example of a JSON object with {k}.", "write some JSON with {k}", "an example JSON with {k}",
          "make up a JSON object with {k}", "JSON example with {k}",
          "show me JSON that has {k}", "Can you write a JSON object with {k}?", "a sample JSON object with the keys {k}",
          "Invent a JSON object with {k}.",
          "I need a test JSON with {k}", "any JSON object with {k} please", "create JSON with {k}", "Generate a JSON object with {k}"]
SAMPLE += ["Could you show me some JSON with {k}?", "Some JSON example with {k} please", "an example of JSON that has {k}",
    "Example: JSON with {k}",
           "Make a test JSON object with {k}", "Can you make up JSON with {k}?", "give me any JSON with {k}", "sample JSON, keys {k}"]
SAMPLE_TEST = ["Could you make up a JSON object with {k}?", "Show me an example JSON with {k}.", "I need a sample JSON that has {k}"]


def _example(rng, test):
    keys = list(dict.fromkeys(pick(rng, list(EXAMPLE)) for _ in range(1 + int(rng.random() * 4))))
    text = pick(rng, SAMPLE_TEST if test else SAMPLE).format(k=_keys(rng, keys))
    return text if rng.random() < 0.6 else text[0].lower() + text[1:], {k: EXAMPLE[k] for k in keys}, False


def _list_of(rng, test):
    what = pick(rng, list(LISTS))
    n = 2 + int(rng.random() * (3 if len(LISTS[what]) < 5 else 4))
    t = pick(rng, NAME_N_TEST if test else NAME_N).format(n=COUNTS[n] if rng.random() < 0.5 else n,
                                                          x=what if rng.random() < 0.8 or what != "colours" else "colors")
    return t[0].upper() + t[1:] if rng.random() < 0.5 else t, LISTS[what][:n], False


def _array(rng, test):
    n = 2 + int(rng.random() * 4)
    r = rng.random()
    if r < 0.25:
        items = [int(rng.random() ** 2 * 1000) for _ in range(n)]
    else:
        kind = pick(rng, ("item", "city", "person", "made", "colour", "thing", "file", "food"))
        items = list(dict.fromkeys(TEXT[kind](rng, test) for _ in range(n)))
    if len(items) < 2:
        return _array(rng, test)
    words = [str(i) for i in items]
    t = pick(rng, ARRAY_TEST if test else ARRAY)
    lines = t.endswith("{s}") and rng.random() < 0.4
    s = pick(rng, ("\n".join(words), "\n- ".join([""] + words)) if lines else (spoken(words), ", ".join(words), ", ".join(words)))
    return t.format(s=s), items, False


def _fact(rng, test):
    country, city = pick(rng, CAPITALS)
    t = pick(rng, FACT_TEST if test else FACT).format(c=country)
    return t if rng.random() < 0.8 else t[0].lower() + t[1:] if t[0] in "GWR" else t, {"country": country, "capital": city}, False


def _truth(rng, test):
    if rng.random() < 0.5:
        q, key, f = pick(rng, TRUTH)
        a, b = int(rng.random() * 100), int(rng.random() * 100)
        while held(a, b) != test:
            a, b = int(rng.random() * 100), int(rng.random() * 100)
        if key == "equal" and rng.random() < 0.4:
            b = a
        return pick(rng, TRUTH_TEST if test else TRUTH_ASK).format(q=q.format(a=a, b=b), k=key), {key: f(a, b)}, False
    key, yes, no = pick(rng, FLAGS)
    name, true = TEXT["person"](rng, test), rng.random() < 0.5
    s = (yes if true else no).format(n=name)
    keys = ["name", key]
    return pick(rng, ASK_TEST if test else ASK).format(k=_keys(rng, keys), s=s), {"name": name, key: true}, False


def _records(rng, test):
    """Two or three people as an array of objects."""
    people = [(TEXT["person"](rng, test), 5 + int(rng.random() * 80)) for _ in range(2 + int(rng.random() * 2))]
    s = spoken([pick(rng, ("{} is {}", "{} ({})", "{} is {} years old")).format(*p) for p in people])
    t = pick(rng, RECORDS_TEST if test else RECORDS).format(s)
    return t, [{"name": n, "age": a} for n, a in people], False


RECORDS = ["A JSON array of objects with name and age: {}.", "{}. Give me a JSON array with name and age.",
    "{}: JSON array of objects please, name and age",
           "Extract all people with name and age as a JSON array: {}.", "As a JSON list with name and age: {}.",
           "JSON array, name and age: {}",
           "Make a JSON array with name and age of all people: {}.", "{} - JSON array of name and age please",
           "Give me all people in a JSON array: {}.",
           "Turn this into a JSON array of objects with name and age: {}.", "I want a JSON array with name and age of these people: {}",
           "These people: {}. JSON array with name and age."]
RECORDS_TEST = ["Give me a JSON array of objects with name and age: {}.", "{}. Make a JSON array with name and age.",
                "All people with name and age in a JSON array: {}"]
KINDS = [(0.34, _sentence), (0.52, _stated), (0.66, _lines), (0.72, _list_of), (0.8, _array), (0.84, _example), (0.88, _fact),
         (0.95, _truth), (1.0, _records)]
EARLIER = [("Hello", "Hello! How can I help you?"), ("hi", "Hello! How can I help you?"), ("thanks", "You are welcome."),
           ("What is 3 + 4?", "3 + 4 = 7."),
           ("JSON array of 1, 2, 3", "[1, 2, 3]"), ("name: Tom\nage: 9\nas JSON please", '{"name": "Tom", "age": 9}')]


def _thought(value):
    if isinstance(value, dict):
        return "The fields are " + ", ".join([f"{k} {v if isinstance(v, str) else dumps(v)}" for k, v in value.items()]) + "."
    return f"The array has {len(value)} entries."


def _kept(value, text):
    """What noise may not touch: the source sentence as a whole, found as all words beside keys and values, and every key."""
    if not isinstance(value, dict):
        return [text]
    keep = list(value) + [str(v) for v in value.values()] + ["JSON", "json"]
    return keep + [w for w in re.findall(r"[\w'-]+", text) if len(w) < 3 or w not in LOOSE]


LOOSE = set("""give with extract from this text make object turn into keys answer return please read write need sentence convert
fields below parse pull what fill reply only get can would like that take put them want find look create use show here
could there the""".split())


def json_answer(rng, split):
    test = split == "test"
    r = rng.random()
    text, value, bare = next(make for limit, make in KINDS if r < limit)(rng, test)
    messages = []
    if bare:
        messages.append(system(pick(rng, SYSTEM_TEST if test else SYSTEM_JSON)))
    elif rng.random() < 0.2:
        messages.append(system(pick(rng, SYSTEM_TEST if test else SYSTEM)))
    if rng.random() < 0.08:
        q, a = pick(rng, EARLIER)
        messages += [user(q), assistant(a)]
    if not bare and rng.random() < 0.2 and text.startswith(VERBS):
        lead = pick(rng, LEADS_TEST if test else LEADS)
        text = (lead[0].upper() + lead[1:] if rng.random() < 0.6 else lead) + text[0].lower() + text[1:]
    elif rng.random() < 0.08:
        text = text[0].lower() + text[1:] if text.startswith(("Give", "Extract", "Make", "Return", "Convert", "Turn", "Write")) else text
    if not test and rng.random() < 0.18:
        text = noise.noisy(rng, text, _kept(value, text))
    messages.append(user(text))
    reasoning = _thought(value) if rng.random() < THINK else None
    return Dialogue("json_answer", messages, Reply(dumps(value), reasoning), {"kind": "json", "value": value}, [], reasoning is not None)


VERBS = ("Give", "Extract", "Make", "Return", "Convert", "Turn", "Write", "Parse", "Pull", "Get", "Fill", "Put", "List", "Output",
         "Produce")
LEADS = ["please ", "hey, ", "hi, ", "could you ", "can you ", "can you please ", "I want you to ", "ok, ", "now ", "hello, please ",
         "I need you to ", "would you "]
LEADS_TEST = ["hi, can you ", "ok, now ", "hello, could you "]
SYSTEM_JSON = [s for s in SYSTEM if "JSON" in s]
TASKS = {"json_answer": (16, json_answer)}
