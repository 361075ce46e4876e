"""Tiny models that see pictures, with random weights: a lookup of embeddings, an encoder of pictures and a decoder of embeddings,
as transformers.js lays them out, and the oracle of their answers.

The oracle is a plain NumPy forward pass over the whole prompt, without a cache; it is not made from the graphs.
Shapes in comments: B batch, S new tokens, P past ones, T = P + S, C width, H heads, D head size, N pictures.
"""
import json
import math
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper

from tiny_exports import MASKED, Builder, value

VOCABULARY, WIDTH, HEADS, SIZE, LAYERS, HIDDEN, CONTEXT = 64, 32, 4, 8, 2, 48, 96
IMAGE, NEW_TOKENS, EPSILON = 60, 10, 1e-5  # IMAGE: the token that stands for a row
PATCH, ROWS, MERGE, SIDE = 6, 4, 2, 4               # numbers of a patch, patches of a fixed picture, patches of a side that become one row
SECTIONS = [1, 2, 1]                       # columns of the rotary table by row of positions


@dataclass(frozen=True)
class Spec:
    name: str
    # What the encoder takes. fixed: pixels [N, ROWS, PATCH]; tiles: pixels [1, N, ROWS, PATCH], of which those that are all zero
    # are dropped, and a mask [1, N] whose zeros mute a tile; grid: pixels [patches, PATCH] and grids [N, 3] of int64; shuffle: pixels
    # [N, SIDE * SIDE, PATCH], of which 2 x 2 patches become one row (pixel shuffle, as SmolVLM has it).
    takes: str = "fixed"
    # What the encoder ends with: a product, a norm, or an order of rows that the grid tells; scan: a product, and a loop over pictures tells places.
    last: str = "product"
    three: bool = False    # positions of three rows
    fused: bool = False    # by MRotaryEmbedding
    alternate: bool = False  # columns of the rows of positions take turns
    layered: bool = False  # the lookup also gives rows for each layer, as Gemma 3n has it
    vocabulary: int = VOCABULARY
    image: int = IMAGE
    context: int = CONTEXT


SPECS = [Spec("fixed"), Spec("layered", layered=True), Spec("normed", last="norm"), Spec("tiles", takes="tiles"), Spec("shuffle", takes="shuffle"), Spec("grid", takes="grid", three=True), Spec("ordered", takes="grid", three=True, last="order"), Spec("scanned", takes="grid", three=True, last="scan"),
         Spec("fused", takes="grid", three=True, fused=True), Spec("alternate", takes="grid", three=True, fused=True, alternate=True)]


def make_weights(seed, vocabulary=VOCABULARY):
    rng = np.random.default_rng(seed)
    w = {"embed": rng.standard_normal((vocabulary, WIDTH)), "head": rng.standard_normal((WIDTH, vocabulary)) / math.sqrt(WIDTH),
         "norm": 1 + 0.2 * rng.standard_normal(WIDTH)}
    for i in range(LAYERS):
        for name, gain in (("q", 1.5), ("k", 1.5), ("v", 2), ("o", 2)):
            w[f"{i}.{name}"] = rng.standard_normal((WIDTH, WIDTH)) * gain / math.sqrt(WIDTH)
        w[f"{i}.up"], w[f"{i}.down"] = rng.standard_normal((WIDTH, HIDDEN)) / math.sqrt(WIDTH), rng.standard_normal((HIDDEN, WIDTH)) / math.sqrt(HIDDEN)
        w[f"{i}.norm1"], w[f"{i}.norm2"] = 1 + 0.2 * rng.standard_normal(WIDTH), 1 + 0.2 * rng.standard_normal(WIDTH)
    w["pixels"], w["pixels.bias"] = rng.standard_normal((PATCH, WIDTH)) / math.sqrt(PATCH), rng.standard_normal(WIDTH)
    for name, width in (("rows", WIDTH), ("merged", MERGE * MERGE * WIDTH)):
        w[name], w[name + ".bias"] = 2 * rng.standard_normal((width, WIDTH)) / math.sqrt(width), rng.standard_normal(WIDTH)
    w["rows.norm"] = 1 + 0.2 * rng.standard_normal(WIDTH)
    w["layered"] = 0.5 * rng.standard_normal((vocabulary, LAYERS * WIDTH))
    return {name: array.astype(np.float32) for name, array in w.items()}


