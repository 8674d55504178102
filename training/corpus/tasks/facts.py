"""Facts: capitals, languages, animals, words, units and so on; follow-up questions ("And of Spain?"); yes/no checks.

Held out is the wording: the test asks with frames and questions that training never uses, made of words that training does use, about
facts that training does teach. Only training has noise in the words around the facts.
Facts and wordings are in `data/` (facts.tsv, countries.tsv, fact_singles.tsv, fact_wordings.tsv).
"""
from ..dialogue import Dialogue, Reply, assistant, user
from ..fact_phrasing import DIRECT, FOLLOW, NOUN, NOUNS, ask, asked, frame, opening, typed
from ..fact_table import FREE_OF_CHECKS, RELATIONS, SINGLES, any_relation, expand, sentence
from ..noise import maybe

HELD_SINGLES = [s for s in SINGLES if s.nouns or s.held_out]
PAIRED = [RELATIONS[n] for n in ("capital", "capital", "capital", "language", "currency", "opposite", "plural", "past", "symbol")]
CHECKED = [r for r in RELATIONS.values() if r.texts("claim") and r.name not in FREE_OF_CHECKS]
CHECK_WEIGHTS = [r.weight for r in CHECKED]
NOUN_CLAIMS = [r for r in CHECKED if r.texts("noun")]
CHOICES = [r for r in NOUN_CLAIMS for _ in range(max(1, int(r.weight))) if r.name not in ("continent", "city_country")]
CHOICE = {
    "train": ["Is {n} {a} or {b}?", "Which is {n}: {a} or {b}?", "Which is {n}, {a} or {b}?", "{a} or {b}: which is {n}?",
            "{n}: {a} or {b}?",
              "What is {n}, {a} or {b}?", "Tell me if {n} is {a} or {b}.", "Would {n} be {a} or {b}?", "Is it {a} or {b}, {n}?",
              "I think {n} is {a} or {b}. Which one?", "{a} or {b}? I mean {n}.", "Do you know if {n} is {a} or {b}?"],
    "test": ["I do not know if {n} is {a} or {b}.", "Which one is {n}: {a} or {b}?", "{n}, is it {a} or {b}?"],
}
CLAIM = {
    "train": ["{}, right?", "{}, correct?", "Is it true that {}?", "Is it correct that {}?", "True or false: {}?", "{}. Is that right?",
              "{}. Is that true?", "Am I right that {}?", "I think {}. Is that right?", "Would you say that {}?", "{}, isn't that so?",
              "{}, yes or no?", "Yes or no: {}?", "Is it right that {}?", "I believe {}. Correct?", "Somebody told me that {}. Is it true?",
              "My friend says {}. Is that so?", "Can you confirm that {}?", "{} - true?", "{}. True or false?", "So {}?",
              "Is it a fact that {}?", "I read that {}. Is this true?", "Could it be that {}?", "Do you agree that {}?",
              "{}, or am I wrong?",
              "{}?", "{}, yes?", "{}. Am I right?"] * 3
    + [t for text in (
        "Is it (true/correct/right/a fact/true or false) that {}?",
        "(I/We) (think/believe/read/heard/was told) that {}. (Right/Correct/True/Is it so/Am I right/Yes or no)?",
        "(My friend/My son/My teacher/Somebody/A book) (says/said/told me/thinks) that {}. "
        "(Is that right/Is it true/True/Correct/Is it a fact/Do you agree)?",
        "{}(,/.) (is it/is that/is this) (true/right/correct/so/a fact)?",
        "(Can/Could/Would) you (say/agree/confirm/tell me) (that/if) {}?",
        "(Check/Confirm/Tell me/Please check)(:/ if) {}(/, please).",
        "(Right/Correct/True/Yes or no/Right or wrong/True or false)(:/?) {}(./?)",
        "I (am not sure/wonder/want to know/would like to know/need to know) if {}.",
        "(So/And/Then) {}, (right/correct/yes/is that so)?") for t in expand(text)],
    "test": ["Would you agree that {}?", "Is it so that {}?", "I was told that {}. Do you agree?", "Please tell me if it is true that {}.",
             "I was told that {}. Is it a fact?", "My teacher thinks that {}. Is that right?", "{}, do you agree?",
             "Could it be a fact that {}?"],
}
CHECK_FRAMES = {
    "train": ["{}"] * 20 + ["Yes or no: {}", "Tell me, {}", "Quick check: {}", "{} Yes or no?", "Question: {}", "{} I am not sure.",
                            "Check this for me: {}", "Let us see: {}", "I have a doubt. {}", "{} Just yes or no.", "{} I think so.",
                            "Please check: {}", "Check this: {}", "I am not sure. {}", "{} Am I right?", "{} I doubt it.",
                            "Say yes or no. {}",
                            "True or false: {}", "{} Please say yes or no.", "Is this right? {}", "{} Or not?", "{} Tell me yes or no."],
    "test": ["Let us check this: {}", "I doubt it. {}", "Please tell me, yes or no: {}", "I think so, but {}",
            "{} Please check it for me."],
}
ITS = {
    "capital": (["And its capital?", "What is its capital?", "And the capital?", "What is the capital there?",
        "Which city is its capital?", "And what is the capital city?", "What about its capital?",
        "Do you also know its capital?", "capital?", "And which city is the capital there?", "Its capital would be?",
        "Now name its capital too.", "What is its capital called?", "What is the capital of it?", "Tell me its capital.",
        "Which city is the capital?", "And what would be the capital?", "Name its capital.", "its capital please",
        "What's its capital city?", "I need the capital too."],
        ["What would the capital be?", "And what is its capital called?", "Now name the capital of it."]),
    "language": (["And the language?", "What language do they speak there?", "What do people speak there?", "And its language?",
        "Which language is spoken there?", "What about the language?", "And what do they speak there?",
        "And which language will I hear there?", "Its language would be?", "Now name its language too.",
        "Tell me its language.", "In which language do people talk there?", "What would they speak?",
        "What is the language there?", "And in which language?", "the language please", "What do the people there speak?",
        "I need the language too.", "Name the language of it."],
        ["And in which language do they speak?", "What would its language be?", "Now tell me the language of the people."]),
    "currency": (["And its currency?", "What is the currency there?", "And the currency?", "What money do they use there?",
        "Which currency do they have?", "And what do people pay with?", "What about its currency?",
        "And which money will I need there?", "Its currency would be?", "Now name its currency too.",
        "Tell me its currency.", "What is the money called?", "How do people pay there?", "With what do they pay there?",
        "And which money?", "the currency please", "What would I pay with there?", "I need the currency too.",
        "Name the money of it."],
        ["And what is the money there called?", "What would its currency be?", "With which currency do people pay there?"]),
    "continent": (["And on which continent is it?", "Which continent is it on?", "Where is it?", "And the continent?",
        "What continent is that?", "And in which part of the world is it?", "And on what continent does it lie?",
        "Its continent would be?", "Now name its continent too.", "Tell me its continent.", "What is the continent of it?",
        "Where does it lie?", "In which part of the world does it lie?", "What would the continent be?",
        "the continent please", "On which continent does it lie?", "I need the continent too.", "In what continent is it?"],
        ["And where does it lie?", "What would its continent be?", "In which continent is that?"]),
}
ITS_BY_KEY = {n: {f.key: f for f in RELATIONS[n].facts} for n in ITS}


