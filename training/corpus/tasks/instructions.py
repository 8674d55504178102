"""System messages that change how to answer, facts given in a system message, and reading of short texts.

Held out: wordings of the instructions (in tests always held-out ones), sums with held-out pairs, invented and reserved names and words.
`reading` holds out names and values (a seventh, tests use only those, and words of the open generators) and wordings of questions.
Its relations come in groups (`group` in the table) whose members are easily mixed up, such as opening and closing times; a second fact
of a person or place is often from the same group.
"""
from dataclasses import dataclass

from ..dialogue import Dialogue, Reply, assistant, system, user
from ..noise import noisy
from ..open_words import any_word, common, invented
from .arithmetic import (CAPITALS, NEXT, OPENERS, SMALLTALK, TEST_PAIRS, TRAIN_PAIRS, adding, ask, cased, chatter, expand_all,
                         person, pick, pick_some, rows, wordings)
from .memory import from_pool
from .words import NOUNS, TRANSLATIONS, equal, word

(CAPITAL_ASKED, WORD_ASKED, PLURAL_ASKED, SUM_ASKED, UPPER, UPPER_TEST, LOWER, LOWER_TEST, WORD, WORD_TEST, NUMBER,
 NUMBER_TEST, END, END_TEST, BEGIN, BEGIN_TEST, PIRATE, PIRATE_TEST, CAT, CAT_TEST, ROBOT, ROBOT_TEST, CALLED, CALLED_TEST,
 WHO, WHO_TEST, USER, USER_TEST, MINE, REFUSE, REFUSE_TEST, ADDRESS, ADDRESS_TEST, YESNO, YESNO_TEST, ENDINGS, BEGINNINGS,
 FRAMES, FRAMES_TEST, LOWERED, FILLERS) = wordings("instructions")
SHORT = [row for row in TRANSLATIONS if " " not in row[0]]


def question(rng, split, kinds="ccccssstpn"):
    """(text, full answer, short answer, thought) of a question about a capital, a sum, a translation, a plural or the next number,
    or of something said in passing ("h", which has no short answer)."""
    kind = pick(rng, kinds)
    if kind == "s":
        a, b = pick(rng, TEST_PAIRS if split == "test" else TRAIN_PAIRS)
        return ask(rng, split, SUM_ASKED).format(a, b), f"{a} + {b} = {a + b}.", str(a + b), adding(a, b)
    if kind == "t":
        row = pick(rng, SHORT)
        i = int(rng.random() * 3)
        language = ("French", "German", "Spanish")[i]
        full = f"The {language} word for {row[0]} is {row[i + 1]}."
        return ask(rng, split, WORD_ASKED).format(row[0], language), full, row[i + 1], f"The {language} word is {row[i + 1]}."
    if kind == "n":
        n = int(rng.random() * 300)
        return ask(rng, split, NEXT).format(a=n), f"After {n} comes {n + 1}.", str(n + 1), f"One more than {n}."
    if kind == "h":
        text, full = pick(rng, SMALLTALK)
        return text, full, None, "This is small talk."
    if kind == "p":
        one, many = pick(rng, NOUNS)
        return ask(rng, split, PLURAL_ASKED).format(one), f"The plural of {one} is {many}.", many, f"The plural is {many}."
    country, capital = pick(rng, CAPITALS)
    return ask(rng, split, CAPITAL_ASKED).format(country), f"The capital of {country} is {capital}.", capital, (
        f"The capital is {capital}.")


TWO = {"French": ("oui", "non"), "German": ("ja", "nein"), "Spanish": ("sí", "no"), "Italian": ("sì", "no"), "English": ("yes", "no")}


KEPT = ("capital", "small", "upper", "lower", "user", "name", "number", "word", "pirate", "robot", "forbidden", "refuse")
STARTS = ("You are a helpful assistant. ", "You are Fieldfare. ", "You are an assistant. ", "Help the user. ", "You answer questions. ")


def told(rng, split, train, test, **parts):
    """The instruction, at times with a neutral sentence before or after it."""
    text = ask(rng, split, train, test, 1, keep=KEPT, plain=True).format(**parts)
    r = rng.random()
    if r < 0.15:
        return pick(rng, STARTS) + text
    if r < 0.2:
        return text + pick(rng, (" Be kind.", " Be correct.", " This is important.", " No exceptions.", " Always.", " Do not forget it."))
    return text


