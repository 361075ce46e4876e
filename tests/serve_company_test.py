"""What takes too long for every change: `situ serve` under schemathesis, clients of many kinds, nginx, a thousand resets.

    python tests/serve_company_test.py --situ build/situ [unittest options]

What it needs (tests/clients) is installed beside the program, once for each list.
"""
import json
import os
import random
import shutil
import socket
import struct
import subprocess
import time
import unittest

import forced_models
import serve_tools_test as spellings
from cli_case import main
from serve_clients_test import CLIENTS, installed, run, run_node, serve_clients
from serve_test import ENDLESS, PATIENCE, Server, ServeCase, request_of


def write_agent(folder):
    """A model that calls a tool, answers to its result, fills in a form that is a tool, and thinks: by the last character of the prompt."""
    form = {"yes": True, "number": 7}
    answers = {"1": ["It is cold there today."], "2": [spellings.hermes("weather", city="Oslo", days=3).strip()], "3": [spellings.hermes("final_result", **form).strip()],
               "4": [spellings.hermes("Answer", **form).strip()], "5": ["<think>\nA river, then.\n</think>\n\n", "The Nile."],
               "6": [spellings.hermes("PartialAnswer", **form).strip()]}
    return forced_models.write(folder, spellings.THINKING, answers)[0]


class CompanyTest(ServeCase):
    @classmethod
    def setUpServer(cls):
        cls.server = serve_clients(cls, write_agent(cls.folder / "agent"))
        cls.url = f"http://127.0.0.1:{cls.server.port}"

    def test_schemathesis(self):
        """Bodies made from /openapi.json: no fault of the server, and every error is as the document says."""
        checks = [part for name in ("not_a_server_error", "status_code_conformance", "response_schema_conformance") for part in ("-c", name)]
        program = "import sys; from schemathesis.cli import schemathesis; sys.exit(schemathesis())"
        run(installed("schemathesis.txt") / "bin" / "python", "-c", program, "run", self.url + "/openapi.json", "--exclude-path", "/debug/slots", *checks, "-n", 200, "--no-color", cwd=self.folder, patience=1200)
        self.assertEqual(self.server.ask("GET", "/health")[0].status, 200)

    def with_client(self, name):
        run(installed(f"{name}.txt") / "bin" / "python", CLIENTS / f"with_{name}.py", self.url)

    def test_langchain(self):
        self.with_client("langchain")

    def test_litellm(self):
        self.with_client("litellm")

    def test_instructor(self):
        self.with_client("instructor")

    def test_pydantic_ai(self):
        self.with_client("pydantic_ai")

    def test_ai_sdk(self):
        self.assertIn("ok", run_node(installed("requirements.txt", "ai_sdk"), "ai_sdk/clients.mjs", self.url))

    def test_a_thousand_resets(self):
        server, draw = Server(self.model, "--port", 0, "--window", 50), random.Random(1)
        whole = request_of({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": ENDLESS, "ignore_eos": True, "stream": True})

        def held():
            pid = server.process.pid
            return len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task"))

        try:
            self.assertEqual(server.ask("POST", "/tokenize", {"content": "a"})[0].status, 200)
            server.ask("POST", "/v1/completions", {"prompt": "a", "max_tokens": 1})
            before = held()
            for _ in range(1000):
                with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as s:
                    s.sendall(whole[:draw.choice([0, 10, len(whole) - 3, len(whole), len(whole)])])
                    time.sleep(draw.choice([0, 0, 0.001, 0.005]))
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.wait_for(lambda: server.metric("situ_slots_used") == 0 and server.metric("situ_requests_running") == 0)
            self.wait_for(lambda: all(now <= then for now, then in zip(held(), before)))
        finally:
            self.assertEqual(server.stop(), 0)

    def test_nginx(self):
        """Below a prefix, as docs/server.md has it: whole answers, and pieces as they come."""
        nginx = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin:/sbin")
        if not nginx:
            raise unittest.SkipTest("nginx is not installed")
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        paths = "".join(f"{name}_temp_path {self.folder}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        config = self.folder / "nginx.conf"
        config.write_text(f"daemon off; pid {self.folder}/nginx.pid; error_log stderr; events {{}}\nhttp {{ access_log off; {paths}\nserver {{ listen 127.0.0.1:{port};\nlocation /llm/ {{\n"
                          f"proxy_pass {self.url}/; proxy_http_version 1.1; proxy_set_header Connection ''; proxy_buffering off; proxy_read_timeout 1h; client_max_body_size 64m; }} }} }}\n")
        process = subprocess.Popen([nginx, "-c", str(config), "-e", "stderr"], stderr=subprocess.DEVNULL)
        proxied = Server.__new__(Server)
        proxied.port = port
        try:
            self.wait_for(lambda: self.answers(proxied))
            self.assertEqual(proxied.ask("GET", "/llm/v1/models")[1]["object"], "list")
            body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8, "ignore_eos": True}
            whole = proxied.ask("POST", "/llm/v1/chat/completions", body)[1]
            self.assertEqual(whole["choices"], self.server.ask("POST", "/v1/chat/completions", body)[1]["choices"])
            connection = proxied.connect()
            connection.request("POST", "/llm/v1/chat/completions", json.dumps({**body, "stream": True}))
            answer = connection.getresponse()
            self.assertEqual(answer.getheader("content-type"), "text/event-stream")
            self.assertIn(b"[DONE]", answer.read())
            connection.close()
            self.error(proxied.ask("POST", "/llm/v1/chat/completions", {**body, "n": -1}), 400, param="n")
        finally:
            process.terminate()
            process.wait(PATIENCE)

    def answers(self, server):
        try:
            return server.ask("GET", "/llm/health")[0].status == 200
        except OSError:
            return False


if __name__ == "__main__":
    main()
