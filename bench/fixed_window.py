"""What an export with fixed extents costs a host: ONNX Runtime in two loops, and Situ, which needs neither.

usage: fixed_window.py FOLDER [--layers L] [--tokens N] [--past P] [--situ build/situ]

Writes a model of the Llama-3-8B shape with random weights (int4 MatMulNBits, plain attention) to FOLDER, all extents fixed:
W = 1 token a step, T = 512 keys. Then each of these answers N tokens behind P, in a process of its own:

  ort-slice   present is sliced into the next past: state [1, H, T, D], as exporters leave it
  ort-buffer  past and present are bound to one buffer, whose start moves by a row a step: state [1, T, H, D], since only
              there the next past lies in the present as it is
  situ        the export of ort-slice, in place

The result goes to bench/results/MACHINE/fixed_window.json. Needs onnx, numpy and onnxruntime.
"""
import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from graph_writer import GraphWriter

HIDDEN, HEADS, KV_HEADS, SIZE, FFN, VOCABULARY, THETA, EPSILON = 4096, 32, 8, 128, 14336, 128256, 5e5, 1e-5
BLOCK, LENGTH, WINDOW = 32, 512, 1
GROUPS = HEADS // KV_HEADS
LOOPS = ("ort-slice", "ort-buffer", "situ")
LAYOUTS = {"ort-slice": "heads", "ort-buffer": "rows", "situ": "heads"}  # which of two axes of a state comes first