def done(rng, task, head, asked, answer, expect, thought=None, shape=None, inline=False):
    """A dialogue under the system message `head`; `shape` writes the answers of earlier turns as the instruction wants them."""
    messages = [system(head)] if head else []
    if inline and rng.random() < 0.2:
        messages = []
        for start in STARTS:
            head = head.removeprefix(start)
        asked = f"{head} {asked}" if rng.random() < 0.6 else f"{asked}{'' if asked[-1] in '.?!' else '.'} {head}"
    elif rng.random() < 0.2:
        for _ in range(1 + int(rng.random() * 2)):
            a, b = chatter(rng)
            if shape:
                b = shape(b)
            if b:
                messages += [user(a), assistant(b)]
    messages.append(user(cased(rng, asked) if task == "instructions" and not inline else asked))
    thinking = thought is not None and rng.random() < 0.15
    return Dialogue(task, messages, Reply(answer, thought if thinking else None), expect, thinking=thinking)


def form(rng, split, r):
    """Instructions about the form of the answer."""
    if r < 0.24:
        asked, full, short, thought = question(rng, split, "ccccstpnhh")
        up = r < 0.16
        shape = str.upper if up else str.lower
        head = told(rng, split, *((UPPER, UPPER_TEST) if up else (LOWER, LOWER_TEST)))
        return done(rng, "instructions", head, asked, shape(full), equal(shape(full)),
                    ("Capitals are wanted. " if up else "Small letters are wanted. ") + thought, shape, inline=True)
    if r < 0.36:
        asked, full, short, thought = question(rng, split, "ccctpsn")
        return done(rng, "instructions", told(rng, split, WORD, WORD_TEST), asked, short, equal(short, short + "."),
                    "One word is wanted. " + thought, one_word, inline=True)
    if r < 0.46:
        asked, full, short, thought = question(rng, split, "ssn")
        return done(rng, "instructions", told(rng, split, NUMBER, NUMBER_TEST), asked, short, equal(short), thought, bare_number,
                    inline=True)
    asked, full, short, thought = question(rng, split, "ccccssstpnhh")
    if r < 0.56:
        w = pick(rng, ENDINGS) if rng.random() < 0.5 else word(rng, split)
        if rng.random() < 0.4:
            w = w.upper()
        return done(rng, "instructions", told(rng, split, END, END_TEST, w=w), asked, f"{full} {w}", equal(f"{full} {w}", f"{full} {w}."),
                    f"{w} comes at the end. {thought}", lambda t: f"{t} {w}", inline=True)
    w = pick(rng, BEGINNINGS) if rng.random() < 0.5 else word(rng, split).capitalize()
    return done(rng, "instructions", told(rng, split, BEGIN, BEGIN_TEST, w=w), asked, f"{w}: {full}", equal(f"{w}: {full}"),
                f"{w} comes first. {thought}",
                lambda t: f"{w}: {t}", inline=True)


def one_word(text):
    return text.rstrip(".").rsplit(" ", 1)[-1] if text.startswith("The capital") or " = " in text else None


def bare_number(text):
    return text.rstrip(".").rsplit(" ", 1)[-1] if " = " in text else None


