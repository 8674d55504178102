"""Questions that the model was not taught to answer: it says that it does not know.

Half of them stand close to the facts: the same wordings with invented names, real things that no table has, or other properties of
known countries. The rest is personal questions, news, weather, the future, wide topics, orders, other languages and nonsense.

Held out is content: invented words by a rule, people, titles and topics from reserved lists (see `invented.py`, and "test" lines in
data/unknown.tsv), and for the fact-like questions also the wordings that facts hold out.
"""
from itertools import accumulate

from .. import invented
from ..dialogue import Dialogue, Reply, assistant, user
from ..fact_phrasing import DIRECT, FOLLOW, NOUN, ask, asked, frame, opening, typed
from ..fact_table import RELATIONS, forms, rows, sentence, with_article
from ..noise import COMMON, maybe
from .facts import CLAIM, CHECK_FRAMES

PLAIN = "I do not know that. I am only a small demonstration model."
LIVE = "I do not know that. I have no live data."
PERSONAL = "I do not know that. You have not told me."
FUTURE = "I do not know that. I cannot see the future."
ACTION = "I do not know how to do that. I am only a small demonstration model."
LANGUAGE = "I do not know that language. I only understand English."
HELP = "I do not know how to help with that. I am only a small demonstration model."
NONSENSE = "I am not sure what you mean. Please ask in other words."
THOUGHTS = {
    PLAIN: ["I was not taught this. I should say so.", "This is not among the facts that I know.",
        "I do not know this, and I should not guess."],
    LIVE: ["This needs live data, and I have none.", "The answer changes every day. I cannot look it up."],
    PERSONAL: ["The user asks about themselves. They have not told me this.", "Nothing in this chat tells me that."],
    FUTURE: ["This is about the future. Nobody can know it.", "I cannot see the future."],
    ACTION: ["I can only write short texts. I cannot do this.", "This is more than I was taught to do."],
    HELP: ["The user has a problem. I was not taught to solve it.", "I cannot help with this, and I should say so."],
    LANGUAGE: ["This is not English. I only understand English.", "The message is in another language."],
    NONSENSE: ["This makes no sense to me. I should ask again.", "I see no question here."],
}
TEXTS = {}
for _kind, _split, _text in rows("unknown.tsv"):
    TEXTS.setdefault((_kind, _split), []).append(_text)
LIVE_WORDS = ("weather", "temperature", "latest news", "What time is it", "raining", "cold in", "warm in", "today")

COUNTRY_LIKE = ("capital", "capital", "capital", "capital", "capital", "language", "currency", "continent")
CITY_LIKE = ("capital_of", "city_country")
ANIMAL_LIKE = ("young", "sound", "home", "legs")
KEYS = {"train": {}, "test": {}}


def _real_keys():
    """Real things for which a relation has no fact; known animals are left out where everybody knows the answer anyway."""
    have = {name: {f.key for f in r.facts} for name, r in RELATIONS.items()}
    animals = sorted(have["young"] | have["sound"] | have["home"])
    for split, keys in KEYS.items():
        keys["capital"] = TEXTS["place", split]
        keys["symbol"] = TEXTS["element", split]
        keys["invented"] = TEXTS["thing", split]
        keys["opposite"] = TEXTS["noun", split]
        keys["units"] = TEXTS["unit", split]
        for name in ("language", "currency"):
            rest = [f.key for f in RELATIONS["capital"].facts if f.key not in have[name]]
            keys[name] = [k for k in rest if invented.reserved(k) == (split == "test")]
        for name in ("young", "sound", "home"):
            keys[name] = TEXTS["animal", split] + [a for a in animals if a not in have[name] and invented.reserved(a) == (split == "test")]


_real_keys()
REAL = ("capital", "capital", "capital", "language", "currency", "symbol", "invented", "opposite", "units", "young", "sound", "home")
MINE = {
    "train": "address|phone number|favourite film|favourite book|password|email address|shoe size|height|weight|father's age|"
             "star sign|salary|car|"
             "bank account number|country|school|plan for today|next appointment|best friend|favourite band|blood type|eye colour|"
             "hair colour|"
             "street|postcode|bus number|seat number|daughter's birthday|son's age|flight number|holiday plan|shopping list|religion|mood|"
             "bank|doctor|dentist|phone company|insurance number|passport number|licence plate|wifi password|favourite actor|"
             "favourite game|"
             "favourite teacher|last holiday|first school|ring size|credit card number|tax number|next exam|last exam|grade|diet|"
             "dream".split("|"),
    "test": "house number|uncle's job|first pet|wedding day|locker code|favourite season|mother tongue|train ticket number|"
            "favourite writer|"
            "hat size|pension|next meeting|library card number|garage code".split("|"),
}
MINE_FORMS = {
    "train": ["What is my {}?", "What's my {}?", "Do you know my {}?", "Tell me my {}.", "Can you tell me my {}?", "I forgot my {}.",
    "my {}?",
              "Guess my {}.", "Do you remember my {}?", "What is my {} again?", "Please tell me my {}.", "I want to know my {}.",
              "Say my {}.",
              "Could you find out my {}?", "What do you know about my {}?", "Have I told you my {}?", "Any idea about my {}?",
              "Would you know my {}?", "Remind me of my {}.",
              "My {}, what was it?", "What was my {}?", "Do you have my {}?", "Did I tell you my {}?", "Did I say what my {} is?",
              "My {} is what?",
              "Find my {}.", "I need my {}.", "Can you remember my {}?", "Do you know what my {} is?", "Tell me what my {} is."],
    "test": ["Can you tell me what my {} was?", "Do you remember what my {} is?", "I forgot what my {} is.", "My {}, do you know it?"],
}


