"""What is in an image: images.py MODEL IMAGE... [--prompt TEXT]

For models with a vision encoder. An image is a file, its bytes, a PIL image, or an array of pixels, in any turn of a conversation.
"""

import argparse
import pathlib

import situ


def ask(model: situ.Model, images: list[situ.Image], text: str, **options: object) -> situ.Generation:
    """The answer to a text behind images."""
    parts: list[situ.Part] = [{"type": "image", "image": image} for image in images]
    message: situ.Message = {"role": "user", "content": [*parts, {"type": "text", "text": text}]}
    return model.generate([message], **options)  # type: ignore[arg-type]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("images", nargs="+", type=pathlib.Path, metavar="IMAGE")
    parser.add_argument("--prompt", default="What is in the image?")
    parser.add_argument("-n", "--max-new-tokens", type=int, default=64)
    arguments = parser.parse_args()

    model = situ.load(arguments.model)
    answer = ask(model, [path.read_bytes() for path in arguments.images], arguments.prompt, max_new_tokens=arguments.max_new_tokens)
    print(answer.text)
    print(f"encoders {answer.encode_ms:.0f} ms, prompt {answer.prefill_ms:.0f} ms, then {answer.decode_ms_per_token:.1f} ms a token")


if __name__ == "__main__":
    main()
