"""LangChain: invoke, stream, bound tools (any, named), structured output by schema, by function, by JSON mode, errors."""

import os
from importlib.metadata import version

import openai
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

model = ChatOpenAI(base_url=os.environ["FIELDFARE_BASE"], api_key="none", model="demo", temperature=0, max_retries=0,
                   max_tokens=300)
ASK = "What is the capital of France?"


@tool
def timer(minutes: float) -> str:
    """Start a timer."""
    return f"{minutes}"


class City(BaseModel):
    """A city."""
    city: str
    capital: bool


whole = model.invoke(ASK)
assert "Paris" in whole.content and whole.usage_metadata["total_tokens"] > 0
assert "".join(chunk.content for chunk in model.stream(ASK)) == whole.content
assert model.bind_tools([timer]).invoke("i need a timer of 46 minutes").tool_calls[0]["args"] == {"minutes": 46}
for choice in ["any", "timer", "required"]:
    assert model.bind_tools([timer], tool_choice=choice).invoke(ASK).tool_calls[0]["name"] == "timer"
for method in ["json_schema", "function_calling"]:
    assert isinstance(model.with_structured_output(City, method=method).invoke(ASK), City), method
assert isinstance(model.with_structured_output(None, method="json_mode").invoke(ASK + " Answer in JSON."), dict)
try:
    ChatOpenAI(base_url=os.environ["FIELDFARE_BASE"], api_key="none", model="gpt-5", max_retries=0).invoke(ASK)
    raise SystemExit("an unknown model was taken")
except openai.NotFoundError:
    pass
print("langchain", version("langchain"), "with langchain-openai", version("langchain-openai"), "ok")
