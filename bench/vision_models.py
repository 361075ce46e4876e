"""Writes the vision-language models that bench/vision.py measures: random weights in the layout of transformers.js.

usage: vision_models.py FOLDER [NAME ...]          (default: all; what is there already is kept)

  smolvlm-256m   SmolVLM-256M's shape: SigLIP-B/16 of 512 x 512 in float32, 4 x 4 patches become one of 64 rows of a tile; SmolLM2-135M in int4
  qwen2-vl-2b    Qwen2-VL-2B's shape: 32 blocks of 1280 in int4 with rotary tables by the grid, 2 x 2 patches become a row; Qwen2-1.5B in int4

int4: MatMulNBits, blocks of 32, symmetric, accuracy_level 4, which is what both engines have their fastest kernels for. Lookup tables are
float32. Graphs are of plain operators as exporters write them; past and present are concatenated. An image in its natural size needs no resize. Needs onnx and numpy.

Shapes in comments: S new tokens, P past ones, T = P + S, N tiles or patches, C width, H heads, G key-value heads, D head size.
"""
import argparse
import json
import math
import shutil
import sys
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper

from graph_writer import GraphWriter

MASKED = np.float32(np.finfo(np.float32).min)
FAR = 2**63 - 1
# Of the decoder: width, layers, heads, key-value heads, head size, MLP, vocabulary, base of the rotary table, its sections (None: one position a token).
# Of the encoder: width, blocks, heads, MLP, side of a patch, patches of a side that become a row, side of an image.
SHAPES = {
    "smolvlm-256m": {"text": (576, 30, 9, 3, 64, 1536, 49280, 1e5, None), "vision": (768, 12, 12, 3072, 16, 4, 512), "image_token": 49190},
    "qwen2-vl-2b": {"text": (1536, 28, 12, 2, 128, 8960, 151936, 1e6, (16, 24, 24)), "vision": (1280, 32, 16, 5120, 14, 2, 448), "image_token": 151655},
}


