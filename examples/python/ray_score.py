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

import situ

try:
    import ray
    import ray.data
except ImportError:
    ray = None


def score(model: situ.Model, text: str) -> dict[str, Any]:
    """What the model gives to each token behind those before it, all in one go."""
    ids = model.encode(text)
    scored = model.generate(ids, prompt_logprobs=0, max_new_tokens=0).prompt_logprobs
    total = sum(token.logprob for token in scored)
    return {"tokens": len(ids), "logprob": total, "perplexity": math.exp(-total / max(1, len(scored)))}


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
