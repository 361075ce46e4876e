"""What it costs to hand a decoder the keys and values of its cross-attention: read where they lie, copied, or computed anew at every step.

usage: cross_attention.py FOLDER [--source N] [--tokens N] [--reps R] [--situ build/situ]

Writes the decoder of BART-base (6 layers, 768 wide, 12 heads, 50,265 tokens, random weights in float32) three times to FOLDER:

  in_place   inputs of the decoder, written once by the encoder's program and only read after that, as cached branches have them
  copied     the same, and the graph makes others of them at every step that are equal: each is read and written once more
  anew       the decoder takes the encoder's output and projects it at every step, as exports without a cross-attention cache do

All three run in Situ, with the same kernels, in turn. The encoder is a lookup in a table, so that decoding alone is seen. The tokens
of the three must be equal. The result goes to bench/results/MACHINE/cross_attention.json. Needs onnx and numpy.
"""
import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from graph_writer import GraphWriter

LAYERS, HIDDEN, HEADS, FFN, VOCABULARY, POSITIONS = 6, 768, 12, 3072, 50265, 1024
SIZE = HIDDEN // HEADS
FORMS = ("in_place", "copied", "anew")


class Writer(GraphWriter):
    def __init__(self, seed):
        super().__init__()
        self.random = np.random.default_rng(seed)

    def weight(self, *dims):
        return self.constant(self.random.standard_normal(dims, np.float32) * np.float32(dims[0] ** -0.5), np.float32)

    def linear(self, x, rows, columns):
        return self.op("Add", self.op("MatMul", x, self.weight(rows, columns)), self.weight(columns))

    def norm(self, x):
        return self.op("LayerNormalization", x, self.constant(np.ones(HIDDEN), np.float32), self.constant(np.zeros(HIDDEN), np.float32), axis=-1)

    def heads(self, x, out=None):
        return self.op("Transpose", self.reshape(x, 1, -1, HEADS, SIZE), perm=[0, 2, 1, 3], out=out)

    def attention(self, q, k, v):
        scores = self.op("Mul", self.op("MatMul", q, self.op("Transpose", k, perm=[0, 1, 3, 2])), self.constant(SIZE ** -0.5, np.float32))
        y = self.op("MatMul", self.op("Softmax", scores, axis=-1), v)
        return self.linear(self.reshape(self.op("Transpose", y, perm=[0, 2, 1, 3]), 1, -1, HIDDEN), HIDDEN, HIDDEN)

    def lookup(self, ids, length):
        self.input(ids, np.int64, [1, length])
        return self.op("Gather", self.constant(self.random.standard_normal((VOCABULARY, HIDDEN), np.float32), np.float32), ids)


def cross_rows(i, hidden, out=(None, None)):
    """Keys and values of layer i; its weights are the same in each graph that has them."""
    w = Writer(1000 + i)
    w.nodes, w.initializers = hidden[0].nodes, hidden[0].initializers
    return [w.heads(w.linear(hidden[1], HIDDEN, HIDDEN), out=name) for name in out]


def write_encoder(folder, form):
    w = Writer(1)
    hidden = w.lookup("input_ids", "source")
    if form == "anew":
        w.op("Identity", hidden, out=w.output("last_hidden_state", np.float32, [1, "source", HIDDEN]))
    else:
        for i in range(LAYERS):
            names = [w.output(f"present.{i}.encoder.{part}", np.float32, [1, HEADS, "source", SIZE]) for part in ("key", "value")]
            cross_rows(i, (w, hidden), names)
    w.save(folder / "encoder_model.onnx")


def write_decoder(folder, form):
    w = Writer(2)
    x = w.lookup("decoder_input_ids", "tokens")
    hidden = w.input("encoder_hidden_states", np.float32, [1, "source", HIDDEN]) if form == "anew" else None
    for i in range(LAYERS):
        h, rows = w.norm(x), []
        for part in ("key", "value"):
            past = w.input(f"past_key_values.{i}.decoder.{part}", np.float32, [1, HEADS, "past", SIZE])
            present = w.output(f"present.{i}.decoder.{part}", np.float32, [1, HEADS, "past + tokens", SIZE])
            rows.append(w.op("Concat", past, w.heads(w.linear(h, HIDDEN, HIDDEN)), out=present, axis=2))
        x = w.op("Add", x, w.attention(w.heads(w.linear(h, HIDDEN, HIDDEN)), *rows))
        h = w.norm(x)
        if form == "anew":
            rows = cross_rows(i, (w, hidden))
        else:
            rows = [w.input(f"past_key_values.{i}.encoder.{part}", np.float32, [1, HEADS, "source", SIZE]) for part in ("key", "value")]
        if form == "copied":  # + 0, which only the step's own data say
            zero = w.op("Mul", w.op("ReduceMax", h, keepdims=0), w.constant(0, np.float32))
            rows = [w.op("Add", r, zero) for r in rows]
        x = w.op("Add", x, w.attention(w.heads(w.linear(h, HIDDEN, HIDDEN)), *rows))
        h = w.op("Gelu", w.linear(w.norm(x), HIDDEN, FFN), domain="com.microsoft")
        x = w.op("Add", x, w.linear(h, FFN, HIDDEN))
    w.op("MatMul", w.norm(x), w.weight(HIDDEN, VOCABULARY), out=w.output("logits", np.float32, [1, "tokens", VOCABULARY]))
    w.save(folder / "decoder_model_merged.onnx")


def write_models(folder):
    for form in FORMS:
        if (folder / form / "config.json").exists():
            continue
        (folder / form).mkdir(parents=True, exist_ok=True)
        write_encoder(folder / form, form)
        write_decoder(folder / form, form)
        config = {"model_type": "bart", "is_encoder_decoder": True, "vocab_size": VOCABULARY, "max_position_embeddings": POSITIONS, "decoder_start_token_id": 2, "eos_token_id": 2}
        (folder / form / "config.json").write_text(json.dumps(config))


def run(a, form):
    prompt = ",".join(str(t) for t in np.random.default_rng(1).integers(3, VOCABULARY, a.source))
    out = subprocess.run([a.situ, "run", a.folder / form, "--prompt-ids", prompt, "-n", str(a.tokens), "--ignore-eos", "--beams", "1", "--json", "--threads", str(a.threads)],
                         check=True, capture_output=True, text=True).stdout
    r = json.loads(out)
    return {key: r[key] for key in ("output_ids", "encode_ms", "decode_ms_per_token", "bytes_copied_per_token")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--source", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--situ", type=Path, default=Path(__file__).resolve().parent.parent / "build" / "situ")
    parser.add_argument("--results", type=Path, default=Path(__file__).resolve().parent / "results")
    a = parser.parse_args()
    write_models(a.folder)
    import machine
    import tables
    runs = {form: [] for form in FORMS}
    for _ in range(a.reps + 1):  # the first is not counted: it packs weights and fills the cache of files
        for form in FORMS:
            runs[form].append(run(a, form))
    report = {"machine": machine.name(), "date": time.strftime("%Y-%m-%d"), "threads": a.threads, "source": a.source, "tokens": a.tokens,
              "forms": {form: {key: [r[key] for r in of[1:]] for key in of[0] if key != "output_ids"} for form, of in runs.items()}}
    for form, of in report["forms"].items():
        print(form, of, flush=True)
    tables.write_results(a.results, "cross_attention", report)
    ids = [r["output_ids"] for of in runs.values() for r in of]
    if any(i != ids[0] for i in ids):
        sys.exit("cross_attention: the forms give different tokens")


if __name__ == "__main__":
    main()
