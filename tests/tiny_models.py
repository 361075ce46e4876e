"""Tiny language models with random weights for tests, each with an independent oracle of its greedy ids.

The oracle is a plain numpy forward pass over the whole sequence, without a cache. It is not made from the ONNX
graph: the same weights are written down twice, once as a formula here and once as an export in tiny_exports.py.
Shapes in comments: T tokens, E head size, V vocabulary.
"""
import math
from dataclasses import dataclass, replace

import numpy as np

VOCABULARY, WIDTH, HEADS, HEAD_SIZE, HIDDEN, LAYERS, CONTEXT = 96, 32, 4, 8, 48, 2, 64
EPSILON = 1e-5
NEW_TOKENS = 16


@dataclass(frozen=True)
class Spec:
    name: str
    style: str = "optimum"  # optimum: plain operators; genai: com.microsoft; opset23: Attention, RotaryEmbedding
    kv_heads: int = 2
    window: int = 0         # keys that a query sees, its own included; 0: all before it
    sink: int = 0           # first keys that it sees beside its window
    softcap: float = 0.0
    rotary: str = "half"    # half, interleaved, or none: learned positions unless there is ALiBi
    rotary_dim: int = HEAD_SIZE
    alibi: bool = False
    buckets: int = 0        # T5: a bias for each head and bucket of distances, one for all layers; no other positions
    bias_later: bool = False  # added to the scores before the mask, instead of to the mask
    norm: str = "rms"       # rms or layer
    mlp: str = "silu"       # silu: gated; gelu: two biased layers
    tied: bool = False      # logits by the transposed embedding
    past: str = "heads"     # heads: [1, G, P, E]; rank3: key [H, E, P], value [H, P, E]; combined: [1, 1, P, 2E];
                            # stacked: [2, 1, G, P, E]
    zero_points: bool = False
    causal_attribute: bool = False  # opset23: is_causal instead of a mask operand
    half: str = ""          # all: float16 throughout; inside: with float32 inputs and outputs; "": float32
    vocabulary: int = VOCABULARY
    context: int = CONTEXT


SPECS = [
    Spec("llama"),
    Spec("multi-head", kv_heads=4),
    Spec("multi-query", kv_heads=1),
    Spec("window", window=4),
    Spec("softcap", softcap=1.5),
    Spec("interleaved", rotary="interleaved"),
    Spec("partial-rotary", rotary_dim=4, norm="layer", mlp="gelu"),
    Spec("gpt", rotary="none", norm="layer", mlp="gelu", kv_heads=4, tied=True),
    Spec("bloom", rotary="none", alibi=True, norm="layer", mlp="gelu", kv_heads=4, past="rank3", tied=True),
    Spec("alibi", rotary="none", alibi=True),
    Spec("relative", rotary="none", buckets=8, kv_heads=4),
    Spec("relative-later", rotary="none", buckets=8, bias_later=True, window=9),
    Spec("combined", rotary="none", kv_heads=1, past="combined", norm="layer", mlp="gelu", tied=True),
    Spec("stacked", past="stacked"),
    Spec("half", half="all"),
    Spec("half-inside", half="inside"),
    Spec("half-gpt", half="all", rotary="none", norm="layer", mlp="gelu", kv_heads=4, tied=True),
    Spec("half-alibi", half="inside", rotary="none", alibi=True, norm="layer", mlp="gelu", kv_heads=4, past="rank3"),
    Spec("half-relative", half="all", rotary="none", buckets=8, kv_heads=4),
    Spec("half-combined", half="inside", rotary="none", kv_heads=1, past="combined", norm="layer", mlp="gelu"),
    Spec("genai", style="genai"),
    Spec("genai-zero-points", style="genai", zero_points=True, kv_heads=4),
    Spec("genai-window", style="genai", window=4, kv_heads=1),
    Spec("genai-softcap", style="genai", softcap=1.5, rotary="interleaved"),
    Spec("genai-partial", style="genai", rotary_dim=4),
    Spec("opset23", style="opset23"),
    Spec("opset23-causal", style="opset23", causal_attribute=True, rotary="interleaved", kv_heads=1),
]


# -- weights

