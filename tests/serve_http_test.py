"""`situ serve` and HTTP as clients, scripts and load balancers write it: paths, heads, keys, hosts, files, clocks.

    python tests/serve_http_test.py --situ build/situ [unittest options]

Needs numpy and onnx (`make python`).
"""
import contextlib
import json
import resource
import shlex
import signal
import socket
import threading
import unittest.mock

import cli_case
from cli_case import Run, main
from serve_test import ENDLESS, PATIENCE, Server, ServeCase, request_of, whole_answers

HOST = "Host: localhost\r\n"
CHAT = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, "ignore_eos": True}


def status_of(text):
    return int(text.split(" ", 2)[1]) if text.startswith("HTTP/1.") else None


class CheckTest(unittest.TestCase):
    """`situ serve --check URL`."""

    def asked(self, answer, url="http://127.0.0.1:{}"):
        """The run, and the lines of its request to a server that says `answer`."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port, lines = listener.getsockname()[1], []

            def serve():
                connection = listener.accept()[0]
                with connection:
                    lines.extend(connection.recv(65536).decode().split("\r\n"))
                    connection.sendall(answer)

            thread = threading.Thread(target=serve)
            thread.start()
            run = Run("serve", "--check", url.format(port))
            thread.join()
            return run, [line.replace(str(port), "PORT") for line in lines]

    def test_200_is_ready_and_nothing_is_printed(self):
        run, lines = self.asked(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        self.assertEqual((run.code, run.out, run.err), (0, "", ""))
        self.assertEqual(lines[:2], ["GET /health/ready HTTP/1.1", "Host: 127.0.0.1:PORT"])
        run, lines = self.asked(b"HTTP/1.0 200 OK\r\n\r\n", "http://localhost:{}/llm/")
        self.assertEqual((run.code, lines[0]), (0, "GET /llm/health/ready HTTP/1.1"))

    def test_all_else_is_one_line_and_1(self):
        for answer, words in ((b"HTTP/1.1 503 Service Unavailable\r\n\r\n", "answers 503"), (b"HTTP/1.1 2000 OK\r\n\r\n", "no HTTP answer"), (b"", "no HTTP answer"), (b"220 mail\r\n", "no HTTP answer"), (b"HTTP/1.X 200 OK\r\n\r\n", "no HTTP answer"), (b"HTTP/1.1 200" + b"x" * 5000, "no HTTP answer")):
            run, _ = self.asked(answer)
            self.assertEqual((run.code, run.out, run.err.count("\n")), (1, "", 1), run)
            self.assertIn(words, run.err)
        with socket.create_server(("127.0.0.1", 0)) as closed:
            port = closed.getsockname()[1]
        for url in (f"http://127.0.0.1:{port}", "unix:/nowhere/socket", "https://localhost", "localhost:80", "http://", "http://[::1", "http://x:y", "http://a b", "unix:", f"http://127.0.0.1:{port + 65536}", ""):
            run = Run("serve", "--check", url)
            self.assertEqual((run.code, run.out, run.err.count("\n")), (1, "", 1), run)
            self.assertIn(f"{url}: ", run.err)

    def test_a_server_that_says_nothing(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            run = Run("serve", "--check", f"http://127.0.0.1:{silent.getsockname()[1]}")
        self.assertEqual((run.code, run.out), (1, ""))
        self.assertIn("no answer within 5 s", run.err)


class HttpTest(ServeCase):
    """One server for all."""

    @classmethod
    def setUpServer(cls):
        cls.server = Server(cls.model, "--alias", "org/tiny=model", "--port", 0, "--window", 50)

    def half_closed(self, data):
        """All that comes for these bytes, behind which the client sends no more."""
        with socket.create_connection(("127.0.0.1", self.server.port), PATIENCE) as s:
            s.sendall(data)
            s.shutdown(socket.SHUT_WR)
            got = b""
            with contextlib.suppress(ConnectionError):
                while part := s.recv(65536):
                    got += part
            return got.decode()

    def test_a_check_finds_it_ready(self):
        run = Run("serve", "--check", f"http://localhost:{self.server.port}")
        self.assertEqual((run.code, run.out, run.err), (0, "", ""))

    def test_paths_with_a_slash_too_many_or_without_v1(self):
        bodies = {"/v1/chat/completions": CHAT, "/v1/completions": {"prompt": "ab", "max_tokens": 4, "ignore_eos": True}, "/tokenize": {"content": "ab"}, "/detokenize": {"tokens": [65]}, "/v1/models": None, "/v1/models/org/tiny": None, "/health": None}
        for path, body in bodies.items():
            method = "GET" if body is None else "POST"
            right = self.server.ask(method, path, body)[1]
            short = path.removeprefix("/v1")
            for written in (path + "/", path + "//", "/" + path, path.replace("/", "//"), "///" + path + "///", short, short + "/", "/" + short, path + "?a=b", path + "/?a=b/"):
                with self.subTest(path=written):
                    head, answer = self.server.ask(method, written, body)
                    self.assertEqual(head.status, 200, answer)
                    for key in ("choices", "tokens", "content", "data", "id", "status"):
                        if key != "id" or body is None:
                            self.assertEqual(answer.get(key), right.get(key))
        self.wait_for(lambda: self.server.said().count("route=/v1/chat/completions") >= 11)  # by the name that it has
        self.assertEqual(self.server.ask("GET", "/completions/")[0].getheader("allow"), "POST")

    def test_a_path_that_is_not_there_is_told_the_nearest(self):
        nearest = {"/v1/chat/completion": "POST /v1/chat/completions", "/api/chat": "POST /v1/chat/completions", "/v1/v1/chat/completions": "POST /v1/chat/completions", "/V1/Chat/Completions": "POST /v1/chat/completions",
                   "/completion": "POST /v1/completions", "/v1/complete": "POST /v1/completions", "/embed": "POST /v1/embeddings", "/v1/tokenize": "POST /tokenize", "/v1/model": "GET /v1/models", "/v1/health": "GET /health"}
        for path, right in nearest.items():
            with self.subTest(path=path):
                self.error(self.server.ask("POST", path, {}), 404, code="unknown_url", words=(f"no path {path};", f"nearest is {right},"))
        for path in ("/", "//", "/v1", "/v1/", "/nothing?key=a", "/" + "a/" * 10000):
            self.error(self.server.ask("GET", path), 404, code="unknown_url")

    def test_errors_have_the_types_of_openai(self):
        cases = ((("GET", "/nothing"), 404, "unknown_url"), (("GET", "/v1/models/other"), 404, "model_not_found"), (("PUT", "/v1/models"), 405, "method_not_allowed"), (("POST", "/v1/chat/completions", "{"), 400, "invalid_json"))
        for request, status, code in cases:
            answer = self.server.ask(*request)
            self.error(answer, status, code=code)
            self.assertEqual(answer[1]["error"]["type"], "invalid_request_error")

    def test_heads_without_a_name(self):
        cases = {
            "1.0": ("GET /health HTTP/1.0\r\n\r\n", 200), "1.0 with Host": (f"GET /health HTTP/1.0\r\n{HOST}\r\n", 200), "1.0 with a foreign Host": ("GET /health HTTP/1.0\r\nHost: evil.example\r\n\r\n", 421),
            "1.0 by a URL": ("GET http://localhost/health HTTP/1.0\r\n\r\n", 200), "1.0 by a foreign URL": ("GET http://evil.example/health HTTP/1.0\r\n\r\n", 421), "1.0 with two": (f"GET /health HTTP/1.0\r\n{HOST}{HOST}\r\n", 400),
            "1.1": ("GET /health HTTP/1.1\r\n\r\n", 400), "1.1 by a URL": ("GET http://localhost/health HTTP/1.1\r\n\r\n", 400), "1.1, empty": ("GET /health HTTP/1.1\r\nHost:\r\n\r\n", 200),
        }
        for name, (data, status) in cases.items():
            with self.subTest(name=name):
                self.assertEqual(status_of(self.server.raw(data.encode())), status)

    def test_newer_versions_are_told_so(self):
        for data in (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x12\4\0\0\0\0\0" + bytes(100), b"PRI * HTTP/2.0\r\n", b"GET /health HTTP/2.0\r\nHost: localhost\r\n\r\n", b"GET /health HTTP/3\r\n\r\n"):
            with self.subTest(data=data):
                got = self.server.raw(data)
                self.assertEqual(status_of(got), 505, got)
                self.assertIn("HTTP/1.1", json.loads(got.split("\r\n\r\n", 1)[1])["error"]["message"])
                self.assertIn("\r\nx-request-id: ", got)
        for step in (1, 20):
            with self.subTest(step=step), socket.create_connection(("127.0.0.1", self.server.port), PATIENCE) as s:
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with contextlib.suppress(ConnectionError):  # it was answered before it was read
                    for i in range(0, 24, step):
                        s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[i:i + step])
                        self.server.ask("GET", "/health")  # so that the pieces are read one by one
                self.assertEqual(status_of(s.recv(65536).decode()), 505)
        upgrade = f"POST /tokenize HTTP/1.1\r\n{HOST}Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\nContent-Length: 15\r\n\r\n".encode() + b'{"content":"a"}'
        self.assertIn('{"tokens":[65]}', self.server.raw(upgrade))

    def test_empty_bodies(self):
        for path in ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/tokenize", "/detokenize", "/apply-template", "/completions/"):
            for body in ("", " ", "\r\n\t ", "\ufeff", "\ufeff\n".encode()):
                with self.subTest(path=path, body=body):
                    self.error(self.server.ask("POST", path, body if isinstance(body, bytes) else body.encode()), 400, code="empty_body", words=("the body is empty",))
            got = self.server.raw(f"POST {path} HTTP/1.1\r\n{HOST}\r\n".encode())  # neither a length nor chunks
            self.assertEqual(status_of(got), 400)
            self.assertIn("the body is empty", got)
        chunks = self.server.raw(f"POST /tokenize HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n".encode())
        self.assertIn("the body is empty", chunks)
        self.error(self.server.ask("POST", "/tokenize", "{}"), 400, param="content")

    def test_refusals_of_half_closed_connections(self):
        chat, text = "/v1/chat/completions", "/v1/completions"
        cases = [(chat, {"messages": []}, 400), (chat, {**CHAT, "model": "other"}, 404), (chat, {**CHAT, "stream": True, "temperature": -1}, 400), (chat, {**CHAT, "n": "a"}, 400), (text, {"prompt": 5}, 400), (text, {"prompt": ["a"] * 3000}, 400),
                 ("/v1/embeddings", {"input": "a"}, 400), ("/tokenize", {}, 400), ("/nothing", {}, 404), ("/health", {}, 405)]
        for path, body, status in cases:
            with self.subTest(path=path, body=str(body)[:80]):
                got = self.half_closed(request_of(body, path))
                self.assertEqual(status_of(got), status, got)
                self.assertEqual(set(json.loads(got.split("\r\n\r\n", 1)[1])), {"error"})
        for data in (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20\r\n\r\n{", b"GET /health HTTP/1.1\r\n\r\n", b"?\r\n\r\n"):
            self.assertEqual(status_of(self.half_closed(data)), 400)

    def test_short_answers_of_half_closed_connections(self):
        for path, body in (("/v1/chat/completions", CHAT), ("/v1/completions", {"prompt": "a", "max_tokens": 1})):
            self.wait_for(lambda: '"choices"' in self.half_closed(request_of(body, path)))

    def test_streams_of_half_closed_connections(self):
        whole = self.server.ask("POST", "/v1/chat/completions", {**CHAT, "max_tokens": 200})[1]["choices"][0]["message"]["content"]
        for _ in range(3):
            got = self.half_closed(request_of({**CHAT, "max_tokens": 200, "stream": True}))
            self.assertEqual(status_of(got), 200)
            lines = [line for line in got.split("\r\n\r\n", 1)[1].replace("\r\n", "\n").split("\n") if line.startswith("data: ")]
            self.assertEqual(lines[-1], "data: [DONE]")
            chunks = [json.loads(line[6:]) for line in lines[:-1]]
            self.assertEqual("".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"]), whole)

    def test_a_reset_tells_that_nobody_reads(self):
        """Half of the connection is closed, then all of it: the answer ends with the second."""
        for path in ("/v1/chat/completions", "/debug/slots"):
            with self.subTest(path=path):
                self.wait_for(self.free)
                data = request_of({**CHAT, "max_tokens": ENDLESS, "stream": True}) if path.startswith("/v1") else f"GET {path} HTTP/1.1\r\n{HOST}\r\n".encode()
                with socket.create_connection(("127.0.0.1", self.server.port), PATIENCE) as s:
                    s.sendall(data)
                    s.shutdown(socket.SHUT_WR)
                    got = b""
                    while len(got) < (100000 if path.startswith("/v1") else 100):
                        part = s.recv(65536)
                        self.assertTrue(part)
                        got += part
                self.wait_for(self.free)
                self.wait_for(lambda: f"route={path} " in self.server.said() and self.server.said().rsplit(f"route={path} ", 1)[1].split(" finish=", 1)[1].startswith("cancelled"))


class KeysTest(ServeCase):
    def test_keys(self):
        keys = self.folder / "keys"
        keys.write_text("# ours\nann:secret-1\nsecret-2\n")
        keys.chmod(0o600)
        server = Server(self.model, "--port", 0, "--api-key-file", keys, "--cors", "http://page", "--allowed-host", "Box.local", "--log", "json")
        try:
            self.assertEqual(server.ask("GET", "/health")[0].status, 200)
            for path in ("/v1/models", "/metrics", "/debug/slots", "/openapi.json", "/nothing"):
                self.error(server.ask("GET", path), 401)
            self.error(server.ask("GET", "/v1/models", headers={"Authorization": "Bearer secret-"}), 401)
            self.error(server.ask("GET", "/v1/models", headers={"Authorization": "Bearer " + "x" * 20000}), 401)
            for headers in ({"Authorization": "Bearer secret-1"}, {"X-Api-Key": "secret-2"}, {"authorization": "bearer secret-1", "Host": "box.local:80"}):
                self.assertEqual(server.ask("GET", "/v1/models", headers=headers)[0].status, 200)
            page = {"Origin": "http://page"}
            head, _ = server.ask("OPTIONS", "/v1/models", headers={**page, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"})
            self.assertEqual((head.status, head.getheader("access-control-allow-origin"), head.getheader("access-control-allow-headers")), (204, "http://page", "authorization"))
            head, _ = server.ask("GET", "/v1/models", headers={**page, "X-Api-Key": "secret-2"})
            self.assertEqual((head.status, head.getheader("access-control-allow-origin")), (200, "http://page"))
            keys.write_text("ann:new\n")
            server.process.send_signal(signal.SIGHUP)
            self.wait_for(lambda: server.ask("GET", "/v1/models", headers={"X-Api-Key": "new"})[0].status == 200)
            self.error(server.ask("GET", "/v1/models", headers={"X-Api-Key": "secret-2"}), 401)
        finally:
            self.assertEqual(server.stop(), 0)
        lines = [json.loads(line) for line in server.said().splitlines()]
        self.assertIn("ann", {line["key"] for line in lines})
        self.assertNotIn("secret", server.said())
        keys.write_text("a:ka priority=3 # note\n")
        self.refused(Run("serve", self.model, "--port", 0, "--api-key-file", keys), f"{keys}: line 1 ")
        keys.chmod(0o644)
        self.refused(Run("serve", self.model, "--port", 0, "--api-key-file", keys), "read")

    def keys(self, data):
        path = self.folder / "keys"
        path.write_bytes(data)
        path.chmod(0o600)
        return path

    def test_how_a_key_is_shown(self):
        server = Server(self.model, "--port", 0, "--api-key-file", self.keys(b"ann:sk-Case\nsk-other\n"))
        right = ({"Authorization": "Bearer sk-Case"}, {"Authorization": "Bearer  sk-Case"}, {"Authorization": "Bearer \t sk-Case"}, {"Authorization": "bearer\tsk-Case"}, {"authorization": "BEARER sk-Case  "}, {"X-Api-Key": "sk-Case"}, {"Api-Key": "sk-Case"},
                 {"api-key": " sk-other "}, {"Authorization": "Bearer ", "api-key": "sk-Case"}, {"Authorization": "Basic c2s6", "X-Api-Key": "sk-Case"}, {"Authorization": "Bearer none", "api-key": "sk-Case"})
        wrong = ({}, {"Authorization": "Bearer sk-case"}, {"Authorization": "Bearer SK-CASE"}, {"Authorization": "Bearersk-Case"}, {"Authorization": "sk-Case"}, {"Authorization": "Bearer sk-Case x"}, {"Authorization": "Bearer ann:sk-Case"}, {"api-key": "SK-CASE"}, {"Authorization": "Bearer"}, {"X-Key": "sk-Case"})
        try:
            for headers in right:
                with self.subTest(headers=headers):
                    self.assertEqual(server.ask("GET", "/v1/models", headers=headers)[0].status, 200)
            for headers in wrong:
                with self.subTest(headers=headers):
                    answer = server.ask("GET", "/v1/models", headers=headers)
                    self.error(answer, 401, code="invalid_api_key")
                    self.assertEqual((answer[0].getheader("www-authenticate"), answer[1]["error"]["type"]), ("Bearer", "invalid_request_error"))
            self.assertEqual(status_of(server.raw(f"GET /v1/models HTTP/1.1\r\n{HOST}api-key: sk-Case\r\napi-key: sk-Case\r\n\r\n".encode())), 400)
        finally:
            self.assertEqual(server.stop(), 0)

    def test_any_host_with_a_right_key(self):
        server = Server(self.model, "--port", 0, "--api-key-file", self.keys(b"sk-case\n"))
        key = {"Authorization": "Bearer sk-case"}
        try:
            for host in ("host.docker.internal:8080", "box", "llm.example.org", "localhost:80a"):
                with self.subTest(host=host):
                    self.assertEqual(server.ask("GET", "/v1/models", headers={**key, "Host": host})[0].status, 200)
                    self.assertEqual(server.ask("POST", "/v1/chat/completions", CHAT, {**key, "Host": host})[0].status, 200)
                    self.assertEqual(server.ask("GET", "/health", headers={"Host": host})[0].status, 200)  # which wants no key
                    for headers in ({}, {"Authorization": "Bearer other"}):
                        self.error(server.ask("GET", "/v1/models", headers={**headers, "Host": host}), 401)
                        self.error(server.ask("GET", "/nothing", headers={**headers, "Host": host}), 401)
                    self.error(server.ask("GET", "/v1/models", headers={"Host": host, "Origin": "http://" + host}), 401)  # a page that was led here
                    self.error(server.ask("GET", "/v1/models", headers={**key, "Host": host, "Origin": "http://other"}), 403)
        finally:
            self.assertEqual(server.stop(), 0)

    def test_marks_and_encodings(self):
        server = Server(self.model, "--port", 0, "--api-key-file", self.keys("\ufeffsk-first\r\nj\u00fcrgen:sk-second\r\n".encode()))
        try:
            for key in ("sk-first", "sk-second"):
                self.assertEqual(server.ask("GET", "/v1/models", headers={"api-key": key})[0].status, 200)
        finally:
            self.assertEqual(server.stop(), 0)
        text = "sk-first\nsk-second\n"
        for data, word in ((text.encode("utf-16"), "UTF-16"), (text.encode("utf-16-le"), "UTF-16"), (text.encode("utf-16-be"), "UTF-16"), (b"\xfe\xff" + text.encode("utf-16-be"), "UTF-16"), (text.encode("utf-32"), "UTF-32"), (text.encode("utf-16-le")[:-1], "UTF-16"),
                           (b"sk-a\nj\xfcrgen:sk-b\n", "line 2 is not UTF-8"), (b"sk-a\0\n", "zero byte"), (b"\xef\xbb\xbf", "no key"), (b"sk-a\rsk-b\r", "line 1 has a control character")):
            with self.subTest(data=data):
                self.refused(Run("serve", self.model, "--port", 0, "--api-key-file", self.keys(data)), "keys", word)
                config = self.folder / "serve.toml"
                config.write_bytes(data)
                if "UTF" in word:
                    self.refused(Run("serve", self.model, "--port", 0, "--config", config), "serve.toml", word)


class ListenTest(ServeCase):
    def answers(self, server, address):
        try:
            with socket.create_connection((address, server.port), PATIENCE) as s:
                s.sendall(f"GET /health HTTP/1.1\r\n{HOST}Connection: close\r\n\r\n".encode())
                return status_of(s.makefile().read()) == 200
        except ConnectionRefusedError:
            return False

    def has_six(self):
        try:
            with socket.socket(socket.AF_INET6) as s:
                s.bind(("::1", 0))
            return True
        except OSError:
            return False

    def test_localhost_is_all_its_addresses(self):
        six = self.has_six()
        for host, shown, both in (((), "127.0.0.1", True), (("--host", "localhost"), "localhost", True), (("--host", "127.0.0.1"), "127.0.0.1", False)):
            for port in (0, None):
                with self.subTest(host=host, port=port):
                    if port is None:
                        with socket.create_server(("127.0.0.1", 0)) as free:
                            port = free.getsockname()[1]
                    server = Server(self.model, *host, "--port", port)
                    try:
                        self.assertEqual(server.where, [f"ready http://{shown}:{server.port}\n"])
                        self.assertEqual((self.answers(server, "127.0.0.1"), self.answers(server, "::1")), (True, both and six))
                    finally:
                        self.assertEqual(server.stop(), 0)
        if six:
            server = Server(self.model, "--host", "::1", "--port", 0)
            self.assertEqual(server.where, [f"ready http://[::1]:{server.port}\n"])
            self.assertEqual((self.answers(server, "127.0.0.1"), self.answers(server, "::1")), (False, True))
            self.assertEqual(server.stop(), 0)

    def test_a_port_that_another_program_has(self):
        if not self.has_six():
            self.skipTest("this machine has no IPv6")
        with socket.create_server(("::1", 0), family=socket.AF_INET6) as other:
            taken = Run("serve", self.model, "--port", other.getsockname()[1])
            self.assertEqual((taken.code, taken.out), (1, ""), taken)
            self.assertIn("[::1]", taken.err)


class ConfigTest(ServeCase):
    """--config is TOML."""

    def test_what_toml_allows(self):
        model = json.dumps(str(self.model))
        heads = {
            "tables": "[limits]\nbody-bytes = 1_000 # bytes\n\n[models.'a.b']\npath = PATH\n",
            "hexadecimal": "[limits]\nbody-bytes = 0x3e8\n[models.\"a.b\"]\npath = PATH\n",
            "octal": "\ufeff[limits]\r\nbody-bytes = 0o1_750\r\n[ models . \"a.b\" ]\r\npath = PATH\r\n",
            "binary": "limits.body-bytes = 0b11_1110_1000\nmodels.\"a.b\".path = PATH\n",
            "inline": "limits = { body-bytes = +1000 }\nmodels = { \"a\\u002eb\" = { path = PATH } }\n",
            "quoted": "[limits]\n\"body-bytes\" = 1000\n[models.\"a.b\"]\n'path' = '''\nPATHLITERAL'''\n",
            "long": "cors = [ # origins\n  \"http://a\",\n  'http://b', # the last\n]\nlog = \"\"\"\\\n    text\"\"\"\ninsecure = true\n[limits]\nbody-bytes = 1000\n[models.\"a.b\"]\npath = PATH\nslots = 1_000\n",
        }
        for name, text in heads.items():
            with self.subTest(name=name):
                config = self.folder / "serve.toml"
                config.write_bytes(text.replace("PATHLITERAL", str(self.model)).replace("PATH", model).encode())
                server = Server("--config", config, "--port", 0, "--window", 50)
                try:
                    self.assertEqual([m["id"] for m in server.ask("GET", "/v1/models")[1]["data"]], ["a.b"])
                    pad = 1000 - len(json.dumps({"content": ""}))
                    self.assertEqual(server.ask("POST", "/tokenize", {"content": "a" * pad})[0].status, 200)
                    self.error(server.ask("POST", "/tokenize", {"content": "a" * (pad + 1)}), 413)
                    if name == "long":
                        self.assertEqual(server.ask("GET", "/health", headers={"Origin": "http://b"})[0].status, 200)
                finally:
                    self.assertEqual(server.stop(), 0)

    def test_refusals_name_the_line(self):
        config = self.folder / "bad.toml"
        path = json.dumps(str(self.model))
        for text, *words in (("\n\nother = 1\n", "line 3", "other"), ("[limits]\n# none\nnone = 1\n", "line 3", "none"), ("[limits]\nbody-bytes = 1_\n", "line 2"), ("[limits]\nbody-bytes = 1.5\n", "line 2", "1.5"), ("[limits]\nbody-bytes = [1, 2]\n", "line 2"),
                             ("[limits]\nbody-bytes = 2020-01-01\n", "line 2", "body-bytes"), ("port = 1\nport = 2\n", "line 2"), ("memory = 2GiB\n", "line 1"), ("a\n", "line 1"), ("[x.y]\na = 1\n", "line 1", "x.y"), ("[models]\na = 1\n", "line 2", "models.a"),
                             (f"[models.a]\npath = {path}\nother = 1\n", "line 3", "models.a.other"), ("[models.a]\nslots = 5\n", "models.a", "path"), ("insecure = 1\n", "line 1", "true or false"), ("queue = [[1]]\n", "line 1", "queue"), ("config = 'a'\n", "line 1", "config"),
                             ("log = 'loud'\n", "line 1", "log"), ("[[models]]\n", "line 1", "models"), ("x = \"\\q\"\n", "line 1")):
            with self.subTest(text=text):
                config.write_text(text)
                self.refused(Run("serve", self.model, "--config", config), "bad.toml", *words)


class PatienceTest(ServeCase):
    def start(self, *arguments, **limits):
        config = self.folder / "limits.toml"
        config.write_text("window = 50\n[limits]\n" + "".join(f"{k.replace('_', '-')} = {v}\n" for k, v in limits.items()))
        server = Server(self.model, "--port", 0, "--config", config, *arguments)
        self.addCleanup(lambda: self.assertEqual(server.stop(), 0))
        return server

    def test_idle_is_not_slow(self):
        """A connection between two requests has its own limit, as a head has that does not come to its end."""
        def answer(s):
            s.sendall(f"GET /health HTTP/1.1\r\n{HOST}\r\n".encode())
            got = b""
            while not got.endswith(b"}"):
                part = s.recv(65536)
                self.assertTrue(part)
                got += part

        server = self.start(header_seconds=1, idle_seconds=86400)
        with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as idle, socket.create_connection(("127.0.0.1", server.port), PATIENCE) as slow, socket.create_connection(("127.0.0.1", server.port), PATIENCE) as second:
            answer(idle), answer(second)
            slow.sendall(b"GET /hea")
            self.assertEqual(slow.recv(100), b"")
            second.sendall(b"GET /hea")
            self.assertEqual(second.recv(100), b"")
            answer(idle)
        server = self.start(header_seconds=86400, idle_seconds=1)
        with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as slow, socket.create_connection(("127.0.0.1", server.port), PATIENCE) as idle:
            slow.sendall(b"GET /health HTTP/1.1\r\n")
            answer(idle)
            self.assertEqual(idle.recv(100), b"")
            answer(slow)

    def test_a_slow_reader_is_cut_off(self):
        """One that takes some bytes all the time, and fewer than it should."""
        server = self.start(write_seconds=1, least_write_rate=1 << 30, unread_bytes=1 << 40)
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.settimeout(PATIENCE)
            s.connect(("127.0.0.1", server.port))
            s.sendall(request_of({**CHAT, "max_tokens": ENDLESS, "stream": True}))
            self.assertTrue(s.recv(500))
            self.wait_for(lambda: self.takes(s, 500) and server.metric("situ_slots_used") == 0)
        self.assertIn("finish=cancelled", server.said())

    def takes(self, s, most):
        with contextlib.suppress(ConnectionError):
            s.recv(most)
        return True

    def test_pings_are_no_events(self):
        # Nobody reads the first answer, and it must not end for that.
        server = self.start("--max-running", 1, ping_seconds=1, unread_bytes=2**40, write_seconds=86400, least_write_rate=0)
        first = self.begin(server, max_tokens=ENDLESS)
        connection = server.connect()
        self.addCleanup(connection.close)
        connection.request("POST", "/v1/chat/completions", json.dumps({**CHAT, "stream": True}))
        second = connection.getresponse()
        text = second.readline().decode()
        self.assertEqual(text, ": ping\n")
        first[0].close(), first[1].close()
        text += second.read().decode()
        blocks = text.split("\n\n")
        self.assertEqual(blocks.pop(), "")
        for block in blocks:  # each has data, on its last line, whatever comments stand before it
            *comments, data = block.split("\n")
            self.assertEqual(set(comments) | {": ping"}, {": ping"}, text)
            self.assertTrue(data.startswith("data: "), text)
        self.assertEqual(blocks[-1], "data: [DONE]")

    def test_connections_are_kept_for_health_and_metrics(self):
        server = self.start(connections=16)  # two of them
        running = [self.begin(server, max_tokens=ENDLESS) for _ in range(14)]
        for path, body in (("/v1/chat/completions", CHAT), ("/tokenize", {"content": "a"})):
            self.error(server.ask("POST", path, body), 429, code="rate_limit_exceeded", words=("connections",))
        idle = [socket.create_connection(("127.0.0.1", server.port), PATIENCE) for _ in range(20)]
        for path in ("/health", "/health/live", "/health/ready", "/metrics"):
            self.assertEqual(server.ask("GET", path)[0].status, 200)
        running[0][0].close(), running[0][1].close()
        self.wait_for(lambda: server.ask("POST", "/tokenize", {"content": "a"})[0].status == 200)
        for s in idle:
            s.close()

    def test_more_to_read_than_may_wait(self):
        server = self.start(preparing=1)
        sockets = [socket.create_connection(("127.0.0.1", server.port), PATIENCE) for _ in range(8)]
        data = request_of({"content": "a" * 200_000}, "/tokenize")

        def refused():
            for s in sockets:
                s.sendall(data)
            answers = [self.whole(s) for s in sockets]
            self.assertLessEqual({status_of(a) for a in answers}, {200, 429})
            for body in (json.loads(a.split("\r\n\r\n", 1)[1])["error"] for a in answers if status_of(a) == 429):
                self.assertEqual((body["type"], body["code"]), ("rate_limit_exceeded", "rate_limit_exceeded"))
                self.assertIn("preparing", body["message"])
            return any(status_of(a) == 429 for a in answers)

        self.wait_for(refused)
        for s in sockets:
            s.close()

    def whole(self, s):
        got = b""
        while whole_answers(got) < 1:
            part = s.recv(65536)
            self.assertTrue(part)
            got += part
        return got.decode()

    def test_descriptors(self):
        """The soft limit is raised; where the hard one is too low, one line says so."""
        own, script = cli_case.SITU, self.folder / "limited.sh"
        for hard, limits, told in ((4096, (2048 + 256, 4096), False), (100, (100, 100), True)):
            with self.subTest(hard=hard):
                script.write_text(f'#!/bin/sh\nulimit -Sn 64\nulimit -Hn {hard}\nexec {shlex.quote(str(own))} "$@"\n')
                script.chmod(0o700)
                with unittest.mock.patch.object(cli_case, "SITU", str(script)):
                    server = Server(self.model, "--port", 0)
                self.assertEqual(resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE), limits)
                self.assertEqual(server.stop(), 0)
                self.assertEqual([line for line in server.said().splitlines() if "descriptors" in line and str(limits[0]) in line] != [], told, server.said())


if __name__ == "__main__":
    main()