def plain_reply(rng, answer, thought):
    thinking = rng.random() < 0.15
    return Reply(answer, thought if thinking else None), thinking


def thought_of(rng, relation, fact):
    return sentence(rng.choice(relation.texts("thought")).format_map(fact.forms))


def single(rng, split):
    fact = rng.choice(HELD_SINGLES if split == "test" else SINGLES)
    if split == "test":
        if fact.nouns and (not fact.held_out or rng.random() < 0.4):
            text = frame(rng, NOUN["test"], rng.choice(fact.nouns))
        else:
            text = frame(rng, DIRECT, rng.choice(fact.held_out))
    elif fact.nouns and (not fact.questions or rng.random() < 0.5):
        text = frame(rng, NOUN["train"], rng.choice(fact.nouns))
    else:
        text = frame(rng, DIRECT, rng.choice(fact.questions))
    text = maybe(rng, split, text, fact.accepted)
    reply, thinking = plain_reply(rng, fact.answer, "I know this fact. " + fact.answer)
    return Dialogue("facts", opening(rng) + [user(typed(rng, text))], reply, {"kind": "contains", "any": fact.accepted}, thinking=thinking)


def pair(rng, split):
    relation = rng.choice(PAIRED)
    one, two = rng.sample(relation.facts, 2)
    k, j = asked(rng, one)["k"], asked(rng, two)["k"]
    texts = relation.texts("pair") + (relation.texts("pair", "test") if split == "test" else [])
    text = maybe(rng, split, frame(rng, NOUNS[split], rng.choice(texts).format(k=k, j=j)), (k, j))
    text = typed(rng, text)
    reply, thinking = plain_reply(rng, relation.answer(one) + " " + relation.answer(two),
                                  thought_of(rng, relation, one) + " " + thought_of(rng, relation, two))
    return Dialogue("facts", opening(rng) + [user(text)], reply, {"kind": "all", "of": [one.answers[0], two.answers[0]]}, thinking=thinking)


