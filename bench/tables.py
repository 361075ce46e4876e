"""Writes the measured tables of README.md and docs/*.md, docs/performance.svg and docs/performance-dark.svg, from bench/results/MACHINE/*.json.

usage: tables.py [--check] [--root FOLDER]

A block of a document lies between two lines `<!-- generated -->`; its first line, `<!-- block: NAME -->`, says which of
BLOCKS it is. --check writes nothing. Exit code 1: a block or the plot is not what the results say, or a document states
tokens per second, ms, MB/s or GB/s outside a block (docs/tried.md is exempt: it tells what was tried, not what is).
"""
import argparse
import json
import re
import sys
from pathlib import Path
from statistics import median

import machine
import plot

MARK = "<!-- generated -->"
EXEMPT = {"docs/tried.md"}
UNIT = r"(?:(?:tok(?:en)?s?|t)\s?/\s?s(?:ec(?:ond)?)?|tokens (?:a|per) second|ms|milliseconds?|[MG]i?B\s?/\s?s)(?!\w)"
STRAY = re.compile(rf"\d[\s*_`]*{UNIT}|^\|.*\b{UNIT}.*\|", re.IGNORECASE)
ENGINES = {"situ": "Situ", "ort-naive": "ONNX Runtime, past fed back", "ort-shared": "ONNX Runtime, shared buffer", "ort-genai": "onnxruntime-genai",
           "openvino": "OpenVINO GenAI", "openvino-cb": "OpenVINO GenAI, continuous batching", "llama.cpp": "llama.cpp"}
MODELS = {"smollm2-int4": "SmolLM2-135M, int4", "smollm2-float32": "SmolLM2-135M, float32", "llama-1b": "Llama 1B shape, int4", "llama-8b": "Llama 8B shape, int4"}
# (model, what is measured, case "prompt:tokens" or count of streams, whether it is in the README and the plot)
ROWS = (
    ("smollm2-int4", "decode", "35:120", True), ("smollm2-int4", "decode", "2048:32", True), ("smollm2-int4", "prefill", "35:120", False),
    ("smollm2-int4", "prefill", "128:2", False), ("smollm2-int4", "prefill", "512:2", True), ("smollm2-int4", "prefill", "2048:32", True),
    ("smollm2-int4", "streams", 1, False), ("smollm2-int4", "streams", 4, False), ("smollm2-int4", "streams", 16, True), ("smollm2-int4", "streams", 64, True),
    ("smollm2-int4", "load", "35:120", False), ("smollm2-int4", "memory", "35:120", False),
    ("smollm2-float32", "decode", "35:60", True), ("smollm2-float32", "prefill", "512:2", False),
    ("llama-1b", "decode", "128:32", True), ("llama-1b", "prefill", "128:32", False), ("llama-1b", "prefill", "512:2", True), ("llama-1b", "streams", 16, True),
    ("llama-1b", "load", "128:32", False), ("llama-1b", "memory", "128:32", False),
    ("llama-8b", "decode", "128:16", True), ("llama-8b", "prefill", "512:2", True), ("llama-8b", "load", "128:16", False), ("llama-8b", "memory", "128:16", False),
)
UNITS = {"decode": "tokens/s", "prefill": "tokens/s", "streams": "tokens/s", "load": "s", "memory": "MiB"}
LOWER_IS_BETTER = {"load", "memory"}


