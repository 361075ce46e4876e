"""Tests of situ.openai, which python_test.py runs."""
import json
import threading
import time
import types

import situ
from python_case import LONG, PythonTest


class OpenAiTest(PythonTest):
    def test_bodies(self):
        model = situ.load(self.text_path)
        body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 6, "ignore_eos": True, "model": "mine"}
        whole = situ.openai.chat(body, model)
        text = whole["choices"][0]["message"]["content"]
        self.assertEqual((whole["model"], text, whole["usage"]["completion_tokens"]), ("mine", model.generate("uHia", max_new_tokens=6, ignore_eos=True).text, 6))
        self.assertEqual(situ.openai.chat(json.dumps(body).encode(), model)["choices"], whole["choices"])
        said = type("Said", (), {"model_dump": lambda self, **options: {"role": "user", "content": "Hi"}})()
        for messages in ([said], (m for m in body["messages"]), [types.MappingProxyType(body["messages"][0])]):
            self.assertEqual(situ.openai.chat({**body, "messages": messages}, model)["choices"], whole["choices"])
        self.assertEqual(situ.openai.chat(bytearray(json.dumps(body).encode()), model)["choices"], whole["choices"])
        pieces = list(situ.openai.chat({**body, "stream": True, "stream_options": {"include_usage": True}}, model))
        self.assertEqual("".join(p["choices"][0]["delta"].get("content") or "" for p in pieces[:-1]), text)
        self.assertEqual(pieces[-1]["usage"]["completion_tokens"], 6)
        self.assertEqual([c["index"] for c in situ.openai.completions({"prompt": ["a", "b"], "max_tokens": 1}, model)["choices"]], [0, 1])
        for call, wrong, status, param in ((situ.openai.chat, {**body, "n": -1}, 400, "n"), (situ.openai.chat, b"[", 400, None), (situ.openai.completions, {}, 400, "prompt"),
                                           (situ.openai.chat, {**body, "stream": True, "temperature": -1}, 400, "temperature"), (situ.openai.embeddings, {"input": "a"}, 400, "model")):
            with self.subTest(wrong=wrong), self.assertRaises(situ.openai.Refused) as refused:
                call(wrong, model)
            self.assertEqual((refused.exception.status, refused.exception.body["error"]["param"]), (status, param))
        with self.assertRaises(situ.openai.Refused) as refused:
            situ.openai.completions({"prompt": ["a"] * 3000, "max_tokens": 1}, model)
        self.assertEqual((refused.exception.status, refused.exception.body["error"]["code"]), (400, "limit_exceeded"))
        self.assertEqual(situ.openai.chat(body, model)["choices"], whole["choices"])  # nothing of it waits

    def test_a_stream_that_is_left(self):
        model = situ.load(self.text_path, context_length=LONG)
        with situ.openai.chat({"messages": [{"role": "user", "content": "Hi"}], "ignore_eos": True, "stream": True}, model) as pieces:
            next(pieces), next(pieces)
        self.assertEqual(list(pieces), [])
        for _ in range(10):  # by another thread than the one that waits for the next piece
            pieces = situ.openai.chat({"messages": [{"role": "user", "content": "Hi"}], "ignore_eos": True, "stream": True}, model)
            begun = threading.Event()
            reader = threading.Thread(target=lambda: [begun.set() for _ in pieces])
            reader.start()
            begun.wait()
            pieces.close()
            reader.join()
        body = {"prompt": "Hi", "ignore_eos": True}
        whole = situ.openai.begin("/v1/completions", {**body, "max_tokens": LONG - 10}, model)  # is one piece
        left = []
        reader = threading.Thread(target=lambda: left.extend(whole))
        reader.start()
        while not model.stats()["running"]:
            time.sleep(0.001)
        whole.close()
        reader.join()
        self.assertEqual(left, [])
        answer = situ.openai.begin("/v1/completions", {**body, "max_tokens": 2}, model)
        self.assertEqual((answer.streams, [a["usage"]["completion_tokens"] for a in answer]), (False, [2]))
        with self.assertRaises(situ.openai.Refused) as refused:
            next(situ.openai.begin("/v1/others", body, model))
        self.assertEqual(refused.exception.status, 404)
        while model.stats()["running"]:
            time.sleep(0.001)
