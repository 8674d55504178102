"""What to do with the result of a tool: tell it, report an error, or make the next call.

Held out for test: tools, wordings, values and names of generated tools as in `tools`; the follow-up wordings in *_TEST tables.
"""

from .. import catalogue, catalogue_synth, noise, tool_frame, tool_rounds
from ..catalogue import thought
from ..catalogue_values import TEXT, draw, pick
from ..dialogue import Dialogue, Reply, assistant, called, result, user
from .tools import BOTH, THANKS, THANKS_TEST, calls_dialogue, two_calls

THINK = 0.25
AND = ["and {}?", "and for {}?", "what about {}?", "now {}", "and {}", "also {} please", "the same for {}", "how about {}?",
       "{} too please", "{}?", "ok, and {}?", "and what about {}?", "can you do {} as well?", "now the same for {}", "then {}",
       "next one is {}", "the next one is {}", "next: {}", "next is {}", "please do it for {}", "do it for {} too", "do {} next",
       "and now for {} please", "again, but {}", "again with {}", "once more for {}", "same again for {}", "and the same with {}",
       "try {}",
       "now try {}", "let us do {} next", "I also need {}", "I want the same for {}", "another one: {}", "one more: {}", "{} as well",
       "{} next please", "good, now {}", "thanks, and {}?", "thank you, now {}", "and if it is {}?", "what if it is {}?",
       "make it {} now",
       "how is it for {}?", "could you do that for {}?", "please also do {}", "then the same for {} please", "{} is the next one",
       "{}, please",
       "and {} too?", "not only that, also {}"]
AND_TEST = ["please do it for {} too", "now {} is the next one", "thanks, now the same for {}", "and please do {} as well",
    "how about {} next?",
            "can you do the same for {}?", "ok, next one is {}", "I need it for {} too"]
LATER = ["and the {}?", "and what is the {}?", "what about the {}?", "what is its {}?", "tell me the {} too", "and its {}?",
         "also the {} please", "the {}?", "does it say the {}?", "does it have a {}?", "does it also say the {}?", "I also want the {}",
         "I want to know the {} too", "and which {} does it have?", "which {} is it?", "what {} does it have?",
         "can I have the {} as well?",
         "can you see the {}?", "do you see the {} there?", "is there a {}?", "what does it say for the {}?", "what {} does it say?",
         "please say the {} as well", "give me the {} too", "now the {}", "now tell me its {}", "how about the {}?", "and the {} please",
         "I need the {} as well", "what was the {}?", "what is the {} of it?", "ok, and the {}?", "thanks, and the {}?", "next, the {}",
         "look again, what is the {}?", "do you know its {}?", "did it say the {}?", "was there a {}?", "the {} too please",
         "and about the {}, what does it say?", "could I get the {} too?", "I forgot to ask for the {}", "what about its {}?",
         "show the {} too"]
LATER_TEST = ["I also need the {}", "does it say its {}?", "can I get the {} too?", "ok, what is the {} of it?",
    "please tell me the {} as well",
              "thanks, and what about the {}?", "what does it say about the {}?"]
SEQUENCE = ["First {}. When that is done, {}", "{}. After that, {}", "first {}, after that {}", "{}. When you have done that, {}",
            "Step one: {}. Step two: {}", "1. {}\n2. {}", "First {}. Then {}", "start with this: {}. After that, {}",
            "{}. Once that is done, {}",
            "{}. When it is done, {}", "Begin with this: {}. Then {}", "do this first: {}. Then do this: {}", "First: {}. Second: {}",
            "{}. Next step: {}", "{}. As soon as that is done, {}", "{}, and when you have done it, {}"]
SEQUENCE_TEST = ["start with this: {}. When that is done, {}", "do this first: {}. After that, {}",
    "Step one: {}. After that, step two: {}"]


def _answer(task, messages, tools, answer, must, reasoning):
    return Dialogue(task, messages, Reply(answer, reasoning), {"kind": "all", "of": must}, tools, reasoning is not None)


def _tells(must):
    return "The tool says " + ", ".join(must) + "."


def _thoughts(rng, a, must):
    """(thought before the call, thought after the result), both None when thinking is off."""
    if rng.random() >= THINK:
        return None, None
    return thought(a.name, a.args, a.does), _tells(must)


def _single(rng, test, opening):
    a = tool_rounds.ask(rng, test)
    text, answer, must = tool_rounds.failure(rng, test) if rng.random() < 0.16 else tool_rounds.outcome(rng, test, a)
    before, after = _thoughts(rng, a, must if a.tool.gives or not a.tool.done or "error" in answer else ["that it is done"])
    messages = opening + [user(a.text), called([(a.name, a.args)], before), result(text)]
    return _answer("tool_result", messages, tool_rounds.tools(rng, test, [a]), answer, must, after)


