"""`situ serve` with models of several kinds: embeddings, images, what each can be asked for.

    python tests/serve_models_test.py --situ build/situ [unittest options]

Needs numpy and onnx (`make python`).
"""
import base64
import json
import os
import socket
import struct
import threading
import unittest
import zlib
from pathlib import Path

import image_files
import tiny_encoders
import tiny_vision
from cli_case import Run, main
from serve_test import PATIENCE, Server, ServeCase, request_of

SHARED = Path(os.environ.get("SITU_SHARED") or Path(__file__).resolve().parent.parent.parent / "shared")
TEXTS = ["the small boats waited for tide", "harbour", "a grey cat slept " * 10, "quiet"]


def png(width, height):
    rows = zlib.compress(b"".join(b"\0" + bytes(3 * width) for _ in range(height)))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(image_files.chunk(kind, data) for kind, data in ((b"IHDR", header), (b"IDAT", rows), (b"IEND", b"")))


class KindsTest(ServeCase):
    @classmethod
    def setUpServer(cls):
        weights = tiny_encoders.weights()
        encoder = tiny_encoders.encoder(weights)
        prompts = {"prompts": {"query": "query : "}}
        cls.encoder = tiny_encoders.write(cls.folder / "encoder", encoder, modules=[("Pooling", "1_Pooling", tiny_encoders.pooling("mean_tokens"), None)], prompts=prompts)
        labels = tiny_encoders.encoder(weights, labels=weights["wq"][:, :1])
        cls.pairs = tiny_encoders.write(cls.folder / "pairs", labels)
        models = [cls.model, cls.encoder, cls.pairs]
        if (SHARED / "models" / "vlm" / "llava").exists():
            models.append(tiny_vision.with_words(SHARED / "models" / "vlm" / "llava", cls.folder / "llava"))
        config = cls.folder / "kinds.toml"
        config.write_text("[limits]\nbody-bytes = 1500000\nimage-pixels = 1000000\ntexts = 40\n")
        cls.media = cls.folder / "media"
        cls.media.mkdir()
        cls.server = Server(*models, "--port", 0, "--config", config, "--media-memory", 500_000, "--media-path", cls.media)

    def embed(self, input, **fields):
        return self.server.ask("POST", "/v1/embeddings", {"input": input, **fields})

    def test_embeddings(self):
        run = Run("embed", self.encoder, "--json", *TEXTS)
        wanted = json.loads(run.out)
        head, body = self.embed(TEXTS)
        self.assertEqual(head.status, 200, body)
        self.assertEqual((body["object"], body["model"], [d["index"] for d in body["data"]], {d["object"] for d in body["data"]}), ("list", "encoder", [0, 1, 2, 3], {"embedding"}))
        self.assertEqual([d["embedding"] for d in body["data"]], wanted["embeddings"])
        self.assertEqual((body["usage"], body["situ"]), ({"prompt_tokens": sum(wanted["tokens"]), "total_tokens": sum(wanted["tokens"])}, {"cut": [2]}))
        packed = self.embed(TEXTS, encoding_format="base64", model="encoder")[1]["data"]
        self.assertEqual([list(struct.unpack(f"<{tiny_encoders.WIDTH}f", base64.b64decode(d["embedding"]))) for d in packed],
                         [list(struct.unpack(f"<{tiny_encoders.WIDTH}f", struct.pack(f"<{tiny_encoders.WIDTH}f", *row))) for row in wanted["embeddings"]])
        one = self.embed("harbour")[1]
        self.assertEqual((one["data"][0]["embedding"], "situ" in one), (wanted["embeddings"][1], False))
        ids = tiny_encoders.ids_of("harbour")[0]
        for input in (ids, [ids, ids]):
            self.assertEqual(self.embed(input)[1]["data"][-1]["embedding"], wanted["embeddings"][1])
        prompted = json.loads(Run("embed", self.encoder, "--json", "--prompt-name", "query", "harbour").out)["embeddings"]
        self.assertEqual(self.embed("harbour", prompt_name="query")[1]["data"][0]["embedding"], prompted[0])
        many = self.embed(TEXTS * 10, user="u")[1]["data"]
        self.assertEqual([d["embedding"] for d in many], wanted["embeddings"] * 10)

    def test_embeddings_refused(self):
        for input in (None, [], {}, 5, [[]], ["a", 5], [5, "a"], [5, -1], [5, 1.5], [[5], "a"], ["a", None], [2**40]):
            with self.subTest(input=input):
                self.error(self.embed(input), 400, param="input")
        self.error(self.server.ask("POST", "/v1/embeddings", {}), 400, param="input")
        self.error(self.embed([[5, 10**6]]), 400, param="input", words=("input[0]",))
        self.error(self.embed("a", dimensions=3), 400, param="dimensions", code="unsupported_parameter")
        self.error(self.embed("a", encoding_format="int8"), 400, param="encoding_format")
        self.error(self.embed("a", prompt_name="passage"), 400, param="prompt_name", words=("query",))
        self.assertEqual(self.embed("a", other=1)[1]["situ"], {"ignored": ["other"]})
        self.error(self.embed(["a"] * 41), 400, param="input", code="limit_exceeded")
        self.error(self.embed("a", model="pairs"), 400, param="model", code="unsupported_by_model")
        self.error(self.embed("a", model="model"), 400, param="model", code="unsupported_by_model")

    def test_who_can_do_what(self):
        """Of several models the only one that can is taken where none is named."""
        chat = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
        self.assertEqual(self.embed("a")[1]["model"], "encoder")
        for path, body in (("/v1/chat/completions", chat), ("/v1/completions", {"prompt": "a", "max_tokens": 1})):
            for name in ("encoder", "pairs"):
                self.error(self.server.ask("POST", path, {**body, "model": name}), 400, param="model", code="unsupported_by_model")
            self.assertEqual(self.server.ask("POST", path, {**body, "model": "model"})[0].status, 200)
        page = self.server.ask("GET", "/debug/placement?model=model")
        self.assertEqual((page[0].status, page[1][:15]), (200, "<!doctype html>"))
        self.error(self.server.ask("GET", "/debug/placement?model=encoder"), 400, param="model", code="unsupported_by_model")
        connection = self.server.connect()
        connection.request("GET", "/debug/slots")
        answer = connection.getresponse()
        self.assertEqual([m["name"] for m in json.loads(answer.readline()[6:])["models"]][:3], ["model", "encoder", "pairs"])
        connection.close()

    def picture(self, width, height, count=1, url=None):
        image = {"type": "image_url", "image_url": {"url": url or "data:image/png;base64," + base64.b64encode(png(width, height)).decode()}}
        return self.server.ask("POST", "/v1/chat/completions", {"model": "llava", "max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}] + [image] * count}]})

    def test_pixels_in_flight(self):
        if not (self.folder / "llava").exists():
            self.skipTest(f"{SHARED} is not there")
        self.assertEqual(self.picture(100, 100)[0].status, 200)
        self.error(self.picture(300, 300), 429, code="rate_limit_exceeded")
        self.error(self.picture(100, 100, 7), 429, code="rate_limit_exceeded")
        self.error(self.picture(1100, 1000), 400, param="messages", code="limit_exceeded", words=("1000000", "'image-pixels'"))
        self.error(self.picture(1, 1, 17), 400, param="messages", code="limit_exceeded")
        for _ in range(10):  # what was taken was given back
            self.assertEqual(self.picture(100, 100)[0].status, 200)
        self.error(self.server.ask("POST", "/tokenize", "a" * 500_001), 429, code="rate_limit_exceeded")

    def test_files(self):
        """Below the folder of media, with the limits of those that come in bodies."""
        if not (self.folder / "llava").exists():
            self.skipTest(f"{SHARED} is not there")
        for name, size in (("a b.png", (100, 100)), ("%41.png", (10, 10)), ("large.png", (300, 300)), ("huge.png", (1100, 1000))):
            (self.media / name).write_bytes(png(*size))
        (self.media / "long.png").write_bytes(png(10, 10) + bytes(1 << 20))
        for name, size in (("most.png", 1_500_000), ("more.png", 1_500_001)):
            (self.media / name).write_bytes(png(10, 10))
            os.truncate(self.media / name, size)
        os.mkfifo(self.media / "pipe.png")
        (self.folder / "outside.png").write_bytes(png(10, 10))
        (self.media / "link.png").symlink_to(self.folder / "outside.png")
        wanted = self.picture(100, 100)[1]["choices"]
        for url in ("file:a b.png", "file://a%20b.png", (self.media / "a b.png").as_uri(), f"file:{self.media}/../media/a%20b.png"):
            answer = self.picture(0, 0, url=url)
            self.assertEqual((answer[0].status, answer[1].get("choices")), (200, wanted), answer[1])
        self.assertEqual(self.picture(0, 0, url="file:%41.png")[0].status, 200)
        self.error(self.picture(0, 0, url="file:large.png"), 429, code="rate_limit_exceeded")
        self.error(self.picture(0, 0, url="file:huge.png"), 400, param="messages", code="limit_exceeded", words=("'image-pixels'",))
        for name in ("long.png", "most.png"):
            self.error(self.picture(0, 0, url="file:" + name), 429, code="rate_limit_exceeded")
        self.error(self.picture(0, 0, url="file:more.png"), 400, param="messages", code="limit_exceeded", words=("1500001", "'body-bytes'"))
        self.assertEqual(self.picture(0, 0, 3, url="file:a%20b.png")[0].status, self.picture(100, 100, 3)[0].status)
        for url in ("file:../outside.png", f"file://{self.folder}/outside.png", "file:link.png", "file:none.png", "file:", "file:.", "file:/dev/zero", "file:%2e%2e/outside.png", "file:a%20b.png%00.jpg", "file:a b.png\0.jpg", "file:pipe.png", "http://localhost/a.png", "ftp:a"):
            with self.subTest(url=url):
                self.error(self.picture(0, 0, url=url), 400, param="messages[0].content[1].image_url.url")


class DraftTest(ServeCase):
    @classmethod
    def setUpServer(cls):
        cls.server = Server(cls.model, "--port", 0, "--draft", cls.model)

    def test_a_draft_guesses_for_few(self):
        """The text is the one without it; with more than four answers nothing is guessed."""
        body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 20, "ignore_eos": True, "temperature": 0}
        alone = Run("run", self.model, "--prompt", "Hi", "--chat", "--ignore-eos", "-n", 20, "--threads", 1, "--json")
        one = self.server.ask("POST", "/v1/chat/completions", body)[1]
        self.assertEqual(one["choices"][0]["message"]["content"], json.loads(alone.out)["text"])
        self.assertEqual(one["timings"]["draft_n_accepted"], one["timings"]["draft_n"])  # the model agrees with itself
        five = self.server.ask("POST", "/v1/chat/completions", {**body, "n": 5})[1]
        self.assertEqual({c["message"]["content"] for c in five["choices"]}, {one["choices"][0]["message"]["content"]})
        self.assertNotIn("draft_n", five["timings"])
        beams = self.server.ask("POST", "/v1/chat/completions", {**body, "num_beams": 2})
        self.assertEqual(beams[0].status, 200, beams[1])


class IgnoredTest(ServeCase):
    @classmethod
    def setUpServer(cls):
        cls.server = Server(cls.model, "--port", 0)

    def test_streams_tell_names_in_the_header_and_the_last_chunk(self):
        names = ["x", "messages[0].id", "a,b"]
        body = {"messages": [{"role": "user", "content": "Hi", "id": "m"}], "max_tokens": 2, "x": 1, "a,b": {"c": [1]}}
        for more in ({}, {"stream_options": {"include_usage": True}}):
            head, text = self.server.ask("POST", "/v1/chat/completions", {**body, **more, "stream": True})
            chunks = [json.loads(line[6:]) for line in text.split("\n\n") if line.startswith("data: {")]
            self.assertEqual(head.getheader("x-situ-ignored"), "x, a%2Cb, messages[0].id")
            self.assertEqual([sorted(c["situ"]["ignored"]) for c in chunks if "ignored" in c.get("situ", {})], [sorted(names)])
            self.assertIn("ignored", chunks[-1]["situ"])
        head, plain = self.server.ask("POST", "/v1/chat/completions", {"messages": body["messages"][:1] and [{"role": "user", "content": "Hi"}], "max_tokens": 2})
        self.assertNotIn("ignored", plain["situ"])
        self.assertIsNone(head.getheader("x-situ-ignored"))

    def test_small_bodies(self):
        for path, body in (("/tokenize", {"content": "a", "x": 1}), ("/detokenize", {"tokens": [5], "x": 1}), ("/apply-template", {"messages": [{"role": "user", "content": "a"}], "x": 1})):
            head, answer = self.server.ask("POST", path, body)
            self.assertEqual((head.status, answer["situ"]), (200, {"ignored": ["x"]}), answer)

    def test_many_keys_cost_as_many_steps(self):
        """1,024 objects of 2,048 keys, in what changes nothing and in what is read."""
        keys = {f"key{i}": i for i in range(2048)}
        body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1, "metadata": [keys] * 100, "chat_template_kwargs": {"more": [keys] * 100}}
        head, answer = self.server.ask("POST", "/v1/chat/completions", body)
        self.assertEqual(head.status, 200, answer)