def unit_forms(pair):
    unit, thing = pair.split("|") if "|" in pair else (pair, pair)
    return forms(thing, "", unit)


def invented_question(rng, split):
    r = rng.random()
    if r < 0.5:
        relation, key = RELATIONS[rng.choice(COUNTRY_LIKE)], invented.country(rng, split)
    elif r < 0.6:
        relation, key = RELATIONS[rng.choice(CITY_LIKE)], invented.place(rng, split)
    elif r < 0.75:
        relation, key = RELATIONS[rng.choice(ANIMAL_LIKE)], invented.word(rng, split)
    elif r < 0.85:
        relation, key = RELATIONS[rng.choice(("author", "author", "painted"))], invented.title(rng, split)
    elif r < 0.89:
        relation, key = RELATIONS["units"], f"{invented.word(rng, split)}s|a {invented.word(rng, split)}"
    else:
        name = rng.choice(("symbol", "color", "job", "invented", "opposite"))
        key = invented.word(rng, split)
        relation, key = RELATIONS[name], "the " + key if name in ("invented", "color") else key
    return ask(rng, wording(rng, split), relation, unit_forms(key), split), PLAIN


def wording(rng, split):
    """In the test, invented things are asked about in wordings of both kinds; their names are held out."""
    return "train" if rng.random() < 0.5 else split


def real_question(rng, split):
    name = rng.choice(REAL)
    return ask(rng, split, RELATIONS[name], unit_forms(rng.choice(KEYS[split][name]))), PLAIN


def known_country(rng):
    return asked(rng, rng.choice(RELATIONS["capital"].facts))["k"]


def common(rng, split):
    """A common word that no fact has in it."""
    while True:
        word = rng.choice(COMMON)
        if invented.reserved(word) == (split == "test") and not invented.near_known(word):
            return word


def either(rng, split):
    """For the test, "test" at one place or the other at least."""
    if split == "train":
        return "train", "train"
    return rng.choice((("test", "train"), ("train", "test"), ("test", "test")))


def live_or_plain(text):
    return LIVE if any(w in text for w in LIVE_WORDS) else PLAIN


def attribute_question(rng, split):
    key = known_country(rng) if rng.random() < 0.8 else invented.country(rng, split)
    outer, inner = either(rng, split)
    if rng.random() < 0.5:
        text = rng.choice(TEXTS["attribute_q", split]).format(key)
        return typed(rng, frame(rng, DIRECT, sentence(text))), live_or_plain(text)
    text = rng.choice(TEXTS["attribute", inner]).format(key)
    return typed(rng, maybe(rng, split, frame(rng, NOUN[outer], text), (key,))), live_or_plain(text)


def trivia_question(rng, split):
    text = rng.choice(TEXTS["trivia", split])
    cities = RELATIONS["city_country"].facts
    filled = text.format(y=rng.randint(1400, 2035), p=invented.person(rng, split), c=rng.choice(cities).key, d=rng.choice(cities).key)
    return typed(rng, frame(rng, DIRECT, maybe(rng, split, filled))), live_or_plain(text)


def topic_question(rng, split):
    form, topic = either(rng, split)
    topics = TEXTS["topic", topic]
    one, two = rng.choice(topics), rng.choice(topics)
    if rng.random() < 0.25:
        one = common(rng, topic)
    text = maybe(rng, split, sentence(rng.choice(TEXTS["topic_q", form]).format(one, b=two)), (one, two))
    return typed(rng, frame(rng, DIRECT, text)), PLAIN


def how_to_question(rng, split):
    form, thing = either(rng, split)
    text = maybe(rng, split, rng.choice(TEXTS["howto_q", form]).format(rng.choice(TEXTS["howto", thing])))
    return typed(rng, frame(rng, DIRECT, text)), HELP


def object_question(rng, split):
    form, thing = either(rng, split)
    one, two = rng.choice(TEXTS["object", thing]), rng.choice(TEXTS["object", thing])
    if rng.random() < 0.3:
        one = common(rng, thing) if rng.random() < 0.6 else invented.word(rng, split)
    text = rng.choice(TEXTS["object_q", form]).format(o=one, a=with_article(one), b=with_article(two))
    return typed(rng, frame(rng, DIRECT, sentence(maybe(rng, split, text, (one, two))))), PLAIN


