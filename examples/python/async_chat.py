"""Many conversations at once: async_chat.py MODEL [--users 32] [--turns 2]

Each user is a coroutine of one thread, waits for tokens as they come, and says the next thing when the answer is there. Their requests
share the model's steps, and each has the answer that it has alone.
"""

import argparse
import asyncio
import time

import situ

SAID = ("Name a colour.", "Why this one?", "And another one?")


async def user(model: situ.Model, number: int, turns: int, options: situ.RequestOptions) -> list[situ.Message]:
    """A conversation, with its answers."""
    conversation: list[situ.Message] = [{"role": "system", "content": f"You talk to user {number}."}]
    for turn in range(turns):
        conversation.append({"role": "user", "content": SAID[turn % len(SAID)]})
        text = ""
        async with model.stream_async(conversation, **options) as stream:
            async for token in stream:
                text += token.text
        conversation.append({"role": "assistant", "content": text})
    return conversation


async def chat(model: situ.Model, users: int, turns: int, **options: object) -> list[list[situ.Message]]:
    return await asyncio.gather(*(user(model, i, turns, situ.RequestOptions(**options)) for i in range(users)))  # type: ignore[typeddict-item]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--users", type=int, default=32)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("-n", "--max-new-tokens", type=int, default=32)
    arguments = parser.parse_args()

    model = situ.load(arguments.model)
    began = time.monotonic()
    conversations = asyncio.run(chat(model, arguments.users, arguments.turns, max_new_tokens=arguments.max_new_tokens))
    seconds = time.monotonic() - began
    for message in conversations[0]:
        print(f"{message['role']}: {message['content']!r}")
    stats = model.stats()
    print(f"{arguments.users} users, {stats['answer_tokens']} tokens in {stats['steps']} steps, {stats['answer_tokens'] / seconds:.1f} tokens/s")


if __name__ == "__main__":
    main()
