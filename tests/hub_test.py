"""Models by name: `situ pull` and what takes a name in place of a path, against a hub on loopback.

    python tests/hub_test.py --situ build/situ [unittest options]

Needs numpy and onnx (`make python`); tests with huggingface_hub install it beside the program, once.
"""
import fcntl
import json
import os
import resource
import shutil
import signal
import ssl
import subprocess
import textwrap
import time
import urllib.error
import urllib.request
from pathlib import Path

import onnx

import cli_case
from cli_case import Run, main
from hub_case import Hub, HubTest, cut, files_of, instead, sha256, status
from sampling_test import write_chat_model
from serve_clients_test import installed

NAME = "org/model"
TEMPLATE = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}a:"


def in_layout(folder, *precisions):
    """The files of a model folder as transformers.js lays them out: its graph below onnx/, once for each precision."""
    files = files_of(folder)
    graph = files.pop("model.onnx")
    for p in precisions:
        files[f"onnx/model{'' if p == 'fp32' else '_' + p}.onnx"] = graph if p == "fp32" else smaller(graph, p)
    return files


def smaller(graph, label):
    """The same graph with other bytes, so that each precision has its own file."""
    model = onnx.load_model_from_string(graph)
    model.doc_string = label
    return model.SerializeToString()


class NamesTest(HubTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = write_chat_model(cls.folder / "model", TEMPLATE)
        cls.files = files_of(cls.model)
        cls.answer = Run("run", cls.model, "--prompt", "Hi", "-n", 4, "--ignore-eos").out

    def setUp(self):
        super().setUp()
        self.commit = self.hub.add(NAME, self.files, large={"model.onnx"})
        self.snapshot = self.cache / "models--org--model" / "snapshots" / self.commit

    def situ(self, *arguments, **environment):
        return Run(*arguments, **self.environment(**environment))

    def pull(self, *arguments, **environment):
        return self.situ("pull", *(arguments or (NAME,)), **environment)

    def run_model(self, *arguments, **environment):
        return self.situ("run", *(arguments or (NAME,)), "--prompt", "Hi", "-n", 4, "--ignore-eos", **environment)

    def failed(self, run, code, *words):
        """One line that holds the words, and nothing on standard output."""
        self.assertEqual((run.code, run.out, run.stopped), (code, "", ""), run)
        lines = run.err.splitlines()
        self.assertTrue(lines and lines[-1].startswith("situ: "), run)
        for word in words:
            self.assertIn(str(word), lines[-1], run)

    def nothing_written(self):
        """No file of the repository is there, and no part of one."""
        self.assertEqual([p for p in self.cache.rglob("*") if p.is_file() and "trees" not in p.parts and ".locks" not in p.parts] if self.cache.exists() else [], [])


class PullTest(NamesTest):
    def test_pull_and_run(self):
        pulled = self.pull()
        self.assertEqual((pulled.code, pulled.out), (0, f"{self.snapshot}\n"), pulled)
        self.assertRegex(pulled.err, rf"\Asitu: {NAME}: fp32, {len(self.files)} files, [\d.]+ [kM]?B\n")
        self.assertEqual(files_of(self.snapshot), self.files)
        self.assertEqual((self.cache / "models--org--model" / "refs" / "main").read_text(), self.commit)
        self.assertEqual(os.readlink(self.snapshot / "model.onnx"), f"../../blobs/{sha256(self.files['model.onnx'])}")
        self.assertEqual(self.run_model(self.snapshot).out, self.answer)
        before = len(self.hub.asked())
        again = self.run_model()
        self.assertEqual((again.code, again.out, len(self.hub.asked())), (0, self.answer, before), again)
        asked = self.pull()
        self.assertEqual((asked.out, asked.err, len(self.hub.asked())), (pulled.out, "", before + 1), asked)

    def test_a_first_run_is_one_notice_a_download_and_an_answer(self):
        run = self.run_model()
        self.assertEqual((run.code, run.out), (0, self.answer), run)
        self.assertRegex(run.err, rf"\Asitu: {NAME}: fp32, [^\n]*\n\[\d+ prompt")

    def test_every_command_takes_a_name(self):
        requests = self.folder / "requests.jsonl"
        requests.write_text(json.dumps({"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}}) + "\n")
        text = self.folder / "text.txt"
        text.write_text("abcdef")
        for command in (("check", NAME), ("inspect", NAME, "--json"), ("bench", NAME, "-p", 3, "-n", 2, "--reps", 1), ("perplexity", NAME, text), ("batch", NAME, requests)):
            with self.subTest(command=command[0]):
                run = self.situ(*command)
                self.assertEqual(run.code, 0, run)
        chat = subprocess.run([cli_case.SITU, "chat", NAME, "-n", "2", "--ignore-eos"], input="Hi\n", capture_output=True, text=True, timeout=60, env={**os.environ, "SITU_CACHE_DIR": "", **self.environment()})
        self.assertEqual(chat.returncode, 0, chat.stderr)

    def test_a_path_that_exists_wins(self):
        here = self.folder / "here"
        (here / "org").mkdir(parents=True)
        (here / NAME).symlink_to(self.model)
        run = subprocess.run([cli_case.SITU, "run", NAME, "--prompt", "Hi", "-n", "4", "--ignore-eos"], cwd=here, capture_output=True, text=True, timeout=60, env={**os.environ, "SITU_CACHE_DIR": "", **self.environment()})
        self.assertEqual((run.returncode, run.stdout, self.hub.asked()), (0, self.answer, []), run.stderr)

    def test_what_is_no_name_is_no_request(self):
        for text in ("no-such-model", "./org/model", "org/model/more", "/org/model", "org/", "org/mo..del", "org/a--b", "-/x"):
            run = self.run_model(text) if text[0] != "-" else self.pull("./" + text)
            self.failed(run, 2, "no such file or folder")
        for text, word in ((f"{NAME}@../x", "revision"), (f"{NAME}@a b", "revision"), (f"{NAME}@", "revision"), (f"{NAME}:", "variant"), (f"{NAME}:../x", "variant"), (f"{NAME}@a:b\\c", "variant")):
            self.failed(self.pull(text), 2, word)
        self.assertEqual(self.hub.asked(), [])

    def test_revisions(self):
        other = self.hub.add("org/other", {**self.files, "extra.json": b"{}"}, large={"model.onnx"})
        repository = self.hub.repositories["org/other"]
        repository.revisions |= {"refs/pr/3": other, "v1.0": other}
        for revision in ("refs/pr/3", "v1.0", other):
            run = self.pull(f"org/other@{revision}")
            self.assertEqual((run.code, run.out), (0, f"{self.cache}/models--org--other/snapshots/{other}\n"), run)
        self.assertEqual((self.cache / "models--org--other/refs/refs/pr/3").read_text(), other)
        before = len(self.hub.asked())
        self.assertEqual((self.pull(f"org/other@{other}").code, len(self.hub.asked())), (0, before))  # a commit stays what it is
        self.failed(self.pull(f"{NAME}@v2"), 2, "no revision 'v2'", NAME)

    def test_a_newer_commit_is_told_by_pull_alone(self):
        self.pull()
        newer = self.hub.add(NAME, {**self.files, "extra.json": b"{}"}, large={"model.onnx"})
        before = len(self.hub.asked())
        self.assertEqual((self.run_model().out, len(self.hub.asked())), (self.answer, before))
        self.assertEqual(self.pull().out, f"{self.snapshot.parent / newer}\n")
        self.assertEqual(len(self.hub.asked("store")), 1)  # the graph is there already

    def test_offline(self):
        for how in ({"HF_HUB_OFFLINE": "1"}, {}):
            flag = () if how else ("--offline",)
            self.failed(self.situ("run", NAME, "--prompt", "Hi", *flag, **how), 1, "is not in", "offline")
            self.failed(self.situ("pull", NAME, *flag, **how), 1, "offline")
        self.assertEqual(self.hub.asked(), [])
        self.pull()
        before = len(self.hub.asked())
        self.assertEqual(self.run_model(HF_HUB_OFFLINE="1").out, self.answer)
        self.assertEqual((self.pull(HF_HUB_OFFLINE="1").out, len(self.hub.asked())), (f"{self.snapshot}\n", before))
        (self.snapshot / "tokenizer.json").unlink()
        self.failed(self.run_model(HF_HUB_OFFLINE="1"), 1, "tokenizer.json", "model.onnx")

    def test_where_the_cache_is(self):
        cache = self.folder / "elsewhere"
        self.assertEqual(self.pull(HF_HUB_CACHE=str(cache)).out, f"{cache}/models--org--model/snapshots/{self.commit}\n")
        self.assertEqual(self.pull(HF_HOME="", XDG_CACHE_HOME=str(cache)).out, f"{cache}/huggingface/hub/models--org--model/snapshots/{self.commit}\n")
        self.assertEqual(self.pull(HF_HOME="", XDG_CACHE_HOME="", HOME=str(cache)).out, f"{cache}/.cache/huggingface/hub/models--org--model/snapshots/{self.commit}\n")

    def test_a_cache_that_cannot_be_written_is_read(self):
        self.pull()
        frozen = {"SITU_TEST": ""}
        for folder in [self.cache, *[p for p in self.cache.rglob("*") if p.is_dir() and not p.is_symlink()]]:
            folder.chmod(0o555)
        self.addCleanup(lambda: [p.chmod(0o755) for p in [self.cache, *self.cache.rglob("*")] if p.is_dir() and not p.is_symlink()])
        self.assertEqual(self.run_model(**frozen).out, self.answer)
        self.assertEqual(self.pull(**frozen).out, f"{self.snapshot}\n")

    def test_single_files(self):
        run = self.pull(NAME, "--file", "*.json", "--file", "nothing*")
        self.assertEqual((run.code, run.out), (0, f"{self.snapshot}\n"), run)
        self.assertEqual(sorted(files_of(self.snapshot)), sorted(p for p in self.files if p.endswith(".json")))
        self.failed(self.pull(NAME, "--file", "*.gguf"), 2, "*.gguf")

    def test_data_beside_graphs(self):
        """Files that a graph names are fetched, however they are called; others are not."""
        model = onnx.load_model_from_string(self.files["model.onnx"])
        names = ["model.onnx_data", "weights/Constant_7_attr__value"]
        folder = self.folder / "external"
        (folder / "weights").mkdir(parents=True)
        big = sorted((t for t in model.graph.initializer if len(t.raw_data) > 64), key=lambda t: -len(t.raw_data))[:2]
        for tensor, name in zip(big, names):
            (folder / name).write_bytes(tensor.raw_data)
            onnx.external_data_helper.set_external_data(tensor, name, 0, len(tensor.raw_data))
            tensor.ClearField("raw_data")
        onnx.save(model, folder / "model.onnx")
        files = {**self.files, **files_of(folder), "pytorch_model.bin": b"b", "model.safetensors": b"s", "code.py": b"p", "model.onnx.py": b"p", "README.md": b"r", "other/x.json": b"{}"}
        commit = self.hub.add("org/data", files, large={"model.onnx", *names})
        run = self.run_model("org/data")
        self.assertEqual((run.code, run.out), (0, self.answer), run)
        fetched = files_of(self.cache / "models--org--data/snapshots" / commit)
        self.assertEqual(sorted(fetched), sorted({*self.files, *names}))
        (self.cache / "models--org--data/snapshots" / commit / names[1]).unlink()
        self.failed(self.run_model("org/data", HF_HUB_OFFLINE="1"), 1, names[1])
        self.assertEqual(self.run_model("org/data").out, self.answer)

    def test_listings_in_pages(self):
        self.hub.page = 2
        self.assertEqual(self.pull().code, 0)
        self.assertEqual(len(self.hub.asked("hub", part="/tree/")), (len(self.files) + 1) // 2)


class ClientTest(NamesTest):
    """Beside huggingface_hub, which accepts the hub and the cache."""

    def python(self, code, **environment):
        python = installed("hub.txt") / "bin" / "python"
        variables = {**os.environ, **self.environment(HF_HUB_DISABLE_TELEMETRY="1", HF_HUB_DISABLE_PROGRESS_BARS="1", **environment)}
        done = subprocess.run([python, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120, env={name: value for name, value in variables.items() if value})
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    FETCH = f"from huggingface_hub import snapshot_download\nprint(snapshot_download('{NAME}'))"

    def test_each_finds_what_the_other_fetched(self):
        self.assertEqual(self.python(self.FETCH), str(self.snapshot))
        before = len(self.hub.asked())
        self.assertEqual((self.run_model().out, len(self.hub.asked())), (self.answer, before))
        self.assertEqual(self.pull().out, f"{self.snapshot}\n")
        self.assertEqual(len(self.hub.asked()), before + 1)

    def test_it_finds_ours(self):
        self.pull()
        self.assertEqual(self.python(self.FETCH, HF_HUB_OFFLINE="1"), str(self.snapshot))
        before = len(self.hub.asked("store"))
        self.assertEqual(self.python(self.FETCH), str(self.snapshot))
        self.assertEqual(len(self.hub.asked("store")), before)

    def test_a_cache_without_listings(self):
        """As older versions write it."""
        self.python(self.FETCH)
        for tree in self.cache.rglob("trees/*.json"):
            tree.unlink()
        before = len(self.hub.asked())
        self.assertEqual((self.run_model().out, len(self.hub.asked())), (self.answer, before))

    def test_shared_blobs(self):
        """The layout with a store of blobs for all repositories: the bytes come by Xet, whose part is replaced here."""
        model = onnx.load_model_from_string(self.files["model.onnx"])
        tensor = max(model.graph.initializer, key=lambda t: len(t.raw_data))
        data = tensor.raw_data
        onnx.external_data_helper.set_external_data(tensor, "model.onnx_data", 0, len(data))
        tensor.ClearField("raw_data")
        files = {**self.files, "model.onnx": model.SerializeToString(), "model.onnx_data": data}
        self.hub.add("org/shared", files, large={"model.onnx", "model.onnx_data"})
        repository = self.hub.repositories["org/shared"]
        for path in repository.large:
            (self.home / sha256(files[path])).parent.mkdir(parents=True, exist_ok=True)
            (self.home / sha256(files[path])).write_bytes(files[path])
        self.hub.listed["org/shared"] = [{**repository.entry(p), **({"xetHash": sha256(files[p])} if p in repository.large else {})} for p in sorted(files)]
        self.python(f"""
            import shutil, huggingface_hub.file_download as download
            def get(*, incomplete_path, xet_file_data, **_):
                shutil.copy("{self.home}/" + xet_file_data.file_hash, incomplete_path)
            download.xet_get, download.is_xet_available = get, lambda: True
            from huggingface_hub import snapshot_download
            print(snapshot_download("org/shared"))""")
        store = self.cache / "blobs" / sha256(data)[:2] / sha256(data)
        self.assertEqual(store.read_bytes(), data)
        before = len(self.hub.asked())
        run = self.run_model("org/shared")
        self.assertEqual((run.code, run.out, len(self.hub.asked())), (0, self.answer, before), run)


class TroubleTest(NamesTest):
    """What a network, a disk or a hub may do. The graph is at another server than the hub."""

    def setUp(self):
        super().setUp()
        self.graph = self.files["model.onnx"]
        self.blob = self.cache / "models--org--model" / "blobs" / sha256(self.graph)
        self.part = Path(f"{self.blob}.incomplete")

    def whole(self, run):
        self.assertEqual((run.code, run.out), (0, f"{self.snapshot}\n"), run)
        self.assertEqual(files_of(self.snapshot), self.files)
        self.assertFalse(self.part.exists())

    def test_a_cut_goes_on(self):
        self.hub.fail("store", "GET", "", cut(1000, self.graph))
        self.whole(self.pull())
        self.assertEqual([r[3].get("Range") for r in self.hub.asked("store")], [None, "bytes=1000-"])

    def test_a_hub_that_begins_anew(self):
        self.hub.fail("store", "GET", "", cut(1000, self.graph))
        self.hub.ranges = False
        self.whole(self.pull())

    def test_killed_and_called_again(self):
        """The part that kill -9 leaves is taken up."""
        stopped = []

        def stop(request):
            request.answer(200, self.graph[:2000], Content_Length=str(len(self.graph)))
            request.wfile.flush()
            while not self.part.exists() or self.part.stat().st_size < 2000:
                time.sleep(0.01)
            stopped[0].kill()
            return True

        self.hub.fail("store", "GET", "", stop)
        stopped.append(subprocess.Popen([cli_case.SITU, "pull", NAME], env={**os.environ, **self.environment()}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        self.assertEqual(stopped[0].wait(60), -signal.SIGKILL)
        self.assertEqual(self.part.read_bytes(), self.graph[:2000])
        self.whole(self.pull())
        self.assertEqual(self.hub.asked("store")[-1][3].get("Range"), "bytes=2000-")

    def test_interrupted(self):
        process = []

        def stop(request):
            request.answer(200, self.graph[:2000], Content_Length=str(len(self.graph)))
            request.wfile.flush()
            while not self.part.exists() or self.part.stat().st_size < 2000:
                time.sleep(0.01)
            process[0].send_signal(signal.SIGINT)
            process[0].wait()
            return True

        self.hub.fail("store", "GET", "", stop)
        process.append(subprocess.Popen([cli_case.SITU, "pull", NAME], env={**os.environ, **self.environment()}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL))
        self.assertEqual((process[0].wait(60), process[0].stdout.read()), (130, b""))
        process[0].stdout.close()
        self.whole(self.pull())

    def test_wrong_bytes(self):
        wrong = bytes(len(self.graph))
        self.hub.fail("store", "GET", "", instead(wrong))
        self.whole(self.pull())  # one new try
        self.assertEqual(len(self.hub.asked("store")), 2)
        self.hub.add("org/wrong", {**self.files, "model.onnx": self.graph + b"\0"}, large={"model.onnx"})
        self.hub.fail("store", "GET", "", instead(self.graph + b"1"), times=2)
        self.failed(self.pull("org/wrong"), 1, "model.onnx", "twice", sha256(self.graph + b"\0"))
        self.assertEqual(list(self.cache.glob("models--org--wrong/blobs/*.incomplete")), [])
        self.assertFalse((self.cache / "models--org--wrong/refs/main").exists())

    def test_wrong_bytes_of_small_files(self):
        self.hub.fail("hub", "GET", "/tokenizer.json", instead(self.files["tokenizer.json"].replace(b"a", b"b")), times=2)
        self.failed(self.pull(), 1, "tokenizer.json", "twice")

    def test_too_many_and_too_few_bytes(self):
        self.hub.fail("store", "GET", "", instead(self.graph + b"more"), times=2)
        self.failed(self.pull(), 1, "model.onnx", "twice")
        self.hub.fail("store", "GET", "", instead(self.graph[:500]))
        self.whole(self.pull())

    def test_a_token_stays_with_the_hub(self):
        for private in ("HF_TOKEN", "HF_TOKEN_PATH", "HF_HOME"):
            name = f"org/{private.lower()}"
            commit = self.hub.add(name, self.files, large={"model.onnx"}, private=True)
            token, environment = self.folder / "token", {}
            token.write_text(self.hub.TOKEN + "\n")
            if private == "HF_HOME":
                (self.home / "token").write_text(self.hub.TOKEN)
            else:
                environment = {private: self.hub.TOKEN if private == "HF_TOKEN" else str(token)}
            before = len(self.hub.asked())
            run = self.pull(name, **environment)
            self.assertEqual((run.code, run.out), (0, f"{self.cache}/models--{name.replace('/', '--')}/snapshots/{commit}\n"), run)
            for server, method, path, headers in self.hub.asked()[before:]:
                self.assertEqual(headers.get("Authorization"), f"Bearer {self.hub.TOKEN}" if server == "hub" else None, path)

    def test_a_token_goes_over_https_or_to_this_machine(self):
        self.failed(self.pull(HF_ENDPOINT="http://192.0.2.1:1", HF_TOKEN="hf_x"), 2, "HF_ENDPOINT", "https")
        for token in ("hf x", "hf\nx: y", "\x7f"):
            self.failed(self.pull(HF_TOKEN=token), 2, "HF_TOKEN")
        self.failed(self.pull(HF_ENDPOINT="ftp://127.0.0.1"), 2, "HF_ENDPOINT")
        self.failed(self.pull(HF_ENDPOINT="http://user@127.0.0.1"), 2, "HF_ENDPOINT")

    def test_private_unknown_gated(self):
        self.hub.add("org/private", self.files, private=True)
        self.hub.add("org/gated", self.files, gated=True)
        for name in ("org/private", "org/unknown"):
            self.failed(self.pull(name), 2, name, "HF_TOKEN", "private")
        self.failed(self.pull("org/unknown", HF_TOKEN=self.hub.TOKEN), 2, "org/unknown", "HF_TOKEN")
        self.failed(self.pull("org/gated"), 2, "org/gated", "HF_TOKEN", f"{self.hub.url}/org/gated")
        self.assertEqual(self.pull("org/gated", HF_TOKEN=self.hub.TOKEN).code, 0)
        self.failed(self.situ("run", "org/unknown", "--prompt", "Hi"), 2, "org/unknown")

    def test_busy(self):
        self.hub.fail("hub", "GET", "/revision/", status(429, Retry_After="1"))
        self.hub.fail("store", "GET", "", status(503))
        self.whole(self.pull())
        self.hub.fail("hub", "GET", "/revision/", status(429, Retry_After="61"))
        self.failed(self.pull(), 1, "429", "61 s")

    def test_no_answer(self):
        self.hub.fail("hub", "GET", "/revision/", status(500), times=4)
        self.failed(self.pull(), 1, NAME, "500")
        self.assertEqual(len(self.hub.asked()), 4)
        self.hub.close()
        self.failed(self.pull(), 1, NAME)

    def test_a_hub_that_is_gone_ends_nothing_that_is_here(self):
        self.pull()
        self.hub.close()
        self.assertEqual(self.run_model().out, self.answer)

    def test_redirects(self):
        """At most five; none to what is not http."""
        def to(url):
            return status(302, Location=url)

        self.hub.fail("store", "GET", "", to(f"/{sha256(self.graph)}"), times=4)
        self.whole(self.pull())
        for where, code, word in ((f"{self.hub.store.url}/x", 1, "redirects"), ("file:///etc/passwd", 2, "file:"), ("ftp://127.0.0.1/x", 2, "ftp:"), ("http://a@127.0.0.1/", 2, "user")):
            name = f"org/to-{len(self.hub.repositories)}"
            self.hub.add(name, {**self.files, "model.onnx": self.graph + name.encode()}, large={"model.onnx"})
            self.hub.fail("store", "GET", "", to(where), times=9 if code == 1 else 1)
            if code == 1:
                self.hub.troubles *= 3
            self.failed(self.pull(name), code, word)
            self.hub.troubles = []

    def test_names_that_are_not_to_be_trusted(self):
        """Nothing is written."""
        entry = self.hub.repositories[NAME].entry("config.json")
        graph = self.hub.repositories[NAME].entry("model.onnx")
        for change in ({"path": "../config.json"}, {"path": "/etc/x"}, {"path": "a/../../b"}, {"path": "a\\b"}, {"path": "a\0b"}, {"path": "a//b"}, {"path": "."}, {"path": "a/./b"}, {"path": ""}, {"oid": "../../x"}, {"oid": "g" * 40},
                       {"oid": "a" * 39}, {"size": -1}, {"size": "1"}, {"size": 2**63}):
            self.hub.listed[NAME] = [graph, {**entry, **change}]
            self.failed(self.pull(), 2, NAME, "the hub says")
            self.nothing_written()
        self.hub.listed[NAME] = [graph, {**entry, "path": "model.onnx/config.json"}]
        self.failed(self.pull(), 2, "a file and a folder")
        self.hub.listed[NAME] = [{**graph, "lfs": {"oid": "../" * 20 + "x" * 4, "size": 1}}, entry]
        self.failed(self.pull(), 2, "the hub says")
        self.nothing_written()

    def test_answers_that_are_not_to_be_trusted(self):
        first = next(p for p in ("config.json", "model.onnx") if p in self.files)  # what is fetched first
        for etag in ("../../../x", "a" * 63, "x/../y", ""):
            self.hub.etags = {first: etag}
            self.failed(self.pull(), 2, first, "no digest")
            self.nothing_written()
        self.hub.etags = {first: "a" * len(self.hub.repositories[NAME].digest(first))}
        self.failed(self.pull(), 2, first, "two digests")
        self.nothing_written()
        self.hub.etags = {"model.onnx": "../../../x"}
        self.failed(self.pull(), 2, "model.onnx", "no digest")
        self.assertFalse(self.blob.exists() or self.part.exists())
        shutil.rmtree(self.cache)
        self.hub.etags = {}
        repository = self.hub.repositories[NAME]
        for commit in ("../x", "a" * 39, "A" * 40, ""):
            repository.revisions["main"] = commit
            self.failed(self.pull(), 2, "no commit")
        repository.revisions["main"] = self.commit
        for body in (b"[]", b"{", b"[" * 1000, b"nothing"):
            self.hub.fail("hub", "GET", "/tree/", lambda request, body=body: request.answer(200, body) or True)
            run = self.pull()
            self.assertIn(run.code, (1, 2), run)
        self.hub.fail("hub", "GET", "/tree/", lambda request: request.answer(200, b"[]", Link=f'<{self.hub.store.url}/next>; rel="next"') or True)
        self.failed(self.pull(), 2, "another server")
        self.nothing_written()

    def test_links_of_the_cache_lead_nowhere_else(self):
        """A snapshot with a link out of the cache is no model."""
        self.pull()
        outside = self.folder / "outside.onnx"
        (self.snapshot / "model.onnx").unlink()
        self.part.symlink_to(outside)
        self.blob.unlink()
        self.failed(self.pull(), 1, "incomplete")  # a link in place of the part is not written through
        self.assertFalse(outside.exists())

    def test_no_room(self):
        """The sizes are looked at before anything is fetched."""
        entries = [self.hub.repositories[NAME].entry(p) for p in self.files]
        for entry in entries:
            if "lfs" in entry:
                entry["lfs"]["size"] = entry["size"] = 1 << 60
        self.hub.listed[NAME] = entries
        self.failed(self.pull(), 1, NAME, "are needed", "free")
        self.assertEqual(self.hub.asked("store"), [])

    def test_a_disk_that_is_full(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (len(self.graph) // 2, len(self.graph) // 2))

        done = subprocess.run([cli_case.SITU, "pull", NAME], env={**os.environ, **self.environment()}, capture_output=True, text=True, timeout=60, preexec_fn=limit)
        self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
        self.assertIn("cannot be written", done.stderr.splitlines()[-1])
        self.whole(self.pull())

    def test_two_at_once_fetch_once(self):
        both = [subprocess.Popen([cli_case.SITU, "pull", NAME], env={**os.environ, **self.environment()}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
        for process in both:
            out, err = process.communicate(timeout=60)
            self.assertEqual((process.returncode, out), (0, f"{self.snapshot}\n"), err)
        self.assertEqual(len(self.hub.asked("store")), 1)

    def test_the_lock_is_huggingface_hubs(self):
        lock = self.cache / ".locks" / "models--org--model" / f"{sha256(self.graph)}.lock"
        lock.parent.mkdir(parents=True)
        with open(lock, "w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            process = subprocess.Popen([cli_case.SITU, "pull", NAME], env={**os.environ, **self.environment()}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            while not (self.snapshot / "config.json").exists():
                self.assertIsNone(process.poll())
            self.assertEqual(self.hub.asked("store"), [])
        self.assertEqual(process.communicate(timeout=60)[0], f"{self.snapshot}\n")


class ServeTest(NamesTest):
    def serve(self, *arguments):
        process = subprocess.Popen([cli_case.SITU, "serve", *arguments, "--port", "0"], env={**os.environ, "SITU_CACHE_DIR": "", **self.environment()}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.addCleanup(lambda: (process.terminate(), process.wait(60), process.stdout.close()))
        return process.stdout.readline().split()[-1]

    def answers(self, url, model):
        body = json.dumps({"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}).encode()
        request = urllib.request.Request(f"{url}/v1/chat/completions", body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    def test_a_model_is_called_as_it_was_typed(self):
        url = self.serve(NAME, "--alias", f"mine={NAME}")
        self.assertEqual([self.answers(url, name) for name in (NAME, "model", "mine", "other")], [200, 200, 200, 404])

    def test_names_of_two_repositories(self):
        self.hub.add("other/model", {**self.files, "extra.json": b"{}"}, large={"model.onnx"})
        url = self.serve(NAME, "other/model")
        self.assertEqual([self.answers(url, name) for name in (NAME, "other/model", "model")], [200, 200, 404])

    def test_what_cannot_be_served(self):
        self.failed(self.situ("serve", "org/none", "--port", 0), 2, "org/none")
        self.hub.add("org/several", in_layout(self.model, "fp32", "fp16"))
        self.failed(self.situ("serve", "org/several:fp32", "org/several:fp16", "--port", 0), 2, "another precision")


class HttpsTest(NamesTest):
    """A hub with a certificate that SSL_CERT_FILE vouches for."""

    def setUp(self):
        super().setUp()
        if shutil.which("openssl") is None:
            self.skipTest("no openssl to make certificates")
        self.authority, leaf, keys = (self.folder / name for name in ("ca.pem", "leaf.pem", "keys.txt"))

        def openssl(*arguments):
            subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, cwd=self.folder, timeout=60)

        keys.write_text("subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\n")
        new = ("req", "-newkey", "rsa:2048", "-nodes", "-subj")
        openssl(*new, "/CN=authority", "-x509", "-days", 2, "-keyout", "ca.key", "-out", self.authority)
        openssl(*new, "/CN=localhost", "-keyout", "leaf.key", "-out", "leaf.csr")
        openssl("x509", "-req", "-in", "leaf.csr", "-CA", self.authority, "-CAkey", "ca.key", "-CAcreateserial", "-days", 2, "-extfile", keys, "-out", leaf)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(leaf, self.folder / "leaf.key")

    def serve(self, **options):
        self.hub = Hub(self.context, **options)
        self.addCleanup(self.hub.close)
        self.hub.add(NAME, self.files, large={"model.onnx"})

    def test_https(self):
        self.serve()
        trusted = {"SSL_CERT_FILE": str(self.authority), "SSL_CERT_DIR": ""}
        self.assertEqual(self.pull(**trusted).out, f"{self.snapshot}\n")
        shutil.rmtree(self.cache)
        self.failed(self.pull(SSL_CERT_FILE=str(self.folder / "other.pem"), SSL_CERT_DIR=""), 1, NAME)

    def test_https_never_leads_to_http(self):
        self.serve(plain_store=True)
        self.failed(self.pull(SSL_CERT_FILE=str(self.authority), SSL_CERT_DIR=""), 2, "from https to 'http:")
        self.assertEqual(self.hub.asked("store"), [])


class ChoiceTest(NamesTest):
    def test_precisions(self):
        commit = self.hub.add("org/several", in_layout(self.model, "fp32", "fp16", "quantized"), large={"onnx/model.onnx"})
        snapshot = self.cache / "models--org--several/snapshots" / commit
        run = self.run_model("org/several")
        self.assertEqual((run.code, run.out), (0, self.answer), run)
        self.assertRegex(run.err.splitlines()[0], r"\Asitu: org/several: fp16, \d+ files, [\d.]+ [kM]B \(others: fp32 [\d.]+ [kM]B, quantized [\d.]+ [kM]B; :VARIANT chooses\)\Z")
        self.assertEqual([p.name for p in snapshot.rglob("*.onnx")], ["model_fp16.onnx"])
        for name in ("org/several:fp32", ("org/several", "--variant", "quantized")):
            arguments = (name,) if isinstance(name, str) else name
            self.assertEqual(self.run_model(*arguments).out, self.answer)
        self.assertEqual(sorted(p.name for p in snapshot.rglob("*.onnx")), ["model.onnx", "model_fp16.onnx", "model_quantized.onnx"])
        before = len(self.hub.asked())
        for name in ("org/several", "org/several:quantized", "org/several:onnx/model.onnx"):
            self.assertEqual(self.run_model(name, HF_HUB_OFFLINE="1").out, self.answer)
        self.assertEqual(len(self.hub.asked()), before)
        self.failed(self.run_model("org/several:fp16", "--variant", "fp32"), 2, "--variant")
        run = self.pull("org/several:q5")
        self.assertEqual((run.code, run.out), (2, ""), run)
        self.assertEqual(run.err.splitlines(), ["situ: org/several: there is no precision, folder or graph 'q5'", *(f"  situ pull org/several:{v}" for v in ("fp16", "fp32", "quantized"))])

    def test_folders_of_a_builder(self):
        files = {path: data for path, data in self.files.items()}
        genai = json.dumps({"model": {"decoder": {"filename": "model.onnx"}}}).encode()
        unit = {**files, "genai_config.json": genai}
        repository = {f"{folder}/{path}": data for folder in ("cpu/cpu-int4-acc-level-4", "cuda/cuda-int4", "cpu/cpu-int4") for path, data in unit.items()}
        commit = self.hub.add("org/built", repository)
        folder = self.cache / "models--org--built/snapshots" / commit / "cpu/cpu-int4-acc-level-4"
        run = self.pull("org/built")
        self.assertEqual((run.code, run.out), (0, f"{folder}\n"), run)
        self.assertEqual(files_of(folder), unit)
        before = len(self.hub.asked())
        self.assertEqual(self.run_model("org/built").out, self.answer)
        self.assertEqual(len(self.hub.asked()), before)
        self.assertEqual(self.run_model("org/built:cuda/cuda-int4").out, self.answer)
        self.hub.add("org/twice", {f"{f}/{path}": data for f in ("cpu/a", "cpu/b") for path, data in unit.items()})
        run = self.situ("chat", "org/twice")
        self.assertEqual((run.code, run.err.splitlines()), (2, ["situ: org/twice: which folder should run?", "  situ chat org/twice:cpu/a", "  situ chat org/twice:cpu/b"]), run)

    def test_repositories_without_graphs(self):
        self.hub.add("org/torch", {"config.json": b"{}", "model.safetensors": b"x"})
        self.failed(self.pull("org/torch"), 2, "org/torch", "optimum-cli export onnx --model org/torch")

    def test_short_names(self):
        commit = self.hub.add("HuggingFaceTB/SmolLM2-360M-Instruct", in_layout(self.model, "fp16"))
        self.assertEqual(self.pull("smollm2").out, f"{self.cache}/models--HuggingFaceTB--SmolLM2-360M-Instruct/snapshots/{commit}\n")
        self.failed(self.pull("smollm3"), 2, "no such file or folder")


class CacheTest(NamesTest):
    def listed(self):
        run = self.situ("list", "--json")
        self.assertEqual((run.code, run.err), (0, ""), run)
        return json.loads(run.out)

    def foreign(self, name):
        """A repository as another program leaves it."""
        folder = self.cache / f"models--{name.replace('/', '--')}"
        commit = "c" * 40
        for path, data in self.files.items():
            blob, link = folder / "blobs" / sha256(data), folder / "snapshots" / commit / path
            blob.parent.mkdir(parents=True, exist_ok=True)
            link.parent.mkdir(parents=True, exist_ok=True)
            blob.write_bytes(data)
            link.symlink_to(f"../../blobs/{blob.name}")
        (folder / "refs").mkdir()
        (folder / "refs/main").write_text(commit)
        return folder

    def test_list(self):
        self.assertEqual(self.listed(), [])
        self.pull()
        folder = self.foreign("org/foreign")
        (self.cache / "models--org--empty/snapshots").mkdir(parents=True)
        (self.cache / "datasets--org--x").mkdir()
        size = sum(map(len, {sha256(d): d for d in self.files.values()}.values()))
        ours, other = [m for m in self.listed() if m["name"] == NAME], [m for m in self.listed() if m["name"] != NAME]
        self.assertEqual(other, [{"name": "org/foreign", "path": str(folder / "snapshots" / ("c" * 40)), "bytes": size + 40, "variants": ["fp32"], "kind": "decoder", "source": "other"}])
        self.assertEqual({**ours[0], "bytes": None}, {"name": NAME, "path": str(self.snapshot), "bytes": None, "variants": ["fp32"], "kind": "decoder", "source": "situ"})
        run = self.situ("list")
        self.assertEqual([line.split()[0] for line in run.out.splitlines()], ["org/foreign", NAME], run)
        names = self.situ("list", "--names")
        self.assertIn("smollm2 ", names.out)
        for line in names.out.splitlines():
            self.assertRegex(line, r"\A[\w.-]+ +[\w.-]+/[\w.-]+ +https://\S+\Z")

    def test_remove(self):
        self.pull()
        folder = self.foreign("org/foreign")
        self.failed(self.situ("rm", "org/foreign"), 2, "--force")
        self.failed(self.situ("rm", "org/none"), 2, "is not in")
        self.failed(self.situ("rm", "nothing"), 2, "no name")
        self.failed(self.situ("rm", f"{NAME}:q4"), 2, f"situ rm {NAME}")
        self.assertEqual(self.situ("rm", NAME).code, 0)
        self.assertFalse((self.cache / "models--org--model").exists())
        self.assertTrue(folder.exists())
        self.assertEqual(self.situ("rm", "org/foreign", "--force").code, 0)
        self.assertEqual((self.listed(), list((self.cache / ".locks").glob("*"))), ([], []))

    def test_prune(self):
        self.pull()
        newer = self.hub.add(NAME, {**self.files, "model.onnx": smaller(self.files["model.onnx"], "newer")}, large={"model.onnx"})
        self.pull()
        part = self.cache / "models--org--model/blobs" / ("d" * 64 + ".incomplete")
        part.write_bytes(b"part")
        folder = self.foreign("org/foreign")
        (folder / "blobs" / ("d" * 64 + ".incomplete")).write_bytes(b"part")
        self.hub.add("org/older", self.files, large={"model.onnx"})
        self.pull("org/older")
        for file in (self.cache / "models--org--older").rglob("*"):
            os.utime(file, (1, 1), follow_symlinks=True)
        run = self.situ("cache", "prune")
        self.assertEqual((run.code, run.err), (0, ""), run)
        self.assertEqual([p.name for p in (self.cache / "models--org--model/snapshots").iterdir()], [newer])
        self.assertFalse(part.exists())
        self.assertEqual(len(list((self.cache / "models--org--model/blobs").iterdir())), len({sha256(d) for d in self.files.values()}))
        self.assertTrue((folder / "blobs" / ("d" * 64 + ".incomplete")).exists())
        self.assertEqual(self.run_model(HF_HUB_OFFLINE="1").out, self.answer)
        most = sum(m["bytes"] for m in self.listed() if m["name"] == NAME)
        run = self.situ("cache", "prune", "--to", str(most))
        self.assertEqual((run.code, run.out.splitlines()[0]), (0, "removed org/older"), run)
        self.assertEqual([m["name"] for m in self.listed()], ["org/foreign", NAME])
        self.assertEqual(self.situ("cache", "prune", "--to", "1").code, 0)
        self.assertEqual([m["name"] for m in self.listed()], ["org/foreign"])
        self.failed(self.situ("cache", "prune", "--to", "many"), 2, "--to")


if __name__ == "__main__":
    main()
