"""Judges a reply by the rule in `expect`. The program's yardstick has the same rules (`fieldfare-lab evaluate`).

Kinds of rule:
  {"kind": "equals", "any": [texts]}           the whole text, after trimming, is one of these
  {"kind": "contains", "any": [texts]}         one of these occurs as whole words, upper and lower case alike
  {"kind": "all", "of": [texts]}               each of these occurs as whole words
  {"kind": "number", "value": 42}              the last number in the text is this one
  {"kind": "calls", "calls": [[name, args]]}   exactly these calls, in this order, arguments equal as JSON
  {"kind": "json", "value": {...}}             the text is JSON equal to this
  {"kind": "unknown"}                          the text says that the model does not know
  {"kind": "free", "min_words": 3}             any text of at least so many words, no call
A rule may also have "not": [texts], none of which may occur.
"""
import json
import re

UNKNOWN = ["do not know", "don't know", "not know", "cannot answer", "can't answer", "not sure", "no idea", "cannot say", "no information"]


def has(text, piece):
    return re.search(r"(?<!\w)" + re.escape(piece.lower()) + r"(?!\w)", text.lower()) is not None


def right(expect, content, calls):
    kind = expect["kind"]
    text = content.strip()
    if any(has(text, p) for p in expect.get("not", [])):
        return False
    if kind == "calls":
        return [[n, a] for n, a in calls] == [[n, a] for n, a in expect["calls"]]
    if calls:
        return False
    if kind == "equals":
        return text in expect["any"]
    if kind == "contains":
        return any(has(text, p) for p in expect["any"])
    if kind == "all":
        return all(has(text, p) for p in expect["of"])
    if kind == "number":
        found = re.findall(r"-?\d+", text)
        return bool(found) and int(found[-1]) == expect["value"]
    if kind == "json":
        try:
            return json.loads(text) == expect["value"]
        except ValueError:
            return False
    if kind == "unknown":
        return any(has(text, p) for p in UNKNOWN)
    if kind == "free":
        return len(text.split()) >= expect["min_words"]
    raise ValueError(kind)
