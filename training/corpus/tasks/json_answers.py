"""Answers as JSON: fields out of a sentence, lists, "key: value" lines, facts, true and false.

One form always: `{"name": "Anna", "age": 31}`, keys in the order asked for. Held out for test: values (`catalogue_values`), the last
sentence form of each field group, the wordings in the *_TEST tables, and every seventh of LABELS as a key.
"""
import json

from ..catalogue_values import TEXT, draw_number, made, pick, spoken
from .arithmetic import held
from ..dialogue import Dialogue, Reply, assistant, system, user
from .tools import CAPITALS

THINK = 0.15
SYSTEM = ["You answer in JSON.", "Always answer with JSON.", "Reply with JSON only.", "You are a helpful assistant.",
          "You are Fieldfare.", "Output JSON, nothing else.",
          "Your answers are JSON objects.", "You extract data as JSON.", "Answer only with valid JSON.",
          "You are a data extraction tool.", "JSON only, no prose."]
SYSTEM_TEST = ["You give JSON back and no other text.", "Every reply is JSON."]
ASK = ["Give me JSON with {k}: {s}", "JSON with {k}: {s}", "Extract {k} as JSON: {s}", "Extract {k} as JSON from this text: {s}",
       "Make a JSON object with {k}. {s}",
       "{s} Give me {k} as JSON.", "{s} Turn this into JSON with the keys {k}.", "{s} Answer as JSON with {k}.",
       "Return {k} as JSON: {s}", "{s}\nJSON with {k} please",
       "Read this: {s} Now write {k} as JSON.", "I need {k} in JSON from this sentence: {s}", "Convert to JSON ({k}): {s}",
       "{s} -> JSON with {k}",
       "As JSON with the fields {k}: {s}", "Please extract {k} from the text below as a JSON object.\n{s}",
       "Text: {s}\nKeys: {k}\nFormat: JSON",
       "Parse this into JSON with {k}: {s}", "Write a JSON object with {k} for: {s}", "Pull {k} out of this and answer in JSON: {s}",
       "to json, {k}: {s}",
       "What are {k} in this text? Answer in JSON. {s}", "Fill a JSON object with {k}. Text: {s}", "json please, {k}\n{s}",
       "{s}\n\nExtract {k}. Reply with JSON only.",
       "Get me {k} from \"{s}\" as JSON", "Can you give {k} as JSON? {s}"]
ASK_TEST = ["Produce JSON holding {k} out of: {s}", "{s} I would like {k} of that in JSON.", "Put {k} in a JSON object: {s}",
            "Summarise as JSON, keys {k}: {s}"]
BARE = ["Extract {k}: {s}", "{k}: {s}", "{s}\nFields: {k}", "Get {k} from: {s}", "{s} I need {k}.", "Read out {k}: {s}"]
BARE_TEST = ["The fields {k} of this: {s}"]


def _int(low, high):
    return lambda rng, test: low + int(rng.random() * (high - low + 1))


def _price(rng, test):
    return draw_number(rng, 2, 300)


JOBS = ("teacher nurse baker pilot plumber painter farmer lawyer gardener cook driver writer doctor dentist "
        "carpenter tailor singer judge clerk").split()
SPORTS = "tennis football chess hockey rugby golf volleyball badminton handball basketball".split()
PETS = "dog cat parrot horse rabbit hamster turtle goat".split()


def _of(values):
    return lambda rng, test: pick(rng, values)


