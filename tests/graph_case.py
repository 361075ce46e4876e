"""A test case that compares a changed decoder (decoder_graphs.py) with the literal run, node by node.

Every case changes a small decoder so much that a rewrite which overlooks the change gives other ids: that is checked too,
against the decoder without the change.
"""
import json
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import decoder_graphs
import tiny_models
from cli_case import CliTest, Run
from decoder_graphs import LEARNED

SHORT = [int(t) for t in np.random.default_rng(9).integers(0, tiny_models.VOCABULARY, 9)]
LONG = [int(t) for t in np.random.default_rng(48).integers(0, tiny_models.VOCABULARY, 48)]  # with COUNT more: the whole context

class GraphCase(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.pool = ThreadPoolExecutor(os.cpu_count())
        cls.known = {}  # ids of the decoders without a change

    def write(self, name, spec, hooks):
        return decoder_graphs.write(self.folder / f"{self.id()} {spec.name} {name}.onnx".replace("/", "|"), spec, **hooks)

    def found(self, name, spec, hooks, kind):
        findings = json.loads(Run("inspect", self.write(name, spec, hooks), "--json").out)["recognised"]
        return [f["what"] for f in findings if f["kind"] == kind]

    def start(self, path, prompt, *options):
        # One thread each: what a pass makes of a graph does not depend on it.
        return self.pool.submit(self.generate, path, prompt, "--threads", 1, *options)

    def plain(self, spec, prompt, hooks):
        """The naive ids of a decoder that the changed ones must differ from."""
        key = spec.name, len(prompt), tuple(hooks.items())
        if key not in self.known:
            path = self.write(f"plain {len(self.known)}", spec, hooks)
            self.known[key] = self.start(path, prompt, "--naive").result()["output_ids"]
        return self.known[key]

    def check(self, cases, spec=LEARNED, prompt=SHORT, instead={}, copies_nothing=False, options=()):
        """cases: hooks by name, or (hooks, hooks of the decoder that it must not be taken for). options: of the placed run."""
        cases = {name: c if isinstance(c, tuple) else (c, instead) for name, c in cases.items()}
        runs = {}
        for name, (hooks, _) in cases.items():
            path = self.write(name, spec, hooks)
            runs[name] = self.start(path, prompt, "--naive"), self.start(path, prompt, *options)
        for name, (_, other) in cases.items():
            with self.subTest(name, spec=spec.name):
                naive, placed = (r.result() for r in runs[name])
                self.assertNotEqual(naive["output_ids"], self.plain(spec, prompt, other), "the change changes nothing")
                self.assertEqual(placed["output_ids"], naive["output_ids"])
                if copies_nothing:
                    self.assertEqual(placed["bytes_copied_per_token"], 0)
