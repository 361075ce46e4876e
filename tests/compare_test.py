#!/usr/bin/env python3
"""bench/compare.py: what it refuses, and a measurement of Situ alone (build/situ), without the engines that need packages."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SITU = ROOT / "build" / "situ"
MODEL = Path(os.environ.get("SITU_SHARED", ROOT.parent / "shared")) / "models" / "tiny" / "llama"


def compare(*arguments):
    return subprocess.run([sys.executable, ROOT / "bench" / "compare.py", *arguments], capture_output=True, text=True, timeout=900)


class CompareTest(unittest.TestCase):
    def test_arguments(self):
        with tempfile.TemporaryDirectory() as folder:
            for arguments, words in ((["--engines", "situ,ort"], "no engine 'ort'"), (["--case", "8"], "'8' is not PROMPT:TOKENS"), (["--case", "8:0"], "'0' is no positive number"),
                                     (["--case", "8:1"], "'8:1': speed is measured over 2 tokens"),
                                     (["--threads", "99999"], "99999 threads are more than 1024"), (["--reps", "0"], "'0' is no positive number"), (["--threads", "-1"], "'-1' is no positive number"), (["--gguf", "none.gguf"], "'none.gguf': no such file"),
                                     (["--against", "none"], "'none': no such file"), (["--min-ratio", "0.9"], "--min-ratio goes with --against"),
                                     (["--against", sys.executable, "--min-ratio", "nan"], "'nan' is no ratio"), (["--against", sys.executable, "--min-ratio", "0"], "'0' is no ratio"),
                                     (["--against", sys.executable, "--engines", "situ"], "do not go with it")):
                with self.subTest(arguments):
                    run = compare(folder, *arguments)
                    self.assertEqual(run.returncode, 2)
                    self.assertIn(words, run.stderr)
            run = compare(folder, "--engines", "llama.cpp")
            self.assertEqual(run.returncode, 1)
            self.assertIn("no engine is left", run.stderr)
            run = compare(folder + "/none")
            self.assertEqual(run.returncode, 2)
            self.assertIn("no such file or folder", run.stderr)

    def test_a_failure_has_its_reason(self):
        if not (ROOT / "build" / "situ").exists():
            self.skipTest("no build/situ")
        with tempfile.TemporaryDirectory() as folder:
            run = compare(folder, "--engines", "situ", "--case", "4:4", "--reps", "1")
            self.assertEqual(run.returncode, 1)
            self.assertIn(f"situ failed: situ: {folder}: no .onnx file", run.stderr)

    def test_situ_alone(self):
        if not MODEL.exists() or not (ROOT / "build" / "situ").exists():
            self.skipTest(f"needs {MODEL} and build/situ")
        run = compare(MODEL, "--engines", "situ,openvino", "--case", "4:4", "--reps", "1", "--json")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("openvino: left out, needs --gguf FILE", run.stderr)
        (case,) = json.loads(run.stdout)["cases"]
        self.assertEqual((case["prompt"], case["tokens"], list(case["medians"])), (4, 4, ["situ"]))
        self.assertTrue(all(case["medians"]["situ"][k] > 0 for k in ("prefill_tps", "decode_tps", "rss_mib")))

    def test_two_builds(self):
        if not MODEL.exists() or not SITU.exists():
            self.skipTest(f"needs {MODEL} and build/situ")
        arguments = MODEL, "--against", SITU, "--case", "4:8", "--reps", "3"
        run = compare(*arguments, "--json", "--min-ratio", "0.001")
        self.assertEqual(run.returncode, 0, run.stderr)
        report = json.loads(run.stdout)
        (case,) = report["cases"]
        for speed in ("prefill_tps", "decode_tps"):
            ours, other = (case["medians"][name][speed] for name in ("situ", "against"))
            self.assertAlmostEqual(case["ratios"][speed], ours / other)
        self.assertEqual(report["ratio"], min(case["ratios"].values()))
        run = compare(*arguments, "--min-ratio", "1e9")
        self.assertEqual(run.returncode, 1)
        self.assertIn("below 1000000000.0", run.stderr)
        self.assertEqual(sum("4 + 8" in line for line in run.stdout.splitlines()), 2)

    def test_a_build_without_means_is_compared_by_its_medians(self):
        if not MODEL.exists() or not SITU.exists():
            self.skipTest(f"needs {MODEL} and build/situ")
        with tempfile.TemporaryDirectory() as folder:
            old = Path(folder) / "situ"  # 1 s for a prompt of 4 tokens, 0.5 s for a token
            row = {"rows": [{"in-place": {"prefill_ms": 1000, "decode_ms_per_token": 500}}]}
            old.write_text(f"#!/bin/sh\necho '{json.dumps(row)}'\n")
            old.chmod(0o755)
            run = compare(MODEL, "--against", old, "--case", "4:8", "--reps", "1", "--json")
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertEqual(json.loads(run.stdout)["cases"][0]["medians"]["against"], {"prefill_tps": 4, "decode_tps": 2})
            old.write_text("#!/bin/sh\necho no model >&2\nexit 2\n")
            run = compare(MODEL, "--against", old, "--case", "4:8", "--reps", "1")
            self.assertEqual(run.returncode, 1)
            self.assertIn("failed: no model", run.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
