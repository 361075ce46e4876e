"""The cache of models by name, and who else is at it: what another program fetched in part, several precisions of one repository,
newer commits, pulls and prunes at once.

    python tests/hub_cache_test.py --situ build/situ [unittest options]

Needs numpy and onnx (`make python`).
"""
import contextlib
import json
import os
import shutil
import subprocess
import threading
from pathlib import Path

import onnx

import cli_case
from cli_case import main
from hub_case import files_of, sha256
from hub_test import NAME, NamesTest, in_layout, smaller

SEVERAL = "org/several"


class SharedCacheTest(NamesTest):
    def fetched_by_another(self, name, commit, files, of):
        """As huggingface_hub leaves files that were fetched one by one: no list of what the commit has."""
        folder = self.cache / f"models--{name.replace('/', '--')}"
        for path in of:
            blob, link = folder / "blobs" / sha256(files[path]), folder / "snapshots" / commit / path
            blob.parent.mkdir(parents=True, exist_ok=True)
            link.parent.mkdir(parents=True, exist_ok=True)
            blob.write_bytes(files[path])
            link.symlink_to(os.path.relpath(blob, link.parent))
        (folder / "refs").mkdir(parents=True, exist_ok=True)
        (folder / "refs/main").write_text(commit)
        return folder / "snapshots" / commit

    def different(self, *precisions):
        """Precisions whose answers differ."""
        files = in_layout(self.model, *precisions)
        for i, p in enumerate(precisions):
            path = f"onnx/model{'' if p == 'fp32' else '_' + p}.onnx"
            model = onnx.load_model_from_string(files[path])
            for tensor in model.graph.initializer:
                if tensor.data_type == onnx.TensorProto.FLOAT and len(tensor.raw_data) > 1000:
                    tensor.raw_data = tensor.raw_data[4 * (i + 1):] + tensor.raw_data[:4 * (i + 1)]
            files[path] = model.SerializeToString()
        return files

    def start(self, *arguments):
        return subprocess.Popen([cli_case.SITU, *arguments], env={**os.environ, **self.environment()}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


class PartTest(SharedCacheTest):
    """Without the commit's list of files it is not known what is whole."""

    def test_what_lacks_is_fetched(self):
        files = {**self.files, "generation_config.json": b'{"do_sample": false}'}
        commit = self.hub.add("org/part", files, large={"model.onnx"})
        snapshot = self.fetched_by_another("org/part", commit, files, ("model.onnx", "config.json", "tokenizer.json"))
        run = self.run_model("org/part")
        self.assertEqual((run.code, run.out), (0, self.answer), run)
        self.assertEqual(files_of(snapshot), files)
        self.assertEqual((self.hub.asked("store"), self.hub.asked("hub", part="/revision/")), ([], []))
        before = len(self.hub.asked())
        self.assertEqual((self.run_model("org/part").out, len(self.hub.asked())), (self.answer, before))

    def test_the_choice_is_the_commits(self):
        files = self.different("fp32", "fp16", "quantized")
        commit = self.hub.add(SEVERAL, files)
        chosen = self.run_model(SEVERAL)
        shutil.rmtree(self.cache)
        self.fetched_by_another(SEVERAL, commit, files, (p for p in files if p not in ("onnx/model_fp16.onnx", "onnx/model_quantized.onnx")))
        offline = self.run_model(SEVERAL, HF_HUB_OFFLINE="1")
        self.assertEqual(offline.code, 0, offline)
        self.assertNotEqual(offline.out, chosen.out)
        self.assertIn("which may not be all of it", offline.err.splitlines()[0])
        self.assertEqual(self.run_model(SEVERAL).out, chosen.out)
        self.assertEqual(self.run_model(SEVERAL, HF_HUB_OFFLINE="1").out, chosen.out)

    def test_a_hub_that_is_gone(self):
        self.fetched_by_another(NAME, self.commit, self.files, self.files)
        self.hub.close()
        run = self.run_model()
        self.assertEqual((run.code, run.out), (0, self.answer), run)
        self.assertIn("which may not be all of it", run.err)

    def test_a_whole_snapshot_is_no_request(self):
        """A snapshot with .gitattributes was fetched as a whole."""
        files = {**self.files, ".gitattributes": b"x"}
        commit = self.hub.add("org/whole", files)
        self.fetched_by_another("org/whole", commit, files, files)
        run = self.run_model("org/whole")
        self.assertEqual((run.out, self.hub.asked(), "may not be" in run.err), (self.answer, [], False), run)


class SeveralTest(SharedCacheTest):
    """The folder that pull prints is the choice, whatever else is in the snapshot."""

    def test_the_folder_says_the_choice(self):
        self.hub.add(SEVERAL, self.different("fp32", "fp16", "quantized"))
        names = [f"{SEVERAL}:{p}" for p in ("fp16", "fp32", "quantized")]
        answers = {name: self.run_model(name).out for name in names}
        self.assertEqual(len(set(answers.values())), 3, answers)
        folders = {name: self.pull(name).out.rstrip("\n") for name in (*names, SEVERAL)}
        self.assertEqual(folders[SEVERAL], folders[names[0]])
        for how in ({}, {"HF_HUB_OFFLINE": "1"}):
            for name in names:
                self.assertEqual(self.pull(name, **how).out, f"{folders[name]}\n")
                self.assertEqual(self.run_model(folders[name], **how).out, answers[name], folders[name])
        self.assertEqual(self.situ("check", folders[names[0]]).code, 0)
        self.assertEqual([m["variants"] for m in json.loads(self.situ("list", "--json").out)], [["fp16", "fp32", "quantized"]])

    def test_a_later_precision_is_told(self):
        """The snapshot's own path runs what is in it, and says so when that changes."""
        self.hub.add(SEVERAL, self.different("fp32", "fp16"))
        folder = self.pull(f"{SEVERAL}:fp16").out.rstrip("\n")
        answer = self.run_model(folder).out
        self.assertNotIn(" now", self.pull(f"{SEVERAL}:fp16").err)
        run = self.pull(f"{SEVERAL}:fp32")
        self.assertIn(f"{folder} ran onnx/model_fp16.onnx and runs onnx/model.onnx now", run.err)
        self.assertEqual(self.run_model(f"{SEVERAL}:fp16").out, answer)

    def test_graphs_by_their_paths(self):
        files = self.different("fp32")
        self.hub.add("org/two", {**files, "model.onnx": files["onnx/model.onnx"]})
        run = self.pull("org/two")
        lines = ["  situ pull org/two:model.onnx", "  situ pull org/two:onnx/model.onnx"]
        self.assertEqual((run.code, run.err.splitlines()[1:]), (2, lines), run)
        self.hub.add("org/odd", {**files, "onnx/decoder_other.onnx": files["onnx/model.onnx"]})
        answers = set()
        for name in ("org/two:model.onnx", "org/two:onnx/model.onnx", "org/two:onnx", "org/odd:onnx/decoder_other.onnx"):
            answer = self.run_model(name)
            self.assertEqual(answer.code, 0, answer)
            self.assertEqual(self.run_model(self.pull(name).out.rstrip("\n")).out, answer.out)
            answers.add(answer.out)
        self.assertEqual(len(answers), 1)

    def test_external_data_of_a_choice(self):
        files = in_layout(self.model, "fp32", "fp16")
        model = onnx.load_model_from_string(files["onnx/model_fp16.onnx"])
        tensor = max(model.graph.initializer, key=lambda t: len(t.raw_data))
        data = tensor.raw_data
        onnx.external_data_helper.set_external_data(tensor, "weights.bin", 0, len(data))
        tensor.ClearField("raw_data")
        files |= {"onnx/model_fp16.onnx": model.SerializeToString(), "onnx/weights.bin": data}
        self.hub.add(SEVERAL, files)
        self.pull(f"{SEVERAL}:fp32")
        run = self.pull(f"{SEVERAL}:fp16")
        self.assertEqual(self.run_model(run.out.rstrip("\n")).out, self.answer)
        fetched = {p: d for p, d in files.items() if p != "onnx/model.onnx"}
        self.assertIn(f"fp16, {len(fetched)} files, {sum(map(len, fetched.values())) / 1000:.0f} kB", run.err)

    def test_a_folder_whose_tokenizer_is_in_the_root(self):
        files = in_layout(self.model, "fp32")
        graph = files["onnx/model.onnx"]
        self.hub.add("org/folders", {**files, "onnx/model_q4.onnx": smaller(graph, "q4"), "q4/model.onnx": smaller(graph, "folder")})
        for name in ("org/folders:onnx", "org/folders:q4/model.onnx"):
            run = self.run_model(name)
            self.assertEqual((run.code, run.out), (0, self.answer), run)
            self.assertEqual(self.run_model(self.pull(name).out.rstrip("\n")).out, self.answer)

    def test_words_to_type(self):
        unit = {**self.files, "genai_config.json": json.dumps({"model": {"decoder": {"filename": "model.onnx"}}}).encode()}
        self.hub.add("org/words", {f"{folder}/{p}": d for folder in ("cpu/$(id)", "cpu/a b", "cpu/c\u009bX", "cpu/\u202ex") for p, d in unit.items()})
        run = self.pull("org/words")
        self.assertEqual((run.code, run.err.splitlines()[1:]), (2, ["  situ pull 'org/words:cpu/$(id)'", "  situ pull 'org/words:cpu/a b'", r"  situ pull $'org/words:cpu/c\u009bX'", r"  situ pull $'org/words:cpu/\u202ex'"]), run)
        for line, folder in zip(run.err.splitlines()[1:], ("cpu/$(id)", "cpu/a b", "cpu/c\u009bX", "cpu/\u202ex")):
            said = subprocess.run(["bash", "-c", f"printf %s {line.split(' pull ')[1]}"], capture_output=True, env={**os.environ, "LC_ALL": "C.UTF-8"})
            self.assertEqual(said.stdout.decode(), f"org/words:{folder}")


class NewerTest(SharedCacheTest):
    def setUp(self):
        super().setUp()
        self.several = in_layout(self.model, "fp32", "fp16")
        self.hub.add(SEVERAL, self.several)

    def newer(self, file="more.json"):
        self.several = {**self.several, file: b"{}"}
        return self.hub.add(SEVERAL, self.several)

    def test_run_stays_with_the_commit_that_is_there(self):
        self.pull(SEVERAL)
        self.newer()
        before = len(self.hub.asked("hub", part="/revision/"))
        self.assertEqual(self.run_model(f"{SEVERAL}:fp32").code, 0)
        self.assertEqual(len(self.hub.asked("hub", part="/revision/")), before)
        self.assertEqual(self.run_model(SEVERAL, HF_HUB_OFFLINE="1").out, self.answer)

    def test_another_choice_of_a_newer_commit(self):
        for arguments in ((f"{SEVERAL}:fp32",), (SEVERAL, "--file", "more.json")):
            self.pull(SEVERAL)
            self.newer(arguments[-1] if len(arguments) > 1 else "first.json")
            self.assertEqual(self.pull(*arguments).code, 0)
            run = self.run_model(SEVERAL, HF_HUB_OFFLINE="1")
            self.assertEqual((run.code, run.out), (0, self.answer), run)
            self.assertIn("runs with the older commit", run.err)

    def test_prune_keeps_a_commit_that_was_asked_for(self):
        commit = self.hub.repositories[NAME].revisions["main"]
        self.pull(f"{NAME}@{commit}")
        self.hub.add(NAME, {**self.files, "more.json": b"{}"}, large={"model.onnx"})
        self.pull()
        self.assertEqual(self.situ("cache", "prune").code, 0)
        self.assertEqual(self.run_model(f"{NAME}@{commit}", HF_HUB_OFFLINE="1").out, self.answer)


class AtOnceTest(SharedCacheTest):
    def test_prune_and_rm_leave_a_pull_alone(self):
        self.pull()
        files = {**self.files, "model.onnx": smaller(self.files["model.onnx"], "newer")}
        newer = self.hub.add(NAME, files, large={"model.onnx"})
        come, go = threading.Event(), threading.Event()

        def wait(_):
            come.set()
            go.wait(60)

        self.hub.fail("store", "GET", sha256(files["model.onnx"]), wait)
        with self.start("pull", NAME) as process:
            self.assertTrue(come.wait(60))
            pruned, removed = self.situ("cache", "prune"), self.situ("rm", NAME)
            go.set()
            out, err = process.communicate(timeout=60)
        self.assertEqual((pruned.code, process.returncode, out), (0, 0, f"{self.snapshot.parent / newer}\n"), err)
        self.failed(removed, 1, "is fetched by another process")
        self.assertEqual(files_of(self.snapshot.parent / newer), files)

    def test_a_snapshot_that_goes_is_made_again(self):
        """No revision names a commit of which something lacks."""
        self.hub.fail("store", "GET", "", lambda _: shutil.rmtree(self.snapshot))
        run = self.pull()
        self.assertEqual((run.code, run.out), (0, f"{self.snapshot}\n"), run)
        self.assertEqual(files_of(self.snapshot), self.files)

    def test_four_at_once_leave_nothing_behind(self):
        self.hub.add("org/many", {**self.files, **{f"x{i}.json": b"%d" % i for i in range(12)}}, large={"model.onnx"})
        with contextlib.ExitStack() as stack:
            processes = [stack.enter_context(self.start("pull", "org/many")) for _ in range(4)]
            for process in processes:
                out, err = process.communicate(timeout=60)
                self.assertEqual(process.returncode, 0, err)
        self.assertEqual((len(self.hub.asked("store")), list(self.cache.rglob("*.link")), list(self.cache.rglob("*.part"))), (1, [], []))

    def test_what_was_pulled_and_removed_is_not_ours(self):
        self.pull()
        self.assertEqual(self.situ("rm", NAME).code, 0)
        self.fetched_by_another(NAME, self.commit, self.files, self.files)
        self.failed(self.situ("rm", NAME), 2, "--force")
        self.hub.add("org/torch", {"config.json": b"{}", "model.safetensors": b"x"})
        self.assertEqual(self.pull("org/torch").code, 2)
        self.assertFalse((self.cache / "models--org--torch").exists())
        self.assertEqual((self.home / "state/situ/pulled").read_text(), "")

    def test_a_pull_that_is_cut_is_ours(self):
        self.hub.fail("store", "GET", "", lambda request: request.answer(404) or True)
        self.failed(self.pull(), 1, self.hub.store.url, "404")
        self.assertEqual(self.pull().code, 0)
        self.assertEqual(self.situ("rm", NAME).code, 0)

    def test_the_store_of_all_repositories(self):
        """What one repository alone has of it goes with that."""
        for name in ("org/one", "org/two"):
            snapshot = self.fetched_by_another(name, self.commit, self.files, self.files)
            for blob in (snapshot.parent.parent / "blobs").iterdir():
                place = self.cache / "blobs" / blob.name[:2] / blob.name
                place.parent.mkdir(parents=True, exist_ok=True)
                blob.rename(place)
                blob.symlink_to(os.path.relpath(place, blob.parent))
        stored = sorted(p.name for p in (self.cache / "blobs").rglob("*") if p.is_file())
        self.assertEqual(self.situ("rm", "org/one", "--force").code, 0)
        self.assertEqual(sorted(p.name for p in (self.cache / "blobs").rglob("*") if p.is_file()), stored)
        self.assertEqual(self.situ("rm", "org/two", "--force").code, 0)
        self.assertEqual([p for p in (self.cache / "blobs").rglob("*") if p.is_file()], [])


if __name__ == "__main__":
    main()
