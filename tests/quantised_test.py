"""Dynamically quantised exports, written as onnxruntime's quantize_dynamic writes them: in place as the literal run has it.

    python tests/quantised_test.py --situ build/situ [unittest options]

The range that activations are rounded in covers the rows of one call. Rounding makes small models jump: weights are taken by
which no two tokens of an answer are nearly as probable.
"""
import json
import unittest

import numpy as np
import onnx
from onnx import helper, numpy_helper

import tiny_exports
import tiny_models
import tiny_seq2seq as tiny
from cli_case import CliTest, Run, main

KINDS = {"int8": (np.int8, False), "uint8": (np.uint8, False), "by column": (np.int8, True)}
MARGIN = 0.05  # of log-probabilities: sums in another order move them less


def quantised(w, kind):
    """Integers, scale and zero point of a matrix [K, N]."""
    dtype, by_column = KINDS[kind]
    axis = 0 if by_column else None
    if dtype == np.int8:
        scale = np.maximum(np.abs(w).max(axis), 1e-8) / 127
        zero = np.zeros_like(scale)
        q = np.clip(np.rint(w / scale), -127, 127)
    else:
        low, high = min(w.min(), 0), max(w.max(), 0)
        scale = np.float32(max(high - low, 1e-8) / 255)
        zero = np.rint(-low / scale)
        q = np.clip(np.rint(w / scale) + zero, 0, 255)
    return q.astype(dtype), np.asarray(scale, np.float32), np.asarray(zero).astype(dtype)


def quantise(graph, kind, outer=None):
    """Rewrites the products of constant matrices in a graph and its branches; how many there are."""
    weights = {**(outer or {}), **{t.name: t for t in graph.initializer}}
    nodes, rounded, count = [], {}, 0
    for node in graph.node:
        for a in node.attribute:
            if a.type == onnx.AttributeProto.GRAPH:
                count += quantise(a.g, kind, weights)
        w = weights.get(node.input[1]) if node.op_type == "MatMul" else None
        if w is None or len(w.dims) != 2:
            nodes.append(node)
            continue
        count += 1
        x, y = node.input[0], node.output[0]
        q, scale, zero = quantised(numpy_helper.to_array(w), kind)
        graph.initializer.extend(numpy_helper.from_array(a, y + suffix) for a, suffix in ((q, "_q"), (scale, "_scale"), (zero, "_zero")))
        if x not in rounded:
            rounded[x] = [f"{y}_x{suffix}" for suffix in ("_q", "_scale", "_zero")]
            nodes.append(helper.make_node("DynamicQuantizeLinear", [x], rounded[x], name=y + "_round"))
        xq, xs, xz = rounded[x]
        nodes += [
            helper.make_node("MatMulInteger", [xq, y + "_q", xz, y + "_zero"], [y + "_sums"], name=y + "_product"),
            helper.make_node("Cast", [y + "_sums"], [y + "_cast"], to=onnx.TensorProto.FLOAT, name=y + "_cast"),
            helper.make_node("Mul", [xs, y + "_scale"], [y + "_both"], name=y + "_both"),
            helper.make_node("Mul", [y + "_cast", y + "_both"], [y], name=y + "_scaled"),
        ]
    del graph.node[:]
    graph.node.extend(nodes)
    return count


class QuantisedTest(CliTest):
    def answer(self, folder, *options):
        threads = () if "--threads" in options else ("--threads", 1)
        run = Run("run", folder, "--ignore-eos", "--json", *threads, *options)
        self.assertEqual((run.code, run.err), (0, ""), run)
        return json.loads(run.out)

    def margin(self, answer):
        return min(t["top"][0]["logprob"] - t["top"][1]["logprob"] for t in answer["logprobs"])

    def check(self, write, options, beams=True):
        """write(seed): a folder. The first one by which the answer is clear is run in place, whole and in pieces."""
        for seed in range(40):
            folder = write(seed)
            naive = self.answer(folder, *options, "--naive", "--logprobs", 2)
            if self.margin(naive) > MARGIN and len(set(naive["output_ids"])) > 3:
                break
        else:
            self.fail("no weights give a clear answer")
        for more in ((), ("--chunk", 2), ("--threads", 2)):
            placed = self.answer(folder, *options, *more)
            self.assertEqual(placed["output_ids"], naive["output_ids"], more)
            self.assertEqual(placed["bytes_copied_per_token"], 0)
        if beams:
            placed, literal = (self.answer(folder, *options, "--beams", 3, *more) for more in ((), ("--naive",)))
            self.assertEqual(placed["bytes_copied_per_token"], 0)
            self.assertEqual(len(placed["output_ids"]), len(literal["output_ids"]))
        return folder

    def test_decoders(self):
        for name in ("llama", "gpt", "partial-rotary"):
            spec = next(s for s in tiny_models.SPECS if s.name == name)
            for kind in KINDS:
                with self.subTest(name, kind=kind):
                    def write(seed):
                        folder = tiny_exports.write_weights(spec, tiny_models.make_weights(spec, seed), self.folder / f"{name} {kind} {seed}")
                        model = onnx.load(folder / "model.onnx")
                        self.assertGreater(quantise(model.graph, kind), 5)
                        onnx.save(model, folder / "model.onnx")
                        return folder
                    folder = self.check(write, ("--prompt-ids", "5,6,7,8,9,10,11", "-n", 12))
                    described = Run("inspect", folder)
                    self.assertIn("integer products", described.out, described)
                    self.assertIn("prompt in one step", described.out, described)
                    self.assertNotIn("MatMulInteger", described.out, described)

    def test_encoder_decoders(self):
        for name in ("bart", "features", "bart-pair"):
            spec = next(s for s in tiny.SPECS if s.name == name)
            source = tiny.source_of(spec)
            if spec.source == "ids":
                given = ["--prompt-ids", ",".join(map(str, source))]
            else:
                np.save(self.folder / "source.npy", source)
                given = ["--encoder-input", f"input_features={self.folder / 'source.npy'}"]
            with self.subTest(name):
                def write(seed):
                    files = tiny.files_of(spec, tiny.make_weights(spec, seed))
                    self.assertGreater(sum(quantise(m.graph, "int8") for m in files.values()), 10)
                    return tiny.write_folder(self.folder / f"{name} {seed}", files, tiny.config(spec))
                self.check(write, (*given, "-n", tiny.NEW_TOKENS))


if __name__ == "__main__":
    main()
