"""Measures the rows of the tables, and writes bench/results/MACHINE/NAME.json, the source of bench/tables.py.

usage: measure.py MODELS [--only NAME ...] [--reps R] [--threads T] [--engines a,b,..]

MODELS is what bench/models.py made. A NAME is one of RUNS below, or naive; its file is written anew, but keeps what it has of
engines that --engines leaves out. Engines take turns in every
repetition, each measurement in a process of its own. An engine that fails, or is not there, has its reason in the file.
Run it while the machine has nothing else to do.
"""
import argparse
import sys
import time
from pathlib import Path

import compare
import machine
import tables
from engines import situ

RESULTS = Path(__file__).parent / "results"
TIMEOUT_S = 900  # of a process
STREAMS = {"prompt": 128, "tokens": 64}
BATCHED = ["situ", "ort-shared", "ort-genai", "openvino-cb", "llama.cpp"]  # engines that answer several prompts together
# NAME: (model, repetitions, cases as prompt:tokens, counts of streams, engines, why the others are left out).
# The first case of a run is the one that load time and memory are taken of.
ENGINES = list(compare.MODULES)
RUNS = {
    "smollm2-int4": ("smollm2-int4", 3, ["35:120", "128:2", "512:2", "2048:32"], [], ENGINES, ""),
    "smollm2-int4-streams": ("smollm2-int4", 1, [], [1, 4, 16, 64], BATCHED, "no batch of requests"),
    "smollm2-float32": ("smollm2-float32", 3, ["35:60", "512:2"], [], ENGINES, ""),
    "llama-1b": ("llama-1b", 2, ["128:32", "512:2"], [], ENGINES, ""),
    "llama-1b-streams": ("llama-1b", 1, [], [16], BATCHED, "no batch of requests"),
    "llama-8b": ("llama-8b", 1, ["128:16", "512:2"], [], ENGINES, ""),
}
NAIVE_DEPTHS = "35,512,2048"


def measured(name, run, a, before):
    """Yields the report after each measurement. Engines that are not asked for have what they had `before`: {engine:
    what the file has}."""
    model, reps, cases, streams, engines, left_out = run
    reps = a.reps or reps
    what = (["--case", *cases] if cases else []) + (["--streams", *streams, "--stream-case", f"{STREAMS['prompt']}:{STREAMS['tokens']}"] if streams else [])
    report = {"machine": machine.name(), "date": time.strftime("%Y-%m-%d"), "threads": a.threads, "reps": reps, "model": model,
              "cases": cases, "streams": streams, "stream_prompt": STREAMS["prompt"], "stream_tokens": STREAMS["tokens"], "engines": {}}
    for engine in ENGINES:
        file = a.models / (model + ".gguf" if engine in compare.ON_GGUF else model)
        reason = left_out if engine not in engines else compare.available(engine, file)
        report["engines"][engine] = {"reason": reason} if reason else {"samples": []}
        if engine not in a.engines and engine in engines:
            report["engines"][engine] = before.get(engine, {"reason": "not measured on this machine"})
    for rep in range(reps):
        for engine, of_engine in report["engines"].items():
            if "reason" in of_engine or engine not in a.engines:
                continue
            file = a.models / (model + ".gguf" if engine in compare.ON_GGUF else model)
            begin, others = time.monotonic(), machine.Others()
            result, reason = compare.measure(engine, file, a.threads, *what, timeout=TIMEOUT_S)
            print(f"{name}: repetition {rep + 1} of {reps}, {engine}: {reason or f'{time.monotonic() - begin:.0f} s, others took {100 * others.share():.0f}% of the processors'}", flush=True)
            if reason:
                of_engine.clear()
                of_engine["reason"] = reason
            else:
                of_engine["version"] = result.pop("version")
                result["others"] = round(others.share(), 3)  # of the processors, taken by other processes meanwhile
                of_engine["samples"].append(result)
            yield report


def measured_naive(a):
    """Situ in place and in its naive mode, on the first model."""
    row = situ.situ("bench", a.models / "smollm2-int4", "-p", 35, "-d", NAIVE_DEPTHS, "--vs", "naive", "--reps", a.reps or 3, "--threads", a.threads, "--json")
    rows = [{"past": r["past"], "in-place": r["in-place"], "naive": r["naive"]} for r in row["rows"]]
    return {"machine": machine.name(), "date": time.strftime("%Y-%m-%d"), "threads": a.threads, "reps": row["reps"], "model": "smollm2-int4",
            "prompt": row["prompt"], "tokens": row["tokens"], "rows": rows}


def main():
    names = [*RUNS, "naive"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path)
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME", help="of " + ", ".join(names))
    parser.add_argument("--reps", type=compare.positive, help="default: what RUNS says")
    parser.add_argument("--threads", type=compare.thread_count, default=2)
    parser.add_argument("--engines", type=compare.engine_names, default=ENGINES)
    parser.add_argument("--results", type=Path, default=RESULTS)
    a = parser.parse_args()
    for name in a.only:
        before = (tables.earlier_results(a.results, name) or {"engines": {}})["engines"] if name in RUNS else {}
        for report in measured(name, RUNS[name], a, before) if name in RUNS else [measured_naive(a)]:
            tables.write_results(a.results, name, report)  # what there is, should this be ended early
    return 0


if __name__ == "__main__":
    sys.exit(main())
