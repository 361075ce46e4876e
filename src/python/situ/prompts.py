"""Prompts: texts, token ids and conversations, with images, sounds and arrays."""

import dataclasses
import enum
import json
import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Required, TypeAlias, TypedDict, cast

import numpy as np
from numpy.typing import NDArray

from situ import media, names, results
from situ.lists import as_list, is_id, is_sequence, naming, shown, text_of, token_ids
from situ.media import Image, Sound

__all__ = ["ChatIds", "Conversation", "Ids", "Image", "Message", "Part", "Prompt", "Sound", "described", "list_of_prompts", "split", "text_of", "token_ids"]

Ids: TypeAlias = Sequence[int] | NDArray[np.integer[Any]]


class Part(TypedDict, total=False):
    """A piece of a message: {"type": "text", "text": ...}, {"type": "image", "image": ...} or {"type": "audio", "audio": ...}; or as
    OpenAI's API has it: {"type": "image_url", "image_url": {"url": "data:..."}}, {"type": "input_audio", "input_audio": {"data": ...}}."""

    type: Required[Literal["text", "image", "audio", "image_url", "audio_url", "input_audio"]]
    text: str
    image: Image
    audio: Sound
    image_url: str | Mapping[str, str]
    audio_url: str | Mapping[str, str]
    input_audio: Mapping[str, str]


class Function(TypedDict):
    name: str
    arguments: str | Mapping[str, object]  # an object, or its JSON


class ToolCall(TypedDict, total=False):
    id: str
    type: Literal["function"]
    function: Required[Function]


class Message(TypedDict, total=False):
    """A turn of a conversation, or an object with these attributes (a dataclass, a message of the client of OpenAI's API). Other keys are
    refused; None is as if the key were absent. What OpenAI's API adds to an assistant's messages (refusal, annotations) is accepted and not
    shown to the model."""

    role: Required[str]  # "system", "user", "assistant", "tool", or another that the chat template knows
    content: str | Sequence[str | Part] | None  # of an assistant that calls tools there may be none
    tool_calls: Sequence[ToolCall | results.ToolCall] | None
    name: str | None
    tool_call_id: str | None  # of a "tool": which call it is the result of
    reasoning_content: str | None  # of an assistant: what it thought
    reasoning: str | None  # the same
    # Whether what is spelled like a special token is one. Default: in an assistant's messages; what others say is ordinary text.
    parse_special: bool | None


Conversation: TypeAlias = Sequence[Message]
Prompt: TypeAlias = str | Ids | Conversation
"""Text, for models with a tokenizer, or token ids, or messages, for models with a chat template."""


class ChatIds(list[int]):
    """Token ids of a conversation: Model.encode_chat makes them, and their answers end where a turn does."""


_IGNORED = ("refusal", "annotations")
_KEYS = ("role", "content", "tool_calls", "name", "tool_call_id", "reasoning_content", "reasoning", "parse_special", *_IGNORED)
# What a prompt is made with, with the defaults.
PROMPT_OPTIONS: dict[str, object] = {
    "chat": False, "images": (), "sounds": (), "arrays": None, "decoder_prompt": (), "parse_special": True,
    "tools": None, "tool_choice": "auto", "parallel_tool_calls": True, "template_variables": None, "add_generation_prompt": True, "continue_last": False,
}  # fmt: skip


def _has_role(value: object) -> bool:
    """Whether it is a message, or means to be one."""
    fields = dataclasses.is_dataclass(value) or callable(getattr(value, "model_dump", None))
    return not isinstance(value, type) and (isinstance(value, Mapping) or hasattr(value, "role") or fields)


def is_conversation(prompt: object) -> bool:
    return isinstance(prompt, (list, tuple)) and len(prompt) > 0 and _has_role(prompt[0])