def choice(rng, split):
    """Is the capital of Australia Sydney or Canberra?"""
    relation = rng.choice(CHOICES)
    fact = rng.choice(relation.facts)
    wrong = claimed_forms(rng, relation, fact, False)
    if wrong is None:
        return choice(rng, split)
    one, two = fact.forms["v"], wrong["v"]
    if rng.random() < 0.5:
        one, two = two, one
    noun = rng.choice(relation.texts("noun")).format_map(wrong)
    text = frame_of(rng.choice(CHOICE[split]), n=noun, a=one, b=two)
    text = typed(rng, maybe(rng, split, text, (wrong["k"], wrong["ks"], one, two)), relation.locked)
    reply, thinking = plain_reply(rng, relation.answer(fact), thought_of(rng, relation, fact))
    return Dialogue("facts", opening(rng) + [user(text)], reply, {"kind": "contains", "any": fact.answers}, thinking=thinking)


def frame_of(text, **parts):
    return sentence(text.format(**parts))


def facts(rng, split):
    r = rng.random()
    if r < 0.12:
        return single(rng, split)
    if r < 0.15:
        return pair(rng, split)
    if r < 0.18:
        return choice(rng, split)
    relation = any_relation(rng)
    fact = rng.choice(relation.facts)
    text = ask(rng, split, relation, asked(rng, fact))
    reply, thinking = plain_reply(rng, relation.answer(fact), thought_of(rng, relation, fact))
    return Dialogue("facts", opening(rng) + [user(text)], reply, {"kind": "contains", "any": fact.answers}, thinking=thinking)


def follow_text(rng, split, relation, fact):
    forms = asked(rng, fact)
    own = relation.texts("followup", split)
    if own:
        text = sentence(rng.choice(own).format_map(forms))
    else:
        text = frame(rng, FOLLOW[split], relation.texts("key")[0].format_map(forms))
    return maybe(rng, split, text, (forms["k"], forms["ks"], forms["u"]))


def turn(rng, relation, fact):
    return [user(ask(rng, "train", relation, asked(rng, fact))), assistant(relation.answer(fact))]


