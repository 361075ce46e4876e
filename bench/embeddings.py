"""Embeddings of many texts beside ONNX Runtime: 512 texts of 20 to 200 tokens on the shape of all-MiniLM-L6.

usage: embeddings.py FOLDER [--texts N] [--batch N] [--reps R] [--threads T] [--situ build/situ]

Writes a model of that shape to FOLDER (6 layers, 384 wide, 12 heads, 1,536 inside, 30,522 tokens; random weights in float32, in the plain
operators that exporters write) with a tokenizer of words, so that the ids of a text are known. In turn, in every repetition:

  situ         `situ embed` on all texts, in any order, from texts to embeddings
  ort-padded   ONNX Runtime, batches of 32 texts as they come, padded to the longest of a batch; ids are given, the mean is taken in NumPy
  ort-sorted   the same, texts sorted by length before

The embeddings of all three must be equal. The result goes to bench/results/MACHINE/embeddings.json, a table to standard output. Needs
onnx, numpy and onnxruntime. Run it while the machine has nothing else to do.
"""
import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import compare
import machine
import tables
from graph_writer import GraphWriter

RESULTS = Path(__file__).parent / "results"
LAYERS, HIDDEN, HEADS, FFN, VOCABULARY, POSITIONS = 6, 384, 12, 1536, 30522, 512
SHORTEST, LONGEST = 20, 200
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
ENGINES = tuple(tables.EMBEDDERS)