def _settled(prompt: Any) -> Any:
    """A prompt, or a list of prompts, that can be looked at twice."""
    if isinstance(prompt, (str, list, tuple)) or getattr(prompt, "ndim", 0) > 0 and (isinstance(prompt, np.ndarray) or not hasattr(prompt, "tolist")):
        return prompt
    if _has_role(prompt):
        hint = "; write: [message]" if _field(prompt, "role") is not None else ""
        hint = "; write: prompt['input_ids']" if _field(prompt, "input_ids") is not None else hint
        raise TypeError(f"a prompt is text, token ids or messages, not {type(prompt).__name__}{hint}")
    if isinstance(prompt, (bytes, bytearray, memoryview)):
        raise TypeError(f"a prompt is text, token ids or messages, not {type(prompt).__name__}")
    return as_list(prompt, "a prompt is text, token ids or messages")


def _field(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def list_of_prompts(prompt: Any) -> list[Any] | None:
    """The prompts of a list of prompts; None: it is one prompt."""
    if isinstance(prompt, str) or is_conversation(prompt):
        return None
    axes = getattr(prompt, "ndim", None)
    if axes is not None and axes > 1:
        return list(prompt)
    if len(prompt) == 0 or is_id(prompt[0]):
        return None
    items = list(prompt)
    return items if any(isinstance(i, str) or is_sequence(i) for i in items) else None


def settled_prompt(prompt: Any) -> tuple[Any, list[Any] | None]:
    """A prompt, and the prompts where it is a list of some."""
    prompt = _settled(prompt)
    return prompt, list_of_prompts(prompt)


def split(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What makes a prompt, and the options of its answer."""
    found = names.generate_options(options, PROMPT_OPTIONS)
    made = {name: found.pop(name, default) for name, default in PROMPT_OPTIONS.items()}
    return made, found


def described(prompt: Prompt, options: Mapping[str, Any]) -> dict[str, Any]:
    """A prompt as the module has it. `options`: all of PROMPT_OPTIONS."""
    given_media = [*(media.medium("image", i, f"image {n}") for n, i in enumerate(_list(options["images"], "images"))),
             *(media.checked(media.medium("audio", s, f"sound {n}"), f"sound {n}") for n, s in enumerate(_list(options["sounds"], "sounds")))]  # fmt: skip
    given = {} if options["arrays"] is None else options["arrays"]
    if not isinstance(given, Mapping):
        raise TypeError(f"arrays are a mapping of names and arrays, not {type(given).__name__}")
    arrays = [("array", text_of(name, "the name of an array"), np.ascontiguousarray(array)) for name, array in given.items()]
    prompt = _settled(prompt)
    messages: list[dict[str, Any]] = []
    parts: list[tuple[Any, ...]] = []
    if is_conversation(prompt):
        if options["chat"] or given_media:
            raise TypeError("messages are a conversation already, and have their images and sounds themselves")
        for number, message in enumerate(cast(Conversation, prompt)):
            with naming(f"message {number}"):
                messages.append(_message(message))
    elif isinstance(prompt, str):
        parts = [*given_media, ("text", text_of(prompt))]
        if options["chat"]:
            messages, parts = [{"role": "user", "parts": parts, "tool_calls": []}], []
    elif options["chat"]:
        raise TypeError("chat=True takes text; token ids are a prompt already")
    else:
        parts = [*given_media, ("ids", token_ids(cast(Ids, prompt)))]
        if parts[-1][1] == [] and (given_media or arrays):  # these are the prompt
            parts.pop()
    return {
        "messages": messages,
        "parts": [*parts, *arrays],
        "decoder_ids": token_ids(options["decoder_prompt"]),
        "parse_special": bool(options["parse_special"]),
        "is_conversation": isinstance(prompt, ChatIds),
        "tools": json.dumps(as_list(options["tools"], "tools"), default=_as_json) if options["tools"] is not None else "",
        "tool_choice": _tool_choice(options["tool_choice"]),
        "parallel_tool_calls": bool(options["parallel_tool_calls"]),
        "variables": json.dumps(options["template_variables"], default=_as_json) if options["template_variables"] is not None else "",
        "add_generation_prompt": bool(options["add_generation_prompt"]),
        "continue_last": bool(options["continue_last"]),
    }


def _tool_choice(given: Any) -> str:
    """A word, or {"type": "function", "function": {"name": ...}}."""
    function = _field(given, "function") if isinstance(given, Mapping) else None
    return text_of(given if isinstance(given, str) else _field(function, "name"), "tool_choice")


def _list(given: Any, what: str) -> Sequence[Any]:
    if isinstance(given, (str, bytes, bytearray, memoryview, os.PathLike, np.ndarray)) or hasattr(given, "convert") or hasattr(given, "read"):
        raise TypeError(f"{what} are a list: one is [it]")
    return as_list(given, what)


def _mapping(value: Any) -> tuple[Mapping[str, Any] | None, bool]:
    """An object with fields as a mapping, and whether it is one itself; None: it has no fields."""
    if isinstance(value, Mapping):
        return value, True
    if callable(dump := getattr(value, "model_dump", None)):
        return dump(), False
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}, False
    if hasattr(value, "_asdict"):
        return value._asdict(), False
    found = {name: getattr(value, name) for name in (*_KEYS, "type", "text", "function", "id", "arguments") if hasattr(value, name)}
    return found or None, False


def _as_json(value: Any) -> Any:
    found, _ = _mapping(value)
    if found is None:
        raise TypeError(f"{shown(value)} cannot be written as JSON")
    return dict(found)


def _message(given: Any) -> dict[str, Any]:
    message, is_mapping = _mapping(given)
    if message is None or message.get("role") is None:
        raise TypeError("a message of a conversation has a 'role' and a 'content'")
    unknown = [key for key, value in message.items() if key not in _KEYS and value is not None and value != []]
    if unknown and is_mapping:
        raise TypeError(f"a message has no key {unknown[0]!r}; there are {', '.join(_KEYS)}")
    if unknown:
        warnings.warn(f"of a {type(given).__name__} these are not shown to the model: {', '.join(unknown)}", stacklevel=2)
    role = message["role"]
    role = role.value if isinstance(role, enum.Enum) else role
    calls = [_call(c) for c in message.get("tool_calls") or ()]
    found: dict[str, Any] = {"role": text_of(role, "the role"), "tool_calls": calls}
    content = message.get("content")
    if content is None and not calls and "refusal" not in message:
        raise TypeError("a message of a conversation has a 'role' and a 'content'")
    if isinstance(content, str):
        found["parts"] = [("text", text_of(content, "the content"))]
    else:
        parts = [] if content is None else as_list(content, "the content of a message is text or parts")
        found["parts"] = [_part(p, f"part {n}") for n, p in enumerate(parts)]
    for key, name in (("name", "name"), ("tool_call_id", "tool_call_id"), ("reasoning", "reasoning"), ("reasoning_content", "reasoning")):
        if message.get(key) is not None:
            found[name] = text_of(message[key], f"the {key}")
    if message.get("parse_special") is not None:
        found["parse_special"] = bool(message["parse_special"])
    return found


def _part(given: Any, what: str) -> tuple[Any, ...]:
    if isinstance(given, str):
        return ("text", text_of(given, what))
    part, _ = _mapping(given)
    if part is None:
        raise TypeError(f"{what}: a part of a message is text, {{'type': 'text', 'text': ...}}, or the same of 'image' or 'audio', not {type(given).__name__}")
    return media.part_of(part, what)


def _given(value: Mapping[str, Any]) -> set[str]:
    return {key for key, given in value.items() if given is not None}


def _call(given: Any) -> tuple[str, str, str]:
    if isinstance(given, results.ToolCall):
        return given
    call, _ = _mapping(given)
    function = _mapping(call["function"])[0] if call is not None and call.get("function") is not None else None
    if call is None or function is None or "name" not in function or _given(call) - {"id", "type", "function", "index"}:
        raise TypeError("a tool call is {'id': ..., 'type': 'function', 'function': {'name': ..., 'arguments': ...}}")
    arguments = function.get("arguments", "")
    return text_of(call.get("id") or ""), text_of(function["name"]), arguments if isinstance(arguments, str) else json.dumps(arguments)
