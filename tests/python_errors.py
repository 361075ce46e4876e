"""Errors of the Python package: python_test.py runs them."""
import importlib.resources
import math
import os
import pickle
import re
import shutil
import typing
from collections.abc import Sequence
from pathlib import Path

import situ

import cli_case
import tiny_models
from cli_case import Run
from python_case import PythonTest

class ErrorsTest(PythonTest):
    def test_errors_carry_the_message(self):
        self.assertTrue(issubclass(situ.SituError, RuntimeError))
        self.assertEqual(f"{situ.SituError.__module__}.{situ.SituError.__name__}", "situ.SituError")
        (self.folder / "broken.onnx").write_bytes(b"\xff" * 64)
        for words, call in (("nothing-there", lambda: situ.load(self.folder / "nothing-there")),
                            ("broken.onnx", lambda: situ.load(self.folder / "broken.onnx")),
                            ("threads should be an integer from 1 to 1024, or 0 for one per CPU, is 1000000000", lambda: situ.load(self.path, threads=10**9)),
                            ("kv_type 'f8'", lambda: situ.load(self.path, kv_type="f8")),
                            ("no tokenizer.json", lambda: self.model.generate("text")),
                            ("no tokenizer.json", lambda: self.model.decode([1])),
                            ("no tokenizer.json", lambda: self.model.encode_chat([{"role": "user", "content": "x"}])),
                            ("id -1, outside the vocabulary", lambda: self.model.generate([-1])),
                            ("the prompt is empty", lambda: self.model.generate([])), ("maximum context length", lambda: self.model.generate([1] * 1000)),
                            ("top_p", lambda: self.model.generate([1], top_p=2)),
                            ("naive mode cannot rewind", lambda: situ.load(self.path, naive=True).session().rewind(0))):
            with self.subTest(words), self.assertRaisesRegex(situ.SituError, re.escape(words)) as caught:
                call()
            self.assertNotIn("\n", str(caught.exception))

    def test_errors_equal_the_command_line(self):
        if not Path(cli_case.SITU).exists():
            self.skipTest(f"{cli_case.SITU} is not built")
        with self.assertRaises(situ.SituError) as caught:
            self.model.generate([1, 1000])
        self.assertEqual(Run("run", self.path, "--prompt-ids", "1,1000").err, f"situ: {caught.exception}\n")

    def test_errors_of_several_prompts_name_the_file_once(self):
        for prompts in ([1], [[1], [2, 3]]):
            with self.assertRaises(situ.SituError) as caught:
                self.model.generate(prompts, logit_bias=dict.fromkeys(range(tiny_models.VOCABULARY), -math.inf))
            self.assertEqual(str(caught.exception).count("model.onnx"), 1, caught.exception)

    def test_names_of_files_in_any_bytes(self):
        name = os.fsencode(self.folder) + b"/caf\xe9"
        with self.assertRaises(situ.SituError) as caught:
            situ.load(os.fsdecode(name))
        self.assertIn(name, os.fsencode(str(caught.exception)))
        shutil.copytree(self.path, os.fsdecode(name))
        self.assertEqual(os.fsencode(situ.load(os.fsdecode(name)).facts.file), name + b"/model.onnx")

    def test_errors_have_codes(self):
        for call, code in ((lambda: situ.load("/nothing/there"), "not_found"), (lambda: situ.load("/dev/null"), "bad_file"),
                           (lambda: self.model.generate([1], top_p=2), "invalid_argument"), (lambda: self.model.generate([2**70]), "invalid_argument"),
                           (lambda: self.model.generate([1] * 100000), "context_exceeded"), (lambda: self.model.encode_translation("1", "", "xx"), "not_found")):
            with self.assertRaises(situ.SituError) as caught:
                call()
            self.assertEqual(caught.exception.code, code, caught.exception)

    def test_types(self):
        for call in (lambda: self.model.generate(5), lambda: self.model.generate(b"12"), lambda: self.model.generate([1], chat=True),
                     lambda: self.model.generate([1], temprature=1), lambda: self.model.generate([1], top_k="many"),
                     lambda: self.model.generate([1], max_new_tokens="2"), lambda: self.model.generate([1], stop=5),
                     lambda: self.model.generate([1], seed=-1), lambda: self.model.generate([1.5]), lambda: self.model.stream([1], nothing=1),
                     lambda: self.model.generate({1: 2}), lambda: self.model.step([(None, [1])]), lambda: self.model.step([(self.model.session(), "1")]),
                     lambda: self.model.encode(5), lambda: self.model.encode_chat([{"role": "user"}]), lambda: self.model.decode([None]),
                     lambda: self.model.generate([1], arrays=[1]), lambda: situ.load(self.path, threads="2"), lambda: situ.load(self.path, nothing=1), lambda: pickle.dumps(self.model)):
            with self.assertRaises(TypeError):
                call()
        with self.assertRaisesRegex(TypeError, "option top_k cannot be 'many'"):
            self.model.generate([1], top_k="many")
        self.assertEqual(self.generate_ids(self.model, top_k=None, seed=None), self.ids)
        for call, word in ((lambda: situ.load(f"{self.path}\0x"), "null"), (lambda: self.model.generate([2**70]), str(2**70)),
                           (lambda: situ.load(self.text_path).encode("\ud800"), "Unicode")):
            with self.assertRaisesRegex(situ.SituError, word):
                call()

    def test_the_package_is_typed(self):
        files = {f.name: f for f in importlib.resources.files(situ).iterdir()}
        self.assertIn("py.typed", files)
        several = typing.get_overloads(situ.Model.generate)[1].__annotations__["prompt"]
        self.assertLessEqual({list[str], tuple[str, ...], Sequence[situ.model.Ids]}, set(typing.get_args(several)))
        stub = files["_situ.pyi"].read_text()
        for words in ("class SituError(RuntimeError)", "def step(self, tokens: Sequence[int] | numpy.typing.NDArray[numpy.integer[Any]]) -> Annotated[numpy.typing.NDArray[numpy.float32], dict(shape=(None,), order='C', writable=False)]",
                      "def session(self) -> Session", "def length(self) -> int"):
            self.assertIn(words, stub)