def _parallel(rng, test, opening):
    requests, text, calls, shown = two_calls(rng, test)
    while not all(r.tool.says or r.tool.done or not r.tool.asks for r in requests):
        requests, text, calls, shown = two_calls(rng, test)
    results, answers, musts = [], [], []
    for i in range(2):
        a = requests[min(i, len(requests) - 1)]
        t, answer, must = tool_rounds.outcome(rng, test, a, shown[i], calls[i][1])
        if len(requests) == 1 and i == 1 and "x" in a.names:
            answer = answer.replace(f" {requests[0].shown['x']} is ", f" {shown[1]['x']} is ")
        results.append(result(t, i))
        answers.append(answer)
        musts += must
    before = after = None
    if rng.random() < THINK:
        before = "This needs two calls. " + " ".join([thought(n, a) for n, a in calls])
        after = _tells(musts) if any(r.tool.gives or not r.tool.done for r in requests) else "Both calls are done."
    messages = opening + [user(text), called(calls, before)] + results
    return _answer("tool_result", messages, tool_rounds.tools(rng, test, requests, 1), " ".join(answers), musts, after)


def _again(rng, test, opening):
    """A finished round, then "and in Rome?": the same call with another argument."""
    t = pick(rng, BOTH[test and rng.random() < 0.5])
    while not (t.says or t.done):
        t = pick(rng, BOTH[0])
    a = catalogue.ask(rng, test, t)
    p = t.args[0]
    text, answer, _ = tool_rounds.outcome(rng, test, a)
    shown, value = draw(rng, test, p.kind, p.options)
    while value == a.args[a.names[p.key]]:
        shown, value = draw(rng, test, p.kind, p.options)
    args = {**a.args, a.names[p.key]: value}
    shown = shown.lower() if rng.random() < 0.08 and shown == value and p.kind in ("city", "country", "person") else shown
    args[a.names[p.key]] = shown if isinstance(value, str) else value
    q = noise.maybe(rng, "test" if test else "train", pick(rng, AND_TEST if test else AND).format(shown), [shown], 0.12)
    q = q[0].upper() + q[1:] if rng.random() < 0.5 and q[0] != shown[0] else q
    messages = opening + [user(a.text), called([(a.name, a.args)]), result(text), assistant(answer), user(q)]
    think = thought(a.name, args, a.does) if rng.random() < THINK else None
    return calls_dialogue("tool_result", messages, tool_rounds.tools(rng, test, [a]), [(a.name, args)], think)


def _second(rng, test, opening):
    """A finished round, then another request; the reply is its call or the report of its result."""
    a, b = tool_rounds.ask(rng, test), tool_rounds.ask(rng, test)
    while b.name == a.name or b.does == a.does or b.tool.key in tool_frame.CLASH.get(a.tool.key, ()):
        b = tool_rounds.ask(rng, test)
    text, answer, _ = tool_rounds.outcome(rng, test, a)
    messages = opening + [user(a.text), called([(a.name, a.args)]), result(text), assistant(answer), user(b.text)]
    tools = tool_rounds.tools(rng, test, [a, b], 1)
    if rng.random() < 0.5:
        return calls_dialogue("tool_result", messages, tools, [(b.name, b.args)],
                              thought(b.name, b.args, b.does) if rng.random() < THINK else None)
    text, answer, must = tool_rounds.outcome(rng, test, b)
    before, after = _thoughts(rng, b, must if b.tool.gives or not b.tool.done else ["that it is done"])
    return _answer("tool_result", messages + [called([(b.name, b.args)], before), result(text)], tools, answer, must, after)


def _later(rng, test, opening):
    """A question on a result that has already come, or thanks for it: no new call."""
    if rng.random() < 0.3:
        a = tool_rounds.ask(rng, test)
        text, answer, _ = tool_rounds.outcome(rng, test, a)
        messages = opening + [user(a.text), called([(a.name, a.args)]), result(text), assistant(answer),
                              user(pick(rng, THANKS_TEST if test else THANKS))]
        think = "The user says thanks. No tool is needed." if rng.random() < THINK else None
        return _answer("tool_result", messages, tool_rounds.tools(rng, test, [a]), "You are welcome.", ["welcome"], think)
    a = catalogue_synth.find(rng, test)
    key, kind, options = a.tool.gives[0]
    fields = {key: draw(rng, test, kind, options)[1]}
    while len(fields) < 2:
        fields.update(tool_rounds.other_attributes(rng, test, fields))
    keys = list(fields)
    if rng.random() < 0.5:
        fields = {k: fields[k] for k in reversed(keys)}
    head = "".join(a.tool.says[:1]).partition(" of the ")[2]
    first = f"The {key.replace('_', ' ')} of the {head}{fields[key]}."
    asked = keys[1 + int(rng.random() * (len(keys) - 1))]
    answer = f"The {asked.replace('_', ' ')} of the {head}{fields[asked]}."
    spoken = asked.replace("_", " ")
    q = noise.maybe(rng, "test" if test else "train", pick(rng, LATER_TEST if test else LATER).format(spoken), [spoken], 0.15)
    q = q[0].upper() + q[1:] if rng.random() < 0.5 and q[0] != spoken[0] else q
    messages = opening + [user(a.text), called([(a.name, a.args)]), result(tool_rounds.written(rng, fields)), assistant(first), user(q)]
    think = f"The result of the tool says {asked} {fields[asked]}." if rng.random() < THINK else None
    return _answer("tool_result", messages, tool_rounds.tools(rng, test, [a], 1), answer, [str(fields[asked])], think)


