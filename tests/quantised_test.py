"""Quantised exports. Dynamically, written as onnxruntime's quantize_dynamic writes them, and what its optimiser makes of them, and
statically (QuantizeLinear and DequantizeLinear around every product): in place as the literal run has it. Weights as bitsandbytes
has them (MatMulBnb4), and groups in any order (g_idx): as the same numbers in floats.

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


def each_product(graph, rewrite):
    """rewrite(node, matrix) gives the nodes instead of each product of a constant matrix, and initialisers; how many there are."""
    weights, nodes, count = {t.name: t for t in graph.initializer}, [], 0
    for node in graph.node:
        w = weights.get(node.input[1]) if node.op_type == "MatMul" else None
        made = rewrite(node, numpy_helper.to_array(w)) if w is not None and len(w.dims) == 2 else None
        nodes += made[0] if made else [node]
        graph.initializer.extend(numpy_helper.from_array(np.ascontiguousarray(a), node.output[0] + suffix) for suffix, a in (made[1] if made else {}).items())
        count += made is not None
    del graph.node[:]
    graph.node.extend(nodes)
    return count


FP4 = np.float32([0, 0.005208333333, 0.66666667, 1, 0.33333333, 0.5, 0.16666667, 0.25])
NF4 = np.float32([-1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0,
                  0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1])
TABLES = [np.concatenate([FP4, -FP4]), NF4]  # by quant_type


def in_table(w, block, kind, transposed):
    """Digits, two a byte, the first one in the high half; the largest magnitude of each block of them; what they stand for."""
    flat = (w.T if transposed else w).reshape(-1)
    padded = np.concatenate([flat, np.zeros(-len(flat) % block, np.float32)]).reshape(-1, block)
    largest = np.abs(padded).max(1).astype(np.float32)
    digits = np.abs(padded[..., None] / np.maximum(largest, 1e-9)[:, None, None] - TABLES[kind]).argmin(-1)
    numbers = (TABLES[kind][digits] * largest[:, None]).reshape(-1)[:len(flat)]
    digits = digits.reshape(-1)[:len(flat)]
    digits = np.concatenate([digits, np.zeros(len(digits) % 2, int)]).astype(np.uint8)
    return digits[0::2] << 4 | digits[1::2], largest, numbers.reshape(w.T.shape).T if transposed else numbers.reshape(w.shape)


def bnb4(node, w, block, kind, transposed=True):
    digits, largest, numbers = in_table(w, block, kind, transposed)
    y = node.output[0]
    made = helper.make_node("MatMulBnb4", [node.input[0], y + "_digits", y + "_absmax"], [y], domain="com.microsoft", name=y, K=w.shape[0], N=w.shape[1],
                            block_size=block, quant_type=kind, **({} if transposed else {"transB": 0}))
    return [made], {"_digits": digits, "_absmax": largest}, numbers


def grouped(node, w, block, bits, zeros, seed=5):
    """MatMulNBits whose groups take any k, not as many each."""
    k, n = w.shape
    groups, y, rng = -(-k // block), node.output[0], np.random.default_rng(seed)
    index = rng.integers(0, groups, k).astype(np.int32)
    half = 1 << (bits - 1)
    scales = np.float32([[np.abs(w[index == g, c]).max(initial=1e-6) / (half - 1) for g in range(groups)] for c in range(n)])
    points = rng.integers(half - 2, half + 2, (n, groups)) if zeros else np.full((n, groups), half)
    q = np.clip(np.rint(w.T / scales[:, index]) + points[:, index], 0, 2 * half - 1).astype(np.uint8)
    numbers = (q.astype(np.float32) - points[:, index]) * scales[:, index]
    def packed(rows, width):
        rows = np.pad(rows.astype(np.uint8), ((0, 0), (0, width - rows.shape[1])))
        return rows if bits == 8 else rows[:, 0::2] | rows[:, 1::2] << 4
    parts = {"_digits": packed(q, groups * block).reshape(n, groups, -1), "_scales": scales.reshape(-1), "_index": index}
    if zeros:
        parts["_zeros"] = packed(points, groups + groups * (bits == 4) % 2).reshape(-1)
    made = helper.make_node("MatMulNBits", [node.input[0], y + "_digits", y + "_scales", y + "_zeros" if zeros else "", y + "_index"], [y],
                            domain="com.microsoft", name=y, K=k, N=n, bits=bits, block_size=block, accuracy_level=4)
    return [made], parts, numbers.T.astype(np.float32)


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

    def as_floats(self, name, rewrite):
        """A decoder whose products `rewrite` has rewritten answers as one with the same numbers in floats."""
        spec = next(s for s in tiny_models.SPECS if s.name == "llama")
        w, _, _ = tiny_models.choose_weights(spec)
        answers = []
        for floats in (True, False):
            folder = tiny_exports.write_weights(spec, w, self.folder / f"{name} {floats}")
            model = onnx.load(folder / "model.onnx")
            def either(node, matrix):
                nodes, parts, numbers = rewrite(node, matrix)
                y = node.output[0]
                return ([helper.make_node("MatMul", [node.input[0], y + "_numbers"], [y], name=y)], {"_numbers": numbers}) if floats else (nodes, parts)
            self.assertGreater(each_product(model.graph, either), 5)
            model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
            onnx.save(model, folder / "model.onnx")
            for options in (("--naive",),) if floats else ((), ("--naive",)):
                answers.append(self.answer(folder, "--prompt-ids", "5,6,7,8,9,10,11,12,13,14", "-n", 8, *options))
        self.assertEqual([a["output_ids"] for a in answers[1:]], [answers[0]["output_ids"]] * 2)
        self.assertEqual(answers[1]["bytes_copied_per_token"], 0)

    def test_weights_in_tables(self):
        self.as_floats("nf4", lambda node, w: bnb4(node, w, 16, 1))
        self.as_floats("fp4", lambda node, w: bnb4(node, w, 64, 0))  # blocks of several rows
        self.as_floats("other way", lambda node, w: bnb4(node, w, 32, 1, transposed=False))

    def test_groups_in_any_order(self):
        self.as_floats("4 bits", lambda node, w: grouped(node, w, 16, 4, False))
        self.as_floats("8 bits", lambda node, w: grouped(node, w, 16, 8, True))

    def test_products_of_the_optimiser(self):
        """DynamicQuantizeMatMul and MatMulIntegerToFloat: as the operators that they stand for."""
        spec = next(s for s in tiny_models.SPECS if s.name == "llama")
        def dynamic(node, w):
            q, scale, zero = quantised(w, "by column")
            y = node.output[0]
            return [helper.make_node("DynamicQuantizeMatMul", [node.input[0], y + "_q", y + "_scale", y + "_zero"], [y], domain="com.microsoft", name=y)], \
                {"_q": q, "_scale": scale, "_zero": zero}
        def to_float(node, w):
            q, scale, zero = quantised(w, "uint8")
            y = node.output[0]
            return [helper.make_node("DynamicQuantizeLinear", [node.input[0]], [y + "_x", y + "_xs", y + "_xz"], name=y + "_round"),
                    helper.make_node("MatMulIntegerToFloat", [y + "_x", y + "_q", y + "_xs", y + "_scale", y + "_xz", y + "_zero"], [y], domain="com.microsoft", name=y)], \
                {"_q": q, "_scale": scale, "_zero": zero}
        for rewrite in (dynamic, to_float):
            def write(seed):
                folder = tiny_exports.write_weights(spec, tiny_models.make_weights(spec, seed), self.folder / f"{rewrite.__name__} {seed}")
                model = onnx.load(folder / "model.onnx")
                self.assertGreater(each_product(model.graph, rewrite), 5)
                model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
                onnx.save(model, folder / "model.onnx")
                return folder
            folder = self.check(write, ("--prompt-ids", "5,6,7,8,9,10,11", "-n", 12), beams=False)
            self.assertIn("integer products", Run("inspect", folder).out)

    def test_rounded_around_every_product(self):
        """QuantizeLinear and DequantizeLinear at both ends of products and on both operands of those of attention."""
        spec = next(s for s in tiny_models.SPECS if s.name == "llama")
        def rounded(graph, x, scale, dtype, zero):
            for suffix, array in (("_s", np.float32(scale)), ("_z", np.array(zero, dtype))):
                if all(t.name != x + suffix for t in graph.initializer):
                    graph.initializer.append(numpy_helper.from_array(array, x + suffix))
            return [helper.make_node("QuantizeLinear", [x, x + "_s", x + "_z"], [x + "_q"], name=x + "_q"),
                    helper.make_node("DequantizeLinear", [x + "_q", x + "_s", x + "_z"], [x + "_dq"], name=x + "_dq")]
        for dtype, zero, scale in ((np.uint16, 32768, 2e-4), (np.int8, 0, 0.03)):
            def write(seed):
                folder = tiny_exports.write_weights(spec, tiny_models.make_weights(spec, seed), self.folder / f"static {dtype.__name__} {seed}")
                model = onnx.load(folder / "model.onnx")
                graph, nodes, done = model.graph, [], set()
                constants = {t.name for t in graph.initializer} | {n.output[0] for n in graph.node if n.op_type == "Constant"}
                for node in graph.node:
                    if node.op_type == "MatMul" and node.input[0] not in constants:
                        for i in range(2):
                            x = node.input[i]
                            if x not in constants:
                                nodes += [] if x in done else rounded(graph, x, scale, dtype, zero)
                                done.add(x)
                                node.input[i] = x + "_dq"
                    nodes.append(node)
                    if node.op_type == "Concat" and node.output[0].startswith("present"):  # all rows of the state
                        out, node.output[0] = node.output[0], node.output[0] + "_rows"
                        nodes += rounded(graph, out + "_rows", scale, dtype, zero)
                        nodes[-1].output[0] = out
                del graph.node[:]
                graph.node.extend(nodes)
                onnx.save(model, folder / "model.onnx")
                return folder
            folder = self.check(write, ("--prompt-ids", "5,6,7,8,9,10,11", "-n", 8), beams=False)
            self.assertIn("rounded to integers and back", Run("inspect", folder).out)
            # Beams share slots, which attention that rounds its probabilities does not read.
            beams = Run("run", folder, "--prompt-ids", "5,6,7,8", "-n", 8, "--beams", 3, "--json")
            self.assertEqual(beams.code, 2, beams)
            self.assertIn("attention was not recognised", beams.err)

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