class Writer(GraphWriter):
    """A graph of one layout; both read one file of weights."""

    def __init__(self, folder, layers, layout):
        super().__init__()
        self.folder, self.layers, self.layout, self.offset = folder, layers, layout, 0
        self.random = np.random.default_rng(0)
        self.base = self.random.integers(0, 256, 1 << 20, dtype=np.uint8)
        self.data = open(folder / "weights.data", "wb") if layout == "heads" else None

    def stored(self, name, dtype, dims, make):
        """A weight in the file, made by the first of the two graphs."""
        t = onnx.TensorProto(name=name, data_type=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), dims=dims, data_location=onnx.TensorProto.EXTERNAL)
        self.offset += -self.offset % 4096
        count = int(np.prod(dims)) * np.dtype(dtype).itemsize
        for key, value in (("location", "weights.data"), ("offset", self.offset), ("length", count)):
            t.external_data.add(key=key, value=str(value))
        if self.data:
            self.data.seek(self.offset)
            self.data.write(make().tobytes())
        self.offset += count
        self.initializers.append(t)
        return name

    def quantised(self, name, rows, columns):
        """[rows, columns] in 4 bits: one random pattern, repeated, since speed does not depend on weights."""
        blocks = columns // BLOCK
        packed = self.stored(name, np.uint8, [rows, blocks, BLOCK // 2], lambda: np.resize(self.base, rows * blocks * BLOCK // 2))
        scales = self.stored(name + ".scales", np.float32, [rows, blocks], lambda: np.full((rows, blocks), 0.25 / np.sqrt(columns), np.float32))
        return packed, scales

    def product(self, x, name, rows, columns, out=None):
        return self.bits(x, *self.quantised(name, rows, columns), rows, columns, out)

    def bits(self, x, packed, scales, rows, columns, out=None):
        return self.op("MatMulNBits", x, packed, scales, domain="com.microsoft", out=out, K=columns, N=rows, bits=4, block_size=BLOCK, accuracy_level=4)

    def norm(self, x):
        weight = self.constant(np.ones(HIDDEN), np.float32)
        return self.op("SimplifiedLayerNormalization", x, weight, axis=-1, epsilon=EPSILON, stash_type=1)

    def rotary(self, x):
        half = SIZE // 2
        first, second = (self.op("Slice", x, self.constant([b]), self.constant([b + half]), self.constant([3])) for b in (0, half))
        turned = self.op("Concat", self.op("Neg", second), first, axis=3)
        return self.op("Add", self.op("Mul", x, self.cos), self.op("Mul", turned, self.sin))

    def state(self, layer, part, x):
        """The past and x [1, H, W, D] behind it: [1, H, T, D]."""
        rows = self.layout == "rows"
        dims = lambda length: [1, length, KV_HEADS, SIZE] if rows else [1, KV_HEADS, length, SIZE]
        past, present = f"past_key_values.{layer}.{part}", f"present.{layer}.{part}"
        self.input(past, np.float32, dims(LENGTH - WINDOW))
        self.output(present, np.float32, dims(LENGTH))
        x = self.op("Transpose", x, perm=[0, 2, 1, 3]) if rows else x
        self.op("Concat", past, x, out=present, axis=1 if rows else 2)
        return self.op("Transpose", present, perm=[0, 2, 1, 3]) if rows else present

    def repeated(self, x):
        wide = self.op("Expand", self.op("Unsqueeze", x, self.constant([2])), self.constant([1, KV_HEADS, GROUPS, LENGTH, SIZE]))
        return self.reshape(wide, 1, HEADS, LENGTH, SIZE)

    def attention(self, h, i):
        q, k, v = (self.op("Transpose", self.reshape(self.product(h, f"{i}.{p}", n * SIZE, HIDDEN), 1, WINDOW, n, SIZE), perm=[0, 2, 1, 3])
                   for p, n in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)))
        k, v = (self.repeated(self.state(i, part, x)) for part, x in (("key", self.rotary(k)), ("value", v)))
        scores = self.op("MatMul", self.rotary(q), self.op("Transpose", k, perm=[0, 1, 3, 2]))
        scores = self.op("Add", self.op("Mul", scores, self.constant(SIZE ** -0.5, np.float32)), self.mask)
        y = self.op("MatMul", self.op("Softmax", scores, axis=-1), v)
        return self.product(self.reshape(self.op("Transpose", y, perm=[0, 2, 1, 3]), 1, WINDOW, HIDDEN), f"{i}.o", HIDDEN, HIDDEN)

    def mlp(self, h, i):
        gate, up = (self.product(h, f"{i}.{p}", FFN, HIDDEN) for p in ("gate", "up"))
        return self.product(self.op("Mul", self.op("Mul", gate, self.op("Sigmoid", gate)), up), f"{i}.down", HIDDEN, FFN)

    def write(self):
        for name, length in {"input_ids": WINDOW, "attention_mask": LENGTH, "position_ids": WINDOW}.items():
            self.input(name, np.int64, [1, length])
        self.output("logits", np.float32, [1, WINDOW, VOCABULARY])
        table, scales = self.quantised("embed", VOCABULARY, HIDDEN)
        x = self.op("GatherBlockQuantized", self.reshape(table, VOCABULARY, HIDDEN // 2), "input_ids", scales, domain="com.microsoft",
                    bits=4, block_size=BLOCK, gather_axis=0, quantize_axis=1)
        real = self.op("Unsqueeze", self.op("Cast", "attention_mask", to=onnx.TensorProto.BOOL), self.constant([1, 2]))
        self.mask = self.op("Where", real, self.constant(0, np.float32), self.constant(np.finfo(np.float32).min, np.float32))
        angle = np.arange(LENGTH)[:, None] * THETA ** (-np.arange(0, SIZE, 2) / SIZE)
        angle = np.concatenate([angle, angle], axis=1)
        self.cos, self.sin = (self.op("Unsqueeze", self.op("Gather", self.constant(f(angle), np.float32), "position_ids"), self.constant([1])) for f in (np.cos, np.sin))
        for i in range(self.layers):
            x = self.op("Add", x, self.attention(self.norm(x), i))
            x = self.op("Add", x, self.mlp(self.norm(x), i))
        self.bits(self.norm(x), table, scales, VOCABULARY, HIDDEN, out="logits")
        if self.data:
            self.data.close()
        self.save(self.folder / f"{self.layout}.onnx")


def write_models(folder, layers):
    folder.mkdir(parents=True, exist_ok=True)
    done = folder / "layers"
    if done.exists() and done.read_text() == str(layers):
        return
    for layout in ("heads", "rows"):
        Writer(folder, layers, layout).write()
    done.write_text(str(layers))


# -- the two loops

class Ort:
    def __init__(self, a, layout):
        import onnxruntime
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = a.threads, 3
        self.session = onnxruntime.InferenceSession(str(a.folder / f"{layout}.onnx"), options, providers=["CPUExecutionProvider"])
        self.version = onnxruntime.__version__
        self.presents = [v.name for v in self.session.get_outputs() if v.name != "logits"]
        self.pasts = [n.replace("present", "past_key_values") for n in self.presents]
        self.mask = np.zeros((1, LENGTH), np.int64)
        self.mask[0, LENGTH - a.past:] = 1

    def step(self, token, position):
        """The integers of a step, the mask with one more one."""
        self.mask[0, LENGTH - position - 1:] = 1
        return {"input_ids": np.array([[token]], np.int64), "position_ids": np.array([[position]], np.int64), "attention_mask": self.mask}


def past_rows(index, layout):
    """The same rows for both loops, of tokens that were never fed: what they hold does not change the time."""
    rows = np.random.default_rng(index).standard_normal((1, LENGTH - WINDOW, KV_HEADS, SIZE), np.float32)
    return rows if layout == "rows" else np.ascontiguousarray(rows.transpose(0, 2, 1, 3))


def ort_slice(a):
    ort = Ort(a, "heads")
    pasts = {name: past_rows(i, "heads") for i, name in enumerate(ort.pasts)}
    def step(token, position):
        logits, *presents = ort.session.run(["logits", *ort.presents], {**ort.step(token, position), **pasts})
        for name, present in zip(ort.pasts, presents):
            pasts[name] = np.ascontiguousarray(present[:, :, WINDOW:])
        return int(logits[0, -1].argmax())
    return step, ort.version


def ort_buffer(a):
    ort = Ort(a, "rows")
    row = KV_HEADS * SIZE
    buffers = [np.zeros((LENGTH + (a.tokens + 2) * WINDOW) * row, np.float32) for _ in ort.pasts]
    for i, buffer in enumerate(buffers):
        buffer[:(LENGTH - WINDOW) * row] = past_rows(i, "rows").ravel()
    logits = np.zeros((1, WINDOW, VOCABULARY), np.float32)
    steps = 0
    def step(token, position):
        nonlocal steps
        io = ort.session.io_binding()
        for name, value in ort.step(token, position).items():
            io.bind_cpu_input(name, value)
        for past, present, buffer in zip(ort.pasts, ort.presents, buffers):
            at = buffer.ctypes.data + steps * WINDOW * row * 4
            io.bind_input(past, "cpu", 0, np.float32, [1, LENGTH - WINDOW, KV_HEADS, SIZE], at)
            io.bind_output(present, "cpu", 0, np.float32, [1, LENGTH, KV_HEADS, SIZE], at)
        io.bind_output("logits", "cpu", 0, np.float32, list(logits.shape), logits.ctypes.data)
        ort.session.run_with_iobinding(io)
        steps += 1
        return int(logits[0, -1].argmax())
    return step, ort.version


def ort_loop(a, make):
    begin = time.perf_counter()
    step, version = make(a)
    loaded = time.perf_counter()
    token, ids, ms = step(1, a.past), [], []  # the first step is not counted
    for i in range(a.tokens):
        start = time.perf_counter()
        token = step(token, a.past + 1 + i)
        ms.append(1e3 * (time.perf_counter() - start))
        ids.append(token)
    return {"version": f"ONNX Runtime {version}", "load_s": loaded - begin, "ms": ms, "ids": ids,
            "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def situ(a):
    prompt = ",".join(str(t) for t in np.random.default_rng(1).integers(0, VOCABULARY, a.past))
    out = subprocess.run([a.situ, "run", a.folder / "heads.onnx", "--prompt-ids", prompt, "-n", str(a.tokens + 1), "--ignore-eos", "--json",
                          "--threads", str(a.threads)], check=True, capture_output=True, text=True).stdout
    r = json.loads(out)
    return {"version": "Situ", "load_s": r["load_ms"] / 1e3, "ms": [r["decode_ms_per_token"]], "prefill_ms": r["prefill_ms"],
            "bytes_copied_per_token": r["bytes_copied_per_token"], "rss_mib": r["peak_rss_mib"]}


def run(a, loop):
    command = [sys.executable, __file__, a.folder, "--loop", loop, "--layers", a.layers, "--tokens", a.tokens, "--past", a.past, "--threads", a.threads, "--situ", a.situ]
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else {"reason": (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=20)
    parser.add_argument("--past", type=int, default=256)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--situ", type=Path, default=Path(__file__).resolve().parent.parent / "build" / "situ")
    parser.add_argument("--results", type=Path, default=Path(__file__).resolve().parent / "results")
    parser.add_argument("--write", action="store_true", help="only write the model")
    parser.add_argument("--loop", choices=LOOPS, help="only this one; its result goes to standard output")
    a = parser.parse_args()
    if not 0 < a.past < LENGTH - a.tokens - 1:
        parser.error(f"--past and --tokens do not fit {LENGTH} keys")
    write_models(a.folder, a.layers)
    if a.write:
        return 0
    if a.loop:
        json.dump(situ(a) if a.loop == "situ" else ort_loop(a, {"ort-slice": ort_slice, "ort-buffer": ort_buffer}[a.loop]), sys.stdout)
        return 0
    import machine
    import tables
    report = {"machine": machine.name(), "date": time.strftime("%Y-%m-%d"), "threads": a.threads, "model": "llama-8b", "layers": a.layers,
              "keys": LENGTH, "window": WINDOW, "past": a.past, "tokens": a.tokens, "loops": {}}
    for loop in LOOPS:
        report["loops"][loop] = run(a, loop)
        print(loop, {k: v for k, v in report["loops"][loop].items() if k != "ids"}, flush=True)
        tables.write_results(a.results, "fixed_window", report)
    ids = [r["ids"] for r in report["loops"].values() if "ids" in r]
    return 0 if all(i == ids[0] for i in ids) else 1


if __name__ == "__main__":
    sys.exit(main())
