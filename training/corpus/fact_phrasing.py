"""Puts questions into words: frames around a noun phrase ("the capital of France"), an indirect question ("who wrote Emma")
or a direct question, then the small ways in which people type (greetings, no question mark, lower case, "whats", a typo).

Frames have a list for training and one for the test, which is made of words that training frames use; the other variations are the
same in both, except that only training has noise (see `noise.py`).
"""
from .dialogue import assistant, system, user
from .fact_table import RELATIONS, any_relation, expand, sentence
from .noise import maybe


def varied(base, *texts):
    """The plain frames and the texts behind those with alternatives, about as many of each."""
    more = [t for text in texts for t in expand(text)]
    return base * max(1, len(more) // len(base)) + more


NOUN = {
    "train": varied( ["What is {}?"] * 8 + ["What's {}?"] * 3 + [
        "Tell me {}.", "Please tell me {}.", "Can you tell me {}?", "Could you tell me {}?", "Give me {}.", "Name {}.", "Do you know {}?",
        "I need {}.", "I need to know {}.", "I want to know {}.", "I would like to know {}.", "I'd like to know {}.", "{}?", "{}",
        "{} is what?", "{} is?", "{} is ...", "Say {}.", "I forgot {}.", "I forgot {}. Can you help?", "What would be {}?",
        "What was {} again?", "Remind me of {}.", "Do you happen to know {}?", "Any idea what {} is?", "Can you name {}?",
        "Could you name {}?",
        "I'm looking for {}.", "I am looking for {}.", "My question is about {}.", "Let me know {}.", "Write {}.", "Would you tell me {}?",
        "Help me, what is {}?", "Which is {}?", "What do you know about {}?", "I cannot remember {}.", "Who can tell me {}?",
        "Question: {}?",
        "Do you know what {} is?", "Can you tell me what {} is?", "Tell me what {} is.", "I wonder what {} is.", "What exactly is {}?",
        "My teacher wants to know {}.", "For a quiz: {}?", "I have to write down {}.", "Answer this: what is {}?", "So what is {}?",
        "May I ask what {} is?", "I keep forgetting {}.", "I was asked for {}.", "What would you say is {}?", "Look up {} for me.",
        "My homework asks for {}.", "It slipped my mind, what is {}?", "Would you mind telling me {}?", "Quiz time! {}?",
        "Somebody asked me about {}.", "Can you remember {}?", "Please write down {}.", "Here is what I need: {}.", "What is {} called?",
        "I have to find {}.", "Look it up: {}.", "Tell us {}.", "May I know {}?", "I keep asking about {}.", "{}, what is it?",
        "{}, please?"],
        "(Can/Could/Would/Will) you (please /)(tell/give/show) (me/us) {}(, please/)?",
        "(Can/Could/Would) you (please /)(name/say/write/find) {}?",
        "(Please /)(tell/give/show/help) (me/us) (with /){}(, please/ now/).", "(Do/Would) you (know/remember/have) {}(/, please)?",
        "I (need/want/would like/have) to (know/find/learn/write/name) {}(, please/ now/).",
        "(So/And/Now/Well/Then), what (is/was/would be) {}?",
        "What (is/was/would be) {}(, please/ again/ now/ then/ called/ really/ exactly)?",
        "(I/We) (do not know/cannot find/forgot/need) {}.",
        "(Find/Look up/Write down/Say/Name) {}(, please/ for me/ now/).",
        "(My friend/My son/My teacher/Somebody) (asks for/wants/needs) {}."),
    "test": ["Now tell me what {} would be.", "May I know what {} is?", "I was asked what {} is.", "Do you remember what {} was?",
             "Please look up what {} is.", "My homework is to name {}.", "Help me remember {}.", "Somebody wants to know what {} is.",
             "Would you say what {} is, please?", "Here is my question: what would {} be?", "I keep asking what {} is.",
             "Can you write down what {} is?", "Tell us, what is {} called?"],
}
NOUNS = {
    "train": ["What are {}?", "Tell me {}.", "Name {}.", "Give me {}.", "Can you tell me {}?", "{}?", "Do you know {}?", "I need {}.",
              "I want to know {}.", "Please name {}.", "Could you tell me {}?", "What are {}, please?", "May I ask what {} are?",
              "I was asked for {}.",
              "My homework asks for {}.", "Would you mind telling me {}?", "Do you know what {} are?", "Tell me what {} are.",
              "Say {}.", "List {}.",
              "I have to find {}.", "I forgot {}.", "Write down {}.", "{}, what are they?", "Find {}, please.",
              "I need to know what {} are."],
    "test": ["May I know what {} are?", "I forgot what {} are.", "My homework is to find {}.", "Would you tell me what {} are?"],
}
INDIRECT = {
    "train": varied( ["Tell me {}."] * 2 + ["Please tell me {}."] * 2 + ["Can you tell me {}?"] * 3 + ["Do you know {}?"] * 3 + [
        "Could you tell me {}?", "I want to know {}.", "I would like to know {}.", "I'd like to know {}.", "I wonder {}.", "Say {}.",
        "I need to know {}.", "I forgot {}.", "I don't remember {}.", "I do not know {}. Do you?", "Do you happen to know {}?",
        "Any idea {}?",
        "Can you say {}?", "Let me know {}.", "Would you tell me {}?", "I am not sure {}.", "Could you please tell me {}?", "Remind me {}.",
        "I am trying to find out {}.", "Explain {}.", "Can you explain {}?", "Do you remember {}?", "Who knows {}?", "My question is {}.",
        "I'm curious {}.", "Have you any idea {}?", "Will you tell me {}?", "My son asked me {}.", "We were wondering {}.",
        "May I ask {}?", "I keep forgetting {}.", "Would you mind telling me {}?", "Someone asked me {}.", "Can you remember {}?",
        "Look up {} for me.", "Help me find out {}.", "Are you able to tell me {}?", "Somebody wants to know {}.", "I was asking {}."],
        "(Can/Could/Would/Will) you (please /)(tell me/say/tell us/find out/show me/explain) {}(, please/)?",
        "(Please /)(tell/show) (me/us) {}(, please/ now/).",
        "I (need/want/would like/have) to (know/find out/learn/say) {}(, please/ now/).", "(Do/Did) you (know/remember/learn/find out) {}?",
        "(I/We) (do not know/don't know/forgot/wonder/cannot say) {}.",
        "(My friend/My son/My teacher/Somebody) (asks/asked/wants to know/forgot) {}."),
    "test": ["I was asked {}.", "May I know {}?", "Do you remember {}, please?", "Somebody wants to know {}.", "Please look up {}.",
             "Help me to remember {}.", "Would you find out {} for me?", "Now say {}.", "I am not able to say {}.", "We forgot {}."],
}
DIRECT = ["{}"] * 24 + ["Tell me: {}", "Quick question: {}", "Question: {}", "A question: {}", "Please answer: {}", "Answer this: {}",
                        "Here is a question. {}", "I have a question. {}", "{} Please answer.", "{} Tell me.", "Can you help me? {}",
                        "{} I forgot.", "One question: {}", "Do you know this? {}", "{} Do you know?", "Help me with this: {}", "Q: {}",
                        "I was wondering: {}", "{} In one sentence, please.", "Next question: {}", "An easy one: {}", "My question: {}"]
FOLLOW = {
    "train": ["And {}?"] * 4 + ["What about {}?"] * 4 + ["How about {}?"] * 2 + ["And of {}?", "And for {}?", "{}?", "Now {}.",
              "And now {}?",
              "And what about {}?", "Same for {}.", "The same for {}, please.", "Same question for {}.", "OK, and {}?", "Thanks. And {}?",
              "Good. What about {}?", "Now the same for {}", "I also need {}.", "Also {}?", "then {}?", "and how about {}",
              "Right, and what about {}?", "Next: {}.", "Could you do {} too?", "Fine, and in the case of {}?", "What would it be for {}?",
              "Now tell me about {}.", "Can you do {}?", "Do {} as well.", "Next is {}.", "What is it for {}?", "And with {}?",
              "And {} too?",
              "Good, now {}.", "Please do the same for {}.", "Tell me the same for {}.", "And in the case of {}?", "What about {} then?",
              "I mean {}.", "No, {} please.", "{}, please.", "OK, {} now.", "Let's do {}.", "One more: {}.", "Thank you. What about {}?"],
    "test": ["Fine, now do {}.", "OK, what would it be for {}?", "Thanks, and in the case of {} too?", "Can you tell me about {} as well?",
             "Next one: what about {}?", "Now I need the same for {}."],
}
OPENERS = ["Hi, ", "Hi! ", "Hello, ", "Hello! ", "Hey, ", "Hey! ", "Hey there, ", "Please, ", "So, ", "OK, ", "Ok, ", "Okay, ", "Well, ",
           "Good morning. ", "Good evening. ", "Good day! ", "Sorry, ", "Excuse me, ", "Now, ", "And now: ", "Another one: ", "One more: ",
           "Hi Fieldfare, ", "Fieldfare, ", "Hello Fieldfare! ", "Just checking: ", "Hmm, ", "Um, ", "Hi there! ", "Right, ", "Oh, "]
CLOSERS = [" Please.", " Thanks!", " Thank you.", " Thanks.", " Thank you!", " I need it for school.", " It is for a quiz.",
           " Just the answer.",
           " Be short.", " Please be brief.", " I forgot it.", " Thanks in advance.", " Short answer, please.", " Help!", " Cheers.",
           " I am curious.", " It's for my homework.", " One sentence is enough.", " Thx", " pls"]
TYPOS = [("what", "waht"), ("what", "wat"), ("which", "wich"), ("the ", "teh "), ("capital", "captial"), ("country", "contry"),
         ("language", "langauge"), ("does", "dose"), ("tell", "tel"), ("please", "plese"), ("many", "mny"), ("colour", "coulor"),
         ("know", "kno"), ("called", "caled"), ("opposite", "oposite"), ("currency", "curency"), ("author", "auther"), ("is ", "si "),
         ("and ", "adn "), ("you", "u"), ("are ", "r "), ("question", "qestion"), ("continent", "continet"), ("of ", "fo ")]
SYSTEMS = ["You are a helpful assistant.", "You are Fieldfare.", "Be brief.", "You are a friendly assistant.", "Answer in one sentence.",
           "You are a small demonstration model.", "Answer the question of the user.", "Be kind and short.", "You are an assistant.",
           "You are Fieldfare, a helpful assistant.", "Give short answers.", "Help the user.", "You answer questions.", "Be polite.",
           "You are a polite assistant who answers in English.", "Keep your answers short.", "Answer truthfully.", "Be concise.",
           "You are a teacher.", "You are the assistant of a school.", "You help people with their questions.", "Be accurate.",
           "If you do not know something, say so.", "You are a careful assistant. Do not make things up.", "Write plain English.",
           "You are a chat bot in a museum.", "Answer as well as you can.", "You are talking with a customer.", "Use simple words.",
           "You are a helpful, honest assistant.", "Be helpful.", "Reply in English.", "You are an AI model.", "Be honest and brief."]
CHAT = [("Hello", "Hello! How can I help you?"), ("Hi!", "Hello! How can I help you?"), ("Thanks", "You are welcome."),
        ("Thank you!", "You are welcome."), ("How are you?", "I am fine, thank you. How can I help you?"),
        ("Good morning", "Good morning! How can I help you?"), ("ok", "All right."), ("Nice.", "Thank you."),
        ("I have a question.", "Please ask."), ("Can I ask you something?", "Yes, please ask.")]


def typed(rng, text, locked=False):
    """The text as somebody may type it."""
    r = rng.random()
    if r < 0.22:
        text = rng.choice(OPENERS) + (text if rng.random() < 0.3 or text[:2] in ("I ", "I'") else text[:1].lower() + text[1:])
    if rng.random() < 0.1:
        text += rng.choice(CLOSERS)
    r = rng.random()
    if r < 0.12:
        text = text.replace("hat is ", "hat's " if r < 0.06 else "hats ", 1)
    elif r < 0.16:
        old, new = rng.choice(TYPOS)
        text = text.replace(old, new, 1)
    r = rng.random()
    if r < 0.2:
        text = text.rstrip("?.")
    elif r < 0.23:
        text = text.rstrip(".?") + rng.choice((" ?", "??", "?!", "...", "!", " ??"))
    r = rng.random()
    if r < 0.27 and not locked:
        text = text.lower()
    elif r < 0.275:
        text = text.upper()
    elif r < 0.34:
        text = text[:1].lower() + text[1:]
    return text


def upper(text):
    return text[:1].upper() + text[1:]


def frame(rng, frames, text):
    return upper(rng.choice(frames).format(text))


def question(rng, split, relation, forms):
    """A question of that relation about the thing behind `forms`, before typing variations."""
    r = rng.random()
    nouns, held = relation.texts("noun"), split == "test"
    if held:
        if r < 0.45:
            return frame(rng, DIRECT, upper(rng.choice(relation.texts("question", "test")).format_map(forms)))
        if r < 0.6:
            return frame(rng, INDIRECT["train"], rng.choice(relation.texts("indirect", "test")).format_map(forms))
        if r < 0.8 or not nouns:
            return frame(rng, INDIRECT["test"], rng.choice(relation.texts("indirect")).format_map(forms))
        return frame(rng, NOUN["test"], rng.choice(nouns + relation.texts("noun", "test")).format_map(forms))
    if r < 0.5:
        return frame(rng, DIRECT, upper(rng.choice(relation.texts("question")).format_map(forms)))
    if r < 0.68 or not nouns:
        return frame(rng, INDIRECT["train"], rng.choice(relation.texts("indirect")).format_map(forms))
    return frame(rng, NOUN["train"], rng.choice(nouns).format_map(forms))


def ask(rng, split, relation, forms, noise=None):
    """`noise` is the split of the dialogue where it is not that of the wording."""
    text = maybe(rng, noise or split, question(rng, split, relation, forms), (forms["k"], forms["ks"], forms["u"]))
    return typed(rng, text, relation.locked)


def asked(rng, fact):
    """One of the names under which people know the thing."""
    return fact.asked[0] if len(fact.asked) == 1 or rng.random() < 0.5 else rng.choice(fact.asked)


def past_turn(rng):
    """An earlier question and its answer, in the wording of training."""
    if rng.random() < 0.3:
        said, reply = rng.choice(CHAT)
        return [user(said), assistant(reply)]
    relation = any_relation(rng)
    fact = rng.choice(relation.facts)
    return [user(ask(rng, "train", relation, asked(rng, fact))), assistant(relation.answer(fact))]


def opening(rng, history=0.18):
    """What may come before: a system message, some earlier turns."""
    messages = [system(rng.choice(SYSTEMS))] if rng.random() < 0.15 else []
    if rng.random() < history:
        for _ in range(rng.choice((1, 1, 1, 2, 2, 3))):
            messages += past_turn(rng)
    return messages


__all__ = ["RELATIONS", "ask", "asked", "frame", "opening", "past_turn", "sentence", "typed"]
