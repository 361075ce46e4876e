#!/usr/bin/env python3
"""Writes docs/models.md, what runs by architecture, layout and quantisation, from results of tests.

    python3 tools/models_page.py                      # writes docs/models.md from the results
    python3 tools/models_page.py --check              # says whether it would change anything
    python3 tools/models_page.py --collect [--situ build/situ]   # asks `situ check` about every model folder of ../shared first

The results: tests/models.json (of --collect: what each folder is, what `situ check --json` says of it, and how many answers of
`situ run` are the recorded ones, as tests/baseline_ids.py counts them) and tests/node_tests.json (ONNX's node tests).
"""
import argparse
import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "models.md"
FACTS, NODES = (ROOT / "tests" / f"{name}.json" for name in ("models", "node_tests"))
SHARED = Path(os.environ.get("SITU_SHARED", ROOT.parent / "shared")) / "models"
OPTIMUM = "optimum-cli export onnx --model MODEL --task {} OUT"
TASKS = {"t5": "text2text-generation-with-past", "bart": "text2text-generation-with-past", "marian": "text2text-generation-with-past",
         "whisper": "automatic-speech-recognition-with-past"}
LAYOUTS = {"tiny": "Optimum", "styles": "other exports", "genai": "onnxruntime-genai", "vlm": "pictures and sounds", "embed": "embeddings",
           "field": "special graphs"}
RECORDED = ("tiny", "styles", "genai")  # whose answers `situ run` is asked for as they are
BUILDER = "python -m onnxruntime_genai.models.builder -m MODEL -o OUT -e cpu -p {}"


# -- what a folder is

def builder_command(precision, options):
    extra = " ".join(f"{'int4_' + k if k in ('accuracy_level', 'block_size', 'is_symmetric') else k}={v}" for k, v in sorted(options.items()))
    return BUILDER.format(precision) + (f" --extra_options {extra}" if extra else "")


def describe(folder, kind):
    """{architecture, quantisation, export} by what expected.json records of how the folder was made."""
    recorded = json.loads((folder / "expected.json").read_text())
    name = folder.name
    if kind == "genai":
        options = recorded.get("builder_options", {})
        text = ", ".join(f"{k} {v}" for k, v in sorted(options.items()))
        return {"architecture": recorded["arch"], "quantisation": recorded["precision"] + (f" ({text})" if text else ""),
                "export": builder_command(recorded["precision"], options)}
    source = recorded.get("source", "").partition(";")[0].replace(" (styles_6_hand.py)", "")
    if kind == "styles":
        style, _, architecture = name.partition("-")
        return {"architecture": architecture, "quantisation": style, "export": source}
    if kind == "tiny":
        return {"architecture": name, "quantisation": "fp32", "export": OPTIMUM.format(TASKS.get(name, "text-generation-with-past"))}
    if kind == "embed":
        return {"architecture": name, "quantisation": "fp32", "export": OPTIMUM.format("feature-extraction")}
    return {"architecture": name, "quantisation": "fp32", "export": source}


def folders():
    for kind in LAYOUTS:
        for file in sorted((SHARED / kind).glob("*/expected.json")):
            yield kind, file.parent


def check(situ, folder):
    run = subprocess.run([situ, "check", folder, "--json"], capture_output=True, text=True, env={**os.environ, "SITU_CACHE_DIR": ""})
    if run.returncode not in (0, 2) or run.stderr:
        sys.exit(f"situ check {folder}: exit code {run.returncode}: {run.stderr}")
    return json.loads(run.stdout)


def equal_answers(situ, folder, isa):
    """How many recorded answers are given, of how many."""
    sys.path.insert(0, str(ROOT / "tests"))
    import baseline_ids
    import golden

    cases = golden.read_cases(folder)
    return [sum(baseline_ids.answers(situ, isa, "in place", case) for case in cases), len(cases)]


def best_isa(situ):
    sys.path.insert(0, str(ROOT / "tests"))
    import baseline_ids

    return baseline_ids.available_isas(situ, next(folders())[1])[-1]


def reason_text(r):
    name = ".".join(part for part in (r["domain"] if r["domain"] != "ai.onnx" else None, r["operator"]) if part)
    return (f"{name}: " if r["operator"] else "") + r["detail"]


