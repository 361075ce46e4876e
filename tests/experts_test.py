"""Mixtures of experts: com.microsoft.MoE and QMoE, against their definition in NumPy, and the same in plain operators.

    python tests/experts_test.py --situ build/situ [unittest options]

Needs numpy and onnx (`make python`).
"""
import json
import math
import resource
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

import large_experts
import quantised_test
import tiny_exports
import tiny_models
from cli_case import CliTest, Run, main
from unfused_experts import LOOPS
from tiny_models import LAYERS, WIDTH, Spec

DECODER = Spec("llama")
COUNT = 8
PROMPT = [int(t) for t in np.random.default_rng(7).integers(0, tiny_models.VOCABULARY, 11)]
TOP = 3          # logprobs that are compared
NEAR = 2e-4      # of logprobs
MARGIN = 1e-2    # of two logprobs, or of two scores of a router, that no rounding swaps


@dataclass(frozen=True)
class Mixture:
    name: str
    experts: int = 5
    k: int = 2
    inner: int = 64
    activation: str = "silu"
    fusion: int = 0
    third: bool = False      # weights of fc3
    bias: bool = False
    attributes: tuple = ()   # (name, value)
    bits: int = 0
    block: int = 0
    zeros: bool = False
    half_scales: bool = False
    router_weights: bool = False
    flat: bool = False       # x is [tokens, hidden]
    old_dims: bool = False   # the last two dims of weights have each other's names
    style: str = ""          # plain operators: a loop of unfused_experts.py, or "all" that compute every row
    stored: str = ""         # of plain operators: how weights stand in the file
    one_by_one: str = ""  # of plain operators: the second choice is the best of what the first one left, "struck out" of the scores or not

    def attribute(self, name, default):
        return dict(self.attributes).get(name, default)


MIXTURES = [
    Mixture("relu", activation="relu"),
    Mixture("gelu, bias", activation="gelu", bias=True),
    Mixture("silu, fc3, normalised", third=True, attributes=(("normalize_routing_weights", 1),)),
    Mixture("identity, k 1, flat, inner 48", activation="identity", k=1, flat=True, inner=48),
    Mixture("swiglu 0", activation="swiglu", third=True, bias=True, attributes=(("swiglu_limit", 1.5),)),
    Mixture("swiglu 1", activation="swiglu", fusion=1, bias=True, attributes=(("activation_alpha", 1.702), ("activation_beta", 1.0), ("swiglu_limit", 1.0), ("normalize_routing_weights", 1))),
    Mixture("swiglu 2, old dims", activation="swiglu", fusion=2, old_dims=True, attributes=(("activation_beta", 0.5),)),
    Mixture("sparse mixer", third=True, attributes=(("use_sparse_mixer", 1),)),
    Mixture("4 bits by block", bits=4, block=16, activation="swiglu", fusion=1, bias=True, attributes=(("activation_alpha", 1.702), ("activation_beta", 1.0), ("swiglu_limit", 7.0), ("normalize_routing_weights", 1))),
    Mixture("4 bits by block, zeros, fc3", bits=4, block=32, zeros=True, third=True, half_scales=True),
    Mixture("4 bits by column", bits=4, third=True, attributes=(("normalize_routing_weights", 1),)),
    Mixture("4 bits by column, zeros, inner 48", bits=4, zeros=True, inner=48, activation="gelu"),
    Mixture("8 bits by column, zeros", bits=8, zeros=True, activation="relu"),
    Mixture("8 bits by block, router weights", bits=8, block=32, router_weights=True, third=True, attributes=(("normalize_routing_weights", 1),)),
    Mixture("2 bits by block", bits=2, block=16, third=True),
]


