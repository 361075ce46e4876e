"""Ten tiny models with random weights and their right answers, for golden tests where ../shared is not there.

    python tests/golden_models.py OUT       writes OUT/<name>/ with the graphs and expected.json, less than 1 MB in all
    python tests/golden_models.py --record  asks the oracles in NumPy anew, and writes golden_models.json

golden_models.json holds the seed of each model's weights, the prompt and the ids. Tests read the folders as those of ../shared.
"""
import argparse
import json
from dataclasses import replace
from pathlib import Path

import tiny_exports
import tiny_models
import tiny_seq2seq

RECORDED = Path(__file__).with_suffix(".json")
BEAMS = 3
CLEAR = 1e-3  # of scores: distance of a kept beam to the next one
DECODERS = ("llama", "bloom", "genai-partial", "half-gpt", "genai-softcap", "genai-zero-points", "genai-window", "opset23-causal")
PAIRS = ("t5", "bart-pair")


def spec_of(module, name):
    spec = next(s for s in module.SPECS if s.name == name)
    return replace(spec, layers=1) if module is tiny_seq2seq else spec


def record_decoder(name):
    spec = spec_of(tiny_models, name)
    seed, prompt, ids = tiny_models.choose_seed(spec)
    w = tiny_models.make_weights(spec, seed)
    beams, gap = tiny_models.beam_search(lambda ids: tiny_models.forward(spec, w, ids), prompt, BEAMS, len(ids))
    case = {"input_ids": prompt, "greedy_ids": ids}
    if gap > CLEAR and not spec.half:
        case["beam3_ids"] = beams
    return {"seed": seed, "cases": [case]}


def record_pair(name):
    oracle = tiny_seq2seq.choose_weights(spec_of(tiny_seq2seq, name))
    answers = {"greedy_ids": oracle.greedy(tiny_seq2seq.SOURCE)[0], "beam3_ids": oracle.beams(tiny_seq2seq.SOURCE, BEAMS)[0]}
    # As generate() returns them: the first token is the decoder's start.
    return {"seed": oracle.seed, "cases": [{"input_ids": tiny_seq2seq.SOURCE, **{key: [tiny_seq2seq.START, *ids] for key, ids in answers.items()}}]}


def write_pair(name, seed, folder):
    spec = spec_of(tiny_seq2seq, name)
    tiny_seq2seq.write_folder(folder, tiny_seq2seq.files_of(spec, tiny_seq2seq.make_weights(spec, seed)), tiny_seq2seq.config(spec))


def write_decoder(name, seed, folder):
    spec = spec_of(tiny_models, name)
    tiny_exports.write_weights(spec, tiny_models.make_weights(spec, seed), folder)


def write(out):
    """The folders of all models below `out`."""
    for name, recorded in json.loads(RECORDED.read_text()).items():
        folder = Path(out) / name
        (write_pair if name in PAIRS else write_decoder)(name, recorded["seed"], folder)
        (folder / "expected.json").write_text(json.dumps({"cases": recorded["cases"]}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", nargs="?")
    parser.add_argument("--record", action="store_true")
    a = parser.parse_args()
    if a.record:
        models = {name: record_decoder(name) for name in DECODERS} | {name: record_pair(name) for name in PAIRS}
        RECORDED.write_text("{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(models[name])}" for name in models) + "\n}\n")
    if a.out:
        write(a.out)


if __name__ == "__main__":
    main()
