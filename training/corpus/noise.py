"""Frame noise for training: small damage to the words around what a request is about, so that the reply does not hang on them.

`noisy(rng, text, keep)` always changes something if it can: an unknown or filler word, a short clause, a function word dropped or
doubled, two neighbours swapped, a typo, a synonym. `maybe` does so in training only, with a probability (0.2 unless told).
Substrings in `keep` survive unchanged, every occurrence of them, and so do numbers, quoted text, names in the middle of a sentence,
words that decide an answer (first, last, not, ...), text with several lines and single words.
"""
from pathlib import Path

LETTERS = "abcdefghijklmnopqrstuvwxyz"
NEAR = dict(zip("qwertyuiopasdfghjklzxcvbnm", "wertyuiopo" "sdfghjklk" "xcvbnmn"))
ONSETS = ("b", "bl", "br", "ch", "d", "dr", "f", "fl", "g", "gr", "h", "j", "k", "kl", "l", "m", "n", "p", "pl", "qu", "r", "s", "sh", "sk",
          "sn", "st", "t", "tr", "v", "w", "y", "z", "zw", "")
VOWELS = ("a", "e", "i", "o", "u", "ee", "oo", "ai", "ou", "y")
CODAS = ("", "m", "n", "p", "t", "k", "rb", "lt", "nk", "sh", "x", "ff", "g", "st", "l", "rn", "d", "ck")
FILLERS = ("well um er hmm so just like basically actually really simply maybe perhaps now then again kindly quickly briefly honestly "
           "okay ok right anyway still also only even sort-of kinda possibly here today please already finally truly frankly y'know "
           "literally exactly indeed surely somehow rather quite").split()
STARTS = ("well,", "so,", "ok,", "okay so", "hm,", "um,", "uh", "er,", "right,", "listen,", "look,", "hey,", "hi there,",
"good day,", "oh,",
          "ah,", "alright,", "now,", "also,", "and", "but", "sorry,", "excuse me,", "as I said,", "one more thing:", "next:", "quick one:",
          "a thing I need:", "my {w} asks:", "for my {w}:", "for a {w}:", "here is a task:", "if you can,", "when you have time,",
          "my boss wants this:", "{w},", "{w}:", "{w} {v},", "no rush,", "I am new here,", "my turn:", "let me see,", "today,",
          "since you are here,", "it is for a {w}:", "because of my {w},", "ahem,", "yo,", "by the way,", "just wondering,", "dear model,",
          "good evening.", "I was thinking.", "I have a {w}.", "Something about {w}.", "The {w} is late.", "I like {w}.", "{w}!")
ENDS = ("thanks", "thank you", "please", "as I said", "if you can", "if possible", "for my {w}", "for a {w}", "I mean",
"you know", "ok", "okay",
        "right", "thx", "cheers", "my friend", "by the way", "for a friend", "said my {w}", "or so", "when you can", "{w}",
        "it is for my {w}",
        "my {w} asked", "I need it soon", "at last", "no hurry", "and thanks", "for once", "dear", "it's urgent", "just for fun")
AFTER = ("Thanks.", "Thank you.", "Please.", "I am in a hurry.", "No rush.", "It is for my {w}.", "My {w} wants it.", "I like {w}.", "Ok?",
         "Got it?", "That is all.", "I hope you can.", "The {w} is {v}.", "Go.", "Cheers!", "Much appreciated.", "{w}.", "I said {w}.",
         "You are nice.", "I have to go soon.", "It is late here.")
SAYINGS = ("as I said", "you know", "I mean", "if you like", "for my {w}", "so to say", "{w}", "for example", "please", "my friend")
DROPPED = frozenset("a an the please is are of to me do does did can could would you for it that there so just i'd will my some".split())
DOUBLED = frozenset("a an the is are of to me do does can you for it that in on with and what which".split())
DECIDING = frozenset(("not no never none nor without first last second third fourth fifth next before after most least more less than and "
                      "or but all any every each only both either neither one two three four five six seven eight nine ten eleven twelve "
                      "hundred thousand plus minus times divided double half twice up down in out on off yes true false from to over under "
                      "left right same other if then else except than between").split())