UNFUSED = [
    Mixture("loop, scatter and add", style="scatter and add", third=True, attributes=(("normalize_routing_weights", 1),)),
    Mixture("loop, index_add, inner 48", style="index_add", third=True, bias=True, inner=48),
    Mixture("loop, scatter nd, Gemm", style="scatter nd", stored="gemm", third=True, bias=True),
    Mixture("loop, by token, k 1", style="by token", k=1, activation="relu", bias=True, stored="transposed"),
    Mixture("loop, 4 bits", style="index_add", third=True, bits=4, block=16, zeros=True, bias=True),
    Mixture("loop, nf4", style="index_add", third=True, bits=4, block=16, stored="nf4", bias=True),
    Mixture("loop, 8 bits", style="scatter nd", third=True, bits=8, block=32, experts=3),
    Mixture("loop, one choice after the other", style="scatter and add", third=True, one_by_one="struck out"),
    Mixture("all", style="all", activation="swiglu", fusion=1, bias=True, attributes=(("activation_alpha", 1.702), ("activation_beta", 1.0), ("swiglu_limit", 1.0), ("normalize_routing_weights", 1))),
    Mixture("gathered", style="gathered", third=True, bias=True, attributes=(("normalize_routing_weights", 1),)),
    Mixture("gathered, transposed", style="gathered", stored="transposed", third=True, k=3),
    Mixture("sorted", style="sorted", third=True, bias=True, attributes=(("normalize_routing_weights", 1),)),
    Mixture("sorted, k 1", style="sorted", k=1, activation="relu", experts=3),
    Mixture("all, two products, inner 48", style="all", third=True, inner=48, attributes=(("normalize_routing_weights", 1),)),
]


def quantise(rng, spec, experts, rows, columns):
    """Digits as the file has them, scales, zero points or None, and the matrices [E, N, K] that they stand for."""
    block = spec.block or columns
    blocks = columns // block
    q = rng.integers(0, 1 << spec.bits, (experts, rows, blocks, block))
    scales = (rng.uniform(0.5, 1.0, (experts, rows, blocks)) * 3 / ((1 << spec.bits) * math.sqrt(columns))).astype(np.float16).astype(np.float32)
    middle = 1 << (spec.bits - 1)
    points = rng.integers(middle - 1, middle + 2, (experts, rows, blocks)) if spec.zeros else np.full((experts, rows, blocks), middle)
    if spec.stored == "nf4":
        scales *= middle
    numbers = quantised_test.NF4[q] if spec.stored == "nf4" else q - points[..., None]
    values = (numbers * scales[..., None]).reshape(experts, rows, columns).astype(np.float32)
    packed = pack(q.reshape(experts, rows, columns), spec.bits)
    zeros = pack(points if spec.block else points[..., 0], spec.bits) if spec.zeros else None
    scales = scales if spec.block else scales[..., 0]
    return packed, scales.astype(np.float16) if spec.half_scales else scales, zeros, values


def pack(digits, bits):
    """Along the last axis, low bits first, rows filled up to whole bytes."""
    per = 8 // bits
    digits = np.concatenate([digits, np.zeros((*digits.shape[:-1], -digits.shape[-1] % per), digits.dtype)], -1)
    digits = digits.reshape(*digits.shape[:-1], -1, per) << (np.arange(per) * bits)
    return digits.sum(-1).astype(np.uint8)


def make_experts(spec, seed):
    rng = np.random.default_rng(seed)
    w = {}
    fused = 2 if spec.fusion else 1
    for i in range(LAYERS):
        w[i, "router"] = rng.standard_normal((WIDTH, spec.experts)).astype(np.float32) * 0.5
        w[i, "second"] = rng.standard_normal((WIDTH, spec.experts)).astype(np.float32) * 0.5
        for m, rows, columns in ((1, fused * spec.inner, WIDTH), (2, WIDTH, spec.inner), (3, spec.inner, WIDTH)):
            if spec.bits:
                *w[i, m, "bits"], w[i, m] = quantise(rng, spec, spec.experts, rows, columns)
            else:
                w[i, m] = (rng.standard_normal((spec.experts, rows, columns)) * 1.5 / math.sqrt(columns)).astype(np.float32)
            w[i, m, "bias"] = rng.standard_normal((spec.experts, rows)).astype(np.float32) * 0.3
    return w


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def route(spec, scores, second):
    """Experts and weights [T, k], and how near the choice of an expert was to another one."""
    order = np.argsort(-scores, -1)
    lead = np.min(np.take_along_axis(scores, order[:, :spec.k], -1)[:, -1] - np.take_along_axis(scores, order[:, spec.k:spec.k + 1], -1)[:, 0])
    index = order[:, :spec.k]
    if spec.attribute("use_sparse_mixer", 0):
        weights, left = [], scores
        for j in range(2):
            best = np.take_along_axis(scores, index[:, j:j + 1], -1)
            far = (best - scores) / np.maximum(np.abs(scores), best) > 0.02
            weights.append(np.take_along_axis(softmax(np.where(far, -np.inf, left)), index[:, j:j + 1], -1))
            left = np.array(scores)
            np.put_along_axis(left, index[:, :1], -np.inf, -1)
        return index, np.concatenate(weights, -1), lead
    weights = np.take_along_axis(second if spec.router_weights else softmax(scores), index, -1)
    if spec.attribute("normalize_routing_weights", 0):
        weights = weights / weights.sum(-1, keepdims=True)
    return index, weights, lead