class Machine:
    """The results of one machine: {name of a run: its JSON}."""

    def __init__(self, folder):
        self.runs = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.json"))}
        self.name = next(iter(self.runs.values()))["machine"]
        self.date = max(run["date"] for run in self.runs.values())

    def run(self, model, kind):
        return self.runs.get(f"{model}-streams" if kind == "streams" else model)

    def samples(self, model, kind, engine):
        run = self.run(model, kind) or {"engines": {}}
        return run["engines"].get(engine, {}).get("samples", [])

    def case(self, model, engine, case):
        prompt, tokens = map(int, case.split(":"))
        return [c for s in self.samples(model, "", engine) for c in s["cases"] if (c["prompt"], c["tokens"]) == (prompt, tokens)]

    def figure(self, model, kind, case, engine):
        """The median over the repetitions, or None."""
        if kind == "streams":
            run = self.run(model, kind)
            rows = [r["ms"] for s in self.samples(model, kind, engine) for r in s["streams"] if r["streams"] == case and "ms" in r]
            return 1000 * case * run["stream_tokens"] / median(rows) if rows else None
        if kind in LOWER_IS_BETTER:
            values = [s["load_s" if kind == "load" else "rss_mib"] for s in self.samples(model, kind, engine)]
            return median(values) if values else None
        values = [c[f"{kind}_ms"] for c in self.case(model, engine, case)]
        tokens = int(case.split(":")[0]) if kind == "prefill" else 1
        return 1000 * tokens / median(values) if values else None

    def reason(self, model, kind, case, engine):
        """Why there is no figure."""
        run = self.run(model, kind)
        if not run or engine not in run["engines"]:
            return "not measured on this machine"
        of_engine = run["engines"][engine]
        rows = [r["reason"] for s in of_engine.get("samples", []) for r in s.get("streams", []) if r["streams"] == case and "reason" in r]
        return of_engine.get("reason") or (rows or ["not measured on this machine"])[0]


def number(value):
    return "-" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def title(kind, case):
    if kind == "streams":
        return f"{case} stream{'s' if case > 1 else ''}"
    prompt = int(str(case).split(":")[0])
    return {"decode": f"decode, {prompt:,} past", "prefill": f"prefill, {prompt:,}", "load": "load", "memory": "memory"}[kind]


def best(figures, kind):
    """(engine, its figure) of the best engine but Situ, or None."""
    others = {e: f for e, f in figures.items() if e != "situ" and f is not None}
    if not others:
        return None
    engine = (min if kind in LOWER_IS_BETTER else max)(others, key=others.get)
    return engine, others[engine]


def ratio(figures, kind):
    ours, peer = figures["situ"], best(figures, kind)
    if ours is None or not peer:
        return "-"
    return f"{peer[1] / ours if kind in LOWER_IS_BETTER else ours / peer[1]:.2f}x"


def all_rows(machine):
    """[(row, {engine: figure})], measured or not."""
    return [(row, {e: machine.figure(*row[:3], e) for e in ENGINES}) for row in ROWS]


def is_measured(figures):
    return any(f is not None for f in figures.values())


def rows_of(machine, readme=False):
    """[(row, {engine: figure})] of what was measured."""
    return [(row, figures) for row, figures in all_rows(machine) if is_measured(figures) and (row[3] or not readme)]


def table(machine, readme):
    head = ["", "", *ENGINES.values(), "Situ / best other"]
    lines = ["| " + " | ".join(head) + " |", "|---|---|" + "---:|" * (len(head) - 2)]
    before = None
    for (model, kind, case, _), figures in rows_of(machine, True) if readme else all_rows(machine):
        top = best(figures, kind)
        most = (min if kind in LOWER_IS_BETTER else max)((f for f in figures.values() if f is not None), default=None)
        lead = [e for e, f in figures.items() if f is not None and f == most]
        cells = [f"**{number(f)}**" if e in lead and top else number(f) for e, f in figures.items()]
        unit = f", {UNITS[kind]}" if kind in LOWER_IS_BETTER else ""
        lines.append("| " + " | ".join([MODELS[model] if model != before else "", title(kind, case) + unit, *cells, ratio(figures, kind)]) + " |")
        before = model
    return lines


def reasons(machine):
    """Why figures are missing: one line for each engine and reason, and one for the rows that nobody has."""
    found = {}
    for (model, kind, case, _), figures in rows_of(machine):
        for engine, figure in figures.items():
            if figure is None:
                found.setdefault((engine, machine.reason(model, kind, case, engine)), {}).setdefault(MODELS[model], []).append(title(kind, case))
    def listed(where):
        return "; ".join(f"{model}: {', '.join(rows)}" for model, rows in where.items())

    for (engine, reason), where in found.items():
        yield f"- {ENGINES[engine]}: {reason} ({listed(where)})."
    missing = {}
    for (model, kind, case, _), figures in all_rows(machine):
        if not is_measured(figures):
            missing.setdefault(MODELS[model], []).append(title(kind, case))
    if missing:
        yield f"- All engines: not measured on this machine ({listed(missing)})."


