"""Mutants of small models: valid graphs that compute something slightly else are answered right, or refused with one line.

usage: mutants_test.py --situ build/situ [--record N]

../shared/tools/semantic_mutants.py makes a mutant of a model of ../shared from a seed. mutants.json holds for each the nodes
and constants that were changed, the ids that ONNX Runtime gives for the prompt, as far as its choices are clear, and whether
the mutant may be refused. --record N writes mutants.json anew, with N mutants; only that needs ONNX Runtime, from the
environment .venv-mutants (make mutants fills it).
"""
import argparse
import base64
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import unittest
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import onnx

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("SITU_SHARED", ROOT.parent / "shared"))
TOOL = SHARED / "tools" / "semantic_mutants.py"
CORPUS = Path(__file__).parent / "mutants.json"
PROMPT, COUNT = 20, 24
CLEAR = 0.05  # between the first and the second choice, in logits
CHOICES, PER_MODEL = 4, 5  # of a mutant that is kept, at least; mutants of a model, at most
NO_CHOICES = (KeyError, IndexError, StopIteration, OverflowError, ValueError)


def prompt_of(vocabulary):
    rng = random.Random(5)
    return [rng.randrange(3, vocabulary - 1) for _ in range(200)][:PROMPT]


def named(messages):
    return {m.name: m.SerializeToString(deterministic=True) for m in messages}


def changes_of(base, made):
    """(order, changes): the nodes of `made` as ranges of the base's nodes and "+" for the next changed one; and these, the
    constants that are not the base's, and all inputs and outputs if one of them is another."""
    changes, order = onnx.GraphProto(), []
    known = {n.SerializeToString(deterministic=True): i for i, n in enumerate(base.node)}
    for node in made.node:
        at = known.get(node.SerializeToString(deterministic=True))
        if at is None:
            order.append("+")
            changes.node.append(node)
        elif order and order[-1] != "+" and order[-1][1] == at:
            order[-1][1] += 1
        else:
            order.append([at, at + 1])
    before = named(base.initializer)
    changes.initializer.extend(t for t in made.initializer if before.get(t.name) != t.SerializeToString(deterministic=True))
    if (named(base.input), named(base.output)) != (named(made.input), named(made.output)):
        changes.input.extend(made.input)
        changes.output.extend(made.output)
    packed = base64.b64encode(zlib.compress(changes.SerializeToString(deterministic=True), 9)).decode()
    return " ".join(o if o == "+" else f"{o[0]}:{o[1]}" for o in order), packed


def mutant(base, expected):
    """The base with the changes of a mutant."""
    model, changes = onnx.ModelProto(), onnx.GraphProto()
    model.CopyFrom(base)
    changes.ParseFromString(zlib.decompress(base64.b64decode(expected["changes"])))
    graph, new = model.graph, iter(changes.node)
    del graph.node[:]
    for part in expected["order"].split():
        first, _, last = part.partition(":")
        graph.node.extend([next(new)] if part == "+" else base.graph.node[int(first):int(last)])
    other = {t.name for t in changes.initializer}
    kept = [t for t in graph.initializer if t.name not in other]
    del graph.initializer[:]
    graph.initializer.extend(kept + list(changes.initializer))
    for old, replaced in ((graph.input, changes.input), (graph.output, changes.output)):
        if replaced:
            del old[:]
            old.extend(replaced)
    return model


def write(folder, file, model, to):
    """A folder with another model, whose other files are the same ones."""
    shutil.copytree(folder, to, copy_function=os.symlink)
    path = to / file
    path.unlink()
    onnx.save(model, path)
    return path


def run_situ(model, ids):
    command = [SITU, "run", model, "--prompt-ids", ",".join(map(str, ids)), "-n", str(COUNT), "--ignore-eos", "--json", "--threads", "1"]
    return subprocess.run(command, capture_output=True, text=True, timeout=900, env=dict(os.environ, SITU_CACHE_DIR=""))


