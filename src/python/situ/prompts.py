"""Prompts: texts, token ids and conversations, with images, sounds and arrays."""

import json
import operator
import os
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any, Literal, Protocol, Required, TypeAlias, TypedDict, cast

import numpy as np
from numpy.typing import NDArray

from situ._situ import SituError

Ids: TypeAlias = Sequence[int] | NDArray[np.integer[Any]]


class PillowImage(Protocol):
    """What is used of PIL.Image.Image; Pillow itself is not needed."""

    def convert(self, mode: str) -> Any: ...


Image: TypeAlias = str | os.PathLike[str] | bytes | PillowImage | NDArray[np.uint8]
"""A file (png, jpeg, webp, gif) or the bytes of one, a PIL image, or pixels [height, width, 3] of uint8, red first."""

Sound: TypeAlias = str | os.PathLike[str] | bytes | NDArray[np.floating[Any]]
"""A file (wav, flac, mp3, ogg) or the bytes of one, or mono samples [samples] at 16 kHz."""


class Part(TypedDict, total=False):
    """A piece of a message: {"type": "text", "text": ...}, {"type": "image", "image": ...} or {"type": "audio", "audio": ...}."""

    type: Required[Literal["text", "image", "audio"]]
    text: str
    image: Image
    audio: Sound


class Function(TypedDict):
    name: str
    arguments: str | Mapping[str, object]  # an object, or its JSON


class ToolCall(TypedDict, total=False):
    id: str
    type: Literal["function"]
    function: Required[Function]


class Message(TypedDict, total=False):
    """A turn of a conversation. Other keys are refused; None is as if the key were absent. What OpenAI's API adds to an
    assistant's messages (refusal, annotations) is accepted and not shown to the model."""

    role: Required[str]  # "system", "user", "assistant", "tool", or another that the chat template knows
    content: str | Sequence[str | Part] | None  # of an assistant that calls tools there may be none
    tool_calls: Sequence[ToolCall] | None
    name: str | None
    tool_call_id: str | None
    reasoning_content: str | None
    # Whether what is spelled like a special token is one. Default: in an assistant's messages; what others say is ordinary text.
    parse_special: bool | None


Conversation: TypeAlias = Sequence[Message]
Prompt: TypeAlias = str | Ids | Conversation
"""Text, for models with a tokenizer, or token ids, or messages, for models with a chat template."""


class ChatIds(list[int]):
    """Token ids of a conversation: Model.encode_chat makes them, and their answers end where a turn does."""


_IGNORED = ("refusal", "annotations")
_KEYS = ("role", "content", "tool_calls", "name", "tool_call_id", "reasoning_content", "parse_special", *_IGNORED)
# What a prompt is made with, with the defaults.
PROMPT_OPTIONS: dict[str, object] = {
    "chat": False, "images": (), "sounds": (), "arrays": None, "decoder_prompt": (), "parse_special": True,
    "tools": None, "template_variables": None, "add_generation_prompt": True, "continue_last": False,
}  # fmt: skip


