#!/usr/bin/env python3
"""bench/tables.py: the documents state what bench/results says, and a change of either is caught."""

import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))
import machine  # noqa: E402
import tables  # noqa: E402

CASE = {"prompt": 35, "tokens": 120, "prefill_ms": 10.0, "decode_ms": 2.0}


def results():
    """A machine on which Situ decodes 500 tokens per second and llama.cpp 250; OpenVINO failed."""
    situ = {**CASE, "bytes_copied_per_token": 0, "bytes_read_per_token": 8e7, "read_bandwidth_bytes_per_s": 5e10}
    samples = [{"load_s": 0.5, "rss_mib": 200.0, "others": 0.04, "cases": [situ], "streams": []}]
    slow = [{"load_s": 1.0, "rss_mib": 300.0, "cases": [{**CASE, "decode_ms": ms}], "streams": []} for ms in (4.0, 1.0, 5.0)]
    return {"machine": "2 cores, a test", "date": "2026-01-01", "threads": 2, "reps": 3, "note": "On a boat.", "model": "smollm2-int4", "cases": ["35:120"], "streams": [],
            "engines": {"situ": {"version": "", "samples": samples}, "llama.cpp": {"version": "llama.cpp 1", "samples": slow}, "openvino": {"reason": "does not load"}}}


class TablesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        (self.root / "docs").mkdir()
        (self.root / "bench" / "results" / "m").mkdir(parents=True)
        self.result = self.root / "bench" / "results" / "m" / "smollm2-int4.json"
        self.result.write_text(json.dumps(results()))
        self.readme, self.page = self.root / "README.md", self.root / "docs" / "performance.md"
        self.readme.write_text("# A\n\n<!-- generated -->\n<!-- block: peers -->\n<!-- generated -->\n\nEnd.\n")
        self.page.write_text("# B\n\n<!-- generated -->\n<!-- block: machines -->\n<!-- generated -->\n")
        self.assertEqual(self.tables(), (0, ""))

    def tables(self, *arguments):
        run = subprocess.run([sys.executable, "-B", ROOT / "bench" / "tables.py", "--root", self.root, *arguments], capture_output=True, text=True, timeout=900)
        return run.returncode, run.stderr

    def test_writes_what_was_measured(self):
        self.assertEqual(self.tables("--check"), (0, ""))
        text = self.readme.read_text()
        self.assertTrue(text.startswith("# A\n") and text.endswith("\n\nEnd.\n"), text)
        self.assertIn("| decode, 35 past | **500** | - | - | - | - | - | 250 | 2.00x |", text)
        page = self.page.read_text()
        self.assertIn("### 2 cores, a test", page)
        self.assertIn("| load, s | **0.50** | - | - | - | - | - | 1.00 | 2.00x |", page)
        self.assertIn("|  | prefill, 512 | - | - | - | - | - | - | - | - |", page)
        self.assertNotIn("prefill, 512", text)
        self.assertIn("- All engines: not measured on this machine (SmolLM2-135M, int4: decode, 2,048 past, prefill, 128", page)
        self.assertIn("OpenVINO GenAI: does not load (SmolLM2-135M, int4: decode, 35 past", page)
        self.assertIn("| 80 | 50.0 | 40.0 | 80% |", page)
        self.assertIn(" On a boat. (smollm2-int4)\n", page)
        self.assertIn("Other processes took 4% of the processors at most", page)
        self.assertIn("<svg", (self.root / "docs" / "performance.svg").read_text())

    def test_experts_and_embeddings(self):
        where = {"machine": "2 cores, a test", "date": "2026-01-01", "threads": 2}
        def of(ms, **more):
            return {"cases": [{"prompt": 128, "tokens": 64, "prefill_ms": 1.0, "decode_ms": ms, **more}, {"prompt": 512, "tokens": 2, "prefill_ms": 256.0, "decode_ms": 1.0}], "streams": [{"ms": 2048.0}], "others": 0.01}
        engines = {"situ": {"version": "", "samples": [of(ms, read_bandwidth_bytes_per_s=4e10) for ms in (10.0, 9.0, 30.0)]}, "ort-genai": {"version": "1", "samples": [of(20.0)]}}
        models = {"a": {"chosen_bytes": 10**8, "least_bytes": 3 * 10**8, "engines": engines}, "b": {"chosen_bytes": 0, "least_bytes": 10**8, "engines": {"ort-genai": {"reason": "does not load"}}}}
        (self.result.parent / "experts.json").write_text(json.dumps({**where, "reps": 3, "streams": 16, "stream_tokens": 64, "models": models}))
        embedders = {"situ": {"ms": [1000.0], "others": [0.0]}, "ort-padded": {"ms": [2500.0], "others": [0.0]}, "ort-sorted": {"ms": [1500.0], "others": [0.0]}}
        (self.result.parent / "embeddings.json").write_text(json.dumps({**where, "texts": 512, "tokens": 5000, "batch": 32, "onnxruntime": "1", "embedders": embedders}))
        self.page.write_text(self.page.read_text() + "".join(f"\n<!-- generated -->\n<!-- block: {b} -->\n<!-- generated -->\n" for b in ("experts", "embeddings")))
        self.assertEqual(self.tables(), (0, ""))
        self.assertEqual(self.tables("--check"), (0, ""))
        page = self.page.read_text()
        for row in ("| a | Situ | 10.0 | 300 | 100 | 75% | 2,000 | 500 |", "| a | onnxruntime-genai | 20.0 | 300 | 100 | 38% |", "- b, onnxruntime-genai: does not load.",
                    "| Situ, without padding | 512 | - |", "padded | 205 | 2.50x |", "sorted by length, padded | 341 | 1.50x |"):
            self.assertIn(row, page)

    def test_a_changed_block_is_caught(self):
        for path, old, new in ((self.readme, "**500**", "**501**"), (self.page, "250", "249"), (self.root / "docs" / "performance.svg", "500", "510"),
                               (self.result, '"decode_ms": 2.0', '"decode_ms": 1.9')):
            with self.subTest(path.name):
                text = path.read_text()
                self.assertIn(old, text)
                path.write_text(text.replace(old, new, 1))
                code, words = self.tables("--check")
                self.assertEqual(code, 1)
                self.assertIn("run bench/tables.py", words)
                self.assertEqual(path.read_text(), text.replace(old, new, 1), "--check writes nothing")
                path.write_text(text)

    def test_a_stray_number_is_caught(self):
        text = self.readme.read_text()
        for words in ("420 tokens/s", "1.2 ms", "31 MB/s", "30 GB/s", "9 tokens a second", "**7** tok/s", "1,000 tokens per second", "12ms", "| a, tok/s | 5 |", "5 t/s"):
            with self.subTest(words):
                self.readme.write_text(text + f"\n{words}\n")
                code, found = self.tables("--check")
                self.assertEqual(code, 1)
                self.assertIn(f"README.md:{text.count(chr(10)) + 2}: ", found)
        for words in ("2,048 tokens", "97 MB a token", "tokens per second", "a table of ms", "3 msgs", "[ms](x)", "2 terms"):
            with self.subTest(words):
                self.readme.write_text(text + f"\n{words}\n")
                self.assertEqual(self.tables("--check"), (0, ""))
        self.readme.write_text(text)
        (self.root / "docs" / "tried.md").write_text("It took 5 ms.\n")
        self.assertEqual(self.tables("--check"), (0, ""))
        (self.root / "docs" / "other.md").write_text("It took 5 ms.\n")
        self.assertEqual(self.tables("--check")[0], 1)

    def test_marks_that_make_no_block_are_errors(self):
        text = self.readme.read_text()
        for wrong, words in ((text + "<!-- generated -->\n", "an odd number"), (text.replace("block: peers", "block: none"), "a block begins with")):
            self.readme.write_text(wrong)
            code, found = self.tables("--check")
            self.assertEqual(code, 1)
            self.assertIn(words, found)

    def test_the_machine_is_named_by_its_features(self):
        info = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 26\nmodel\t\t: 2\nflags\t\t: avx2 avx512f avx512_vnni avx512_bf16\n\nprocessor\t: 1\n"
        self.assertEqual(machine.name(info), "2 cores, Zen 5, AVX-512 VNNI/BF16, no AMX")
        self.assertEqual(machine.slug(machine.name(info)), "2-cores-zen-5-avx-512-vnni-bf16-no-amx")
        info = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nflags\t\t: avx2 avx512f avx512_vnni avx512_bf16 amx_int8 amx_bf16\n"
        self.assertEqual(machine.name(info), "1 core, Sapphire Rapids, AVX-512 VNNI/BF16, AMX INT8/BF16")

    def test_others_are_seen(self):
        others = machine.Others()
        subprocess.run([sys.executable, "-c", "sum(range(20_000_000))"], check=True)  # an ended child is no other
        own = others.share()
        self.assertTrue(0 <= own <= 1, own)
        with subprocess.Popen([sys.executable, "-c", "print(flush=True); sum(range(10**10))"], stdout=subprocess.PIPE) as child:
            child.stdout.readline()
            others = machine.Others()
            time.sleep(0.5)
            share = others.share()  # it runs still, and so counts
            child.kill()
        self.assertGreater(share, 0.01)

    def test_results_lie_under_the_name_of_their_machine(self):
        for file in (ROOT / "bench" / "results").glob("*/*.json"):
            self.assertEqual(file.parent.name, machine.slug(json.loads(file.read_text())["machine"]), file)

    def test_percentiles(self):
        self.assertEqual(tables.percentiles(range(1, 101), (0, 50, 99, 100)), {"p0": 1, "p50": 51, "p99": 100, "p100": 100})
        self.assertEqual(tables.percentiles([3, 1.239, 2], (50, 100)), {"p50": 2, "p100": 3})
        self.assertEqual(tables.percentiles([], (50,)), {"p50": None})

    def test_the_documents(self):
        for path in [ROOT / "README.md", *(ROOT / "docs").iterdir()]:
            target = self.root / path.relative_to(ROOT)
            shutil.copy(path, target)
        shutil.rmtree(self.root / "bench" / "results")
        if not (ROOT / "bench" / "results").exists():
            self.assertEqual(self.tables("--check"), (0, ""))
            self.skipTest("bench/results is empty: nothing is measured yet")
        shutil.copytree(ROOT / "bench" / "results", self.root / "bench" / "results")
        self.assertEqual(self.tables("--check"), (0, ""))
        text = self.readme.read_text()
        block = text.split(tables.MARK)[1]
        digit = re.search(r"\d(?=[^\d]*\|)", block)  # a number of the table that the first screen shows
        self.assertTrue(digit, "README.md has no figure in its first block")
        self.readme.write_text(text.replace(block, block[: digit.start()] + str(9 - int(digit.group())) + block[digit.end():]))
        self.assertEqual(self.tables("--check")[0], 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
