"""Tiny encoder-decoders with random weights, each with an oracle of its answers, and the graphs that exporters make of them.

The oracle is a plain NumPy forward pass over the whole of both sequences, without a cache; it is not made from the graphs.
Shapes in comments: E source tokens, S new tokens, P past ones, T = P + S, C width, H heads, D head size.
"""
import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from tiny_exports import MASKED, Builder, value
from tiny_models import beam_search

VOCABULARY, WIDTH, HEADS, HEAD_SIZE, HIDDEN, CONTEXT = 64, 32, 4, 8, 48, 40
START, END, BUCKETS, FAR = 2, 1, 8, 20
NEW_TOKENS, EPSILON, FEATURES = 12, 1e-5, 6
FRAMES, FRAMES_A_ROW = 100, 10  # of a spectrogram, and those whose mean is one row of the source
STRIDE = 4  # frames of an array of which the first is one row of the source
SOURCE = [5, 17, 40, 9, 33, 21, 50]


def source_of(spec, rows=8):
    """What the encoder is given: ids, or an array."""
    rows = rows * STRIDE - 1 if spec.source == "frames" else rows
    return SOURCE if spec.source == "ids" else np.random.default_rng(rows).standard_normal((1, rows, FEATURES)).astype(np.float32)


@dataclass(frozen=True)
class Spec:
    name: str
    positions: str = "learned"  # learned: a table of `context` rows for each side; relative: a bias by bucketed distance
    # merged: one If around two decoders; pair: two files; layers: an If in each layer; genai: the encoder writes the source's keys
    # and values, and a decoder without a first call of its own reads them, as onnxruntime-genai's builder names them.
    layout: str = "merged"
    predicate: str = "flag"     # layers: flag: use_cache_branch, bool [1]; number: an int64 [1]; shape: whether there is a past source
    masked: bool = True         # the decoder takes encoder_attention_mask
    returned: str = "empty"     # what the cached branch returns as the source's keys and values: empty or past
    norm: str = "layer"         # layer or rms
    # Of the encoder: ids; features: an array [1, E, FEATURES]; halves: the same, two rows become one; spectrogram: an array
    # [1, FEATURES, FRAMES], FRAMES_A_ROW frames become one row; frames: an array [1, F, FEATURES] and its mask [1, F], STRIDE
    # frames become one row, and the decoder takes the mask of the frames.
    source: str = "ids"
    # frames: how the decoder makes a mask of rows of it. stride: each STRIDEth element, as many as there are rows; count: the rows
    # that so many ones become; leftover: the first, and keys count less the more frames the last row has.
    chosen: str = "stride"
    normed: bool = False  # frames: each feature over all frames, by InstanceNormalization
    layers: int = 2
    vocabulary: int = VOCABULARY
    context: int = CONTEXT
    batch: str = "source"  # that cross-attention's keys are reshaped to: of the encoder's rows, or of the decoder's tokens (as BART's exports)


SPECS = [
    Spec("bart"),
    Spec("t5", positions="relative", norm="rms"),
    Spec("unmasked", masked=False, returned="past"),
    Spec("bart-pair", layout="pair"),
    Spec("t5-pair", layout="pair", positions="relative", norm="rms"),
    Spec("layers-flag", layout="layers", returned="past"),
    Spec("layers-number", layout="layers", predicate="number", returned="past", masked=False),
    Spec("layers-shape", layout="layers", predicate="shape", returned="past"),
    Spec("layers-t5", layout="layers", positions="relative", returned="past", norm="rms"),
    Spec("features", source="features", masked=False),
    Spec("halves", source="halves", masked=False, positions="relative", norm="rms"),
    Spec("three", layers=3, batch="tokens"),
    Spec("three-pair", layers=3, batch="tokens", layout="pair"),
    Spec("frames", source="frames"),
    Spec("frames-count", source="frames", chosen="count", positions="relative", norm="rms", normed=True),
]
SPEECH = Spec("speech", source="spectrogram", masked=False)


# -- weights