def role(rng, split, r):
    """Instructions about who speaks, or to whom."""
    n = person(rng, split)
    asked, full, short, thought = question(rng, split)
    if r < 0.72:
        call, train, test = (("Arr!", PIRATE, PIRATE_TEST), ("Meow!", CAT, CAT_TEST),
                             ("Beep!", ROBOT, ROBOT_TEST))[0 if r < 0.675 else 1 if r < 0.7 else 2]
        if rng.random() < 0.2:
            asked, full = pick(rng, (("Hello", "Hello! How can I help you?"), ("Hi!", "Hello! How can I help you?"),
                                     ("Can you help me?", "Yes, what can I do for you?"),
                                     ("How are you?", "I am fine, thank you. How can I help you?")))
        return done(rng, "instructions", told(rng, split, train, test, n=n), asked, f"{call} {full}",
                    {"kind": "all", "of": [call.rstrip("!"), full.rstrip(".!?")]}, f"I begin with {call}",
                    lambda t: f"{call} {t}")
    if r < 0.82:
        text = ask(rng, split, WHO, WHO_TEST)
        return done(rng, "instructions", told(rng, split, CALLED, CALLED_TEST, n=n), text, f"My name is {n}.",
                    {"kind": "contains", "any": [n]}, f"I am called {n}.",
                    lambda t: None if "Fieldfare" in t else t)
    if r < 0.86:
        return done(rng, "instructions", told(rng, split, USER, USER_TEST, n=n), ask(rng, split, MINE), f"Your name is {n}.",
                    {"kind": "contains", "any": [n]})
    return done(rng, "instructions", told(rng, split, ADDRESS, ADDRESS_TEST, n=n), asked, f"{n}, {full[0].lower() + full[1:]}",
                {"kind": "all", "of": [n, full.rstrip(".")]}, f"I say {n} first. {thought}",
                lambda t: f"{n}, {t[0].lower() + t[1:]}" if t[:2] != "I " else None)


def limits(rng, split, r):
    """Forbidden subjects and answers of yes or no."""
    if r < 0.95:
        numbers = rng.random() < 0.5
        same = rng.random() < 0.7
        asked, full, short, thought = question(rng, split, "s" if numbers else "c" if same else "cctp")
        about = pick(rng, ("sums", "numbers", "maths", "adding", "arithmetic") if numbers == same
                     else ("capitals", "cities", "countries", "geography", "capital cities"))
        head = told(rng, split, REFUSE, REFUSE_TEST, x=about)
        if same:
            return done(rng, "instructions", head, asked, f"I cannot help with {about}.", {"kind": "contains", "any": ["cannot help"]},
                        "This subject is not allowed.", lambda t: None)
        return done(rng, "instructions", head, asked, full, {"kind": "contains", "any": [full.rstrip(".")]}, thought, lambda t: None)
    language = pick(rng, tuple(TWO))
    yes, no = TWO[language]
    good = rng.random() < 0.5
    if rng.random() < 0.5:
        country, capital = pick(rng, CAPITALS)
        other = pick(rng, CAPITALS)[1]
        good = good or other == capital
        asked = pick(rng, ("Is {} the capital of {}?", "Is {} the capital city of {}?")).format(capital if good else other, country)
    else:
        a, b = pick(rng, TEST_PAIRS if split == "test" else TRAIN_PAIRS)
        asked = pick(rng, ("Is {} larger than {}?", "Is {} more than {}?", "Is {} greater than {}?")).format(a, b)
        good = a > b
    return done(rng, "instructions", told(rng, split, YESNO, YESNO_TEST, l=language, y=yes, n=no), asked, yes if good else no,
                equal(*((yes, yes + ".") if good else (no, no + "."))), f"The answer is {'yes' if good else 'no'}.", lambda t: None)


# ---- facts in the text -------------------------------------------------------------------------------------------------

@dataclass
class Relation:
    """Sentences and questions with {n}, the person or place, and {v}, the value; what it is easily mixed up with shares its group."""
    sentences: list
    questions: list
    tests: list
    answer: str
    pool: str
    group: str


def _relations(about):
    out = []
    for _, sentences, questions, tests, *rest in [row for row in rows("skills_relations.tsv") if row[0] == about]:
        tests = expand_all(tests.split(" | "))
        out.append(Relation(expand_all(sentences.split(" | ")), expand_all(questions.split(" | "), tests), tests, *rest))
    return out


RELATIONS, PLACES = _relations("person"), _relations("place")
ATTRIBUTES = ("code key badge ticket locker seat desk team group label tag file folder book song film car boat street hotel gate flight "
              "table order parcel nickname motto theme tool plant planet hero symbol prize model host server branch channel").split()