def facts_followup(rng, split):
    if rng.random() < 0.25:
        return about_the_same(rng, split)
    relation = any_relation(rng)
    chain = rng.sample(relation.facts, min(len(relation.facts), rng.choice((2, 2, 2, 3, 4))))
    fact = chain.pop()
    messages = opening(rng, 0.05) + turn(rng, relation, chain[0])
    for earlier in chain[1:]:
        messages += [user(typed(rng, follow_text(rng, "train", relation, earlier))), assistant(relation.answer(earlier))]
    messages.append(user(typed(rng, follow_text(rng, split, relation, fact), relation.locked)))
    reply, thinking = plain_reply(rng, relation.answer(fact), thought_of(rng, relation, fact))
    return Dialogue("facts_followup", messages, reply, {"kind": "contains", "any": fact.answers}, thinking=thinking)


def about_the_same(rng, split):
    """A second question about the country of the first one: "And its currency?"."""
    while True:
        first, second = rng.sample(list(ITS), 2)
        start = rng.choice(RELATIONS[first].facts)
        fact = ITS_BY_KEY[second].get(start.key)
        if fact:
            break
    messages = opening(rng, 0.05) + turn(rng, RELATIONS[first], start)
    messages.append(user(typed(rng, maybe(rng, split, rng.choice(ITS[second][split == "test"])))))
    reply, thinking = plain_reply(rng, RELATIONS[second].answer(fact), thought_of(rng, RELATIONS[second], fact))
    return Dialogue("facts_followup", messages, reply, {"kind": "contains", "any": fact.answers}, thinking=thinking)


def lower_start(text, fact):
    """The answer as it goes on after "Yes, "; titles keep their capital."""
    head = text.split(" ", 1)[0]
    return text[0].lower() + text[1:] if head in ("The", "A", "An", "There") and not fact.key.startswith(head) else text


def claimed_forms(rng, relation, fact, true):
    """The forms of the fact with its own value or with that of another fact, a wrong one."""
    forms = dict(asked(rng, fact))
    if true:
        return forms
    for _ in range(20):
        other = rng.choice(relation.facts)
        if other.answers[0] not in fact.answers and other.answers[0] != fact.key:
            break
    else:
        return None
    forms["v"], forms["av"] = other.forms["v"], other.forms["av"]
    return forms


def facts_check(rng, split):
    relation = rng.choices(CHECKED, CHECK_WEIGHTS)[0]
    fact = rng.choice(relation.facts)
    true = rng.random() < 0.5
    forms = claimed_forms(rng, relation, fact, true)
    if forms is None:
        return facts_check(rng, split)
    r = rng.random()
    if relation.texts("noun") and r < 0.3:
        noun = rng.choice(relation.texts("noun")).format_map(forms)
        if r < 0.15:
            text = frame(rng, CLAIM[split], f"{noun} is {forms['v']}" if r < 0.1 else f"{forms['v']} is {noun}")
        else:
            text = frame(rng, CHECK_FRAMES[split], f"Is {noun} {forms['v']}?" if r < 0.24 else f"Is {forms['v']} {noun}?")
    elif relation.texts("check") and r < 0.62:
        text = frame(rng, CHECK_FRAMES[split], rng.choice(relation.texts("check")).format_map(forms))
    else:
        text = frame(rng, CLAIM[split], rng.choice(relation.texts("claim")).format_map(forms))
    text = maybe(rng, split, text, (forms["k"], forms["ks"], forms["v"], forms["u"]))
    word = "Yes" if true else "No"
    thought = thought_of(rng, relation, fact) + (" So it is true." if true else " So it is not true.")
    reply, thinking = plain_reply(rng, f"{word}, {lower_start(relation.answer(fact), fact)}", thought)
    messages = opening(rng) + [user(typed(rng, text, relation.locked))]
    return Dialogue("facts_check", messages, reply, {"kind": "all", "of": [word, fact.answers[0]]}, thinking=thinking)


TASKS = {"facts": (30, facts), "facts_followup": (4, facts_followup), "facts_check": (9, facts_check)}