def make_weights(spec, seed):
    """By name; matrices are [in, out]."""
    rng = np.random.default_rng(seed)
    w = {"embed": rng.standard_normal((spec.vocabulary, WIDTH)), "head": rng.standard_normal((WIDTH, spec.vocabulary)) / math.sqrt(WIDTH)}
    width = {"features": FEATURES, "halves": 2 * FEATURES, "spectrogram": FEATURES, "frames": FEATURES}.get(spec.source)
    if width:
        w["encoder.features"] = rng.standard_normal((width, WIDTH)) / math.sqrt(width)
    for side in ("encoder", "decoder"):
        w[f"{side}.positions"] = rng.standard_normal((spec.context, WIDTH))
        w[f"{side}.bias"] = 2 * rng.standard_normal((BUCKETS, HEADS))
        for i in range(spec.layers):
            for part in ("self", "cross")[:1 + (side == "decoder")]:
                for matrix, gain in (("q", 1.5), ("k", 1.5), ("v", 2), ("o", 2)):
                    w[f"{side}.{i}.{part}.{matrix}"] = rng.standard_normal((WIDTH, WIDTH)) * gain / math.sqrt(WIDTH)
                w[f"{side}.{i}.{part}.norm"] = 1 + 0.2 * rng.standard_normal(WIDTH)
            w[f"{side}.{i}.up"] = rng.standard_normal((WIDTH, HIDDEN)) / math.sqrt(WIDTH)
            w[f"{side}.{i}.down"] = rng.standard_normal((HIDDEN, WIDTH)) / math.sqrt(HIDDEN)
            w[f"{side}.{i}.norm"] = 1 + 0.2 * rng.standard_normal(WIDTH)
        w[f"{side}.norm"] = 1 + 0.2 * rng.standard_normal(WIDTH)
    if spec.normed:
        w["encoder.scale"], w["encoder.shift"] = 1 + 0.5 * rng.standard_normal(FEATURES), rng.standard_normal(FEATURES)
    return {name: array.astype(np.float32) for name, array in w.items()}


# -- the oracle

def norm(spec, w, x, name):
    x = x - x.mean(-1, keepdims=True) if spec.norm == "layer" else x
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON) * w[name]


def bucket(distance, both_ways):
    """T5's bucket of key position - query position: half of them exact, the others by the logarithm up to FAR."""
    buckets, base = BUCKETS, 0
    if both_ways:
        buckets //= 2
        base = buckets * (distance > 0)
        distance = abs(distance)
    else:
        distance = max(-distance, 0)
    exact = buckets // 2
    if distance < exact:
        return base + distance
    return base + min(exact + int(math.log(distance / exact) / math.log(FAR / exact) * (buckets - exact)), buckets - 1)


def bias(spec, w, side, queries, keys):
    """[H, queries, keys] for positions from 0 on; 0 where positions are in a table."""
    if spec.positions != "relative":
        return np.zeros((HEADS, queries, keys))
    b = np.array([[bucket(k - q, side == "encoder") for k in range(keys)] for q in range(queries)])
    return w[f"{side}.bias"][b].transpose(2, 0, 1)


def attend(w, x, memory, prefix, added, seen=None):
    q, k, v = ((y @ w[f"{prefix}.{m}"]).reshape(len(y), HEADS, HEAD_SIZE).transpose(1, 0, 2) for m, y in (("q", x), ("k", memory), ("v", memory)))
    s = q @ k.transpose(0, 2, 1) / math.sqrt(HEAD_SIZE) + added
    p = np.exp(s - s.max(-1, keepdims=True))
    p = p / p.sum(-1, keepdims=True)
    if seen is not None:
        seen.append(p)
    y = p @ v
    return y.transpose(1, 0, 2).reshape(len(x), WIDTH) @ w[f"{prefix}.o"]


def forward(spec, w, side, given, memory=None, seen=None):
    """[rows, C] after the last norm. seen: takes each layer's weights of cross-attention, [H, rows, E]."""
    if side == "decoder" or spec.source == "ids":
        x = w["embed"][given].astype(np.float64)
    elif spec.source == "spectrogram":
        x = given.astype(np.float64).reshape(FEATURES, -1, FRAMES_A_ROW).mean(-1).T @ w["encoder.features"]
    elif spec.source == "frames":
        x = given.astype(np.float64)[0]
        if spec.normed:
            x = (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-3) * w["encoder.scale"] + w["encoder.shift"]
        x = x[::STRIDE] @ w["encoder.features"]
    else:
        x = given.astype(np.float64).reshape(-1, w["encoder.features"].shape[0]) @ w["encoder.features"]
    if spec.positions == "learned":
        x = x + w[f"{side}.positions"][:len(x)]
    added = bias(spec, w, side, len(x), len(x))
    if side == "decoder":
        added = np.where(np.tri(len(x), dtype=bool), added, -np.inf)
    for i in range(spec.layers):
        h = norm(spec, w, x, f"{side}.{i}.self.norm")
        x = x + attend(w, h, h, f"{side}.{i}.self", added)
        if memory is not None:
            x = x + attend(w, norm(spec, w, x, f"{side}.{i}.cross.norm"), memory, f"{side}.{i}.cross", 0, seen)
        x = x + np.maximum(norm(spec, w, x, f"{side}.{i}.norm") @ w[f"{side}.{i}.up"], 0) @ w[f"{side}.{i}.down"]
    return norm(spec, w, x, f"{side}.norm")