def roofline(machine):
    """Decoding against memory: what a token must read, how fast as much memory can be read, and the share of that speed."""
    rows = []
    for model, kind, case, _ in ROWS:
        cases = machine.case(model, "situ", case) if kind == "decode" else []
        if cases:
            read, speed, ms = (median(c[k] for c in cases) for k in ("bytes_read_per_token", "read_bandwidth_bytes_per_s", "decode_ms"))
            rows.append(f"| {MODELS[model]} | {title(kind, case)} | {read / 1e6:,.0f} | {speed / 1e9:.1f} | {read / ms / 1e6:.1f} | {100 * read / (ms / 1e3) / speed:.0f}% |")
    head = ["| | | MB a token | read bandwidth, GB/s | Situ reads, GB/s | share of the roofline |", "|---|---|---:|---:|---:|---:|"]
    return head + rows if rows else []


def loops(machine):
    rows = []
    for model, kind, case, _ in ROWS:
        if kind == "decode":
            costs = [[c["loop_ms"] for c in machine.case(model, e, case)] for e in ("ort-naive", "ort-shared")]
            if any(costs):
                rows.append(f"| {MODELS[model]} | {title(kind, case)} | " + " | ".join(f"{median(c):.3f}" if c else "-" for c in costs) + " |")
    head = ["| | | past fed back: loop, ms a token | shared buffer: loop, ms a token |", "|---|---|---:|---:|"]
    return head + rows if rows else []


def versions(machine):
    found = {ENGINES[e]: of["version"] for run in machine.runs.values() for e, of in run.get("engines", {}).items() if of.get("version")}
    return ", ".join(f"{e} {v}" if not v.startswith(e) else v for e, v in found.items() if "," not in e or e.startswith("ONNX Runtime, shared"))


def others(machine):
    """How idle the machine was: the most that other processes took during a measurement."""
    shares = [s["others"] for run in machine.runs.values() for of in run.get("engines", {}).values() for s in of.get("samples", []) if "others" in s]
    return share_of_others(shares)


def notes(machine):
    """What whoever measured wrote into the results, and of which runs it holds."""
    found = {}
    for name, run in machine.runs.items():
        if "note" in run:
            found.setdefault(run["note"], []).append(name)
    return "".join(f" {note} ({', '.join(names)})" for note, names in found.items())


def naive_rows(machine):
    run = machine.runs.get("naive")
    for row in run["rows"] if run else []:
        ours, naive = row["in-place"], row["naive"]
        speeds = [of for key in ("decode_tokens_per_s_mean", "prefill") for of in ((m[key] if key in m else 1000 * run["prompt"] / m["prefill_ms_mean"]) for m in (ours, naive))]
        copied = [of["bytes_copied_per_token"] for of in (ours, naive)]
        yield (f"| {row['past']:,} | {number(speeds[0])} | {number(speeds[1])} | {speeds[0] / speeds[1]:.1f} | {number(speeds[2])} | {number(speeds[3])} | "
               f"{copied[0]:,.0f} B | {copied[1] / 1e6:.1f} MB |")


LOOPS = {"ort-slice": "ONNX Runtime, present sliced into past", "ort-buffer": "ONNX Runtime, both bound to one buffer", "situ": "Situ, extents lifted"}


def fixed_window_rows(machine):
    run = machine.runs.get("fixed_window")
    for loop, words in LOOPS.items() if run else []:
        of = run["loops"].get(loop, {"reason": "not measured on this machine"})
        ms = median(of["ms"]) if "ms" in of else None
        cells = ["-", "-", "-", of["reason"]] if ms is None else [number(ms), number(of["load_s"]), f"{of['rss_mib']:,.0f}", ""]
        yield f"| {words} | " + " | ".join(cells) + " |"