def collect(situ):
    facts, isa = {}, best_isa(situ)
    for kind, folder in folders():
        said = check(situ, folder)
        facts[f"{kind}/{folder.name}"] = {**describe(folder, kind), "runs": said["runs"], "as": said["as"],
                                          "copied": said["bytes_copied_per_token_planned"],
                                          "reasons": [f"{r['kind']}: {reason_text(r)}" for r in said["reasons"]]}
        if said["runs"] and kind in RECORDED:
            facts[f"{kind}/{folder.name}"]["answers"] = equal_answers(situ, folder, isa)
    FACTS.write_text(json.dumps(facts, indent=1) + "\n")


# -- the page

def cell(text):
    return text.replace("|", "\\|").replace("\n", " ")


def rows(facts):
    """Markdown rows of one layout: architecture, quantisation, what works, how it was exported."""
    for name, f in sorted(facts, key=lambda item: (item[1]["architecture"], item[1]["quantisation"], item[0])):
        if f["runs"]:
            equal = f.get("answers")
            verdict = "runs" + (f", {equal[0]}/{equal[1]} answers" if equal and equal[1] else "") + (f", copies {f['copied']:,} B a token" if f["copied"] else "")
        else:
            verdict = "refused: " + "; ".join(f["reasons"][:3]) + (f"; and {len(f['reasons']) - 3} more" if len(f["reasons"]) > 3 else "")
        yield f"| {cell(f['architecture'])} | {cell(f['quantisation'])} | {cell(verdict)} | {cell(f['export'])} |"


def model_tables(facts):
    by_layout = defaultdict(list)
    for name, f in facts.items():
        by_layout[name.partition("/")[0]].append((name, f))
    for kind, title in LAYOUTS.items():
        if not by_layout[kind]:
            continue
        running = sum(f["runs"] for _, f in by_layout[kind])
        yield f"### {title[0].upper()}{title[1:]}: {running} of {len(by_layout[kind])} run\n"
        yield "| architecture | quantisation or form | | exported by |\n|---|---|---|---|"
        yield "\n".join(rows(by_layout[kind])) + "\n"


def node_table(nodes):
    counted = nodes["passed"] + nodes["refused"]
    yield (f"Of the cases of onnx {nodes['onnx']} that are of one operator which Situ has, and of types that it has ({counted:,}): "
           f"**{nodes['passed']:,} passed** by the interpreter ({nodes['passed'] / counted:.1%}), {nodes['placed']:,} of them by a placed program too, "
           f"**{nodes['refused']:,} refused** with a reason, **0 failed**. Not counted: "
           + ", ".join(f"{n:,} of other {what}" for what, n in sorted(nodes["not counted"].items())) + ".\n")
    yield "| operator | passed | placed | refused, and why |\n|---|---:|---:|---|"
    for operator, e in nodes["operators"].items():
        why = defaultdict(list)
        for name, reason in e["refused"].items():
            why[reason].append(name)
        text = "; ".join(f"{len(names)} x {reason}" if len(names) > 1 else reason for reason, names in why.items())
        yield f"| {operator} | {e['passed']} | {e['placed']} | {cell(text)} |"


def text():
    facts, nodes = json.loads(FACTS.read_text()), json.loads(NODES.read_text())
    running = sum(f["runs"] for f in facts.values())
    return "\n".join([
        "# What runs\n",
        "Written by `tools/models_page.py` from results of tests; [check.md](check.md) says how to ask about a folder of yours.\n",
        "Architectures are recognised by what graphs compute, not by names: the tables say what was tried. Each row is a folder of small, mostly",
        "random weights that one exporter made with these options; `runs` is what `situ check` says, and `3/3 answers` how many recorded",
        "answers `situ run` gives id by id, without a byte copied. MODEL is a checkpoint of that architecture.\n",
        f"## Architectures, layouts, quantisations: {running} of {len(facts)} folders\n",
        *model_tables(facts),
        "## Operators: ONNX's node tests\n",
        *node_table(nodes)]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail where the page is another one")
    parser.add_argument("--collect", action="store_true", help="ask situ first")
    parser.add_argument("--situ", default=str(ROOT / "build" / "situ"))
    arguments = parser.parse_args()
    if arguments.collect:
        collect(arguments.situ)
    if not arguments.check:
        PAGE.write_text(text())
    elif PAGE.read_text() != text():
        sys.exit(f"{PAGE.name} is not what the results say: run tools/{Path(__file__).name}")


if __name__ == "__main__":
    main()