SAME = {
    "please": ("pls", "plz", "kindly"), "what": ("wat", "which"), "what's": ("whats", "what is"), "you": ("u", "ya"), "your": ("ur",),
    "are": ("r",), "tell": ("give", "show"), "show": ("give", "tell"), "give": ("show", "hand"), "can": ("could", "would"),
    "could": ("can", "would"), "would": ("could", "can"), "want": ("need", "wish"), "need": ("want", "require"), "know": ("guess",),
    "find": ("look up", "get"), "get": ("fetch", "find"), "make": ("create", "build"), "write": ("put", "type"), "hello": ("hi", "hey"),
    "hi": ("hello", "hey"), "hey": ("hi", "hello"), "quick": ("short", "small"), "question": ("query", "thing"), "the": ("teh", "that"),
    "a": ("some",), "because": ("cause", "since"), "i'd": ("I would",), "i'm": ("I am",), "big": ("large",), "large": ("big",),
    "biggest": ("largest",), "largest": ("biggest",), "called": ("named",), "named": ("called",), "this": ("that", "the"),
    "that": ("this", "the"), "only": ("just",), "just": ("only", "simply"), "think": ("believe",), "have": ("hve", "got"),
    "use": ("take",), "use:": ("take:",), "answer": ("reply",), "reply": ("answer",), "say": ("tell me", "write"), "is": ("iz", "would be"),
    "does": ("do", "dose"), "for": ("fr",), "thanks": ("thx", "ta"), "me": ("us",), "favourite": ("favorite",), "favorite": ("favourite",)}
QUOTES = "\"'`“”‘’«»<>{}[]()|=_/\\@#"


def _load(name):
    path = Path(__file__).parent / "data" / name
    return path.read_text(encoding="utf-8").split() if path.exists() else ["aunt", "class", "garden", "boss", "neighbour", "team"]


COMMON = _load("common_words.txt")


def odd_word(rng):
    """A word that nobody knows, short."""
    r = rng.random()
    if r < 0.75:
        word = rng.choice(ONSETS) + rng.choice(VOWELS) + rng.choice(CODAS)
        return word + rng.choice(ONSETS) + rng.choice(VOWELS) if r < 0.35 or len(word) < 3 else word
    if r < 0.9:
        return "".join(rng.choice(LETTERS) for _ in range(rng.randint(3, 7)))
    return rng.choice(COMMON)[::-1]


def slot(rng):
    """A word for a clause: a real one or an odd one."""
    return rng.choice(COMMON) if rng.random() < 0.6 else odd_word(rng)


def clause(rng, texts):
    text = rng.choice(texts)
    if "{" in text:
        return text.replace("{w}", slot(rng)).replace("{v}", slot(rng))
    return text


def typo(rng, word):
    """One slip of the fingers in a word of at least three letters."""
    at = rng.randrange(len(word) - 1)
    r = rng.random()
    if r < 0.35:
        return word[:at] + word[at + 1] + word[at] + word[at + 2:]
    if r < 0.6:
        return word[:at] + word[at + 1:]
    if r < 0.8:
        return word[:at] + word[at] + word[at:]
    return word[:at] + NEAR.get(word[at], rng.choice(LETTERS)) + word[at + 1:]


def _fixed(text, words, keep):
    """For each word whether it must stay: it touches a kept substring, or it is a number, a name, a quotation or a deciding word."""
    spans = []
    for k in keep:
        k = str(k).strip()
        at = text.find(k) if k else -1
        while at >= 0:
            spans.append((at, at + len(k)))
            at = text.find(k, at + len(k))
    fixed, at, begin, quoted = [], 0, True, False
    for w in words:
        end = at + len(w)
        bare = w.strip(".,:;?!")
        stay = quoted or not bare or bare.lower() in DECIDING or (not begin and bare[0].isupper() and bare not in ("I", "I'd", "I'm"))
        stay = stay or any(c in QUOTES for c in bare.replace("'", "")) or bare[0] == "'" or any(c.isdigit() for c in bare) or ":" in bare
        quoted = quoted ^ (w.count('"') + w.count("“") + w.count("”") & 1 == 1)
        if not stay:
            stay = any(a < end and at < b for a, b in spans)
        fixed.append(stay)
        begin = w[-1:] in (".", "?", "!", ":", ",")
        at = end + 1
    return fixed


