"""`situ serve`, on a tiny model, by sockets and http.client.

    python tests/serve_test.py --situ build/situ [unittest options]

Needs numpy and onnx (`make python`).
"""
import concurrent.futures
import fcntl
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path

import cli_case
from cli_case import CliTest, Run, main
from sampling_test import write_chat_model

TEMPLATE = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}a:"
PATIENCE = 300  # seconds; what is waited for takes milliseconds
ENDLESS = 10**9  # tokens


class Server:
    """A server of its own, with what it said."""

    def __init__(self, *arguments, ready=True, listeners=1, **environment):
        self.log = tempfile.TemporaryFile()
        command = [cli_case.SITU, "serve", *map(str, arguments), "--threads", "1"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log, text=True, env={**os.environ, "SITU_CACHE_DIR": "", **environment})
        self.where = []
        while ready and len(self.where) < listeners:
            line = self.process.stdout.readline()
            if not line:
                raise AssertionError(f"no ready line: {self.stop()} {self.said()}")
            self.where.append(line)
        self.port = int(self.where[0].rsplit(":", 1)[1]) if self.where and self.where[0].startswith("ready http") else None

    def said(self):
        if self.log.closed:
            return self.text
        self.log.seek(0)
        return self.log.read().decode()

    def stop(self, by=signal.SIGTERM):
        self.process.send_signal(by)
        return self.ended()

    def ended(self):
        code = self.process.wait(PATIENCE)
        self.rest = self.process.stdout.read()
        self.process.stdout.close()
        self.text = self.said()
        self.log.close()
        return code

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)

    def ask(self, method, path, body=None, headers=None):
        """The answer: status, headers, and the JSON or text of its body."""
        connection = self.connect()
        connection.request(method, path, body if body is None or isinstance(body, (str, bytes)) else json.dumps(body), headers or {})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        answer.body = text.decode()
        is_json = (answer.getheader("content-type") or "").startswith("application/json")
        return answer, json.loads(text) if is_json and text else answer.body

    def raw(self, data, answers=1):
        """What comes back for these bytes: so many whole answers, or all to the end of the connection."""
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE) as s:
            got = b""
            try:
                s.sendall(data)
            except ConnectionError:
                pass  # it was answered before it was read
            try:
                while whole_answers(got) < answers and (part := s.recv(65536)):
                    got += part
            except ConnectionError:
                pass
            return got.decode(errors="replace")

    def metric(self, name):
        text = self.ask("GET", "/metrics")[1]
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if re.match(rf"{name}[ {{]", line))


def whole_answers(data):
    """How many are in it, those without a body (100) aside."""
    count = 0
    while data:
        head, end, data = data.partition(b"\r\n\r\n")
        length = re.search(rb"\r\ncontent-length: (\d+)", head.lower())
        if not end or (length and int(length[1]) > len(data)):
            break
        data = data[int(length[1]):] if length else data
        count += bool(length)
    return count


def events(text):
    """The data of server-sent events."""
    return [block[len("data: "):] for block in text.split("\n\n") if block.startswith("data: ")]


def request_of(body, path="/v1/chat/completions"):
    """The bytes of a request."""
    text = json.dumps(body)
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode()


class ServeCase(CliTest):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = write_chat_model(cls.folder / "model", TEMPLATE)
        cls.setUpServer()

    server = None  # of all cases, where setUpServer() starts one

    @classmethod
    def setUpServer(cls):
        pass

    @classmethod
    def tearDownClass(cls):
        code = cls.server.stop() if cls.server else 0
        super().tearDownClass()
        if code != 0 or (cls.server and cls.server.rest):
            raise AssertionError(f"exit code {code}, stdout {cls.server.rest!r}: {cls.server.said()}")

    def wait_for(self, what):
        end = time.monotonic() + PATIENCE
        while not what():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.005)

    def free(self):
        return self.server.metric("situ_slots_used") == 0 and self.server.metric("situ_requests_running") == 0

    def ask(self, server, text="Hi", **fields):
        return server.ask("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": text}], "ignore_eos": True, **fields})

    def begin(self, server, **fields):
        """An answer that has begun to come."""
        connection = server.connect()
        connection.request("POST", "/v1/chat/completions", json.dumps({"messages": [{"role": "user", "content": "Hi"}], "ignore_eos": True, "stream": True, **fields}))
        answer = connection.getresponse()
        self.addCleanup(connection.close)
        self.addCleanup(answer.close)
        answer.readline()
        return connection, answer

    def error(self, answer, status, *, param=None, code=None, words=()):
        head, body = answer
        self.assertEqual(head.status, status, body)
        self.assertEqual(set(body), {"error"})
        self.assertEqual(set(body["error"]), {"message", "type", "param", "code"})
        if param is not None:
            self.assertEqual(body["error"]["param"], param)
        if code is not None:
            self.assertEqual(body["error"]["code"], code)
        for word in words:
            self.assertIn(word, body["error"]["message"])
        if status in (429, 503):
            self.assertTrue(head.getheader("retry-after"))
        self.assertEqual(body["error"]["type"], "rate_limit_exceeded" if status == 429 else "server_error" if status >= 500 else "invalid_request_error")
        self.assertTrue(head.getheader("x-request-id"))
        self.assertNotIn(str(self.folder), body["error"]["message"])