class Oracle:
    def __init__(self, spec, w, seed=None):
        self.spec, self.w, self.seed = spec, w, seed

    def logits(self, source, ids):
        """[V] after the last of ids."""
        return forward(self.spec, self.w, "decoder", ids, forward(self.spec, self.w, "encoder", source))[-1] @ self.w["head"]

    def greedy(self, source, prompt=(START,), count=NEW_TOKENS):
        """The ids after the prompt, and the smallest distance of the two best logits."""
        ids, margin = list(prompt), np.inf
        for _ in range(count):
            scores = self.logits(source, ids)
            last, best = np.sort(scores)[-2:]
            margin = min(margin, best - last)
            ids.append(int(scores.argmax()))
        return ids[len(prompt):], margin

    def beams(self, source, width, prompt=(START,), count=NEW_TOKENS):
        """The best of `width` beams that no end token stops, and the smallest distance of a kept candidate to the next."""
        return beam_search(lambda ids: self.logits(source, ids), prompt, width, count)


def choose_weights(spec):
    """The first weights by which greedy answers and beams are clear, differ, and hang on the order of the source."""
    for seed in range(200):
        oracle = Oracle(spec, make_weights(spec, seed), seed)
        source = source_of(spec)
        ids, margin = oracle.greedy(source)
        beams, gap = oracle.beams(source, 3)
        other, other_margin = oracle.greedy(SOURCE[::-1] if spec.source == "ids" else source[:, ::-1])
        if min(margin, other_margin, gap) > 5e-3 and len(set(ids)) > 4 and ids != beams and ids != other:
            return oracle
    raise AssertionError(f"{spec.name}: no weights give clear answers")


# -- graphs

