"""Mixtures of experts and a hybrid of real shapes: single tokens beside what memory gives, prompts and 16 streams beside onnxruntime-genai.

usage: experts.py FOLDER [--only NAME ...] [--engines situ,ort-genai] [--reps R] [--threads T] [--keep | --write]

Writes three models to FOLDER (5 GB; what is there already is kept), in the layout of onnxruntime-genai, of random weights: 4 bits in blocks of
32, a scale each, QMoE, GroupQueryAttention and CausalConvWithState:

  gpt-oss-20b      2880 wide, 64 heads of 64, 8 of keys, sinks, every other layer a window of 128, 4 of 32 experts of 2880
  qwen3-30b-a3b    2048 wide, 32 heads of 128, 4 of keys, norms of queries and keys, 8 of 128 experts of 768
  lfm2-1.2b        2048 wide, 16 layers, 10 of them short convolutions of 3 taps; 32 heads of 64, 8 of keys, norms; 8192 inside, 65,536 tokens

The first two have 4 of their layers, and 32,768 tokens: more of them would make the head most of what a token reads. Engines take turns in every
repetition. The result goes to bench/results/MACHINE/experts.json, a table to standard output: what decode must read (chosen experts and all other
weights as 4 bits, scales of experts as the floats that they are and others with 16 bits, states as floats), how much of what memory gives that is, prompts and streams in tokens a second. With --write the models are written, and nothing is measured; the models are removed in the
end unless --keep is given. Needs onnx and numpy, and onnxruntime-genai for the peer. Run it while the machine has nothing else to do.
"""
import argparse
import json
import shutil
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto

import compare
import machine
import tables
from graph_writer import GraphWriter

RESULTS = Path(__file__).parent / "results"
CONTEXT, BLOCK, EPSILON = 4096, 32, 1e-5
CASES, STREAMS, STREAM_CASE = ["128:64", "512:2"], 16, (128, 64)  # prompt:tokens; of the first the tables have decoding, of the second prompts
ENGINES = ["situ", "ort-genai"]


@dataclass
class Shape:
    hidden: int
    heads: int
    kv_heads: int
    size: int
    inner: int
    experts: int = 0  # none: every layer has one gated product
    choices: int = 1
    layers: int = 4
    convolutions: list = field(default_factory=list)  # layers that have one instead of attention
    taps: int = 3
    vocabulary: int = 32768
    windows: int = 0  # of every other layer
    theta: float = 1e6
    gpt: bool = False  # biases, sinks, a limited SwiGLU; else norms of queries and keys


SHAPES = {"gpt-oss-20b": Shape(2880, 64, 8, 64, 2880, experts=32, choices=4, windows=128, theta=1.5e5, gpt=True),
          "qwen3-30b-a3b": Shape(2048, 32, 4, 128, 768, experts=128, choices=8),
          "lfm2-1.2b": Shape(2048, 32, 8, 64, 8192, layers=16, convolutions=[0, 1, 3, 4, 6, 7, 9, 11, 13, 15], vocabulary=65536)}


