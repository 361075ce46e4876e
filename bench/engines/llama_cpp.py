"""llama.cpp by its own llama-bench and llama-batched-bench, which bench/run.sh builds.

llama-bench warms up with a whole prompt, but with one token; here the first of two repetitions is left out instead.
"""
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

from . import peak_mib

BUILD = Path(sys.prefix) / "llama.cpp"


def tool(name, *arguments):
    """stdout of a tool. Raises CalledProcessError."""
    return subprocess.run([BUILD / "bin" / name, *map(str, arguments)], check=True, capture_output=True, text=True).stdout


def bench(a, *arguments):
    """Seconds of each repetition."""
    (row,) = json.loads(tool("llama-bench", "-m", a.model, "-t", a.threads, "-o", "json", "--no-warmup", *arguments))
    return [ns / 1e9 for ns in row["samples_ns"]]


def measure(a):
    report = {"version": (BUILD / "version").read_text().strip(), "cases": [], "streams": []}
    if a.cases:
        begin = time.perf_counter()
        (token,) = bench(a, "-p", 3, "-n", 0, "-r", 1)
        report["load_s"] = time.perf_counter() - begin - token
    for prompt, tokens in a.cases:
        prefill = bench(a, "-p", prompt, "-n", 0, "-r", 2)[1]
        decode = bench(a, "-p", 0, "-n", tokens, "-d", prompt, "-r", 2)[1]
        report["cases"].append({"prompt": prompt, "tokens": tokens, "prefill_ms": 1000 * prefill, "decode_ms": 1000 * decode / tokens})
        report.setdefault("rss_mib", peak_mib(resource.RUSAGE_CHILDREN))
    for count in a.streams:  # the first token of an answer follows from the prompt
        lines = tool("llama-batched-bench", "-m", a.model, "-t", a.threads, "-npp", a.stream_prompt, "-ntg", a.stream_tokens - 1, "-npl", f"{count},{count}",
                     "-c", count * (a.stream_prompt + a.stream_tokens), "--output-format", "jsonl").splitlines()
        rows = [json.loads(line) for line in lines if line.startswith("{")]
        report["streams"].append({"streams": count, "ms": 1000 * (rows[1]["t_pp"] + rows[1]["t_tg"])})
    return report
