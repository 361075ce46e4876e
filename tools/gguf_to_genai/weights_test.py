"""Conversions of weights against gguf's own dequantisation."""

import unittest

import gguf
import numpy as np

from gguf_to_genai.linear import q4_0_as_linear, q8_0_as_linear
from gguf_to_genai.q4_1 import q4_1_as_linear, quantized_to_4_bits
from gguf_to_genai.weights import half_split_heads

Q4_0 = gguf.GGMLQuantizationType.Q4_0
Q4_1 = gguf.GGMLQuantizationType.Q4_1
Q8_0 = gguf.GGMLQuantizationType.Q8_0


def values(linear):
    """W [N, K] by the formula of MatMulNBits."""
    q = linear.q
    zero_points = np.float32(2 ** (linear.bits - 1))
    if linear.bits == 4:
        q = np.stack([q & 15, q >> 4], axis=-1).reshape(*q.shape[:2], -1)
    if linear.zero_points is not None:
        zero_points = linear.zero_points
        if zero_points.dtype == np.uint8:
            pairs = np.stack([zero_points & 15, zero_points >> 4], axis=-1)
            zero_points = pairs.reshape(linear.scales.shape)
        zero_points = zero_points[..., None].astype(np.float32)
    w = (q.astype(np.float32) - zero_points) * linear.scales[..., None]
    return w.reshape(len(q), -1)


def relative_error(got, expected):
    return np.sqrt(np.mean((got - expected) ** 2) / np.mean(expected**2))


class WeightsTest(unittest.TestCase):
    def setUp(self):
        self.weights = np.random.default_rng(1).normal(size=(6, 128)).astype(np.float32)

    def test_q8_0_is_taken_over_exactly(self):
        raw = gguf.quantize(self.weights, Q8_0)
        np.testing.assert_array_equal(values(q8_0_as_linear(raw)), gguf.dequantize(raw, Q8_0))

    def test_q4_0_is_taken_over_exactly(self):
        raw = gguf.quantize(self.weights, Q4_0)
        np.testing.assert_array_equal(values(q4_0_as_linear(raw)), gguf.dequantize(raw, Q4_0))

    def test_q4_1_with_float_zero_points_is_exact_but_for_rounding(self):
        raw = gguf.quantize(self.weights, Q4_1)
        got = values(q4_1_as_linear(raw))
        np.testing.assert_allclose(got, gguf.dequantize(raw, Q4_1), rtol=0, atol=1e-6)

    def test_packed_zero_points_come_close(self):
        expected = gguf.dequantize(gguf.quantize(self.weights, Q4_1), Q4_1)
        self.assertLess(relative_error(values(quantized_to_4_bits(expected)), expected), 0.08)

    def test_blocks_at_the_edges_are_exact(self):
        grid = np.arange(32, dtype=np.float32) % 16
        rows = [np.zeros(32), np.full(32, 0.25), np.full(32, -0.25), grid, -grid, grid - 7]
        weights = np.float32([np.concatenate([row, row]) for row in rows])
        np.testing.assert_allclose(values(quantized_to_4_bits(weights)), weights, rtol=1e-6)

    def test_half_split_heads_undoes_the_order_of_gguf(self):
        heads, head_size = 3, 8
        original = np.arange(heads * head_size * 2).reshape(heads * head_size, 2)
        # As convert_hf_to_gguf.py of llama.cpp permutes.
        pairs = original.reshape(heads, 2, head_size // 2, 2).swapaxes(1, 2)
        permuted = pairs.reshape(original.shape)
        np.testing.assert_array_equal(half_split_heads(permuted, heads), original)


if __name__ == "__main__":
    unittest.main()