def _sequence(rng, test, opening):
    """One thing after the other: the first call, after its result the second, then the report."""
    a, b = tool_rounds.ask(rng, test, 0.4), tool_rounds.ask(rng, test, 0.4)
    while b.name == a.name or b.does == a.does or b.tool.key in tool_frame.CLASH.get(a.tool.key, ()):
        b = tool_rounds.ask(rng, test, 0.4)
    text = pick(rng, SEQUENCE_TEST if test else SEQUENCE).format(a.text.rstrip("?."), b.text)
    tools = tool_rounds.tools(rng, test, [a, b], 1)
    think = rng.random() < THINK
    before = "First: " + thought(a.name, a.args) if think else None
    messages = opening + [user(text)]
    r = rng.random()
    if r < 0.3:
        return calls_dialogue("tool_result", messages, tools, [(a.name, a.args)], before)
    one, answer1, must1 = tool_rounds.outcome(rng, test, a)
    then = "The first step is done. Now: " + thought(b.name, b.args) if think else None
    messages += [called([(a.name, a.args)], before), result(one)]
    if r < 0.7:
        return calls_dialogue("tool_result", messages, tools, [(b.name, b.args)], then)
    two, answer2, must2 = tool_rounds.outcome(rng, test, b)
    messages += [called([(b.name, b.args)], then), result(two)]
    return _answer("tool_result", messages, tools, f"{answer1} {answer2}", must1 + must2, "Both steps are done." if think else None)


MAIL = ["send an email to {} saying {}", "mail {} that {}", "write {} a mail: {}", "email {}: {}", "let {} know by mail that {}",
        "drop {} an email saying {}", "send {} a mail that says {}", "write an email to {}: {}", "send {} an email with the text {}",
        "I want to send {} a mail: {}", "please mail {}: {}", "write to {} by email: {}", "email {} and say {}", "send a mail to {}: {}"]
MAIL_TEST = ["I want to write {} a mail that says {}", "please send an email to {} with the text {}", "write a mail to {} saying {}"]


def _looked_up(rng, test, opening):
    """Mail to a person: first the contact is looked up, then the address of the result is used."""
    person, text = TEXT["person"](rng, test), TEXT["text"](rng, test)
    find, send = (catalogue.declare(rng, catalogue.BY_KEY[k], test) for k in ("find_contact", "send_email"))
    properties = send[0]["function"]["parameters"]["properties"]
    to, body = send[3]["to"], send[3]["body"]
    for o in send[4]:
        del properties[send[3][o.key]]
    address = TEXT["email"](rng, test)
    q = pick(rng, MAIL_TEST if test else MAIL).format(person, text)
    q = q[0].upper() + q[1:] if rng.random() < 0.6 else q
    first, second = (find[1], {find[3]["name"]: person}), (send[1], {to: address, body: text})
    tools = [find[0], send[0]] if rng.random() < 0.5 else [send[0], find[0]]
    think = rng.random() < THINK
    before = f"I need the address of {person}. {thought(*first)}" if think else None
    r = rng.random()
    messages = opening + [user(q)]
    if r < 0.3:
        return calls_dialogue("tool_result", messages, tools, [first], before)
    fields = {"name": person, "email": address} if rng.random() < 0.5 else {"email": address, "phone": TEXT["phone"](rng, test)}
    messages += [called([first], before), result(tool_rounds.written(rng, fields))]
    then = f"The address is {address}. {thought(*second)}" if think else None
    if r < 0.75:
        return calls_dialogue("tool_result", messages, tools, [second], then)
    messages += [called([second], then), result(pick(rng, tool_rounds.DONE))]
    return _answer("tool_result", messages, tools, f"The mail to {address} is sent.", [address, "sent"],
                   "The mail is sent." if think else None)


KINDS = [(0.48, _single), (0.6, _parallel), (0.7, _again), (0.8, _second), (0.89, _later), (0.95, _sequence), (1.0, _looked_up)]


def tool_result(rng, split):
    test = split == "test"
    opening = tool_frame.opening(rng, test, 0.06)
    r = rng.random()
    for limit, make in KINDS:
        if r < limit:
            return make(rng, test, opening)
    raise AssertionError


TASKS = {"tool_result": (14, tool_result)}