def activate(spec, g, l):
    limit = spec.attribute("swiglu_limit", np.inf)
    if spec.activation == "swiglu":
        g, l = np.minimum(g, limit), np.clip(l, -limit, limit)
        return g / (1 + np.exp(-spec.attribute("activation_alpha", 1.0) * g)) * (l + spec.attribute("activation_beta", 0.0))
    y = {"relu": lambda x: np.maximum(x, 0), "identity": lambda x: x, "silu": lambda x: x / (1 + np.exp(-x)),
         "gelu": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))}[spec.activation](g)
    return y * l if l is not None else y


def expert(spec, w, i, e, x):
    def product(x, m):
        y = x @ w[i, m][e].T.astype(np.float64)
        return y + w[i, m, "bias"][e] if spec.bias else y
    g, l = product(x, 1), product(x, 3) if spec.third else None
    if spec.fusion == 1:
        g, l = g[0::2], g[1::2]
    elif spec.fusion == 2:
        g, l = np.split(g, 2)
    return product(activate(spec, g, l), 2)


def mixture(spec, w, leads):
    """mlp(h, layer) for tiny_models.forward_all."""
    def mlp(h, i):
        index, weights, lead = route(spec, h @ w[i, "router"], 1 / (1 + np.exp(-h @ w[i, "second"])))
        leads.append(lead)
        return np.array([sum(p * expert(spec, w, i, e, x) for e, p in zip(es, ps)) for x, es, ps in zip(h, index, weights)])
    return mlp


