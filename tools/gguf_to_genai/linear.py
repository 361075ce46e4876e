"""A weight as MatMulNBits takes it, and GGUF's Q8_0 and Q4_0, which are such already. N rows, K columns."""

from typing import NamedTuple

import numpy as np

BLOCK = 32  # weights of a row that share one scale, in Q4_1, in Q8_0 and in what is made of them


class Linear(NamedTuple):
    """W [N, K] = (q - zero point) * scale as MatMulNBits stores it: blocks along a row.

    q            uint8 [N, K / BLOCK, BLOCK * bits / 8]; of two 4 bit weights the first is low
    scales       float32 [N, K / BLOCK]
    zero_points  packed: uint8 [N, K / BLOCK / 2], like q; or float32 [N, K / BLOCK];
                 None: all are the middle, 2^(bits - 1)
    """

    bits: int
    q: np.ndarray
    scales: np.ndarray
    zero_points: np.ndarray | None


def q8_0_as_linear(raw):
    """w = d * q with q in int8 is the 8 bit Linear with zero point 128: nothing is lost.

    `raw` uint8 [N, bytes of a row]; a block is d in fp16 and 32 q.
    """
    blocks = raw.reshape(len(raw), -1, 2 + BLOCK)
    scales = np.ascontiguousarray(blocks[..., :2]).view(np.float16)[..., 0].astype(np.float32)
    q = blocks[..., 2:] ^ 0x80  # int8 + 128
    return Linear(bits=8, q=q, scales=scales, zero_points=None)


def q4_0_as_linear(raw):
    """w = d * (q - 8) is the 4 bit Linear without zero points: nothing is lost.

    `raw` uint8 [N, bytes of a row]; a block is d in fp16 and 16 bytes: q[i] is the low half of byte i, q[i + 16] the
    high.
    """
    blocks = raw.reshape(len(raw), -1, 2 + BLOCK // 2)
    scales = np.ascontiguousarray(blocks[..., :2]).view(np.float16)[..., 0].astype(np.float32)
    low, high = blocks[..., 2:] & 15, blocks[..., 2:] >> 4
    q = np.concatenate([low[..., 0::2] | low[..., 1::2] << 4, high[..., 0::2] | high[..., 1::2] << 4], axis=-1)
    return Linear(bits=4, q=q, scales=scales, zero_points=None)