def text_of(text: object) -> str:
    if not isinstance(text, str):
        raise TypeError(f"a text is a str, not {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError as e:
        raise SituError(f"the text is not valid Unicode: {e.reason} at character {e.start}") from None
    return text


def token_ids(ids: Ids) -> list[int]:
    if isinstance(ids, (str, bytes, bytearray, Mapping)):
        raise TypeError(f"token ids are a list or an array of integers, not {type(ids).__name__}")
    try:
        found = [operator.index(i) for i in ids]
    except TypeError:
        raise TypeError(f"token ids are a list or an array of integers, not {str(ids)[:40]!r}") from None
    for number, i in enumerate(found):
        if not -(2**63) <= i < 2**63:
            raise SituError(f"token {number} has id {i}, outside every vocabulary")
    return found


def is_conversation(prompt: object) -> bool:
    return isinstance(prompt, (list, tuple)) and len(prompt) > 0 and isinstance(prompt[0], Mapping)


def is_list_of_prompts(prompt: Any) -> bool:
    if isinstance(prompt, (str, bytes, bytearray, Mapping)) or is_conversation(prompt):
        return False
    return len(prompt) > 0 and not isinstance(prompt[0], Integral)


def split(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What makes a prompt, and the options of its answer."""
    made = {name: options.get(name, default) for name, default in PROMPT_OPTIONS.items()}
    answer = {name: value for name, value in options.items() if name not in PROMPT_OPTIONS}
    if answer.get("json_schema") is not None and not isinstance(answer["json_schema"], str):
        answer["json_schema"] = json.dumps(answer["json_schema"])
    return made, answer


def described(prompt: Prompt, options: Mapping[str, Any]) -> dict[str, Any]:
    """A prompt as the module has it. `options`: all of PROMPT_OPTIONS."""
    media = [*(_medium("image", i, n) for n, i in enumerate(_list(options["images"], "images"))),
             *(_medium("audio", s, n) for n, s in enumerate(_list(options["sounds"], "sounds")))]  # fmt: skip
    given = {} if options["arrays"] is None else options["arrays"]
    if not isinstance(given, Mapping):
        raise TypeError(f"arrays are a mapping of names and arrays, not {type(given).__name__}")
    arrays = [("array", text_of(name), np.ascontiguousarray(array)) for name, array in given.items()]
    messages: list[dict[str, Any]] = []
    parts: list[tuple[Any, ...]] = []
    if is_conversation(prompt):
        if options["chat"] or media:
            raise TypeError("messages are a conversation already, and have their images and sounds themselves")
        messages = [_message(m) for m in cast(Conversation, prompt)]
    elif isinstance(prompt, str):
        parts = [*media, ("text", text_of(prompt))]
        if options["chat"]:
            messages, parts = [{"role": "user", "parts": parts, "tool_calls": []}], []
    elif isinstance(prompt, (bytes, bytearray, Mapping)):
        raise TypeError(f"a prompt is text, token ids or messages, not {type(prompt).__name__}")
    elif options["chat"]:
        raise TypeError("chat=True takes text; token ids are a prompt already")
    else:
        parts = [*media, ("ids", token_ids(cast(Ids, prompt)))]
        if parts[-1][1] == [] and (media or arrays):  # these are the prompt
            parts.pop()
    return {
        "messages": messages,
        "parts": [*parts, *arrays],
        "decoder_ids": token_ids(options["decoder_prompt"]),
        "parse_special": bool(options["parse_special"]),
        "is_conversation": isinstance(prompt, ChatIds),
        "tools": json.dumps(options["tools"]) if options["tools"] is not None else "",
        "variables": json.dumps(options["template_variables"]) if options["template_variables"] is not None else "",
        "add_generation_prompt": bool(options["add_generation_prompt"]),
        "continue_last": bool(options["continue_last"]),
    }


def _list(media: Any, what: str) -> Sequence[Any]:
    if isinstance(media, (str, bytes, os.PathLike, np.ndarray)) or hasattr(media, "convert"):
        raise TypeError(f"{what} are a list: one is [it]")
    return cast(Sequence[Any], media)


def _medium(kind: str, given: Any, number: int) -> tuple[Any, ...]:
    """A PIL image is taken as it is shown: EXIF's orientation is not applied to it, and alpha is dropped, as Pillow's convert does."""
    if isinstance(given, (bytes, bytearray, memoryview)):
        return (kind, "bytes", bytes(given))
    if isinstance(given, (str, os.PathLike)):
        return (kind, "path", os.fsencode(given))
    if kind == "image":
        array = np.asarray(given.convert("RGB") if not isinstance(given, np.ndarray) and hasattr(given, "convert") else given)
        if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3:
            raise TypeError(f"image {number}: a file, a PIL image, or pixels uint8 [height, width, 3], not {array.dtype}{list(array.shape)}")
        return (kind, "array", np.ascontiguousarray(array))
    array = np.asarray(given)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.floating):
        raise TypeError(f"sound {number}: a file, or samples float [samples], mono at 16 kHz, not {array.dtype}{list(array.shape)}")
    return (kind, "array", np.ascontiguousarray(array, dtype=np.float32))


def _message(message: Any) -> dict[str, Any]:
    if not isinstance(message, Mapping) or "role" not in message:
        raise TypeError("a message of a conversation has a 'role' and a 'content'")
    unknown = [key for key, value in message.items() if key not in _KEYS and value is not None]
    if unknown:
        raise TypeError(f"a message has no key {unknown[0]!r}; there are {', '.join(_KEYS)}")
    found: dict[str, Any] = {"role": text_of(message["role"]), "tool_calls": [_call(c) for c in message.get("tool_calls") or ()]}
    content = message.get("content")
    if content is None and not found["tool_calls"] and "refusal" not in message:
        raise TypeError("a message of a conversation has a 'role' and a 'content'")
    found["parts"] = [("text", text_of(content))] if isinstance(content, str) else [_part(p, n) for n, p in enumerate(content or ())]
    for key, name in (("name", "name"), ("tool_call_id", "tool_call_id"), ("reasoning_content", "reasoning")):
        if message.get(key) is not None:
            found[name] = text_of(message[key])
    if message.get("parse_special") is not None:
        found["parse_special"] = bool(message["parse_special"])
    return found


def _part(part: Any, number: int) -> tuple[Any, ...]:
    if isinstance(part, str):
        return ("text", text_of(part))
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind not in ("text", "image", "audio") or set(part) != {"type", kind}:
        raise TypeError("a part of a message is {'type': 'text', 'text': ...}, or the same of 'image' or 'audio'")
    return ("text", text_of(part["text"])) if kind == "text" else _medium(kind, part[kind], number)


def _call(call: Any) -> tuple[str, str, str]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or "name" not in function or set(call) - {"id", "type", "function", "index"}:
        raise TypeError("a tool call is {'id': ..., 'type': 'function', 'function': {'name': ..., 'arguments': ...}}")
    arguments = function.get("arguments", "")
    return text_of(call.get("id") or ""), text_of(function["name"]), arguments if isinstance(arguments, str) else json.dumps(arguments)
