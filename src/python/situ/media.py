"""Images and sounds as Python has them, and the parts of messages that hold them."""

import base64
import binascii
import os
import urllib.parse
import warnings
from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from situ._situ import SituError
from situ.lists import shown, text_of

RATE = 16000  # Hz, of samples


class PillowImage(Protocol):
    """What is used of PIL.Image.Image; Pillow itself is not needed."""

    def convert(self, mode: str) -> Any: ...


class BinaryFile(Protocol):
    """What is used of a file that is open for reading bytes, such as io.BytesIO."""

    def read(self) -> bytes: ...


Bytes: TypeAlias = bytes | bytearray | memoryview
Image: TypeAlias = str | os.PathLike[str] | Bytes | BinaryFile | PillowImage | NDArray[np.uint8]
"""A file (png, jpeg, webp, gif), open or by its path, or its bytes; a PIL image; or pixels [height, width, 3] of uint8, red first."""

Sound: TypeAlias = str | os.PathLike[str] | Bytes | BinaryFile | NDArray[np.floating[Any]]
"""A file (wav, flac, mp3, ogg), open or by its path, or its bytes; or mono samples [samples] at 16 kHz, from -1 to 1."""


def medium(kind: str, given: Any, what: str) -> tuple[Any, ...]:
    """(kind, "path", bytes), (kind, "bytes", bytes) or (kind, "array", array) of an "image" or an "audio".

    A PIL image is taken as it is shown: EXIF's orientation is not applied to it, and alpha is dropped, as Pillow's convert does.
    """
    if isinstance(given, (bytes, bytearray, memoryview)):
        return (kind, "bytes", bytes(given))
    if isinstance(given, (str, os.PathLike)):
        return (kind, "path", os.fsencode(given))
    if hasattr(given, "read") and not hasattr(given, "convert"):
        return (kind, "bytes", content_of(given, what))
    if kind == "audio":
        return (kind, "array", samples_of(given, what))
    array = np.asarray(given.convert("RGB") if not isinstance(given, np.ndarray) and hasattr(given, "convert") else given)
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3:
        raise TypeError(f"{what}: a file, a PIL image, or pixels uint8 [height, width, 3], not {_array(given, array)}")
    return (kind, "array", np.ascontiguousarray(array))


def content_of(file: Any, what: str) -> bytes:
    content = file.read()
    if not isinstance(content, (bytes, bytearray, memoryview)):
        raise TypeError(f"{what}: the file gives {type(content).__name__}, not bytes; open it with mode 'rb'")
    return bytes(content)


def samples_of(audio: Any, what: str = "the samples") -> NDArray[np.float32]:
    """Mono samples at 16 kHz; a warning where they are louder than 1, an error where they are no such samples."""
    if isinstance(audio, Mapping) and "sampling_rate" in audio:  # of the packages datasets and transformers
        audio = (next((audio[name] for name in ("array", "raw") if name in audio), None), audio["sampling_rate"])
    if isinstance(audio, tuple) and len(audio) == 2 and getattr(audio[0], "ndim", None) == 1 and not hasattr(audio[1], "shape"):
        audio, rate = audio
        if rate != RATE:
            raise TypeError(f"{what}: samples are at {RATE} Hz, not at {rate}: convert them, or give the file")
    array = np.asarray(audio)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.floating):
        hint = "; write: samples.astype('float32') / 32768" if array.dtype == np.int16 else ""
        raise TypeError(f"{what}: a file, or samples float [samples], mono at 16 kHz, not {_array(audio, array)}{hint}")
    return np.ascontiguousarray(array, dtype=np.float32)


# Samples of a file that was decoded and converted are a little beyond 1 at times; integers that were turned into floats
# are beyond this as soon as anybody speaks.
_MOST = 16.0


def loudness_note(samples: NDArray[np.float32], what: str = "the samples") -> str:
    """What is to be said of samples beyond 1; "": nothing. SituError: they are integers that became floats."""
    peak = float(np.max(np.abs(samples), initial=0))  # NaN: the model refuses it
    if peak > _MOST and np.isfinite(peak):
        raise SituError(f"{what}: one is {peak:g}, and floats are samples from -1 to 1; divide those of int16 by 32768")
    return f"{what}: the loudest is {peak:g}, and samples are from -1 to 1" if peak > 1 else ""


