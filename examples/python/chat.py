"""A conversation with a model that has a chat template: chat.py MODEL [--system TEXT]

Reads one line from standard input for each turn. Control-C ends an answer or drops a line, Control-D
ends the conversation.
"""

import argparse

import situ


def answer(model: situ.Model, conversation: list[situ.Message], options: situ.RequestOptions) -> str:
    """Prints the answer while it comes. The whole conversation is the prompt each time."""
    text = ""
    try:
        with model.stream(conversation, **options) as stream:
            for token in stream:
                print(token.text, end="", flush=True)
                text += token.text
    except KeyboardInterrupt:
        pass
    print()
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--system", help="what the model is told first")
    parser.add_argument("-n", "--max-new-tokens", type=int, default=512)
    parser.add_argument("--temperature", type=float, help="draw tokens at random; default: as the model's files say")
    arguments = parser.parse_args()

    model = situ.load(arguments.model)
    options: situ.RequestOptions = {"max_new_tokens": arguments.max_new_tokens, "temperature": arguments.temperature}
    conversation: list[situ.Message] = []
    if arguments.system:
        conversation.append({"role": "system", "content": arguments.system})
    while True:
        try:
            line = input("> ")
        except EOFError:
            return
        except KeyboardInterrupt:
            print()
            continue
        conversation.append({"role": "user", "content": line})
        conversation.append({"role": "assistant", "content": answer(model, conversation, options)})


if __name__ == "__main__":
    main()