def block_fixed_window(machines):
    lines = []
    for machine in machines:
        rows, run = list(fixed_window_rows(machine)), machine.runs.get("fixed_window")
        if rows:
            lines += [f"{machine.name} ({run['date']}): {MODELS[run['model']]}, {run['layers']} layers, {run['keys']} keys, {run['window']} token a step, "
                      f"{run['tokens']} tokens behind {run['past']}, {run['threads']} threads.", "", "| | ms a token | load, s | peak memory, MiB | |", "|---|---:|---:|---:|---|", *rows, ""]
    return lines[:-1] or ["Nothing is measured yet."]


FORMS = {"in_place": "read where they lie", "copied": "copied at every step", "anew": "computed anew at every step"}


def block_cross_attention(machines):
    lines = []
    for machine in machines:
        run = machine.runs.get("cross_attention")
        if not run:
            continue
        of = {form: {key: median(values) for key, values in samples.items()} for form, samples in run["forms"].items()}
        lines += [f"{machine.name} ({run['date']}): decoder of BART-base's shape, float32, {run['source']} source tokens, {run['tokens']} tokens, {run['threads']} threads.", "",
                  "| keys and values of the source | decode, ms a token | tokens per second | in place is faster by |", "|---|---:|---:|---:|"]
        for form, words in FORMS.items():
            ms = of[form]["decode_ms_per_token"]
            lines.append(f"| {words} | {number(ms)} | {number(1e3 / ms)} | {ms / of['in_place']['decode_ms_per_token']:.2f}x |")
        lines.append("")
    return lines[:-1] or ["Nothing is measured yet."]


TRANSCRIBERS = {"situ": "Situ, int8", "faster-whisper": "faster-whisper, int8", "ort": "ONNX Runtime in a loop, int8", "ort-genai": "onnxruntime-genai", "whisper.cpp": "whisper.cpp, float16"}


def speech_cells(samples):
    """The medians of one engine; a part of a window that an engine does not tell has none."""
    def middle(value, audio, beams, batch=0):
        found = [value(s) for s in samples if (s["audio"], s["beams"], s["batch"]) == (audio, beams, batch)]
        return median(found) if found and None not in found else None

    per_token = lambda s: s["decode_ms"] / s["tokens"] if s.get("tokens") and "decode_ms" in s else None
    of = lambda name: lambda s: s.get(name)
    load = middle(of("load_ms"), "window", 1)
    figures = [None if load is None else load / 1000, middle(of("features_ms"), "window", 1), middle(of("encode_ms"), "window", 1), middle(per_token, "window", 1), middle(per_token, "window", 5),
               *(middle(of("wall_s"), "minutes", beams, batch) for beams, batch in ((1, 0), (5, 0), (1, 8)))]
    rates = [middle(of("word_error_rate"), "minutes", beams, batch) for beams, batch in ((1, 0), (5, 0), (1, 8))]
    copied = middle(of("bytes_copied_per_token"), "minutes", 1)
    return [*map(number, figures), *("-" if r is None else f"{r:.3f}" for r in rates), "-" if copied is None else f"{copied:,.0f}"]


def block_speech(machines):
    lines = []
    for machine in machines:
        run = machine.runs.get("speech")
        if not run:
            continue
        with_version = [f"{TRANSCRIBERS[e].split(',')[0]} {of['version']}" for e, of in run["transcribers"].items() if of.get("version")]
        shares = [s["others"] for of in run["transcribers"].values() for s in of.get("samples", [])]
        taken = f" Other processes took {100 * max(shares):.0f}% of the processors at most, {100 * median(shares):.0f}% in the median." if shares else ""
        lines += [f"{machine.name} ({run['date']}): Whisper base, {run['threads']} threads, a window of {run['seconds']['window']:.0f} s and a recording of {run['seconds']['minutes']:.0f} s. "
                  f"{', '.join(with_version)}. Repetitions: {run['reps']}.{taken}", "",
                  "| | load, s | features, ms a window | encoder, ms a window | decode, ms a token | with 5 beams | recording, s | with 5 beams | windows together | word error rate | with 5 beams "
                  "| windows together | bytes copied a token |", "|---|" + "---:|" * 12]
        lines += ["| " + " | ".join([TRANSCRIBERS[e], *speech_cells(of["samples"])]) + " |" for e, of in run["transcribers"].items() if of.get("samples")]
        reasons = [f"- {TRANSCRIBERS[e]}: {of['reason']}." for e, of in run["transcribers"].items() if "reason" in of]
        lines += ["", *reasons, *([""] if reasons else [])]
    return lines[:-1] or ["Nothing is measured yet."]