def checked(part: tuple[Any, ...], what: str) -> tuple[Any, ...]:
    """A medium whose samples, if it is of samples, are not too loud."""
    if part[:2] == ("audio", "array") and (note := loudness_note(part[2], what)):
        warnings.warn(note, stacklevel=2)
    return part


def _array(given: object, array: NDArray[Any]) -> str:
    return f"{array.dtype}{list(array.shape)}" if array.dtype != object else f"{type(given).__name__} ({shown(given)})"


def bytes_of_url(url: Any, kind: str, what: str) -> bytes | str:
    """The bytes of a data: URL, or the path of a file: URL. TypeError: another one, since nothing is loaded from elsewhere."""
    url = text_of(url, what)
    scheme, _, rest = url.partition(":")
    if scheme.lower() == "file" and rest:
        return urllib.parse.unquote(urllib.parse.urlparse(url).path)
    if scheme.lower() != "data":
        raise TypeError(f"{what}: the URL {shown(url)} is not loaded; write a data: or a file: URL, or {{'type': {kind!r}, {kind!r}: its bytes or path}}")
    head, comma, data = rest.partition(",")
    if not comma:
        raise SituError(f"{what}: a data: URL has a comma in front of its data")
    content = urllib.parse.unquote_to_bytes(data.partition("#")[0])
    return _base64(content, what) if head.rpartition(";")[2].strip().lower() == "base64" else content


def _base64(content: bytes, what: str) -> bytes:
    """With or without padding, in the alphabet of URLs too."""
    content = bytes(c for c in content.translate(bytes.maketrans(b"-_", b"+/")) if c not in b" \t\r\n\f").rstrip(b"=")
    try:
        return base64.b64decode(content + b"=" * (-len(content) % 4), validate=True)
    except binascii.Error as error:
        raise SituError(f"{what}: the base64 data is damaged: {error}") from None


# Types of parts, as OpenAI's API, vLLM and transformers write them: kind, and the keys that hold the medium.
_PARTS = {
    "text": ("text", ("text",)), "input_text": ("text", ("text",)), "output_text": ("text", ("text",)),
    "image": ("image", ("image", "url", "path", "base64")), "image_url": ("image", ("image_url",)),
    "input_image": ("image", ("image_url",)), "image_pil": ("image", ("image_pil",)),
    "audio": ("audio", ("audio", "url", "path", "base64")), "audio_url": ("audio", ("audio_url",)),
    "input_audio": ("audio", ("input_audio",)),
}  # fmt: skip
_HARMLESS = ("type", "detail", "uuid", "annotations", "logprobs", "mime_type")


def part_of(part: Any, what: str) -> tuple[Any, ...]:
    """A part of a message as the module has it. `part`: a mapping."""
    kind = part.get("type")
    if kind not in _PARTS:
        raise TypeError(f"{what}: a part of a message has no type {shown(kind)}; there are text, image and audio, image_url, audio_url and input_audio")
    of, keys = _PARTS[kind]
    given = {key: value for key, value in part.items() if value is not None and key not in _HARMLESS}
    key = next((key for key in keys if key in given), None)
    if key is None or len(given) != 1:
        odd = sorted(set(given) - {key})
        raise TypeError(f"{what}: a part is {{'type': {kind!r}, {keys[0]!r}: ...}}" + (f"; there is no {odd[0]!r}" if odd else ""))
    value = given[key]
    if of == "text":
        return ("text", text_of(value, f"the text of {what}"))
    if key == "input_audio":
        value = value.get("data") if isinstance(value, Mapping) else value
        key = "base64"
    if key in ("image_url", "audio_url"):
        value = value.get("url") if isinstance(value, Mapping) else value
        key = "url"
    if key == "base64" and isinstance(value, str):
        value = bytes_of_url(value, of, what) if value.startswith("data:") else _base64(text_of(value, what).encode(), what)
    elif key == "url" and isinstance(value, str):
        value = bytes_of_url(value, of, f"{what} ({kind})")
    return checked(medium(of, value, what), what)