class Writer(GraphWriter):
    def __init__(self):
        super().__init__()
        self.random = np.random.default_rng(0)

    def weight(self, *dims, scale=None):
        return self.constant(self.random.standard_normal(dims, np.float32) * np.float32(scale or dims[0] ** -0.5), np.float32)

    def linear(self, x, rows, columns):
        return self.op("Add", self.op("MatMul", x, self.weight(rows, columns)), self.weight(columns, scale=0.1))

    def norm(self, x):
        return self.op("LayerNormalization", x, self.constant(np.ones(HIDDEN), np.float32), self.constant(np.zeros(HIDDEN), np.float32), axis=-1, epsilon=1e-12)

    def heads(self, x, batch, tokens, perm):
        dims = self.op("Concat", batch, tokens, self.constant([HEADS]), self.constant([HIDDEN // HEADS]), axis=0)
        return self.op("Transpose", self.op("Reshape", x, dims), perm=perm)

    def write(self, folder):
        ids, mask, types = (self.input(name, np.int64, ["batch", "tokens"]) for name in INPUTS)
        shape = self.op("Shape", ids)
        batch, tokens = (self.op("Slice", shape, self.constant([i]), self.constant([i + 1])) for i in (0, 1))
        places = self.op("Slice", self.constant(np.arange(POSITIONS)[None]), self.constant([0]), tokens, self.constant([1]))
        tables = [self.weight(rows, HIDDEN, scale=0.5) for rows in (VOCABULARY, POSITIONS, 2)]
        word, position, kind = (self.op("Gather", table, at) for table, at in zip(tables, (ids, places, types)))
        x = self.norm(self.op("Add", self.op("Add", word, kind), position))
        hidden = self.op("Sub", self.constant(1, np.float32), self.op("Cast", self.op("Unsqueeze", mask, self.constant([1, 2])), to=1))
        hidden = self.op("Mul", hidden, self.constant(np.finfo(np.float32).min, np.float32))
        joined = self.op("Concat", batch, tokens, self.constant([HIDDEN]), axis=0)
        for _ in range(LAYERS):
            q, k, v = (self.heads(self.linear(x, HIDDEN, HIDDEN), batch, tokens, perm) for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
            scores = self.op("Add", self.op("Div", self.op("MatMul", q, k), self.constant((HIDDEN // HEADS) ** 0.5, np.float32)), hidden)
            y = self.op("Transpose", self.op("MatMul", self.op("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
            x = self.norm(self.op("Add", self.linear(self.op("Reshape", y, joined), HIDDEN, HIDDEN), x))
            h = self.linear(x, HIDDEN, FFN)
            erf = self.op("Add", self.op("Erf", self.op("Div", h, self.constant(2**0.5, np.float32))), self.constant(1, np.float32))
            h = self.op("Mul", self.op("Mul", h, erf), self.constant(0.5, np.float32))
            x = self.norm(self.op("Add", self.linear(h, FFN, HIDDEN), x))
        self.op("Identity", x, out=self.output("last_hidden_state", np.float32, ["batch", "tokens", HIDDEN]))
        self.save(folder / "model.onnx")


def tokenizer():
    words = SPECIAL + [f"w{i}" for i in range(len(SPECIAL), VOCABULARY)]
    piece = lambda kind, name: {kind: {"id": name, "type_id": 0}}
    single = [piece("SpecialToken", "[CLS]"), piece("Sequence", "A"), piece("SpecialToken", "[SEP]")]
    added = [{"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True} for i, t in enumerate(SPECIAL)]
    ends = {t: {"id": t, "ids": [words.index(t)], "tokens": [t]} for t in ("[CLS]", "[SEP]")}
    return {"version": "1.0", "added_tokens": added, "normalizer": None, "pre_tokenizer": {"type": "WhitespaceSplit"}, "decoder": None,
            "post_processor": {"type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": ends},
            "model": {"type": "WordLevel", "vocab": {t: i for i, t in enumerate(words)}, "unk_token": "[UNK]"}}


def write_model(folder):
    folder.mkdir(parents=True, exist_ok=True)
    Writer().write(folder)
    for name, content in (("tokenizer.json", tokenizer()), ("config.json", {"max_position_embeddings": POSITIONS, "model_type": "bert"}), ("tokenizer_config.json", {"model_max_length": POSITIONS})):
        (folder / name).write_text(json.dumps(content))


class Ort:
    def __init__(self, folder, threads):
        import onnxruntime
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.version = onnxruntime.__version__
        self.session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"])

    def embed(self, ids, batch, is_sorted):
        """(embeddings, ms)"""
        begin = time.perf_counter()
        order = sorted(range(len(ids)), key=lambda i: len(ids[i])) if is_sorted else range(len(ids))
        rows = np.empty((len(ids), HIDDEN), np.float32)
        for at in range(0, len(ids), batch):
            group = order[at:at + batch]
            longest = max(len(ids[i]) for i in group)
            feed = {name: np.zeros((len(group), longest), np.int64) for name in INPUTS}
            for r, i in enumerate(group):
                feed["input_ids"][r, :len(ids[i])] = ids[i]
                feed["attention_mask"][r, :len(ids[i])] = 1
            hidden, mask = self.session.run(None, feed)[0], feed["attention_mask"][..., None].astype(np.float32)
            rows[list(group)] = (hidden * mask).sum(1) / mask.sum(1)
        return rows, 1000 * (time.perf_counter() - begin)


def run_situ(a, file):
    """(embeddings, ms)"""
    run = subprocess.run([a.situ, "embed", a.folder, "-f", file, "--json", "--threads", str(a.threads), "--reps", "2"], check=True, capture_output=True, text=True)
    made = json.loads(run.stdout)
    return np.array(made["embeddings"], np.float32), made["ms"][-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--texts", type=compare.positive, default=512)
    parser.add_argument("--batch", type=compare.positive, default=32)
    parser.add_argument("--reps", type=compare.positive, default=3)
    parser.add_argument("--threads", type=compare.thread_count, default=2)
    parser.add_argument("--situ", type=Path, default=Path(__file__).parent.parent / "build" / "situ")
    parser.add_argument("--results", type=Path, default=RESULTS)
    a = parser.parse_args()
    write_model(a.folder)
    random = np.random.default_rng(1)
    ids = [[2, *random.integers(len(SPECIAL), VOCABULARY, n - 2).tolist(), 3] for n in random.integers(SHORTEST, LONGEST + 1, a.texts)]
    texts = a.folder / "texts.txt"
    texts.write_text("".join(" ".join(f"w{i}" for i in text[1:-1]) + "\n" for text in ids))
    ort = Ort(a.folder, a.threads)
    ort.embed(ids, a.batch, True)
    report = {"machine": machine.name(), "date": time.strftime("%Y-%m-%d"), "threads": a.threads, "texts": a.texts, "batch": a.batch, "tokens": sum(map(len, ids)),
              "onnxruntime": ort.version, "embedders": {engine: {"ms": [], "others": []} for engine in ENGINES}}
    for _ in range(a.reps):
        first = None
        for engine in ENGINES:
            others = machine.Others()
            rows, ms = run_situ(a, texts) if engine == "situ" else ort.embed(ids, a.batch, engine == "ort-sorted")
            report["embedders"][engine]["ms"].append(ms)
            report["embedders"][engine]["others"].append(round(others.share(), 3))
            first = rows if first is None else first
            if (far := np.abs(rows - first).max()) > 1e-4:
                sys.exit(f"{engine}: embeddings differ by {far}")
    tables.write_results(a.results, "embeddings", report)
    print("\n".join(tables.embedding_lines(report)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
