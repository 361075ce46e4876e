"""What OpenAI's client and that of Messages make of calls: tools.py SERVER_URL

tests/serve_tools_test.py runs it against its model "hermes", in an environment of its own (requirements.txt).
"""
import json
import sys
import unittest

import anthropic
from openai import OpenAI
from openai.types.chat import ChatCompletion

URL = sys.argv[1]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city", "days"], "additionalProperties": False}
WANTED = [("weather", {"city": "Oslo", "days": 3}), ("weather", {"city": "Rome \u6c34", "days": 12})]


class ToolsTest(unittest.TestCase):
    def test_openai(self):
        client = OpenAI(base_url=URL + "/v1", api_key="none", max_retries=0, timeout=600)
        self.addCleanup(client.close)
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

    def test_messages(self):
        client = anthropic.Anthropic(base_url=URL, api_key="none", max_retries=0, timeout=600)
        self.addCleanup(client.close)
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


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
