"""The models of tiny_models.py as ONNX files, in the styles of several exporters.

Shapes in comments: H heads, G key-value heads, E head size, P past tokens, S new tokens, T = P + S.
"""
import json
import math
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tiny_models import CONTEXT, EPSILON, FARTHEST, HEADS, HEAD_SIZE, LAYERS, alibi_slopes, choose_weights

MASKED = np.float32(np.finfo(np.float32).min)


class Builder:
    """Nodes and initialisers of a graph; every helper returns the name of its result."""

    def __init__(self):
        self.nodes, self.initializers, self.count = [], [], 0

    def op(self, op, *inputs, out=None, outputs=1, domain="", name=None, **attributes):
        self.count += 1
        name = name or f"/model/{op}_{self.count}"
        outs = out if isinstance(out, list) else [out] if out else [f"{name}_output_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), outs, name=name, domain=domain, **attributes))
        return outs[0] if len(outs) == 1 else outs

    def constant(self, value, dtype=np.int64):
        return self.op("Constant", value=numpy_helper.from_array(np.array(value, dtype)))

    def f32(self, value):
        return self.constant(value, np.float32)

    def weight(self, name, array):
        if all(t.name != name for t in self.initializers):
            self.initializers.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    # As the TorchScript exporter writes x.shape[axis]: Shape, then Gather.
    def extent(self, x, axis):
        return self.op("Gather", self.op("Shape", x), self.constant(axis), axis=0)

    def shape(self, *dims):
        """A shape vector of integers and of values made by extent()."""
        parts = [self.op("Unsqueeze", d, self.constant([0])) if isinstance(d, str) else self.constant([d]) for d in dims]
        return self.op("Concat", *parts, axis=0)

    def slice(self, x, begin, end, axis, step=1):
        return self.op("Slice", x, *(self.constant([v]) for v in (begin, end, axis, step)))


def value(name, dims, dtype=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, dtype, dims)


class Export(Builder):
    """What the styles share: weights, norms, the residual stream, inputs and outputs."""

    def __init__(self, spec, w):
        super().__init__()
        self.spec, self.w = spec, w
        self.inputs, self.outputs = [], []
        self.inner = TensorProto.FLOAT16 if spec.half else TensorProto.FLOAT  # the type of activations
        self.outer = TensorProto.FLOAT16 if spec.half == "all" else TensorProto.FLOAT  # of states and logits

    def weight(self, name, array):
        return super().weight(name, array.astype(np.float16) if self.spec.half else array)

    def real(self, number):
        """A constant of the activations' type."""
        return self.constant(number, np.float16 if self.spec.half else np.float32)

    def cast(self, x, to, out=None):
        """x as type `to`; x itself where activations have that type and it needs no other name."""
        return self.op("Cast", x, to=to, out=out) if self.spec.half else x

    def append(self, past, x, present, axis):
        """present = Concat(past, x): inside casts where inputs and outputs have another type."""
        if self.inner == self.outer:
            return self.op("Concat", past, x, out=present, axis=axis)
        both = self.op("Concat", self.cast(past, self.inner), x, axis=axis)
        self.cast(both, self.outer, out=present)
        return both

    def names(self, layer, part):
        return f"past_key_values.{layer}.{part}", f"present.{layer}.{part}"

    def state(self, layer, part, dims, axis):
        past, present = self.names(layer, part)
        for name, values, length in ((past, self.inputs, "past_sequence_length"), (present, self.outputs, "total_sequence_length")):
            values.append(value(name, [length if i == axis else d for i, d in enumerate(dims)], self.outer))
        return past, present

    def linear(self, x, name, bias=False):
        y = self.op("MatMul", x, self.weight(name, self.w[name]))
        return self.op("Add", self.weight(name + ".bias", self.w[name + ".bias"]), y) if bias else y

    def norm(self, x, name):
        """RMSNorm and LayerNorm out of plain operators, as opset 13 has them; in float, as exporters leave it."""
        x = self.cast(x, TensorProto.FLOAT)
        if self.spec.norm == "layer":
            x = self.op("Sub", x, self.op("ReduceMean", x, axes=[-1]))
        mean = self.op("ReduceMean", self.op("Pow", x, self.f32(2)), axes=[-1])
        root = self.op("Sqrt", self.op("Add", mean, self.f32(EPSILON)))
        if self.spec.norm == "layer":
            y = self.op("Mul", self.cast(self.op("Div", x, root), self.inner), self.weight(name, self.w[name]))
            return self.op("Add", y, self.weight(name + ".bias", self.w[name + ".bias"]))
        return self.op("Mul", self.weight(name, self.w[name]), self.cast(self.op("Mul", x, self.op("Div", self.f32(1), root)), self.inner))

    def mlp(self, h, i):
        if self.spec.mlp == "silu":
            g = self.linear(h, f"{i}.gate")
            return self.linear(self.op("Mul", self.op("Mul", g, self.op("Sigmoid", g)), self.linear(h, f"{i}.up")), f"{i}.down")
        u = self.linear(h, f"{i}.up", bias=True)
        erf = self.op("Add", self.op("Erf", self.op("Div", u, self.real(math.sqrt(2)))), self.real(1))
        return self.linear(self.op("Mul", self.op("Mul", u, erf), self.real(0.5)), f"{i}.down", bias=True)

    def logits(self, x, out):
        inner = None if self.inner != self.outer else out
        if self.spec.tied:
            y = self.op("MatMul", x, self.op("Transpose", "embed", perm=[1, 0]), out=inner)
        else:
            y = self.op("MatMul", x, self.weight("head", self.w["head"]), out=inner)
        return y if inner else self.cast(y, self.outer, out=out)

    def model(self, opsets, producer):
        graph = helper.make_graph(self.nodes, "main_graph", self.inputs, self.outputs, self.initializers)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid(d, v) for d, v in opsets], ir_version=8, producer_name=producer)