LOOKERS = {"situ": "Situ", "naive": "Situ, naive", "ort": "ONNX Runtime as transformers.js drives it"}
STAGES = ("vision_encoder", "embed", "prefill")


def calm(of):
    """The samples of an engine in which other processes took a tenth of the processors at most; the least disturbed one where there is none."""
    samples = of.get("samples", [])
    return [s for s in samples if s["others"] <= 0.1] or sorted(samples, key=lambda s: s["others"])[:1]


def vision_rows(case):
    """Medians of a case, an engine a line."""
    first = {}
    for engine, of in case["engines"].items():
        samples = calm(of)
        if not samples:
            continue
        first[engine] = median(s["ms"] for s in samples)
        stages = [[{s["name"]: s for s in sample["stages"]}[name] for sample in samples] for name in STAGES]
        copied = [f"{s[0]['bytes_copied']:,}" for s in stages]
        if engine == "ort":
            copied = ["not known", copied[1], "not known"]
        again = number(median(s["again_ms"] for s in samples)) if "again_ms" in samples[0] else "-"
        cells = [number(first[engine]), again, *(number(median(s["ms"] for s in stage)) for stage in stages), *copied, number(median(s["load_ms"] for s in samples) / 1000),
                 f"{median(s['peak_rss_mib'] for s in samples):,.0f}", f"{first[engine] / first['situ']:.2f}x" if "situ" in first and engine != "situ" else "-", f"{100 * max(s['others'] for s in samples):.0f}%"]
        yield f"| {LOOKERS[engine]} | " + " | ".join(cells) + " |"


def block_vision(machines):
    lines = []
    for machine in machines:
        run = machine.runs.get("vision")
        if not run:
            continue
        lines += [f"{machine.name} ({run['date']}): {run['threads']} threads, ONNX Runtime {run['ort']}. Medians of those of {run['reps']} repetitions during which other processes took a tenth of the "
                  "processors at most; else of the least disturbed one. The last column says how much they took.", ""]
        for name, case in run["cases"].items():
            ids = {s["id"] for of in case["engines"].values() for s in of.get("samples", [])}
            lines += [f"{name}, {case['prompt']} tokens; {'all choose the same first token' if len(ids) == 1 else f'the first tokens differ: {sorted(ids)}'}:", "",
                      "| | first token, ms | again in that process | encoder, ms | embeddings, ms | prefill, ms | bytes copied: encoder | embeddings | prefill | load, s | peak memory, MiB | Situ is faster by | others took |",
                      "|---|" + "---:|" * 12, *vision_rows(case)]
            reasons = [f"- {LOOKERS[e]}: {of['reason']}." for e, of in case["engines"].items() if "reason" in of]
            lines += ["", *reasons, *([""] if reasons else [])]
    return lines[:-1] or ["Nothing is measured yet."]


def block_peers(machines):
    """The newest machine, its most telling rows, all engines."""
    machines = [m for m in machines if rows_of(m)]
    if not machines:
        return ["Nothing is measured yet."]
    machine = max(machines, key=lambda m: m.date)
    return [f"Tokens per second, {machine.name} ({machine.date}); more is better, the best of a row is bold:", "", *table(machine, True)]


# The rows of the first page: where Situ is ahead, and where it is not.
FIRST = (("smollm2-int4", "decode", "2048:32"), ("smollm2-int4", "prefill", "512:2"), ("smollm2-int4", "streams", 64), ("llama-1b", "decode", "128:32"),
         ("llama-8b", "decode", "128:16"), ("llama-8b", "prefill", "512:2"))


