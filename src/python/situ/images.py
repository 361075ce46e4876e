"""Images of a prompt."""

import os
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray


class PillowImage(Protocol):
    """What is used of PIL.Image.Image; Pillow itself is not needed."""

    def convert(self, mode: str) -> Any: ...


Image: TypeAlias = str | os.PathLike[str] | PillowImage | NDArray[np.uint8]
"""A file (png, jpeg, webp, gif), a PIL image, or pixels [height, width, 3] of uint8, red first."""


def sources_of(images: Sequence[Image]) -> list[bytes | NDArray[np.uint8]]:
    """Names of files as bytes, and pixels in C order. A PIL image is taken as it is shown: EXIF's orientation is not applied
    to it, and alpha is dropped, as Pillow's convert does."""
    if isinstance(images, (str, bytes, os.PathLike, np.ndarray)) or hasattr(images, "convert"):
        raise TypeError("images are a list: one image is [image]")
    return [_source(image, number) for number, image in enumerate(images)]


def _source(image: Image, number: int) -> bytes | NDArray[np.uint8]:
    if isinstance(image, (str, os.PathLike)):
        return os.fsencode(image)
    pixels = np.asarray(image.convert("RGB") if not isinstance(image, np.ndarray) and hasattr(image, "convert") else image)
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3:
        raise TypeError(f"image {number}: a file, a PIL image, or pixels uint8 [height, width, 3], not {pixels.dtype}{list(pixels.shape)}")
    return np.ascontiguousarray(pixels)
