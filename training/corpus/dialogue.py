"""Dialogues and how they are written in the Gemma 4 chat format.

A dialogue is what a client would send (messages in the OpenAI shape, tools, thinking on or off) and the one reply that the
model is to learn, with a rule by which a reply is judged. `pieces` writes it as control tokens and text runs in the order
of the canonical template; the program's own renderer is held against it (`fieldfare-lab evaluate`).
"""
from dataclasses import dataclass, field

# The 24 control tokens of Gemma 4, in the order of their ids there.
CONTROL = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<|tool>", "<tool|>", "<|tool_call>", "<tool_call|>", "<|tool_response>",
           "<tool_response|>", '<|"|>', "<|think|>", "<|channel>", "<channel|>", "<|turn>", "<turn|>", "<|image>", "<|audio>",
           "<|image|>", "<|audio|>", "<image|>", "<audio|>", "<|video|>"]
QUOTE = '<|"|>'


@dataclass
class Reply:
    """What the model is to write: a thought (only with thinking on), text, tool calls as (name, arguments)."""
    content: str = ""
    reasoning: str | None = None
    calls: list = field(default_factory=list)


@dataclass
class Dialogue:
    """`messages` end with a user message or with tool results. `expect` says how a reply is judged (see `judge.py`)."""
    task: str
    messages: list
    reply: Reply
    expect: dict
    tools: list = field(default_factory=list)
    thinking: bool = False


def user(text):
    return {"role": "user", "content": text}


def system(text):
    return {"role": "system", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def called(calls, reasoning=None):
    """An assistant message that calls tools: `calls` is a list of (name, arguments)."""
    message = {"role": "assistant", "content": None, "tool_calls": [
        {"id": f"call_{i}", "type": "function", "function": {"name": n, "arguments": a}} for i, (n, a) in enumerate(calls)]}
    if reasoning:
        message["reasoning"] = reasoning
    return message


def result(text, index=0):
    """The result of the call with that index in the assistant message before; always text, JSON written out."""
    return {"role": "tool", "tool_call_id": f"call_{index}", "content": text}


def tool(name, description, properties, required=None):
    """A tool declaration. `properties` maps a name to a flat schema: type, description, enum, items."""
    return {"type": "function", "function": {"name": name, "description": description, "parameters": {
        "type": "object", "properties": properties, "required": list(properties) if required is None else required}}}


def value(v):
    """A value in arguments: strings between quote tokens, keys bare and sorted, nothing around commas and colons."""
    if v is None:
        return "null"
    if isinstance(v, bool):
        return "true" if v else "false"
    if isinstance(v, str):
        return QUOTE + v + QUOTE
    if isinstance(v, (list, tuple)):
        return "[" + ",".join(value(x) for x in v) + "]"
    if isinstance(v, dict):
        return "{" + ",".join(f"{k}:{value(v[k])}" for k in sorted(v, key=str.lower)) + "}"
    return repr(v)


def call(name, arguments):
    return f"<|tool_call>call:{name}{value(arguments)}<tool_call|>"


def _property(schema):
    parts = []
    if schema.get("description"):
        parts.append("description:" + value(schema["description"]))
    kind = schema["type"]
    if kind == "string" and schema.get("enum"):
        parts.append("enum:" + value(schema["enum"]))
    if kind == "array" and schema.get("items"):
        parts.append("items:{type:" + value(schema["items"]["type"].upper()) + "}")
    parts.append("type:" + value(kind.upper()))
    return "{" + ",".join(parts) + "}"


def declaration(t):
    f = t["function"]
    p = f["parameters"]
    parts = []
    if p["properties"]:
        inner = ",".join(f"{k}:{_property(p['properties'][k])}" for k in sorted(p["properties"], key=str.lower))
        parts.append("properties:{" + inner + "}")
    if p["required"]:
        parts.append("required:" + value(p["required"]))
    parts.append("type:" + value("OBJECT"))
    return (f"<|tool>declaration:{f['name']}{{description:{value(f['description'])},parameters:{{" + ",".join(parts) + "}}<tool|>")


def prompt(d):
    """The prompt as text with control tokens, ending where the model begins to write."""
    out = ["<bos>"]
    messages = list(d.messages)
    first = messages[0]["role"] == "system"
    if d.thinking or d.tools or first:
        out.append("<|turn>system\n")
        if d.thinking:
            out.append("<|think|>\n")
        if first:
            out.append(messages.pop(0)["content"].strip())
        out.extend(declaration(t) for t in d.tools)
        out.append("<turn|>\n")
    last_user = max((i for i, m in enumerate(messages) if m["role"] == "user"), default=-1)
    open_turn, names, end = False, {}, "turn"
    for i, m in enumerate(messages):
        if m["role"] == "tool":
            out.append(f"<|tool_response>response:{names[m['tool_call_id']]}{{value:{value(m['content'])}}}<tool_response|>")
            end = "result"
            continue
        if m["role"] == "assistant":
            if not open_turn:
                out.append("<|turn>model\n")
            if m.get("reasoning") and i > last_user:
                out.append(f"<|channel>thought\n{m['reasoning']}\n<channel|>")
            calls = m.get("tool_calls") or []
            for c in calls:
                names[c["id"]] = c["function"]["name"]
                out.append(call(c["function"]["name"], c["function"]["arguments"]))
            if m.get("content"):
                out.append(m["content"].strip())
            open_turn = bool(calls)
            if not calls:
                out.append("<turn|>\n")
                end = "turn"
            continue
        out.append(f"<|turn>{m['role']}\n{m['content'].strip()}<turn|>\n")
        open_turn, end = False, "turn"
    if end == "result":
        if d.thinking:
            out.append("<|channel>thought\n")
    else:
        out.append("<|turn>model\n" + ("" if d.thinking else "<|channel>thought\n<channel|>"))
    return "".join(out), end == "result" and d.thinking


def target(d, inside_thought):
    """What the model writes after the prompt, its stop token included."""
    out = []
    if d.thinking:
        assert d.reply.reasoning, d.task
        out.append(("" if inside_thought else "<|channel>thought\n") + d.reply.reasoning + "\n<channel|>")
    if d.reply.calls:
        out.append(d.reply.content)
        out.extend(call(n, a) for n, a in d.reply.calls)
        out.append("<|tool_response>")
    else:
        out.append(d.reply.content + "<turn|>")
    return "".join(out)


def render(d):
    """(prompt, target) as texts with control tokens."""
    p, inside = prompt(d)
    return p, target(d, inside)
