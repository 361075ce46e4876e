"""GGUF's Q4_1 as 4 bit weights of MatMulNBits, without loss or with packed zero points.

Q4_1 says w = d * q + m with any m, MatMulNBits w = scale * (q - zero point), so a Q4_1 weight needs
a zero point that is no integer. Measured on 2295 tokens of prose, technical text and chat with ONNX
Runtime, fp32 activations (error: rms(W' - W) / rms(W) of the MLP's weights against the dequantised
ones; nll: nats per token; KL to the first row; bytes of a block of 32 weights):

    projections                                      error   nll     KL      bytes
    zero points "float", scale = d                   0       3.769   0       24
    none, scale = -(largest w) / 8                   0.086   3.972   0.295   20
    packed, scale = d, zero point = round(-m / d)    0.082   3.970   0.290   20.5
    "packed", scale and zero point searched          0.069   3.894   0.217   20.5

"float" is the default: it is the published model without loss, and Situ's kernels take both kinds
at the same speed (128 tokens in 4.4 s of processor time with "float", 4.6 s with "packed").
"packed" is for runtimes with a fast kernel for integers only, as ONNX Runtime: "float" works there
too, but expands the weights to fp32 at every step (7.5 tokens/s in place of 100 on 2 cores).
"""

import numpy as np

from .config import UnsupportedGguf
from .linear import BLOCK, Linear

# How the steps that are tried relate to (largest - smallest) / 15. Other sets of 7 to 33 factors
# within 0.8..1.2 gave nll 3.88..3.90, so these nine are enough.
STEP_FACTORS = (0.92, 0.94, 0.96, 0.98, 1.0, 1.02, 1.04, 1.06, 1.08)


def q4_1_as_linear(raw):
    """The Linear that is equal to `raw` uint8 [N, bytes of a row].

    A block is d and m in fp16, then 16 bytes: q[i] is the low half of byte i, q[i + 16] the high.
    """
    blocks = raw.reshape(len(raw), -1, 4 + BLOCK // 2)
    header = np.ascontiguousarray(blocks[..., :4]).view(np.float16).astype(np.float32)
    d, m = header[..., 0], header[..., 1]
    if not d.all():
        raise UnsupportedGguf("a Q4_1 block has d = 0")
    q = np.concatenate([blocks[..., 4:] & 15, blocks[..., 4:] >> 4], axis=-1)
    return Linear(bits=4, q=packed_nibbles(q), scales=d, zero_points=-m / d)


def quantized_to_4_bits(weights):
    """The Linear next to `weights` [N, K] in least squares, among 18 candidates for each block.

    For given integers v = q - zero point the best scale is <v, w> / <v, v>, and the squared error
    that it leaves is <w, w> - <v, w>^2 / <v, v>. So a candidate is judged by the second term, and
    the winner gets its best scale.
    """
    rows = len(weights)
    w = weights.reshape(-1, BLOCK)
    low = np.minimum(w.min(axis=1), 0)
    step = (np.maximum(w.max(axis=1), 0) - low) / 15
    step[step == 0] = 1  # a block of zeros
    best_gain = np.full(len(w), -1, np.float32)
    scale = np.empty(len(w), np.float32)
    zero_point = np.empty(len(w), np.float32)
    q = np.empty(w.shape, np.float32)
    for factor in STEP_FACTORS:
        inverse = 1 / (step * factor)
        nearest = np.rint(w * inverse[:, None])
        for rounded in (np.floor, np.ceil):
            z = np.clip(rounded(-low * inverse), 0, 15)
            v = np.clip(nearest, -z[:, None], 15 - z[:, None])
            vw = np.einsum("bi,bi->b", v, w)
            vv = np.einsum("bi,bi->b", v, v)
            vv = np.maximum(vv, 1)  # it is 0 only if all v are 0, and then <v, w> is 0 too
            gain = vw * vw / vv
            better = gain > best_gain
            best_gain[better] = gain[better]
            scale[better] = (vw / vv)[better]
            zero_point[better] = z[better]
            q[better] = v[better] + z[better, None]
    return Linear(
        bits=4,
        q=packed_nibbles(q).reshape(rows, -1, BLOCK // 2),
        scales=scale.reshape(rows, -1),
        zero_points=packed_nibbles(zero_point.reshape(rows, -1)),
    )


def packed_nibbles(values):
    """[..., n] of 0..15 -> uint8 [..., n / 2], the first of a pair in the low half of the byte."""
    values = values.astype(np.uint8)
    return values[..., 0::2] | values[..., 1::2] << 4
