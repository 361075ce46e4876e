"""Encoders of a few words with random weights, as exporters write them, and what they compute in NumPy."""
import json
import struct

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"the small boats waited for tide and a grey cat slept on old wall harbour quiet query :".split()]
WIDTH, HEADS, POSITIONS = 12, 3, 24

def weights(seed=0):
    rng = np.random.default_rng(seed)
    shapes = {"words": (len(WORDS), WIDTH), "positions": (POSITIONS, WIDTH), "types": (2, WIDTH), "g0": WIDTH, "b0": WIDTH, "g1": WIDTH, "b1": WIDTH,
              "wq": (WIDTH, WIDTH), "wk": (WIDTH, WIDTH), "wv": (WIDTH, WIDTH), "wo": (WIDTH, WIDTH), "bq": WIDTH, "bk": WIDTH, "bv": WIDTH, "bo": WIDTH}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}

def norm(x, gamma, beta):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12) * gamma + beta

def forward(w, ids, types=None, causal=False, first=0):
    """Rows [tokens, WIDTH]. `first`: the position of the first token."""
    w = {k: v.astype(np.float64) for k, v in w.items()}
    x = norm(w["words"][ids] + w["positions"][first:first + len(ids)] + w["types"][types if types is not None else [0] * len(ids)], w["g0"], w["b0"])
    q, k, v = ((x @ w["w" + n] + w["b" + n]).reshape(len(ids), HEADS, -1).transpose(1, 0, 2) for n in "qkv")
    scores = q @ k.transpose(0, 2, 1) / np.sqrt(WIDTH / HEADS)
    if causal:
        scores += np.triu(np.full((len(ids), len(ids)), -1e9), 1)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    y = (p / p.sum(-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(len(ids), WIDTH)
    return norm(x + y @ w["wo"] + w["bo"], w["g1"], w["b1"])

class Writer:
    def __init__(self):
        self.nodes, self.tensors = [], []

    def const(self, name, value, dtype=np.int64):
        self.tensors.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def op(self, op, inputs, out, **attributes):
        self.nodes.append(helper.make_node(op, inputs, [out] if isinstance(out, str) else out, name=f"n{len(self.nodes)}", **attributes))
        return out if isinstance(out, str) else out[0]

def encoder(w, fused=False, causal=False, labels=None, output="last_hidden_state", einsum=False, pad=None):
    """A model of input_ids, attention_mask and token_type_ids. `labels`: a head [WIDTH, labels] on the first token. `pad`: an id behind
    which positions begin, as RoBERTa counts them."""
    g = Writer()
    for name, value in w.items():
        g.const(name, value, np.float32)
    if fused:
        g.const("qkv", np.concatenate([w["wq"], w["wk"], w["wv"]], 1), np.float32)
        g.const("qkv_bias", np.concatenate([w["bq"], w["bk"], w["bv"]]), np.float32)
        for name in ("input_ids", "attention_mask", "token_type_ids"):
            g.op("Cast", [name], name + "32", to=TensorProto.INT32)
        g.op("EmbedLayerNormalization", ["input_ids32", "token_type_ids32", "words", "positions", "types", "g0", "b0", "attention_mask32"], ["x", "lengths"], domain="com.microsoft", epsilon=1e-12)
        g.op("Attention", ["x", "qkv", "qkv_bias", "lengths"], "y", domain="com.microsoft", num_heads=HEADS, unidirectional=int(causal))
        g.op("MatMul", ["y", "wo"], "o")
        g.op("SkipLayerNormalization", ["o", "x", "g1", "b1", "bo"], "rows", domain="com.microsoft", epsilon=1e-12)
    else:
        g.op("Shape", ["input_ids"], "shape")
        g.op("Gather", ["shape", g.const("one", 1)], "length")
        g.op("Unsqueeze", ["length", g.const("front", [0])], "lengths")
        if pad is None:
            g.op("Slice", ["positions", "front", "lengths", "front"], "p")
        else:
            g.op("Equal", ["input_ids", g.const("pad", pad)], "padded")
            g.op("Not", ["padded"], "there")
            g.op("Cast", ["there"], "there64", to=TensorProto.INT64)
            g.op("CumSum", ["there64", "one"], "count")
            g.op("Mul", ["count", "there64"], "counted")
            g.op("Add", ["counted", "pad"], "place")
            g.op("Gather", ["positions", "place"], "p")
        g.op("Gather", ["words", "input_ids"], "word")
        g.op("Gather", ["types", "token_type_ids"], "type")
        g.op("Add", ["word", "p"], "a")
        g.op("Add", ["a", "type"], "sum")
        g.op("LayerNormalization", ["sum", "g0", "b0"], "x", epsilon=1e-12)
        g.const("split", [0, 0, HEADS, WIDTH // HEADS])
        for n in "qkv":
            g.op("MatMul", ["x", "w" + n], n + "0")
            g.op("Add", [n + "0", "b" + n], n + "1")
            g.op("Reshape", [n + "1", "split"], n + "2")
            if not einsum:
                g.op("Transpose", [n + "2"], n, perm=[0, 2, 3, 1] if n == "k" else [0, 2, 1, 3])
        g.op("Einsum", ["q2", "k2"], "s0", equation="bqhd,bkhd->bhqk") if einsum else g.op("MatMul", ["q", "k"], "s0")
        g.op("Mul", ["s0", g.const("scale", (WIDTH / HEADS) ** -0.5, np.float32)], "s1")
        g.op("Unsqueeze", ["attention_mask", g.const("front2", [1, 2])], "m0")
        g.op("Cast", ["m0"], "m1", to=TensorProto.FLOAT)
        g.op("Sub", [g.const("onef", 1, np.float32), "m1"], "m2")
        g.op("Mul", ["m2", g.const("least", -1e9, np.float32)], "m3")
        g.op("Add", ["s1", "m3"], "s2")
        if causal:
            g.op("Concat", ["lengths", "lengths"], "square", axis=0)
            g.op("Expand", [g.const("hidden", -1e9, np.float32), "square"], "all")
            g.op("Trilu", ["all", "one"], "later", upper=1)
            g.op("Add", ["s2", "later"], "s3")
        g.op("Softmax", ["s3" if causal else "s2"], "prob", axis=-1)
        g.op("Einsum", ["prob", "v2"], "t", equation="bhqk,bkhd->bqhd") if einsum else g.op("MatMul", ["prob", "v"], "y0")
        if not einsum:
            g.op("Transpose", ["y0"], "t", perm=[0, 2, 1, 3])
        g.op("Reshape", ["t", g.const("join", [0, 0, WIDTH])], "y")
        g.op("MatMul", ["y", "wo"], "o0")
        g.op("Add", ["o0", "bo"], "o")
        g.op("Add", ["x", "o"], "r")
        g.op("LayerNormalization", ["r", "g1", "b1"], "rows", epsilon=1e-12)
    shape = ["batch", "tokens", WIDTH]
    if labels is not None:
        g.const("head", labels, np.float32)
        g.op("Gather", ["rows", g.const("first", 0)], "cls", axis=1)
        g.op("MatMul", ["cls", "head"], "logits")
        output, shape = "logits", ["batch", labels.shape[1]]
    else:
        g.op("Identity", ["rows"], output)
    inputs = [helper.make_tensor_value_info(n, TensorProto.INT64, ["batch", "tokens"]) for n in ("input_ids", "attention_mask", "token_type_ids")]
    graph = helper.make_graph(g.nodes, "g", inputs, [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)], g.tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)], ir_version=8)

def tokenizer_json():
    special = [{"id": i, "content": WORDS[i], "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True} for i in range(4)]
    piece = lambda kind, name, number: {kind: {"id": name, "type_id": number}}
    template = {"type": "TemplateProcessing", "single": [piece("SpecialToken", "[CLS]", 0), piece("Sequence", "A", 0), piece("SpecialToken", "[SEP]", 0)],
                "pair": [piece("SpecialToken", "[CLS]", 0), piece("Sequence", "A", 0), piece("SpecialToken", "[SEP]", 0), piece("Sequence", "B", 1), piece("SpecialToken", "[SEP]", 1)],
                "special_tokens": {t: {"id": t, "ids": [i], "tokens": [t]} for i, t in ((2, "[CLS]"), (3, "[SEP]"))}}
    return json.dumps({"version": "1.0", "added_tokens": special, "normalizer": None, "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": template, "decoder": None,
                       "truncation": {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0},
                       "padding": {"strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"},
                       "model": {"type": "WordLevel", "vocab": {t: i for i, t in enumerate(WORDS)}, "unk_token": "[UNK]"}})

def ids_of(text, second=None, most=POSITIONS):
    """What transformers makes of it: ids and types, cut at the longer text."""
    first, other = ([WORDS.index(t) if t in WORDS else 1 for t in (s or "").split()] for s in (text, second))
    while len(first) + len(other) > most - (2 if second is None else 3):
        (first if len(first) > len(other) else other).pop()
    ids, types = [2, *first, 3], [0] * (len(first) + 2)
    return (ids, types) if second is None else (ids + other + [3], types + [1] * (len(other) + 1))

def safetensors(tensors):
    header, data = {}, b""
    for name, value in tensors.items():
        header[name] = {"dtype": {"float32": "F32", "float16": "F16"}[str(value.dtype)], "shape": list(value.shape), "data_offsets": [len(data), len(data) + value.nbytes]}
        data += value.tobytes()
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data

MODULES = "sentence_transformers.models."

def write(folder, model, *, modules=None, bert=None, prompts=None, config=None):
    """`modules`: (class, its folder, config or None, tensors or None) behind the Transformer; None: no modules.json."""
    folder.mkdir(parents=True)
    onnx.save(model, folder / "model.onnx")
    (folder / "tokenizer.json").write_text(tokenizer_json())
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": POSITIONS}))
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": POSITIONS, **(config or {})}))
    if bert:
        (folder / "sentence_bert_config.json").write_text(json.dumps(bert))
    if prompts is not None:
        (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    if modules is None:
        return folder
    rows = [{"idx": 0, "name": "0", "path": "", "type": MODULES + "Transformer"}]
    for i, (kind, name, settings, tensors) in enumerate(modules):
        rows.append({"idx": i + 1, "name": str(i + 1), "path": name, "type": MODULES + kind})
        (folder / name).mkdir()
        if settings is not None:
            (folder / name / "config.json").write_text(json.dumps(settings))
        if tensors is not None:
            (folder / name / "model.safetensors").write_bytes(safetensors(tensors))
    (folder / "modules.json").write_text(json.dumps(rows))
    return folder

def pooling(*modes, **more):
    names = ("cls_token", "max_tokens", "mean_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
    return {"word_embedding_dimension": WIDTH, **{"pooling_mode_" + n: n in modes for n in names}, **more}
