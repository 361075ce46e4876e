"""Situ by its own `situ bench`; load time and memory by `situ run` with the first case."""
import json
import subprocess
from pathlib import Path

from . import prompt_ids

SITU = Path(__file__).parent.parent.parent / "build" / "situ"


def situ(*arguments):
    run = subprocess.run([SITU, *map(str, arguments)], check=True, capture_output=True, text=True)
    return json.loads(run.stdout)


def measure(a):
    report = {"version": "", "cases": [], "streams": []}
    for prompt, tokens in a.cases:
        row = situ("bench", a.model, "-p", prompt, "-n", tokens, "--reps", 1, "--threads", a.threads, "--json")["rows"][0]
        figures, roofline = row["in-place"], row["kernels"]
        report["cases"].append({"prompt": prompt, "tokens": tokens, "prefill_ms": figures["prefill_ms_mean"], "decode_ms": figures["decode_ms_per_token_mean"],
                                "bytes_copied_per_token": figures["bytes_copied_per_token"], "bytes_read_per_token": roofline["bytes_read_per_token"],
                                "read_bandwidth_bytes_per_s": roofline["read_bandwidth_bytes_per_s"]})
    if a.cases:
        prompt, tokens = a.cases[0]
        vocabulary = 256  # ids that every model has: load time and memory do not depend on them
        ids = ",".join(map(str, prompt_ids(prompt, vocabulary)))
        run = situ("run", a.model, "--prompt-ids", ids, "-n", tokens, "--ignore-eos", "--threads", a.threads, "--json")
        report.update(load_s=run["load_ms"] / 1000, rss_mib=run["peak_rss_mib"])
    if a.streams:
        rows = situ("bench", a.model, "-p", a.stream_prompt, "-n", a.stream_tokens, "--reps", 1, "--threads", a.threads,
                    "--streams", ",".join(map(str, a.streams)), "--json")["rows"]
        report["streams"] = [{"streams": row["streams"], "ms": row["ms_mean"]} for row in rows]
    return report