class Writer(GraphWriter):
    def __init__(self, seed, int4=False):
        super().__init__()
        self.random, self.int4 = np.random.default_rng(seed), int4

    def f32(self, value):
        return self.constant(value, np.float32)

    def matrix(self, rows, columns):
        return self.f32(self.random.standard_normal((rows, columns), np.float32) * np.float32(rows ** -0.5))

    def linear(self, x, rows, columns, bias=True, out=None):
        named = None if bias else out
        if self.int4:
            digits = self.constant(self.random.integers(0, 256, (columns, rows // 32, 16), np.uint8), np.uint8)
            scales = self.f32(np.full(columns * rows // 32, rows ** -0.5 / 4.6))  # 4.6: deviation of a digit
            y = self.op("MatMulNBits", x, digits, scales, out=named, domain="com.microsoft", K=rows, N=columns, bits=4, block_size=32, accuracy_level=4)
        else:
            y = self.op("MatMul", x, self.matrix(rows, columns), out=named)
        return self.op("Add", y, self.f32(0.1 * self.random.standard_normal(columns)), out=out) if bias else y

    def extent(self, x, axis):
        return self.op("Gather", self.op("Shape", x), self.constant(axis), axis=0)

    def shape(self, *dims):
        parts = [self.op("Unsqueeze", d, self.constant([0])) if isinstance(d, str) else self.constant([d]) for d in dims]
        return self.op("Concat", *parts, axis=0)

    def slice(self, x, begin, end, axis, step=1):
        return self.op("Slice", x, *(self.constant([v]) for v in (begin, end, axis, step)))

    def split(self, x, sizes):
        parts = [f"{x}_{i}" for i in range(len(sizes))]
        self.nodes.append(helper.make_node("Split", [x, self.constant(sizes)], parts, name=f"Split_{len(self.nodes)}", axis=-1))
        return parts

    def layer_norm(self, x, width):
        return self.op("LayerNormalization", x, self.f32(np.ones(width)), self.f32(np.zeros(width)), axis=-1, epsilon=1e-6)

    def rms_norm(self, x, width):
        mean = self.op("ReduceMean", self.op("Pow", x, self.f32(2)), self.constant([-1]))
        root = self.op("Sqrt", self.op("Add", mean, self.f32(1e-5)))
        return self.op("Mul", self.op("Mul", x, self.op("Div", self.f32(1), root)), self.f32(np.ones(width)))

    def turned(self, x, cos, sin, size, axis):
        halves = self.slice(x, 0, size // 2, axis), self.slice(x, size // 2, FAR, axis)
        return self.op("Add", self.op("Mul", x, cos), self.op("Mul", self.op("Concat", self.op("Neg", halves[1]), halves[0], axis=-1), sin))

    def write(self, folder, name):
        data = folder / f"{name}.onnx_data"
        data.unlink(missing_ok=True)  # onnx.save appends
        self.save(folder / f"{name}.onnx", save_as_external_data=True, all_tensors_to_one_file=True, location=data.name, size_threshold=1024)


def lookup(width, vocabulary):
    w = Writer(1)
    table = w.f32(0.5 * w.random.standard_normal((vocabulary, width), np.float32))
    w.input("input_ids", np.int64, ["batch_size", "sequence_length"])
    w.op("Gather", table, "input_ids", out=w.output("inputs_embeds", np.float32, ["batch_size", "sequence_length", width]))
    return w


def decoder(text):
    width, layers, heads, kv_heads, size, hidden, vocabulary, base, sections = text
    w, at = Writer(2, int4=True), ["batch_size", "sequence_length"]
    x = w.input("inputs_embeds", np.float32, [*at, width])
    w.input("attention_mask", np.int64, ["batch_size", "past_sequence_length + sequence_length"])
    w.input("position_ids", np.int64, [3, *at] if sections else at)
    batch, tokens, total = w.extent(x, 0), w.extent(x, 1), w.extent("attention_mask", 1)
    queries = w.op("Unsqueeze", w.op("Range", w.op("Sub", total, tokens), total, w.constant(1)), w.constant([0, 1, 3]))  # [1, 1, S, 1]
    keys = w.op("Unsqueeze", w.op("Range", w.constant(0), total, w.constant(1)), w.constant([0, 1, 2]))
    padding = w.op("Unsqueeze", w.op("Cast", "attention_mask", to=TensorProto.BOOL), w.constant([1, 2]))
    mask = w.op("Where", w.op("And", w.op("LessOrEqual", keys, queries), padding), w.f32(0), w.f32(MASKED))
    frequencies = base ** (-np.arange(0, size, 2) / size)
    if sections:
        places = w.op("Cast", w.op("Unsqueeze", "position_ids", w.constant([2])), to=TensorProto.FLOAT)  # [3, B, 1, S]
        angle = w.op("Transpose", w.op("MatMul", w.f32(np.tile(frequencies[None, None, :, None], (3, 1, 1, 1))), places), perm=[0, 1, 3, 2])
    else:
        places = w.op("Cast", w.op("Unsqueeze", "position_ids", w.constant([1])), to=TensorProto.FLOAT)
        angle = w.op("Transpose", w.op("MatMul", w.f32(frequencies[None, :, None]), places), perm=[0, 2, 1])
    angle = w.op("Concat", angle, angle, axis=-1)

    def table(function):
        t = w.op(function, angle)
        if sections:  # each section of the columns by another row of positions
            parts = w.split(t, [*sections, *sections])
            t = w.op("Concat", *(w.op("Gather", p, w.constant(i % 3), axis=0) for i, p in enumerate(parts)), axis=-1)
        return w.op("Unsqueeze", t, w.constant([1]))

    cos, sin = table("Cos"), table("Sin")

    def split_heads(y, count):
        return w.op("Transpose", w.op("Reshape", y, w.shape(batch, tokens, count, size)), perm=[0, 2, 1, 3])

    def repeat(y):
        wide = w.op("Expand", w.op("Unsqueeze", y, w.constant([2])), w.shape(w.extent(y, 0), kv_heads, heads // kv_heads, w.extent(y, 2), size))
        return w.op("Reshape", wide, w.shape(w.extent(y, 0), heads, w.extent(y, 2), size))

    for i in range(layers):
        h, rows = w.rms_norm(x, width), []
        q, k, v = (split_heads(w.linear(h, width, n * size, bias=bool(sections)), n) for n in (heads, kv_heads, kv_heads))
        q, k = (w.turned(y, cos, sin, size, 3) for y in (q, k))
        for part, new in (("key", k), ("value", v)):
            past = w.input(f"past_key_values.{i}.{part}", np.float32, ["batch_size", kv_heads, "past_sequence_length", size])
            present = w.output(f"present.{i}.{part}", np.float32, ["batch_size", kv_heads, "past_sequence_length + sequence_length", size])
            rows.append(repeat(w.op("Concat", past, new, out=present, axis=-2)))
        s = w.op("Div", w.op("MatMul", q, w.op("Transpose", rows[0], perm=[0, 1, 3, 2])), w.f32(math.sqrt(size)))
        y = w.op("MatMul", w.op("Softmax", w.op("Add", s, mask), axis=-1), rows[1])
        y = w.op("Reshape", w.op("Transpose", y, perm=[0, 2, 1, 3]), w.shape(batch, tokens, heads * size))
        x = w.op("Add", x, w.linear(y, heads * size, width, bias=False))
        h = w.rms_norm(x, width)
        gate = w.linear(h, width, hidden, bias=False)
        y = w.op("Mul", w.op("Mul", gate, w.op("Sigmoid", gate)), w.linear(h, width, hidden, bias=False))
        x = w.op("Add", x, w.linear(y, hidden, width, bias=False))
    w.linear(w.rms_norm(x, width), width, vocabulary, bias=False, out=w.output("logits", np.float32, [*at, vocabulary]))
    w.outputs.insert(0, w.outputs.pop())  # logits come first
    return w


def smolvlm_encoder(vision, width):
    """pixel_values [1, N, 3, e, e] and pixel_attention_mask [1, N, e, e] -> [kept tiles, rows, C]: tiles that are all zero are dropped."""
    inner, blocks, heads, hidden, patch, merge, side = vision
    w, grid, size = Writer(3), side // patch, inner // heads
    w.input("pixel_values", np.float32, ["batch_size", "num_images", 3, "height", "width"])
    w.input("pixel_attention_mask", np.bool_, ["batch_size", "num_images", "height", "width"])
    x = w.reshape("pixel_values", -1, 3, side, side)
    zeros = w.op("ReduceSum", w.op("Cast", w.op("Equal", x, w.f32(0)), to=TensorProto.INT64), w.constant([1, 2, 3]), keepdims=0)
    kept = w.op("NonZero", w.op("Not", w.op("Equal", zeros, w.constant(3 * side * side))))
    kept = w.op("Transpose", kept, perm=[1, 0])
    x = w.op("GatherND", x, kept)
    seen = w.op("GatherND", w.reshape("pixel_attention_mask", -1, side, side), kept)
    for axis in (1, 2):  # a patch is seen where its first pixel is
        seen = w.slice(seen, 0, FAR, axis, patch)
    mask = w.op("Where", w.reshape(seen, -1, 1, 1, grid * grid), w.f32(0), w.f32(MASKED))
    kernel = w.f32(w.random.standard_normal((inner, 3, patch, patch), np.float32) * (3 * patch * patch) ** -0.5)
    x = w.op("Conv", x, kernel, w.f32(np.zeros(inner)), kernel_shape=[patch, patch], strides=[patch, patch])
    x = w.op("Transpose", w.reshape(x, -1, inner, grid * grid), perm=[0, 2, 1])
    x = w.op("Add", x, w.f32(0.5 * w.random.standard_normal((1, grid * grid, inner), np.float32)))
    for _ in range(blocks):
        h = w.layer_norm(x, inner)
        q, k, v = (w.op("Transpose", w.reshape(w.linear(h, inner, inner), -1, grid * grid, heads, size), perm=[0, 2, 1, 3]) for _ in range(3))
        s = w.op("Mul", w.op("MatMul", q, w.op("Transpose", k, perm=[0, 1, 3, 2])), w.f32(size ** -0.5))
        y = w.op("MatMul", w.op("Softmax", w.op("Add", s, mask), axis=-1), v)
        y = w.reshape(w.op("Transpose", y, perm=[0, 2, 1, 3]), -1, grid * grid, inner)
        x = w.op("Add", x, w.linear(y, inner, inner))
        u = w.linear(w.layer_norm(x, inner), inner, hidden)
        cubed = w.op("Mul", w.op("Add", u, w.op("Mul", w.op("Pow", u, w.f32(3)), w.f32(0.044715))), w.f32(math.sqrt(2 / math.pi)))
        u = w.op("Mul", w.op("Mul", u, w.f32(0.5)), w.op("Add", w.op("Tanh", cubed), w.f32(1)))
        x = w.op("Add", x, w.linear(u, hidden, inner))
    x = w.layer_norm(x, inner)
    for dims in ([-1, grid, grid // merge, merge * inner], [-1, grid // merge, grid // merge, merge * merge * inner]):
        x = w.op("Transpose", w.reshape(x, *dims), perm=[0, 2, 1, 3])
    rows = (grid // merge) ** 2
    x = w.reshape(x, -1, rows, merge * merge * inner)
    w.linear(x, merge * merge * inner, width, bias=False, out=w.output("image_features", np.float32, ["num_features", rows, width]))
    return w


def qwen2_vl_encoder(vision, width):
    """pixel_values [N, 3 * 2 * p * p] and grid_thw [pictures, 3] -> [N / merge^2, C]. Patches lie in the order in which they are merged."""
    inner, blocks, heads, hidden, patch, merge, _ = vision
    w, size = Writer(4, int4=True), inner // heads
    w.input("pixel_values", np.float32, ["num_patches", 3 * 2 * patch * patch])
    w.input("grid_thw", np.int64, ["num_images", 3])
    one, block = w.constant(merge), w.constant(merge * merge)
    # Of each patch: its picture, its number there, and by this its row and column.
    ends = w.op("CumSum", w.op("ReduceProd", "grid_thw", w.constant([1]), keepdims=0), w.constant(0))
    number = w.op("Range", w.constant(0), w.extent("pixel_values", 0), w.constant(1))
    passed = w.op("Cast", w.op("GreaterOrEqual", w.op("Unsqueeze", number, w.constant([1])), w.op("Unsqueeze", ends, w.constant([0]))), to=TensorProto.INT64)
    picture = w.op("ReduceSum", passed, w.constant([1]), keepdims=0)
    begins = w.op("Sub", ends, w.op("ReduceProd", "grid_thw", w.constant([1]), keepdims=0))
    number = w.op("Sub", number, w.op("Gather", begins, picture))
    high, wide = (w.op("Div", w.op("Gather", w.op("Gather", "grid_thw", w.constant(i), axis=1), picture), one) for i in (1, 2))
    inside, blocks_before = w.op("Mod", number, block), w.op("Div", number, block)
    row = w.op("Add", w.op("Mul", w.op("Mod", w.op("Div", blocks_before, wide), high), one), w.op("Div", inside, one))
    column = w.op("Add", w.op("Mul", w.op("Mod", blocks_before, wide), one), w.op("Mod", inside, one))
    frequencies = w.f32((1e4 ** (-np.arange(0, size // 2, 2) / (size // 2)))[None])
    angle = w.op("Concat", *(w.op("Mul", w.op("Unsqueeze", w.op("Cast", p, to=TensorProto.FLOAT), w.constant([1])), frequencies) for p in (row, column)), axis=-1)
    angle = w.op("Unsqueeze", w.op("Concat", angle, angle, axis=-1), w.constant([1]))  # [N, 1, D]
    cos, sin = w.op("Cos", angle), w.op("Sin", angle)
    same = w.op("Equal", w.op("Unsqueeze", picture, w.constant([0])), w.op("Unsqueeze", picture, w.constant([1])))
    mask = w.op("Where", same, w.f32(0), w.f32(MASKED))  # a patch sees those of its picture
    kernel = w.f32(w.random.standard_normal((inner, 3, 2, patch, patch), np.float32) * (6 * patch * patch) ** -0.5)
    x = w.reshape("pixel_values", -1, 3, 2, patch, patch)
    x = w.reshape(w.op("Conv", x, kernel, kernel_shape=[2, patch, patch], strides=[2, patch, patch]), -1, inner)
    for _ in range(blocks):
        h = w.layer_norm(x, inner)
        q, k, v = (w.reshape(w.linear(h, inner, inner), -1, heads, size) for _ in range(3))
        q, k = (w.turned(y, cos, sin, size, 2) for y in (q, k))
        s = w.op("Mul", w.op("MatMul", w.op("Transpose", q, perm=[1, 0, 2]), w.op("Transpose", k, perm=[1, 2, 0])), w.f32(size ** -0.5))
        y = w.op("MatMul", w.op("Softmax", w.op("Add", s, mask), axis=-1), w.op("Transpose", v, perm=[1, 0, 2]))
        x = w.op("Add", x, w.linear(w.reshape(w.op("Transpose", y, perm=[1, 0, 2]), -1, inner), inner, inner))
        u = w.linear(w.layer_norm(x, inner), inner, hidden)
        x = w.op("Add", x, w.linear(w.op("Mul", u, w.op("Sigmoid", w.op("Mul", u, w.f32(1.702)))), hidden, inner))
    merged = merge * merge * inner
    u = w.linear(w.reshape(w.layer_norm(x, inner), -1, merged), merged, merged)
    erf = w.op("Add", w.op("Erf", w.op("Div", u, w.f32(math.sqrt(2)))), w.f32(1))
    u = w.op("Mul", w.op("Mul", u, erf), w.f32(0.5))
    w.linear(u, merged, width, out=w.output("image_features", np.float32, ["num_features", width]))
    return w


def settings(name):
    """The JSON files beside the graphs, as far as they are read."""
    shape = SHAPES[name]
    width, layers, heads, kv_heads, size, hidden, vocabulary, base, _ = shape["text"]
    inner, blocks, of_vision, _, patch, merge, side = shape["vision"]
    text = {"vocab_size": vocabulary, "hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": size,
            "intermediate_size": hidden, "rope_theta": base, "max_position_embeddings": 8192}
    config = {"image_token_id": shape["image_token"], "text_config": text}
    clip = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True, "do_resize": True, "do_convert_rgb": True}
    if name == "smolvlm-256m":
        config.update(model_type="smolvlm", scale_factor=merge, vision_config={"hidden_size": inner, "num_hidden_layers": blocks, "num_attention_heads": of_vision, "patch_size": patch, "image_size": side})
        images = {**clip, "image_processor_type": "SmolVLMImageProcessor", "resample": 1, "do_image_splitting": False, "do_pad": True, "size": {"longest_edge": side}, "max_image_size": {"longest_edge": side}}
    else:
        config.update(model_type="qwen2_vl", vision_start_token_id=151652, vision_end_token_id=151653,
                      vision_config={"embed_dim": inner, "depth": blocks, "num_heads": of_vision, "patch_size": patch, "spatial_merge_size": merge, "temporal_patch_size": 2})
        images = {**clip, "image_processor_type": "Qwen2VLImageProcessor", "resample": 3, "patch_size": patch, "merge_size": merge, "temporal_patch_size": 2, "min_pixels": 3136, "max_pixels": 12845056}
    return {"config": config, "preprocessor_config": images, "generation_config": {"eos_token_id": 2}}


def make(folder, name):
    if (folder / name / "config.json").exists():
        return
    print(f"vision_models: {name}", flush=True)
    shutil.rmtree(folder / name, ignore_errors=True)
    (folder / name / "onnx").mkdir(parents=True)
    shape = SHAPES[name]
    encoder = smolvlm_encoder if name == "smolvlm-256m" else qwen2_vl_encoder
    width, vocabulary = shape["text"][0], shape["text"][6]
    for graph, file in ((lambda: lookup(width, vocabulary), "embed_tokens"), (lambda: encoder(shape["vision"], width), "vision_encoder"), (lambda: decoder(shape["text"]), "decoder_model_merged")):
        graph().write(folder / name / "onnx", file)
    for file, of in reversed(settings(name).items()):  # config.json last: then all is there
        (folder / name / f"{file}.json").write_text(json.dumps(of, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", choices=[*SHAPES, []], metavar="NAME", help="of " + ", ".join(SHAPES))
    a = parser.parse_args()
    for name in a.names or SHAPES:
        make(a.folder, name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