# -- the oracle

def rms(w, x, name):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON) * w[name]


def encode(spec, w, arrays):
    """[rows, C] of the pictures."""
    x = arrays["pixel_values"].astype(np.float64)
    if spec.takes == "tiles":
        kept = (x[0] != 0).any(axis=(1, 2))
        x = x[0][kept] * arrays["pixel_mask"][0][kept][:, None, None]
    h = np.tanh(x @ w["pixels"] + w["pixels.bias"])
    if spec.takes == "shuffle":
        h = rms(w, h, "rows.norm")
        h = h.reshape(len(x), SIDE // MERGE, MERGE, SIDE // MERGE, MERGE, WIDTH).transpose(0, 1, 3, 2, 4, 5)
        return h.reshape(-1, MERGE * MERGE * WIDTH) @ w["merged"] + w["merged.bias"]
    if spec.takes == "grid":
        patches = int(arrays["grid_thw"].prod(1).sum())
        h = h + np.cos(0.3 * np.arange(patches))[:, None]
        rows = h.reshape(-1, MERGE * MERGE * WIDTH) @ w["merged"] + w["merged.bias"]
        return rows[::-1] if spec.last == "order" else rows
    rows = (h @ w["rows"] + w["rows.bias"]).reshape(-1, WIDTH)
    return rms(w, rows, "rows.norm") if spec.last == "norm" else rows


def positions_of(spec, ids, arrays):
    """[3, S]: equal rows, but for pictures with a grid."""
    grids, rows, next_one, i = list(arrays.get("grid_thw", ())), [], 0, 0
    while i < len(ids):
        if spec.three and ids[i] == spec.image and grids:
            t, h, w = grids.pop(0) // [1, MERGE, MERGE]
            rows += [[next_one + f, next_one + y, next_one + x] for f in range(t) for y in range(h) for x in range(w)]
            next_one, i = next_one + max(t, h, w), i + t * h * w
        else:
            rows.append([next_one] * 3)
            next_one, i = next_one + 1, i + 1
    return np.array(rows).T


def logits(spec, w, ids, features, arrays, prompt):
    """[V] after the last of ids, whose first `prompt` hold the pictures."""
    x = w["embed"][ids].astype(np.float64)
    places = [i for i in range(prompt) if ids[i] == spec.image]
    assert len(places) == len(features)
    x[places] = features
    at = positions_of(spec, ids[:prompt], arrays)
    rest = np.arange(len(ids) - prompt) + (at.max() + 1)
    at = np.concatenate([at, np.tile(rest, (3, 1))], axis=1)
    row_of = np.repeat(np.arange(3), SECTIONS) if spec.three else np.zeros(SIZE // 2, int)
    if spec.alternate:
        row_of = np.array([c % 3 if c < 3 * SECTIONS[c % 3] else 0 for c in range(SIZE // 2)])
    angle = at[row_of].T * 100.0 ** (-np.arange(SIZE // 2) / (SIZE // 2))  # [S, D/2]
    cos, sin = (np.tile(f(angle), (1, 2))[None] for f in (np.cos, np.sin))
    def turn(y):
        a, b = np.split(y, 2, -1)
        return y * cos + np.concatenate([-b, a], -1) * sin
    shown = np.tri(len(ids), dtype=bool)
    for i in range(LAYERS):
        h = rms(w, x, f"{i}.norm1")
        q, k, v = ((h @ w[f"{i}.{m}"]).reshape(len(ids), HEADS, SIZE).transpose(1, 0, 2) for m in "qkv")
        s = np.where(shown, turn(q) @ turn(k).transpose(0, 2, 1) / math.sqrt(SIZE), -np.inf)
        p = np.exp(s - s.max(-1, keepdims=True))
        y = p / p.sum(-1, keepdims=True) @ v
        x = x + y.transpose(1, 0, 2).reshape(len(ids), WIDTH) @ w[f"{i}.o"]
        x = x + np.maximum(rms(w, x, f"{i}.norm2") @ w[f"{i}.up"], 0) @ w[f"{i}.down"]
        if spec.layered:
            x = x + w["layered"][ids, i * WIDTH:(i + 1) * WIDTH]
    return rms(w, x, "norm")[-1] @ w["head"]


def greedy(spec, w, ids, arrays, count=NEW_TOKENS, features=None):
    """The ids after the prompt, and the smallest distance of the two best logits. `features`: rows, if they are known."""
    if features is None:
        features = encode(spec, w, arrays) if arrays else np.zeros((0, WIDTH))
    all_ids, margin = list(ids), np.inf
    for _ in range(count):
        scores = logits(spec, w, all_ids, features, arrays, len(ids))
        last, best = np.sort(scores)[-2:]
        margin = min(margin, best - last)
        all_ids.append(int(scores.argmax()))
    return all_ids[len(ids):], margin


# -- graphs

class Graph(Builder):
    def __init__(self, w):
        super().__init__()
        self.w = w

    def matrix(self, name):
        return self.weight(name, self.w[name])

    def linear(self, x, name):
        return self.op("Add", self.op("MatMul", x, self.matrix(name)), self.matrix(name + ".bias"))

    def norm(self, x, name, out=None):
        mean = self.op("ReduceMean", self.op("Mul", x, x), axes=[-1])
        return self.op("Mul", self.op("Div", x, self.op("Sqrt", self.op("Add", mean, self.f32(EPSILON)))), self.matrix(name), out=out)

    def model(self, inputs, outputs):
        graph = helper.make_graph(self.nodes, "main_graph", inputs, outputs, self.initializers)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14), helper.make_opsetid("com.microsoft", 1)], ir_version=8, producer_name="pytorch")


def lookup_model(spec, w):
    g, at = Graph(w), ["batch_size", "sequence_length"]
    g.op("Gather", g.matrix("embed"), "input_ids", out="inputs_embeds")
    outputs = [value("inputs_embeds", [*at, WIDTH])]
    if spec.layered:
        g.op("Reshape", g.op("Gather", g.matrix("layered"), "input_ids"), g.constant([0, 0, LAYERS, WIDTH]), out="per_layer_inputs")
        outputs.append(value("per_layer_inputs", [*at, LAYERS, WIDTH]))
    return g.model([value("input_ids", at, TensorProto.INT64)], outputs)


MERGES = ["scatter", "where"]


def merging_model(w, how="scatter", wrong=""):
    """A lookup that also writes the rows of pictures at their tokens, as onnxruntime-genai's embedding.onnx does. how: as torch exports
    x[mask] = rows, or masked_scatter without data-dependent shapes. wrong: "added", "reversed" or "shifted", what no merge does."""
    g = Graph(w)
    x = g.op("Gather", g.matrix("embed"), "input_ids")
    mask, rows = g.op("Equal", "input_ids", g.constant(IMAGE)), "image_features"
    if wrong == "reversed":
        rows = g.op("Slice", rows, g.constant([-1]), g.constant([-1000]), g.constant([0]), g.constant([-1]))
    if how == "scatter":
        places = g.op("Transpose", g.op("NonZero", mask), perm=[1, 0])
        if wrong == "added":
            rows = g.op("Add", rows, g.op("GatherND", x, places))
        g.op("ScatterND", x, places, rows, out="inputs_embeds")
    else:
        row = g.op("Sub", g.op("CumSum", g.op("Cast", mask, to=TensorProto.INT64), g.constant(1)), g.constant(0 if wrong == "shifted" else 1))
        # A row more, so that a text without pictures has one to point at.
        padded = g.op("Concat", rows, g.weight("nothing", np.zeros((1, WIDTH), np.float32)), axis=0)
        row = g.op("Max", row, g.constant(0))
        g.op("Where", g.op("Unsqueeze", mask, g.constant([2])), g.op("Gather", padded, row), x, out="inputs_embeds")
    return g.model([value("input_ids", ["batch_size", "sequence_length"], TensorProto.INT64), value("image_features", ["rows", WIDTH])],
                   [value("inputs_embeds", ["batch_size", "sequence_length", WIDTH])])


def places_by_picture(g):
    """0 .. patches - 1: a Scan pads those of each picture to the longest ones, and Compress leaves out what pads."""
    counts = g.op("ReduceProd", "grid_thw", axes=[1], keepdims=0)
    longest = g.op("ReduceMax", counts, keepdims=0)
    body = Graph({})
    body.count = 1000  # names of its own
    count = body.op("ReduceProd", "thw", axes=[0], keepdims=0)
    body.op("Add", "before", count, out="after")
    more = body.op("Reshape", body.op("Sub", longest, count), body.constant([1]))
    body.op("Pad", body.op("Range", "before", "after", body.constant(1)), body.op("Concat", body.constant([0]), more, axis=0), body.constant(-1), out="padded")
    int64 = TensorProto.INT64
    body = helper.make_graph(body.nodes, "picture", [value("before", [], int64), value("thw", [3], int64)], [value("after", [], int64), value("padded", ["longest"], int64)], body.initializers)
    _, rows = g.op("Scan", g.constant(0), "grid_thw", outputs=2, body=body, num_scan_inputs=1)
    shown = g.op("Less", g.op("Unsqueeze", g.op("Range", g.constant(0), longest, g.constant(1)), g.constant([0])), g.op("Unsqueeze", counts, g.constant([1])))
    return g.op("Compress", rows, g.op("Reshape", shown, g.constant([-1])))


def encoder_model(spec, w):
    g, x = Graph(w), "pixel_values"
    inputs = [value(x, {"fixed": ["pictures", ROWS, PATCH], "tiles": ["batch", "tiles", ROWS, PATCH], "grid": ["patches", PATCH],
                       "shuffle": ["pictures", SIDE * SIDE, PATCH]}[spec.takes])]
    if spec.takes == "tiles":
        inputs.append(value("pixel_mask", ["batch", "tiles"], TensorProto.BOOL))
        x = g.op("Reshape", x, g.constant([-1, ROWS, PATCH]))
        zeros = g.op("ReduceSum", g.op("Cast", g.op("Equal", x, g.f32(0)), to=TensorProto.INT64), g.constant([1, 2]), keepdims=0)
        kept = g.op("NonZero", g.op("Not", g.op("Equal", zeros, g.constant(ROWS * PATCH))))
        kept = g.op("Transpose", kept, perm=[1, 0])
        x = g.op("GatherND", x, kept)
        mask = g.op("GatherND", g.op("Reshape", "pixel_mask", g.constant([-1])), kept)
        x = g.op("Mul", x, g.op("Unsqueeze", g.op("Cast", mask, to=TensorProto.FLOAT), g.constant([1, 2])))
    x = g.op("Tanh", g.linear(x, "pixels"))
    if spec.takes == "grid":
        inputs.append(value("grid_thw", ["pictures", 3], TensorProto.INT64))
        patches = g.op("ReduceSum", g.op("ReduceProd", "grid_thw", axes=[1], keepdims=0), keepdims=0)
        places = places_by_picture(g) if spec.last == "scan" else g.op("Range", g.constant(0), patches, g.constant(1))
        places = g.op("Cast", places, to=TensorProto.FLOAT)
        x = g.op("Add", x, g.op("Unsqueeze", g.op("Cos", g.op("Mul", places, g.f32(0.3))), g.constant([1])))
        x = g.op("Reshape", x, g.constant([-1, MERGE * MERGE * WIDTH]))
    if spec.takes == "shuffle":
        x = g.norm(x, "rows.norm")
        for dims in ([-1, SIDE, SIDE // MERGE, MERGE * WIDTH], [-1, SIDE // MERGE, SIDE // MERGE, MERGE * MERGE * WIDTH]):
            x = g.op("Transpose", g.op("Reshape", x, g.constant(dims)), perm=[0, 2, 1, 3])
        x = g.op("Reshape", x, g.constant([-1, ROWS, MERGE * MERGE * WIDTH]))
    x = g.linear(x, "merged" if spec.takes in ("grid", "shuffle") else "rows")
    if spec.last == "norm":
        x = g.norm(x, "rows.norm")
    if spec.last == "order":
        last = g.op("Sub", g.op("Div", patches, g.constant(MERGE * MERGE)), g.constant(1))
        x = g.op("Gather", x, g.op("Range", last, g.constant(-1), g.constant(-1)), axis=0)
    g.op("Identity", x, out="image_features")
    dims = ["rows", WIDTH] if spec.takes == "grid" else ["pictures_or_tiles", ROWS, WIDTH]
    return g.model(inputs, [value("image_features", dims)])


def sound_model(mels, frames, w):
    """Voxtral's way: windows [N, mels, frames] to SOUND_ROWS rows each, several frames joined to one."""
    g = Graph(w)
    of_frame, of_row = sound_weights(mels, frames)
    x = g.op("MatMul", g.op("Transpose", "input_features", perm=[0, 2, 1]), g.weight("frame", of_frame))
    x = g.op("Reshape", g.op("Tanh", x), g.constant([-1, len(of_row)]))
    g.op("MatMul", x, g.weight("sound", of_row), out="audio_features")
    return g.model([value("input_features", ["windows", mels, frames])], [value("audio_features", ["rows", WIDTH])])


SOUND_ROWS = 10  # of a window


def sound_weights(mels, frames):
    """[mels, 4] of each frame, [frames of a row * 4, C]."""
    rng, joined = np.random.default_rng(9), frames // SOUND_ROWS * 4
    return [(rng.standard_normal(shape) * gain / math.sqrt(shape[0])).astype(np.float32) for shape, gain in (((mels, 4), 3), ((joined, WIDTH), 2))]


def decoder_model(spec, w):
    g, x = Graph(w), "inputs_embeds"
    at = ["batch_size", "sequence_length"]
    inputs = [value(x, [*at, WIDTH]), value("attention_mask", ["batch_size", "past_sequence_length + sequence_length"], TensorProto.INT64),
              value("position_ids", [3, *at] if spec.three else at, TensorProto.INT64)]
    if spec.layered:
        inputs.append(value("per_layer_inputs", [*at, LAYERS, WIDTH]))
    outputs = [value("logits", [*at, spec.vocabulary])]
    total = g.extent("attention_mask", 1)
    past = g.op("Sub", total, g.extent(x, 1))
    queries = g.op("Unsqueeze", g.op("Range", past, total, g.constant(1)), g.constant([0, 1, 3]))
    keys = g.op("Unsqueeze", g.op("Range", g.constant(0), total, g.constant(1)), g.constant([0, 1, 2]))
    padding = g.op("Unsqueeze", g.op("Cast", "attention_mask", to=TensorProto.BOOL), g.constant([1, 2]))
    mask = g.op("Where", g.op("And", g.op("LessOrEqual", keys, queries), padding), g.f32(0), g.f32(MASKED))
    frequencies = 100.0 ** (-np.arange(SIZE // 2) / (SIZE // 2))
    if spec.three:
        places = g.op("Cast", g.op("Unsqueeze", "position_ids", g.constant([2])), to=TensorProto.FLOAT)  # [3, B, 1, S]
        angle = g.op("MatMul", g.f32(np.tile(frequencies[None, None, :, None], (3, 1, 1, 1))), places)
        angle = g.op("Transpose", angle, perm=[0, 1, 3, 2])
    else:
        places = g.op("Cast", g.op("Unsqueeze", "position_ids", g.constant([1])), to=TensorProto.FLOAT)
        angle = g.op("Transpose", g.op("MatMul", g.f32(frequencies[None, :, None]), places), perm=[0, 2, 1])
    angle = g.op("Concat", angle, angle, axis=-1)
    def table(f):
        t = g.op(f, angle)
        if spec.three:
            parts = g.op("Split", t, g.constant(SECTIONS * 2), outputs=6, axis=-1)
            t = g.op("Concat", *(g.op("Gather", p, g.constant(i % 3), axis=0) for i, p in enumerate(parts)), axis=-1)
        return g.op("Unsqueeze", t, g.constant([1]))
    if spec.fused:
        caches = [g.weight(f"{f.__name__}_cache", f(np.arange(spec.context)[:, None] * frequencies).astype(np.float32)) for f in (np.cos, np.sin)]
    else:
        cos, sin = table("Cos"), table("Sin")
    def heads(y, name):
        y = g.op("Reshape", g.op("MatMul", y, g.matrix(name)), g.shape(g.extent(y, 0), g.extent(y, 1), HEADS, SIZE))
        return g.op("Transpose", y, perm=[0, 2, 1, 3])
    def turn(y):
        if spec.fused:
            return g.op("MRotaryEmbedding", y, "position_ids", *caches, domain="com.microsoft", mrope_section=SECTIONS, mrope_layout=int(spec.alternate))
        turned = g.op("Concat", g.op("Neg", g.slice(y, SIZE // 2, 2**62, 3)), g.slice(y, 0, SIZE // 2, 3), axis=-1)
        return g.op("Add", g.op("Mul", y, cos), g.op("Mul", turned, sin))
    for i in range(LAYERS):
        h = g.norm(x, f"{i}.norm1")
        q, k, v = turn(heads(h, f"{i}.q")), turn(heads(h, f"{i}.k")), heads(h, f"{i}.v")
        for part, new in (("key", k), ("value", v)):
            inputs.append(value(f"past_key_values.{i}.{part}", ["batch_size", HEADS, "past_sequence_length", SIZE]))
            outputs.append(value(f"present.{i}.{part}", ["batch_size", HEADS, "past_sequence_length + sequence_length", SIZE]))
            g.op("Concat", f"past_key_values.{i}.{part}", new, axis=2, out=f"present.{i}.{part}")
        s = g.op("MatMul", q, g.op("Transpose", f"present.{i}.key", perm=[0, 1, 3, 2]))
        s = g.op("Softmax", g.op("Add", g.op("Mul", s, g.f32(1 / math.sqrt(SIZE))), mask), axis=-1)
        y = g.op("Transpose", g.op("MatMul", s, f"present.{i}.value"), perm=[0, 2, 1, 3])
        y = g.op("Reshape", y, g.shape(g.extent(y, 0), g.extent(y, 1), WIDTH))
        x = g.op("Add", x, g.op("MatMul", y, g.matrix(f"{i}.o")))
        up = g.op("Relu", g.op("MatMul", g.norm(x, f"{i}.norm2"), g.matrix(f"{i}.up")))
        x = g.op("Add", x, g.op("MatMul", up, g.matrix(f"{i}.down")))
        if spec.layered:
            x = g.op("Add", x, g.op("Gather", "per_layer_inputs", g.constant(i), axis=2))
    g.op("MatMul", g.norm(x, "norm"), g.matrix("head"), out="logits")
    return g.model(inputs, outputs)


def files_of(spec, w):
    return {"embed_tokens.onnx": lookup_model(spec, w), "vision_encoder.onnx": encoder_model(spec, w), "decoder_model_merged.onnx": decoder_model(spec, w)}


def with_words(model, folder, special={"<image>": 500}, size=512):
    """`folder`: links to the files of `model`, a tokenizer of a few words, and a chat template."""
    folder.mkdir()
    for file in model.iterdir():
        (folder / file.name).symlink_to(file)
    words = {"<unk>": 0, "a": 11, "b": 12, "user:": 13, "assistant:": 14, **special}
    vocabulary = {**words, **{f"t{i}": i for i in range(size) if i not in words.values()}}
    added = [{"id": id, "content": word, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
             for word, id in special.items()]
    (folder / "tokenizer.json").write_text(json.dumps(
        {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None, "pre_tokenizer": {"type": "WhitespaceSplit"},
         "post_processor": None, "decoder": None, "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"}}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template":
        "{% for m in messages %}{{ m.role }}: {% if m.content is string %}{{ m.content }} {% else %}"
        "{% for c in m.content %}{% if c.type == 'image' %}<image> {% else %}{{ c.text }} {% endif %}{% endfor %}{% endif %}{% endfor %}"}))
    return folder


def write_folder(folder, files, config={}):
    (folder / "onnx").mkdir(parents=True)
    for name, model in files.items():
        onnx.save(model, folder / "onnx" / name)
    settings = {"model_type": "tiny_vision", "image_token_id": IMAGE, "vision_config": {"spatial_merge_size": MERGE},
                "text_config": {"max_position_embeddings": CONTEXT}, **config}
    (folder / "config.json").write_text(json.dumps({k: v for k, v in settings.items() if v is not None}))


def llava_files(spec, w, side, patch):
    """A model that takes image files as a LLaVA does: pixels [N, 3, side, side] of floats, of which as many as a patch has are a row.
    (the files of its folder, the fields of its config.json, its preprocessor_config.json)"""
    rows, numbers = (side // patch) ** 2, 3 * patch * patch
    g = Graph({})
    g.op("MatMul", g.op("Reshape", "pixel_values", g.constant([-1, rows, numbers])), g.weight("row", llava_weights(patch)), out="image_features")
    encoder = g.model([value("pixel_values", ["pictures", 3, side, side])], [value("image_features", ["pictures", rows, WIDTH])])
    settings = {"model_type": "llava", "vision_config": {"patch_size": patch, "image_size": side}, "image_token_id": None, "image_token_index": spec.image,
                "text_config": {"max_position_embeddings": spec.context}}
    processor = {"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": side}, "crop_size": {"height": side, "width": side}}
    return {**files_of(spec, w), "vision_encoder.onnx": encoder}, settings, processor


def llava_weights(patch):
    """[numbers of a patch, C]."""
    numbers = 3 * patch * patch
    return (np.random.default_rng(5).standard_normal((numbers, WIDTH)) * math.sqrt(3 / numbers)).astype(np.float32)


def write_seeing(folder, spec=SPECS[0], w=None, side=4, patch=2):
    """The folder of such a model."""
    files, settings, processor = llava_files(spec, w or make_weights(3), side, patch)
    write_folder(folder, files, settings)
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return folder


def write_genai_folder(folder, spec, w, merging, change=None):
    """The same model as onnxruntime-genai lays it out: embedding.onnx is `merging`. `change`: of genai_config.json."""
    folder.mkdir(parents=True)
    for name, model in (("model.onnx", decoder_model(spec, w)), ("embedding.onnx", merging), ("vision.onnx", encoder_model(spec, w))):
        onnx.save(model, folder / name)
    config = {"model": {"type": "tiny_vision", "context_length": CONTEXT, "image_token_id": IMAGE, "vocab_size": VOCABULARY,
                        "decoder": {"filename": "model.onnx", "inputs": {"inputs_embeds": "inputs_embeds"}},
                        "embedding": {"filename": "embedding.onnx", "inputs": {"input_ids": "input_ids", "image_features": "image_features"}},
                        "vision": {"filename": "vision.onnx", "spatial_merge_size": MERGE}}, "search": {}}
    if change:
        change(config["model"])
    (folder / "genai_config.json").write_text(json.dumps(config))
    return folder