class Export(tiny_exports.Optimum):
    def __init__(self, w, spec, experts):
        super().__init__(DECODER, w)
        self.mixture, self.experts, self.rounded = spec, experts, {}

    def matrix(self, i, m):
        s, name = self.mixture, f"{i}.fc{m}"
        if not s.bits:
            a = self.experts[i, m]
            return self.weight(name, a.reshape(a.shape[0], a.shape[2], a.shape[1]) if s.old_dims else a), "", ""
        digits, scales, zeros = self.experts[i, m, "bits"]
        return self.weight(name, digits), self.weight(name + ".scales", scales), self.weight(name + ".zeros", zeros) if zeros is not None else ""

    def mlp(self, h, i):
        s = self.mixture
        rows = self.op("Reshape", h, self.constant([-1, WIDTH]))
        scores = self.op("MatMul", rows, self.weight(f"{i}.router", self.experts[i, "router"]))
        if s.style:
            return self.op("Reshape", self.unfused(rows, scores, i), self.op("Shape", h))
        bias = [self.weight(f"{i}.fc{m}.bias", self.experts[i, m, "bias"]) if s.bias else "" for m in (1, 2, 3)]
        matrices = [self.matrix(i, m) if m < 3 or s.third else ("", "", "") for m in (1, 2, 3)]
        if not s.third:
            bias[2] = ""
        if s.bits:
            inputs = [v for (w, scales, _), b in zip(matrices, bias) for v in (w, scales, b)] + [zeros for _, _, zeros in matrices]
            if s.router_weights:
                inputs.append(self.op("Sigmoid", self.op("MatMul", rows, self.weight(f"{i}.second", self.experts[i, "second"]))))
        else:
            inputs = [v for (w, _, _), b in zip(matrices, bias) for v in (w, b)]
        while inputs[-1] == "":
            inputs.pop()
        attributes = {"k": s.k, "activation_type": s.activation, **dict(s.attributes)}
        if s.fusion:
            attributes["swiglu_fusion"] = s.fusion
        if s.bits:
            attributes.update({"expert_weight_bits": s.bits}, **({"block_size": s.block} if s.block else {}))
        y = self.op("QMoE" if s.bits else "MoE", rows if s.flat else h, scores, *inputs, domain="com.microsoft", **attributes)
        return self.op("Reshape", y, self.op("Shape", h)) if s.flat else y

    # -- plain operators

    def unfused(self, rows, scores, i):
        s = self.mixture
        if s.one_by_one:
            best = self.op("ArgMax", scores, axis=-1, keepdims=1)
            struck = -np.inf if s.one_by_one == "struck out" else 0
            left = self.op("ScatterElements", scores, best, self.op("Expand", self.f32(struck), self.op("Shape", best)), axis=-1)
            index = self.op("Concat", best, self.op("ArgMax", left, axis=-1, keepdims=1), axis=-1)
            weights = self.op("GatherElements", self.op("Softmax", scores, axis=-1), index, axis=-1)
        else:
            weights, index = self.op("TopK", self.op("Softmax", scores, axis=-1), self.constant([s.k]), outputs=2, axis=-1)
        if s.attribute("normalize_routing_weights", 0):
            weights = self.op("Div", weights, self.op("ReduceSum", weights, self.constant([-1]), keepdims=1))
        if s.style == "gathered":
            return self.gathered(rows, weights, index, i)
        if s.style == "sorted":
            return self.sorted_rows(rows, weights, index, i)
        if s.style == "all":
            return self.all_experts(rows, scores, weights, index, i)
        return LOOPS[s.style](self, rows, weights, index, s.k, s.experts, lambda g, e, x: self.expert(x, i, e))

    def activated(self, g, l):
        s = self.mixture
        if s.activation == "relu":
            return self.op("Relu", g)
        limit, alpha = s.attribute("swiglu_limit", None), s.attribute("activation_alpha", 1.0)
        if limit:
            g, l = self.op("Clip", g, "", self.f32(limit)), self.op("Clip", l, self.f32(-limit), self.f32(limit))
        y = self.op("Mul", g, self.op("Sigmoid", g if alpha == 1 else self.op("Mul", g, self.f32(alpha))))
        if s.attribute("activation_beta", 0.0):
            l = self.op("Add", l, self.f32(s.attribute("activation_beta", 0.0)))
        return self.op("Mul", y, l) if l else y

    def expert(self, x, i, e):
        def product(x, m):
            s, name, w = self.mixture, f"{i}.fc{m}.{e}", self.experts[i, m][e]
            bias = self.weight(name + ".bias", self.experts[i, m, "bias"][e]) if s.bias else ""
            if s.bits:
                digits, scales, zeros = self.experts[i, m, "bits"]
                n, k = w.shape
                if s.stored == "nf4":
                    high_first = digits[e].reshape(-1) << 4 | digits[e].reshape(-1) >> 4
                    y = self.op("MatMulBnb4", x, self.weight(name, high_first), self.weight(name + ".scales", scales[e].reshape(-1)), domain="com.microsoft", K=k, N=n, block_size=s.block, quant_type=1)
                    return self.op("Add", y, bias) if bias else y
                inputs = [self.weight(name, digits[e].reshape(n, k // s.block, -1)), self.weight(name + ".scales", scales[e].reshape(-1)), self.weight(name + ".zeros", zeros[e].reshape(-1)) if s.zeros else ""]
                return self.op("MatMulNBits", x, *inputs, *(["", bias] if bias else []), domain="com.microsoft", K=k, N=n, bits=s.bits, block_size=s.block)
            if s.stored == "table":
                return self.table_product(x, name, w)
            if s.stored.startswith("bytes") or s.stored == "static":
                y = self.bytes_product(x, name, w.T) if s.stored != "static" else self.static_product(x, name, w.T)
                return self.op("Add", y, bias) if bias else y
            if s.stored == "gemm":
                return self.op("Gemm", x, self.weight(name, w), *([bias] if bias else []), transB=1)
            matrix = self.op("Transpose", self.weight(name, w), perm=[1, 0]) if s.stored == "transposed" else self.weight(name, w.T)
            y = self.op("MatMul", x, matrix)
            return self.op("Add", bias, y) if bias else y
        g = product(x, 1)
        return product(self.activated(g, product(x, 3) if self.mixture.third else None), 2)

    def bytes_product(self, x, name, w):
        """As dynamic quantisation writes it: uint8 or int8, one scale of all or one for each column, with zero points or not."""
        by_column, unsigned = "fc1" in name, "fc2" in name
        axes = 0 if by_column else None
        low, high = np.minimum(w.min(axes), 0), np.maximum(w.max(axes), 0)
        scale = ((high - low) / 255 if unsigned else np.maximum(high, -low) / 127).astype(np.float32)
        zero = np.round(-low / scale).astype(np.uint8) if unsigned else np.zeros(np.shape(scale), np.int8)
        digits = np.round(w / scale) + zero
        digits = digits.clip(0, 255).astype(np.uint8) if unsigned else digits.astype(np.int8)
        rounded = self.rounded.get(x) or self.rounded.setdefault(x, self.op("DynamicQuantizeLinear", x, outputs=3))
        q, s, z = rounded
        zeros = [] if "fc3" in name else [self.weight(name + ".zero", zero)]
        if self.mixture.stored == "bytes of floats":
            digits = digits.astype(np.float32)
        sums = self.op("MatMulInteger", q, self.weight(name, digits), z, *zeros)
        if self.mixture.stored == "bytes divided":
            sums = self.op("Div", sums, self.weight(name + ".divisor", np.array(7, np.int32)))
        y = self.op("Cast", sums, to=TensorProto.FLOAT)
        return self.op("Mul", y, self.op("Mul", s, self.weight(name + ".scale", scale)))

    def static_product(self, x, name, w):
        """As static quantisation writes it: rows rounded by constants, of every expert its own but for fc3, and weights of int8."""
        own = 0 if "fc3" in name else int(name[-1])
        by = self.f32(np.float32(2e-4 + 1e-5 * own)), self.constant(np.array(32768 - 900 * own), np.uint16)
        rows = self.op("DequantizeLinear", self.op("QuantizeLinear", x, *by), *by)
        scale = (np.abs(w).max(0) / 127).astype(np.float32)
        digits = self.weight(name, np.round(w / scale).astype(np.int8))
        return self.op("MatMul", rows, self.op("DequantizeLinear", digits, self.weight(name + ".scale", scale), axis=1))

    def table_product(self, x, name, w):
        """MatMulBnb4: digits of a table, blocks of all of W one after the other."""
        n, k = w.shape
        blocks = w.reshape(-1, 16)
        scales = np.abs(blocks).max(-1).astype(np.float32)
        q = np.random.default_rng(len(name)).integers(0, 16, w.size).astype(np.uint8)
        return self.op("MatMulBnb4", x, self.weight(name, q[0::2] << 4 | q[1::2]), self.weight(name + ".scales", scales), domain="com.microsoft", K=k, N=n, block_size=16, quant_type="fc2" not in name, transB=1)

    def gathered(self, rows, weights, index, i):
        """A matrix for each row, as a product of batches: [R, N, K] x [R, K, 1], or [R, 1, K] x [R, K, N]."""
        s, flat = self.mixture, self.op("Reshape", index, self.constant([-1]))
        def product(x, m):
            name = f"{i}.fc{m}"
            if s.stored == "transposed":
                w = self.op("Gather", self.weight(name, self.experts[i, m].transpose(0, 2, 1)), flat, axis=0)
                y = self.op("Squeeze", self.op("MatMul", self.op("Unsqueeze", x, self.constant([1])), w), self.constant([1]))
            else:
                w = self.op("Gather", self.weight(name, self.experts[i, m]), flat, axis=0)
                y = self.op("Squeeze", self.op("MatMul", w, self.op("Unsqueeze", x, self.constant([-1]))), self.constant([-1]))
            return self.op("Add", y, self.op("Gather", self.weight(name + ".bias", self.experts[i, m, "bias"]), flat, axis=0)) if s.bias else y
        tokens = self.extent(rows, 0)
        each = self.op("Unsqueeze", self.op("Range", self.constant(0), tokens, self.constant(1)), self.constant([1]))
        each = self.op("Reshape", self.op("Expand", each, self.shape(tokens, s.k)), self.constant([-1]))
        x = self.op("Gather", rows, each, axis=0)
        y = product(self.activated(product(x, 1), product(x, 3) if s.third else None), 2)
        y = self.op("Mul", y, self.op("Reshape", weights, self.constant([-1, 1])))
        return self.op("ReduceSum", self.op("Reshape", y, self.shape(tokens, s.k, WIDTH)), self.constant([1]), keepdims=0)

    def sorted_rows(self, rows, weights, index, i):
        """Rows of all choices in the order of their experts, parts of which are multiplied, and put back."""
        s, flat, first = self.mixture, self.op("Reshape", index, self.constant([-1])), self.constant([0])
        count = self.op("Shape", flat)
        ids, order = self.op("TopK", flat, count, outputs=2, axis=0, largest=0)
        counts = self.op("ScatterElements", self.constant([0] * s.experts, np.float32), ids, self.op("Expand", self.f32(1), count), axis=0, reduction="add")
        ends = self.op("Cast", self.op("CumSum", self.op("Cast", counts, to=TensorProto.INT32), self.constant(0)), to=TensorProto.INT64)
        ends = [self.op("Squeeze", e, first) for e in self.op("Split", ends, outputs=s.experts, num_outputs=s.experts)]
        def product(x, m):
            stack = self.op("Transpose", self.weight(f"{i}.fc{m}", self.experts[i, m]), perm=[0, 2, 1])
            parts = []
            for e, w in enumerate(self.op("Split", stack, outputs=s.experts, num_outputs=s.experts)):
                begin = ends[e - 1] if e else self.constant(0)
                part = self.op("Gather", x, self.op("Range", begin, ends[e], self.constant(1))) if m < 3 else self.op("Slice", x, self.op("Unsqueeze", begin, first), self.op("Unsqueeze", ends[e], first), first)
                parts.append(self.op("MatMul", part, self.op("Squeeze", w, first)))
            y = self.op("Concat", *parts, axis=0)
            return self.op("Add", y, self.op("Gather", self.weight(f"{i}.fc{m}.bias", self.experts[i, m, "bias"]), ids)) if s.bias else y
        x = self.op("GatherND", rows, self.op("Unsqueeze", self.op("Div", order, self.constant(s.k)), self.constant([-1])))
        y = product(self.activated(product(x, 1), product(x, 3) if s.third else None), 2)
        weights = self.op("Gather", self.op("Reshape", weights, self.constant([-1])), order)
        y = self.op("Mul", y, self.op("Unsqueeze", weights, self.constant([-1])))
        places = self.op("Range", self.constant(0), self.op("Squeeze", count, first), self.constant(1))
        back = self.op("ScatterND", self.op("Expand", self.constant(0), count), self.op("Unsqueeze", order, self.constant([-1])), places)
        y = self.op("Reshape", self.op("Gather", y, back), self.shape(self.extent(rows, 0), s.k, WIDTH))
        return self.op("ReduceSum", y, self.constant([1]), keepdims=0)

    def all_experts(self, rows, scores, weights, index, i):
        s = self.mixture
        every = self.op("ScatterElements", self.op("ConstantOfShape", self.op("Shape", scores), value=numpy_helper.from_array(np.zeros(1, np.float32))), index, weights, axis=1)
        x = self.op("Reshape", self.op("Tile", rows, self.constant([s.experts, 1])), self.constant([s.experts, -1, WIDTH]))
        def product(x, m):
            y = self.op("MatMul", x, self.weight(f"{i}.fc{m}", self.experts[i, m].transpose(0, 2, 1)))
            return self.op("Add", y, self.weight(f"{i}.fc{m}.bias", self.experts[i, m, "bias"][:, None])) if s.bias else y
        g = product(x, 1)
        g, l = (self.slice(g, 0, 2**63 - 1, 2, 2), self.slice(g, 1, 2**63 - 1, 2, 2)) if s.fusion else (g, product(x, 3))
        y = product(self.activated(g, l), 2)
        scale = self.op("Unsqueeze", self.op("Transpose", every, perm=[1, 0]), self.constant([2]))
        return self.op("ReduceSum", self.op("Mul", y, scale), self.constant([0]), keepdims=0)

    def model(self, opsets, producer):
        return super().model([("", 18), ("com.microsoft", 1)] if self.mixture.style else [*opsets, ("com.microsoft", 1)], producer)


def greedy(w, mlp):
    """Ids, and for each the best logprobs."""
    ids, best = list(PROMPT), []
    for _ in range(COUNT):
        x = tiny_models.forward_all(DECODER, w, ids, mlp)[-1]
        x = x - x.max()
        x = x - math.log(np.exp(x).sum())
        order = np.argsort(-x)[:TOP + 1]
        best.append((order, x[order]))
        ids.append(int(order[0]))
    return ids[len(PROMPT):], best


class ExpertsTest(CliTest):
    def choose(self, spec):
        """Weights whose answer no rounding changes: (weights, experts, ids, logprobs)."""
        for seed in range(200):
            w, experts, leads = tiny_models.make_weights(DECODER, seed), make_experts(spec, seed), []
            ids, best = greedy(w, mixture(spec, experts, leads))
            if min(leads) > MARGIN / 4 and min(x[0] - x[1] for _, x in best) > MARGIN:
                return w, experts, ids, best
        self.fail(f"{spec.name}: no seed gives a clear answer")

    def write(self, spec, w, experts):
        folder = self.folder / spec.name
        folder.mkdir()
        onnx.save(Export(w, spec, experts).build(), folder / "model.onnx")
        (folder / "config.json").write_text(json.dumps({"max_position_embeddings": tiny_models.CONTEXT, "eos_token_id": tiny_models.VOCABULARY}))
        return folder

    def answer(self, folder, *options, **environment):
        run = Run("run", folder, "--prompt-ids", ",".join(map(str, PROMPT)), "-n", COUNT, "--ignore-eos", "--json", "--logprobs", TOP, *options, **environment)
        self.assertEqual((run.code, run.err), (0, ""), run)
        return json.loads(run.out)

    def compare(self, answer, ids, best):
        self.assertEqual(answer["output_ids"], ids)
        for got, (order, expected) in zip(answer["logprobs"], best):
            np.testing.assert_allclose([t["logprob"] for t in got["top"]], expected[:TOP], atol=NEAR)

    def check_placed(self, spec):
        """Writes the export and compares what it answers in place; returns its folder and the right answer."""
        w, experts, ids, best = self.choose(spec)
        folder = self.write(spec, w, experts)
        placed = self.answer(folder, "--threads", 1)
        self.compare(placed, ids, best)
        self.assertEqual(placed["bytes_copied_per_token"], 0)
        return folder, ids, best

    def test_fused(self):
        for spec in MIXTURES:
            with self.subTest(spec.name):
                folder, ids, best = self.check_placed(spec)
                self.compare(self.answer(folder, "--naive", "--threads", 1), ids, best)

    def test_bench_counts_what_is_chosen(self):
        spec = next(m for m in MIXTURES if m.name == "4 bits by block")
        w = tiny_models.make_weights(DECODER, 1)
        folder = self.write(replace(spec, name="bench"), w, make_experts(spec, 1))
        run = Run("bench", folder, "-p", 3, "-n", 2, "--reps", 1, "--json", "--no-pack-cache", "--threads", 1)
        self.assertEqual((run.code, run.err), (0, ""), run)
        kernels = {k["kernel"]: k for k in json.loads(run.out)["rows"][0]["kernels"]["kernels"]}
        experts = kernels["PackedExperts"]
        weights = LAYERS * 3 * spec.inner * WIDTH * spec.k  # of a token
        self.assertAlmostEqual(experts["weight_bytes"], weights * (1 / 2 + 4 / spec.block) + 4 * LAYERS * spec.k * (2 * spec.inner + WIDTH), delta=0.3 * weights)

    def test_plain_operators(self):
        for spec in UNFUSED:
            with self.subTest(spec.name):
                folder, _, _ = self.check_placed(spec)
                described = Run("inspect", folder)
                self.assertIn("products by expert", described.out, described)

    def test_tables_of_digits(self):
        """Without the loop each row is multiplied by what the interpreter multiplies it by in the loop."""
        for inner in (64, 48):  # packed, and as the file has them
            with self.subTest(inner):
                spec = Mixture(f"table {inner}", style="index_add", stored="table", third=True, inner=inner)
                folder = self.write(spec, tiny_models.make_weights(DECODER, 3), make_experts(spec, 3))
                naive = self.answer(folder, "--naive", "--threads", 1)
                best = [([t["id"] for t in l["top"]], [t["logprob"] for t in l["top"]]) for l in naive["logprobs"]]
                self.compare(self.answer(folder, "--threads", 1), naive["output_ids"], best)

    def test_rounded_rows(self):
        """Rows of an expert are rounded by their common range, or by a constant: an interpreter that runs the loop is the oracle."""
        for stored, style in (("bytes", "index_add"), ("bytes", "scatter nd"), ("static", "index_add")):
            with self.subTest(stored, style=style):
                spec = Mixture(f"{stored}, {style}", style=style, stored=stored, third=True, bias=style == "index_add", inner=48)
                folder = self.write(spec, tiny_models.make_weights(DECODER, 3), make_experts(spec, 3))
                naive = self.answer(folder, "--naive", "--threads", 1)
                best = [([t["id"] for t in l["top"]], [t["logprob"] for t in l["top"]]) for l in naive["logprobs"]]
                for chunk in (4, 64):
                    placed = self.answer(folder, "--threads", 1, "--chunk", chunk)
                    self.compare(placed, naive["output_ids"], best)
                    self.assertEqual(placed["bytes_copied_per_token"], 0)

    def test_refused_bytes(self):
        """What is computed of sums as integers, and products of what are no bytes."""
        for what, reason in (("divided", "integers of MatMulInteger '.*' are read by Div '.*', which is no Cast"), ("of floats", "MatMulInteger '.*float32")):
            with self.subTest(what):
                spec = Mixture("bytes " + what, style="index_add", stored="bytes " + what, third=True)
                run = Run("run", self.write(spec, tiny_models.make_weights(DECODER, 1), make_experts(spec, 1)), "--prompt-ids", "5,6,7", "-n", 1)
                self.assertEqual((run.code, run.out), (2, ""), run)
                self.assertRegex(run.err, reason)

    def test_a_hundred_thousand_nodes(self):
        folder = self.folder / "large"
        self.assertGreater(large_experts.write(folder), 100000)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run = Run("run", folder, "--prompt-ids", "5,6,7", "-n", 1, "--json", "--threads", 1)  # in less than 1 GiB
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.assertEqual((run.code, run.err), (0, ""), run)
        self.assertLess(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 10)
        self.assertEqual(json.loads(run.out)["bytes_copied_per_token"], 0)

    def test_refused(self):
        floats = Mixture("refused", third=True)
        cases = {
            "weights_prepacked is 1": replace(floats, bits=4, attributes=(("weights_prepacked", 1),)),
            "quant_type is 'fp8'": replace(floats, bits=8, attributes=(("quant_type", "fp8"),)),
            "attribute tensor_parallel is not supported": replace(floats, attributes=(("tensor_parallel", 2),)),
            "k is 9 of 5 experts": replace(floats, k=9),
            "without weights of fc3": Mixture("refused", activation="swiglu"),
        }
        w = tiny_models.make_weights(DECODER, 1)
        for number, (what, spec) in enumerate(cases.items()):
            with self.subTest(what):
                folder = self.write(replace(spec, name=f"refused {number}"), w, make_experts(spec, 1))
                run = Run("run", folder, "--prompt-ids", "5,6,7", "-n", 1)
                self.assertEqual((run.code, run.out), (2, ""), run)
                self.assertIn(what, run.err)
                self.assertRegex(run.err, "com.microsoft.Q?MoE '/model/")

    def test_routers_that_may_agree(self):
        """Rows of a token that is at an expert twice replace each other."""
        spec = Mixture("agree", style="scatter and add", third=True, one_by_one="not struck out")
        run = Run("run", self.write(spec, tiny_models.make_weights(DECODER, 1), make_experts(spec, 1)), "--prompt-ids", "5,6,7", "-n", 1)
        self.assertEqual(run.code, 2, run)
        self.assertRegex(run.err, "NonZero .*routers may choose one expert twice", run)

    def test_an_expert_that_differs(self):
        folder = self.folder / "odd"
        large_experts.write(folder, layers=1, odd=True)
        run = Run("run", folder, "--prompt-ids", "5,6,7", "-n", 1)
        self.assertEqual(run.code, 2, run)
        self.assertRegex(run.err, "NonZero .*experts differ in Sigmoid", run)


if __name__ == "__main__":
    main()
