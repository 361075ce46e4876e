"""Mixtures of experts: com.microsoft.MoE and QMoE, against their definition in NumPy.

    python tests/experts_test.py --situ build/situ [unittest options]

Needs numpy and onnx (`make python`).
"""
import json
import math
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

import tiny_exports
import tiny_models
from cli_case import CliTest, Run, main
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


def quantise(rng, spec, experts, rows, columns):
    """Digits as the file has them, scales, zero points or None, and the matrices [E, N, K] that they stand for."""
    block = spec.block or columns
    blocks = columns // block
    q = rng.integers(0, 1 << spec.bits, (experts, rows, blocks, block))
    scales = (rng.uniform(0.5, 1.0, (experts, rows, blocks)) * 3 / ((1 << spec.bits) * math.sqrt(columns))).astype(np.float16).astype(np.float32)
    middle = 1 << (spec.bits - 1)
    points = rng.integers(middle - 1, middle + 2, (experts, rows, blocks)) if spec.zeros else np.full((experts, rows, blocks), middle)
    values = ((q - points[..., None]) * scales[..., None]).reshape(experts, rows, columns).astype(np.float32)
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
        self.mixture, self.experts = spec, experts

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

    def model(self, opsets, producer):
        return super().model([*opsets, ("com.microsoft", 1)], producer)


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

    def test_fused(self):
        for spec in MIXTURES:
            with self.subTest(spec.name):
                w, experts, ids, best = self.choose(spec)
                folder = self.write(spec, w, experts)
                placed = self.answer(folder, "--threads", 1)
                self.compare(placed, ids, best)
                self.assertEqual(placed["bytes_copied_per_token"], 0)
                self.compare(self.answer(folder, "--naive", "--threads", 1), ids, best)


if __name__ == "__main__":
    main()
