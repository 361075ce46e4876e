"""Situ and other engines transcribe the same files, whole processes in turn; writes bench/results/MACHINE/speech.json.

usage: speech.py PEERS [--engines a,b,..] [--reps R] [--threads T] [--seconds S] [--check] [--model FOLDER] [--audio FOLDER] [--results FOLDER]

PEERS is the folder that `bench/run.sh speech` makes: an environment for each peer, the weights for CTranslate2, base.ggml. Two recordings:
one window (jfk.flac: load, features, encoder, decoder), and the samples of --audio joined again and again to S seconds, 120 if not said
(whole processes, word error rate). Greedy and with 5 beams, at temperature 0, in English,
without the text before: a recording that repeats itself would lure any model into repeating itself. Where an engine has them, windows together.
--check: the one window alone, once, and nothing is written: which engines run. Run it while the machine has nothing else to do.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import machine
import tables

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("SITU_SHARED") or ROOT.parent / "shared")
PEER = Path(__file__).parent / "speech_peer.py"
ENGINES = {"situ": "", "faster-whisper": "ctranslate2", "ort": "", "ort-genai": "", "whisper.cpp": "base.ggml"}  # and what each reads in PEERS; "": --model
TOGETHER = {"situ", "faster-whisper"}  # have windows together
BEAMS, BATCH = (1, 5), 8
TIMEOUT_S = 300


def words(text):
    return re.sub(r"[^a-z ]", "", text.lower()).split()


def word_error_rate(want, got):
    distances = list(range(len(got) + 1))
    for i, x in enumerate(want, 1):
        before, distances[0] = distances[0], i
        for j, y in enumerate(got, 1):
            before, distances[j] = distances[j], min(distances[j] + 1, distances[j - 1] + 1, before + (x != y))
    return distances[-1] / max(1, len(want))


def recordings(a):
    """{"window": (file, text), "minutes": (file, text)}, made in PEERS."""
    cases = json.loads((a.model / "expected.json").read_text(encoding="utf-8"))["cases"]
    files = [next(f for f in sorted(a.audio.iterdir()) if f.name.startswith(c["audio"])) for c in cases]
    texts = [c["fp32_text"] for c in cases]
    first = next(i for i, f in enumerate(files) if f.stem == "jfk")
    made = {}
    for name, chosen, said in (("window", files[first:first + 1], texts[first]), ("minutes", files, " ".join(texts))):
        out = a.peers / f"{name}.wav"
        join = [a.peers / "faster-whisper" / "bin" / "python", "-B", PEER, "join", out]
        subprocess.run([*join, *chosen], check=True)
        seconds = (out.stat().st_size - 44) / 32000
        again = max(1, round(a.seconds / seconds)) if name == "minutes" else 1
        if again > 1:
            subprocess.run([*join, *(chosen * again)], check=True)
        made[name] = out, " ".join([said] * again), (out.stat().st_size - 44) / 32000
    return made


def situ_command(a, audio, beams, batch):
    return [ROOT / "build" / "situ", "transcribe", a.model, audio, "--language", "en", "--temperature", "0", "--condition-on-previous-text", "false", "--json", "--threads", str(a.threads), "--beams", str(beams),
            *([f"--batched={batch}"] if batch else [])]


def run(a, engine, audio, beams, batch=0):
    """(what the process printed and `wall_s`, "") or (None, the reason)."""
    if engine == "situ":
        command = situ_command(a, audio, beams, batch)
    else:
        model = a.peers / ENGINES[engine] if ENGINES[engine] else a.genai if engine == "ort-genai" and a.genai else a.model
        python = a.peers / engine / "bin" / "python"
        if not python.exists():
            return None, "cannot be installed here"
        if not model.exists():
            return None, f"{model.name} is not there"
        command = [python, "-B", PEER, engine, model, audio, "--beams", str(beams), "--threads", str(a.threads), "--batched", str(batch)]
    # Libraries that pywhispercpp builds from source lie beside it, where the loader does not look.
    libraries = ":".join(str(folder.resolve()) for folder in (a.peers / engine).glob("lib/python*/site-packages"))
    environment = {**os.environ, "OMP_NUM_THREADS": str(a.threads), **({"LD_LIBRARY_PATH": libraries} if engine == "whisper.cpp" else {})}
    others, begin = machine.Others(), time.perf_counter()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, env=environment)
    except subprocess.TimeoutExpired:
        return None, f"no result in {TIMEOUT_S} s"
    wall = time.perf_counter() - begin
    if done.returncode:
        return None, (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    r = json.loads(done.stdout.splitlines()[-1])
    if engine == "situ":
        r = {"version": "", **{k: r[k] for k in ("load_ms", "features_ms", "encode_ms", "text", "bytes_copied_per_token")}, "tokens": len(r["output_ids"]), "windows": None,
             "decode_ms": r["decode_ms_per_token"] * len(r["output_ids"])}
    return {**r, "wall_s": wall, "others": round(others.share(), 3)}, ""


def measured(a, report, made):
    """Yields after each process."""
    cases = [(name, beams, 0) for name in made for beams in BEAMS] + [("minutes", beams, BATCH) for beams in BEAMS[:1] if "minutes" in made]
    for rep in range(a.reps):
        for name, beams, batch in cases:
            audio, said, _ = made[name]
            for engine, of_engine in report["transcribers"].items():
                if engine not in a.engines or "reason" in of_engine or (batch and engine not in TOGETHER):
                    continue
                r, reason = run(a, engine, audio, beams, batch)
                print(f"speech: repetition {rep + 1} of {a.reps}, {name}, {beams} beams{', together' if batch else ''}, {engine}: "
                      f"{reason or '%.1f s, others took %.0f%% of the processors' % (r['wall_s'], 100 * r['others'])}", flush=True)
                if reason:
                    of_engine.clear()
                    of_engine["reason"] = reason
                else:
                    of_engine["version"], text = r.pop("version"), r.pop("text")
                    of_engine["samples"].append({"audio": name, "beams": beams, "batch": batch, "word_error_rate": word_error_rate(words(said), words(text)), **r})
                yield


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peers", type=Path)
    parser.add_argument("--engines", type=lambda text: text.split(","), default=list(ENGINES))
    parser.add_argument("--reps", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--model", type=Path, default=SHARED / "models" / "whisper-base-int8")
    parser.add_argument("--genai", type=Path, help="a whisper folder of onnxruntime-genai, for ort-genai")
    parser.add_argument("--audio", type=Path, default=SHARED / "audio")
    parser.add_argument("--results", type=Path, default=ROOT / "bench" / "results")
    a = parser.parse_args()
    unknown = [e for e in a.engines if e not in ENGINES]
    if unknown:
        parser.error(f"no engine '{unknown[0]}'; there are {', '.join(ENGINES)}")
    made = recordings(a)
    if a.check:
        made.pop("minutes")
        a.reps = 1
    before = (tables.earlier_results(a.results, "speech") or {"transcribers": {}})["transcribers"]
    report = {"machine": machine.name(), "date": time.strftime("%Y-%m-%d"), "threads": a.threads, "reps": a.reps, "seconds": {name: s for name, (_, _, s) in made.items()},
              "transcribers": {e: {"samples": []} if e in a.engines else before.get(e, {"reason": "not measured on this machine"}) for e in ENGINES}}
    for _ in measured(a, report, made):
        if not a.check:
            tables.write_results(a.results, "speech", report)  # what there is, should this be ended early
    return 0


if __name__ == "__main__":
    sys.exit(main())
