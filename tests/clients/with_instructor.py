"""What instructor makes of a server: with_instructor.py SERVER_URL"""
import asyncio
import sys
import unittest

import instructor
import openai
from pydantic import BaseModel, Field

MODEL = "smollm2-135m-instruct"
TURN = [{"role": "user", "content": "Hi"}]
AS = {"base_url": sys.argv[1] + "/v1", "api_key": "none", "max_retries": 0}


class Answer(BaseModel):
    yes: bool
    number: int = Field(ge=0, le=9)


class InstructorTest(unittest.TestCase):
    def setUp(self):
        self.client = instructor.from_openai(openai.OpenAI(**AS), mode=instructor.Mode.JSON_SCHEMA)
        self.asked = {"model": MODEL, "messages": TURN, "response_model": Answer, "max_tokens": 200, "max_retries": 0}

    def test_create(self):
        """Objects of a class, which its grammar makes of whatever the model says."""
        self.assertIsInstance(self.client.chat.completions.create(**self.asked), Answer)
        answer, told = self.client.chat.completions.create_with_completion(**self.asked)
        self.assertIsInstance(answer, Answer)
        self.assertEqual(told.choices[0].finish_reason, "stop")

    def test_tools(self):
        """The class as a tool that must be called, its own way."""
        client = instructor.from_openai(openai.OpenAI(**AS), mode=instructor.Mode.TOOLS)
        asked = {**self.asked, "model": "agent", "messages": [{"role": "user", "content": "? 4"}], "temperature": 0}
        answer, told = client.chat.completions.create_with_completion(**asked)
        self.assertIsInstance(answer, Answer)
        self.assertEqual((answer.yes, answer.number, told.choices[0].message.tool_calls[0].function.name), (True, 7, "Answer"))
        asked.pop("response_model")
        asked["messages"] = [{"role": "user", "content": "? 6"}]  # the tool is called PartialAnswer then
        *_, last = client.chat.completions.create_partial(response_model=Answer, **asked)
        self.assertEqual((last.yes, last.number), (True, 7))

    def test_partial(self):
        self.asked.pop("response_model")
        *_, last = self.client.chat.completions.create_partial(response_model=Answer, **self.asked)
        self.assertIsInstance(last.yes, bool)

    def test_async(self):
        client = instructor.from_openai(openai.AsyncOpenAI(**AS), mode=instructor.Mode.JSON_SCHEMA)
        self.assertIsInstance(asyncio.run(client.chat.completions.create(**self.asked)), Answer)

    def test_errors(self):
        with self.assertRaisesRegex(Exception, "maximum context length"):
            self.client.chat.completions.create(**{**self.asked, "messages": [{"role": "user", "content": "a" * 5000}]})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