def _start(rng, words, fixed):
    opening = clause(rng, STARTS)
    if not fixed[0] and words[0][:1].isupper() and words[0] not in ("I", "I'd", "I'm",
    "I've") and rng.random() < 0.8 and opening[-1] not in ".!":
        words[0] = words[0][:1].lower() + words[0][1:]
    if rng.random() < 0.5:
        opening = opening[0].upper() + opening[1:]
    words.insert(0, opening)
    return True


def _end(rng, words, fixed):
    last = words[-1]
    if rng.random() < 0.45 and last[-1:] in ".?!":
        words.append(clause(rng, AFTER))
    elif last[-1:] in ".?!" and last[-2:-1].isalnum() and not fixed[-1]:
        words[-1] = last[:-1] + ","
        words.append(clause(rng, ENDS) + last[-1])
    elif last[-1:] in ".?!":
        words.append(clause(rng, AFTER))
    else:
        return False
    return True


def _insert(rng, words, fixed):
    """A filler, an odd word or a short clause between two words that may change."""
    places = [i for i in range(1, len(words)) if not fixed[i - 1] and not fixed[i]]
    if not places:
        return False
    r = rng.random()
    word = rng.choice(FILLERS) if r < 0.45 else odd_word(rng) if r < 0.75 else "".join((", ", clause(rng, SAYINGS), ","))
    at = rng.choice(places)
    if word[0] == ",":
        if words[at - 1][-1] in ",.:;?!":
            return False
        words[at - 1] += ","
        word = word[2:]
    words.insert(at, word)
    return True


def _drop(rng, words, fixed):
    places = [i for i, w in enumerate(words) if not fixed[i] and w.lower() in DROPPED]
    if not places or len(words) < 4:
        return False
    at = rng.choice(places)
    if rng.random() < 0.6:
        del words[at]
    else:
        words.insert(at, words[at] if words[at] == "I" else words[at].lower())
    return True


def _swap(rng, words, fixed):
    places = [i for i in range(len(words) - 1) if not fixed[i] and not fixed[i + 1] and words[i].isalpha() and words[i + 1].isalpha()]
    if not places:
        return False
    i = rng.choice(places)
    words[i], words[i + 1] = words[i + 1], words[i]
    return True


def _typo(rng, words, fixed):
    places = [i for i, w in enumerate(words) if not fixed[i] and len(w) > 3 and w.isalpha()]
    if not places:
        return False
    i = rng.choice(places)
    words[i] = typo(rng, words[i])
    return True


def _same(rng, words, fixed):
    places = [i for i, w in enumerate(words) if not fixed[i] and w.lower() in SAME]
    if not places:
        return False
    i = rng.choice(places)
    new = rng.choice(SAME[words[i].lower()])
    words[i] = new[0].upper() + new[1:] if words[i][0].isupper() else new
    return True


KINDS = (_start, _start, _start, _end, _end, _insert, _insert, _insert, _insert, _drop, _drop, _swap, _typo, _typo, _typo, _same, _same)
INNER = KINDS[5:]


def noisy(rng, text, keep=(), clauses=True):
    """The text with one to three small faults in its frame; what is in `keep` stays as it is.

    Without `clauses`, nothing comes before or after it.
    """
    if "\n" in text:
        head, tail = text.split("\n", 1)
        return noisy(rng, head, keep, clauses) + "\n" + tail if len(head) < 160 and not any("\n" in str(k) for k in keep) else text
    words = text.split(" ")
    for _ in range(1 if rng.random() < 0.6 else rng.randint(2, 3)):
        for _ in range(3):
            fixed = _fixed(" ".join(words), words, keep)
            if "" in words or rng.choice(KINDS if clauses else INNER)(rng, words, fixed):
                break
    return " ".join(words)


def maybe(rng, split, text, keep=(), p=0.2, clauses=True):
    """Noise in training only, with that probability."""
    return noisy(rng, text, keep, clauses) if split == "train" and rng.random() < p else text
