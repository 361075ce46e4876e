"""Situ and its peers on the same files, or two builds of Situ, in turn, and their ratios.

usage: compare.py MODEL [--gguf FILE] [--case PROMPT:TOKENS ...] [--reps R] [--threads T] [--engines a,b,..] [--json]
       compare.py MODEL --against BINARY [--min-ratio X] [--case PROMPT:TOKENS ...] [--reps R] [--threads T] [--json]

Engines that are not installed are named and left out (bench/run.sh installs what it can). Each measurement is a process
of its own; the engines take turns in every repetition, so that a machine that slows down slows all. The figure of a
measurement is the mean over its tokens, the figure of a case the median of its measurements.

With --against, build/situ is compared with BINARY, another build of situ. Exit code 1: build/situ has less than
--min-ratio of the tokens per second of BINARY in some case.
"""
import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

import machine

PEER = Path(__file__).parent / "peer.py"
SITU = Path(__file__).parent.parent / "build" / "situ"
SPEEDS = ("prefill_tps", "decode_tps")
MODULES = {"situ": None, "ort-naive": "onnxruntime", "ort-shared": "onnxruntime", "ort-genai": "onnxruntime_genai", "openvino": "openvino_genai",
           "openvino-cb": "openvino_genai", "llama.cpp": None}
ON_GGUF = {"openvino", "openvino-cb", "llama.cpp"}
LLAMA_BENCH = Path(sys.prefix) / "llama.cpp" / "bin" / "llama-bench"
TIMEOUT_S = 1800  # of a measurement
MOST_THREADS = 1024  # of Situ


def available(engine, gguf):
    """Why the engine cannot be measured here; "": it can."""
    missing = ["needs --gguf FILE"] if engine in ON_GGUF and not gguf else []
    module = MODULES[engine]
    if module and subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True).returncode:
        missing.append(f"{module} is not installed")
    if engine == "llama.cpp" and not LLAMA_BENCH.exists():
        missing.append("llama-bench is not built")
    return ", ".join(missing)


def measure(engine, model, threads, *arguments, timeout=TIMEOUT_S):
    """(what peer.py prints, "") or (None, the reason in one line)."""
    try:
        run = subprocess.run([sys.executable, "-B", PEER, engine, model, "--threads", str(threads), *map(str, arguments)], capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return None, f"no result in {timeout} s"
    if run.returncode:
        return None, run.stderr.strip().splitlines()[-1] if run.stderr.strip() else f"exit code {run.returncode}"
    return json.loads(run.stdout.splitlines()[-1]), ""


def of_case(engine, model, prompt, tokens, threads):
    """Tokens per second, load time and memory, or None and a line on stderr."""
    result, reason = measure(engine, model, threads, "--case", f"{prompt}:{tokens}")
    if not result:
        print(f"{engine} failed: {reason}", file=sys.stderr)
        return None
    (row,) = result["cases"]
    return {"prefill_tps": 1000 * prompt / row["prefill_ms"], "decode_tps": 1000 / row["decode_ms"], "load_s": result["load_s"], "rss_mib": result["rss_mib"]}


def positive(text):
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is no positive number")
    return int(text)


def case(text):
    prompt, colon, tokens = text.partition(":")
    if not colon:
        raise argparse.ArgumentTypeError(f"'{text}' is not PROMPT:TOKENS")
    if positive(tokens) < 2:
        raise argparse.ArgumentTypeError(f"'{text}': speed is measured over 2 tokens or more")
    return positive(prompt), positive(tokens)


def thread_count(text):
    if positive(text) > MOST_THREADS:
        raise argparse.ArgumentTypeError(f"{text} threads are more than {MOST_THREADS}")
    return positive(text)


def engine_names(text):
    unknown = [e for e in text.split(",") if e not in MODULES]
    if unknown:
        raise argparse.ArgumentTypeError(f"no engine '{unknown[0]}'; there are {', '.join(MODULES)}")
    return text.split(",")


def ratio(text):
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"'{text}' is no ratio")
    return value


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--gguf", help="the same weights for the engines that read GGUF")
    parser.add_argument("--case", action="append", type=case, help="prompt tokens:new tokens (default 35:120 and 2048:32)")
    parser.add_argument("--reps", type=positive, default=5)
    parser.add_argument("--threads", type=thread_count, default=2)
    parser.add_argument("--engines", type=engine_names, help="of " + ",".join(MODULES))
    parser.add_argument("--against", metavar="BINARY", help="compare with this build of situ, not with other engines")
    parser.add_argument("--min-ratio", type=ratio, help="of build/situ to BINARY, in tokens per second (default 0.97)")
    parser.add_argument("--json", action="store_true")
    a = parser.parse_args()
    for path in filter(None, (a.model, a.gguf, a.against)):
        if not Path(path).exists():
            parser.error(f"'{path}': no such file or folder")
    if a.against and (a.engines or a.gguf):
        parser.error("--against compares two builds of situ: --engines and --gguf do not go with it")
    if a.min_ratio and not a.against:
        parser.error("--min-ratio goes with --against")
    a.case = a.case or [(35, 120), (2048, 32)]
    a.min_ratio = a.min_ratio or 0.97
    return a


