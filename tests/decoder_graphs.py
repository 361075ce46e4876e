"""Small decoders whose graph is changed at named places: what a pass that recognises patterns must not mistake for them.

A hook is a function of the graph that is being written and of a value in it, and returns the value that takes its place.
Shapes in comments: H heads, G key-value heads, E head size, P past tokens, S new tokens, T = P + S, C width.
"""
import math
from functools import cache

import onnx

import tiny_exports
from tiny_exports import MASKED
from tiny_models import EPSILON, HEADS, HEAD_SIZE, WIDTH, Spec, make_weights

END = 2**63 - 1
LEARNED, ROTARY, MULTI_HEAD = Spec("learned", rotary="none"), Spec("rotary"), Spec("multi-head", rotary="none", kv_heads=4)


@cache
def weights(spec, seed):
    return make_weights(spec, seed)


class Hooked(tiny_exports.Optimum):
    """Plain operators with hooks.

    query [1, H, S, E], key and value [1, G, T, E]: after the rotary embedding and the append
    mask [1, 1, S, T]: what is added to all scores; rotary(g, x): instead of the rotary embedding
    scores [1, H, S, T]: scaled, before the mask; masked: after it, instead of Softmax; probabilities
    attend(g, q, k, v): instead of all of these; the result is [1, H, S, E]
    fused(g, q, k, v, layer): the same on what the products give, [1, S, C], the append included; the result is [1, S, C]
    stored(g, x, layer, part): the rows x appended, in another way; past, present: between a past input and its Concat, and between the Concat and the present output
    projected(g, x, name): what the product with a weight gives
    rms(g, x): instead of x / sqrt(mean(x^2) + epsilon); activation(g, x): instead of SiLU
    hidden [1, S, C]: before the last norm; logits(g, x, out): between the last product and the output of that name
    """

    def __init__(self, spec, seed=1, **hooks):
        super().__init__(spec, weights(spec, seed))
        self.hooks = hooks

    def hook(self, name, x, *more):
        return self.hooks[name](self, x, *more) if name in self.hooks else x

    def prepare(self):
        super().prepare()
        self.total = self.extent("attention_mask", 1)
        self.queries = self.op("Range", self.op("Sub", self.total, self.tokens), self.total, self.constant(1))  # [S]
        self.keys = self.op("Range", self.constant(0), self.total, self.constant(1))  # [T]
        self.mask = self.hook("mask", self.mask)

    # Operators with a constant operand.
    def mul(self, x, number):
        return self.op("Mul", x, self.f32(number))

    def reshape(self, x, *dims):
        return self.op("Reshape", x, self.shape(*dims))

    def unsqueeze(self, x, *axes):
        return self.op("Unsqueeze", x, self.constant(axes))

    def expand(self, x, *dims):
        return self.op("Expand", x, self.shape(*dims))

    def halves(self, x):
        """The first and the second half of x [1, S, C] along C."""
        return self.slice(x, 0, WIDTH // 2, 2), self.slice(x, WIDTH // 2, WIDTH, 2)

    def linear(self, x, name, bias=False):
        return self.hook("projected", super().linear(x, name, bias), name)

    def norm(self, x, name):
        if name == "norm":
            x = self.hook("hidden", x)
        y = self.hooks["rms"](self, x) if "rms" in self.hooks else None
        return self.op("Mul", self.weight(name, self.w[name]), y) if y else super().norm(x, name)

    def logits(self, x, out):
        if "logits" not in self.hooks:
            return super().logits(x, out)
        return self.hook("logits", self.op("MatMul", x, self.weight("head", self.w["head"])), out)

    def rotary(self, x):
        return self.hooks["rotary"](self, x) if "rotary" in self.hooks else super().rotary(x)

    def mlp(self, h, i):
        g = self.hooks.get("activation", silu)(self, self.linear(h, f"{i}.gate"))
        return self.linear(self.op("Mul", g, self.linear(h, f"{i}.up")), f"{i}.down")

    def attention(self, h, i):
        q, k, v = (self.linear(h, f"{i}.{part}") for part in "qkv")
        y = self.hooks["fused"](self, q, k, v, i) if "fused" in self.hooks else self.plain_attention(q, k, v, i)
        return self.linear(y, f"{i}.o")

    def plain_attention(self, q, k, v, i):
        q = self.heads(q, HEADS)
        k, v = (self.heads(t, self.spec.kv_heads) for t in (k, v))
        if self.spec.rotary != "none":
            q, k = self.rotary(q), self.rotary(k)
        k, v = (self.appended(x, i, part) for part, x in (("key", k), ("value", v)))
        q, k, v = self.hook("query", q), self.hook("key", k), self.hook("value", v)
        y = self.hooks.get("attend", attend)(self, q, k, v)
        return self.reshape(self.op("Transpose", y, perm=[0, 2, 1, 3]), self.batch, self.tokens, HEADS * HEAD_SIZE)

    def appended(self, x, i, part):
        if "stored" in self.hooks:
            return self.hooks["stored"](self, x, i, part)
        past, present = self.state(i, part, ["batch_size", self.spec.kv_heads, None, HEAD_SIZE], 2)
        if "present" not in self.hooks:
            return self.op("Concat", self.hook("past", past), x, out=present, axis=2)
        both = self.op("Concat", self.hook("past", past), x, axis=2)
        self.hook("present", both, present)
        return both

    def model(self, opsets, producer):
        return super().model([("", 17), ("com.microsoft", 1)], producer)


def silu(g, x):
    return g.op("Mul", x, g.op("Sigmoid", x))


def gelu(g, x):
    return g.mul(g.op("Mul", x, g.op("Add", g.op("Erf", g.mul(x, math.sqrt(0.5))), g.f32(1))), 0.5)


def attend(g, q, k, v):
    return mix(g, scores(g, q, g.repeat(k)), g.repeat(v))


def scores(g, q, k):
    return g.hook("scores", g.op("Div", g.op("MatMul", q, g.op("Transpose", k, perm=[0, 1, 3, 2])), g.f32(math.sqrt(HEAD_SIZE))))


def mix(g, s, v):
    s = g.op("Add", s, g.mask)
    p = g.hooks["masked"](g, s) if "masked" in g.hooks else g.op("Softmax", s, axis=-1)
    return g.op("MatMul", g.hook("probabilities", p), v)


def heads_shared_by_broadcast(order):
    """attend: products of five dims, without a copy of K and V for each head: query head h reads head h / (H/G) or h mod G."""
    def core(g, q, k, v):
        kv_heads, axis = g.spec.kv_heads, {"h / group": 2, "h mod groups": 1}[order]
        dims = [kv_heads, HEADS // kv_heads] if axis == 2 else [HEADS // kv_heads, kv_heads]
        q = g.reshape(q, 1, *dims, g.tokens, HEAD_SIZE)
        s = g.op("MatMul", q, g.op("Transpose", g.unsqueeze(k, axis), perm=[0, 1, 2, 4, 3]))
        s = g.op("Add", g.mul(s, 1 / math.sqrt(HEAD_SIZE)), g.unsqueeze(g.mask, 0))
        y = g.op("MatMul", g.op("Softmax", s, axis=-1), g.unsqueeze(v, axis))
        return g.reshape(y, 1, HEADS, g.tokens, HEAD_SIZE)
    return core


def heads_shared_by_expand(order):
    """attend: the same by a copy of K and V for each query head."""
    def core(g, q, k, v):
        kv_heads, axis = g.spec.kv_heads, {"h / group": 2, "h mod groups": 1}[order]
        dims = [kv_heads, HEADS // kv_heads] if axis == 2 else [HEADS // kv_heads, kv_heads]
        k, v = (g.reshape(g.expand(g.unsqueeze(t, axis), 1, *dims, g.total, HEAD_SIZE), 1, HEADS, g.total, HEAD_SIZE) for t in (k, v))
        return mix(g, scores(g, q, k), v)
    return core


def rms(variance=None, gain=1.0):
    """x / sqrt(f(mean(x^2)) + epsilon) for x times `gain`."""
    def f(g, x):
        x = g.mul(x, gain)
        v = g.op("ReduceMean", g.op("Mul", x, x), axes=[-1])
        v = g.op("Add", variance(g, v) if variance else v, g.f32(EPSILON))
        return g.op("Div", x, g.op("Sqrt", v))
    return f


def multi_head_attention(g, q, k, v, i):
    """com.microsoft.MultiHeadAttention, which adds the bias [3 C] of Q, K and V itself."""
    pasts, presents = zip(*(g.state(i, part, ["batch_size", HEADS, None, HEAD_SIZE], 2) for part in ("key", "value")))
    name = f"/model/layers.{i}/MultiHeadAttention"
    g.op("MultiHeadAttention", q, k, v, g.weight(f"{i}.bias", bias(g, i)), "", "", *pasts, domain="com.microsoft", name=name,
         out=[name + "_output_0", *presents], num_heads=HEADS, unidirectional=1)
    return name + "_output_0"


def bias(g, i):
    return weights(g.spec, 77)["embed"][3 * i:3 * i + 3].reshape(3 * WIDTH)


def add_bias(g, x, name):
    layer, part = name.split(".")
    at = "qkv".find(part)
    return x if at < 0 or len(part) != 1 else g.op("Add", x, g.f32(bias(g, int(layer))[at * WIDTH:(at + 1) * WIDTH]))


def write(path, spec, seed=1, **hooks):
    onnx.save(Hooked(spec, seed, **hooks).build(), path)
    return path
