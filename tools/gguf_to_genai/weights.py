"""Takes the weights out of the GGUF file."""

import os
from concurrent.futures import ThreadPoolExecutor

import gguf
import numpy as np

from .config import UnsupportedGguf
from .linear import q4_0_as_linear, q8_0_as_linear
from .q4_1 import q4_1_as_linear, quantized_to_4_bits


def embedding(tensors):
    """The table of the embedding, which is also the head, in the 8 bits that it is stored in.

    In 4 bits it would save 14 of 112 MB of reading per token and cost 0.08 nats (see q4_1.py).
    """
    tensor = tensors["token_embd.weight"]
    if tensor.tensor_type == gguf.GGMLQuantizationType.Q4_0:
        return q4_0_as_linear(tensor.data)
    return q8_0_as_linear(raw_rows(tensor, gguf.GGMLQuantizationType.Q8_0))


def projections(config, tensors, zero_points):
    """Yields the 4 bit Linears layer by layer in the order of use: qkv, o, gate, up, down.

    All are Q4_1, or all are Q4_0, which has no zero points.
    """
    q4_0, q4_1 = gguf.GGMLQuantizationType.Q4_0, gguf.GGMLQuantizationType.Q4_1
    kind = q4_0 if tensors["blk.0.attn_q.weight"].tensor_type == q4_0 else q4_1
    heads = {"attn_q": config.heads, "attn_k": config.kv_heads}
    parts = (
        ["attn_q", "attn_k", "attn_v"],
        ["attn_output"],
        ["ffn_gate"],
        ["ffn_up"],
        ["ffn_down"],
    )

    def rows(layer, name):
        raw = raw_rows(tensors[f"blk.{layer}.{name}.weight"], kind)
        return half_split_heads(raw, heads[name]) if name in heads else raw

    def linear(job):
        layer, names = job
        raw = np.concatenate([rows(layer, name) for name in names])
        if kind == q4_0:
            return q4_0_as_linear(raw)
        if zero_points == "float":
            return q4_1_as_linear(raw)
        return quantized_to_4_bits(gguf.dequantize(raw, q4_1))

    jobs = [(layer, names) for layer in range(config.layers) for names in parts]
    cores = len(os.sched_getaffinity(0))
    with ThreadPoolExecutor(cores) as pool:  # numpy releases the interpreter lock
        yield from pool.map(linear, jobs)


def raw_rows(tensor, kind):
    """The blocks of `tensor`, uint8 [N, bytes of a row]."""
    if tensor.tensor_type != kind:
        raise UnsupportedGguf(f"{tensor.name} is {tensor.tensor_type.name}, expected {kind.name}")
    return tensor.data


def half_split_heads(rows, heads):
    """Undoes the order that GGUF has for the rows of W_q and W_k.

    There rows 2 i and 2 i + 1 of a head are rotated together; in Hugging Face's order, and for
    GroupQueryAttention with rotary_interleaved = 0, rows i and i + head size / 2.
    """
    count, width = rows.shape
    pairs = rows.reshape(heads, count // heads // 2, 2, width)
    return pairs.swapaxes(1, 2).reshape(count, width)