ATTRIBUTE = [expand_all(t.split(" | "), u.split(" | ") if u else ()) for t, u in (
    ("{n}'s {a} is {v}. | The {a} of {n} is {v}. | {n} has the {a} {v}. | {n}: {a} {v}. | {v} is the {a} of {n}. | "
     "For {n} the {a} is [called |]{v}.", ""),
    ("[What|Which] is [the {a} of {n}|{n}'s {a}]? | [What|Which] {a} does {n} have? | [Tell me|Say|Give me] [the {a} of {n}|{n}'s {a}]. | "
     "[Do you know|Can you tell me] [the {a} of {n}|{n}'s {a}]? | What does the text say [is|about] the {a} of {n}? | "
     "[The {a} of {n}|{n}'s {a}]?", "Which {a} has {n}? | What {a} is {n}'s? | Say which {a} {n} has. | And the {a} of {n}, what is it?"))]
ATTRIBUTE_TESTS = ["Which {a} has {n}?", "What {a} is {n}'s?", "Say which {a} {n} has.", "Do you know which {a} {n} has?"]
VENUES = ("shop museum library bakery pool zoo hotel cinema school garden market cafe theatre castle gallery bank office station "
          "gym park restaurant farm studio harbour clinic").split()


@dataclass
class Fact:
    who: str
    relation: Relation
    sentence: str
    answer: str
    value: str

    @property
    def key(self):
        return self.who, self.relation.answer


NEAR = ("hint", "number", "date", "colour", "list", "history", "owner", "name", "key", "size")


def attribute(rng, split, place, near=None):
    """A relation that holds for this one text: any word may be what somebody has. With `near` it is one that sounds like that relation."""
    if near:
        a = near.answer[6:-8] + " " + pick(rng, NEAR)
    else:
        a = pick(rng, ATTRIBUTES) if rng.random() < 0.5 else (common if rng.random() < 0.8 else invented)(rng, split)
    n = "the {n}" if place else "{n}"
    texts = [pick(rng, table).replace("{a}", a).replace("{n}", n) for table in (ATTRIBUTE[0], ATTRIBUTE[1], ATTRIBUTE_TESTS)]
    answer = "The {n}'s %s is {v}." % a if place else "{n}'s %s is {v}." % a
    pool = pick(rng, ("open", "open", "number", "name", "colour", "place"))
    return Relation(*[[t[0].upper() + t[1:]] for t in texts], answer, pool, "attribute")


def sounds(relation):
    """Whether the relation names a thing that one of another name could be mixed up with."""
    return relation.answer.startswith("{n}'s ") and relation.answer.endswith(" is {v}.")


def damaged(rng, split, text, rate=0.2):
    """Noise around the placeholders, in training."""
    return noisy(rng, text, KEPT_ASKED) if split == "train" and rng.random() < rate else text


KEPT_ASKED = ("open", "close", "born", "birthday", "who", "when", "where", "how")


def article(text, v, pool):
    """The template with "an" where the value wants it."""
    return text.replace("a {v}", "an {v}") if pool in ("job", "colour") and v[0] in "aeiou" else text


def fact(rng, split, relation, who):
    v = from_pool(rng, split, relation.pool)
    while v == who:
        v = from_pool(rng, split, relation.pool)
    sentence = damaged(rng, split, pick(rng, relation.sentences), 0.08)
    sentence = article(sentence, v, relation.pool).format(n=who, v=v)
    return Fact(who, relation, sentence[0].upper() + sentence[1:] if relation.pool == "animal" else sentence,
                article(relation.answer, v, relation.pool).format(n=who, v=v), v)


def asking(rng, split, relation, who):
    """A question about the relation, held out in three tests of five."""
    text = pick(rng, relation.tests if split == "test" and rng.random() < 0.6 else relation.questions)
    return damaged(rng, split, text).format(n=who)


def any_relation(rng, split, relations, facts=()):
    """Some relation, often one that is easily mixed up with the last of the facts."""
    if rng.random() < 0.22:
        return attribute(rng, split, relations is PLACES,
                         facts[-1].relation if facts and sounds(facts[-1].relation) and rng.random() < 0.35 else None)
    if facts and rng.random() < 0.45:
        near = [r for r in relations if r.group == facts[-1].relation.group and r is not facts[-1].relation]
        if near:
            return pick(rng, near)
    return pick(rng, relations)