class AnswerTest(ServeCase):
    @classmethod
    def setUpServer(cls):
        cls.server = Server(cls.model, "--alias", "tiny=model", "--port", 0, "--window", 50)

    def chat(self, text="Hi", **fields):
        return {"model": "model", "messages": [{"role": "user", "content": text}], "max_tokens": 8, "ignore_eos": True, **fields}

    def reply(self, prompt, count=8):
        run = Run("run", self.model, "--prompt", prompt, "--ignore-eos", "-n", count, "--threads", 1, "--window", 50, "--json")
        self.assertEqual(run.code, 0, run)
        return json.loads(run.out)["text"]

    def stream(self, path, body):
        head, text = self.server.ask("POST", path, {**body, "stream": True})
        self.assertEqual((head.status, head.getheader("content-type"), head.getheader("cache-control"), head.getheader("x-accel-buffering")),
                         (200, "text/event-stream", "no-cache", "no"), text)
        datas = events(text)
        self.assertEqual(datas[-1], "[DONE]")
        return [json.loads(d) for d in datas[:-1]]

    def test_it_says_where(self):
        self.assertRegex(self.server.where[0], r"\Aready http://127\.0\.0\.1:\d+\n\Z")
        for path in ("/health", "/health/live", "/health/ready"):
            self.assertEqual(self.server.ask("GET", path)[1], {"status": "ok"})

    def test_models(self):
        listed = self.server.ask("GET", "/v1/models")[1]
        self.assertEqual((listed["object"], [m["id"] for m in listed["data"]]), ("list", ["tiny"]))
        self.assertEqual({k: listed["data"][0][k] for k in ("aliases", "kind", "capabilities")}, {"aliases": ["model"], "kind": "chat", "capabilities": ["tools", "structured_output"]})
        self.assertEqual([self.server.ask("GET", f"/v1/models/{name}")[1] for name in ("%74iny", "model")], listed["data"] * 2)
        self.error(self.server.ask("GET", "/v1/models/other"), 404, code="model_not_found", words=("tiny, model",))
        self.error(self.server.ask("POST", "/v1/chat/completions", self.chat(model="other")), 404, code="model_not_found")

    def test_chat(self):
        head, body = self.server.ask("POST", "/v1/chat/completions", self.chat(), {"X-Request-Id": "mine-1"})
        self.assertEqual((head.status, head.getheader("x-request-id")), (200, "mine-1"), body)
        self.assertEqual(body["choices"][0]["message"]["content"], self.reply("u:Hi;a:"))
        self.assertEqual((body["choices"][0]["finish_reason"], body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]), ("length", 7, 8))
        self.assertEqual(set(body["timings"]), {"cache_n", "prompt_n", "prompt_ms", "prompt_per_second", "predicted_n", "predicted_ms", "predicted_per_second", "queue_ms", "bytes_copied"})
        self.assertEqual((body["timings"]["predicted_n"], body["timings"]["bytes_copied"]), (8, 0))
        for model in ("tiny", "", None):
            again = self.server.ask("POST", "/v1/chat/completions", self.chat(model=model))[1]
            self.assertEqual(again["choices"], body["choices"])
        self.wait_for(lambda: "mine-1" in self.server.said())
        line = next(line for line in self.server.said().splitlines() if "id=mine-1" in line)
        self.assertRegex(line, r"^\S+Z id=mine-1 key=- method=POST route=/v1/chat/completions model=tiny status=200 finish=length prompt=7 cached=\d+ answer=8 queue_ms=\S+ first_ms=\S+ total_ms=\S+$")

    def test_streams(self):
        whole = self.server.ask("POST", "/v1/chat/completions", self.chat())[1]
        chunks = self.stream("/v1/chat/completions", self.chat(stream_options={"include_usage": True}))
        self.assertEqual("".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"]), whole["choices"][0]["message"]["content"])
        self.assertEqual((chunks[-1]["choices"], chunks[-1]["usage"]["completion_tokens"]), ([], 8))
        self.assertEqual([c["choices"][0]["finish_reason"] for c in chunks[:-1]], [None] * (len(chunks) - 2) + ["length"])
        self.assertEqual(chunks[-1]["timings"]["predicted_n"], 8)
        self.assertFalse(any("usage" in c and c["usage"] for c in self.stream("/v1/chat/completions", self.chat())))
        body = {"prompt": "abc", "max_tokens": 8, "ignore_eos": True}
        text = self.server.ask("POST", "/v1/completions", body)[1]["choices"][0]["text"]
        self.assertEqual(text, self.reply("abc"))
        self.assertEqual("".join(c["choices"][0]["text"] for c in self.stream("/v1/completions", body)), text)

    def test_the_same_text_beside_others(self):
        bodies = [self.chat("x" * n, max_tokens=12) for n in range(17)]
        alone = [self.server.ask("POST", "/v1/chat/completions", b)[1]["choices"] for b in bodies]
        with concurrent.futures.ThreadPoolExecutor(17) as pool:
            together = list(pool.map(lambda b: self.server.ask("POST", "/v1/chat/completions", b)[1]["choices"], bodies))
        self.assertEqual(together, alone)

    def test_tokens(self):
        tokens = self.server.ask("POST", "/tokenize", {"content": "ab"})[1]
        self.assertEqual(tokens, {"tokens": [65, 66]})
        self.assertEqual(self.server.ask("POST", "/tokenize", {"content": "ab", "with_pieces": True})[1], {"tokens": [{"id": 65, "piece": "a"}, {"id": 66, "piece": "b"}]})
        self.assertEqual(self.server.ask("POST", "/detokenize", tokens)[1], {"content": "ab"})
        self.assertEqual(self.server.ask("POST", "/apply-template", {"messages": [{"role": "user", "content": "Hi"}]})[1], {"prompt": "u:Hi;a:"})
        self.assertEqual(self.server.ask("POST", "/detokenize", {"tokens": []})[1], {"content": ""})
        for path, body, param in (("/tokenize", {}, "content"), ("/tokenize", {"content": 5}, "content"), ("/tokenize", {"content": "a", "add_special": "yes"}, "add_special"),
                                  ("/detokenize", {"tokens": [-1]}, "tokens"), ("/detokenize", {"tokens": [65, 10**9]}, "tokens"), ("/detokenize", {"tokens": [65, 2**70]}, "tokens"), ("/detokenize", {"tokens": [1.5]}, "tokens"), ("/apply-template", {"messages": []}, "messages")):
            with self.subTest(path=path, body=body):
                self.error(self.server.ask("POST", path, body), 400, param=param)

    def test_the_prompt_is_what_chat_makes_of_messages(self):
        """The same reader: its tokens are those of the prompt's text, and what one refuses, so does the other."""
        user = {"role": "user", "content": "Hi"}
        call = {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}
        prompts = {
            "u:Hi;a:": [user],
            "s:Be;u:Hi;a:": [{"role": "developer", "content": "Be"}, user],
            "u:a\nb;a:": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
            'u:Hi;a:<tool_call>\n{"name":"f","arguments":{}}\n</tool_call>;u:<tool_response>\n5\n</tool_response>;a:': [user, call, {"role": "tool", "tool_call_id": "1", "content": "5"}],
            "u:Hi;a:no;a:": [user, {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}],
        }
        for prompt, messages in prompts.items():
            with self.subTest(prompt=prompt):
                self.assertEqual(self.server.ask("POST", "/apply-template", {"messages": messages})[1]["prompt"], prompt)
                chat = self.server.ask("POST", "/v1/chat/completions", {"messages": messages, "max_tokens": 1})[1]
                self.assertEqual(chat["usage"]["prompt_tokens"], len(self.server.ask("POST", "/tokenize", {"content": prompt, "add_special": True})[1]["tokens"]))
        self.assertEqual(self.server.ask("POST", "/apply-template", {"messages": [user], "add_generation_prompt": False, "chat_template_kwargs": None})[1], {"prompt": "u:Hi;a:"})
        image = {"type": "image_url", "image_url": {"url": "data:,"}}
        for messages in (None, "a", [], {}, [5], [{}], [{"role": "user"}], [{"role": "nobody", "content": "a"}], [{"content": "a"}], [{"role": "user", "content": [{"type": "x"}]}],
                         [{"role": "user", "content": 5}], [{"role": "user", "content": [image]}], [{**user, "name": 5}]):
            with self.subTest(messages=messages):
                template, chat = (self.server.ask("POST", path, {"messages": messages})[1]["error"] for path in ("/apply-template", "/v1/chat/completions"))
                self.assertEqual(template, chat)

    def test_bad_bodies(self):
        for body in ("", "null", "[]", "42", "{", "[" * 100000, '{"a": NaN}', b"\xff\xfe", '{"messages": null}', '{"messages": ""}', '{"messages": [{}]}', '{"messages": [{"role": "user", "content": "a"}], "n": 1e999}'):
            with self.subTest(body=body[:20]):
                self.error(self.server.ask("POST", "/v1/chat/completions", body), 400)
        for field in ("n", "max_tokens", "top_k", "seed", "top_logprobs", "temperature", "top_p"):
            for value in (-1, 1.5, 2**63, 1e308, "5", [], True):
                if (field, value) in (("temperature", 1.5), ("temperature", 2**63), ("temperature", 1e308), ("max_tokens", 2**63), ("max_tokens", -1), ("seed", 2**63), ("seed", -1), ("top_k", -1)):
                    continue
                with self.subTest(field=field, value=value):
                    self.error(self.server.ask("POST", "/v1/chat/completions", self.chat(**{field: value})), 400)
        self.error(self.server.ask("POST", "/v1/chat/completions", self.chat(stream=True, temperature=-1)), 400)
        self.assertEqual(self.server.ask("POST", "/v1/chat/completions", self.chat(), {"Content-Type": "text/plain"})[0].status, 200)

    def test_bad_heads_of_messages(self):
        """What breaks HTTP is told in the form of the path's protocol, as far as the path is known."""
        host = "Host: localhost\r\n"
        for path in ("/v1/messages", "/v1/messages/count_tokens", "/v1/messages?beta=true"):
            cases = {
                "no name": (f"POST {path} HTTP/1.1\r\n{host}: a\r\n\r\n", 400, "invalid_request_error"),
                "NUL": (f"POST {path} HTTP/1.1\r\n{host}a: \0\r\n\r\n", 400, "invalid_request_error"),
                "negative length": (f"POST {path} HTTP/1.1\r\n{host}Content-Length: -1\r\n\r\n", 400, "invalid_request_error"),
                "many fields": (f"POST {path} HTTP/1.1\r\n{host}" + "".join(f"a{i}: b\r\n" for i in range(10000)) + "\r\n", 431, "invalid_request_error"),
                "both lengths": (f"POST {path} HTTP/1.1\r\n{host}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, "invalid_request_error"),
                "bad chunk": (f"POST {path} HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\n-2\r\n\r\n", 400, "invalid_request_error"),
                "huge length": (f"POST {path} HTTP/1.1\r\n{host}Content-Length: 99999999999\r\n\r\n", 413, "request_too_large"),
            }
            for name, (data, status, kind) in cases.items():
                with self.subTest(path=path, name=name):
                    head, _, body = self.server.raw(data.encode("latin-1")).partition("\r\n\r\n")
                    self.assertRegex(head, rf"\AHTTP/1\.[01] {status} ")
                    told = json.loads(body)
                    self.assertEqual((told["type"], told["error"]["type"]), ("error", kind))
                    self.assertIn(f"\r\nrequest-id: {told['request_id']}\r\n", head.lower() + "\r\n")
        head, _, body = self.server.raw(f"POST /v1/chat/completions HTTP/1.1\r\n{host}: a\r\n\r\n".encode()).partition("\r\n\r\n")
        self.assertEqual(json.loads(body), {"error": {"message": "this is not a request of HTTP/1.1", "type": "invalid_request_error", "param": None, "code": None}})
        self.assertNotIn("\r\nrequest-id:", head.lower())

    def test_bad_heads(self):
        host = "Host: localhost\r\n"
        cases = {
            "no host": ("GET /health HTTP/1.1\r\n\r\n", 400),
            "two hosts": (f"GET /health HTTP/1.1\r\n{host}{host}\r\n", 400),
            "both lengths": (f"POST /tokenize HTTP/1.1\r\n{host}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
            "both lengths, the other way": (f"POST /tokenize HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", 400),
            "negative length": (f"POST /tokenize HTTP/1.1\r\n{host}Content-Length: -1\r\n\r\n", 400),
            "two lengths": (f"POST /tokenize HTTP/1.1\r\n{host}Content-Length: 1\r\nContent-Length: 2\r\n\r\na", 400),
            "huge length": (f"POST /tokenize HTTP/1.1\r\n{host}Content-Length: 99999999999\r\n\r\n", 413),
            "bad chunk": (f"POST /tokenize HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\n-2\r\n\r\n", 400),
            "gzip": (f"POST /tokenize HTTP/1.1\r\n{host}Content-Encoding: gzip\r\nContent-Length: 1\r\n\r\na", 415),
            "many fields": (f"GET /health HTTP/1.1\r\n{host}" + "".join(f"a{i}: b\r\n" for i in range(100)) + "\r\n", 431),
            "very many fields": (f"GET /health HTTP/1.1\r\n{host}" + "".join(f"a{i}: b\r\n" for i in range(10000)) + "\r\n", 431),
            "a large field": (f"GET /health HTTP/1.1\r\n{host}a: {'b' * 33000}\r\n\r\n", 431),
            "a huge field": (f"GET /health HTTP/1.1\r\n{host}a: {'b' * 1000000}\r\n\r\n", 431),
            "NUL": (f"GET /health HTTP/1.1\r\n{host}a: \0\r\n\r\n", 400),
            "TLS": ("\x16\x03\x01\x02\x00\x01\x00", 400),
            "HTTP/0.9": ("GET /health\r\n\r\n", 400),
            "no name": (f"GET /health HTTP/1.1\r\n{host}: a\r\n\r\n", 400),
            "folded": (f"GET /health HTTP/1.1\r\n{host}a: b\r\n c\r\n\r\n", 400),
            "hexadecimal chunk": (f"POST /tokenize HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\n0x5\r\nabcde\r\n0\r\n\r\n", 400),
            "endless chunk": (f"POST /tokenize HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n", 400),
            "chunk extension": (f"POST /tokenize HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\n1;{'a' * 100000}\r\na\r\n", 400),
            "other encoding": (f"POST /tokenize HTTP/1.1\r\n{host}Transfer-Encoding: gzip\r\n\r\na", 400),
            "two encodings": (f"POST /tokenize HTTP/1.1\r\n{host}Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
            "a list of encodings": (f"POST /tokenize HTTP/1.1\r\n{host}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400),
            "chunked twice": (f"POST /tokenize HTTP/1.1\r\n{host}Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", 400),
            "another host in the URL": (f"GET http://evil.example/health HTTP/1.1\r\n{host}\r\n", 400),
            "two origins": (f"GET /health HTTP/1.1\r\n{host}Origin: http://localhost\r\nOrigin: http://evil\r\n\r\n", 400),
            "two keys": (f"GET /health HTTP/1.1\r\n{host}X-Api-Key: a\r\nX-Api-Key: b\r\n\r\n", 400),
            "a port that is none": ("GET /health HTTP/1.1\r\nHost: localhost:80a\r\n\r\n", 421),
            "a long path": (f"GET /{'a' * 33000} HTTP/1.1\r\n{host}\r\n", 431),
            "a very long path": (f"GET /{'a' * 80000} HTTP/1.1\r\n{host}\r\n", 414),
            "a key in the query": (f"GET /nothing?key=a HTTP/1.1\r\n{host}\r\n", 404),
            "escapes in the path": (f"GET /%2e%2e/%00 HTTP/1.1\r\n{host}\r\n", 404),
            "foreign host": ("GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421),
            "null origin": (f"GET /health HTTP/1.1\r\n{host}Origin: null\r\n\r\n", 403),
            "unknown path": (f"GET /../etc/passwd HTTP/1.1\r\n{host}\r\n", 404),
            "wrong method": (f"GET /tokenize HTTP/1.1\r\n{host}\r\n", 405),
        }
        for name, (data, status) in cases.items():
            with self.subTest(name=name):
                got = self.server.raw(data.encode("latin-1"))
                self.assertRegex(got, rf"\AHTTP/1\.[01] {status} ")
                head, body = got.split("\r\n\r\n", 1)
                self.assertEqual(set(json.loads(body)["error"]), {"message", "type", "param", "code"})
                request_id = re.search(r"x-request-id: (\S+)", head)
                self.assertTrue(request_id, head)
                self.wait_for(lambda: f"id={request_id[1]} " in self.server.said())
                self.assertEqual(self.server.ask("GET", "/health")[0].status, 200)
        hidden = f"POST /tokenize HTTP/1.1\r\n{host}Content-Length: {'0' * 100}\r\n\r\nPOST /tokenize HTTP/1.1\r\n{host}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        self.assertIn("exclude each other", self.server.raw(hidden.encode(), answers=2))
        pipelined = self.server.raw(f"GET /health HTTP/1.1\r\n{host}\r\n".encode() * 3, answers=3)
        self.assertEqual(pipelined.count("HTTP/1.1 200 OK"), 3)
        continued = self.server.raw(f"POST /tokenize HTTP/1.1\r\n{host}Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n".encode() + b'f\r\n{"content":"a"}\r\n0\r\n\r\n')
        self.assertIn("HTTP/1.1 100 Continue", continued)
        self.assertIn('{"tokens":[65]}', continued)
        injected = self.server.ask("POST", "/v1/chat/completions", self.chat(model="a\r\nid=forged"), {"X-Request-Id": "a b"})
        self.error(injected, 404)
        self.assertNotEqual(injected[0].getheader("x-request-id"), "a b")
        self.assertNotIn("\nid=forged", self.server.said())

    def test_no_reset_before_an_answer_is_read(self):
        """What comes behind a request that ends its connection is larger than what sockets hold: it is read and forgotten."""
        size, text = 12 << 20, b'{"content": "a"}'
        behind = f"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n\r\n".encode() + b"a" * size
        head = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\n"
        for name, first in (("close", head + b"Connection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text)), ("chunks", head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(text), text)),
                            ("1.0", b"POST /tokenize HTTP/1.0\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text)), ("wrong", b"?\r\n\r\n")):
            with self.subTest(name=name), socket.create_connection(("127.0.0.1", self.server.port), PATIENCE) as s:
                s.sendall(first + behind)
                got = b""
                while part := s.recv(65536):
                    got += part
                self.assertEqual(got.count(b"\r\nx-request-id: "), 1)
                self.assertIn(b"400 Bad Request" if name == "wrong" else b'{"tokens":[65]}', got)

    def test_other_methods(self):
        connection = self.server.connect()
        for path in ("/health", "/v1/models", "/metrics", "/openapi.json", "/debug/slots"):
            connection.request("HEAD", path)  # on one connection: no body comes
            answer = connection.getresponse()
            self.assertEqual((answer.status, answer.read()), (200, b""), path)
        connection.close()
        self.wait_for(lambda: re.search("method=HEAD route=/v1/models .* status=200 finish=-", self.server.said()))
        for method in ("OPTIONS", "DELETE", "PUT", "GET"):
            answer = self.server.ask(method, "/v1/completions")
            self.error(answer, 405, code="method_not_allowed", words=("POST",))
            self.assertEqual(answer[0].getheader("allow"), "POST")
        self.assertEqual(self.server.ask("POST", "/health")[0].getheader("allow"), "GET, HEAD")

    def test_origins(self):
        head, _ = self.server.ask("GET", "/health", headers={"Origin": f"http://127.0.0.1:{self.server.port}"})
        self.assertEqual(head.status, 200)
        self.error(self.server.ask("OPTIONS", "/v1/models", headers={"Origin": "http://other", "Access-Control-Request-Method": "GET"}), 403)

    def test_metrics(self):
        self.server.ask("POST", "/v1/chat/completions", self.chat())
        counted = 'situ_requests_total{model="tiny",route="/v1/chat/completions",status="200"}'
        self.wait_for(lambda: counted in self.server.ask("GET", "/metrics")[1])
        self.assertEqual(self.server.metric("process_virtual_memory_bytes") % 4096, 0)  # all its digits
        between = self.server.metric("situ_inter_token_seconds_count")
        for stream in (False, True):  # of each choice by itself
            self.server.ask("POST", "/v1/completions", {"prompt": ["a", "b"], "n": 3, "temperature": 1, "max_tokens": 4, "ignore_eos": True, "stream": stream})
        self.assertEqual(self.server.metric("situ_inter_token_seconds_count") - between, 2 * 6 * 3)
        text = self.server.ask("GET", "/metrics")[1]
        for name in ("situ_requests_total", "situ_requests_running", "situ_requests_waiting", "situ_slots", "situ_slots_used", "situ_prompt_tokens_total", "situ_cached_tokens_total", "situ_answer_tokens_total",
                     "situ_preemptions_total", "situ_bytes_copied_total", "situ_steps_alone_total", "situ_model_loaded", "situ_time_to_first_token_seconds", "situ_inter_token_seconds", "situ_queue_seconds", "situ_request_seconds",
                     "situ_prompt_length_tokens", "situ_answer_length_tokens", "process_resident_memory_bytes", "process_open_fds"):
            self.assertIn(f"# TYPE {name} ", text)
        for line in text.splitlines():
            self.assertRegex(line, r'^(# (HELP|TYPE) .*|[a-z_]+(\{([a-z_]+="[^"]*",?)+\})? -?[0-9.e+-]+)$')

    def test_descriptions(self):
        document = self.server.ask("GET", "/openapi.json")[1]
        self.assertEqual(document["openapi"], "3.1.0")
        fields = document["paths"]["/v1/chat/completions"]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"]
        self.assertTrue({"messages", "max_tokens", "stream"} <= set(fields))
        for path, methods in document["paths"].items():  # an error has the form of the path's protocol
            error = self.server.ask("POST", path, {})[1] if "post" in methods else None
            schema = methods.get("post", {}).get("responses", {}).get("default", {}).get("content", {}).get("application/json", {}).get("schema")
            for part, shown in ((error, schema), ((error or {}).get("error"), (schema or {}).get("properties", {}).get("error"))):
                self.assertEqual(set(part or ()) - {"situ"}, set((shown or {}).get("properties", ())), path)
        head, page = self.server.ask("GET", "/debug/placement?model=tiny")
        self.assertEqual((head.status, page[:15]), (200, "<!doctype html>"))

    def documented(self, name, mark, lines):
        """A part of a document is made of what the server says. With SITU_WRITE_DOCS set it is written."""
        document = Path(__file__).parent.parent / "docs" / name
        text = document.read_text()
        head, _, tail = text.partition(f"<!-- {mark} -->\n")
        made = head + "\n".join([f"<!-- {mark} -->", *lines, "<!-- end -->"]) + tail.partition("<!-- end -->")[2]
        if os.environ.get("SITU_WRITE_DOCS"):
            document.write_text(made)
        else:
            self.assertEqual(text, made)

    def test_the_documentation_has_these_limits_and_fields(self):
        document = self.server.ask("GET", "/openapi.json")[1]
        rows = [f"| `{e['name']}` | {e['default']:,} | {e['least']:,} | {e['most']:,} | {e['what']} |" for e in document["info"]["x-limits"]]
        self.documented("limits.md", "limits", ["| limit | default | least | most | of what, and what happens beyond it |", "|---|---:|---:|---:|---|", *rows])
        calls = {}  # (field, its use, what it does): calls
        for path, methods in document["paths"].items():
            body = methods.get("post", {}).get("requestBody")
            for field, schema in body["content"]["application/json"]["schema"]["properties"].items() if body else ():
                what = schema["description"].removeprefix("Accepted without effect. ").removeprefix("Refused. ").removeprefix("Refused but for what x-neutral lists. ").replace("|", "\\|")
                what += f" (no effect: {', '.join(f'`{json.dumps(v)}`' for v in schema['x-neutral'])})" if "x-neutral" in schema else ""
                calls.setdefault((field, schema["x-use"], what), []).append(path.removeprefix("/v1").removeprefix("/").removesuffix("/completions"))
        rows = [f"| `{field}` | {', '.join(paths)} | {use} | {what} |" for (field, use, what), paths in calls.items()]
        self.documented("server.md", "fields", ["| field | of | | what it does, or why it is refused |", "|---|---|---|---|", *rows])

    def test_slots_as_events(self):
        connection, running = self.server.connect(), self.server.connect()
        self.wait_for(self.free)
        connection.request("GET", "/debug/slots")
        answer = connection.getresponse()
        self.assertEqual(answer.getheader("content-type"), "text/event-stream")

        def model():
            while not (line := answer.readline()).startswith(b"data: "):
                self.assertTrue(line)
            event = json.loads(line[len("data: "):])
            self.assertEqual(set(event), {"step", "models"})
            return event["models"][0]

        first = model()
        self.assertEqual(set(first), {"name", "slots", "used", "kept", "sequences", "bytes_written", "bytes_copied"})
        self.assertEqual((first["name"], first["bytes_copied"]), ("tiny", 0))
        running.request("POST", "/v1/chat/completions", json.dumps(self.chat(max_tokens=ENDLESS, n=2, stream=True)))
        seen = first
        while [s["state"] for s in seen["sequences"]] != ["answer"] * 2:
            seen = model()
        self.assertEqual([set(s) for s in seen["sequences"]], [{"id", "runs", "tokens", "state"}] * 2)
        self.assertEqual(len({s["id"] for s in seen["sequences"]}), 1)
        for sequence in seen["sequences"]:
            self.assertGreater(sequence["tokens"], 0)
            self.assertEqual(sum(count for _, count, _ in sequence["runs"]), sequence["tokens"])
            self.assertTrue(all(0 <= begin and begin + count <= seen["slots"] for begin, count, _ in sequence["runs"]))
        running.close()
        while model()["sequences"]:
            pass
        connection.close()


class ProcessTest(ServeCase):
    """Servers of their own."""

    def test_what_runs_is_answered_before_it_ends(self):
        server = Server(self.model, "--port", 0, "--window", 50)
        idle = server.connect()
        self.addCleanup(idle.close)
        idle.request("GET", "/health")
        idle.getresponse().read()
        _, answer = self.begin(server, max_tokens=3000)
        server.process.send_signal(signal.SIGTERM)
        self.assertIn("[DONE]", answer.read().decode())
        self.assertEqual(server.ended(), 0)
        self.assertRaises(OSError, server.ask, "GET", "/health")

    def test_what_does_not_end_is_cut(self):
        server = Server(self.model, "--port", 0, "--window", 50, "--drain", 0)
        connection, answer = self.begin(server, max_tokens=ENDLESS)
        server.process.send_signal(signal.SIGINT)
        text = answer.read().decode()
        self.assertNotIn("[DONE]", text)
        self.assertIn("error", json.loads(events(text)[-1]))
        self.assertEqual(server.ended(), 1)

    def test_requests_still_come_when_it_is_cut(self):
        """On connections that there are, whose requests are being read, prepared or answered."""
        server = Server(self.model, "--port", 0, "--drain", 0)
        asked = [request_of({"content": "a " * 40000}, "/tokenize"), b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 3]
        begun, ended = [], []

        def ask(request):
            try:
                with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as s:
                    while True:
                        s.sendall(request)
                        begun.append(s.recv(65536))
                        if not begun[-1]:
                            break
            except ConnectionError:
                pass
            ended.append(request)

        clients = [threading.Thread(target=ask, args=(asked[i % 2],)) for i in range(6)]
        for client in clients:
            client.start()
        self.wait_for(lambda: len(begun) > 12)
        self.assertIn(server.stop(), (0, 1))
        for client in clients:
            client.join()
        self.assertEqual(len(ended), 6)

    def test_a_conversation_whatever_was_asked_before(self):
        """Four turns: each answer is what it is on a server that keeps nothing."""
        turns, answers = [], {}
        for mode in ("off", "prompts"):
            server = Server(self.model, "--port", 0, "--prefix-cache", mode)
            try:
                turns, answers[mode], cached = [], [], []
                for text in "abcd":
                    turns.append({"role": "user", "content": text})
                    for _ in range(2 if mode == "prompts" else 1):
                        body = server.ask("POST", "/v1/chat/completions", {"messages": turns, "max_tokens": 4, "ignore_eos": True})[1]
                        cached.append(body["timings"]["cache_n"])
                    turns.append(body["choices"][0]["message"])
                    answers[mode].append(turns[-1]["content"])
            finally:
                self.assertEqual(server.stop(), 0)
            self.assertEqual(any(cached), mode == "prompts")
        self.assertEqual(answers["off"], answers["prompts"])

    def test_a_second_signal_ends_at_once(self):
        for by, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            server = Server(self.model, "--port", 0, "--window", 50)
            connection, answer = self.begin(server, max_tokens=ENDLESS)
            server.process.send_signal(by)
            self.wait_for(lambda: self.is_closed(server))
            self.assertEqual(server.stop(by), code)

    def is_closed(self, server):
        try:
            socket.create_connection(("127.0.0.1", server.port), PATIENCE).close()
            return False
        except ConnectionError:  # refused; or reset: the listener was closed just then
            return True

    def test_listening(self):
        path = self.folder / "socket"
        stale = socket.socket(socket.AF_UNIX)
        stale.bind(str(path))
        stale.close()
        server = Server(self.model, "--unix", path)
        self.assertEqual((server.where, path.stat().st_mode & 0o777), ([f"ready unix:{path}\n"], 0o660))
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(str(path))
            s.sendall(b"GET /v1/models HTTP/1.1\r\nHost: anything.example\r\nConnection: close\r\n\r\n")
            self.assertIn("HTTP/1.1 200 OK", s.makefile().read())
        taken = Run("serve", self.model, "--unix", path)
        self.assertEqual(taken.code, 1, taken)
        self.assertEqual(server.stop(), 0)
        self.assertFalse(path.exists())
        with socket.create_server(("127.0.0.1", 0)) as other:
            taken = Run("serve", self.model, "--port", other.getsockname()[1])
            self.assertEqual((taken.code, taken.out), (1, ""), taken)
        both = Server(self.model, "--unix", path, "--port", 0, "--context", 64, listeners=2)
        self.assertEqual(len(both.where), 2)
        self.error(both.ask("POST", "/v1/completions", {"prompt": "a" * 65, "max_tokens": 1}), 400, code="context_length_exceeded")
        clipped = both.ask("POST", "/v1/completions", {"prompt": "a" * 60, "max_tokens": 1000, "ignore_eos": True})[1]
        self.assertEqual(clipped["choices"][0]["finish_reason"], "length")
        self.assertEqual(both.stop(), 0)

    def test_it_tells_a_service_manager(self):
        path = self.folder / "notify"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
            s.bind(str(path))
            s.settimeout(PATIENCE)
            server = Server(self.model, "--port", 0, NOTIFY_SOCKET=str(path))
            self.assertEqual(s.recv(100), b"READY=1")
            self.assertEqual(server.stop(), 0)

    def test_refusals(self):
        other = self.folder / "other" / "model"
        shutil.copytree(self.model, other)
        self.refused(Run("serve", self.model, other, "--port", 0), "--alias", "'model'")
        self.refused(Run("serve", self.model, "--alias", f"a\udcff={self.model}", "--port", 0), self.model, "UTF-8", "--alias")
        self.refused(Run("serve", self.folder / "nothing", "--port", 0), "nothing")
        self.refused(Run("serve", self.model, "--host", "0.0.0.0", "--port", 0), "--api-key-file")
        self.refused(Run("serve", "--port", 0), "model")
        self.refused(Run("serve", self.model, "--port", 0, "--media-path", self.folder / "nothing"), "--media-path", "nothing")
        self.refused(Run("serve", self.model, "--port", 0, "--media-memory", 0), "--media-memory")
        self.refused(Run("serve", self.model, "--config", self.folder), "folder")
        config = self.folder / "bad.toml"
        for text, word in (("other = 1\n", "other"), ("[limits]\nbody-bytes = 0\n", "body-bytes"), ("[limits]\nnone = 1\n", "none"), ("[x]\na = 1\n", "x.a"), ("port = 99999\n", "port"),
                           (f'[models.a]\npath = "{self.model}"\nslots = 100\n[models.b]\npath = "{self.model}/."\n', "models.a and models.b")):
            config.write_text(text)
            self.refused(Run("serve", self.model, "--config", config), word)

    def test_a_file_of_options(self):
        plain = self.folder / "plain"
        shutil.copytree(self.model, plain)
        (plain / "tokenizer_config.json").write_text("{}")
        config = self.folder / "serve.toml"
        config.write_text(f'port = 1\nqueue = 5\nwindow = 50\ncors = ["http://a", "http://b"]\n[limits]\nbody-bytes = 1000\nheaders = 10\n[models.first]\npath = "{self.model}"\nslots = 700\n[models.second]\npath = "{plain}"\n')
        server = Server("--config", config, "--port", 0)
        try:
            self.assertEqual([m["id"] for m in server.ask("GET", "/v1/models")[1]["data"]], ["first", "second"])
            self.assertIn('situ_slots{model="first"} 700\n', server.ask("GET", "/metrics")[1])
            self.assertEqual(self.ask(server, max_tokens=1)[0].status, 200)  # the only one that can
            self.error(self.ask(server, max_tokens=1, model="second"), 400, code="unsupported_by_model")
            ids = {"prompt_token_ids": [5, 6, 7], "max_tokens": 3}  # which stand in place of messages, whatever there is no template for
            first, second = (server.ask("POST", "/v1/chat/completions", {**ids, "model": name}) for name in ("first", "second"))
            self.assertEqual((second[0].status, second[1]["choices"]), (200, first[1]["choices"]))
            self.error(server.ask("POST", "/v1/chat/completions", ids), 400, param="model")  # both can
            self.error(server.ask("POST", "/v1/chat/completions", {**ids, "prompt_token_ids": None, "model": "second"}), 400, code="unsupported_by_model")
            self.error(server.ask("POST", "/v1/completions", {"prompt": "a"}), 400, param="model")
            pad = 1000 - len(json.dumps({"content": ""}))
            self.error(server.ask("POST", "/tokenize", {"content": "a" * pad}), 400, param="model")
            self.error(server.ask("POST", "/tokenize", {"content": "a" * (pad + 1)}), 413)
            fields = {f"a{i}": "b" for i in range(8)}
            self.assertEqual(server.ask("GET", "/health", headers=fields)[0].status, 200)  # with Host and Accept-Encoding
            self.error(server.ask("GET", "/health", headers={**fields, "a8": "b"}), 431)
            self.assertEqual(server.ask("GET", "/health", headers={"Origin": "http://b"})[0].status, 200)
        finally:
            self.assertEqual(server.stop(), 0)

    def test_while_it_loads(self):
        """It waits for a file of the model, which opens to others when this process lets go of it."""
        slow = self.folder / "slow"
        shutil.copytree(self.model, slow)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        ignored = signal.signal(signal.SIGIO, signal.SIG_IGN)  # which says that somebody waits
        with open(slow / "tokenizer.json", "r+b") as held:
            try:
                fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            except OSError as error:
                self.skipTest(f"this system has no leases of files: {error}")
            server = Server(slow, "--port", port, ready=False)
            server.port = port
            self.wait_for(lambda: not self.is_closed(server))
            live, ready, call = server.ask("GET", "/health/live"), server.ask("GET", "/health/ready"), self.ask(server)
            self.assertEqual((live[0].status, ready[0].status, ready[1]), (200, 503, {"status": "loading"}))
            self.error(call, 503, code="loading")
        signal.signal(signal.SIGIO, ignored)
        self.assertEqual(server.process.stdout.readline(), f"ready http://127.0.0.1:{port}\n")
        self.assertEqual(server.ask("GET", "/health/ready")[0].status, 200)
        self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    main()