# A group: the fields with their values, and sentences that state all of them. The last sentence is for test.
GROUPS = [
    ({"name": TEXT["person"], "age": _int(4, 95), "city": TEXT["city"]},
     ["{name} is {age} years old and lives in {city}.", "{name}, {age}, lives in {city}.", "In {city} lives {name}, who is {age}.",
      "My friend {name} ({age}) is from {city}.",
      "{name} is {age} and comes from {city}.", "Meet {name}, {age} years old, at home in {city}."]),
    ({"name": TEXT["person"], "age": _int(18, 80), "job": _of(JOBS)},
     ["{name} is a {age} year old {job}.", "{name} is {age} and works as a {job}.", "The {job} {name} is {age} years old.",
      "{name}, {job}, {age}.",
      "At the age of {age} {name} became a {job}."]),
    ({"name": TEXT["person"], "email": TEXT["email"], "phone": TEXT["phone"]},
     ["{name} can be reached at {email} or {phone}.", "Contact: {name}, {email}, {phone}.", "Write to {name} at {email} or call {phone}.",
      "{name}: mail {email}, phone {phone}",
      "The number of {name} is {phone} and the mail is {email}."]),
    ({"product": TEXT["thing"], "price": _price, "quantity": _int(1, 60)},
     ["We sold {quantity} of the {product} for {price} each.", "{quantity} x {product} at {price}",
      "The {product} costs {price} and we have {quantity}.",
      "Order: {quantity} times {product}, price {price}.", "I bought {quantity} of the {product}, {price} per piece."]),
    ({"city": TEXT["city"], "temperature": _int(-20, 40), "condition": TEXT["cond"]},
     ["It is {temperature} degrees and {condition} in {city}.", "{city}: {temperature} degrees, {condition}",
      "The weather in {city} is {condition} at {temperature} degrees.",
      "{city} has {temperature} degrees and it is {condition}.", "Today {city} is {condition} with {temperature} degrees."]),
    ({"title": TEXT["book"], "author": TEXT["person"], "year": _int(1900, 2026)},
     ["{title} was written by {author} in {year}.", "The book {title} by {author} is from {year}.", "{author} wrote {title} in {year}.",
      "{title} ({author}, {year})",
      "In {year} {author} published {title}."]),
    ({"event": TEXT["event"], "date": TEXT["date"], "time": TEXT["clock"]},
     ["The {event} is on {date} at {time}.", "{event}: {date}, {time}", "We have the {event} on {date}, {time}.",
      "On {date} at {time} there is the {event}.",
      "Do not miss the {event}, {date} at {time}."]),
    ({"name": TEXT["person"], "pet": _of(PETS), "pet_name": TEXT["made"]},
     ["{name} has a {pet} called {pet_name}.", "The {pet} of {name} is named {pet_name}.", "{name} owns the {pet} {pet_name}.",
      "{pet_name} is the {pet} that lives with {name}."]),
    ({"from": TEXT["city"], "to": TEXT["city"], "date": TEXT["date"]},
     ["I fly from {from} to {to} on {date}.", "Flight {from} to {to}, {date}", "On {date} I travel from {from} to {to}.",
      "The trip goes from {from} to {to} on {date}.",
      "We leave {from} for {to} on {date}."]),
    ({"order_id": lambda rng, test: pick(rng, ("A", "B", "ORD-", "X", "K-")) + TEXT["number"](rng, test), "customer": TEXT["person"],
      "total": _price},
     ["Order {order_id} by {customer} comes to {total}.", "{customer} has the order {order_id} with a total of {total}.",
      "Order {order_id}: {customer}, {total}",
      "The total of order {order_id} from {customer} is {total}."]),
    ({"name": TEXT["person"], "sport": _of(SPORTS), "team": TEXT["made"]},
     ["{name} plays {sport} for {team}.", "{name} is in the {sport} team {team}.", "In the team {team} {name} plays {sport}.",
      "The {sport} team {team} has {name} in it."]),
    ({"file": TEXT["file"], "line": _int(1, 900), "error": TEXT["error"]},
     ["{file} line {line}: {error}", "There is an error in {file} on line {line}: {error}.", "{error} in {file}, line {line}",
      "On line {line} of {file} we got {error}."]),
    ({"country": lambda rng, test: made(rng, test).capitalize(), "population": _int(100000, 90000000), "language": TEXT["lang"]},
     ["{country} has {population} people who speak {language}.", "In {country} {population} people live and the language is {language}.",
      "{country}: {population} people, {language}", "People in {country} speak {language}; there are {population} of them."]),
]
GROUPS += [
    ({"name": TEXT["person"], "score": _int(0, 100)}, ["{name} got {score} points.", "{name} has a score of {score}.",
                                                       "The score of {name} is {score}.", "{name} reached {score}."]),
    ({"item": TEXT["thing"], "color": TEXT["colour"], "price": _price},
     ["The {color} {item} costs {price}.", "I have a {color} {item} for {price}.", "{item}, {color}, {price}",
      "For {price} you get the {item} in {color}."]),
    ({"hotel": TEXT["hotel"], "city": TEXT["city"], "nights": _int(1, 14)},
     ["We stay {nights} nights at {hotel} in {city}.", "{hotel} in {city}, {nights} nights",
      "In {city} we booked {hotel} for {nights} nights.",
      "{nights} nights in {city} at {hotel} are booked."]),
    ({"dish": TEXT["food"], "restaurant": TEXT["restaurant"], "rating": _int(1, 5)},
     ["The {dish} at {restaurant} gets {rating} stars.", "I give the {dish} of {restaurant} {rating} stars.",
      "{restaurant}: {dish}, {rating} stars",
      "At {restaurant} we had {dish}, {rating} of 5."]),
    ({"song": TEXT["song"], "artist": TEXT["artist"], "genre": TEXT["genre"]},
     ["{song} by {artist} is a {genre} song.", "{artist} sings {song}, that is {genre}.", "The {genre} song {song} is by {artist}.",
      "{song}: {artist}, {genre}"]),
    ({"sender": TEXT["person"], "receiver": TEXT["person"], "amount": _price},
     ["{sender} sent {amount} to {receiver}.", "{receiver} got {amount} from {sender}.", "{sender} paid {receiver} {amount}.",
      "A payment of {amount} went from {sender} to {receiver}."]),
    ({"room": TEXT["room"], "device": TEXT["device"], "state": lambda rng, test: pick(rng, ("on", "off"))},
     ["The {device} in the {room} is {state}.", "In the {room} the {device} is {state}.", "{room}: {device} {state}",
      "{state} is the {device} of the {room}."]),
    ({"flight": TEXT["flightno"], "to": TEXT["city"], "gate": _int(1, 80)},
     ["Flight {flight} to {to} leaves from gate {gate}.", "{flight} goes to {to}, gate {gate}.", "Gate {gate}: flight {flight} to {to}",
      "To {to} take {flight} at gate {gate}."]),
]
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
LINES_TEST = ["The JSON form of\n{s}", "Rewrite in JSON:\n{s}"]
LISTS = {"colours": ["red", "blue", "green", "yellow", "black", "white"], "fruits": ["apple", "banana", "orange", "pear", "grape", "lemon"],
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
NAME_N_TEST = ["Could I get {n} {x} as an array in JSON?", "Answer with a JSON array that has {n} {x}."]
ARRAY = ["Turn this list into a JSON array: {s}", "JSON array of {s}", "Make a JSON array: {s}", "{s} as a JSON array",
         "{s} -> JSON list", "Write {s} as a JSON array.",
         "put these in a JSON array: {s}", "as JSON list: {s}", "List in JSON: {s}", "Convert {s} to a JSON array",
         "json array please: {s}", "I have {s}. Give me that as a JSON array."]
ARRAY_TEST = ["A JSON array made of {s}", "Please array these up in JSON: {s}"]
FACT = ["Give the capital of {c} as JSON with country and capital", "{c} and its capital as JSON with country and capital",
        "JSON with country and capital for {c}",
        "What is the capital of {c}? Answer as JSON with country and capital.", "Write a JSON object with country and capital: {c}",
        "country and capital of {c} in JSON",
        "capital of {c}, as JSON with the keys country and capital", "Return JSON with country and capital for {c}."]
FACT_TEST = ["For {c}, put country and capital in JSON."]
TRUTH = [("Is {a} greater than {b}?", "greater", lambda a, b: a > b), ("Is {a} smaller than {b}?", "smaller", lambda a, b: a < b),
         ("Is {a} equal to {b}?", "equal", lambda a, b: a == b), ("Is {a} more than {b}?", "more", lambda a, b: a > b),
         ("Is {a} less than {b}?", "less", lambda a, b: a < b)]
TRUTH_ASK = ["{q} Answer as JSON with {k} true or false.", "{q} JSON with the key {k}", "JSON with {k} (true or false): {q}",
             "{q} Reply with JSON, key {k}.",
             "Answer in JSON with {k}: {q}"]
TRUTH_TEST = ["{q} Give a JSON object with the boolean {k}."]
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
    fields, sentences = pick(rng, GROUPS)
    values = {k: f(rng, test) for k, f in fields.items()}
    s = sentences[-1] if test else sentences[int(rng.random() * (len(sentences) - 1))]
    s = s.format(**values)
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
        k = pick(rng, LABELS if test else LABELS_TRAIN) if rng.random() < 0.85 else made(rng, test)
        fields[k] = LABEL_KINDS[k](rng, test) if k in LABEL_KINDS else made(rng, test)
    if rng.random() < 0.2:
        fields[pick(rng, ("active", "paid", "open", "valid", "admin"))] = rng.random() < 0.5
    mark, between = pick(rng, ((": ", "\n"), (": ", "\n"), (" = ", "\n"), ("=", "\n"), (": ", ", "), (": ", "; ")))
    s = between.join([f"{k}{mark}{dumps(v) if isinstance(v, bool) else v}" for k, v in fields.items()])
    return pick(rng, LINES_TEST if test else LINES).format(s=s), fields, False


def _stated(rng, test):
    """Any keys at all: "The colour is red, the size is small and the pulim is 7."."""
    fields = {}
    while len(fields) < 1 or (len(fields) < 4 and rng.random() < 0.7):
        k = pick(rng, LABELS if test else LABELS_TRAIN) if rng.random() < 0.6 else made(rng, test)
        fields[k] = LABEL_KINDS[k](rng, test) if k in LABEL_KINDS else made(rng, test) if rng.random() < 0.6 else int(rng.random() * 1000)
    form = "with {k} set to {v}" if test else pick(rng, ("the {k} is {v}", "{k} is {v}", "its {k} is {v}", "{k} {v}", "a {k} of {v}",
                                                         "the {k} was {v}"))
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
SAMPLE_TEST = ["Could you show a JSON sample having {k}?", "Some made-up JSON with {k}, please."]


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
    words = [str(i) for i in items]
    s = pick(rng, (spoken(words), ", ".join(words), ", ".join(words), "\n".join(words), "\n- ".join([""] + words)))
    return pick(rng, ARRAY_TEST if test else ARRAY).format(s=s), items, False


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
    t = pick(rng, ("A JSON array of objects with name and age: {}.", "{}. Give me a JSON array with name and age.",
                   "Extract all people with name and age as a JSON array: {}.",
                   "As a JSON list with name and age: {}.", "{} - JSON array of name and age please")[:4] if not test else
             ("{} - JSON array of name and age please",)).format(s)
    return t, [{"name": n, "age": a} for n, a in people], False


KINDS = [(0.36, _sentence), (0.48, _stated), (0.64, _lines), (0.71, _list_of), (0.8, _array), (0.84, _example), (0.88, _fact),
         (0.95, _truth), (1.0, _records)]
EARLIER = [("Hello", "Hello! How can I help you?"), ("hi", "Hello! How can I help you?"), ("thanks", "You are welcome."),
           ("What is 3 + 4?", "3 + 4 = 7."),
           ("JSON array of 1, 2, 3", "[1, 2, 3]"), ("name: Tom\nage: 9\nas JSON please", '{"name": "Tom", "age": 9}')]


def _thought(value):
    if isinstance(value, dict):
        return "The fields are " + ", ".join([f"{k} {v if isinstance(v, str) else dumps(v)}" for k, v in value.items()]) + "."
    return f"The array has {len(value)} entries."


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
    messages.append(user(text))
    reasoning = _thought(value) if rng.random() < THINK else None
    return Dialogue("json_answer", messages, Reply(dumps(value), reasoning), {"kind": "json", "value": value}, [], reasoning is not None)


VERBS = ("Give", "Extract", "Make", "Return", "Convert", "Turn", "Write", "Parse", "Pull", "Get", "Fill", "Put", "List", "Output",
         "Produce")
LEADS = ["please ", "hey, ", "hi, ", "could you ", "can you ", "can you please ", "I want you to ", "ok, ", "now ", "hello, please ",
         "I need you to ", "would you "]
LEADS_TEST = ["be so kind and ", "one more: "]
SYSTEM_JSON = [s for s in SYSTEM if "JSON" in s]
TASKS = {"json_answer": (12, json_answer)}
