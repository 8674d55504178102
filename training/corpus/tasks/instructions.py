"""System messages that change how to answer, facts given in a system message, and reading of short texts.

Held out: wordings of the instructions (in tests always held-out ones), sums with held-out pairs, invented and reserved names.
`reading` holds out names and values (a seventh, tests use only those) and wordings of questions.
"""
from ..dialogue import Dialogue, Reply, assistant, system, user
from .arithmetic import (CAPITALS, NAMES, NAMES_TEST, OPENERS, TEST_PAIRS, TRAIN_PAIRS, adding, cased, chatter,
                         pick, pick_some, rows, style, wordings)
from .memory import POOLS
from .words import CAPITAL, NOUNS, TRANSLATIONS, equal, word

(CAPITAL_ASKED, WORD_ASKED, PLURAL_ASKED, SUM_ASKED, UPPER, UPPER_TEST, LOWER, LOWER_TEST, WORD, WORD_TEST, NUMBER,
 NUMBER_TEST, END, END_TEST, BEGIN, BEGIN_TEST, PIRATE, PIRATE_TEST, CAT, CAT_TEST, ROBOT, ROBOT_TEST, CALLED, CALLED_TEST,
 WHO, WHO_TEST, USER, USER_TEST, MINE, REFUSE, REFUSE_TEST, ADDRESS, ADDRESS_TEST, YESNO, YESNO_TEST, ENDINGS, BEGINNINGS,
 FRAMES, FRAMES_TEST, LOWERED, FILLERS) = wordings("instructions")
SHORT = [row for row in TRANSLATIONS if " " not in row[0]]


def question(rng, split, kinds="ccccssstp"):
    """(text, full answer, short answer, thought) of a question about a capital, a sum, a translation or a plural."""
    kind = pick(rng, kinds)
    if kind == "s":
        a, b = pick(rng, TEST_PAIRS if split == "test" else TRAIN_PAIRS)
        return style(rng, pick(rng, SUM_ASKED)).format(a, b), f"{a} + {b} = {a + b}.", str(a + b), adding(a, b)
    if kind == "t":
        row = pick(rng, SHORT)
        i = int(rng.random() * 3)
        language = ("French", "German", "Spanish")[i]
        full = f"The {language} word for {row[0]} is {row[i + 1]}."
        return style(rng, pick(rng, WORD_ASKED)).format(row[0], language), full, row[i + 1], f"The {language} word is {row[i + 1]}."
    if kind == "p":
        one, many = pick(rng, NOUNS)
        return style(rng, pick(rng, PLURAL_ASKED)).format(one), f"The plural of {one} is {many}.", many, f"The plural is {many}."
    country, capital = pick(rng, CAPITALS)
    return style(rng, pick(rng, CAPITAL_ASKED)).format(country), f"The capital of {country} is {capital}.", capital, (
        f"The capital is {capital}.")


def name(rng, split):
    test = split == "test"
    return pick(rng, CAPITAL[test] if rng.random() < 0.3 else NAMES_TEST if test else NAMES)


TWO = {"French": ("oui", "non"), "German": ("ja", "nein"), "Spanish": ("sí", "no"), "Italian": ("sì", "no"), "English": ("yes", "no")}


STARTS = ("You are a helpful assistant. ", "You are Fieldfare. ", "You are an assistant. ", "Help the user. ", "You answer questions. ")


