"""`situ batch`: lines of OpenAI's bodies on a tiny model, whatever the company, the order, the room and the interruptions.

    python tests/batch_test.py --situ build/situ [unittest options]

Needs numpy and onnx (`make python`).
"""
import base64
import gzip
import json
import math
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import numpy as np

import cli_case
import image_files
import tiny_encoders
import tiny_exports
import tiny_models
import tiny_seq2seq
import tiny_speech
import tiny_vision
from cli_case import CliTest, Run, main
from speech_oracle import HOP, MELS, WINDOW

SHARED = Path(os.environ.get("SITU_SHARED", Path(__file__).resolve().parent.parent.parent / "shared"))
TEMPLATE = "{% for m in messages %}<|turn|>{{ m.role[0] }}:{{ m.content }}<|end|>{% endfor %}{% if shout %}!{% endif %}<|turn|>a:"
PARTS = TEMPLATE.replace("{{ m.content }}", "{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}"
                                            "{% if c.type == 'image' %}<image>{% else %}{{ c.text }}{% endif %}{% endfor %}{% endif %}")
TURN, END = 93, 94
# One character a token, two control tokens, and the last a letter of two bytes.
CHARACTERS = [chr(32 + i) for i in range(TURN)] + ["<|turn|>", "<|end|>", "\u00e9"]
# The same of a model that sees pictures, whose vocabulary is smaller.
SEEN = list(' abcdefghijklmnopqrstuvwxyz0123456789{}":,.?![]ABCDEFGHIJK') + ["<|turn|>", "<|end|>", "<image>"]
SEEN += [f"t{i}" for i in range(tiny_vision.VOCABULARY - len(SEEN))]
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"

