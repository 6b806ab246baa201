"""The openai package for Python against a server: python openai_python.py URL"""

import json
import sys

import openai

client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="none")
model = client.models.list().data[0].id

whole = client.completions.create(model=model, prompt="package main\n\nimport", max_tokens=40, temperature=0)
assert whole.object == "text_completion" and whole.usage.completion_tokens <= 40
drafted = whole.usage.model_extra["speculation"]
assert drafted["emitted"] == whole.usage.completion_tokens and not drafted["simulated"], drafted

plain = client.completions.create(
    model=model, prompt="package main\n\nimport", max_tokens=40, temperature=0, extra_body={"speculation": {"strategy": "none"}}
)
assert plain.choices[0].text == whole.choices[0].text

text, usage = "", None
for chunk in client.completions.create(
    model=model, prompt="package main\n\nimport", max_tokens=40, temperature=0, stream=True, stream_options={"include_usage": True}
):
    text += chunk.choices[0].text if chunk.choices else ""
    usage = chunk.usage or usage
assert text == whole.choices[0].text and usage.completion_tokens == whole.usage.completion_tokens

several = client.completions.create(model=model, prompt=["func a(", "func b("], n=2, max_tokens=8, temperature=1, seed=3, logprobs=2)
assert [c.index for c in several.choices] == [0, 1, 2, 3]
assert len(several.choices[0].logprobs.tokens) == len(several.choices[0].logprobs.token_logprobs)

messages = [{"role": "user", "content": "Reverse a string."}]
chat = client.chat.completions.create(model=model, messages=messages, max_completion_tokens=20, temperature=0, logprobs=True, top_logprobs=2)
assert chat.choices[0].message.role == "assistant" and chat.choices[0].finish_reason in ("stop", "length")
assert all(len(t.top_logprobs) == 2 for t in chat.choices[0].logprobs.content)
streamed = ""
for chunk in client.chat.completions.create(model=model, messages=messages, max_completion_tokens=20, temperature=0, stream=True):
    streamed += chunk.choices[0].delta.content or ""
assert streamed == chat.choices[0].message.content

schema = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 10}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
formatted = client.chat.completions.create(
    model=model,
    messages=messages,
    max_completion_tokens=200,
    seed=1,
    response_format={"type": "json_schema", "json_schema": {"name": "person", "schema": schema, "strict": True}},
)
assert set(json.loads(formatted.choices[0].message.content)) == {"name", "age"}

tools = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object", "properties": {"key": {"enum": ["a", "b"]}}, "required": ["key"]}}}]
called = client.chat.completions.create(model=model, messages=messages, tools=tools, tool_choice="required", max_completion_tokens=100, seed=1)
call = called.choices[0].message.tool_calls[0]
assert called.choices[0].finish_reason == "tool_calls" and call.function.name == "look_up"
assert json.loads(call.function.arguments)["key"] in ("a", "b")

for wrong, error in (
    ({"model": "other", "prompt": "a"}, openai.NotFoundError),
    ({"model": model, "prompt": "a", "temperature": -1}, openai.BadRequestError),
    ({"model": model, "prompt": "a", "suffix": "b"}, openai.BadRequestError),
):
    try:
        client.completions.create(**wrong)
        raise AssertionError(f"{wrong} was taken")
    except error as e:
        assert e.body["message"], e.body
print(f"openai {openai.__version__} for Python: ok")