class Optimum(Export):
    """Plain operators: masks from ranges, rotate_half, repeat_kv by Expand, past and present by Concat."""

    def build(self):
        spec = self.spec
        self.inputs = [value("input_ids", ["batch_size", "sequence_length"], TensorProto.INT64),
                       value("attention_mask", ["batch_size", "past_sequence_length + sequence_length"], TensorProto.INT64)]
        if spec.rotary != "none" or not (spec.alibi or spec.buckets):
            self.inputs.append(value("position_ids", ["batch_size", "sequence_length"], TensorProto.INT64))
        x = self.op("Gather", self.weight("embed", self.w["embed"]), "input_ids")
        if "positions" in self.w:
            x = self.op("Add", x, self.op("Gather", self.weight("positions", self.w["positions"]), "position_ids"))
        self.prepare()
        for i in range(LAYERS):
            x = self.op("Add", x, self.attention(self.norm(x, f"{i}.norm1"), i))
            x = self.op("Add", x, self.mlp(self.norm(x, f"{i}.norm2"), i))
        self.logits(self.norm(x, "norm"), "logits")
        self.outputs.insert(0, value("logits", ["batch_size", "sequence_length", self.spec.vocabulary], self.outer))
        return self.model([("", 14)], "pytorch")

    def prepare(self):
        """Shapes, mask [1, 1, S, T], cos and sin [1, 1, S, r] that all layers share."""
        spec = self.spec
        self.batch, self.tokens = self.extent("input_ids", 0), self.extent("input_ids", 1)
        total = self.extent("attention_mask", 1)
        past = self.op("Sub", total, self.tokens)
        queries = self.op("Unsqueeze", self.op("Range", past, total, self.constant(1)), self.constant([0, 1, 3]))  # [1, 1, S, 1]
        keys = self.op("Unsqueeze", self.op("Range", self.constant(0), total, self.constant(1)), self.constant([0, 1, 2]))
        allowed = self.op("LessOrEqual", keys, queries)
        if spec.window:
            allowed = self.op("And", allowed, self.op("Greater", keys, self.op("Sub", queries, self.constant(spec.window))))
        padding = self.op("Unsqueeze", self.op("Cast", "attention_mask", to=TensorProto.BOOL), self.constant([1, 2]))
        self.mask = self.cast(self.op("Where", self.op("And", allowed, padding), self.f32(0), self.f32(MASKED)), self.inner)
        if spec.buckets:
            self.bias = self.relative_bias(total)
            if not spec.bias_later:
                self.mask = self.op("Add", self.bias, self.mask)
        if spec.rotary != "none":
            r = spec.rotary_dim
            frequencies = self.f32((10000.0 ** (-np.arange(0, r, 2) / r))[None, :, None])
            position = self.op("Cast", self.op("Unsqueeze", "position_ids", self.constant([1])), to=TensorProto.FLOAT)
            angle = self.op("Transpose", self.op("MatMul", frequencies, position), perm=[0, 2, 1])  # [1, S, r/2]
            if spec.rotary == "half":
                angle = self.op("Concat", angle, angle, axis=-1)
            else:
                pair = self.op("Unsqueeze", angle, self.constant([3]))
                pair = self.op("Expand", pair, self.shape(self.batch, self.tokens, r // 2, 2))
                angle = self.op("Reshape", pair, self.shape(self.batch, self.tokens, r))
            self.cos, self.sin = (self.op("Unsqueeze", self.cast(self.op(f, angle), self.inner), self.constant([1])) for f in ("Cos", "Sin"))
        if spec.alibi:
            # As in bloom: key positions counted in the mask, times a slope for each head.
            count = self.op("Sub", self.op("CumSum", "attention_mask", self.constant(1)), self.constant(1))
            count = self.op("Cast", self.op("Mul", count, "attention_mask"), to=TensorProto.FLOAT)
            slopes = self.f32(alibi_slopes().reshape(1, HEADS, 1, 1))
            self.alibi = self.cast(self.op("Mul", slopes, self.op("Unsqueeze", count, self.constant([1, 2]))), self.inner)

    def relative_bias(self, total):
        """[1, H, S, T] as exports of T5 make it: for queries at all positions, of which the last are taken."""
        spec, positions = self.spec, self.op("Range", self.constant(0), total, self.constant(1))
        distance = self.op("Sub", self.op("Unsqueeze", positions, self.constant([0])), self.op("Unsqueeze", positions, self.constant([1])))
        back = self.op("Neg", self.op("Min", distance, self.op("ConstantOfShape", self.op("Shape", distance), value=helper.make_tensor("zero", TensorProto.INT64, [1], [0]))))
        exact = spec.buckets // 2
        far = self.op("Log", self.op("Div", self.op("Cast", back, to=TensorProto.FLOAT), self.f32(exact)))
        far = self.op("Mul", self.op("Div", far, self.f32(math.log(FARTHEST / exact))), self.f32(spec.buckets - exact))
        far = self.op("Add", self.op("Cast", far, to=TensorProto.INT64), self.constant(exact))
        far = self.op("Min", far, self.constant(spec.buckets - 1))
        bucket = self.op("Where", self.op("Less", back, self.constant(exact)), back, far)
        bias = self.op("Transpose", self.op("Gather", self.weight("buckets", self.w["buckets"]), bucket), perm=[2, 0, 1])
        begin = self.op("Unsqueeze", self.op("Neg", self.tokens), self.constant([0]))
        return self.op("Slice", self.op("Unsqueeze", bias, self.constant([0])), begin, self.constant([2**63 - 1]), self.constant([2]), self.constant([1]))

    def rotary(self, x):
        r = self.spec.rotary_dim
        rest = self.slice(x, r, 2**63 - 1, 3) if r < HEAD_SIZE else None
        x = self.slice(x, 0, r, 3) if rest else x
        if self.spec.rotary == "half":
            half = self.op("Div", self.extent(x, 3), self.constant(2))
            half = self.op("Unsqueeze", half, self.constant([0]))
            first = self.op("Slice", x, self.constant([0]), half, self.constant([3]), self.constant([1]))
            second = self.op("Slice", x, half, self.constant([2**63 - 1]), self.constant([3]), self.constant([1]))
            turned = self.op("Concat", self.op("Neg", second), first, axis=-1)
        else:
            even, odd = self.slice(x, 0, 2**63 - 1, 3, 2), self.slice(x, 1, 2**63 - 1, 3, 2)
            pair = [self.op("Unsqueeze", t, self.constant([-1])) for t in (self.op("Neg", odd), even)]
            turned = self.op("Reshape", self.op("Concat", *pair, axis=-1), self.op("Shape", x))
        y = self.op("Add", self.op("Mul", x, self.cos), self.op("Mul", turned, self.sin))
        return self.op("Concat", y, rest, axis=-1) if rest else y

    def heads(self, x, count):
        return self.op("Transpose", self.op("Reshape", x, self.shape(self.batch, self.tokens, count, HEAD_SIZE)), perm=[0, 2, 1, 3])

    def attention(self, h, i):
        spec = self.spec
        q = self.heads(self.linear(h, f"{i}.q"), HEADS)
        k, v = (self.heads(self.linear(h, f"{i}.{part}"), spec.kv_heads) for part in "kv")
        if spec.rotary != "none":
            q, k = self.rotary(q), self.rotary(k)
        k, v = {"heads": self.append_heads, "rank3": self.append_rank3, "combined": self.append_combined, "stacked": self.append_stacked}[spec.past](k, v, i)
        scores = self.op("MatMul", q, self.op("Transpose", k, perm=[0, 1, 3, 2]))
        scores = self.op("Div", scores, self.real(math.sqrt(HEAD_SIZE)))
        if spec.softcap:
            scores = self.op("Mul", self.op("Tanh", self.op("Div", scores, self.real(spec.softcap))), self.real(spec.softcap))
        if spec.alibi:
            scores = self.op("Add", scores, self.alibi)
        if spec.bias_later:
            scores = self.op("Add", scores, self.bias)
        p = self.op("Softmax", self.op("Add", scores, self.mask), axis=-1)
        y = self.op("Transpose", self.op("MatMul", p, v), perm=[0, 2, 1, 3])
        return self.linear(self.op("Reshape", y, self.shape(self.batch, self.tokens, HEADS * HEAD_SIZE)), f"{i}.o")

    def append_heads(self, k, v, i):
        both = []
        for part, x in (("key", k), ("value", v)):
            past, present = self.state(i, part, ["batch_size", self.spec.kv_heads, None, HEAD_SIZE], 2)
            both.append(self.repeat(self.append(past, x, present, -2)))
        return both

    def repeat(self, x):
        groups = HEADS // self.spec.kv_heads
        if groups == 1:
            return x
        batch, total = self.extent(x, 0), self.extent(x, 2)
        wide = self.op("Expand", self.op("Unsqueeze", x, self.constant([2])), self.shape(batch, self.spec.kv_heads, groups, total, HEAD_SIZE))
        return self.op("Reshape", wide, self.shape(batch, HEADS, total, HEAD_SIZE))

    def append_rank3(self, k, v, i):
        """Key [H, E, P] and value [H, P, E], as older bloom exports keep them."""
        past, present = self.state(i, "key", [HEADS, HEAD_SIZE, None], 2)
        k = self.op("Reshape", self.op("Transpose", k, perm=[0, 1, 3, 2]), self.shape(HEADS, HEAD_SIZE, self.tokens))
        k = self.append(past, k, present, 2)
        past, present = self.state(i, "value", [HEADS, None, HEAD_SIZE], 1)
        v = self.append(past, self.op("Reshape", v, self.shape(HEADS, self.tokens, HEAD_SIZE)), present, 1)
        k = self.op("Transpose", self.op("Unsqueeze", k, self.constant([0])), perm=[0, 1, 3, 2])
        return k, self.op("Unsqueeze", v, self.constant([0]))

    def append_combined(self, k, v, i):
        """One tensor for keys and values side by side, as multi-query models keep them."""
        past, present = self.state(i, "key_value", ["batch_size", 1, None, 2 * HEAD_SIZE], 2)
        both = self.append(past, self.op("Concat", k, v, axis=-1), present, -2)
        return self.op("Split", both, self.constant([HEAD_SIZE, HEAD_SIZE]), axis=-1, outputs=2)

    def append_stacked(self, k, v, i):
        """One tensor [2, B, H, P, E] for keys and values, as onnxruntime's exporter of GPT-2 keeps them."""
        past, present = self.state(i, "key_value", [2, "batch_size", self.spec.kv_heads, None, HEAD_SIZE], 3)
        both = [self.op("Concat", self.op("Gather", past, self.constant(part), axis=0), x, axis=-2) for part, x in enumerate((k, v))]
        self.op("Concat", *(self.op("Unsqueeze", x, self.constant([0])) for x in both), out=present, axis=0)
        return [self.repeat(x) for x in both]


class Genai(Export):
    """com.microsoft operators with 4-bit weights, under names that only genai_config.json tells."""

    def names(self, layer, part):
        return f"memory_{layer}_{part}_before", f"memory_{layer}_{part}_after"

    def linear(self, x, name, bias=False):
        columns, parts = self.w[name].shape[1], self.w[name, "bits"]
        return self.bits(x, name, parts, columns)

    def bits(self, x, name, parts, columns, out=None):
        packed, scales, points = parts
        operands = [self.weight(name + ".bits", packed), self.weight(name + ".scales", scales)]
        if points is not None:
            operands.append(self.weight(name + ".zero_points", points))
        return self.op("MatMulNBits", x, *operands, domain="com.microsoft", K=packed.shape[1] * 16, N=columns, bits=4, block_size=16, out=out)

    def build(self):
        spec = self.spec
        self.inputs = [value("words", ["batch_size", "sequence_length"], TensorProto.INT64),
                       value("keep", ["batch_size", "total_sequence_length"], TensorProto.INT64)]
        r = spec.rotary_dim
        angle = np.arange(self.spec.context)[:, None] * 10000.0 ** (-np.arange(0, r, 2) / r)
        self.tables = [self.weight("cos_cache", np.cos(angle).astype(np.float32)), self.weight("sin_cache", np.sin(angle).astype(np.float32))]
        last = self.op("Sub", self.op("ReduceSum", "keep", self.constant([1]), keepdims=0), self.constant([1]))
        self.lengths = [self.op("Cast", last, to=TensorProto.INT32), self.op("Cast", self.extent("keep", 1), to=TensorProto.INT32)]
        residual = self.op("Gather", self.weight("embed", self.w["embed"]), "words")
        h = self.op("SimplifiedLayerNormalization", residual, self.weight("0.norm1", self.w["0.norm1"]), axis=-1, epsilon=EPSILON, stash_type=1)
        for i in range(LAYERS):
            residual, h = self.skip(residual, self.attention(h, i), f"{i}.norm2")
            residual, h = self.skip(residual, self.mlp(h, i), f"{i + 1}.norm1" if i + 1 < LAYERS else "norm")
        self.bits(h, "head", self.w["head", "bits"], self.spec.vocabulary, out="scores")
        self.outputs.insert(0, value("scores", ["batch_size", "sequence_length", self.spec.vocabulary]))
        return self.model([("", 18), ("com.microsoft", 1)], "onnxruntime-genai")

    def skip(self, residual, x, norm):
        name = f"/model/{norm}/SkipLayerNorm"
        self.op("SkipSimplifiedLayerNormalization", residual, x, self.weight(norm, self.w[norm]), domain="com.microsoft",
                name=name, out=[name + "_output_0", "", "", name + "_output_3"], epsilon=EPSILON)
        return name + "_output_3", name + "_output_0"

    def attention(self, h, i):
        spec = self.spec
        packed = [np.concatenate(t) if t[0] is not None else None for t in zip(*(self.w[f"{i}.{p}", "bits"] for p in "qkv"))]
        qkv = self.bits(h, f"{i}.qkv", packed, (HEADS + 2 * spec.kv_heads) * HEAD_SIZE)
        pasts, presents = zip(*(self.state(i, part, ["batch_size", spec.kv_heads, None, HEAD_SIZE], 2) for part in ("k", "v")))
        name = f"/model/layers.{i}/attn/GroupQueryAttention"
        self.op("GroupQueryAttention", qkv, "", "", *pasts, *self.lengths, *self.tables, domain="com.microsoft", name=name,
                out=[name + "_output_0", *presents], num_heads=HEADS, kv_num_heads=spec.kv_heads, do_rotary=1,
                rotary_interleaved=int(spec.rotary == "interleaved"), softcap=spec.softcap, local_window_size=spec.window or -1)
        return self.linear(name + "_output_0", f"{i}.o")

    def config(self):
        decoder = {"filename": "weights and graph.onnx",
                   "inputs": {"input_ids": "words", "attention_mask": "keep", "past_key_names": "memory_%d_k_before", "past_value_names": "memory_%d_v_before"},
                   "outputs": {"logits": "scores", "present_key_names": "memory_%d_k_after", "present_value_names": "memory_%d_v_after"},
                   "head_size": HEAD_SIZE, "num_attention_heads": HEADS, "num_hidden_layers": LAYERS, "num_key_value_heads": self.spec.kv_heads}
        return {"model": {"type": "llama", "context_length": self.spec.context, "vocab_size": self.spec.vocabulary, "eos_token_id": [self.spec.vocabulary], "decoder": decoder}}


class Opset23(Export):
    """ai.onnx 23: RMSNormalization, RotaryEmbedding and Attention with past and present, on [1, S, heads * E]."""

    def norm(self, x, name):
        return self.op("RMSNormalization", x, self.weight(name, self.w[name]), axis=-1, epsilon=EPSILON)

    def build(self):
        spec = self.spec
        self.inputs = [value(n, ["batch", "seq"], TensorProto.INT64) for n in ("input_ids", "position_ids")]
        self.inputs.insert(1, value("attention_mask", ["batch", "total_sequence_length"], TensorProto.INT64))
        r = spec.rotary_dim
        angle = np.arange(self.spec.context)[:, None] * 10000.0 ** (-np.arange(0, r, 2) / r)
        tables = [self.weight("cos", np.cos(angle).astype(np.float32)), self.weight("sin", np.sin(angle).astype(np.float32))]
        total = self.extent("attention_mask", 1)
        queries = self.op("Unsqueeze", self.op("Range", self.op("Sub", total, self.extent("input_ids", 1)), total, self.constant(1)), self.constant([1]))
        keys = self.op("Unsqueeze", self.op("Range", self.constant(0), total, self.constant(1)), self.constant([0]))
        mask = "" if spec.causal_attribute else self.op("LessOrEqual", keys, queries)  # [S, T]
        x = self.op("Gather", self.weight("embed", self.w["embed"]), "input_ids")
        for i in range(LAYERS):
            h = self.norm(x, f"{i}.norm1")
            q, k = (self.op("RotaryEmbedding", self.linear(h, f"{i}.{p}"), *tables, "position_ids", num_heads=count,
                            interleaved=int(spec.rotary == "interleaved")) for p, count in (("q", HEADS), ("k", spec.kv_heads)))
            pasts, presents = zip(*(self.state(i, part, ["batch", spec.kv_heads, None, HEAD_SIZE], 2) for part in ("key", "value")))
            name = f"/model/layers.{i}/Attention"
            self.op("Attention", q, k, self.linear(h, f"{i}.v"), mask, *pasts, name=name, out=[name + "_output_0", *presents],
                    q_num_heads=HEADS, kv_num_heads=spec.kv_heads, is_causal=int(spec.causal_attribute))
            x = self.op("Add", x, self.linear(name + "_output_0", f"{i}.o"))
            x = self.op("Add", x, self.mlp(self.norm(x, f"{i}.norm2"), i))
        self.logits(self.norm(x, "norm"), "logits")
        self.outputs.insert(0, value("logits", ["batch", "seq", self.spec.vocabulary]))
        return self.model([("", 23)], "torch")


def append_beside(model):
    """Takes past and present off every ai.onnx Attention on [1, S, heads * E]: Concats beside them append, and they read what is new.
    Yields the node, its place and its two present outputs, which stand before it."""
    for n in [n for n in model.graph.node if n.op_type == "Attention"]:
        at = list(model.graph.node).index(n)
        pasts, presents = list(n.input[4:6]), list(n.output[1:3])
        del n.input[3:], n.output[1:]
        for i, (new, past, present) in enumerate(zip(n.input[1:3], pasts, presents)):
            heads = numpy_helper.from_array(np.array([0, 0, -1, HEAD_SIZE]), f"{at} {i} heads")
            model.graph.initializer.append(heads)
            for made in (helper.make_node("Concat", [past, f"{new} {at} heads"], [present], axis=2),
                         helper.make_node("Transpose", [f"{new} {at} split"], [f"{new} {at} heads"], perm=[0, 2, 1, 3]),
                         helper.make_node("Reshape", [new, heads.name], [f"{new} {at} split"])):
                model.graph.node.insert(at, made)
        yield n, at + 6, presents

def remove_input(model, name):
    """Removes the input and the nodes that depend on it, which nothing else may need."""
    gone = {name}
    for n in list(model.graph.node):
        if gone & set(n.input):
            gone |= set(n.output)
            model.graph.node.remove(n)
    assert not gone & {v.name for v in model.graph.output}, name
    model.graph.input.remove(next(v for v in model.graph.input if v.name == name))


def write_model(spec, folder):
    """Writes the model's folder. Returns (prompt ids, expected ids)."""
    w, prompt, ids = choose_weights(spec)
    write_weights(spec, w, folder)
    return prompt, ids


def write_weights(spec, w, folder):
    """Writes the folder of a model with these weights, and returns it."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    export = {"optimum": Optimum, "genai": Genai, "opset23": Opset23}[spec.style](spec, w)
    model = export.build()
    if spec.style == "genai":
        config = export.config()
        (folder / "genai_config.json").write_text(json.dumps(config))
        onnx.save(model, folder / config["model"]["decoder"]["filename"], save_as_external_data=True, location="data.bin", size_threshold=0)
    else:
        onnx.save(model, folder / "model.onnx")
        (folder / "config.json").write_text(json.dumps({"max_position_embeddings": spec.context, "eos_token_id": spec.vocabulary}))
    return folder


def write_table_model(table, folder, **files):
    """Writes a decoder whose logits after token i are row i of a table [rows, vocabulary], and returns its folder; its state
    is nobody's. `files`: what stands in NAME.json beside it.
    """
    folder = Path(folder)
    folder.mkdir(parents=True)
    g, width = Builder(), 4
    g.op("Gather", g.weight("table", np.float32(table)), "input_ids", out="logits")
    rows = g.op("Unsqueeze", g.op("Gather", g.weight("embed", np.ones((table.shape[1], width), np.float32)), "input_ids"), g.constant([1]))
    states = [f"0.{kind}" for kind in ("key", "value")]
    for state in states:
        g.op("Concat", f"past_key_values.{state}", rows, out=f"present.{state}", axis=2)
    inputs = [value("input_ids", ["batch", "sequence"], TensorProto.INT64), *(value(f"past_key_values.{s}", ["batch", 1, "past", width]) for s in states)]
    outputs = [value("logits", ["batch", "sequence", table.shape[1]]), *(value(f"present.{s}", ["batch", 1, "total", width]) for s in states)]
    graph = helper.make_graph(g.nodes, "table", inputs, outputs, g.initializers)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "model.onnx")
    for name, content in {"config": {"max_position_embeddings": CONTEXT}, **files}.items():
        (folder / f"{name}.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return folder