def tokenizer_json(characters=CHARACTERS, special=(TURN, END)):
    empty = {k: None for k in ("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor")}
    model = {"type": "BPE", "vocab": {c: i for i, c in enumerate(characters)}, "merges": [], "unk_token": None, "byte_fallback": False}
    added = [{"id": i, "content": characters[i], "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True} for i in special]
    return json.dumps({"version": "1.0", "added_tokens": added, **empty, "decoder": {"type": "Fuse"}, "model": model})

def ids_of(text):
    return [CHARACTERS.index(c) for c in text]

def chat(content, **body):
    messages = content if isinstance(content, list) else [{"role": "user", "content": content}]
    return CHAT, {"messages": messages, **body}

def completion(prompt, **body):
    return TEXT, {"prompt": prompt, **body}

def picture(number):
    pixels = np.random.default_rng(number).integers(0, 256, (4, 4 + number % 3, 3), np.uint8)
    data = base64.b64encode(image_files.png(pixels.reshape(4, -1).tolist(), 8, 2)).decode()
    return {"type": "image_url", "image_url": {"url": "data:image/png;base64," + data}}

def mixed():
    """300 bodies of all kinds, each with its name."""
    words = [f"{w}{i}" for i in range(4) for w in ("hi", "so?", "a b c", "12", "why not", "x")]
    lines = {}
    for i, w in enumerate(words):
        shown = [{"role": "system", "content": "look"}, {"role": "user", "content": [picture(i), {"type": "text", "text": w}, *[picture(99)] * (i % 3)]}]
        lines |= {
            f"greedy {i}": chat(w, max_tokens=12), f"long {i}": chat(w, ignore_eos=True), f"raw {i}": completion(w, max_tokens=9),
            f"drawn {i}": chat(w, temperature=1.5, seed=i, max_tokens=12), f"three {i}": chat(w, temperature=2, n=3, seed=40 + i, max_tokens=8),
            f"beams {i}": completion(w, num_beams=3, n=2, max_tokens=6), f"stop {i}": chat(w, max_tokens=20, stop=[chr(97 + i), "e"]),
            f"regex {i}": chat(w, regex="[a-f]{3,5}", temperature=1, seed=i), f"penalty {i}": completion(w, repetition_penalty=1.3, presence_penalty=0.5, max_tokens=10),
            f"logprobs {i}": chat(w, logprobs=True, top_logprobs=2, max_tokens=5, prompt_logprobs=1),
            f"image {i}": chat(shown, max_tokens=8), f"images {i}": chat([*shown, {"role": "assistant", "content": "ok"}, *shown[1:]][:2 + i % 3], temperature=1, n=1 + i % 2, seed=i, max_tokens=5),
        }
    return lines | {
        "schema": chat("hi", response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": {"enum": [1, 22]}}}),
        "object": chat("hi", response_format={"type": "json_object"}, max_tokens=6), "lark": chat("hi", grammar='start: "a"+ "b"', temperature=1, seed=4, max_tokens=9),
        "several": completion(["ab", "cd", "ef"], max_tokens=4, n=2, temperature=1, seed=3),
        "crowd": completion([f"{i} of many" for i in range(48)], max_tokens=40, ignore_eos=True),  # which no state of 640 tokens holds at once "ids": completion([[1, 2, 3], [4, 5]], max_tokens=4),
        "echo": completion("echo", echo=True, logprobs=2, max_tokens=3), "score": completion("echo", echo=True, logprobs=1, max_tokens=0),
        "too long": chat("x" * 100), "too many": chat([{"role": "user", "content": [picture(0)] * 30}]), "unknown": chat("x", colour=1), "bad": chat("x", temperature=-1),
        "fetched": chat([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://a/b.png"}}]}]),
    }

def write_hearing(folder):
    """A model that takes sounds as Voxtral does."""
    weights, plain = tiny_vision.make_weights(3), folder.with_name(folder.name + "_plain")
    files = tiny_vision.files_of(tiny_vision.SPECS[0], weights)
    del files["vision_encoder.onnx"]
    files["audio_encoder.onnx"] = tiny_vision.sound_model(MELS, WINDOW // HOP, weights)
    tiny_vision.write_folder(plain, files, {"model_type": "voxtral", "image_token_id": None, "audio_token_id": tiny_vision.IMAGE,
                                            "audio_config": {"max_source_positions": tiny_vision.SOUND_ROWS * 5, "hidden_size": 4, "intermediate_size": 20}})
    (plain / "preprocessor_config.json").write_text(json.dumps(tiny_speech.preprocessor_config()))
    return tiny_vision.with_words(plain, folder, {"[AUDIO]": tiny_vision.IMAGE, "[BEGIN_AUDIO]": tiny_vision.IMAGE + 1}, tiny_vision.VOCABULARY)

def lines_of(bodies):
    return [json.dumps({"custom_id": name, "method": "POST", "url": url, "body": {"model": "any", **body}}) for name, (url, body) in bodies.items()]

class BatchTest(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = cls.folder / "model"
        cls.spec = tiny_models.SPECS[0]
        cls.weights, _, _ = tiny_models.choose_weights(cls.spec)
        tiny_exports.write_weights(cls.spec, cls.weights, cls.model)
        (cls.model / "tokenizer.json").write_text(tokenizer_json())
        (cls.model / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
        cls.count = 0

    def batch(self, lines, *options, code=0, model=None, output=None):
        """Output lines, in their order."""
        type(self).count += 1
        source = self.folder / f"in{self.count}.jsonl"
        source.write_text("".join(line + "\n" for line in lines))
        out = output or self.folder / f"out{self.count}.jsonl"
        run = Run("batch", model or self.model, source, "-o", out, "--threads", 1, *options)
        self.assertEqual((run.code, run.out), (code, ""), run)
        return [json.loads(line) for line in out.read_text().splitlines()]

    def bodies(self, *requests, model=None):
        """The answers to these (url, body), in order: (status, body)."""
        found = {o["custom_id"]: o["response"] for o in self.batch(lines_of({str(i): r for i, r in enumerate(requests)}), model=model)}
        return [(found[str(i)]["status_code"], found[str(i)]["body"]) for i in range(len(requests))]

    def good(self, *requests, model=None):
        found = self.bodies(*requests, model=model)
        self.assertEqual([status for status, _ in found], [200] * len(requests), found)
        return [body for _, body in found]

    def run_json(self, *options, model=None):
        run = Run("run", model or self.model, "--threads", 1, "--json", *options)
        self.assertEqual(run.code, 0, run)
        return json.loads(run.out)

    @staticmethod
    def settled(outputs):
        """What must be the same in every run."""
        found = {}
        for o in outputs:
            body = o["response"]["body"]
            if o["response"]["status_code"] == 200:
                usage = {k: body["usage"][k] for k in ("prompt_tokens", "completion_tokens", "total_tokens")}
                body = {"choices": body["choices"], "usage": usage, "object": body["object"], "situ": body["situ"], "model": body["model"]}
            found[o["custom_id"]] = (o["response"]["status_code"], body, o["error"])
        return found

    def same(self, outputs, wanted):
        found = self.settled(outputs)
        self.assertEqual(sorted(found), sorted(wanted))
        self.maxDiff = None
        self.assertEqual({name: found[name] for name in found if found[name] != wanted[name]}, {name: wanted[name] for name in found if found[name] != wanted[name]})

class CompanyTest(BatchTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = tiny_vision.write_seeing(cls.folder / "seeing")
        special = range(SEEN.index("<|turn|>"), tiny_vision.IMAGE + 1)
        (cls.model / "tokenizer.json").write_text(tokenizer_json(SEEN, special))
        (cls.model / "tokenizer_config.json").write_text(json.dumps({"chat_template": PARTS, "eos_token": "<|end|>"}))

    def test_the_same_answers_in_any_company(self):
        bodies = mixed()
        refused = {"too long", "too many", "bad", "fetched"}
        lines = lines_of(bodies)
        self.assertEqual(len(lines), 300)
        alone = self.batch(lines, "--max-running", 1)
        wanted = self.settled(alone)
        self.assertEqual(list(wanted), list(bodies))
        self.assertEqual({name for name, (status, _, _) in wanted.items() if status != 200}, refused)
        self.assertEqual({wanted[name][1]["error"]["code"] for name in ("too long", "too many")}, {"context_length_exceeded"})
        self.same(self.batch(lines), wanted)
        shuffled = lines[:]
        random.Random(1).shuffle(shuffled)
        stats = self.folder / "stats.json"
        self.same(self.batch(shuffled, "--max-running", 64, "--slots", 640, "--stats", stats), wanted)
        stats = json.loads(stats.read_text())
        self.assertEqual(list(stats), ["lines", "answered", "refused", "steps", "rows", "prompt_tokens", "answer_tokens", "cached_tokens", "preemptions", "slots", "slots_free",
                                       "bytes_copied", "peak_rss_mib", "wall_s"])
        self.assertEqual((stats["lines"], stats["answered"], stats["refused"], stats["slots"], stats["bytes_copied"]), (300, 300 - len(refused), len(refused), 640, 0))
        self.assertGreater(stats["preemptions"], 0)
        self.assertLess(stats["steps"], stats["answer_tokens"])
        self.as_on_the_command_line(bodies, wanted)
        self.choices_are_as_alone(bodies, wanted)
        self.cut_and_resume(lines, alone, wanted)

    def choices_are_as_alone(self, bodies, wanted):
        """Choice k is what the next seeds draw; also where those before it have ended with their first token."""
        alone, of = {}, {}
        for name, (url, body) in bodies.items():
            if body.get("temperature", 0) > 0 and body.get("n", 1) > 1 and "messages" in body and "seed" in body:
                for k in range(body["n"]):
                    alone[f"{name}: {k}"] = (url, {**body, "n": 1, "seed": body["seed"] + k})
                    of[f"{name}: {k}"] = wanted[name][1]["choices"][k]
        found = self.settled(self.batch(lines_of(alone)))
        said = lambda choice: (choice["message"]["content"], choice["finish_reason"])
        self.assertEqual({name: said(found[name][1]["choices"][0]) for name in alone}, {name: said(choice) for name, choice in of.items()})
        self.assertGreater(len(alone), 50)

    def as_on_the_command_line(self, bodies, wanted):
        for i in range(3):
            def text(name):
                choice = wanted[f"{name} {i}"][1]["choices"][0]
                return choice.get("text") or choice["message"]["content"], choice["finish_reason"]

            def run(*options):
                found = self.run_json("--prompt", word, *options)
                return found["text"], found["finish_reason"]

            word = bodies[f"greedy {i}"][1]["messages"][0]["content"]
            self.assertEqual(text("greedy"), run("--chat", "-n", 12))
            self.assertEqual(text("raw"), run("-n", 9))
            self.assertEqual(text("drawn"), run("--chat", "-n", 12, "--temperature", 1.5, "--seed", i))
            image = self.folder / f"{i}.png"
            image.write_bytes(base64.b64decode(picture(i)["image_url"]["url"].split(",")[1]))
            if i == 0:  # one image before the text
                self.assertEqual(text("image"), run("--system", "look", "--image", image, "-n", 8))

    def cut_and_resume(self, lines, outputs, wanted):
        out, half = self.folder / "cut.jsonl", len(outputs) // 2
        text = "".join(json.dumps(o) + "\n" for o in outputs[:half])
        failed = json.loads(json.dumps(outputs[half]))
        failed["response"].update(status_code=500, body={"error": {"message": "failed", "type": "server_error", "param": None, "code": "model_failed"}})
        out.write_text(text + json.dumps(failed) + "\n" + json.dumps(outputs[half + 1])[:40])
        self.refused(Run("batch", self.model, "/dev/null", "-o", out), out, "--resume")
        done = self.batch(lines, "--resume", output=out)
        self.assertEqual((done[:half], self.settled(done), len(done)), (outputs[:half], wanted, len(lines)))
        before = out.read_text()
        self.batch(lines, "--resume", output=out)  # there is nothing to do
        self.assertEqual(out.read_text(), before)

class LinesTest(BatchTest):
    def test_lines_that_are_no_requests(self):
        body = {"prompt": "a", "max_tokens": 1}
        good = {"custom_id": "a", "method": "POST", "url": TEXT, "body": body}
        lines = ["{", "", "[1]", json.dumps(good), json.dumps(good), json.dumps({**good, "custom_id": None}), json.dumps({**good, "custom_id": "b", "url": "/v1/responses"}),
                 json.dumps({**good, "custom_id": "c", "method": "GET"}), json.dumps({**good, "custom_id": "d", "body": 3}), "\t ", '{"a": 1e999}', "7", '"' + "\\u00e9" + '"']
        # A value that nothing can hold is the body's fault, as the server has it, where the custom_id can be told.
        lines += [json.dumps({**good, "custom_id": "e", "body": {**body, "prompt": "a \ud83d"}}), json.dumps({**good, "custom_id": "f"}).replace('"a"', "-1e400"), json.dumps({**good, "custom_id": "\udc00"})]
        outputs = self.batch(lines)
        found = {o["id"]: o for o in outputs}
        self.assertEqual(len(outputs), len(lines) - 2)
        for number in (1, 3, 11, 12, 13, 16):
            o = found[f"batch_req_{number}"]
            self.assertEqual((o["custom_id"], o["response"], o["error"]["code"]), (None, None, "invalid_json"))
            self.assertIn(f"line {number}", o["error"]["message"])

        def refusal(number):
            o = found[f"batch_req_{number}"]
            self.assertIsNone(o["error"])
            error = o["response"]["body"]["error"]
            return o["custom_id"], o["response"]["status_code"], error["param"]

        self.assertEqual(found["batch_req_4"]["response"]["status_code"], 200)
        self.assertEqual([refusal(n) for n in (5, 6, 7, 8, 9)], [("a", 400, "custom_id"), (None, 400, "custom_id"), ("b", 404, "url"), ("c", 405, "method"), ("d", 400, "body")])
        self.assertEqual([refusal(n) for n in (14, 15)], [("e", 400, None), ("f", 400, None)])
        self.assertIn("\\ud83d", found["batch_req_14"]["response"]["body"]["error"]["message"])
        self.assertEqual(len({o["response"]["request_id"] for o in outputs if o["response"]}), 8)
        # A refusal of a line whose custom_id another one has does not answer that one.
        out = self.folder / "repeated.jsonl"
        out.write_text("".join(json.dumps(o) + "\n" for o in outputs if o["id"] != "batch_req_4"))
        again = self.batch(lines, "--resume", output=out)
        self.assertEqual([o["id"] for o in again[len(outputs) - 1:]], ["batch_req_4"])

    def test_resume_matches_lines(self):
        """By custom_id where the line has one, wherever it stands now; else by id."""
        body = {"method": "POST", "url": TEXT, "body": {"prompt": "a", "max_tokens": 1}}
        named = lambda name: json.dumps({"custom_id": name, **body})
        own = json.dumps({"custom_id": "e", **body, "body": {"custom_id": "e"}})  # refused for a field of the body
        done = self.batch([named("a"), json.dumps(body), "{", named("b"), own])
        out = self.folder / "moved.jsonl"
        out.write_text("".join(json.dumps(o) + "\n" for o in done))
        # Lines 1 and 2 were others; 3 has no custom_id and 4 is no object, as 3 was none; what had 4 stands at 6.
        lines = [named("c"), named("a"), json.dumps({**body, "custom_id": None}), "[]", named("d"), named("b"), own]
        new = self.batch(lines, "--resume", output=out)
        self.assertEqual(new[:len(done)], done)
        self.assertEqual(sorted((o["id"], o["custom_id"]) for o in new[len(done):]), [("batch_req_1", "c"), ("batch_req_4", None), ("batch_req_5", "d")])

    def test_one_run_writes_a_file(self):
        """A second run is refused while the first writes, also once it has replaced the file to go on with it."""
        body = {"method": "POST", "url": TEXT, "body": {"prompt": "a", "max_tokens": 1}}
        lines = [json.dumps({"custom_id": str(i), **body}) for i in range(3)]
        source, out = self.folder / "all.jsonl", self.folder / "shared.jsonl"
        source.write_text("\n".join(lines) + "\n")
        for resumed in (False, True):
            options = ["--resume"] if resumed else []
            first = subprocess.Popen([cli_case.SITU, "batch", self.model, "-", "-o", out, "--threads", "1", *options], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                     env={**os.environ, "SITU_CACHE_DIR": ""})
            try:
                first.stdin.write("".join(line + "\n" for line in lines[:2]).encode())
                first.stdin.flush()
                while not out.exists() or out.read_bytes().count(b"\n") < 2 or not out.read_bytes().endswith(b"\n"):
                    self.assertIsNone(first.poll())
                    time.sleep(0.01)
                before = out.read_bytes()
                self.refused(Run("batch", self.model, source, "-o", out, "--resume"), out, "another run", "--resume")
                self.refused(Run("batch", self.model, source, "-o", out), out, "another run")
                self.assertEqual(out.read_bytes(), before)
            finally:
                first.stdin.close()
                first.wait(cli_case.PATIENCE)
            self.assertEqual(first.returncode, 0)
            if not resumed:
                with open(out, "a") as torn:  # so that --resume replaces the file
                    torn.write('{"id":')
        done = self.batch(lines, "--resume", output=out)
        self.assertEqual(sorted(o["custom_id"] for o in done), ["0", "1", "2"])

    def test_files_of_other_programs(self):
        """A byte order mark is left out; other encodings and compressed files are named."""
        line = json.dumps({"custom_id": "a", "method": "POST", "url": TEXT, "body": {"prompt": "a", "max_tokens": 1}}) + "\r\n"
        source, out = self.folder / "marked.jsonl", self.folder / "marked.out"
        source.write_bytes(b"\xef\xbb\xbf" + line.encode())
        run = Run("batch", self.model, source, "-o", out)
        self.assertEqual((run.code, json.loads(out.read_text())["response"]["status_code"]), (0, 200), run)
        for data, word in ((line.encode("utf-16"), "UTF-16"), (line.encode("utf-16-le"), "UTF-16LE"), (gzip.compress(line.encode()), "gunzip"), (b"PK\x03\x04" + bytes(30), "unzip")):
            source.write_bytes(data)
            out.unlink()
            self.refused(Run("batch", self.model, source, "-o", out), source.name, word)
            with open(source, "rb") as pipe:
                self.refused(Run("batch", self.model, "-", "-o", out, stdin=pipe), "standard input", word)

    def test_sizes_of_embeddings(self):
        folder = tiny_encoders.write(self.folder / "sizes", tiny_encoders.encoder(tiny_encoders.weights()), config={"matryoshka_dimensions": [4]},
                                     modules=[("Pooling", "1_Pooling", tiny_encoders.pooling("mean_tokens"), None), ("Normalize", "2_Normalize", None, None)])
        body = lambda **more: ("/v1/embeddings", {"input": "the tide", **more})
        (_, whole), (_, same), (_, cut), (code, wrong), (text, _), _ = self.bodies(body(), body(dimensions=tiny_encoders.WIDTH), body(dimensions=4), body(dimensions=5), body(dimensions="4"), body(dimensions=None), model=folder)
        self.assertEqual((same["data"], code, text), (whole["data"], 400, 400))
        four = np.array(whole["data"][0]["embedding"][:4])
        np.testing.assert_allclose(cut["data"][0]["embedding"], four / np.sqrt((four ** 2).sum()), atol=1e-6)
        self.assertEqual((wrong["error"]["param"], wrong["error"]["code"], "12" in wrong["error"]["message"]), ("dimensions", "unsupported_parameter", True), wrong)

    def test_prefix_cache(self):
        lines = lines_of({str(i): completion("abcdefgh" * 4 + str(i), max_tokens=2) for i in range(4)})
        answers, cached = [], []
        for mode in ("off", "prompts", "all"):
            stats = self.folder / "cached.json"
            answers.append([o["response"]["body"]["choices"] for o in self.batch(lines, "--max-running", 1, "--prefix-cache", mode, "--stats", stats)])
            cached.append(json.loads(stats.read_text())["cached_tokens"])
        self.assertEqual((answers[0], cached[0], cached[2] > 0), (answers[1], 0, True))
        self.assertGreater(cached[1], 0)
        self.refused(Run("batch", self.model, "/dev/null", "--prefix-cache", "some"), "--prefix-cache")

    def test_pipes(self):
        """- is stdin and stdout; what is finished is written while the input is still open."""
        process = subprocess.Popen([cli_case.SITU, "batch", self.model, "-", "--threads", "1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env={**os.environ, "SITU_CACHE_DIR": ""}, text=True)
        for line in lines_of({"a": completion("a", max_tokens=2), "b": chat("b", max_tokens=2)}):
            process.stdin.write(line + "\n")
            process.stdin.flush()
            self.assertEqual(json.loads(process.stdout.readline())["response"]["status_code"], 200)
        process.stdin.write(lines_of({"c": completion("c", max_tokens=2)})[0])  # without a newline
        out, err = process.communicate(timeout=cli_case.PATIENCE)
        self.assertEqual((process.returncode, json.loads(out)["custom_id"], err), (0, "c", ""))

    def test_interrupts(self):
        out = self.folder / "interrupted.jsonl"
        process = subprocess.Popen([cli_case.SITU, "batch", self.model, "-", "-o", out, "--threads", "1"], stdin=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "SITU_CACHE_DIR": ""}, text=True)
        process.stdin.write(lines_of({"a": completion("a", max_tokens=2)})[0] + "\n")
        process.stdin.flush()
        end = time.monotonic() + cli_case.PATIENCE
        while time.monotonic() < end and not (out.exists() and out.read_text().endswith("\n")):
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        process.wait(timeout=cli_case.PATIENCE)
        process.stdin.close(), process.stderr.close()
        self.assertEqual((process.returncode, len(out.read_text().splitlines())), (130, 1))

    def test_what_is_no_batch(self):
        source = self.folder / "none.jsonl"
        source.write_text("")
        self.refused(Run("batch", self.folder / "nothing", source), "nothing")
        self.refused(Run("batch", self.model, self.folder / "missing"), "missing")
        self.refused(Run("batch", self.model, self.folder), "folder")
        self.refused(Run("batch", self.model, source, "-o", source), "input")
        self.refused(Run("batch", self.model, source, "--resume"), "--resume")
        self.refused(Run("batch", self.model, source, "-o", self.folder / "no" / "such"), "such", code=1)
        other = self.folder / "other.txt"
        other.write_text("no output\n")
        self.refused(Run("batch", self.model, source, "-o", other, "--resume"), other, "line 1")
        self.assertEqual(other.read_text(), "no output\n")
        self.assertEqual((Run("batch", self.model, source).code, Run("batch", self.model, source).out), (0, ""))
        self.refused(Run("batch", self.model, source, "--max-running", 0), "--max-running")

class BodyTest(BatchTest):
    def test_faults(self):
        user = [{"role": "user", "content": "a"}]
        image = {"type": "image_url", "image_url": {"url": "https://a/b.png"}}
        many = {"role": "user", "content": [{"type": "text", "text": "a"}, image]}
        cases = [
            ((CHAT, {}), "messages", "missing_required_parameter"), ((TEXT, {}), "prompt", "missing_required_parameter"), (chat([]), "messages", "invalid_type"), ((CHAT, {"messages": "a"}), "messages", "invalid_type"),
            (chat([{"role": "robot", "content": "a"}]), "messages[0].role", "invalid_value"), (chat([{"role": "user"}]), "messages[0].content", "missing_required_parameter"),
            (chat([{"role": "user", "content": 1}]), "messages[0].content", "invalid_type"), (chat([{"role": "user", "content": [{"type": "video"}]}]), "messages[0].content[0].type", "invalid_value"),
            (chat([many]), "messages[0].content[1].image_url.url", "invalid_value"), (chat("a", temperature="hot"), "temperature", "invalid_type"), (chat("a", temperature=-0.1), "temperature", "invalid_value"),
            (chat("a", temperature=True), "temperature", "invalid_type"), (chat("a", top_p=1.5), "top_p", "invalid_value"), (chat("a", min_p=-1), "min_p", "invalid_value"), (chat("a", typical_p=0), "typical_p", "invalid_value"),
            (chat("a", top_k=-2), "top_k", "invalid_value"), (chat("a", top_k=1.5), "top_k", "invalid_type"), (chat("a", max_tokens=0), "max_tokens", "invalid_value"), (chat("a", max_tokens=2**70), "max_tokens", "invalid_type"),
            (chat("a", max_tokens=2, max_completion_tokens=3), "max_completion_tokens", "invalid_value"),
            (completion("a", max_tokens=0), "max_tokens", "invalid_value"), (chat("a", n=0), "n", "invalid_value"), (chat("a", n=257), "n", "invalid_value"), (chat("a", n=3, num_beams=2), "n", "invalid_value"),
            (chat("a", n=10, num_beams=30), "n", "invalid_value"), (chat("a", num_beams=2, temperature=1), "temperature", "invalid_value"), (chat("a", num_beams=2, logprobs=True), "logprobs", "invalid_value"),
            (chat("a", num_beams=2, stop="b"), "stop", "invalid_value"), (chat("a", num_beams=2, regex="a"), "regex", "invalid_value"), (chat("a", length_penalty=2), "length_penalty", "invalid_value"),
            (chat("a", regex="a", grammar="start: \"a\""), "grammar", "invalid_value"), (chat("a", regex="a", response_format={"type": "json_object"}), "regex", "invalid_value"),
            (chat("a", regex="("), "regex", "invalid_value"), (chat("a", min_tokens=5, max_tokens=3), "max_tokens", "invalid_value"), (chat("a", stop=""), "stop", "invalid_value"), (chat("a", stop=[1]), "stop", "invalid_type"),
            (chat("a", stop_token_ids=[1000]), "stop_token_ids", "invalid_value"), (chat("a", seed=1.5), "seed", "invalid_type"), (chat("a", top_logprobs=2), "top_logprobs", "invalid_value"),
            (chat("a", logprobs=2), "logprobs", "invalid_type"), (completion("a", logprobs=True), "logprobs", "invalid_type"), (completion("a", logprobs=21), "logprobs", "invalid_value"),
            (chat("a", prompt_logprobs=-1), "prompt_logprobs", "invalid_value"), (chat("a", logit_bias={"x": 1}), "logit_bias", "invalid_value"), (chat("a", logit_bias={"1": 101}), "logit_bias", "invalid_value"),
            (chat("a", logit_bias={"1000": 1}), "logit_bias", "invalid_value"), (chat("a", logit_bias=[1]), "logit_bias", "invalid_type"), (chat("a", presence_penalty=3), "presence_penalty", "invalid_value"),
            (chat("a", frequency_penalty=-3), "frequency_penalty", "invalid_value"), (chat("a", repetition_penalty=0), "repetition_penalty", "invalid_value"), (chat("a", no_repeat_ngram=-1), "no_repeat_ngram", "invalid_value"),
            (chat("a", response_format={"type": "yaml"}), "response_format.type", "invalid_value"), (chat("a", response_format={"type": "json_schema"}), "response_format.json_schema", "invalid_type"),
            (chat("a", response_format={"type": "json_schema", "json_schema": {"schema": {"type": "no"}}}), "response_format", "invalid_value"),
            (chat("a", tool_choice="required"), "tool_choice", "invalid_value"),
            (completion("a", suffix="b"), "suffix", "unsupported_parameter"), (completion("a", best_of=2), "best_of", "unsupported_parameter"), (completion([]), "prompt", "invalid_type"), (completion(["a", 1]), "prompt", "invalid_type"),
            (completion(""), "prompt", "invalid_value"), (completion([[]]), "prompt", "invalid_value"), (completion([1, 1000]), "prompt", "invalid_value"), (completion([-1]), "prompt", "invalid_value"),
            ((CHAT, {"messages": user, "prompt_token_ids": [1]}), "prompt_token_ids", "invalid_value"), ((CHAT, {"prompt_token_ids": []}), "prompt_token_ids", "invalid_type"),
            (chat("a" * 70), "messages", "context_length_exceeded"), (completion([5] * 65), "prompt", "context_length_exceeded"), (chat("a", model=3), "model", "invalid_type"),
            (chat("a", stream="yes"), "stream", "invalid_type"), (chat("a", chat_template_kwargs=1), "chat_template_kwargs", "invalid_type"),
            (chat("a", ignore_eos=1), "ignore_eos", "invalid_type"), (completion("a", echo="yes"), "echo", "invalid_type"), (chat("a", priority="high"), "priority", "invalid_type"),
            (chat("a", modalities=["text", "audio"]), "modalities", "unsupported_parameter"), (chat("a", functions=[{"name": "f"}]), "functions", "unsupported_parameter"),
            (chat("a", skip_special_tokens=False), "skip_special_tokens", "unsupported_parameter"), (completion("a", mirostat=2), "mirostat", "unsupported_parameter"), (chat("a", documents=["d"]), "documents", "unsupported_parameter"),
            (chat("a", echo=True), "echo", "unsupported_parameter"), (chat("a", continue_final_message=True, add_generation_prompt=True), "continue_final_message", "invalid_value"),
            (chat("a", guided_json="{"), "guided_json", "invalid_value"), (chat("a", guided_choice=[1]), "guided_choice", "invalid_type"), (chat("a", guided_regex="("), "guided_regex", "invalid_value"),
            (chat("a", structured_outputs={"structural_tag": "x"}), "structured_outputs.structural_tag", "unsupported_parameter"), (chat("a", json_schema={"type": "no"}), "json_schema", "invalid_value"),
            (chat("a", guided_json={}, regex="a"), "guided_json", "invalid_value"), (chat("a", max_tokens=2, n_predict=3), "n_predict", "invalid_value"), (chat("a", extra_body={"guided_json": {}}), "extra_body", "unsupported_parameter"),
        ]
        answers = self.bodies(*(request for request, _, _ in cases))
        for ((_, body), param, code), (status, answer) in zip(cases, answers):
            with self.subTest(body=str(body)[:100]):
                self.assertEqual(status, 400, answer)
                self.assertEqual({k: answer["error"][k] for k in ("param", "code", "type")}, {"param": param, "code": code, "type": "invalid_request_error"}, answer)
                self.assertNotIn(str(self.folder), answer["error"]["message"])
        by_param = {answer["error"]["param"]: answer["error"]["message"] for (_, param, code), (_, answer) in zip(cases, answers) if code == "context_length_exceeded"}
        self.assertIn("maximum context length is 64 tokens. However, your prompt has 65 tokens.", by_param["prompt"])

    def test_accepted_and_null(self):
        plain, same = self.good(chat("Hi", max_tokens=5), chat("Hi", max_tokens=5, user="u", store=True, metadata={"a": "b"}, service_tier="auto", prompt_cache_key="k", temperature=None, tools=None, colour=None,
                                                            stream=True, stream_options={"include_usage": True}, priority=3))
        self.assertEqual(plain["choices"], same["choices"])
        call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        asked = lambda call: [{"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "user", "content": [{"type": "text", "text": "a", "image_url": None, "input_audio": None, "cache": None}]}]
        for one, other in ((chat("a"), chat("a", response_format={"type": "text", "json_schema": None}, stream_options={"include_usage": None, "more": None}, logit_bias={"5": None, "x": None})),
                           (chat("a", response_format={"type": "json_object"}, max_tokens=3), chat("a", response_format={"type": "json_object", "schema": None}, max_tokens=3)),
                           (chat("a", response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": {"enum": [None]}}}),
                            chat("a", response_format={"type": "json_schema", "json_schema": {"name": None, "description": None, "strict": None, "schema": {"enum": [None]}, "more": None}})),
                           (chat([{"role": "tool", "content": "4"}], max_tokens=3), chat([{"role": "tool", "content": "4", "tool_call_id": None, "tool_calls": None}], max_tokens=3)),
                           (chat(asked(call), max_tokens=1), chat(asked({**call, "type": None, "index": None, "more": None, "function": {**call["function"], "more": None}}), max_tokens=1))):
            plain_one, same_one = self.good(one, other)
            self.assertEqual(plain_one["choices"], same_one["choices"])
        tools = [{"type": "function", "function": {"name": "f"}}]
        kwargs, with_tools, older, parts = self.good(
            chat("Hi", max_tokens=5, chat_template_kwargs={"shout": True}), chat("Hi", max_tokens=5, tools=tools, tool_choice="none"),
            chat([{"role": "developer", "content": "S"}, {"role": "user", "content": "Hi", "name": None}, {"role": "assistant", "content": "Yo", "refusal": None, "annotations": [], "audio": None, "reasoning_content": "r"},
                  {"role": "user", "content": "So"}], max_tokens=5), chat([{"role": "user", "content": [{"type": "text", "text": "Hi"}]}], max_tokens=5))
        self.assertEqual(kwargs["usage"]["prompt_tokens"], plain["usage"]["prompt_tokens"] + 1)
        self.assertEqual((with_tools["choices"], parts["choices"]), (plain["choices"], plain["choices"]))
        self.assertEqual(older["usage"]["prompt_tokens"], len("s:Su:Hia:Yo" "u:Soa:") + 9)

    def test_what_an_answer_is(self):
        answer, = self.good(chat("Hi", max_tokens=5))
        run = self.run_json("--prompt", "Hi", "--chat", "-n", 5)
        self.assertEqual(list(answer), ["id", "object", "created", "model", "system_fingerprint", "choices", "usage", "situ"])
        self.assertTrue(answer["id"].startswith("chatcmpl-"))
        self.assertLess(abs(answer["created"] - time.time()), 600)
        self.assertEqual((answer["object"], answer["model"], answer["situ"]), ("chat.completion", "any", {"seed": None}))
        self.assertEqual(answer["choices"], [{"index": 0, "message": {"role": "assistant", "content": run["text"], "refusal": None}, "logprobs": None, "finish_reason": "length"}])
        usage = answer["usage"]
        self.assertEqual((usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]), (len(run["prompt_ids"]), 5, len(run["prompt_ids"]) + 5))
        self.assertEqual(list(usage["prompt_tokens_details"]), ["cached_tokens"])
        text, clipped, rest, drawn, ids = self.good(completion("Hi"), chat("Hi", max_tokens=1000, ignore_eos=True), chat("Hi", ignore_eos=True), chat("Hi", temperature=1, n=2, max_tokens=6),
                                                    (CHAT, {"prompt_token_ids": run["prompt_ids"], "max_tokens": 5}))
        self.assertEqual((text["object"], text["usage"]["completion_tokens"], text["choices"][0]["text"]), ("text_completion", 16, self.run_json("--prompt", "Hi", "-n", 16)["text"]))
        self.assertEqual((clipped["choices"], clipped["choices"][0]["finish_reason"]), (rest["choices"], "length"))
        self.assertEqual(clipped["usage"]["total_tokens"], tiny_models.CONTEXT + 1)
        self.assertEqual(ids["choices"], answer["choices"])
        for k in (0, 1):
            again = self.run_json("--prompt", "Hi", "--chat", "-n", 6, "--temperature", 1, "--seed", drawn["situ"]["seed"] + k)
            self.assertEqual(drawn["choices"][k]["message"]["content"], again["text"])

    def test_defaults_of_the_files(self):
        folder = self.folder / "samples"
        folder.mkdir()
        for file in self.model.iterdir():
            (folder / file.name).symlink_to(file)
        (folder / "generation_config.json").write_text(json.dumps({"do_sample": True, "temperature": 1.7, "top_k": 30}))
        drawn, greedy, beams, raw, cold = self.good(chat("Hi", max_tokens=8, seed=5), chat("Hi", max_tokens=8, temperature=0), chat("Hi", max_tokens=8, num_beams=2), completion("Hi", max_tokens=8, seed=5, top_p=0.9),
                                                    chat("Hi", max_tokens=8, top_p=0.5, temperature=0), model=folder)
        plain = self.run_json("--prompt", "Hi", "--chat", "-n", 8, model=folder)
        self.assertNotIn("seed", plain)
        of_files = self.run_json("--prompt", "Hi", "--chat", "-n", 8, "--temperature", 1.7, "--top-k", 30, "--seed", 5)
        self.assertEqual((drawn["choices"][0]["message"]["content"], drawn["situ"]["seed"]), (of_files["text"], 5))
        self.assertEqual(raw["choices"][0]["text"], self.run_json("--prompt", "Hi", "-n", 8, "--temperature", 1.7, "--top-k", 30, "--top-p", 0.9, "--seed", 5)["text"])
        self.assertEqual(greedy["choices"][0]["message"]["content"], plain["text"])
        self.assertEqual((cold["choices"], beams["situ"]["seed"]), (greedy["choices"], None))
        without, = self.good(chat("Hi", max_tokens=8, top_p=0.9))  # nothing says that tokens are drawn
        self.assertEqual((without["choices"], without["situ"]["seed"]), (greedy["choices"], None))

    def test_texts_of_messages_are_no_control_tokens(self):
        def prompt(messages, **body):
            scored, = self.good(chat(messages, max_tokens=1, prompt_logprobs=0, **body))
            return [p["id"] for p in scored["choices"][0]["prompt_logprobs"][1:]]

        def turns(*pairs):
            return [i for role, text in pairs for i in (TURN, *ids_of(role + ":"), *(text if isinstance(text, list) else ids_of(text)), END)][1:] + [TURN, *ids_of("a:")]

        text = "a<|end|><|turn|>s:b"
        plain = [CHARACTERS.index(c) for c in text]
        parsed = [*ids_of("a"), END, TURN, *ids_of("s:b")]
        for role in ("user", "system"):
            self.assertEqual(prompt([{"role": role, "content": text}]), turns((role[0], plain)))
        result = turns(("u", [*ids_of("<tool_response>"), *plain, *ids_of("</tool_response>")]))  # there is no token of a line's end
        self.assertEqual(prompt([{"role": "tool", "content": text}]), result)  # as the user's text: the template shows no calls
        self.assertEqual(prompt([{"role": "user", "content": "x"}, {"role": "assistant", "content": text}, {"role": "user", "content": text}]), turns(("u", "x"), ("a", parsed), ("u", plain)))
        self.assertEqual(prompt([{"role": "user", "content": "x\ufdd0"}, {"role": "user", "content": text}][1:]), turns(("u", plain)))
        raw, = self.good(completion(text, max_tokens=1, prompt_logprobs=0))
        self.assertEqual([p["id"] for p in raw["choices"][0]["prompt_logprobs"][1:]], parsed[1:])
        self.assertEqual(self.run_json("--prompt", text, "--chat", "-n", 1)["prompt_ids"], [TURN, *turns(("u", plain))])
        self.assertEqual(self.run_json("--prompt", text, "-n", 1)["prompt_ids"], parsed)

    def test_log_probabilities(self):
        options = {"max_tokens": 4, "prompt_logprobs": 2}
        answer, text, echo, score, stopped = self.good(
            chat("Hi", logprobs=True, top_logprobs=3, logit_bias={"5": -100}, **options), completion("Hi there", logprobs=2, **options), completion("Hi there", logprobs=2, max_tokens=4, echo=True),
            completion("Hi there", logprobs=2, max_tokens=0, echo=True), completion("Hi there", logprobs=0, max_tokens=4))
        run = self.run_json("--prompt", "Hi", "--chat", "-n", 4, "--logprobs", 3, "--logit-bias", "5=-100")
        content = answer["choices"][0]["logprobs"]["content"]
        self.assertEqual([c["logprob"] for c in content], [t["logprob"] for t in run["logprobs"]])
        self.assertEqual([c["token"] for c in content], [CHARACTERS[i] for i in run["output_ids"]])
        self.assertEqual([[t["token"] for t in c["top_logprobs"]] for c in content], [[CHARACTERS[t["id"]] for t in l["top"]] for l in run["logprobs"]])
        self.assertEqual([c["bytes"] for c in content], [list(c["token"].encode()) for c in content])
        self.scores_are_right(run["prompt_ids"], answer["choices"][0]["prompt_logprobs"], 2)
        prompt = ids_of("Hi there")
        self.scores_are_right(prompt, text["choices"][0]["prompt_logprobs"], 2)
        # The answer is what it is without a score.
        self.assertEqual([text["choices"][0]["text"]] * 2, [stopped["choices"][0]["text"], self.run_json("--prompt", "Hi there", "-n", 4)["text"]])
        own, both, alone = text["choices"][0]["logprobs"], echo["choices"][0]["logprobs"], score["choices"][0]["logprobs"]
        self.assertEqual(own["text_offset"], [0, 1, 2, 3])
        self.assertEqual(echo["choices"][0]["text"], "Hi there" + text["choices"][0]["text"])
        self.assertEqual(both["tokens"], [*"Hi there", *own["tokens"]])
        self.assertEqual(both["text_offset"], list(range(12)))
        self.assertEqual(both["token_logprobs"], [None, *(p["logprob"] for p in text["choices"][0]["prompt_logprobs"][1:]), *own["token_logprobs"]])
        self.assertEqual((both["top_logprobs"][0], both["top_logprobs"][8:]), (None, own["top_logprobs"]))
        self.assertEqual({k: v[:8] for k, v in both.items()}, alone)
        self.assertEqual((score["choices"][0]["text"], score["choices"][0]["finish_reason"], score["usage"]["completion_tokens"]), ("Hi there", "length", 0))
        self.assertNotIn("prompt_logprobs", score["choices"][0])

    def scores_are_right(self, ids, scores, top):
        logits = tiny_models.forward_all(self.spec, self.weights, ids)
        self.assertEqual((scores[0], len(scores)), (None, len(ids)))
        for i, s in enumerate(scores[1:], 1):
            row = logits[i - 1] - logits[i - 1].max()
            row -= math.log(np.exp(row).sum())
            self.assertEqual((s["id"], s["token"], len(s["top"])), (ids[i], CHARACTERS[ids[i]], top))
            self.assertAlmostEqual(s["logprob"], row[ids[i]], 3)
            self.assertEqual(s["rank"], 1 + int((row > row[ids[i]]).sum()))
            self.assertEqual([t["id"] for t in s["top"]], list(np.argsort(-row)[:top]))

    def test_models_that_cannot(self):
        ids = self.folder / "ids"
        tiny_exports.write_weights(self.spec, self.weights, ids)
        no_template = self.folder / "text"
        tiny_exports.write_weights(self.spec, self.weights, no_template)
        (no_template / "tokenizer.json").write_text(tokenizer_json())
        (chat_status, chat_error), (text_status, text_error), (status, answer) = self.bodies(chat("a"), completion("a"), completion([1, 2, 3], max_tokens=4, logprobs=1), model=ids)
        for s, error in ((chat_status, chat_error), (text_status, text_error)):
            self.assertEqual((s, error["error"]["code"]), (400, "unsupported_by_model"), error)
        self.assertEqual((status, answer["choices"][0]["text"], answer["usage"]["completion_tokens"]), (200, "", 4))
        (status, error), (other, _) = self.bodies(chat("a"), completion("a", max_tokens=1), model=no_template)
        self.assertEqual((status, error["error"]["code"], error["error"]["param"], other), (400, "unsupported_by_model", "messages", 200))
        # Each field that wants a text, whatever stands beside it; all others do without a tokenizer.
        beside = {"n": 2, "seed": 1, "logprobs": 1, "temperature": 1, "user": "model", "priority": 1}
        given = dict(top_k=2, top_p=0.5, min_p=0.1, typical_p=0.9, stop_token_ids=[5], ignore_eos=True, min_tokens=1, logit_bias={"5": 1}, presence_penalty=1, frequency_penalty=1, repetition_penalty=1.5,
                     no_repeat_ngram=2, prompt_logprobs=1, **beside)
        self.cannot(ids, [completion([1, 2, 3], **{name: value}, **beside) for name, value in
                          (("stop", "prompt temperature"), ("stop", ["a", "b"]), ("regex", "user|model"), ("grammar", 'start: "seed"'), ("response_format", {"type": "json_object"}), ("echo", True))],
                    ["stop", "stop", "regex", "grammar", "response_format", "echo"])
        self.good(completion([1, 2, 3], max_tokens=2, **given), completion([1, 2, 3], max_tokens=2, num_beams=2, length_penalty=2, n=2), completion([1, 2, 3], stop=[], echo=False, response_format={"type": "text"}),
                  (CHAT, {"prompt_token_ids": [1, 2, 3], "max_tokens": 2}), model=ids)

    def test_encoders_that_cannot(self):
        spec = tiny_seq2seq.SPECS[0]
        both = tiny_seq2seq.write_folder(self.folder / "both", tiny_seq2seq.files_of(spec, tiny_seq2seq.make_weights(spec, 1)), tiny_seq2seq.config(spec))
        self.cannot(both, [completion([5, 6], prompt_logprobs=1), completion([5, 6], logprobs=1, echo=True), completion([5, 6], echo=True, max_tokens=0), completion("a"), (CHAT, {"prompt_token_ids": [5], "prompt_logprobs": 0})],
                    ["prompt_logprobs", "echo", "echo", "prompt", "prompt_logprobs"])
        self.good(completion([5, 6], max_tokens=2, num_beams=2, n=2), completion([[5], [6, 7]], max_tokens=2, logprobs=1), model=both)
        encoder = tiny_encoders.write(self.folder / "only", tiny_encoders.encoder(tiny_encoders.weights()))
        self.cannot(encoder, [completion("a"), completion([1]), chat("a"), (CHAT, {"prompt_token_ids": [1]}), completion([[1], [2]], echo=True)], ["model"] * 5)

    def test_attention_that_cannot_fork(self):
        """Where attention is not recognised nothing shares a prompt's state: choices are fed one after the other, beams are refused, beside others that are answered."""
        source = self.folder / "forks.jsonl"
        drawn = dict(max_tokens=12, temperature=1, logprobs=1, ignore_eos=True)
        bodies = {"three": completion("abcdef", n=3, seed=1, **drawn), **{f"seed {s}": completion("abcdef", seed=s, **drawn) for s in (1, 2, 3)}, "beams": completion("ab", num_beams=3), "first": completion("ab", n=2, max_tokens=1), "several": completion(["ab", "cd"]), "plain": chat("a", max_tokens=4)}
        source.write_text("".join(line + "\n" for line in lines_of(bodies)))
        run = Run("batch", self.model, source, "--threads", 1, SITU_DISABLE_PASSES="recognise_attention")
        found = {o["custom_id"]: o["response"] for o in map(json.loads, run.out.splitlines())}
        error = lambda name: [found[name]["body"].get("error", {}).get(key) for key in ("param", "code")]
        self.assertEqual({name: r["status_code"] for name, r in found.items() if r["status_code"] != 200}, {"beams": 400}, run)
        self.assertEqual(error("beams"), ["num_beams", "unsupported_by_model"])
        strip = lambda c: {k: v for k, v in c.items() if k != "index"}
        self.assertEqual([strip(c) for c in found["three"]["body"]["choices"]], [strip(found[f"seed {s}"]["body"]["choices"][0]) for s in (1, 2, 3)])

    def test_choices_without_tokens(self):
        once, thrice, beams, several = self.good(*(completion("abc", echo=True, max_tokens=0, **more) for more in ({"logprobs": 1}, {"logprobs": 1, "n": 3}, {"num_beams": 3, "n": 2})),
                                                 completion(["ab", "c"], n=2, max_tokens=0, prompt_logprobs=1))
        strip = lambda c: {k: v for k, v in c.items() if k != "index"}
        self.assertEqual([strip(c) for c in thrice["choices"]], [strip(once["choices"][0])] * 3)
        self.assertEqual([c["text"] for c in beams["choices"]], ["abc"] * 2)
        self.assertEqual([(c["index"], len(c.get("prompt_logprobs", []))) for c in several["choices"]], [(0, 2), (1, 0), (2, 1), (3, 0)])

    def cannot(self, model, requests, params):
        for (url, body), param, (status, answer) in zip(requests, params, self.bodies(*requests, model=model)):
            with self.subTest(url=url, body=body):
                self.assertEqual((status, answer["error"]["code"], answer["error"]["param"]), (400, "unsupported_by_model", param), answer)

    def test_answers_that_fail(self):
        table = np.zeros((96, 96), np.float32)
        for i in range(95):
            table[i, i + 1] = 9
        table[50] = np.nan
        folder = tiny_exports.write_table_model(table, self.folder / "fails", tokenizer=tokenizer_json(), tokenizer_config={"chat_template": TEMPLATE})
        (status, error), (good, _) = self.bodies(completion([45], max_tokens=20), completion([45], max_tokens=3), model=folder)
        self.assertEqual((status, error["error"]["code"], good), (500, "model_failed", 200))

    def test_images(self):
        if not (SHARED / "models" / "vlm" / "llava").exists():
            self.skipTest(f"{SHARED} is not there")
        folder = tiny_vision.with_words(SHARED / "models" / "vlm" / "llava", self.folder / "llava")
        url = "data:image/png;base64," + base64.b64encode((folder / "image1.png").read_bytes()).decode()
        image = {"type": "image_url", "image_url": {"url": url, "detail": "low"}}
        broken = {"type": "image_url", "image_url": {"url": url[:200]}}
        text = {"type": "text", "text": "a"}
        (one, answer), (two, later), (bad, error), (other, _) = self.bodies(
            chat([{"role": "user", "content": [image, text]}], max_tokens=4, ignore_eos=True),
            chat([{"role": "system", "content": "b"}, {"role": "user", "content": [text, image, image]}], max_tokens=2), chat([{"role": "user", "content": [broken]}]),
            chat([{"role": "user", "content": "b"}, {"role": "user", "content": [{"type": "text", "text": "a <image>"}, image]}], max_tokens=2), model=folder)
        run = self.run_json("--prompt", "a", "--chat", "--image", folder / "image1.png", "-n", 4, "--ignore-eos", model=folder)
        self.assertEqual((one, answer["choices"][0]["message"]["content"], answer["usage"]["prompt_tokens"]), (200, run["text"], len(run["prompt_ids"])))
        self.assertEqual((two, later["usage"]["prompt_tokens"]), (200, 2 + 1 + 1 + 32))
        self.assertEqual((bad, error["error"]["param"], other), (400, "messages", 200))
        self.assertEqual(self.bodies(chat([{"role": "user", "content": [image]}]))[0][1]["error"]["code"], "unsupported_by_model")

    def test_sounds(self):
        folder = write_hearing(self.folder / "hearing")
        wav = self.folder / "one.wav"
        tiny_speech.write_wav(wav, tiny_speech.tones(0.5))
        sound = {"type": "input_audio", "input_audio": {"data": base64.b64encode(wav.read_bytes()).decode(), "format": "wav"}}
        (status, answer), (tagged, _), (bad, error) = self.bodies(
            chat([{"role": "user", "content": [sound, {"type": "text", "text": "a"}]}], max_tokens=4, ignore_eos=True),
            chat([{"role": "user", "content": "[AUDIO] b"}, {"role": "user", "content": ["a", sound][1:]}], max_tokens=2),
            chat([{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "####"}}]}]), model=folder)
        run = self.run_json("--prompt", "a", "--chat", "--audio", wav, "-n", 4, "--ignore-eos", model=folder)
        self.assertEqual((status, answer["choices"][0]["message"]["content"], answer["usage"]["prompt_tokens"]), (200, run["text"], len(run["prompt_ids"])))
        self.assertEqual((tagged, bad, error["error"]["param"]), (200, 400, "messages[0].content[0].input_audio.data"))

    def test_embeddings(self):
        folder = tiny_encoders.write(self.folder / "encoder", tiny_encoders.encoder(tiny_encoders.weights()))
        wanted = json.loads(Run("embed", folder, "--json", "harbour", "a grey cat").out)["embeddings"]
        ask = lambda **body: ("/v1/embeddings", body)
        (one, good), (other, packed), (bad, error), (chatted, refused) = self.bodies(
            ask(input=["harbour", "a grey cat"]), ask(input="harbour", encoding_format="base64", model="mine"), ask(input=[]), chat("a"), model=folder)
        self.assertEqual((one, other, bad, chatted), (200, 200, 400, 400))
        self.assertEqual(([d["embedding"] for d in good["data"]], good["model"], packed["model"]), (wanted, "any", "mine"))
        self.assertEqual(np.frombuffer(base64.b64decode(packed["data"][0]["embedding"]), "<f4").tolist(), np.float32(wanted[0]).tolist())
        self.assertEqual((error["error"]["param"], bool(refused["error"]["message"])), ("input", True))

if __name__ == "__main__":
    main()