def passage(rng, split, relations, people):
    """Facts about the people, one or more each, no relation twice for one of them; shuffled with fillers."""
    facts, sentences = [], []
    shared = any_relation(rng, split, relations) if len(people) > 1 and rng.random() < 0.4 else None
    for who in people:
        mine, own = [], []
        for _ in range(1 + int(rng.random() * 2.5)):
            made = fact(rng, split, any_relation(rng, split, relations, own) if own or not shared else shared, who)
            if all([f.key != made.key and f.value != made.value for f in facts]):
                facts.append(made)
                own.append(made)
                mine.append(made.sentence)
        if len(mine) > 1 and rng.random() < 0.4 and mine[0].startswith(who + " ") and mine[1].startswith(who + " "):
            mine[:2] = [mine[0][:-1] + " and " + mine[1][len(who) + 1:]]
        sentences += mine
    if rng.random() < 0.7:
        rng.shuffle(sentences)
    if rng.random() < 0.3:
        sentences.insert(int(rng.random() * (len(sentences) + 1)), pick(rng, FILLERS))
    return facts, sentences


def ask_text(rng, split, question):
    if rng.random() < 0.2:
        question = question.rstrip("?.")
    if rng.random() < 0.15:
        question = question[0].lower() + question[1:]
    return question


BASE = {"lives": "live", "works": "work", "likes": "like", "drinks": "drink", "has": "have", "gets": "get", "needs": "need", "goes": "go",
        "comes": "come", "eats": "eat"}
PAST = {"bought": "buy", "went": "go", "paid": "pay", "sold": "sell", "lost": "lose", "found": "find", "wrote": "write", "met": "meet",
        "got": "get", "called": "call"}


def is_it(who, answer):
    """The question whether the sentence is true, or none."""
    words = answer[len(who) + 1:-1].split(" ", 1)
    if not answer.startswith(who + " ") or len(words) < 2:
        return None
    verb, rest = words
    if verb in ("is", "was"):
        return f"{verb.capitalize()} {who} {rest}?"
    if verb in BASE:
        return f"Does {who} {BASE[verb]} {rest}?"
    return f"Did {who} {PAST[verb]} {rest}?" if verb in PAST else None


def text_of(facts):
    return " ".join(f.sentence for f in facts)


FIELDS = rows("skills_fields.tsv")


def different(rng, split, count):
    """Names of different persons."""
    return list(dict.fromkeys([person(rng, split) for _ in range(3 * count)]))[:count]


def record(rng, split):
    """Fields of one to three persons, in lines, and a question about one."""
    test = split == "test"
    chosen = pick_some(rng, FIELDS, 2 + int(rng.random() * 3))
    people = different(rng, split, 1 + int(rng.random() * 2.5))
    sep, colon = pick(rng, ((", ", ": "), ("\n", ": "), ("; ", " = "), (" | ", ": ")))
    values = [[from_pool(rng, split, f[1]) for f in chosen] for _ in people]
    text = (" / " if sep != "\n" and rng.random() < 0.3 else "\n\n" if sep == "\n" else "\n").join(
        sep.join([f"Name{colon}{p}"] + [f"{f[0]}{colon}{v}" for f, v in zip(chosen, row)]) for p, row in zip(people, values))
    i, j = int(rng.random() * len(people)), int(rng.random() * len(chosen))
    row = next(r for r in RELATIONS if r.answer == chosen[j][2])
    v = values[i][j]
    answer = article(row.answer, v, row.pool)
    question = asking(rng, split, row, people[i])
    if not test and rng.random() < 0.2:
        question = ask_text(rng, split, question)
    expect = {"kind": "contains", "any": [v]}
    if rng.random() < 0.4:
        return done(rng, "reading", text, question, answer.format(n=people[i], v=v), expect)
    return done(rng, "reading", None, f"{text}\n{question}" if rng.random() < 0.7 else f"{question}\n{text}",
                answer.format(n=people[i], v=v), expect)


MISSING = "The text does not say."


def missing(rng, split, relations, facts, chosen, who):
    """A question that the text leaves open, often one near to what it tells; or none."""
    near = [r for r in relations if r.group == chosen.relation.group]
    relation = pick(rng, near) if near and rng.random() < 0.6 else any_relation(rng, split, relations)
    if sounds(chosen.relation) and rng.random() < 0.35:
        relation = attribute(rng, split, False, chosen.relation)
    if relation is chosen.relation:
        relation = pick(rng, relations)
    other = fact(rng, split, relation, pick(rng, who))
    mixed = any([f.who == other.who and f.relation.group == "when" == other.relation.group and "month" in (f.relation.pool, relation.pool)
                 for f in facts])
    return None if mixed or any([f.key == other.key for f in facts]) else other


