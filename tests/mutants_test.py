"""Mutants of small models: valid graphs that compute something slightly else are answered right, or refused with one line.

usage: mutants_test.py --situ build/situ [--record N]

../shared/tools/semantic_mutants.py makes a mutant of a model of ../shared from a seed. mutants.json holds for each what was
changed, and the ids that ONNX Runtime gives for the prompt, as far as its choices are clear. The Python of the environment
.venv-mutants is needed (make mutants fills it). --record N writes mutants.json anew, with N mutants.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("SITU_SHARED", ROOT.parent / "shared"))
TOOL = SHARED / "tools" / "semantic_mutants.py"
PYTHON = ROOT / ".venv-mutants" / "bin" / "python"
CORPUS = Path(__file__).parent / "mutants.json"
PROMPT, COUNT = 20, 24
CLEAR = 0.05  # between the first and the second choice, in logits
CHOICES, PER_MODEL = 4, 5  # of a mutant that is kept, at least; mutants of a model, at most
NO_CHOICES = (KeyError, IndexError, StopIteration, OverflowError, ValueError)


def mutant_of(tool, folder, seed):
    """The mutant and its text; None: the seed changes nothing."""
    for attempt in range(20):
        try:
            made = tool.Mutator(folder, f"{seed}/{attempt}")
            return made, made.mutate()
        except (tool.Nothing, *NO_CHOICES):
            continue
    return None, ""


def folder_of(tool, name):
    folder = tool.Folder(tool.find(name))
    folder.probe()
    return folder


def run_situ(model, ids):
    command = [SITU, "run", model, "--prompt-ids", ",".join(map(str, ids)), "-n", str(COUNT), "--ignore-eos", "--json", "--threads", "1"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=dict(os.environ, SITU_CACHE_DIR=""))


class MutantsTest(unittest.TestCase):
    def test_each_is_right_or_refused(self):
        import semantic_mutants as tool
        corpus = json.loads(CORPUS.read_text())
        with tempfile.TemporaryDirectory() as work, ThreadPoolExecutor(2) as pool:
            runs = []
            for name, mutants in corpus.items():
                folder = folder_of(tool, name)
                for expected in mutants:
                    made, text = mutant_of(tool, folder, expected["seed"])
                    self.assertEqual(text, expected["text"], f"{name} {expected['seed']}: another mutant")
                    model = f"{work}/{name}-{expected['seed']}"
                    tool.write(folder, made.m, model, folder.files[0])
                    runs.append((name, expected, pool.submit(run_situ, model, folder.seq[:PROMPT])))
            for name, expected, run in runs:
                with self.subTest(model=name, seed=expected["seed"], text=expected["text"]):
                    result = run.result()
                    lines = [line for line in result.stderr.splitlines() if not line.startswith("situ: note")]
                    if result.returncode == 2:
                        self.assertEqual(len(lines), 1, lines)
                        continue
                    self.assertEqual(result.returncode, 0, lines)
                    self.assertEqual(json.loads(result.stdout)["output_ids"][:len(expected["ids"])], expected["ids"])


def clear_ids(tool, model, ids):
    """Greedy choices of ONNX Runtime, up to the first that is not clear, or that is another one where the prompt is cut."""
    import numpy as np
    found = []
    for cuts in ([PROMPT], [7, PROMPT - 7]):
        loop = tool.Loop(model)
        loop.start()
        at, out = 0, []
        for count in [1] * PROMPT if loop.fixed == 1 else cuts:
            rows = loop.step(ids[at:at + count])
            at += count
        while len(out) < COUNT:
            row = rows[loop.logits].astype(np.float64).reshape(-1, rows[loop.logits].shape[-1])[-1]
            first, second = np.argsort(-row)[:2]
            if not np.isfinite(row[first]) or row[first] - row[second] < CLEAR:
                break
            out.append(int(first))
            rows = loop.step([int(first)])
        found.append(out)
    same = next((i for i, (a, b) in enumerate(zip(*found)) if a != b), min(map(len, found)))
    return found[0][:same]


def record(count):
    import semantic_mutants as tool
    names = [os.path.basename(d.rstrip("/")) for d in tool.folders()]
    random.Random(1).shuffle(names)
    corpus, kept = {}, 0
    with tempfile.TemporaryDirectory() as work:
        for name in names:
            try:
                folder = folder_of(tool, name)
                assert len(clear_ids(tool, folder.files[0], folder.seq[:PROMPT])) >= CHOICES
            except Exception:  # several graphs, inputs that the tool does not know, parts that count
                continue
            mutants = []
            for seed in range(4 * PER_MODEL):
                made, text = mutant_of(tool, folder, seed)
                if made is None or len(mutants) == PER_MODEL:
                    continue
                model = tool.write(folder, made.m, work + "/m", folder.files[0])
                try:
                    ids = clear_ids(tool, model, folder.seq[:PROMPT])
                except Exception:  # no valid model
                    continue
                if len(ids) >= CHOICES:
                    mutants.append({"seed": seed, "text": text, "ids": ids})
            corpus[name] = mutants
            kept += len(mutants)
            print(name, len(mutants), kept, flush=True)
            if kept >= count:
                break
    lines = [f' {json.dumps(name)}: [\n' + ",\n".join("  " + json.dumps(m) for m in mutants) + "]" for name, mutants in corpus.items() if mutants]
    CORPUS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--situ", default="build/situ")
    parser.add_argument("--record", type=int)
    options, rest = parser.parse_known_args()
    SITU = os.path.abspath(options.situ)
    if not TOOL.exists():
        print("skipped: no models in the shared folder")
        sys.exit(77)
    if Path(sys.prefix) != PYTHON.parent.parent:
        if not PYTHON.exists():
            print("skipped: .venv-mutants is not there (make mutants fills it)")
            sys.exit(77)
        os.execv(PYTHON, [str(PYTHON), "-B", *sys.argv])
    sys.path.insert(0, str(TOOL.parent))
    os.chdir(ROOT)
    if options.record:
        record(options.record)
    else:
        unittest.main(argv=[sys.argv[0], *rest])