def block_first(machines):
    """The README's: a few rows of the newest machine, each beside the best other engine."""
    machines = [m for m in machines if rows_of(m)]
    if not machines:
        return ["Nothing is measured yet."]
    machine = max(machines, key=lambda m: m.date)
    lines = [f"Tokens per second, {machine.name} ({machine.date}):", "", "| | Situ | best other engine | ratio |", "|---|---:|---:|---:|"]
    for (model, kind, case, _), figures in rows_of(machine):
        top = best(figures, kind)
        if (model, kind, case) in FIRST and top and figures["situ"] is not None:
            lines.append(f"| {MODELS[model]}: {title(kind, case)} | {number(figures['situ'])} | {number(top[1])} ({ENGINES[top[0]]}) | {ratio(figures, kind)} |")
    return lines


def block_naive(machines):
    lines = []
    for machine in machines:
        rows = list(naive_rows(machine))
        if rows:
            lines += [f"{machine.name} ({machine.date}), tokens per second:", "",
                      "| past tokens | decode in place | decode naive | ratio | prefill in place | prefill naive | copied per token, in place | naive |",
                      "|---:|---:|---:|---:|---:|---:|---:|---:|", *rows, ""]
    return lines[:-1] or ["Nothing is measured yet."]


def block_machines(machines):
    lines = []
    for machine in filter(rows_of, machines):
        counts = [(run, max(len(of.get("samples", [])) for of in run["engines"].values())) for run in machine.runs.values() if "engines" in run]
        reps = ", ".join(f"{MODELS[run['model']]}{' (streams)' if run['streams'] else ''} {count}" for run, count in counts)
        lines += [f"### {machine.name}", "", f"{machine.date}. {versions(machine)}. Two threads. Repetitions: {reps}.{others(machine)}{notes(machine)}", "", *table(machine, False), "", *reasons(machine), ""]
        for words, more in (("Decoding against memory, measured in the same run:", roofline(machine)), ("What the Python loop around ONNX Runtime costs, part of its figures above:", loops(machine))):
            lines += [words, "", *more, ""] if more else []
    return lines[:-1] or ["Nothing is measured yet."]


def share_of_others(shares):
    return f" Other processes took {100 * max(shares):.0f}% of the processors at most during a measurement, {100 * median(shares):.0f}% in the median." if shares else ""


def expert_figures(run, of_engine):
    """Medians: {"decode": ms of a token, "prefill" and "streams": tokens a second}; empty: it was not measured."""
    samples = of_engine.get("samples", [])
    if not samples:
        return {}
    middle = lambda f: median(f(s) for s in samples)
    made = {"decode": middle(lambda s: s["cases"][0]["decode_ms"]), "prefill": middle(lambda s: 1000 * s["cases"][1]["prompt"] / s["cases"][1]["prefill_ms"])}
    if all("ms" in s["streams"][0] for s in samples):
        made["streams"] = middle(lambda s: 1000 * run["streams"] * run["stream_tokens"] / s["streams"][0]["ms"])
    if "read_bandwidth_bytes_per_s" in samples[0]["cases"][0]:
        made["memory"] = middle(lambda s: s["cases"][0]["read_bandwidth_bytes_per_s"])
    return made


def expert_lines(run):
    shares = [s["others"] for m in run["models"].values() for of in m["engines"].values() for s in of.get("samples", [])]
    lines = [f"{run['machine']} ({run['date']}): {run['threads']} threads, {run['reps']} repetitions.{share_of_others(shares)}", "",
             f"| | | decode, ms a token | must be read, MB a token | of it experts | share of what memory gives | prefill, tokens/s | {run['streams']} streams, tokens/s |",
             "|---|---|" + "---:|" * 6]
    reasons = []
    for name, of_model in run["models"].items():
        figures = {engine: expert_figures(run, of) for engine, of in of_model["engines"].items()}
        memory = next((f["memory"] for f in figures.values() if "memory" in f), None)
        for engine, f in figures.items():
            if not f:
                reasons.append(f"- {name}, {ENGINES[engine]}: {of_model['engines'][engine].get('reason', 'not measured on this machine')}.")
                continue
            least, chosen = of_model["least_bytes"], of_model["chosen_bytes"]
            share = f"{100 * 1000 * least / f['decode'] / memory:.0f}%" if memory else "-"
            cells = [number(f["decode"]), f"{least / 1e6:,.0f}", f"{chosen / 1e6:,.0f}", share, number(f["prefill"]), number(f.get("streams"))]
            lines.append("| " + " | ".join([name, ENGINES[engine], *cells]) + " |")
    return lines + ([""] if reasons else []) + reasons


