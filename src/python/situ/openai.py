"""Answers to bodies of OpenAI's calls, as `situ serve` gives them, for servers that are written around a model.

    answer = situ.openai.chat({"messages": [{"role": "user", "content": "Hi"}]}, model)
    for piece in situ.openai.chat({"messages": [...], "stream": True}, model):
        print(piece["choices"][0]["delta"].get("content") or "", end="")

A body is a dict, or the bytes of a request. docs/batch.md of the project lists the fields. Threads may ask at the same time: their
requests share the model's steps.
"""

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, TypeAlias

from situ import _situ
from situ.model import Model

Body: TypeAlias = Mapping[str, Any] | str | bytes | bytearray | memoryview
Json: TypeAlias = dict[str, Any]


class Refused(Exception):
    """What is wrong with a body, or with its answer: `status` is HTTP's, `body` is {"error": {message, type, param, code}}."""

    def __init__(self, status: int, body: Json) -> None:
        super().__init__(status, body)  # what it is made of again where it comes out of a pickle
        self.status = status
        self.body = body

    def __str__(self) -> str:
        return str(self.body["error"]["message"])


class Pieces(Iterator[Json]):
    """The pieces of an answer as they come; of one that is no stream, the whole. A stream that fails ends with {"error": ...}, a whole
    answer is Refused. Leaving its `with` block, or close(), by any thread, ends the answer and what computes it."""

    def __init__(self, answer: _situ.OpenAiAnswer) -> None:
        self._answer = answer
        self.streams: bool = answer.streams()

    def __next__(self) -> Json:
        text = self._answer.next()
        if text is None:
            raise StopIteration
        piece = dict(json.loads(text))
        if not self.streams and self._answer.status() != 200:
            raise Refused(self._answer.status(), piece)
        return piece

    def close(self) -> None:
        self._answer.close()

    def __enter__(self) -> "Pieces":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def chat(body: Body, model: Model, *, name: str = "situ") -> Json | Pieces:
    """The answer to POST /v1/chat/completions: whole, or in pieces where the body has `"stream": true`.

    name: of the model, in answers to bodies that have none. Raises Refused.
    """
    return _answer("/v1/chat/completions", body, model, name)


def completions(body: Body, model: Model, *, name: str = "situ") -> Json | Pieces:
    """The same of POST /v1/completions."""
    return _answer("/v1/completions", body, model, name)


def embeddings(body: Body, model: Model, *, name: str = "situ") -> Json | Pieces:
    """The same of POST /v1/embeddings, whose answers are whole."""
    return _answer("/v1/embeddings", body, model, name)


def begin(url: str, body: Body, model: Model, *, name: str = "situ") -> Pieces:
    """The same of any of the three, by its path, without waiting for what is computed: for who may have to end it, as when a client
    goes. Embeddings are there when it returns."""
    if isinstance(body, bytearray | memoryview):
        body = bytes(body)
    text = body if isinstance(body, str | bytes) else json.dumps(body, default=_plain)
    return Pieces(_situ.OpenAiAnswer(model._model, url, text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"), name))


def _plain(value: Any) -> Any:
    """Messages and bodies of OpenAI's client, dataclasses, mappings and lists of any kind, as JSON has them."""
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(exclude_none=True)
    if isinstance(value, Mapping):
        return dict(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if hasattr(value, "tolist"):  # an array, a tensor, a number of NumPy
        return value.tolist()
    if isinstance(value, Iterable) and not isinstance(value, bytes | bytearray | memoryview | set | frozenset):
        return list(value)
    raise TypeError(f"a body has no {type(value).__name__}: it is JSON")


def _answer(url: str, body: Body, model: Model, name: str) -> Json | Pieces:
    pieces = begin(url, body, model, name=name)
    return pieces if pieces.streams else next(pieces)