class MessagesTest(ServeCase):
    """The Messages API beside chat; tests/clients/messages.py is its client."""

    @classmethod
    def setUpServer(cls):
        cls.server = Server(cls.model, "--port", 0, "--window", 50)

    def test_a_message(self):
        body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5}
        head, answer = self.server.ask("POST", "/v1/messages", body, {"X-Request-Id": "mine-2"})
        chat = self.server.ask("POST", "/v1/chat/completions", body)[1]
        self.assertEqual((head.status, head.getheader("request-id"), head.getheader("x-request-id")), (200, "mine-2", "mine-2"), answer)
        self.assertEqual(answer["content"], [{"type": "text", "text": chat["choices"][0]["message"]["content"]}])
        self.assertEqual(self.server.ask("POST", "/messages/count_tokens", {**body, "max_tokens": None})[1], {"input_tokens": chat["usage"]["prompt_tokens"]})
        for method, path, status, kind in (("POST", "/v1/messages/none", 404, "not_found_error"), ("GET", "/v1/messages", 405, "invalid_request_error"), ("POST", "/messages/", 400, "invalid_request_error")):
            head, error = self.server.ask(method, path)
            self.assertEqual((head.status, error["type"], error["error"]["type"], error["request_id"]), (status, "error", kind, head.getheader("request-id")))

    def test_the_number_of_a_request(self):
        body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3, "ignore_eos": True}
        text = self.server.ask("POST", "/v1/chat/completions", {**body, "stream": True})[1]
        chunks = [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: {")]
        told = [c["situ"]["request"] for c in chunks if "request" in c.get("situ", {})]
        whole = self.server.ask("POST", "/v1/chat/completions", body)[1]
        self.assertEqual((len(told), "request" in chunks[0]["situ"]), (1, True))
        self.assertGreater(whole["situ"]["request"], told[0])
        self.assertEqual({whole["system_fingerprint"]}, {c["system_fingerprint"] for c in chunks})
        self.assertRegex(whole["system_fingerprint"], "^fp_[0-9a-f]{16}$")

    def test_a_model_of_all_other_names(self):
        run = Run("serve", self.model, "--alias", f"*={self.model}", "--alias", f"*={self.folder}")
        self.assertEqual((run.code, "two models" in run.err), (2, True), run)
        server = Server(self.model, "--port", 0, "--window", 50, "--alias", f"*={self.model}", "--alias", f"own={self.model}")
        try:
            head, answer = server.ask("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1, "model": "any/name"})
            self.assertEqual((head.status, answer["model"]), (200, "any/name"))
            self.assertEqual(server.ask("GET", "/v1/models/other")[1]["id"], "own")
            self.assertEqual([m["aliases"] for m in server.ask("GET", "/v1/models")[1]["data"]], [["model"]])
        finally:
            self.assertEqual(server.stop(), 0)


class WaitingTextsTest(ServeCase):
    """Embeddings that wait are requests that wait."""

    @classmethod
    def setUpServer(cls):
        weights = tiny_encoders.weights()
        cls.encoder = tiny_encoders.write(cls.folder / "encoder", tiny_encoders.encoder(weights), modules=[("Pooling", "1_Pooling", tiny_encoders.pooling("mean_tokens"), None)])
        cls.server = Server(cls.model, cls.encoder, "--port", 0, "--max-running", 1, "--queue", 1)

    def test_they_are_counted_and_bounded(self):
        """Until a metric shows that some wait, and one of them found the queue full."""
        stop, statuses, waiting = threading.Event(), [], 0

        def client():
            while not stop.is_set():
                statuses.append(self.server.ask("POST", "/v1/embeddings", {"input": TEXTS * 100})[0].status)

        clients = [threading.Thread(target=client) for _ in range(4)]
        for one in clients:
            one.start()
        try:
            self.wait_for(lambda: self.server.metric("situ_requests_waiting") >= 1)
            self.wait_for(lambda: 429 in statuses and 200 in statuses)
        finally:
            stop.set()
            for one in clients:
                one.join()
        self.assertEqual(set(statuses), {200, 429})

    def test_who_goes_while_a_text_becomes_tokens(self):
        """Half-closed: nothing is answered where that takes longer than a second."""
        for size in (1 << 20, 1 << 22, 9 << 20):
            with socket.create_connection(("127.0.0.1", self.server.port), PATIENCE) as s:
                s.sendall(request_of({"input": "harbour " * (size // 8), "model": "encoder"}, "/v1/embeddings"))
                s.shutdown(socket.SHUT_WR)
                got = s.recv(100)
            if not got:
                break
        self.assertEqual(got, b"")
        self.wait_for(lambda: "finish=cancelled" in self.server.said())
        self.assertEqual(self.server.ask("POST", "/v1/embeddings", {"input": "a"})[0].status, 200)


if __name__ == "__main__":
    main()
