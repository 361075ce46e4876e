"""The best answers that a beam search finds: beams.py MODEL PROMPT

With groups (--groups 4) the answers avoid each other's tokens. Beams share the state of what they have in common: a beam that splits
copies nothing.
"""

import argparse

import situ


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("prompt")
    parser.add_argument("--chat", action="store_true", help="the prompt is what a user says")
    parser.add_argument("--beams", type=int, default=4)
    parser.add_argument("--groups", type=int, default=1)
    parser.add_argument("-n", "--max-new-tokens", type=int, default=32)
    arguments = parser.parse_args()

    model = situ.load(arguments.model)
    found = model.generate(
        arguments.prompt,
        chat=arguments.chat,
        max_new_tokens=arguments.max_new_tokens,
        beams=arguments.beams,
        beam_groups=arguments.groups,
        diversity_penalty=1.0 if arguments.groups > 1 else 0.0,
        num_return=arguments.beams,
    )
    for answer in found.answers:
        print(f"{answer.score:8.3f}  {answer.text!r}")
    print(f"copied {model.ledger.copied} B")


if __name__ == "__main__":
    main()
