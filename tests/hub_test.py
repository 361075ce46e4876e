"""Models by name: `situ pull` and what takes a name in place of a path, against a hub on loopback.

    python tests/hub_test.py --situ build/situ [unittest options]

Needs numpy and onnx (`make python`); tests with huggingface_hub install it beside the program, once.
"""
import json
import os
import shutil
import subprocess
import textwrap
import urllib.error
import urllib.request
from pathlib import Path

import onnx

import cli_case
from cli_case import Run, main
from hub_case import HubTest, files_of, sha256
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

    def test_files_are_looked_at_before_a_download(self):
        requests = self.folder / "none.jsonl"
        requests.write_text("")
        for arguments, code, word in ((("inspect", NAME, "--html", "/none/page.html"), 1, "cannot be written"), (("inspect", NAME, "--html", self.folder), 1, "cannot be written"), (("batch", NAME, requests, "-o", "/none/x"), 1, "cannot be written"),
                                      (("serve", NAME, "--port", 0, "--api-key-file", "/none"), 2, "/none"), (("run", NAME, "--prompt", "Hi", "--draft", "/none"), 2, "/none")):
            self.failed(self.situ(*arguments), code, word)
        self.assertEqual(self.hub.asked(), [])

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
        """As older versions write it. A repository of a hub has .gitattributes, which a snapshot of all files has, too."""
        self.commit = self.hub.add(NAME, {**self.files, ".gitattributes": b"*.onnx filter=lfs\n"}, large={"model.onnx"})
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
