"""Whether answers and events with calls and reasoning are those of the clients' own types: validate.py FILE

FILE is what bodies_test writes where SITU_WRITE_ANSWERS names it.
"""
import json
import sys
from pathlib import Path

from anthropic.types import Message, RawMessageStreamEvent
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import TypeAdapter

answers = json.loads(Path(sys.argv[1]).read_text())
events = calls = 0
for answer in answers:
    ChatCompletion.model_validate(answer["chat"], strict=True)
    Message.model_validate(answer["message"], strict=True)
    for chunk in answer["chunks"]:
        ChatCompletionChunk.model_validate(chunk, strict=True)
    for event in answer["events"]:
        TypeAdapter(RawMessageStreamEvent).validate_python(event, strict=True)
        events += 1
    calls += len(answer["chat"]["choices"][0]["message"].get("tool_calls", []))
assert events and calls, "there is nothing to look at"
print("ok")
