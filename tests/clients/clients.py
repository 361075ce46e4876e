"""What the Python client of OpenAI's API makes of a server: clients.py SERVER_URL [MODEL_WITH_IMAGES]

tests/serve_clients_test.py runs it, in an environment of its own (requirements.txt).
"""
import asyncio
import base64
import sys
import time
import unittest
from typing import Literal

import openai
from prometheus_client.parser import text_string_to_metric_families
from pydantic import BaseModel

URL, IMAGES, *_ = [*sys.argv[1:], ""]
MODEL = "smollm2-135m-instruct"
TURN = [{"role": "user", "content": "Hi"}]
SHORT = {"model": MODEL, "messages": TURN, "max_tokens": 8, "extra_body": {"ignore_eos": True}}
LONG = {**SHORT, "model": "endless", "max_tokens": 10**9}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="


class Answer(BaseModel):
    yes: bool
    colour: Literal["red", "blue"]


def client(**options):
    return openai.OpenAI(base_url=URL + "/v1", api_key="none", max_retries=0, timeout=600, **options)


def metric(name):
    text = client()._client.get(URL + "/metrics").text
    return sum(s.value for family in text_string_to_metric_families(text) for s in family.samples if s.name == name)


class OpenAiTest(unittest.TestCase):
    def setUp(self):
        self.client = client()
        self.addCleanup(self.client.close)

    def wait_until_free(self):
        end = time.monotonic() + 600
        while metric("situ_slots_used") or metric("situ_requests_running"):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)

    def test_models(self):
        self.assertIn(MODEL, [m.id for m in self.client.models.list()])
        self.assertEqual(self.client.models.retrieve(MODEL).owned_by, "situ")

    def test_chat(self):
        answer = self.client.chat.completions.create(**SHORT, n=2, logprobs=True, top_logprobs=2, seed=1)
        self.assertEqual((len(answer.choices), answer.usage.completion_tokens, answer.choices[0].finish_reason), (2, 16, "length"))
        self.assertEqual([len(t.top_logprobs) for t in answer.choices[1].logprobs.content], [2] * 8)
        self.assertTrue(answer._request_id)
        self.assertEqual(answer.timings["predicted_n"], 16)
        streamed = {0: "", 1: ""}
        for chunk in self.client.chat.completions.create(**SHORT, n=2, seed=1, stream=True, stream_options={"include_usage": True}):
            for choice in chunk.choices:
                streamed[choice.index] += choice.delta.content or ""
        self.assertEqual((list(streamed.values()), chunk.usage.completion_tokens), ([c.message.content for c in answer.choices], 16))
        with self.client.chat.completions.stream(**SHORT) as stream:  # the helper that puts pieces together
            for event in stream:
                pass
        self.assertEqual(stream.current_completion_snapshot.choices[0].message.content, answer.choices[0].message.content)

    def test_schema(self):
        schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": False}
        form = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema, "strict": True}}
        text = self.client.chat.completions.create(model=MODEL, messages=TURN, max_tokens=60, response_format=form).choices[0].message.content
        self.assertTrue(text.lstrip().startswith("{"), text)

    def test_parsed(self):
        """Objects of a class, whole and as they come."""
        asked = {"model": MODEL, "messages": TURN, "max_tokens": 200, "response_format": Answer}
        message = self.client.chat.completions.parse(**asked).choices[0].message
        self.assertIsInstance(message.parsed, Answer)
        self.assertIsNone(message.refusal)
        with self.client.chat.completions.stream(**asked) as stream:
            kinds = {event.type for event in stream}
            self.assertEqual(stream.get_final_completion().choices[0].message.parsed, message.parsed)
        self.assertLessEqual({"chunk", "content.delta", "content.done"}, kinds)

    def test_logprobs_of_a_stream(self):
        asked = {**SHORT, "logprobs": True, "top_logprobs": 2}
        whole = self.client.chat.completions.create(**asked).choices[0].logprobs.content
        streamed = [t for c in self.client.chat.completions.create(**asked, stream=True) for choice in c.choices if choice.logprobs for t in choice.logprobs.content or ()]
        self.assertEqual([(t.token, t.bytes, t.logprob) for t in streamed], [(t.token, t.bytes, t.logprob) for t in whole])

    def test_fields_without_effect(self):
        """What clients send beside the question, at values that ask for nothing else, changes no answer."""
        plain = self.client.chat.completions.create(**SHORT)
        for fields in ({"parallel_tool_calls": True}, {"tools": [], "tool_choice": "none"}, {"modalities": ["text"]}, {"reasoning_effort": "low", "verbosity": "low"}, {"logprobs": False, "n": 1},
                       {"store": False, "metadata": {"run": "1"}, "service_tier": "auto", "user": "me", "safety_identifier": "me", "prompt_cache_key": "me"},
                       {"response_format": {"type": "text"}, "stop": None, "logit_bias": {}, "seed": None}, {"stream_options": None, "presence_penalty": 0, "frequency_penalty": 0.0}):
            with self.subTest(fields):
                answer = self.client.chat.completions.create(**SHORT, **fields)
                self.assertEqual(answer.choices[0].message.content, plain.choices[0].message.content)
        for fields in ({"best_of": 1}, {"suffix": ""}, {"logprobs": None, "echo": False}):
            with self.subTest(fields):
                self.assertEqual(self.client.completions.create(model=MODEL, prompt="a", max_tokens=4, **fields).choices[0].index, 0)

    def test_unknown_fields(self):
        """They are ignored and named."""
        answer = self.client.chat.completions.create(**{**SHORT, "extra_body": {"ignore_eos": True, "colour": "red"}})
        self.assertEqual(answer.situ["ignored"], ["colour"])
        raw = self.client.chat.completions.with_raw_response.create(**{**SHORT, "stream": True, "extra_body": {"ignore_eos": True, "colour": "red"}})
        self.assertEqual(raw.headers["x-situ-ignored"], "colour")
        *_, last = raw.parse()
        self.assertEqual(last.situ["ignored"], ["colour"])

    def test_completions_and_embeddings(self):
        answer = self.client.completions.create(model=MODEL, prompt=["a", "b"], max_tokens=4, extra_body={"ignore_eos": True})
        self.assertEqual(([c.index for c in answer.choices], answer.usage.completion_tokens), ([0, 1], 8))
        text = "".join(c.choices[0].text for c in self.client.completions.create(model=MODEL, prompt="a", max_tokens=4, stream=True, extra_body={"ignore_eos": True}))
        self.assertEqual(text, answer.choices[0].text)
        packed = self.client.embeddings.create(model="encoder", input=["harbour", "quiet"]).data  # as base64
        plain = self.client.embeddings.create(model="encoder", input=["harbour", "quiet"], encoding_format="float").data
        for a, b in zip(packed, plain, strict=True):
            self.assertLess(max(abs(x - y) for x, y in zip(a.embedding, b.embedding, strict=True)), 1e-6)
        sized = self.client.embeddings.create(model="encoder", input="harbour", dimensions=len(plain[0].embedding), user="me")
        self.assertEqual(sized.data[0].embedding, packed[0].embedding)

    @unittest.skipUnless(IMAGES, "no model with images")
    def test_images(self):
        part = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + PIXEL}}
        answer = self.client.chat.completions.create(model=IMAGES, messages=[{"role": "user", "content": [{"type": "text", "text": "a"}, part]}], max_tokens=2)
        self.assertGreater(answer.usage.prompt_tokens, 4)

    def test_errors(self):
        create = self.client.chat.completions.create
        for error, code, change in ((openai.NotFoundError, "model_not_found", {"model": "other"}), (openai.BadRequestError, "unsupported_by_model", {"model": "encoder"}),
                                    (openai.BadRequestError, "context_length_exceeded", {"messages": [{"role": "user", "content": "a" * 5000}]}), (openai.BadRequestError, "invalid_value", {"temperature": -1})):
            with self.subTest(code=code), self.assertRaises(error) as caught:
                create(**{**SHORT, **change})
            self.assertEqual((caught.exception.code, bool(caught.exception.request_id)), (code, True))
            if code == "context_length_exceeded":
                self.assertRegex(str(caught.exception), r"This model's maximum context length is \d+ tokens\. However, your prompt has \d+ tokens\.")
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("other")
        with self.assertRaises(openai.BadRequestError):
            create(**SHORT, stream=True, temperature=-1)

    def test_a_stream_that_is_closed(self):
        stream = self.client.chat.completions.create(**LONG, stream=True)
        next(iter(stream))
        stream.close()
        self.wait_until_free()

    def test_async(self):
        async def ask():
            async with openai.AsyncOpenAI(base_url=URL + "/v1", api_key="none", max_retries=0, timeout=600) as client:
                answers = await asyncio.gather(*(client.chat.completions.create(**SHORT) for _ in range(8)))
                self.assertEqual(len({a.choices[0].message.content for a in answers}), 1)
                pieces = [c async for c in await client.chat.completions.create(**SHORT, stream=True)]
                self.assertEqual(pieces[-1].choices[0].finish_reason, "length")

                async def endless():
                    async for _ in await client.chat.completions.create(**LONG, stream=True):
                        begun.set()

                begun = asyncio.Event()
                task = asyncio.create_task(endless())
                await begun.wait()
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task

        asyncio.run(ask())
        self.wait_until_free()

    def test_metrics(self):
        self.client.chat.completions.create(**SHORT)
        end = time.monotonic() + 600
        while not metric("situ_request_seconds_count"):
            self.assertLess(time.monotonic(), end)
        text = client()._client.get(URL + "/metrics").text
        families = {f.name: f for f in text_string_to_metric_families(text)}
        for name, kind in (("situ_requests", "counter"), ("situ_slots", "gauge"), ("situ_time_to_first_token_seconds", "histogram"), ("process_cpu_seconds", "counter")):
            self.assertEqual(families[name].type, kind)
        buckets = [s.value for s in families["situ_request_seconds"].samples if s.name.endswith("_bucket") and s.labels["model"] == MODEL]
        self.assertEqual(buckets, sorted(buckets))
        self.assertTrue(all(f.documentation for f in families.values()))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
