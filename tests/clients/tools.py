"""What OpenAI's client and that of Messages make of calls and of reasoning: tools.py SERVER_URL

tests/serve_tools_test.py runs it against its models "hermes" and "thinking", in an environment of its own (requirements.txt).
"""
import json
import sys
import unittest

import anthropic
from openai import OpenAI
from openai.types.chat import ChatCompletion
from pydantic import BaseModel

URL = sys.argv[1]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city", "days"], "additionalProperties": False}
WANTED = [("weather", {"city": "Oslo", "days": 3}), ("weather", {"city": "Rome \u6c34", "days": 12})]
THOUGHT, SAID = "A river, then.\nThe Nile.", "The Nile it is."


class Answer(BaseModel):
    yes: bool


class ToolsTest(unittest.TestCase):
    def openai(self):
        client = OpenAI(base_url=URL + "/v1", api_key="none", max_retries=0, timeout=600)
        self.addCleanup(client.close)
        return client

    def anthropic(self):
        client = anthropic.Anthropic(base_url=URL, api_key="none", max_retries=0, timeout=600)
        self.addCleanup(client.close)
        return client

    def test_openai(self):
        client = self.openai()
        tools = [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA, "strict": True}}]
        messages = [{"role": "user", "content": "? 3"}]
        asked = {"model": "hermes", "messages": messages, "tools": tools, "temperature": 0}
        whole = client.chat.completions.create(**asked)
        ChatCompletion.model_validate(whole.model_dump())
        with client.chat.completions.stream(**asked) as stream:
            done = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
            last = stream.get_final_completion()
        for answer in (whole, last):
            calls = answer.choices[0].message.tool_calls
            self.assertEqual([(c.function.name, json.loads(c.function.arguments)) for c in calls], WANTED)
            self.assertEqual(answer.choices[0].finish_reason, "tool_calls")
            self.assertEqual(len({c.id for c in calls}), 2)
        self.assertEqual([e.name for e in done], ["weather", "weather"])
        # The answer goes into the history as it is.
        turns = [*messages, whole.choices[0].message, *({"role": "tool", "tool_call_id": c.id, "content": "? 1"} for c in whole.choices[0].message.tool_calls)]
        after = client.chat.completions.create(**{**asked, "messages": turns})
        self.assertEqual((after.choices[0].message.content, after.choices[0].finish_reason), ("It is cold there today.", "stop"))

    def test_choices_of_openai(self):
        client = self.openai()
        asked = {"model": "hermes", "messages": [{"role": "user", "content": "? 3"}], "temperature": 0, "tools": [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}]}
        for choice, count in (("required", 2), ({"type": "function", "function": {"name": "weather"}}, 1), ("none", 0)):
            with self.subTest(choice=choice):
                whole = client.chat.completions.create(**asked, tool_choice=choice).choices[0]
                self.assertEqual((len(whole.message.tool_calls or ()), whole.finish_reason), (count, "tool_calls" if count else "stop"))

    def test_reasoning_of_openai(self):
        client = self.openai()
        asked = {"model": "thinking", "messages": [{"role": "user", "content": "? 1"}], "temperature": 0}
        whole = client.chat.completions.create(**asked)
        message = whole.choices[0].message
        self.assertEqual((message.reasoning_content, message.content), (THOUGHT, SAID))
        chunks = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
        deltas = [choice.delta for chunk in chunks for choice in chunk.choices]
        self.assertEqual(("".join(getattr(d, "reasoning_content", None) or "" for d in deltas), "".join(d.content or "" for d in deltas)), (THOUGHT, SAID))
        for usage in (whole.usage, chunks[-1].usage):
            self.assertTrue(0 < usage.completion_tokens_details.reasoning_tokens < usage.completion_tokens)
        form = client.chat.completions.parse(**{**asked, "messages": [{"role": "user", "content": "? 2"}]}, response_format=Answer)
        self.assertEqual((form.choices[0].message.parsed, form.choices[0].message.reasoning_content), (Answer(yes=True), "JSON?"))

    def test_reasoning_of_messages(self):
        client = self.anthropic()
        asked = {"model": "thinking", "messages": [{"role": "user", "content": "? 1"}], "max_tokens": 2000, "thinking": {"type": "enabled", "budget_tokens": 1024}}
        whole = client.messages.create(**asked)
        with client.messages.stream(**asked) as stream:
            kinds = {event.type for event in stream}
            last = stream.get_final_message()
        self.assertLessEqual({"thinking", "text"}, kinds)
        for answer in (whole, last):
            thinking, text = answer.content
            self.assertEqual((thinking.thinking, thinking.signature, text.text), (THOUGHT, "", SAID))
        # Goes into the history as it is, and is counted there.
        turns = [*asked["messages"], {"role": "assistant", "content": whole.content}, {"role": "user", "content": "? 1"}]
        counted = client.messages.count_tokens(**{k: v for k, v in asked.items() if k != "max_tokens"} | {"messages": turns}).input_tokens
        short = client.messages.count_tokens(model="thinking", messages=[turns[0], {"role": "assistant", "content": SAID}, turns[2]], thinking=asked["thinking"]).input_tokens
        self.assertGreater(counted, short)
        form = {"format": {"type": "json_schema", "schema": {**Answer.model_json_schema(), "additionalProperties": False}}}
        told = client.messages.create(**{**asked, "messages": [{"role": "user", "content": "? 2"}]}, output_config=form)
        self.assertEqual([b.type for b in told.content], ["thinking", "text"])
        self.assertEqual(Answer.model_validate_json(told.content[1].text), Answer(yes=True))

    def test_messages(self):
        client = self.anthropic()
        messages = [{"role": "user", "content": "? 3"}]
        asked = {"model": "hermes", "messages": messages, "tools": [{"name": "weather", "input_schema": SCHEMA}], "max_tokens": 200}
        whole = client.messages.create(**asked)
        with client.messages.stream(**asked) as stream:
            last = stream.get_final_message()
        for answer in (whole, last):
            self.assertEqual([(b.name, b.input) for b in answer.content], WANTED)
            self.assertEqual(answer.stop_reason, "tool_use")
        results = [{"type": "tool_result", "tool_use_id": b.id, "content": "? 1"} for b in whole.content]
        turns = [*messages, {"role": "assistant", "content": whole.content}, {"role": "user", "content": results}]
        after = client.messages.create(**{**asked, "messages": turns})
        self.assertEqual((after.content[0].text, after.stop_reason), ("It is cold there today.", "end_turn"))
        counted = client.messages.count_tokens(model="hermes", messages=turns, tools=asked["tools"])
        self.assertEqual(counted.input_tokens, after.usage.input_tokens + after.usage.cache_read_input_tokens)

    def test_a_block_that_changes_with_each_request_keeps_the_beginning(self):
        client = self.anthropic()

        def usage(number, text):
            system = [{"type": "text", "text": f"x-anthropic-billing-header: {number}"}, {"type": "text", "text": "You are careful, and brief.", "cache_control": {"type": "ephemeral"}}]
            asked = {"model": "hermes", "system": system, "max_tokens": 50, "tools": [{"name": "weather", "input_schema": SCHEMA}]}
            return client.messages.create(**asked, messages=[{"role": "user", "content": text}]).usage

        first, again = usage(1, "Oslo? 1"), usage(2, "Rome? 1")
        self.assertEqual(first.input_tokens + first.cache_read_input_tokens, again.input_tokens + again.cache_read_input_tokens)
        # What is behind the system's text, character by character.
        self.assertEqual(again.input_tokens, len("Rome? 1<|im_end|>\n<|im_start|>assistant\n1"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