def reading(rng, split):
    """A text of one to seven sentences about persons or places, and a question about it."""
    test = split == "test"
    if rng.random() < 0.09:
        return record(rng, split)
    if rng.random() < 0.7:
        relations, who = RELATIONS, different(rng, split, 1 + int(rng.random() * 3))
    else:
        relations, who = PLACES, pick_some(rng, VENUES, 1 + int(rng.random() * 2.5))
        if rng.random() < 0.3:
            who[0] = (common if rng.random() < 0.6 else any_word)(rng, split)
    facts, sentences = passage(rng, split, relations, who)
    chosen = pick(rng, facts)
    question, answer, v = asking(rng, split, chosen.relation, chosen.who), chosen.answer, chosen.value
    expect = {"kind": "contains", "any": [v], "not": [f.value for f in facts if f is not chosen and not overlaps(f.value, answer)]}
    thought = f"The text says: {chosen.sentence}"
    r = rng.random()
    if r < 0.13:
        other = missing(rng, split, relations, facts, chosen, who)
        if other:
            question, answer, thought = asking(rng, split, other.relation, other.who), MISSING, "The text does not tell this."
            expect = {"kind": "contains", "any": ["does not say"]}
    elif r < 0.19 and relations is RELATIONS and answer.startswith(chosen.who):
        rest = answer[len(chosen.who):-1]
        question = "Whose" + rest[2:] + "?" if rest.startswith("'s") else "Who" + rest + "?"
        expect = {"kind": "contains", "any": [chosen.who], "not": [w for w in who if w != chosen.who and not overlaps(w, answer)]}
    elif r < 0.27 and relations is RELATIONS:
        right = rng.random() < 0.5
        v2 = v if right else from_pool(rng, split, chosen.relation.pool)
        yesno = is_it(chosen.who, answer.replace(v, v2) if v not in chosen.who else "")
        if yesno and (right or v2 not in text_of(facts)):
            question, word_ = yesno, "Yes" if right else "No"
            if chosen.relation.pool == "job":
                question = question.replace(" an " + v2, " a " + v2)
                question = question.replace(" a " + v2, " an " + v2) if v2[0] in "aeiou" else question
            answer = f"{word_}, {answer}"
            expect = {"kind": "all", "of": [word_, v]}
    question = ask_text(rng, split, question)
    text = " ".join(sentences)
    r = rng.random()
    if r < 0.25:
        head = pick(rng, ("{}", "{}", "You are a helpful assistant. {}", "Facts: {}", "Use these facts: {}", "Answer from this text: {}",
                          "What you know: {}", "Information: {}")).format(text)
        return done(rng, "reading", head, question, answer, expect, thought)
    frame = ask(rng, split, FRAMES, FRAMES_TEST, 0.5, plain=True)
    if r < 0.33:
        d = done(rng, "reading", None, question, answer, expect, thought)
        d.messages[-1:] = [user(pick(rng, ("{}", "Remember this text: {}", "Read this: {}", "Here is a text: {}")).format(text)),
                           assistant("Okay, I have read it."), user(question)]
        first = pick(rng, facts)
        if first is not chosen and rng.random() < 0.6:
            d.messages[-1:-1] = [user(ask_text(rng, split, asking(rng, split, first.relation, first.who))), assistant(first.answer)]
        return d
    if frame in LOWERED and question.split(" ", 1)[0] in OPENERS:
        question = question[0].lower() + question[1:]
    if r > 0.96 and chosen.relation.pool != "open":
        return done(rng, "reading", None, frame.format(t=text, q=question).lower(), answer, expect)
    return done(rng, "reading", None, frame.format(t=text, q=question), answer, expect, thought)


def overlaps(v, answer):
    low = answer.lower()
    return v.lower() in low


def instructions(rng, split):
    r = rng.random()
    return form(rng, split, r) if r < 0.64 else role(rng, split, r) if r < 0.9 else limits(rng, split, r)


TASKS = {"instructions": (10, instructions), "reading": (10, reading)}