EMBEDDERS = {"situ": "Situ, without padding", "ort-padded": "ONNX Runtime, batches as texts come, padded", "ort-sorted": "ONNX Runtime, batches of texts sorted by length, padded"}


def embedding_lines(run):
    shares = [share for of in run["embedders"].values() for share in of["others"]]
    rates = {embedder: 1000 * run["texts"] / median(of["ms"]) for embedder, of in run["embedders"].items()}
    lines = [f"{run['machine']} ({run['date']}): {run['texts']} texts, {run['tokens']:,} tokens, batches of {run['batch']}, {run['threads']} threads, ONNX Runtime {run['onnxruntime']}."
             f"{share_of_others(shares)}", "", "| | texts a second | Situ is faster by |", "|---|---:|---:|"]
    faster = {e: f"{rates['situ'] / rate:.2f}x" if e != "situ" else "-" for e, rate in rates.items()}
    return lines + [f"| {EMBEDDERS[e]} | {number(rate)} | {faster[e]} |" for e, rate in rates.items()]


SERVERS = {"situ": "`situ serve`", "llama-server": "llama-server"}


def serve_lines(run):
    """The loads in their order, servers side by side."""
    loads = list(dict.fromkeys((row.get("clients"), row.get("rate")) for row in run["rows"]))
    lines = [f"{run['machine']} ({run['date']}): {run['model']}, {run['threads']} threads for server and client, {run['seconds']:.0f} s a run.{' ' + run['note'] if 'note' in run else ''}", "",
             "| | | tokens/s | first token, ms: p50 | p99 | between tokens, ms: p50 | p99 | HTTP thread, share of the server's CPU time |", "|---|---|" + "---:|" * 6]
    for clients, rate in loads:
        for row in run["rows"]:
            if (row.get("clients"), row.get("rate")) == (clients, rate):
                what = f"{clients} client{'s' if clients > 1 else ''}" if clients else f"{rate:.2f} requests/s"
                http = f"{100 * row['cpu_s']['http'] / row['cpu_s']['server']:.1f}%" if row["server"] == "situ" else "-"
                times = [row[kind][p] for kind in ("first_ms", "between_ms") for p in ("p50", "p99")]
                lines.append("| " + " | ".join([what, SERVERS[row["server"]], number(row["tokens_per_second"]), *map(number, times), http]) + " |")
    return lines


def arrival_lines(run):
    words = [f"{first:,} to {last:,}" for first, last in (run["prompt"], run["answer"])]
    lines = [f"{run['machine']} ({run['date']}): {run['model']}, {run['threads']} threads, {run['requests']} requests at {run['requests_per_s']:.2f} a second ({100 * run['share']:.0f}% of what OpenVINO "
             f"answers at most), prompts of {words[0]} tokens, answers of {words[1]}.", "", "| | first token, ms: p50 | p95 | p99 | between tokens, ms: p50 | p95 | p99 |", "|---|" + "---:|" * 6]
    for engine in ("situ", "openvino-cb"):
        of = run["engines"][engine]
        lines.append("| " + " | ".join([ENGINES[engine], *(number(of[kind][p]) for kind in ("ttft_ms", "itl_ms") for p in ("p50", "p95", "p99"))]) + " |")
    return lines


