"""Results of tools and the sentences that report them: JSON or plain text, with keys beside the wanted ones, and errors."""
from . import catalogue, catalogue_open, catalogue_synth, tool_frame
from .catalogue import join
from .catalogue_values import COMPACT, SPACED, TEXT, draw, made, pick
from .catalogue_synth import LISTS, attribute_kind

ALIASES = {"temperature": ["temp", "temperature_c", "degrees"], "condition": ["conditions", "sky", "weather"],
           "price": ["cost", "amount", "price"],
           "time": ["local_time", "time"], "result": ["value", "answer", "result"], "count": ["total", "number", "count"],
           "title": ["name", "title"],
           "phone": ["phone_number", "tel", "phone"], "status": ["state", "status"], "content": ["text", "content", "body"],
           "rows": ["row_count", "rows"]}
EXTRA = [("ok", True), ("source", "cache"), ("code", 200), ("cached", False), ("version", 2), ("took_ms", 12), ("success", True),
         ("error", None)]
DONE = ["ok", "done", "OK", "success", '{"status": "ok"}', '{"success": true}', '{"ok": true}', "Done.", '{"status":"done"}',
        '{"result": "ok"}',
        '{"success":true,"error":null}', "completed", '{"status": "success", "code": 200}', '{"state": "finished"}', "true"]
WRAP = ["data", "result", "response", "payload", "output"]
SPECIAL = {
    "calculate": lambda a: {"result": eval(a.shown["expression"], {"__builtins__": {}})},
    "tip_calculator": lambda a: {"tip": round(float(a.shown["bill"]) * int(a.shown["percent"]) / 100, 2)},
    "count_words": lambda a: {"words": len(a.shown["text"].split())},
}
BOUNDED = {"roll_dice": lambda a: (int(a.shown["count"]), 6 * int(a.shown["count"])),
           "random_number": lambda a: (int(a.shown["min"]), int(a.shown["max"]))}
# What a held-out tool says when it is done cannot be known, so a test has only those that give values.
WITH_RESULT = ([t for t in catalogue.TRAIN if t.says or t.done], [t for t in catalogue.TEST if t.says and t.key not in SPECIAL])


def ask(rng, test, synthetic=0.5):
    """A request to a tool whose result can be told."""
    if rng.random() < synthetic:
        return catalogue_synth.ask(rng, test) if rng.random() < 0.6 else catalogue_open.ask(rng, test)
    return catalogue.ask(rng, test, pick(rng, WITH_RESULT[test and rng.random() < 0.5]))


def written(rng, fields):
    """The fields as a tool would return them: JSON in some layout, or lines."""
    r = rng.random()
    if r < 0.12:
        return "\n".join([f"{k}: {v}" for k, v in fields.items() if not isinstance(v, (bool, type(None)))])
    if r < 0.18:
        return ", ".join([f"{k} {v}" for k, v in fields.items() if not isinstance(v, (bool, type(None)))])
    if r < 0.3:
        fields = {pick(rng, WRAP): fields}
        if rng.random() < 0.4:
            fields = {"status": "ok", **fields}
    return (COMPACT if rng.random() < 0.4 else SPACED)(fields)


