"""How probable a model finds the lines of a file, on as many workers as asked for: ray_score.py MODEL PROMPTS [--workers N]

Ray Data gives each worker one Situ model, and lines to score as it gets through them; with a Ray cluster the workers are
on several machines (MODEL is then a path that all of them have). Prints one JSON object a line, in the file's order:

    {"text": ..., "tokens": number of tokens, "logprob": ln p(tokens 2 to last | those before), "perplexity": ...}

Needs `pip install "ray[data]"`.
"""

import argparse
import json
import math
import sys
from typing import Any

import numpy as np

import situ

try:
    import ray
    import ray.data
except ImportError:
    ray = None


def score(model: situ.Model, text: str) -> dict[str, Any]:
    """Feeds the text token by token and reads what the model gave to the next one."""
    ids = model.encode(text)
    session = model.session()
    total = 0.0
    for token, following in zip(ids, ids[1:]):
        logits = session.step([token])  # float32 [vocabulary], a view
        top = float(logits.max())
        total += float(logits[following]) - top - math.log(float(np.exp(logits - top).sum()))
    return {"tokens": len(ids), "logprob": total, "perplexity": math.exp(-total / max(1, len(ids) - 1))}


class Scorer:
    """One worker: a process with its own model."""

    def __init__(self, path: str, threads: int) -> None:
        self.model = situ.load(path, threads=threads)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        return {**row, **score(self.model, row["text"])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("prompts", help="a file with one text a line")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="of each worker")
    arguments = parser.parse_args()
    if ray is None:
        print('ray_score: skipped: ray is not installed (pip install "ray[data]")')
        sys.exit(77)

    with open(arguments.prompts, encoding="utf-8") as file:
        rows = [{"line": i, "text": line.rstrip("\n")} for i, line in enumerate(file) if line.strip()]
    ray.init(logging_level="ERROR")
    ray.data.DataContext.get_current().enable_progress_bars = False
    scored = ray.data.from_items(rows, override_num_blocks=max(1, min(len(rows), 4 * arguments.workers))).map(
        Scorer,
        fn_constructor_args=(arguments.model, arguments.threads),
        compute=ray.data.ActorPoolStrategy(size=arguments.workers),
        num_cpus=arguments.threads,
    )
    for row in sorted(scored.take_all(), key=lambda row: row["line"]):
        print(json.dumps({name: value for name, value in row.items() if name != "line"}))


if __name__ == "__main__":
    main()