def quantise(rng, rows, columns, zero_points, block=16):
    """[N, K] in 4 bits and what they stand for: (packed [N, K/block, block/2], scales, zero points or None, float32 [K, N])."""
    q = rng.integers(0, 16, (rows, columns // block, block), dtype=np.uint8)
    scales = rng.uniform(0.5, 1.0, (rows, columns // block)).astype(np.float32) * np.float32(0.3 / math.sqrt(columns))
    points = rng.integers(6, 11, (rows, columns // block), dtype=np.uint8) if zero_points else np.full((rows, columns // block), 8, np.uint8)
    values = (q.astype(np.float32) - points[..., None]) * scales[..., None]
    packed = q[..., 0::2] | q[..., 1::2] << 4
    padded = np.concatenate([points, np.zeros((rows, points.shape[1] % 2), np.uint8)], axis=1)
    packed_points = padded[:, 0::2] | padded[:, 1::2] << 4
    return packed, scales, packed_points if zero_points else None, values.reshape(rows, columns).T


def make_weights(spec, seed):
    """Weights by name; matrices are [in, out]. Quantised ones are also under (name, "bits")."""
    rng = np.random.default_rng(seed)
    w = {}

    def matrix(name, rows, columns, gain=1.0):
        if spec.style == "genai":
            packed, scales, points, w[name] = quantise(rng, columns, rows, spec.zero_points)
            w[name, "bits"] = (packed, scales, points)
            return
        w[name] = (rng.standard_normal((rows, columns)) * gain / math.sqrt(rows)).astype(np.float32)

    def vector(name, size, mean=0.0, spread=0.2):
        w[name] = (mean + spread * rng.standard_normal(size)).astype(np.float32)

    def norm(name):
        vector(name, WIDTH, 1.0)
        if spec.norm == "layer":
            vector(name + ".bias", WIDTH)

    w["embed"] = rng.standard_normal((spec.vocabulary, WIDTH)).astype(np.float32)
    if spec.rotary == "none" and not spec.alibi and not spec.buckets:
        w["positions"] = rng.standard_normal((spec.context, WIDTH)).astype(np.float32)
    for i in range(LAYERS):
        norm(f"{i}.norm1")
        norm(f"{i}.norm2")
        matrix(f"{i}.q", WIDTH, HEADS * HEAD_SIZE, 1.5)
        matrix(f"{i}.k", WIDTH, spec.kv_heads * HEAD_SIZE, 1.5)
        matrix(f"{i}.v", WIDTH, spec.kv_heads * HEAD_SIZE, 2.0)
        matrix(f"{i}.o", HEADS * HEAD_SIZE, WIDTH, 2.0)
        matrix(f"{i}.up", WIDTH, HIDDEN)
        matrix(f"{i}.down", HIDDEN, WIDTH)
        if spec.mlp == "silu":
            matrix(f"{i}.gate", WIDTH, HIDDEN)
        else:
            vector(f"{i}.up.bias", HIDDEN)
            vector(f"{i}.down.bias", WIDTH)
    norm("norm")
    if not spec.tied:
        matrix("head", WIDTH, spec.vocabulary)
    if spec.buckets:
        w["buckets"] = 2 * rng.standard_normal((spec.buckets, HEADS)).astype(np.float32)
    if spec.half:
        w = {name: array.astype(np.float16).astype(np.float32) for name, array in w.items()}
    return w


# -- the oracle

def alibi_slopes():
    return np.array([2.0 ** (-4.0 * (h + 1) / HEADS) for h in range(HEADS)])


FARTHEST = 37  # distances from here on share a bucket; between powers of two, no logarithm is near a whole number


def bucket_of(spec, back):
    """T5's buckets of how far back a key is: near ones have their own, others by their logarithm."""
    exact = spec.buckets // 2
    far = exact + (np.log(np.maximum(back, 1) / exact) / math.log(FARTHEST / exact) * (spec.buckets - exact)).astype(np.int64)
    return np.where(back < exact, np.maximum(back, 0), np.minimum(far, spec.buckets - 1))


def rotate(spec, x):
    """Rotary embedding of x [heads, T, E] at positions 0 .. T-1."""
    r = spec.rotary_dim
    angle = np.arange(x.shape[1])[:, None] * 10000.0 ** (-np.arange(0, r, 2) / r)  # [T, r/2]
    c, s = np.cos(angle), np.sin(angle)
    y = x.copy()
    first, second = (slice(0, r // 2), slice(r // 2, r)) if spec.rotary == "half" else (slice(0, r, 2), slice(1, r, 2))
    y[..., first] = x[..., first] * c - x[..., second] * s
    y[..., second] = x[..., second] * c + x[..., first] * s
    return y


def forward(spec, w, ids):
    """Logits [V] after the last of `ids`, in double precision."""
    return forward_all(spec, w, ids)[-1]


def forward_all(spec, w, ids, mlp=None):
    """Logits [S, V] after each of `ids`. mlp(h, layer): instead of the spec's."""
    tokens = len(ids)

    def norm(x, name):
        if spec.norm == "layer":
            x = x - x.mean(-1, keepdims=True)
        y = x / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON) * w[name]
        return y + w[name + ".bias"] if spec.norm == "layer" else y

    def heads(x, count):
        return x.reshape(tokens, count, HEAD_SIZE).transpose(1, 0, 2)

    x = w["embed"][ids].astype(np.float64)
    if "positions" in w:
        x = x + w["positions"][:tokens]
    i, j = np.arange(tokens)[:, None], np.arange(tokens)[None, :]
    allowed = (j <= i) & ((j > i - spec.window) | (j < spec.sink) if spec.window else True)
    for n in range(LAYERS):
        h = norm(x, f"{n}.norm1")
        q, k, v = heads(h @ w[f"{n}.q"], HEADS), heads(h @ w[f"{n}.k"], spec.kv_heads), heads(h @ w[f"{n}.v"], spec.kv_heads)
        if spec.rotary != "none":
            q, k = rotate(spec, q), rotate(spec, k)
        k, v = (np.repeat(t, HEADS // spec.kv_heads, axis=0) for t in (k, v))
        scores = q @ k.transpose(0, 2, 1) / math.sqrt(HEAD_SIZE)
        if spec.softcap:
            scores = spec.softcap * np.tanh(scores / spec.softcap)
        if spec.alibi:
            scores = scores + alibi_slopes()[:, None, None] * (j - i)
        if spec.buckets:
            scores = scores + w["buckets"][bucket_of(spec, i - j)].transpose(2, 0, 1)
        scores = np.where(allowed, scores, -np.inf)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        p = p / p.sum(-1, keepdims=True)
        x = x + (p @ v).transpose(1, 0, 2).reshape(tokens, -1) @ w[f"{n}.o"]
        h = norm(x, f"{n}.norm2")
        if mlp:
            x = x + mlp(h, n)
        elif spec.mlp == "silu":
            g = h @ w[f"{n}.gate"]
            x = x + (g / (1 + np.exp(-g)) * (h @ w[f"{n}.up"])) @ w[f"{n}.down"]
        else:
            u = h @ w[f"{n}.up"] + w[f"{n}.up.bias"]
            u = 0.5 * u * (1 + np.vectorize(math.erf)(u / math.sqrt(2)))
            x = x + u @ w[f"{n}.down"] + w[f"{n}.down.bias"]
    return norm(x, "norm") @ (w["embed"].T if spec.tied else w["head"])


def greedy(spec, w, prompt, count=NEW_TOKENS):
    """The next `count` ids, and the smallest lead of a best logit over the second, relative to the logits' size."""
    ids, margin = list(prompt), math.inf
    for _ in range(count):
        logits = forward(spec, w, ids)
        order = np.argsort(logits)
        margin = min(margin, (logits[order[-1]] - logits[order[-2]]) / np.abs(logits).max())
        ids.append(int(order[-1]))
    return ids[len(prompt):], margin


def deviations(spec):
    """The same model with one feature changed: a runtime that ignores the feature gives these ids."""
    out = []
    if spec.window:
        out.append(replace(spec, window=0))
    if spec.softcap:
        out.append(replace(spec, softcap=0.0))
    if spec.alibi:
        out.append(replace(spec, alibi=False))
    if spec.buckets:
        out.append(replace(spec, buckets=0))
    if spec.rotary != "none":
        out += [replace(spec, rotary="interleaved" if spec.rotary == "half" else "half"), replace(spec, rotary="none")]
        if spec.rotary_dim != HEAD_SIZE:
            out.append(replace(spec, rotary_dim=HEAD_SIZE))
    return out


def beam_search(logits, prompt, width, count):
    """The best of `width` beams that no end token stops, and the smallest distance of a kept candidate to the next. `logits`
    gives those [V] after a list of ids."""
    beams, gap = [(0.0, list(prompt))], math.inf
    for _ in range(count):
        found = []
        for score, ids in beams:
            x = logits(ids)
            x = x - x.max()
            x = x - np.log(np.exp(x).sum())
            found += [(score + x[i], [*ids, int(i)]) for i in np.argsort(x)[-width - 1:]]
        found.sort(key=lambda b: -b[0])
        gap = min(gap, *(a[0] - b[0] for a, b in zip(found[:width], found[1:])))
        beams = found[:width]
    return beams[0][1][len(prompt):], gap


def choose_seed(spec):
    """(seed, prompt, ids) of the first weights and a prompt whose greedy ids are safe from rounding, vary, and depend on every feature of the spec."""
    safe = 2e-2 if spec.half else 2e-3
    for seed in range(1000):
        w = make_weights(spec, seed)
        prompt = [int(t) for t in np.random.default_rng(seed).integers(0, spec.vocabulary, 7)]
        ids, margin = greedy(spec, w, prompt)
        if margin < safe or len(set(ids)) < 5:
            continue
        if all(greedy(d, w, prompt)[0] != ids for d in deviations(spec)):
            return seed, prompt, ids
    raise RuntimeError(f"{spec.name}: no seed gives ids that a test can rely on")


def choose_weights(spec):
    """(weights, prompt, ids) of that seed."""
    seed, prompt, ids = choose_seed(spec)
    return make_weights(spec, seed), prompt, ids