def told(rng, split, train, test, **parts):
    """The instruction, at times with a neutral sentence before or after it."""
    text = pick(rng, test if split == "test" else train).format(**parts)
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
        asked, full, short, thought = question(rng, split, "cccccstp")
        up = r < 0.16
        shape = str.upper if up else str.lower
        head = told(rng, split, *((UPPER, UPPER_TEST) if up else (LOWER, LOWER_TEST)))
        return done(rng, "instructions", head, asked, shape(full), equal(shape(full)),
                    ("Capitals are wanted. " if up else "Small letters are wanted. ") + thought, shape, inline=True)
    if r < 0.36:
        asked, full, short, thought = question(rng, split, "ccctps")
        return done(rng, "instructions", told(rng, split, WORD, WORD_TEST), asked, short, equal(short, short + "."),
                    "One word is wanted. " + thought, one_word, inline=True)
    if r < 0.46:
        asked, full, short, thought = question(rng, split, "s")
        return done(rng, "instructions", told(rng, split, NUMBER, NUMBER_TEST), asked, short, equal(short), thought, bare_number,
                    inline=True)
    asked, full, short, thought = question(rng, split)
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
    n = name(rng, split)
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
        text = style(rng, pick(rng, WHO_TEST if split == "test" and rng.random() < 0.6 else WHO))
        return done(rng, "instructions", told(rng, split, CALLED, CALLED_TEST, n=n), text, f"My name is {n}.",
                    {"kind": "contains", "any": [n]}, f"I am called {n}.",
                    lambda t: None if "Fieldfare" in t else t)
    if r < 0.86:
        return done(rng, "instructions", told(rng, split, USER, USER_TEST, n=n), style(rng, pick(rng, MINE)), f"Your name is {n}.",
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

def _relations(about):
    """(sentences, questions, questions for tests, answer, pool): {n} is the person or place, {v} the value."""
    return [tuple(p.split(" | ") for p in row[1:4]) + row[4:] for row in rows("skills_relations.tsv") if row[0] == about]


RELATIONS, PLACES = _relations("person"), _relations("place")
VENUES = ("shop museum library bakery pool zoo hotel cinema school garden market cafe theatre castle gallery bank office station "
          "gym park restaurant farm studio harbour clinic").split()


def fact(rng, split, relations, who):
    """(sentence, question, answer, value, who and what it is about) about the person or place."""
    sentences, questions, tests, answer, pool = pick(rng, relations)
    key = answer
    v = pick(rng, POOLS[pool][split == "test"])
    while v == who:
        v = pick(rng, POOLS[pool][split == "test"])
    text = pick(rng, sentences)
    ask = pick(rng, tests if split == "test" and rng.random() < 0.6 else questions)
    if pool == "job" and v[0] in "aeiou":
        text, answer = text.replace("a {v}", "an {v}"), answer.replace("a {v}", "an {v}")
    if pool == "colour" and v[0] in "aeiou":
        text = text.replace("a {v}", "an {v}")
    return text.format(n=who, v=v), ask.format(n=who), answer.format(n=who, v=v), v, (who, key)


def passage(rng, split, relations, people):
    """Facts about the people, one or more each, no relation twice for one of them; shuffled with fillers."""
    facts, sentences = [], []
    for who in people:
        mine = []
        for _ in range(1 + int(rng.random() * 2.3)):
            made = fact(rng, split, relations, who)
            if all(f[4] != made[4] and f[3] != made[3] for f in facts):
                facts.append(made)
                mine.append(made[0])
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


BASE = {"lives": "live", "works": "work", "likes": "like", "drinks": "drink", "has": "have", "gets": "get"}
PAST = {"bought": "buy", "went": "go", "paid": "pay"}


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
    return " ".join(f[0] for f in facts)


FIELDS = rows("skills_fields.tsv")


def record(rng, split):
    """Fields of one to three persons, in lines, and a question about one."""
    test = split == "test"
    chosen = pick_some(rng, FIELDS, 2 + int(rng.random() * 3))
    people = pick_some(rng, NAMES_TEST if test else NAMES, 1 + int(rng.random() * 2.5))
    sep, colon = pick(rng, ((", ", ": "), ("\n", ": "), ("; ", " = "), (" | ", ": ")))
    values = [[pick(rng, POOLS[f[1]][test]) for f in chosen] for _ in people]
    text = (" / " if sep != "\n" and rng.random() < 0.3 else "\n\n" if sep == "\n" else "\n").join(
        sep.join([f"Name{colon}{p}"] + [f"{f[0]}{colon}{v}" for f, v in zip(chosen, row)]) for p, row in zip(people, values))
    i, j = int(rng.random() * len(people)), int(rng.random() * len(chosen))
    row = next(r for r in RELATIONS if r[3] == chosen[j][2])
    v = values[i][j]
    answer = row[3].replace("a {v}", "an {v}") if row[4] == "job" and v[0] in "aeiou" else row[3]
    question = pick(rng, row[2] if test and rng.random() < 0.6 else row[1]).format(n=people[i])
    if not test and rng.random() < 0.2:
        question = ask_text(rng, split, question)
    expect = {"kind": "contains", "any": [v]}
    if rng.random() < 0.4:
        return done(rng, "reading", text, question, answer.format(n=people[i], v=v), expect)
    return done(rng, "reading", None, f"{text}\n{question}" if rng.random() < 0.7 else f"{question}\n{text}",
                answer.format(n=people[i], v=v), expect)


MISSING = "The text does not say."


def reading(rng, split):
    """A text of one to seven sentences about persons or places, and a question about it."""
    test = split == "test"
    if rng.random() < 0.09:
        return record(rng, split)
    if rng.random() < 0.75:
        relations, who = RELATIONS, pick_some(rng, NAMES_TEST if test else NAMES, 1 + int(rng.random() * 3))
        if rng.random() < 0.25:
            who[0] = pick(rng, CAPITAL[test])
    else:
        relations, who = PLACES, pick_some(rng, VENUES, 1 + int(rng.random() * 2.5))
    facts, sentences = passage(rng, split, relations, who)
    chosen = pick(rng, facts)
    question, answer, v = chosen[1:4]
    expect = {"kind": "contains", "any": [v], "not": [f[3] for f in facts if f is not chosen and not overlaps(f[3], answer)]}
    thought = f"The text says: {chosen[0]}"
    r = rng.random()
    if r < 0.1:
        other = fact(rng, split, relations, pick(rng, who))
        if rng.random() < 0.5:
            row = next(r for r in relations if r[3] == chosen[4][1])
            other = fact(rng, split, [row], pick(rng, who))
        if all(f[4] != other[4] for f in facts):
            question, answer, thought = other[1], MISSING, "The text does not tell this."
            expect = {"kind": "contains", "any": ["does not say"]}
    elif r < 0.18 and relations is RELATIONS and answer.startswith(chosen[4][0]):
        rest = answer[len(chosen[4][0]):-1]
        question = "Whose" + rest[2:] + "?" if rest.startswith("'s") else "Who" + rest + "?"
        expect = {"kind": "contains", "any": [chosen[4][0]], "not": [w for w in who if w != chosen[4][0] and not overlaps(w, answer)]}
    elif r < 0.27 and relations is RELATIONS:
        right = rng.random() < 0.5
        v2 = v if right else pick(rng, POOLS[next(r[4] for r in relations if r[3] == chosen[4][1])][test])
        yesno = is_it(chosen[4][0], answer.replace(v, v2) if v not in chosen[4][0] else "")
        if yesno and (right or v2 not in text_of(facts)):
            question, word_ = yesno, "Yes" if right else "No"
            if chosen[4][1].endswith("as a {v}."):
                question = question.replace(" an ", " a ")
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
    frame = pick(rng, FRAMES_TEST if test and rng.random() < 0.5 else FRAMES)
    if r < 0.33:
        d = done(rng, "reading", None, question, answer, expect, thought)
        d.messages[-1:] = [user(pick(rng, ("{}", "Remember this text: {}", "Read this: {}", "Here is a text: {}")).format(text)),
                           assistant("Okay, I have read it."), user(question)]
        first = pick(rng, facts)
        if first is not chosen and rng.random() < 0.6:
            d.messages[-1:-1] = [user(ask_text(rng, split, first[1])), assistant(first[2])]
        return d
    if frame in LOWERED and question.split(" ", 1)[0] in OPENERS:
        question = question[0].lower() + question[1:]
    if r > 0.96:
        return done(rng, "reading", None, frame.format(t=text, q=question).lower(), answer, expect)
    return done(rng, "reading", None, frame.format(t=text, q=question), answer, expect, thought)


def overlaps(v, answer):
    low = answer.lower()
    return v.lower() in low


def instructions(rng, split):
    r = rng.random()
    return form(rng, split, r) if r < 0.64 else role(rng, split, r) if r < 0.9 else limits(rng, split, r)


TASKS = {"instructions": (10, instructions), "reading": (10, reading)}
