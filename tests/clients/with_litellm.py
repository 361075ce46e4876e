"""What litellm makes of a server: with_litellm.py SERVER_URL"""
import asyncio
import json
import os
import sys
import unittest
from typing import Literal

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it reads no list of prices from the network

import litellm  # noqa: E402
from pydantic import BaseModel  # noqa: E402

litellm.telemetry = False
URL = sys.argv[1] + "/v1"
MODEL = "smollm2-135m-instruct"
TURN = [{"role": "user", "content": "Hi"}]
PROVIDERS = ("openai", "hosted_vllm")  # ways to a server that speaks as OpenAI's does


TOOLS = [{"type": "function", "function": {"name": "weather", "description": "The weather of a city", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city", "days"]}}}]


class Answer(BaseModel):
    yes: bool
    colour: Literal["red", "blue"]


def options(provider="openai", model=MODEL, **more):
    return {"model": f"{provider}/{model}", "api_base": URL, "api_key": "none", "messages": TURN, "max_tokens": 8, "num_retries": 0, **more}


class LitellmTest(unittest.TestCase):
    def test_completion(self):
        for provider in PROVIDERS:
            with self.subTest(provider):
                whole = litellm.completion(**options(provider))
                self.assertEqual(whole.usage.total_tokens, whole.usage.prompt_tokens + whole.usage.completion_tokens)
                pieces = list(litellm.completion(**options(provider), stream=True, stream_options={"include_usage": True}))
                self.assertEqual("".join(p.choices[0].delta.content or "" for p in pieces if p.choices), whole.choices[0].message.content)
                self.assertEqual(pieces[-1].usage.completion_tokens, whole.usage.completion_tokens)

    def test_options(self):
        told = litellm.completion(**options(n=2, temperature=0.8, top_p=0.9, seed=1, stop=["\x01"], logprobs=True, top_logprobs=2, presence_penalty=0.1, frequency_penalty=0.1, user="me"))
        self.assertEqual(len(told.choices), 2)
        self.assertTrue(all(len(t.top_logprobs) == 2 for t in told.choices[0].logprobs.content))

    def test_structured_output(self):
        litellm.enable_json_schema_validation = True
        told = litellm.completion(**options(max_tokens=200), response_format=Answer)
        self.assertIsInstance(Answer.model_validate_json(told.choices[0].message.content), Answer)

    def test_tools(self):
        for provider in PROVIDERS:
            for stream in (False, True):
                with self.subTest(provider, stream=stream):
                    asked = options(provider, model="agent", max_tokens=200, temperature=0, tools=TOOLS, stream=stream)
                    turns = [{"role": "user", "content": "? 2"}]
                    for _ in range(2):
                        told = litellm.completion(**{**asked, "messages": turns})
                        told = litellm.stream_chunk_builder(list(told), messages=turns) if stream else told
                        message = told.choices[0].message
                        turns.append(message.model_dump(exclude_none=True))
                        for call in message.tool_calls or ():
                            self.assertEqual((call.function.name, json.loads(call.function.arguments), told.choices[0].finish_reason), ("weather", {"city": "Oslo", "days": 3}, "tool_calls"))
                            turns.append({"role": "tool", "tool_call_id": call.id, "content": "4 degrees 1"})
                    self.assertEqual([t["role"] for t in turns], ["user", "assistant", "tool", "assistant"])
                    self.assertEqual(turns[-1]["content"], "It is cold there today.")

    def test_reasoning(self):
        for provider in PROVIDERS:
            with self.subTest(provider):
                asked = options(provider, model="agent", max_tokens=200, temperature=0, messages=[{"role": "user", "content": "? 5"}])
                message = litellm.completion(**asked).choices[0].message
                self.assertEqual((message.reasoning_content, message.content), ("A river, then.", "The Nile."))
                pieces = [p.choices[0].delta for p in litellm.completion(**asked, stream=True) if p.choices]
                self.assertEqual("".join(getattr(p, "reasoning_content", None) or "" for p in pieces), message.reasoning_content)

    def test_text_completion(self):
        told = litellm.text_completion(model=f"text-completion-openai/{MODEL}", api_base=URL, api_key="none", prompt="Once", max_tokens=4)
        self.assertIsInstance(told.choices[0].text, str)

    def test_embedding(self):
        told = litellm.embedding(model="openai/encoder", api_base=URL, api_key="none", input=["harbour", "quiet"])
        self.assertEqual(len(told.data), 2)
        self.assertTrue(all(isinstance(x, float) for x in told.data[0]["embedding"]))

    def test_errors(self):
        for provider in PROVIDERS:
            for error, change in ((litellm.NotFoundError, {"model": "other"}), (litellm.BadRequestError, {"temperature": -1}),
                                  (litellm.ContextWindowExceededError, {"messages": [{"role": "user", "content": "a" * 5000}]})):
                with self.subTest(provider, error=error.__name__), self.assertRaises(error):
                    litellm.completion(**options(provider, **change))

    def test_async(self):
        async def ask():
            whole = await litellm.acompletion(**options())
            pieces = [p.choices[0].delta.content or "" async for p in await litellm.acompletion(**options(), stream=True)]
            self.assertEqual("".join(pieces), whole.choices[0].message.content)

        asyncio.run(ask())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
