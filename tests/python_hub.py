"""situ.pull and situ.load of names, against a hub on loopback: cases of python_test.py."""
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import situ

import cli_case
import docs_test
from hub_case import Hub, files_of
from python_case import PythonTest

NAME = "org/model"


class PullTest(PythonTest):
    def setUp(self):
        super().setUp()
        self.hub = Hub()
        self.addCleanup(self.hub.close)
        home = self.folder / f"home-{self.id().rsplit('.', 1)[-1]}"
        self.commit = self.hub.add(NAME, files_of(self.path), large={"model.onnx"})
        self.snapshot = home / "hub" / "models--org--model" / "snapshots" / self.commit
        environment = mock.patch.dict(os.environ, self.hub.environment(home))
        environment.start()
        self.addCleanup(environment.stop)

    def test_pull(self):
        self.assertEqual(situ.pull(NAME), str(self.snapshot))
        self.assertEqual(files_of(self.snapshot), files_of(self.path))
        before = len(self.hub.asked())
        self.assertEqual(situ.pull(NAME, offline=True), str(self.snapshot))
        self.assertEqual(len(self.hub.asked()), before)
        self.assertEqual(situ.pull(str(self.path)), str(self.path))

    def test_load(self):
        model = situ.load(NAME)
        self.assertEqual(self.generate_ids(model), self.ids)
        before = len(self.hub.asked())
        self.assertEqual(self.generate_ids(situ.load(NAME)), self.ids)
        self.assertEqual(len(self.hub.asked()), before)

    def test_variants(self):
        files = files_of(self.path)
        graph = files.pop("model.onnx")
        commit = self.hub.add("org/several", {**files, "onnx/model.onnx": graph, "onnx/model_fp16.onnx": graph})
        snapshot = Path(situ.pull("org/several", variants=["fp16"]))
        self.assertEqual((snapshot.name, [p.name for p in snapshot.rglob("*.onnx")]), (commit, ["model_fp16.onnx"]))

    def test_threads(self):
        """Those that pull one name write by names of their own."""
        self.hub.add("org/many", {**files_of(self.path), **{f"x{i}.json": b"%d" % i for i in range(12)}}, large={"model.onnx"})
        with ThreadPoolExecutor(8) as pool:
            self.assertEqual(len(set(pool.map(situ.pull, ["org/many"] * 8))), 1)
        self.assertEqual(len(self.hub.asked("store")), 1)

    def test_errors(self):
        for name, options, words in (("org/none", {}, "org/none"), (NAME, {"offline": True}, NAME), (f"{NAME}:q4", {}, "q4"), (f"{NAME}@..", {}, "..")):
            with self.subTest(name), self.assertRaisesRegex(situ.SituError, words.replace(".", r"\.")):
                situ.pull(name, **options)
        self.assertFalse((self.snapshot / "model.onnx").exists())


class DocumentsTest(PythonTest):
    def test_blocks(self):
        docs_test.BUILD = Path(cli_case.SITU).parent
        world = docs_test.World(self.folder / "world")
        self.addCleanup(world.hub.close)
        found = [(document, *block) for document in docs_test.DOCUMENTS for block in docs_test.blocks((docs_test.ROOT / document).read_text(encoding="utf-8"))]
        found = [(f"{document}:{line}", code) for document, line, language, code, why in found if language == "python" and why is None and "openai" not in code]
        self.assertGreater(len(found), 2)
        for where, code in found:
            with self.subTest(where):
                done = world.run([sys.executable, "-c", code])
                self.assertEqual(done.returncode, 0, f"\n{code}{done.stdout}{done.stderr}")
