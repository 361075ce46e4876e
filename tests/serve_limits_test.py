"""`situ serve` at its limits: of bodies, connections, clocks, descriptors, room on the disk; clients that go.

    python tests/serve_limits_test.py --situ build/situ [unittest options]

Needs numpy and onnx (`make python`).
"""
import json
import os
import resource
import shutil
import socket
import struct
import subprocess
import time

import cli_case
from cli_case import main
from serve_test import ENDLESS, PATIENCE, Server, ServeCase, request_of


class LimitsTest(ServeCase):
    def test_limits_of_bodies(self):
        """Each lowered: as much as it, and one more."""
        limits = {"json-depth": 6, "messages": 2, "texts": 2, "choices": 2, "stops": 2, "stop-bytes": 3, "token-rules": 2, "grammar-bytes": 80, "images": 1, "sound-bytes": 6}
        config = self.folder / "limits.toml"
        config.write_text("window = 50\n[limits]\n" + "".join(f"{k} = {v}\n" for k, v in limits.items()))
        server = Server(self.model, "--port", 0, "--config", config)
        turn, deep = {"role": "user", "content": "a"}, []
        for _ in range(3):
            deep = [deep]
        image, sound = {"type": "image_url", "image_url": {"url": "data:,"}}, lambda size: {"type": "input_audio", "input_audio": {"data": "A" * size, "format": "wav"}}
        schema = lambda size: {"type": "json_schema", "json_schema": {"name": "a" * size, "schema": {}}}  # 60 more
        cases = {  # limit: the field, a value that it allows, one that it does not
            "json-depth": ("chat_template_kwargs", {"a": deep}, {"a": [deep]}), "messages": ("messages", [turn] * 2, [turn] * 3), "choices": ("n", 2, 3), "stops": ("stop", ["~", "^"], ["~", "^", "`"]),
            "stop-bytes": ("stop", "~~~", "~~~~"), "token-rules": ("logit_bias", {"1": 0, "2": 0}, {"1": 0, "2": 0, "3": 0}), "grammar-bytes": ("regex", "a" * 80, "a" * 81),
            "images": ("messages", [{**turn, "content": [image]}], [{**turn, "content": [image] * 2}]), "sound-bytes": ("messages", [{**turn, "content": [sound(8)]}], [{**turn, "content": [sound(12)]}]),
        }
        try:
            for limit, (field, allowed, beyond) in cases.items():
                with self.subTest(limit=limit):
                    self.assertNotIn("limit_exceeded", json.dumps(self.ask(server, max_tokens=1, **{field: allowed})[1]) if field != "messages" else json.dumps(server.ask("POST", "/v1/chat/completions", {"messages": allowed, "max_tokens": 1})[1]))
                    body = {"messages": [turn], field: beyond}
                    self.error(server.ask("POST", "/v1/chat/completions", body), 400, code="limit_exceeded", words=(f"'{limit}'",))
            self.assertEqual(len(server.ask("POST", "/v1/completions", {"prompt": ["a", "b"], "max_tokens": 1})[1]["choices"]), 2)
            self.error(server.ask("POST", "/v1/completions", {"prompt": ["a"] * 3}), 400, param="prompt", code="limit_exceeded")
            self.assertEqual(server.ask("POST", "/v1/completions", {"prompt": [5] * 3, "max_tokens": 1})[0].status, 200)
            self.assertEqual(self.ask(server, max_tokens=1, response_format=schema(5))[0].status, 200)
            self.error(self.ask(server, response_format=schema(50)), 400, param="response_format", code="limit_exceeded")
            self.error(server.ask("POST", "/apply-template", {"messages": [turn] * 3}), 400, code="limit_exceeded")
        finally:
            self.assertEqual(server.stop(), 0)

    def test_limits_of_connections(self):
        """Whoever only connects keeps nobody out; a stream that waits is told that it lives; unread bytes end one."""
        config = self.folder / "connections.toml"
        config.write_text("window = 50\nmax-running = 1\n[limits]\nconnections = 3\nping-seconds = 1\nunread-bytes = 1099511627776\nwrite-seconds = 86400\nheader-bytes = 1024\n")
        server = Server(self.model, "--port", 0, "--config", config, "--queue", 1)
        try:
            idle = [socket.create_connection(("127.0.0.1", server.port), PATIENCE) for _ in range(10)]
            self.assertEqual(self.ask(server, max_tokens=1)[0].status, 200)
            for s in idle:
                s.close()
            pad = 1024 - len("GET /health HTTP/1.1\r\n" + "host: localhost\r\n" + "a: \r\n\r\n") + len("\r\n") - 2
            head = "GET /health HTTP/1.1\r\nhost: localhost\r\na: {}\r\n\r\n"
            sizes = [int(server.raw(head.format("b" * (pad + more)).encode())[9:12]) for more in range(-8, 8)]
            self.assertEqual((sizes[0], sizes[-1], sorted(sizes)), (200, 431, sizes))
            self.error(server.ask("POST", "/v1/completions", {"prompt": ["a", "b", "c"]}), 400, param="prompt")  # three never fit
            self.assertEqual(len(server.ask("POST", "/v1/completions", {"prompt": ["a", "b"], "max_tokens": 1})[1]["choices"]), 2)
            first = self.begin(server, max_tokens=ENDLESS)
            second = self.begin(server, max_tokens=4)  # its first line is a comment
            self.assertNotEqual(second[1].readline(), b"\n")
            first[0].close(), first[1].close()
            self.assertIn(b"[DONE]", second[1].read())
        finally:
            self.assertEqual(server.stop(), 0)

    def test_a_full_disk(self):
        """Lines of the log are lost, answers are not."""
        with open("/dev/full", "wb") as full:
            process = subprocess.Popen([cli_case.SITU, "serve", self.model, "--port", "0", "--threads", "1"], stdout=subprocess.PIPE, stderr=full, text=True, env={**os.environ, "SITU_CACHE_DIR": ""})
            server = Server.__new__(Server)
            server.port = int(process.stdout.readline().rsplit(":", 1)[1])
            for _ in range(3):
                self.assertEqual(self.ask(server, max_tokens=1)[0].status, 200)
            process.terminate()
            self.assertEqual(process.wait(PATIENCE), 0)
            process.stdout.close()

    def test_a_full_queue(self):
        server = Server(self.model, "--port", 0, "--window", 50, "--queue", 1, "--max-running", 1)
        try:
            first = self.begin(server, max_tokens=ENDLESS)
            second = server.connect()
            self.addCleanup(second.close)
            second.request("POST", "/v1/chat/completions", json.dumps({"messages": [{"role": "user", "content": "b"}], "max_tokens": 4, "ignore_eos": True}))
            self.wait_for(lambda: server.metric("situ_requests_waiting") == 1)
            self.error(self.ask(server), 429, code="rate_limit_exceeded")
            first[0].close(), first[1].close()
            self.assertEqual(second.getresponse().status, 200)
        finally:
            self.assertEqual(server.stop(), 0)

    def test_texts_that_become_tokens(self):
        """What the context cannot hold needs no memory and is no matter of time; what is counted or shown does."""
        model = shutil.copytree(self.model, self.folder / "bytes")
        tokenizer = json.loads((model / "tokenizer.json").read_text())
        tokenizer["pre_tokenizer"] = tokenizer["decoder"] = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
        (model / "tokenizer.json").write_text(json.dumps(tokenizer))
        server = Server(model, "--port", 0, "--context", 64, "--media-memory", "64MiB")
        try:
            long = "a" * (4 << 20)
            turn = {"messages": [{"role": "user", "content": long}], "max_tokens": 1}
            for path, body in (("/v1/completions", {"prompt": long}), ("/v1/chat/completions", turn)):
                self.error(server.ask("POST", path, body), 400, code="context_length_exceeded", words=("at least",))
            self.assertEqual(server.ask("POST", "/v1/messages", turn)[0].status, 400)
            self.assertEqual(server.ask("POST", "/v1/messages/count_tokens", turn)[0].status, 529)
            counted = server.ask("POST", "/v1/messages/count_tokens", {"messages": [{"role": "user", "content": "a" * 70_000}]})
            self.assertGreaterEqual(counted[1]["input_tokens"], 70_000, counted)
            self.error(server.ask("POST", "/tokenize", {"content": long}), 429)
            some = "a" * 300_000
            self.assertEqual(len(server.ask("POST", "/tokenize", {"content": some})[1]["tokens"]), len(some))
            self.error(server.ask("POST", "/tokenize", {"content": some, "with_pieces": True}), 429)
        finally:
            self.assertEqual(server.stop(), 0)

    def test_a_key_of_low_priority(self):
        """Nothing is ignored that nobody said."""
        keys = self.folder / "low"
        keys.write_text("low:key priority=-2\n")
        keys.chmod(0o600)
        server = Server(self.model, "--port", 0, "--window", 50, "--api-key-file", keys)
        try:
            for fields, ignored in (({}, None), ({"priority": -2}, None), ({"priority": -1}, ["priority"])):
                answer = server.ask("POST", "/v1/completions", {"prompt": "a", "max_tokens": 1, **fields}, {"X-Api-Key": "key"})
                self.assertEqual((answer[0].status, answer[1]["situ"].get("ignored")), (200, ignored))
        finally:
            self.assertEqual(server.stop(), 0)

    def test_what_may_run_does_not_wait(self):
        """--queue counts those that wait, not those that came since the last step."""
        server = Server(self.model, "--port", 0, "--window", 50, "--queue", 1, "--max-running", 40, "--slots", 40 * 51)
        try:
            prompts = [chr(97 + i % 26) * (i + 1) for i in range(41)]
            for _ in range(3):
                whole = server.ask("POST", "/v1/completions", {"prompt": prompts, "max_tokens": 2, "ignore_eos": True})
                self.assertEqual((whole[0].status, len(whole[1].get("choices", ()))), (200, 41), whole[1])
        finally:
            self.assertEqual(server.stop(), 0)

    def test_clocks(self):
        """Heads and bodies that drip, idle connections, and readers that do not read, are ended."""
        config = self.folder / "clocks.toml"
        config.write_text("window = 50\n[limits]\nheader-seconds = 3\nidle-seconds = 3\nbody-seconds = 1\nwrite-seconds = 1\nping-seconds = 1\n")
        server = Server(self.model, "--port", 0, "--config", config)
        try:
            sent = {
                "nothing": b"",
                "half a head": b"GET /health HTTP/1.1\r\nHost: a",
                "idle": b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
                "half a body": b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{",
                "no reader": request_of({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": ENDLESS, "ignore_eos": True, "stream": True}),
            }
            sockets = {}
            for name, data in sent.items():
                s = sockets[name] = socket.socket()
                s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                s.connect(("127.0.0.1", server.port))
                s.sendall(data)
            for name, s in sockets.items():
                if name == "no reader":
                    continue
                with self.subTest(name=name):
                    s.settimeout(PATIENCE)
                    got = b""
                    while part := s.recv(65536):
                        got += part
                    self.assertEqual(got[9:12], {"idle": b"200", "half a body": b"408"}.get(name, b""))
            self.wait_for(lambda: "finish=cancelled" in server.said() and server.metric("situ_requests_running") == 0)
            for s in sockets.values():
                s.close()
        finally:
            self.assertEqual(server.stop(), 0)

    def test_nothing_is_left_of_clients_that_go(self):
        server = Server(self.model, "--port", 0, "--window", 50)

        def count(what):
            return len(os.listdir(f"/proc/{server.process.pid}/{what}"))

        whole = request_of({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": ENDLESS, "ignore_eos": True, "stream": True})
        try:
            self.assertEqual(self.ask(server, max_tokens=1)[0].status, 200)
            before = count("fd"), count("task")
            for phase in (0, 10, len(whole) - 3, len(whole)):
                for how in range(50):
                    s = socket.create_connection(("127.0.0.1", server.port), PATIENCE)
                    s.sendall(whole[:phase])
                    if phase == len(whole) and how % 2:
                        s.recv(100)
                    if how % 3 == 0:
                        s.shutdown(socket.SHUT_WR)
                    elif how % 3 == 1:
                        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    s.close()
                self.assertEqual(self.ask(server, max_tokens=1)[0].status, 200)
            self.wait_for(lambda: server.metric("situ_slots_used") == 0 and server.metric("situ_requests_running") == 0)
            self.wait_for(lambda: count("fd") <= before[0] and count("task") <= before[1])
        finally:
            self.assertEqual(server.stop(), 0)

    def test_few_descriptors(self):
        server = Server(self.model, "--port", 0)
        try:
            resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (64, 64))
            many = [socket.create_connection(("127.0.0.1", server.port), PATIENCE) for _ in range(100)]
            self.assertEqual(self.ask(server, max_tokens=1)[0].status, 200)
            for s in many:
                s.close()
            self.assertEqual(self.ask(server, max_tokens=1)[0].status, 200)
        finally:
            self.assertEqual(server.stop(), 0)


class GoneTest(ServeCase):
    """Clients that go, or seem to, on one server."""

    @classmethod
    def setUpServer(cls):
        cls.path = str(cls.folder / "socket")
        cls.server = Server(cls.model, "--port", 0, "--unix", cls.path, "--window", 50, listeners=2)

    def connect(self, unix):
        s = socket.socket(socket.AF_UNIX if unix else socket.AF_INET)
        s.settimeout(PATIENCE)
        s.connect(self.path if unix else ("127.0.0.1", self.server.port))
        return s

    def chat(self, **fields):
        return {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8, "ignore_eos": True, **fields}

    def test_clients_that_stop_sending(self):
        """Half-closed connections, bodies that are shorter than they say, a head alone."""
        whole = request_of(self.chat())
        for size in (5, len(whole) - 3, len(whole)):
            with socket.create_connection(("127.0.0.1", self.server.port), PATIENCE) as s:
                s.sendall(whole[:size])
                s.shutdown(socket.SHUT_WR)
                while s.recv(65536):
                    pass
            self.assertEqual(self.server.ask("POST", "/v1/chat/completions", self.chat())[0].status, 200)
        self.wait_for(lambda: self.server.metric("situ_slots_used") == 0)

    def test_who_half_closes_gets_what_needs_no_model(self):
        for count in (1, 3):
            with socket.create_connection(("127.0.0.1", self.server.port), PATIENCE) as s:
                s.sendall((request_of({"content": "a"}, "/tokenize") + b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n") * count)
                s.shutdown(socket.SHUT_WR)
                got = b""
                while part := s.recv(65536):
                    got += part
            self.assertEqual((got.count(b'{"tokens":[65]}'), got.count(b'{"status":"ok"}')), (count, count))
        with socket.create_connection(("127.0.0.1", self.server.port), PATIENCE) as s:
            s.sendall(request_of(self.chat(max_tokens=ENDLESS)))
            self.wait_for(lambda: self.server.metric("situ_requests_running") == 1)
            s.shutdown(socket.SHUT_WR)
            self.assertEqual(s.recv(100), b"")
        self.wait_for(self.free)

    def test_who_asks_on_and_leaves_is_gone(self):
        """Bytes of a next request wait behind the first one's."""
        behind = {"a head": request_of(self.chat()), "half a head": b"GET /hea", "a line": b"\r\n", "no HTTP": b"\0" * 5000}
        for name, more in behind.items():
            for unix, reset in ((False, True), (False, False), (True, False)):
                with self.subTest(behind=name, unix=unix, reset=reset):
                    with self.connect(unix) as s:
                        s.sendall(request_of(self.chat(max_tokens=ENDLESS)) + more)
                        self.wait_for(lambda: self.server.metric("situ_requests_running") == 1)
                        if reset:
                            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    self.wait_for(self.free)

    def leave(self, body, after, reset=True):
        """Asks, and goes after so many bytes of the answer, or when it is being made."""
        with socket.create_connection(("127.0.0.1", self.server.port), PATIENCE) as s:
            s.sendall(request_of(body))
            if body.get("stream"):
                self.assertTrue(s.recv(1, socket.MSG_PEEK))
            else:
                self.wait_for(lambda: self.server.metric("situ_requests_running") == 1)
            got = b""
            while len(got) < after:
                part = s.recv(65536)
                self.assertTrue(part)
                got += part
            if reset:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def test_a_client_that_leaves_frees_its_slots(self):
        for stream, after in ((True, 2000), (True, 0), (False, 0)):
            for reset in (True, False):
                with self.subTest(stream=stream, after=after, reset=reset):
                    self.wait_for(self.free)
                    self.leave(self.chat(max_tokens=ENDLESS, stream=stream), after, reset=reset)
                    self.wait_for(self.free)
        self.wait_for(lambda: "finish=cancelled" in self.server.said())
        self.assertEqual(self.server.ask("POST", "/v1/chat/completions", self.chat())[0].status, 200)

    def test_a_reader_who_does_not_read_stalls_nobody(self):
        with socket.create_connection(("127.0.0.1", self.server.port), PATIENCE) as s:
            s.sendall(request_of(self.chat(max_tokens=ENDLESS, stream=True)))
            self.assertTrue(s.recv(100))
            self.assertEqual(self.server.ask("POST", "/v1/chat/completions", self.chat())[0].status, 200)


if __name__ == "__main__":
    main()
