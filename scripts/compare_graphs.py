#!/usr/bin/env python3
"""Compares what two builds of situ make of the same model folders.

    scripts/compare_graphs.py OLD NEW [FOLDER...] [--pairs N] [--seconds S] [--jobs N] [--json FILE]

OLD and NEW are programs. A FOLDER is a model, or holds models at any depth; without one all of ../shared/models (or of
$SITU_SHARED/models) are compared. Of each model:

  graphs    digests of the graph behind each pass, by the name of the pass (`situ inspect --passes --json`); left out
            where OLD has no --passes. A pass that one list alone has is told, and is no difference by itself
  findings  what was recognised, states, copies and whether the model is refused, and for what
  copied    bytes copied for each token, ids and the kind of end of a short `situ run`
  load      milliseconds, the median of N pairs of loads that take turns: told, never a difference

Prints a line for each difference, and a summary. Exit code: 0, nothing differs but time; 1, something does; 2, a
program cannot be run or there are no models.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("SITU_SHARED", ROOT.parent / "shared"))
TOKENS = 4  # of the short run
PROMPT = "1,2,3"
FINDINGS = ("nodes", "states", "recognised", "recognised, one token", "copies", "sequences", "prompts", "notes", "unsupported",
            "no pictures")


def models_in(folder):
    """Folders with graphs, or with graphs in `onnx/`; a folder of models gives each of them."""
    graphs = lambda f: any(f.glob("*.onnx"))
    found = []
    for here, below, names in os.walk(folder):
        here = Path(here)
        if graphs(here) or (here / "genai_config.json").exists() or ("onnx" in below and graphs(here / "onnx")):
            found.append(here)
            below.clear()
        below.sort()
    return found


class Program:
    """One build. `call` gives (exit code, JSON of the output or None, last line of the errors)."""

    def __init__(self, path, seconds):
        self.path, self.seconds = str(path), seconds
        self.has_passes = "--passes" in subprocess.run([self.path, "inspect", "--help-all"], capture_output=True, text=True).stdout

    def call(self, *args):
        try:
            run = subprocess.run([self.path, *map(str, args)], capture_output=True, text=True, timeout=self.seconds)
        except subprocess.TimeoutExpired:
            return "time", None, f"more than {self.seconds} s"
        lines = run.stdout.strip().splitlines()
        try:
            told = json.loads(run.stdout)
        except ValueError:
            try:
                told = json.loads(lines[-1]) if lines else None
            except ValueError:
                told = None
        return run.returncode, told, (run.stderr.strip().splitlines() or [""])[-1]

    def inspected(self, model, passes):
        """{"code", "error", "passes": [(compilation, graph, name, digest)] or None, findings}"""
        code, told, error = self.call("inspect", model, "--json", *(["--passes"] if passes else []))
        told = told or {}
        facts = {"code": code, "error": error, "passes": None}
        if passes:
            facts["passes"] = [(p["compilation"], p["graph"], p["for"], p["name"], p["digest"]) for p in told.get("passes", [])]
        facts.update({key: told.get(key) for key in FINDINGS})
        return facts

    def ran(self, model):
        """A short run on ids: refused for the same reason by both where a model takes none."""
        code, told, error = self.call("run", model, "--prompt-ids", PROMPT, "-n", TOKENS, "--ignore-eos", "--greedy", "--json")
        told = told or {}
        return {"code": code, "error": error, **{k: told.get(k) for k in ("bytes_copied_per_token", "output_ids", "finish_reason")}}

    def load_ms(self, model):
        _, told, _ = self.call("run", model, "--prompt-ids", PROMPT, "-n", 1, "--json")
        return (told or {}).get("load_ms")


def first_other_pass(old, new):
    """The first pass whose digest differs, as a text; None: there is none."""
    def by_pass(passes):
        seen, table = {}, {}
        for compilation, graph, use, name, digest in passes:
            seen[key] = seen.get(key := (compilation, graph, use, name), 0) + 1
            table[key + (seen[key],)] = digest
        return table

    old, new = by_pass(old), by_pass(new)
    last = {}
    for key, digest in new.items():
        if key in old and old[key] != digest:
            return f"another graph behind {key[3]} ({key[1]}, {key[2]}, compilation {key[0]})"
        last[key[0]] = key
    compilations = {key[0] for key in old} ^ {key[0] for key in new}
    return f"compiled {len({k[0] for k in old})} and {len({k[0] for k in new})} times" if compilations else None


def only_in_one(old, new):
    names = [{p[3] for p in passes} for passes in (old, new)]
    return sorted(names[0] ^ names[1])


def short(value):
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "..."


def compared(old, new, model, pairs):
    """{"differences": [text], "others": names of passes of one list alone, "old_ms", "new_ms"}"""
    passes = old.has_passes and new.has_passes
    was, now = old.inspected(model, passes), new.inspected(model, passes)
    result = {"differences": [], "others": [], "old_ms": None, "new_ms": None}
    if passes:
        result["others"] = only_in_one(was["passes"], now["passes"])
        if other := first_other_pass(was["passes"], now["passes"]):
            result["differences"].append(other)
    ran_before, ran_now = old.ran(model), new.ran(model)
    for what, before, after in (("inspect", was, now), ("run", ran_before, ran_now)):
        result["differences"] += [f"{what}: {key}: {short(before[key])} became {short(after[key])}"
                                  for key in before if key != "passes" and before[key] != after[key]]
    times = {old: [], new: []}
    for i in range(pairs):
        for program in ((old, new), (new, old))[i % 2]:
            times[program].append(program.load_ms(model))
    for name, program in (("old_ms", old), ("new_ms", new)):
        if times[program] and None not in times[program]:
            result[name] = statistics.median(times[program])
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--pairs", type=int, default=3, help="of loads that are timed; 0: none")
    parser.add_argument("--seconds", type=float, default=60, help="that one command may take")
    parser.add_argument("--jobs", type=int, default=1, help="models at a time; times mean little with more than 1")
    parser.add_argument("--json", type=Path, help="a file for all results")
    a = parser.parse_args()
    try:
        old, new = (Program(p.resolve(), a.seconds) for p in (a.old, a.new))
    except OSError as e:
        parser.exit(2, f"compare_graphs: error: {e}\n")
    folders = a.folders or [SHARED / "models"]
    models = sorted({m for f in folders for m in models_in(f)})
    if not models:
        parser.exit(2, f"compare_graphs: error: no models in {', '.join(map(str, folders))}\n")
    results, ratios, differ, others = {}, [], 0, set()
    with ThreadPoolExecutor(a.jobs) as pool:
        for model, result in zip(models, pool.map(lambda m: compared(old, new, m, a.pairs), models)):
            results[str(model)] = result
            differ += bool(result["differences"])
            others |= set(result["others"])
            if result["old_ms"] and result["new_ms"]:
                ratios.append(result["new_ms"] / result["old_ms"])
            for text in result["differences"]:
                print(f"{model}: {text}", flush=True)
    if a.json:
        a.json.write_text(json.dumps(results, indent=1))
    graphs = "graphs not compared (a program has no --passes)" if not (old.has_passes and new.has_passes) else "graphs compared"
    if others:
        graphs += f", passes of one list alone: {', '.join(sorted(others))}"
    load = f"; load {statistics.median(ratios):.3f} of OLD's (median of {len(ratios)} models)" if ratios else ""
    print(f"{len(models)} models: {differ} differ; {graphs}{load}")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