def bench(binary, model, prompt, tokens, threads):
    """The row of one `situ bench`, or None and a line on stderr."""
    command = [binary, "bench", model, "-p", str(prompt), "-n", str(tokens), "--reps", "1", "--threads", str(threads), "--json"]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"{binary} failed: {error}", file=sys.stderr)
        return None
    if run.returncode:
        print(f"{binary} failed: {(run.stderr.strip().splitlines() or [run.returncode])[-1]}", file=sys.stderr)
        return None
    return json.loads(run.stdout)["rows"][0]["in-place"]


def tokens_per_second(rows, prompt, statistic):
    """Medians over `rows`. `statistic`: "_mean", or "" where a build is too old to report means over tokens."""
    return {"prefill_tps": statistics.median(1000 * prompt / r["prefill_ms" + statistic] for r in rows),
            "decode_tps": statistics.median(1000 / r["decode_ms_per_token" + statistic] for r in rows)}


def compare_builds(a):
    builds = {"situ": str(SITU), "against": str(Path(a.against).resolve())}
    report = {"model": a.model, "machine": machine.name(), "threads": a.threads, "reps": a.reps, "min_ratio": a.min_ratio, "builds": builds, "cases": []}
    if not a.json:
        print(f"{a.model}; {report['machine']}; {a.threads} threads; medians of {a.reps}\n"
              f"{'':16}{'':14}{'situ tok/s':>12}{'against tok/s':>15}{'ratio':>8}")
    for prompt, tokens in a.case:
        rows = {name: [] for name in builds}
        for rep in range(a.reps):
            for name in builds if rep % 2 == 0 else reversed(builds):  # neither is always the first
                row = bench(builds[name], a.model, prompt, tokens, a.threads)
                if not row:
                    return 1
                rows[name].append(row)
        statistic = "_mean" if all("prefill_ms_mean" in r[0] for r in rows.values()) else ""
        medians = {name: tokens_per_second(r, prompt, statistic) for name, r in rows.items()}
        ratios = {k: medians["situ"][k] / medians["against"][k] for k in SPEEDS}
        report["cases"].append({"prompt": prompt, "tokens": tokens, "medians": medians, "ratios": ratios})
        for k in SPEEDS if not a.json else ():
            print(f"{f'{prompt} + {tokens}':16}{k.partition('_')[0]:14}{medians['situ'][k]:12.1f}{medians['against'][k]:15.1f}{ratios[k]:8.3f}")
    report["ratio"] = min(r for c in report["cases"] for r in c["ratios"].values())
    if a.json:
        print(json.dumps(report))
    if report["ratio"] < a.min_ratio:
        print(f"compare: the lowest ratio is {report['ratio']:.3f}, below {a.min_ratio}", file=sys.stderr)
        return 1
    return 0


def compare_engines(a):
    engines, failed = [], False
    for engine in a.engines or MODULES:
        reason = available(engine, a.gguf)
        if reason:
            print(f"{engine}: left out, {reason}", file=sys.stderr)
        else:
            engines.append(engine)
    if not engines:
        sys.exit("no engine is left")
    report = {"model": a.model, "machine": machine.name(), "threads": a.threads, "reps": a.reps, "cases": []}
    if not a.json:
        print(f"{a.model}; {report['machine']}; {a.threads} threads; medians of {a.reps}")
    for prompt, tokens in a.case:
        samples = {e: [] for e in engines}
        for _ in range(a.reps):
            for e in engines:
                result = of_case(e, a.gguf if e in ON_GGUF else a.model, prompt, tokens, a.threads)
                if result:
                    samples[e].append(result)
                failed = failed or not result
        medians = {e: {k: statistics.median(s[k] for s in rows) for k in rows[0]} for e, rows in samples.items() if rows}
        report["cases"].append({"prompt": prompt, "tokens": tokens, "medians": medians})
        if a.json:
            continue
        ours = medians.get("situ")
        print(f"\n{prompt} prompt + {tokens} new tokens\n{'':12}{'prefill tok/s':>14}{'Situ is':>9}{'decode tok/s':>14}{'Situ is':>9}{'load s':>8}{'MiB':>7}")
        for e, m in medians.items():
            ratio = ["" if e == "situ" or not ours else f"{ours[k] / m[k]:.2f}x" for k in SPEEDS]
            print(f"{e:12}{m['prefill_tps']:14.1f}{ratio[0]:>9}{m['decode_tps']:14.1f}{ratio[1]:>9}{m['load_s']:8.2f}{m['rss_mib']:7.0f}")
    if a.json:
        print(json.dumps(report))
    return 1 if failed else 0


def main():
    a = arguments()
    return compare_builds(a) if a.against else compare_engines(a)


if __name__ == "__main__":
    sys.exit(main())