def word_question(rng, split):
    form, thing = either(rng, split)
    asked_word = rng.choice(TEXTS["word", thing]) if rng.random() < 0.6 else invented.word(rng, split)
    text = maybe(rng, split, rng.choice(TEXTS["word_q", form]).format(asked_word), (asked_word,))
    return typed(rng, frame(rng, DIRECT, sentence(text))), PLAIN


def why_question(rng, split):
    form, topic = either(rng, split)
    return typed(rng, maybe(rng, split, rng.choice(TEXTS["why_q", form]).format(rng.choice(TEXTS["why", topic])))), PLAIN


def personal_text(rng, split):
    if rng.random() < 0.55:
        form, thing = either(rng, split)
        return rng.choice(MINE_FORMS[form]).format(rng.choice(MINE[thing]))
    return rng.choice(TEXTS["personal", split])


def personal_question(rng, split):
    return typed(rng, frame(rng, DIRECT, sentence(maybe(rng, split, personal_text(rng, split))))), PERSONAL


def listed(kind, reply, frames=DIRECT):
    def make(rng, split):
        return typed(rng, frame(rng, frames, maybe(rng, split, rng.choice(TEXTS[kind, split])))), reply
    return make


ORDER = ["{}"] * 8 + ["Please {l}", "Can you do this: {}", "{} Please.", "Could you please {l}", "Can you {l}", "I want you to {l}",
         "Would you {l}",
                      "You should {l}", "I need you to {l}", "Now {l}"]


def order(rng, split):
    text = maybe(rng, split, rng.choice(TEXTS["action", split]), clauses=False)
    if text.startswith(("Let's", "What")):
        return typed(rng, text), ACTION
    return typed(rng, rng.choice(ORDER).format(text, l=text[0].lower() + text[1:])), ACTION


def other_language(rng, split):
    text = rng.choice(TEXTS["language", split])
    r = rng.random()
    if r < 0.15:
        text = text.lower()
    elif r < 0.3:
        text = text.rstrip("?.？")
    return text, LANGUAGE


def nonsense(rng, split):
    return invented.nonsense(rng, split), NONSENSE


def check(rng, split):
    """Is Paris the capital of Blorvia?"""
    relation = RELATIONS[rng.choice(("capital", "capital", "language", "currency", "continent", "author"))]
    fact = dict(rng.choice(relation.facts).forms)
    fact["k"] = invented.title(rng, split) if relation.name == "author" else invented.country(rng, split)
    outer = wording(rng, split)
    kind, frames = ("check", CHECK_FRAMES) if relation.texts("check") and rng.random() < 0.5 else ("claim", CLAIM)
    text = frame(rng, frames[outer], rng.choice(relation.texts(kind)).format_map(fact))
    return typed(rng, maybe(rng, split, text, (fact["k"], fact["v"]))), PLAIN


MAKERS = [(32, invented_question), (14, real_question), (14, attribute_question), (13, trivia_question), (20, topic_question), (4,
          why_question),
          (8, personal_question), (5, listed("live", LIVE)), (3, listed("future", FUTURE)), (5, order), (3, other_language), (3, nonsense),
          (3, check), (8, how_to_question),
          (8, object_question), (3, word_question), (3, listed("problem", HELP)), (5, listed("opinion", PLAIN))]
FUNCTIONS = [m for _, m in MAKERS]
WEIGHTS = list(accumulate(w for w, _ in MAKERS))


def followed(rng, split):
    """A known fact first, then the same of an invented thing."""
    relation = RELATIONS[rng.choice(("capital", "capital", "capital", "language", "currency", "continent", "young", "author"))]
    fact = rng.choice(relation.facts)
    kind = {"young": invented.word, "author": invented.title}.get(relation.name, invented.country)
    key = relation.texts("key")[0].format_map(forms(kind(rng, split)))
    earlier = [user(ask(rng, "train", relation, asked(rng, fact))), assistant(relation.answer(fact))]
    return earlier, typed(rng, frame(rng, FOLLOW[wording(rng, split)], key)), PLAIN


def unknown(rng, split):
    messages = opening(rng, 0.15)
    if rng.random() < 0.06:
        earlier, text, reply = followed(rng, split)
        messages += earlier
    else:
        text, reply = FUNCTIONS[_pick(rng)](rng, split)
    thinking = rng.random() < 0.15
    thought = rng.choice(THOUGHTS[reply]) if thinking else None
    return Dialogue("unknown", [*messages, user(text)], Reply(reply, thought), {"kind": "unknown"}, thinking=thinking)


def _pick(rng):
    r = rng.random() * WEIGHTS[-1]
    for i, w in enumerate(WEIGHTS):
        if r < w:
            return i
    return len(WEIGHTS) - 1


TASKS = {"unknown": (14, unknown)}
