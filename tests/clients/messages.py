"""What the Python client of the Messages API makes of a server: messages.py SERVER_URL [MODEL_WITH_IMAGES]

tests/serve_clients_test.py runs it, in an environment of its own (requirements.txt).
"""
import json
import sys
import unittest

import anthropic
from anthropic.types import ErrorResponse, Message, MessageTokensCount, RawMessageStreamEvent
from openai import OpenAI
from pydantic import TypeAdapter

URL, IMAGES, *_ = [*sys.argv[1:], ""]
MODEL = "smollm2-135m-instruct"
TURN = [{"role": "user", "content": "Hi"}]
SHORT = {"model": MODEL, "messages": TURN, "max_tokens": 8}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="
EVENT = TypeAdapter(RawMessageStreamEvent)


class MessagesTest(unittest.TestCase):
    def setUp(self):
        self.client = anthropic.Anthropic(base_url=URL, api_key="none", max_retries=0, timeout=600)
        self.addCleanup(self.client.close)

    def raw(self, path="/v1/messages", **body):
        answer = self.client._client.post(URL + path, json=body)
        return answer, answer.json()

    def test_a_message(self):
        message = self.client.messages.create(**SHORT)
        self.assertEqual((message.role, message.type, message.model), ("assistant", "message", MODEL))
        self.assertRegex(message.id, "^msg_[0-9a-f]{32}$")
        self.assertTrue(message._request_id)
        self.assertEqual(message.usage.output_tokens, 8)
        self.assertEqual((message.stop_reason, message.stop_sequence), ("max_tokens", None))
        Message.model_validate(self.raw(**SHORT)[1])

    def test_the_same_as_chat(self):
        chat = OpenAI(base_url=URL + "/v1", api_key="none", max_retries=0, timeout=600)
        self.addCleanup(chat.close)
        turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes."}, {"role": "user", "content": "Go on"}]
        asked = chat.chat.completions.create(model=MODEL, messages=[{"role": "system", "content": "One.\n\nTwo."}, *turns], max_tokens=8, temperature=0)
        system = [{"type": "text", "text": "x-anthropic-billing: 1"}, {"type": "text", "text": "One."}, {"type": "text", "text": "Two.", "cache_control": {"type": "ephemeral"}}]
        blocks = [{"role": t["role"], "content": [{"type": "text", "text": t["content"]}]} for t in turns]
        message = self.client.messages.create(model=MODEL, system=system, messages=blocks, max_tokens=8, extra_body={"temperature": 0})
        self.assertEqual("".join(b.text for b in message.content), asked.choices[0].message.content)
        usage = message.usage
        self.assertEqual(usage.input_tokens + usage.cache_read_input_tokens, asked.usage.prompt_tokens)
        self.assertEqual(usage.output_tokens, asked.usage.completion_tokens)
        counted = self.client.messages.count_tokens(model=MODEL, system=system, messages=blocks)
        self.assertEqual(counted.input_tokens, asked.usage.prompt_tokens)
        MessageTokensCount.model_validate(self.raw("/v1/messages/count_tokens", model=MODEL, messages=blocks)[1])

    def test_a_stream(self):
        whole = self.client.messages.create(**SHORT, extra_body={"temperature": 0})
        with self.client.messages.stream(**SHORT, extra_body={"temperature": 0}) as stream:
            text = "".join(stream.text_stream)
            last = stream.get_final_message()
        self.assertEqual(text, "".join(b.text for b in whole.content))
        self.assertEqual([b.to_dict() for b in last.content], [b.to_dict() for b in whole.content])
        self.assertEqual((last.stop_reason, last.usage.output_tokens), (whole.stop_reason, whole.usage.output_tokens))
        with self.client._client.stream("POST", URL + "/v1/messages", json={**SHORT, "stream": True}) as answer:
            lines = [line for line in answer.iter_lines() if line and not line.startswith(":")]
        names = [line.removeprefix("event: ") for line in lines[::2]]
        events = [EVENT.validate_python(json.loads(line.removeprefix("data: "))) for line in lines[1::2]]
        self.assertEqual([e.type for e in events], names)
        self.assertEqual([names[0], *names[-2:]], ["message_start", "message_delta", "message_stop"])

    def test_stop_sequences(self):
        text = "".join(b.text for b in self.client.messages.create(**SHORT, extra_body={"temperature": 0}).content)
        stopped = self.client.messages.create(**SHORT, stop_sequences=["\0never", text[3:5]], extra_body={"temperature": 0})
        self.assertEqual((stopped.stop_reason, stopped.stop_sequence), ("stop_sequence", text[3:5]))
        self.assertEqual("".join(b.text for b in stopped.content), text[:text.index(text[3:5])])

    def test_structured_output(self):
        schema = {"type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"], "additionalProperties": False}
        message = self.client.messages.create(**{**SHORT, "max_tokens": 60}, output_config={"format": {"type": "json_schema", "schema": schema}})
        self.assertEqual(set(json.loads(message.content[0].text)), {"yes"})

    def test_images(self):
        if not IMAGES:
            self.skipTest("no model with images")
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
        content = [{"type": "text", "text": "a"}, image]
        with_image = self.client.messages.count_tokens(model=IMAGES, messages=[{"role": "user", "content": content}])
        without = self.client.messages.count_tokens(model=IMAGES, messages=[{"role": "user", "content": content[:1]}])
        self.assertGreater(with_image.input_tokens, without.input_tokens)
        self.assertEqual(self.client.messages.create(model=IMAGES, max_tokens=2, messages=[{"role": "user", "content": content}]).usage.output_tokens, 2)

    def test_ignored(self):
        url = {"type": "image", "source": {"type": "url", "url": "http://127.0.0.1:1/a.png"}}
        document = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a"}}
        answer, body = self.raw(**{**SHORT, "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}, url, document]}]}, metadata={"user_id": "a"}, colour=1)
        self.assertEqual(answer.status_code, 200)
        self.assertEqual(body["situ"]["ignored"], ["colour", "messages[0].content[1].source", "messages[0].content[2] (document)"])
        self.assertEqual(len(answer.headers["x-situ-ignored"].split(", ")), 3)

    def test_errors(self):
        for body, kind, status in (({**SHORT, "model": "none"}, anthropic.NotFoundError, 404), ({**SHORT, "messages": []}, anthropic.BadRequestError, 400),
                                   ({"model": MODEL, "messages": TURN}, anthropic.BadRequestError, 400), ({**SHORT, "messages": [{"role": "user", "content": "a " * 9000}]}, anthropic.BadRequestError, 400),
                                   ({**SHORT, "tools": [{"name": "f", "input_schema": {"type": "object", "not": {}}}]}, anthropic.BadRequestError, 400),
                                   ({**SHORT, "tool_choice": {"type": "tool", "name": "f"}}, anthropic.BadRequestError, 400)):
            answer, error = self.raw(**body)
            self.assertEqual(answer.status_code, status)
            ErrorResponse.model_validate(error)
            self.assertEqual(error["request_id"], answer.headers["request-id"])
            if "max_tokens" in body:
                with self.assertRaises(kind) as raised:
                    self.client.messages.create(**body)
                self.assertEqual(raised.exception.body["error"]["type"], error["error"]["type"])
            if "a a" in str(body):
                self.assertRegex(error["error"]["message"], r"^prompt is too long: \d+ tokens > \d+ maximum$")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
