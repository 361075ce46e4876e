"""What the metadata of the GGUF file says about the model."""

from typing import NamedTuple


class UnsupportedGguf(Exception):
    """The file is not of the kind that this converter knows."""


class Config(NamedTuple):
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    context: int
    vocabulary: int
    rope_theta: float
    epsilon: float
    bos: int
    eos: int
    pad: int
    unk: int