def outcome(rng, test, a, shown=None, args=None):
    """(result text, answer, texts that the answer must hold) for a request."""
    t, shown, args = a.tool, shown or a.shown, args or a.args
    if test and t.test and t.gives and isinstance(t, catalogue.Tool) and t.key in catalogue.BY_KEY:
        return _plain_outcome(rng, test, t)
    if not t.gives and not t.done:
        fields = {}
        while not fields:
            fields = other_attributes(rng, test, fields)
        told = [f"the {k.replace('_', ' ')} is {v}" for k, v in fields.items()]
        answer = ", ".join(told[:-1]) + " and " + told[-1] if len(told) > 1 else told[0]
        return written(rng, fields), answer[0].upper() + answer[1:] + ".", [str(v) for v in fields.values()]
    if not t.gives and t.done and t.key not in catalogue.BY_KEY and rng.random() < 0.3:
        got = other_attributes(rng, test, {}) or {"result": draw(rng, test, "int", [1, 9999])[1]}
        told = [f"the {k.replace('_', ' ')} is {v}" for k, v in got.items()]
        answer = ", ".join(told[:-1]) + " and " + told[-1] if len(told) > 1 else told[0]
        return written(rng, got), answer[0].upper() + answer[1:] + ".", [str(v) for v in got.values()]
    if not t.gives:
        answer = join(t.done, shown)
        if not isinstance(t, catalogue.Tool) or rng.random() < 0.8:
            return pick(rng, DONE), answer, [answer.rstrip(".")]
        return answer, answer, [answer.rstrip(".")]
    if t.key in SPECIAL:
        got = SPECIAL[t.key](a)
    elif t.key in BOUNDED:
        got = {t.gives[0][0]: draw(rng, test, "int", BOUNDED[t.key](a))[1]}
    else:
        got = {k: draw(rng, test, kind, options)[1] for k, kind, options in t.gives}
    says = t.says
    if t.brief and rng.random() < 0.3:
        says = pick(rng, t.brief)
        got = {k: v for k, v in got.items() if k in says[1::2]}
    known = {**shown, **{k: str(v) for k, v in got.items()}}
    answer = join(says, known)
    must = [str(v) for k, v in got.items() if k in says[1::2]]
    if t.plain and says is t.says and rng.random() < 0.2:
        return join(pick(rng, t.plain), known), answer, must
    if len(got) == 1 and rng.random() < 0.2:
        return str(next(iter(got.values()))), answer, must
    if rng.random() < 0.07:
        return answer if rng.random() < 0.6 else answer.rstrip("."), answer, must
    fields = {}
    for k, v in got.items():
        fields[pick(rng, ALIASES[k]) if k in ALIASES and rng.random() < 0.4 else k] = v
    if a.names.get("x") is not None:
        for k, v in other_attributes(rng, test, fields).items():
            fields.setdefault(k, v)
    if t.beside and rng.random() < 0.5:
        k, kind, options = pick(rng, t.beside)
        fields.setdefault(k, draw(rng, test, kind, options)[1])
    if rng.random() < 0.35:
        k, v = pick(rng, EXTRA)
        fields = {k: v, **fields} if rng.random() < 0.5 and k not in fields else {**fields, k: fields.get(k, v)}
    if rng.random() < 0.3 and args:
        k = next(iter(args))
        fields = {k: fields.get(k, args[k]), **fields}
    if rng.random() < 0.25 and len(fields) > 1:
        fields = dict(reversed(fields.items()))
    return written(rng, fields), answer, must


def _plain_outcome(rng, test, t):
    """What a tool that was never trained gives: only its values must be told."""
    got = {k: draw(rng, test, kind, options)[1] for k, kind, options in t.gives}
    told = [f"the {k.replace('_', ' ')} is {v}" for k, v in got.items()]
    answer = " and ".join(told)
    return SPACED(got), answer[0].upper() + answer[1:] + ".", [str(v) for v in got.values()]


def other_attributes(rng, test, have):
    out = {}
    for _ in range(int(rng.random() * 3.4)):
        attr = pick(rng, LISTS["attr"][test and rng.random() < 0.5]) if rng.random() < 0.55 else made(rng, test)
        kind, options = attribute_kind(rng, attr)
        if attr.replace(" ", "_") not in have:
            out[attr.replace(" ", "_")] = draw(rng, test, kind, options)[1]
    return out


def failure(rng, test):
    """(result text, answer, texts that the answer must hold) of a tool that failed."""
    e = TEXT["error"](rng, test)
    if rng.random() < 0.1:
        e = f"{e} ({made(rng, test)})"
    shown = pick(rng, (f"Error: {e}", f"error: {e}", SPACED({"error": e}), SPACED({"status": "error", "message": e}),
                       f'{{"error":"{e}"}}',
                       SPACED({"ok": False, "error": e}), SPACED({"success": False, "reason": e}), f"ERROR {e}", f"failed: {e}"))
    return shown, f"The tool reported an error: {e}.", [e]


def tools(rng, test, requests, most=2):
    return tool_frame.declared(rng, test, requests, most)