class ExpertsWriter(GraphWriter):
    """Large tensors go to a file as they are made."""

    def __init__(self, shape, folder):
        super().__init__()
        self.s, self.data = shape, open(folder / "model.onnx.data", "wb")
        self.random = np.random.default_rng(0)
        self.bytes = self.random.integers(0, 256, 1 << 20, dtype=np.uint8)

    def stored(self, name, array):
        self.data.write(b"\0" * (-self.data.tell() % 4096))
        tensor = TensorProto(name=name, data_type=onnx.helper.np_dtype_to_tensor_dtype(array.dtype), dims=array.shape, data_location=TensorProto.EXTERNAL)
        for key, value in (("location", "model.onnx.data"), ("offset", self.data.tell()), ("length", array.nbytes)):
            tensor.external_data.add(key=key, value=str(value))
        self.data.write(array.tobytes())
        self.initializers.append(tensor)
        return name

    def digits(self, name, *dims):
        """Random digits, the same ones again and again: writing is fast, and speed does not depend on them."""
        return self.stored(name, np.resize(self.bytes, dims))

    def scales(self, name, depth, *dims):
        factors = self.random.uniform(0.9, 1.1, dims[:-1] + (1,)) * (depth**-0.5 / 4.6)  # 4.6: deviation of a digit
        return self.stored(name, np.broadcast_to(factors.astype(np.float32), dims).copy())

    def ones(self, count):
        return self.constant(np.ones(count), np.float32)

    def small(self, *dims):
        return self.constant(0.1 * self.random.standard_normal(dims), np.float32)

    def product(self, x, name, columns, depth, bias=False, out=None):
        inputs = [x, self.digits(name + "_Q4", columns, depth // BLOCK, BLOCK // 2), self.scales(name + "_scales", depth, columns, depth // BLOCK)]
        y = self.op("MatMulNBits", *inputs, domain="com.microsoft", K=depth, N=columns, bits=4, block_size=BLOCK, accuracy_level=4, out=out)
        return self.op("Add", y, self.small(columns)) if bias else y

    def several(self, op, inputs, outputs, domain="com.microsoft", **attributes):
        self.nodes.append(onnx.helper.make_node(op, inputs, outputs, name=f"{op}_{len(self.nodes)}", domain=domain, **attributes))
        return outputs

    def attention(self, x, layer, lengths, total, tables):
        s, p = self.s, f"layers.{layer}."
        width, kv_width = s.heads * s.size, s.kv_heads * s.size
        pasts = [self.input(f"past_key_values.{layer}.{part}", np.float32, ["batch", s.kv_heads, "past", s.size]) for part in ("key", "value")]
        presents = [self.output(f"present.{layer}.{part}", np.float32, ["batch", s.kv_heads, "total", s.size]) for part in ("key", "value")]
        if s.gpt:
            rows, more = [self.product(x, p + "qkv", width + 2 * kv_width, s.hidden, True), "", ""], ["", "", self.small(s.heads)]
        else:
            q, k, v = (self.product(x, p + name, columns, s.hidden) for name, columns in (("q", width), ("k", kv_width), ("v", kv_width)))
            rows, more = [self.norm_heads(q, s.heads), self.norm_heads(k, s.kv_heads), v], []
        window = s.windows if s.windows and layer % 2 == 0 else -1
        y = self.several("GroupQueryAttention", [*rows, *pasts, lengths, total, *tables, *more], [p + "attention", *presents], num_heads=s.heads, kv_num_heads=s.kv_heads,
                         scale=s.size**-0.5, local_window_size=window, softcap=0.0, do_rotary=1, rotary_interleaved=0)[0]
        return self.product(y, p + "o", s.hidden, width, s.gpt)

    def norm_heads(self, x, heads):
        y = self.op("SimplifiedLayerNormalization", self.reshape(x, 0, -1, self.s.size), self.ones(self.s.size), axis=-1, epsilon=EPSILON, stash_type=1)
        return self.op("Reshape", y, self.op("Shape", x))

    def mixture(self, x, layer):
        s, p = self.s, f"layers.{layer}.experts."
        router = self.reshape(self.product(x, p + "router", s.experts, s.hidden, s.gpt), -1, s.experts)
        first = [self.digits(p + "gate_up", s.experts, 2 * s.inner, s.hidden // 2), self.scales(p + "gate_up_scales", s.hidden, s.experts, 2 * s.inner, s.hidden // BLOCK)]
        second = [self.digits(p + "down", s.experts, s.hidden, s.inner // 2), self.scales(p + "down_scales", s.inner, s.experts, s.hidden, s.inner // BLOCK)]
        biases = [self.small(s.experts, 2 * s.inner), self.small(s.experts, s.hidden)] if s.gpt else ["", ""]
        limits = {"activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 7.0} if s.gpt else {"activation_alpha": 1.0, "activation_beta": 0.0}
        return self.op("QMoE", x, router, *first, biases[0], *second, biases[1], domain="com.microsoft", activation_type="swiglu", expert_weight_bits=4, k=s.choices,
                       normalize_routing_weights=1, swiglu_fusion=1, use_sparse_mixer=0, block_size=BLOCK, **limits)

    def convolution(self, x, layer):
        s, p = self.s, f"layers.{layer}.conv."
        state = [self.input(f"past.{layer}.conv", np.float32, ["batch", s.hidden, s.taps - 1]), self.output(f"present.{layer}.conv", np.float32, ["batch", s.hidden, s.taps - 1])]
        channels = self.op("Transpose", self.product(x, p + "in", 3 * s.hidden, s.hidden), perm=[0, 2, 1])
        b, c, x = self.several("Split", [channels, self.constant([s.hidden] * 3)], [p + part for part in "bcx"], domain="", axis=1)
        y = self.several("CausalConvWithState", [self.op("Mul", b, x), self.small(s.hidden, 1, s.taps), "", state[0]], [p + "y", state[1]], ndim=1, activation="none")[0]
        return self.product(self.op("Transpose", self.op("Mul", c, y), perm=[0, 2, 1]), p + "out", s.hidden, s.hidden)

    def gated(self, x, layer):
        s, p = self.s, f"layers.{layer}.mlp."
        gate, up = (self.product(x, p + part, s.inner, s.hidden) for part in ("gate", "up"))
        return self.product(self.op("Mul", self.op("Mul", gate, self.op("Sigmoid", gate)), up), p + "down", s.hidden, s.inner)

    def write(self, folder):
        s = self.s
        ids, mask = (self.input(name, np.int64, ["batch", length]) for name, length in (("input_ids", "tokens"), ("attention_mask", "total")))
        angles = np.arange(CONTEXT)[:, None] / s.theta ** (np.arange(0, s.size, 2) / s.size)
        tables = [self.stored(name, f(angles).astype(np.float32)) for name, f in (("cos_cache", np.cos), ("sin_cache", np.sin))]
        lengths = self.op("Cast", self.op("Sub", self.op("ReduceSum", mask, self.constant([1]), keepdims=0), self.constant([1])), to=TensorProto.INT32)
        total = self.op("Cast", self.op("Gather", self.op("Shape", mask), self.constant(1), axis=0), to=TensorProto.INT32)
        head = [self.digits("head_Q4", s.vocabulary, s.hidden // BLOCK, BLOCK // 2), self.scales("head_scales", s.hidden, s.vocabulary, s.hidden // BLOCK)]
        x = self.op("GatherBlockQuantized", self.reshape(head[0], s.vocabulary, s.hidden // 2), ids, head[1], domain="com.microsoft", bits=4, block_size=BLOCK, gather_axis=0, quantize_axis=1)
        h = self.op("SimplifiedLayerNormalization", x, self.ones(s.hidden), axis=-1, epsilon=EPSILON, stash_type=1)
        for layer in range(s.layers):
            for inside in (False, True):
                if inside:
                    y = self.mixture(h, layer) if s.experts else self.gated(h, layer)
                else:
                    y = self.convolution(h, layer) if layer in s.convolutions else self.attention(h, layer, lengths, total, tables)
                n = len(self.nodes)
                h, _, _, x = self.several("SkipSimplifiedLayerNormalization", [x, y, self.ones(s.hidden)], [f"h{n}", "", "", f"x{n}"], epsilon=EPSILON)
        self.op("MatMulNBits", h, *head, domain="com.microsoft", K=s.hidden, N=s.vocabulary, bits=4, block_size=BLOCK, accuracy_level=4,
                out=self.output("logits", np.float32, ["batch", "tokens", s.vocabulary]))
        self.data.close()
        self.save(folder / "model.onnx")
        names = {"inputs": {"input_ids": "input_ids", "attention_mask": "attention_mask", "past_key_names": "past_key_values.%d.key", "past_value_names": "past_key_values.%d.value"},
                 "outputs": {"logits": "logits", "present_key_names": "present.%d.key", "present_value_names": "present.%d.value"}}
        decoder = {"session_options": {"provider_options": []}, "filename": "model.onnx", "head_size": s.size, "hidden_size": s.hidden, **names,
                   "num_attention_heads": s.heads, "num_hidden_layers": s.layers, "num_key_value_heads": s.kv_heads}
        if s.convolutions:
            names["inputs"]["past_conv_names"], names["outputs"]["present_conv_names"] = "past.%d.conv", "present.%d.conv"
            kinds = ["conv" if layer in s.convolutions else "full_attention" for layer in range(s.layers)]
            decoder.update(layer_types=kinds, conv_cache_size=s.taps - 1)
        model = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "context_length": CONTEXT, "decoder": decoder, "type": "gptoss" if s.gpt else "lfm2" if s.convolutions else "qwen3", "vocab_size": s.vocabulary}
        search = {"do_sample": False, "max_length": CONTEXT, "num_beams": 1, "past_present_share_buffer": True}
        (folder / "genai_config.json").write_text(json.dumps({"model": model, "search": search}, indent=1))


def write_model(folder, name):
    if (folder / name).exists():
        return
    made = folder / (name + ".part")
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(parents=True)
    ExpertsWriter(SHAPES[name], made).write(made)
    made.rename(folder / name)


def packed_bytes(weights, scale=2):
    """Digits and a scale of so many bytes for each block, as Situ packs them."""
    return weights // 2 + scale * weights // BLOCK


def chosen_bytes(s):
    """Of experts, that a token reads. QMoE computes in floats: its scales stay what the file has."""
    return packed_bytes(s.layers * s.choices * 3 * s.inner * s.hidden, 4) if s.experts else 0


def least_bytes(s):
    """What the middle token of the first case must read: all weights but those of experts that are not chosen, and states."""
    prompt, tokens = (int(x) for x in CASES[0].split(":"))
    places, attentions = prompt + tokens // 2, s.layers - len(s.convolutions)
    mixing = attentions * 2 * s.hidden * (s.heads + s.kv_heads) * s.size + len(s.convolutions) * 4 * s.hidden * s.hidden
    inside = 0 if s.experts else s.layers * 3 * s.inner * s.hidden
    router = s.layers * s.experts * s.hidden
    keys = sum(min(places, s.windows if s.windows and layer % 2 == 0 else places) for layer in range(s.layers) if layer not in s.convolutions)
    states = 4 * (2 * keys * s.kv_heads * s.size + len(s.convolutions) * s.hidden * (s.taps - 1))
    return chosen_bytes(s) + packed_bytes(mixing + inside + router + s.vocabulary * s.hidden) + states


def measured(a, name, report):
    engines = report["models"].setdefault(name, {"chosen_bytes": chosen_bytes(SHAPES[name]), "least_bytes": least_bytes(SHAPES[name]), "engines": {}})["engines"]
    for rep in range(a.reps):
        for engine in a.engines:
            of_engine = engines.setdefault(engine, {"samples": []})
            reason = of_engine.get("reason") or compare.available(engine, None)
            if not reason:
                others = machine.Others()
                what = ["--case", *CASES, "--streams", STREAMS, "--stream-case", f"{STREAM_CASE[0]}:{STREAM_CASE[1]}"]
                sample, reason = compare.measure(engine, a.folder / name, a.threads, *what, timeout=900)
                print(f"{name}: repetition {rep + 1} of {a.reps}, {engine}: {reason or 'measured'}, others took {100 * others.share():.0f}% of the processors", flush=True)
            if reason:
                engines[engine] = {"reason": reason}
            else:
                of_engine["version"] = sample.pop("version")
                of_engine["samples"].append({**sample, "others": round(others.share(), 3)})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", choices=SHAPES, default=list(SHAPES), metavar="NAME")
    parser.add_argument("--engines", type=lambda text: text.split(","), default=ENGINES)
    parser.add_argument("--reps", type=compare.positive, default=3)
    parser.add_argument("--threads", type=compare.thread_count, default=2)
    parser.add_argument("--write", action="store_true", help="write the models alone")
    parser.add_argument("--keep", action="store_true", help="leave the models where they are")
    parser.add_argument("--results", type=Path, default=RESULTS)
    a = parser.parse_args()
    a.folder.mkdir(parents=True, exist_ok=True)
    report = {"machine": machine.name(), "date": time.strftime("%Y-%m-%d"), "threads": a.threads, "reps": a.reps, "streams": STREAMS, "stream_tokens": STREAM_CASE[1], "models": {}}
    for name in a.only:
        write_model(a.folder, name)
        if a.write:
            continue
        measured(a, name, report)
        if not a.keep:
            shutil.rmtree(a.folder / name)
    if a.write:
        return 0
    tables.write_results(a.results, "experts", report)
    print("\n".join(tables.expert_lines(report)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
