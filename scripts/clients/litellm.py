"""LiteLLM by two of its providers: completion, stream, tools, structured output, errors."""

import json
import os
import sys
from importlib.metadata import version

sys.path = [path for path in sys.path if os.path.abspath(path or ".") != os.path.dirname(os.path.abspath(__file__))]
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
import litellm  # noqa: E402

litellm.suppress_debug_info = True
ASK = [{"role": "user", "content": "What is the capital of France?"}]
TOOL = {"type": "function", "function": {"name": "timer", "description": "Start a timer.", "parameters": {
    "type": "object", "properties": {"minutes": {"type": "number"}}, "required": ["minutes"]}}}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "capital": {"type": "boolean"}},
          "required": ["city", "capital"], "additionalProperties": False}

for provider in ["openai", "hosted_vllm"]:
    def ask(**more):
        return litellm.completion(model=f"{provider}/demo", api_base=os.environ["FIELDFARE_BASE"], api_key="none",
                                  messages=ASK, temperature=0, num_retries=0, max_tokens=300, **more)

    whole = ask()
    assert "Paris" in whole.choices[0].message.content
    text = "".join(chunk.choices[0].delta.content or "" for chunk in ask(stream=True))
    assert text == whole.choices[0].message.content, text
    forced = ask(tools=[TOOL], tool_choice="required")
    assert forced.choices[0].message.tool_calls[0].function.name == "timer"
    made = ask(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}})
    assert set(json.loads(made.choices[0].message.content)) == {"city", "capital"}
    try:
        litellm.completion(model=f"{provider}/gpt-5", api_base=os.environ["FIELDFARE_BASE"], api_key="none",
                           messages=ASK, num_retries=0)
        raise SystemExit("an unknown model was taken")
    except litellm.NotFoundError:
        pass
print("litellm", version("litellm"), "ok")
