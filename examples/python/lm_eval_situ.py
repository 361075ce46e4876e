"""Situ as a model of lm-evaluation-harness: lm_eval_situ.py --model situ --model_args path=MODEL_DIR --tasks hellaswag ...

The arguments are those of lm_eval itself; `path` and the options of situ.load stand in --model_args. Requests of a task are given to the
model together, as many as it takes, and share its steps; --batch_size is not needed.

Needs `pip install lm_eval`.
"""

from collections.abc import Sequence
from typing import Any

import situ

try:
    from lm_eval.api.model import LM
    from lm_eval.api.registry import register_model
except ImportError as missing:
    raise SystemExit(77) from missing

TOGETHER = 64  # prompts of a call: their answers are in memory until it returns


@register_model("situ")
class Situ(LM):  # type: ignore[misc]
    def __init__(self, path: str, add_bos: bool = False, batch_size: Any = None, device: Any = None, max_batch_size: Any = None, **load: Any) -> None:
        super().__init__()
        self.model = situ.load(path, **load)
        self.add_bos = str(add_bos).lower() == "true"
        ends = self.model.end_ids
        begins = self.model.encode("")[:1] or ends[:1]
        facts = self.model.facts
        self.prefix = [i for i in begins if i < facts.vocabulary]  # what stands before a text without context
        self.context = facts.context_length

    @property
    def tokenizer_name(self) -> str:
        return self.model.facts.file.replace("/", "__")

    def apply_chat_template(self, chat_history: Sequence[Any], add_generation_prompt: bool = True) -> str:
        return self.model.render(chat_history, add_generation_prompt=add_generation_prompt, continue_last=not add_generation_prompt)

    def encode(self, text: str) -> list[int]:
        return self.model.encode(text, add_special=self.add_bos)

    def pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """Token ids of both. Spaces between them belong to the continuation, as tokenizers have them."""
        if not context:
            return list(self.prefix), self.model.encode(continuation, add_special=False)
        spaces = len(context) - len(context.rstrip())
        if spaces:
            context, continuation = context[:-spaces], context[-spaces:] + continuation
        before = self.encode(context)
        return before, self.encode(context + continuation)[len(before) :]

    def score(self, pairs: Sequence[tuple[list[int], list[int]]]) -> list[tuple[float, bool]]:
        """ln p(continuation | context), and whether the most probable tokens are it."""
        found: list[tuple[float, bool]] = []
        for at in range(0, len(pairs), TOGETHER):
            part = pairs[at : at + TOGETHER]
            prompts = [(before + after)[-self.context :] for before, after in part]
            answers = self.model.generate(prompts, prompt_logprobs=0, max_new_tokens=0)
            for (_, after), prompt, answer in zip(part, prompts, answers):
                tokens = answer.prompt_logprobs[len(prompt) - 1 - min(len(after), len(prompt) - 1) :]
                found.append((sum(t.logprob for t in tokens), all(t.rank == 1 for t in tokens)))
        return found

    def loglikelihood(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        return self.score([self.pair(*r.args) for r in requests])

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """ln p(text): in windows of the context, each token once, behind all of its window that are before it."""
        sums = []
        most = self.context - 1
        for r in requests:
            ids = self.encode(r.args[0])
            windows = []
            for start in range(0, len(ids), most):
                end = min(start + most, len(ids))
                before = ids[max(0, end - most - 1) : start] if start else list(self.prefix)
                windows.append((before, ids[start:end]))
            sums.append(sum(logprob for logprob, _ in self.score(windows)))
        return sums

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        texts: list[str] = [""] * len(requests)
        groups: dict[str, list[int]] = {}
        for number, r in enumerate(requests):
            groups.setdefault(repr(sorted(r.args[1].items())), []).append(number)
        for numbers in groups.values():
            given = dict(requests[numbers[0]].args[1])
            until = given.get("until") or []
            options: dict[str, Any] = {"stop": [until] if isinstance(until, str) else list(until), "max_new_tokens": int(given.get("max_gen_toks", 256))}
            options["temperature"] = float(given.get("temperature", 1)) if given.get("do_sample") else 0.0
            for at in range(0, len(numbers), TOGETHER):
                part = numbers[at : at + TOGETHER]
                room = max(1, self.context - options["max_new_tokens"])
                prompts = [self.encode(requests[n].args[0])[-room:] for n in part]
                for number, answer in zip(part, self.model.generate(prompts, **options)):
                    texts[number] = answer.text
        return texts


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()
