"""Lists, texts and token ids as Python has them, and errors that say which item is wrong."""

import contextlib
import operator
from collections.abc import AsyncIterable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from situ._situ import SituError


def shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


@contextlib.contextmanager
def naming(what: str) -> Iterator[None]:
    """Puts `what` in front of an error's message: which item of a list is meant."""
    try:
        yield
    except TypeError as error:
        raise TypeError(f"{what}: {error}") from None
    except SituError as error:
        named = SituError(f"{what}: {error}")
        named.__dict__.update(error.__dict__)
        raise named from None


def text_of(text: object, what: str = "the text") -> str:
    if not isinstance(text, str):
        raise TypeError(f"{what} is a str, not {type(text).__name__} ({shown(text)})")
    try:
        text.encode()
    except UnicodeEncodeError as e:
        raise SituError(f"{what} is not valid Unicode: {e.reason} at character {e.start}") from None
    return text


def as_list(values: Any, what: str) -> list[Any]:
    """The items of a list, a tuple, an array, a table's column, a view, a generator, in their order. TypeError: no list."""
    if isinstance(values, list):
        return values
    if isinstance(values, (str, bytes, bytearray, memoryview, Mapping)):
        raise TypeError(f"{what}: a list is wanted, not {type(values).__name__}")
    if isinstance(values, (set, frozenset)):
        raise TypeError(f"{what}: a {type(values).__name__} has no order; write: sorted(...) or list(...)")
    if isinstance(values, AsyncIterable):
        raise TypeError(f"{what}: an asynchronous {type(values).__name__} is read by its coroutine; write: [x async for x in ...]")
    if getattr(values, "ndim", 1) == 0 or not isinstance(values, Iterable) and not hasattr(values, "__getitem__"):
        raise TypeError(f"{what}: a list is wanted, not {type(values).__name__} ({shown(values)})")
    return list(values)


def is_id(item: object) -> bool:
    """Whether it is an integer, be it an element of a tensor."""
    if isinstance(item, int):
        return True
    if getattr(item, "ndim", 0) != 0 or not hasattr(item, "__index__"):
        return False
    try:
        operator.index(item)  # type: ignore[arg-type]
    except TypeError:
        return False
    return True


def is_sequence(value: object) -> bool:
    """Whether it may be a list of ids: no text, no bytes, no mapping."""
    if isinstance(value, (str, bytes, bytearray, memoryview, Mapping)) or getattr(value, "ndim", 1) == 0:
        return False
    return isinstance(value, Iterable) or hasattr(value, "__getitem__")


def token_ids(ids: Any) -> list[int]:
    """Token ids of a list, an array or a tensor of one axis."""
    if not is_sequence(ids):
        raise TypeError(f"token ids are a list or an array of integers, not {type(ids).__name__} ({shown(ids)})")
    axes = getattr(ids, "ndim", 1)
    if axes != 1:
        raise TypeError(f"token ids are a list or an array of one axis, not of {axes}; rows are prompts by themselves")
    if isinstance(ids, np.ndarray) and ids.dtype.kind in "iu":
        found = ids.tolist()
    else:
        found = []
        for number, item in enumerate(as_list(ids, "token ids")):
            if not is_id(item):
                raise TypeError(f"token {number} is an integer, not {type(item).__name__} ({shown(item)})")
            found.append(operator.index(item))
    for number, i in enumerate(found):
        if not -(2**63) <= i < 2**63:
            raise SituError(f"token {number} has id {i}, outside every vocabulary")
    return found