class Graph(Builder):
    """One graph, or a branch that is written into its enclosing graph. `prefix` keeps the names of two branches apart."""

    def __init__(self, spec, w, outer=None, prefix=""):
        super().__init__()
        self.spec, self.w, self.prefix = spec, w, prefix
        if outer:
            self.initializers = outer.initializers

    def op(self, op, *inputs, **attributes):
        attributes.setdefault("name", f"/{self.prefix}{op}_{self.count}")
        return super().op(op, *inputs, **attributes)

    def weight(self, name):
        return super().weight(name, self.w[name])

    def norm(self, x, name):
        if self.spec.norm == "layer":
            x = self.op("Sub", x, self.op("ReduceMean", x, axes=[-1]))
        mean = self.op("ReduceMean", self.op("Mul", x, x), axes=[-1])
        return self.op("Mul", self.op("Div", x, self.op("Sqrt", self.op("Add", mean, self.f32(EPSILON)))), self.weight(name))

    def heads(self, x, name, out=None, batch=None):
        """[1, rows, C] -> [1, H, rows, D] of the product with a weight; `batch`: the value whose first extent is taken for the 1."""
        y = self.op("Reshape", self.op("MatMul", x, self.weight(name)), self.shape(self.extent(batch or x, 0), self.extent(x, 1), HEADS, HEAD_SIZE))
        return self.op("Transpose", y, perm=[0, 2, 1, 3], out=out)

    def attend(self, q, k, v, added, name):
        s = self.op("MatMul", q, self.op("Transpose", k, perm=[0, 1, 3, 2]))
        s = self.op("Mul", s, self.f32(1 / math.sqrt(HEAD_SIZE)))
        y = self.op("MatMul", self.op("Softmax", self.op("Add", s, added) if added else s, axis=-1), v)
        y = self.op("Transpose", y, perm=[0, 2, 1, 3])
        y = self.op("Reshape", y, self.shape(self.extent(y, 0), self.extent(y, 1), WIDTH))
        return self.op("MatMul", y, self.weight(name))

    def mlp(self, x, i):
        up = self.op("Relu", self.op("MatMul", self.norm(x, f"{i}.norm"), self.weight(f"{i}.up")))
        return self.op("MatMul", up, self.weight(f"{i}.down"))

    def range(self, begin, end):
        return self.op("Range", begin, end, self.constant(1))

    def every(self, x, axis, step, end=2**62):
        end = end if isinstance(end, str) else self.constant([end])
        return self.op("Slice", x, self.constant([0]), end, self.constant([axis]), self.constant([step]))

    def mask_of_rows(self, mask):
        """[1, E] of a mask [1, F] of frames."""
        rows = self.op("Unsqueeze", self.extent("encoder_hidden_states", 1), self.constant([0]))
        if self.spec.chosen != "count":
            return self.every(self.every(mask, 1, STRIDE), 1, 1, rows)
        ones = self.op("ReduceSum", mask, self.constant([1]))
        shown = self.op("Add", self.op("Div", self.op("Sub", ones, self.constant([1])), self.constant([STRIDE])), self.constant([1]))
        places = self.op("Unsqueeze", self.range(self.constant(0), self.extent("encoder_hidden_states", 1)), self.constant([0]))
        return self.op("Cast", self.op("Less", places, shown), to=TensorProto.INT64)

    def across(self):
        """What is added to the scores of cross-attention."""
        if not self.spec.masked:
            return None
        if self.spec.source != "frames":
            return self.hidden("encoder_attention_mask")
        added = self.hidden(self.mask_of_rows("encoder_attention_mask"))
        if self.spec.chosen == "leftover":
            frames = self.op("Mod", self.extent("encoder_attention_mask", 1), self.constant(STRIDE))
            keys = self.range(self.constant(0), self.extent("encoder_hidden_states", 1))
            added = self.op("Add", added, self.op("Cast", self.op("Mul", frames, keys), to=TensorProto.FLOAT))
        return added

    def hidden(self, mask):
        """1 -> 0, 0 -> the least float: [1, 1, 1, E] of a mask [1, E]."""
        m = self.op("Cast", self.op("Unsqueeze", mask, self.constant([1, 2])), to=TensorProto.FLOAT)
        return self.op("Mul", self.op("Sub", self.f32(1), m), self.f32(MASKED))

    def bias(self, side, queries, keys):
        """[1, H, queries, keys] as T5 writes it; queries and keys are positions [S] and [T]."""
        distance = self.op("Sub", self.op("Unsqueeze", keys, self.constant([0])), self.op("Unsqueeze", queries, self.constant([1])))
        buckets, base = BUCKETS, None
        if side == "encoder":
            buckets //= 2
            right = self.op("Cast", self.op("Greater", distance, self.constant(0)), to=TensorProto.INT64)
            base, distance = self.op("Mul", right, self.constant(buckets)), self.op("Abs", distance)
        else:
            distance = self.op("Neg", self.op("Min", distance, self.constant(0)))
        exact = buckets // 2
        ratio = self.op("Div", self.op("Cast", distance, to=TensorProto.FLOAT), self.f32(exact))
        steps = self.op("Mul", self.op("Div", self.op("Log", ratio), self.f32(math.log(FAR / exact))), self.f32(buckets - exact))
        far = self.op("Min", self.op("Add", self.op("Cast", steps, to=TensorProto.INT64), self.constant(exact)), self.constant(buckets - 1))
        found = self.op("Where", self.op("Less", distance, self.constant(exact)), distance, far)
        found = self.op("Add", base, found) if base else found
        table = self.op("Gather", self.weight(f"{side}.bias"), found)  # [S, T, H]
        return self.op("Unsqueeze", self.op("Transpose", table, perm=[2, 0, 1]), self.constant([0]))

    # -- the two sides

    def embedded(self):
        """[1, E, C] and the mask [1, 1, 1, E] of a source; arrays have none."""
        if self.spec.source == "ids":
            return self.op("Gather", self.weight("embed"), "input_ids"), self.hidden("attention_mask")
        x = "input_features"
        if self.spec.source == "halves":
            x = self.op("Reshape", x, self.shape(self.extent(x, 0), -1, 2 * FEATURES))
        if self.spec.source == "spectrogram":
            x = self.op("Reshape", x, self.shape(self.extent(x, 0), FEATURES, FRAMES // FRAMES_A_ROW, FRAMES_A_ROW))
            x = self.op("Transpose", self.op("ReduceMean", x, axes=[-1], keepdims=0), perm=[0, 2, 1])
        if self.spec.normed:
            x = self.op("InstanceNormalization", self.op("Transpose", x, perm=[0, 2, 1]), self.weight("encoder.scale"), self.weight("encoder.shift"), epsilon=1e-3)
            x = self.op("Transpose", x, perm=[0, 2, 1])
        if self.spec.source == "frames":
            return self.op("MatMul", self.every(x, 1, STRIDE), self.weight("encoder.features")), self.hidden(self.every("attention_mask", 1, STRIDE))
        return self.op("MatMul", x, self.weight("encoder.features")), None

    def encoder(self):
        x, added = self.embedded()
        places = self.range(self.constant(0), self.extent(x, 1))
        if self.spec.positions == "learned":
            x = self.op("Add", x, self.op("Gather", self.weight("encoder.positions"), places))
        else:
            bias = self.bias("encoder", places, places)
            added = self.op("Add", bias, added) if added else bias
        for i in range(self.spec.layers):
            h = self.norm(x, f"encoder.{i}.self.norm")
            q, k, v = (self.heads(h, f"encoder.{i}.self.{m}") for m in "qkv")
            x = self.op("Add", x, self.attend(q, k, v, added, f"encoder.{i}.self.o"))
            x = self.op("Add", x, self.mlp(x, f"encoder.{i}"))
        y = self.norm(x, "encoder.norm")
        self.nodes[-1].output[0] = "last_hidden_state"
        return y

    def decoder(self, past, source):
        """past: whether keys and values go after past ones. source(graph, layer): the source's keys and values.
        Writes the logits and each layer's own presents; names end in what `prefix` says."""
        rows = self.extent("input_ids", 1)
        begin = self.extent("past_key_values.0.decoder.key", 2) if past else self.constant(0)
        total = self.op("Add", begin, rows)
        queries, keys = self.range(begin, total), self.range(self.constant(0), total)
        seen = self.op("LessOrEqual", self.op("Unsqueeze", keys, self.constant([0])), self.op("Unsqueeze", queries, self.constant([1])))
        added = self.op("Where", seen, self.f32(0), self.f32(MASKED))
        x = self.op("Gather", self.weight("embed"), "input_ids")
        if self.spec.positions == "learned":
            x = self.op("Add", x, self.op("Gather", self.weight("decoder.positions"), queries))
        else:
            added = self.op("Add", self.bias("decoder", queries, keys), added)
        across = self.across()
        for i in range(self.spec.layers):
            h = self.norm(x, f"decoder.{i}.self.norm")
            q = self.heads(h, f"decoder.{i}.self.q")
            k, v = (self.own(h, i, part, past) for part in ("key", "value"))
            x = self.op("Add", x, self.attend(q, k, v, added, f"decoder.{i}.self.o"))
            self.tokens = self.norm(x, f"decoder.{i}.cross.norm")
            q = self.heads(self.tokens, f"decoder.{i}.cross.q")
            x = self.op("Add", x, self.attend(q, *source(self, i), across, f"decoder.{i}.cross.o"))
            x = self.op("Add", x, self.mlp(x, f"decoder.{i}"))
        self.op("MatMul", self.norm(x, "decoder.norm"), self.weight("head"), out=self.prefix + "logits")

    def own(self, h, i, part, past):
        name, present = f"decoder.{i}.self.{part[0]}", f"{self.prefix}present.{i}.decoder.{part}"
        if not past:
            return self.heads(h, name, out=present)
        return self.op("Concat", f"past_key_values.{i}.decoder.{part}", self.heads(h, name), axis=2, out=present)


def computed(g, i):
    """The source's keys and values, out of the encoder's rows."""
    batch = g.tokens if g.spec.batch == "tokens" else None
    return [g.heads("encoder_hidden_states", f"decoder.{i}.cross.{part[0]}", f"{g.prefix}present.{i}.encoder.{part}", batch) for part in ("key", "value")]


def kept(g, i):
    return [f"past_key_values.{i}.encoder.{part}" for part in ("key", "value")]


def parts(spec):
    return [(i, part) for i in range(spec.layers) for part in ("key", "value")]


def rows(side, i, part, time, length):
    return value(f"{time}.{i}.{side}.{part}", ["batch_size", HEADS, length, HEAD_SIZE])


def decoder_inputs(spec, hidden, past, flag=None):
    inputs = [value("input_ids", ["batch_size", "decoder_sequence_length"], TensorProto.INT64)]
    if spec.masked:
        inputs.append(value("encoder_attention_mask", ["batch_size", "encoder_sequence_length"], TensorProto.INT64))
    if hidden:
        inputs.append(value("encoder_hidden_states", ["batch_size", "encoder_sequence_length", WIDTH]))
    if past:
        length = "encoder_sequence_length" if spec.layout != "layers" else "past_encoder_sequence_length"
        for i, part in parts(spec):
            inputs += [rows("decoder", i, part, "past_key_values", "past_decoder_sequence_length"), rows("encoder", i, part, "past_key_values", length)]
    return inputs + ([flag] if flag else [])


def presents(spec, encoder=True, prefix=""):
    """The outputs of a decoder in one order: logits, own rows, the source's rows."""
    out = [value(prefix + "logits", ["batch_size", "decoder_sequence_length", spec.vocabulary])]
    out += [rows("decoder", i, part, prefix + "present", "past_decoder_sequence_length + decoder_sequence_length") for i, part in parts(spec)]
    return out + ([rows("encoder", i, part, prefix + "present", "encoder_sequence_length") for i, part in parts(spec)] if encoder else [])


def model_of(g, inputs, outputs):
    graph = helper.make_graph(g.nodes, "main_graph", inputs, outputs, g.initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="pytorch")


def encoder_interface(spec):
    """Its inputs and outputs."""
    dims = ["batch_size", "encoder_sequence_length"]
    if spec.source == "frames":  # the name of the rows is that of the frames, as exporters have it
        inputs = [value("input_features", [*dims, FEATURES]), value("attention_mask", dims, TensorProto.INT64)]
        dims = ["batch_size", "rows"]
    elif spec.source == "ids":
        inputs = [value(n, dims, TensorProto.INT64) for n in ("input_ids", "attention_mask")]
    elif spec.source == "spectrogram":
        inputs, dims = [value("input_features", ["batch_size", FEATURES, FRAMES])], ["batch_size", FRAMES // FRAMES_A_ROW]
    else:
        inputs = [value("input_features", ["batch_size", "feature_rows", FEATURES])]
    return inputs, [value("last_hidden_state", [*dims, WIDTH])]


def encoder_model(spec, w):
    g = Graph(spec, w)
    g.encoder()
    return model_of(g, *encoder_interface(spec))


def branch(outer, name, write):
    g = Graph(outer.spec, outer.w, outer, name + "/")
    write(g)
    return helper.make_graph(g.nodes, name, [], presents(outer.spec, prefix=name + "/"))


def merged_model(spec, w):
    """decoder_model_merged.onnx as Optimum merges it."""
    def cached(g):
        g.decoder(True, kept)
        for i, part in parts(spec):
            out = f"{g.prefix}present.{i}.encoder.{part}"
            if spec.returned == "empty":
                g.op("Constant", value=helper.make_tensor("none", TensorProto.FLOAT, [0, HEADS, 1, HEAD_SIZE], []), out=out)
            else:
                g.op("Identity", f"past_key_values.{i}.encoder.{part}", out=out)
    outer = Graph(spec, w)
    outputs = presents(spec)
    outer.op("If", "use_cache_branch", out=[o.name for o in outputs], name="optimum::if",
             then_branch=branch(outer, "cached", cached), else_branch=branch(outer, "first", lambda g: g.decoder(False, computed)))
    return model_of(outer, decoder_inputs(spec, True, True, value("use_cache_branch", [1], TensorProto.BOOL)), outputs)


def pair_models(spec, w):
    """decoder_model.onnx and decoder_with_past_model.onnx."""
    first, cached = Graph(spec, w), Graph(spec, w)
    first.decoder(False, computed)
    cached.decoder(True, kept)
    return model_of(first, decoder_inputs(spec, True, False), presents(spec)), model_of(cached, decoder_inputs(spec, False, True), presents(spec, False))


def layers_model(spec, w):
    """One decoder; an If in each layer computes the source's keys and values or hands the past ones on, as torch.cond leaves it."""
    g = Graph(spec, w)
    flag = {"flag": value("use_cache_branch", [1], TensorProto.BOOL), "number": value("cache_is_there", [1], TensorProto.INT64), "shape": None}[spec.predicate]
    if spec.predicate == "flag":
        wanted = g.op("Not", "use_cache_branch")
    elif spec.predicate == "number":
        wanted = g.op("Equal", "cache_is_there", g.constant([0]))
    else:
        wanted = g.op("Equal", g.extent("past_key_values.0.encoder.key", 2), g.constant(0))

    def source(outer, i):
        names = [f"present.{i}.encoder.{part}" for part in ("key", "value")]
        new, old = Graph(spec, w, outer, f"new{i}/"), Graph(spec, w, outer, f"old{i}/")
        computed(new, i)
        for part, past in zip(("key", "value"), kept(old, i)):
            old.op("Identity", past, out=f"old{i}/present.{i}.encoder.{part}")
        then, other = (helper.make_graph(b.nodes, b.prefix, [], [rows("encoder", i, part, b.prefix + "present", None) for part in ("key", "value")]) for b in (new, old))
        return outer.op("If", wanted, out=names, name=f"/decoder/{i}/cond", then_branch=then, else_branch=other)

    g.decoder(True, source)
    return model_of(g, decoder_inputs(spec, True, True, flag), presents(spec))


def renamed(model, names):
    """The model with other names of values."""
    graph = model.graph
    for v in [*graph.input, *graph.output]:
        v.name = names.get(v.name, v.name)
    for node in graph.node:
        for side in (node.input, node.output):
            side[:] = [names.get(name, name) for name in side]
    return model


def genai_models(spec, w):
    """encoder.onnx and decoder.onnx."""
    encoder, decoder = Graph(spec, w), Graph(spec, w)
    encoder.encoder()
    for i, part in parts(spec):
        encoder.heads("last_hidden_state", f"decoder.{i}.cross.{part[0]}", f"present.{i}.encoder.{part}")
    inputs, outputs = encoder_interface(spec)
    encoder = model_of(encoder, inputs, outputs + [rows("encoder", i, part, "present", outputs[0].type.tensor_type.shape.dim[1].dim_value) for i, part in parts(spec)])
    decoder.decoder(True, kept)
    decoder = model_of(decoder, decoder_inputs(spec, False, True), presents(spec, False))
    decoder.graph.input[0].type.tensor_type.elem_type = TensorProto.INT32
    names = {"input_features": "audio_features", "last_hidden_state": "hidden_states"}
    for i, part in parts(spec):
        for side, kind in (("decoder", "self"), ("encoder", "cross")):
            names |= {f"past_key_values.{i}.{side}.{part}": f"past_{part}_{kind}_{i}", f"present.{i}.{side}.{part}": f"present_{part}_{kind}_{i}"}
    return renamed(encoder, names), renamed(decoder, names)


def genai_config(spec):
    return {"model": {"type": "whisper", "context_length": spec.context, "eos_token_id": END, "vocab_size": spec.vocabulary,
                      "encoder": {"filename": "encoder.onnx", "inputs": {"audio_features": "audio_features"},
                                  "outputs": {"encoder_hidden_states": "hidden_states", "cross_present_key_names": "present_key_cross_%d", "cross_present_value_names": "present_value_cross_%d"}},
                      "decoder": {"filename": "decoder.onnx", "num_hidden_layers": spec.layers,
                                  "inputs": {"input_ids": "input_ids", "past_key_names": "past_key_self_%d", "past_value_names": "past_value_self_%d",
                                             "cross_past_key_names": "past_key_cross_%d", "cross_past_value_names": "past_value_cross_%d"},
                                  "outputs": {"logits": "logits", "present_key_names": "present_key_self_%d", "present_value_names": "present_value_self_%d"}}},
            "search": {"max_length": spec.context, "past_present_share_buffer": False}}


def files_of(spec, w):
    """{file name: model} of the folder."""
    if spec.layout == "genai":
        return dict(zip(("encoder.onnx", "decoder.onnx"), genai_models(spec, w)))
    files = {"encoder_model.onnx": encoder_model(spec, w)}
    if spec.layout == "pair":
        files["decoder_model.onnx"], files["decoder_with_past_model.onnx"] = pair_models(spec, w)
    else:
        files["decoder_model_merged.onnx"] = merged_model(spec, w) if spec.layout == "merged" else layers_model(spec, w)
    return files


def config(spec):
    return {"is_encoder_decoder": True, "vocab_size": spec.vocabulary, "max_position_embeddings": spec.context, "decoder_start_token_id": START, "eos_token_id": END}


def write_folder(folder, files, settings, name="config.json"):
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for file, model in files.items():
        onnx.save(model, folder / file)
    (folder / name).write_text(json.dumps(settings))
    return folder
