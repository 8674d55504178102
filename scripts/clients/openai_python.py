"""openai-python: chat, stream, tools (auto, required, named), structured output, log-probabilities, errors."""

import json
import os

import openai
from pydantic import BaseModel

client = openai.OpenAI(base_url=os.environ["FIELDFARE_BASE"], api_key="none", max_retries=0)
ASK = [{"role": "user", "content": "What is the capital of France?"}]
TOOL = {"type": "function", "function": {"name": "timer", "description": "Start a timer.", "parameters": {
    "type": "object", "properties": {"minutes": {"type": "number"}}, "required": ["minutes"]}}}

whole = client.chat.completions.create(model="demo", messages=ASK, temperature=0)
assert "Paris" in whole.choices[0].message.content and whole.usage.total_tokens > 0
stream = client.chat.completions.create(
    model="demo", messages=ASK, temperature=0, stream=True, stream_options={"include_usage": True})
chunks = list(stream)
text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
assert text == whole.choices[0].message.content and chunks[-1].usage.completion_tokens == whole.usage.completion_tokens

timer = [{"role": "user", "content": "i need a timer of 46 minutes"}]
auto = client.chat.completions.create(model="demo", messages=timer, tools=[TOOL], temperature=0)
call = auto.choices[0].message.tool_calls[0]
assert json.loads(call.function.arguments) == {"minutes": 46}
back = timer + [auto.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "started"}]
assert client.chat.completions.create(model="demo", messages=back, tools=[TOOL], temperature=0, max_tokens=60).choices
for choice in ["required", {"type": "function", "function": {"name": "timer"}}]:
    forced = client.chat.completions.create(
        model="demo", messages=ASK, tools=[TOOL], tool_choice=choice, parallel_tool_calls=False, temperature=0)
    assert forced.choices[0].message.tool_calls[0].function.name == "timer", forced
    assert forced.choices[0].finish_reason == "tool_calls"


class City(BaseModel):
    city: str
    capital: bool


parsed = client.chat.completions.parse(
    model="demo", messages=ASK, response_format=City, temperature=0, max_tokens=300).choices[0].message.parsed
assert isinstance(parsed, City), parsed
with client.chat.completions.stream(
        model="demo", messages=ASK, response_format=City, temperature=0, max_tokens=300) as helper:
    for _ in helper:
        pass
    assert helper.get_final_completion().choices[0].message.parsed == parsed

scored = client.chat.completions.create(model="demo", messages=ASK, logprobs=True, top_logprobs=2, temperature=0)
assert "".join(entry.token for entry in scored.choices[0].logprobs.content) == scored.choices[0].message.content
echo = client.completions.create(model="demo", prompt="Once upon", echo=True, logprobs=1, max_tokens=1)
assert echo.choices[0].logprobs.token_logprobs[0] is None
assert [model.id for model in client.models.list()] == ["demo"]

for kind, ask in [
    (openai.NotFoundError, {"model": "gpt-5"}),
    (openai.BadRequestError, {"temperature": 9}),
    (openai.BadRequestError, {"response_format": {"type": "json_schema", "json_schema": {
        "name": "x", "schema": {"$ref": "#"}}}}),
]:
    try:
        client.chat.completions.create(**{"model": "demo", "messages": ASK, **ask})
        raise SystemExit(f"{ask} was taken")
    except kind as error:
        assert error.code and error.body["message"], error
print("openai-python", openai.__version__, "ok")
