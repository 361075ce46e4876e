"""Answers to several prompts: batch.py MODEL PROMPT...

The prompts of a list are computed together: a step reads the weights once for all of them. To use several processes or
machines, see ray_score.py.
"""

import argparse

import situ


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("prompts", nargs="+", metavar="PROMPT")
    parser.add_argument("--chat", action="store_true", help="the prompts are what a user says")
    parser.add_argument("-n", "--max-new-tokens", type=int, default=32)
    arguments = parser.parse_args()

    model = situ.load(arguments.model)
    answers = model.generate(arguments.prompts, chat=arguments.chat, max_new_tokens=arguments.max_new_tokens)
    for prompt, answer in zip(arguments.prompts, answers):
        print(f"{prompt!r}: {answer.text!r}")
        print(f"  {len(answer.output_ids)} tokens, prompt {answer.prefill_ms:.0f} ms, then {answer.decode_ms_per_token:.1f} ms a token")
    ledger = model.ledger
    print(f"computed {ledger.computed} B, copied {ledger.copied} B, packed {ledger.packed} B")


if __name__ == "__main__":
    main()