def percentiles(values, shares):
    """{"p50": ..}: of each share the value that so many percent are not above; None where there are no values."""
    values = sorted(values)
    return {f"p{p}": round(values[min(len(values) - 1, len(values) * p // 100)], 2) if values else None for p in shares}


def results_file(results, name, of):
    """RESULTS/MACHINE/NAME.json."""
    return Path(results) / machine.slug(of) / f"{name}.json"


def earlier_results(results, name):
    """What was measured on this machine before; None: nothing."""
    file = results_file(results, name, machine.name())
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None


def write_results(results, name, report):
    """Of the machine that the report names."""
    file = results_file(results, name, report["machine"])
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def block_of(run, lines_of):
    """What one run of each machine says that has it."""
    def block(machines):
        lines = [line for machine in machines if run in machine.runs for line in [*lines_of(machine.runs[run]), ""]]
        return lines[:-1] or ["Nothing is measured yet."]
    return block


BLOCKS = {"first": block_first, "peers": block_peers, "naive": block_naive, "machines": block_machines, "fixed_window": block_fixed_window, "cross_attention": block_cross_attention,
          "speech": block_speech, "vision": block_vision, "experts": block_of("experts", expert_lines), "embeddings": block_of("embeddings", embedding_lines),
          "serve": block_of("serve", serve_lines), "arrivals": block_of("arrivals", arrival_lines)}


def rewritten(text, machines):
    """The document with its blocks as the results say. Raises ValueError for marks that make no blocks."""
    parts = text.split(f"{MARK}\n")
    if len(parts) % 2 == 0:
        raise ValueError(f"an odd number of lines '{MARK}'")
    for i in range(1, len(parts), 2):
        first = re.match(r"<!-- block: (\w+) -->\n", parts[i])
        if not first or first.group(1) not in BLOCKS:
            raise ValueError(f"a block begins with '<!-- block: NAME -->', NAME one of {', '.join(BLOCKS)}")
        parts[i] = "\n".join([first.group().rstrip(), "", *BLOCKS[first.group(1)](machines), "", ""])
    return f"{MARK}\n".join(parts)


def strays(text):
    """[(line, words)] that state speed or time outside a block."""
    inside, found = False, []
    for number_of_line, line in enumerate(text.split("\n"), 1):
        inside ^= line == MARK
        match = STRAY.search(line)
        if match and not inside:
            found.append((number_of_line, match.group().strip("| ")))
    return found


def picture(machines, colours):
    """The rows of the README as bars."""
    compared = [m for m in machines if rows_of(m)]
    if not compared:
        return plot.bars("Nothing is measured yet.", [], [], colours)
    newest = max(compared, key=lambda m: m.date)
    groups = [(f"{MODELS[row[0]]}: {title(row[1], row[2])}", [(ENGINES[e], f, number(f)) for e, f in figures.items() if f is not None])
              for row, figures in rows_of(newest) if row[:3] in FIRST]
    return plot.bars(f"Tokens per second: {newest.name}", list(ENGINES.values()), groups, colours)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    a = parser.parse_args()
    folders = sorted(p for p in (a.root / "bench" / "results").glob("*") if any(p.glob("*.json")))
    machines = [Machine(folder) for folder in folders]
    wrong, written = [], {}
    for path in [a.root / "README.md", *sorted((a.root / "docs").glob("*.md"))]:
        name, text = str(path.relative_to(a.root)), path.read_text(encoding="utf-8")
        try:
            written[path] = rewritten(text, machines)
        except ValueError as error:
            wrong.append(f"{name}: {error}")
            continue
        if a.check and written[path] != text:
            wrong.append(f"{name}: a generated block is not what bench/results says; run bench/tables.py")
        if name not in EXEMPT:
            wrong += [f"{name}:{line}: '{words}' is stated outside a generated block" for line, words in strays(text)]
    for name, colours in (("performance.svg", plot.LIGHT), ("performance-dark.svg", plot.DARK)):
        written[a.root / "docs" / name] = picture(machines, colours)
    for path, text in written.items():
        if a.check:
            if path.suffix == ".svg" and (not path.exists() or path.read_text(encoding="utf-8") != text):
                wrong.append(f"{path.relative_to(a.root)}: is not what bench/results says; run bench/tables.py")
        else:
            path.write_text(text, encoding="utf-8")
    print("\n".join(wrong), end="\n" if wrong else "", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