class MutantsTest(unittest.TestCase):
    def test_each_is_right_or_refused(self):
        corpus = json.loads(CORPUS.read_text())
        with tempfile.TemporaryDirectory() as work, ThreadPoolExecutor(2) as pool:
            runs = []
            for name, kept in corpus.items():
                folder = SHARED / "models" / kept["folder"]
                base = onnx.load(folder / kept["file"])
                for expected in kept["mutants"]:
                    path = write(folder, kept["file"], mutant(base, expected), Path(work) / f"{name}-{expected['seed']}")
                    runs.append((name, expected, pool.submit(run_situ, path, prompt_of(kept["vocabulary"]))))
            for name, expected, run in runs:
                with self.subTest(model=name, seed=expected["seed"], text=expected["text"]):
                    result = run.result()
                    lines = [line for line in result.stderr.splitlines() if not line.startswith("situ: note")]
                    if result.returncode == 2 and expected.get("may_be_refused"):
                        self.assertEqual(len(lines), 1, lines)
                        continue
                    self.assertEqual(result.returncode, 0, lines)
                    got = json.loads(result.stdout)["output_ids"]  # fewer than COUNT where the model's context ends
                    self.assertGreaterEqual(len(got), CHOICES)
                    self.assertEqual(got[:len(expected["ids"])], expected["ids"][:len(got)])


# -- recording

def made_from(tool, folder, seed):
    """The mutant and its text; None: the seed changes nothing."""
    for attempt in range(20):
        try:
            made = tool.Mutator(folder, f"{seed}/{attempt}")
            return made.m, made.mutate()
        except (tool.Nothing, *NO_CHOICES):
            continue
    return None, ""


def clear_ids(tool, model, ids):
    """Greedy choices of ONNX Runtime, up to the first that is not clear, or that is another one where the prompt is cut."""
    import numpy as np
    found = []
    for cuts in ([PROMPT], [7, PROMPT - 7]):
        loop = tool.Loop(os.fspath(model))
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


def record_model(tool, folder, work):
    """Up to PER_MODEL mutants that ONNX Runtime runs, whose choices are clear."""
    path, file = Path(folder.dir), Path(folder.files[0]).relative_to(folder.dir)
    mutants = []
    for seed in range(4 * PER_MODEL):
        made, text = made_from(tool, folder, seed)
        if made is None or len(mutants) == PER_MODEL:
            continue
        order, changes = changes_of(folder.model.graph, made.graph)
        kept = {"seed": seed, "text": text, "order": order, "changes": changes}
        try:
            model = write(path, file, mutant(folder.model, kept), Path(work) / f"{folder.name}-{seed}")
            kept["ids"] = clear_ids(tool, model, prompt_of(folder.vocab))
        except Exception:  # no valid model
            continue
        if len(kept["ids"]) >= CHOICES:
            if run_situ(model, prompt_of(folder.vocab)).returncode == 2:
                kept["may_be_refused"] = True
            mutants.append(kept)
    return {"folder": os.fspath(path.relative_to(Path(tool.HERE) / ".." / "models")), "file": os.fspath(file),
            "vocabulary": folder.vocab, "mutants": mutants}


def record(count):
    sys.path.insert(0, str(TOOL.parent))
    import semantic_mutants as tool
    names = [os.path.basename(d.rstrip("/")) for d in tool.folders()]
    random.Random(1).shuffle(names)
    corpus, found = {}, 0
    with tempfile.TemporaryDirectory() as work:
        for name in names:
            try:
                folder = tool.Folder(tool.find(name))
                folder.probe()
                assert len(clear_ids(tool, folder.files[0], folder.seq[:PROMPT])) >= CHOICES
            except Exception:  # several graphs, inputs that the tool does not know, parts that count
                continue
            kept = record_model(tool, folder, work)
            if kept["mutants"]:
                corpus[name] = kept
            found += len(kept["mutants"])
            print(name, len(kept["mutants"]), found, flush=True)
            if found >= count:
                break
    lines = []
    for name, kept in corpus.items():
        head = ", ".join(f"{json.dumps(key)}: {json.dumps(kept[key])}" for key in ("folder", "file", "vocabulary"))
        lines.append(f' {json.dumps(name)}: {{{head}, "mutants": [\n' + ",\n".join("  " + json.dumps(m) for m in kept["mutants"]) + "]}")
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
    os.chdir(ROOT)
    if options.record:
        record(options.record)
    else:
        unittest.main(argv=[sys.argv[0], *rest])
