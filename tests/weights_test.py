"""Weights that are quantised, narrower than what they meet, or computed from other constants: the ids must be those of the literal run.

    python tests/weights_test.py --situ build/situ [unittest options]

Needs numpy and onnx (`make python`).
"""
import json

import numpy as np
from onnx import TensorProto

import tiny_models
from cli_case import Run, main
from decoder_graphs import END, LEARNED, MULTI_HEAD
from graph_case import SHORT, GraphCase
from sweep import some
from tiny_models import HEADS, HEAD_SIZE, WIDTH

class WeightsTest(GraphCase):
    def test_parts_of_quantised_products(self):
        """One product for q, k and v, whose columns stand by head, as GPT-NeoX, BLOOM and Falcon have them: each part is written to its place."""
        wide, rng = HEADS * HEAD_SIZE, np.random.default_rng(8)
        bits = rng.integers(0, 256, (3 * wide, 3 * wide // 16, 8)).astype(np.uint8)
        scales = rng.uniform(0.01, 0.03, 3 * wide * 3 * wide // 16).astype(np.float32)
        bytes_ = rng.integers(-127, 128, (3 * wide, 3 * wide)).astype(np.int8)
        def nbits(g, x):
            return g.op("MatMulNBits", x, g.weight("qkv.bits", bits), g.weight("qkv.scales", scales), domain="com.microsoft", K=3 * wide, N=3 * wide, bits=4, block_size=16)
        def dequantised(g, x):
            return g.op("MatMul", x, g.op("DequantizeLinear", g.weight("qkv.bytes", bytes_), g.f32(np.linspace(0.0005, 0.002, 3 * wide)), axis=1))
        def by_head(g, y):
            parts = g.op("Split", g.reshape(y, 1, g.tokens, HEADS, 3 * HEAD_SIZE), g.constant([HEAD_SIZE] * 3), outputs=3, axis=-1)
            return [g.reshape(t, 1, g.tokens, wide) for t in parts]
        def gathered(g, y):
            y = g.reshape(y, 1, g.tokens, HEADS, 3, HEAD_SIZE)
            return [g.reshape(g.op("Gather", y, g.constant(i), axis=3), 1, g.tokens, wide) for i in range(3)]
        def sliced(g, y):
            y = g.reshape(y, 1, g.tokens, 3 * HEADS, HEAD_SIZE)
            return [g.reshape(g.op("Slice", y, g.constant([i]), g.constant([END]), g.constant([2]), g.constant([3])), 1, g.tokens, wide) for i in range(3)]
        def hooks(product, parts):
            return {"fused": lambda g, q, k, v, i: g.plain_attention(*parts(g, product(g, g.op("Concat", q, k, v, axis=-1))), i)}
        cases = {f"{product.__name__} {parts.__name__}": hooks(product, parts) for product in (nbits, dequantised) for parts in (by_head, gathered, sliced)}
        self.check(cases, MULTI_HEAD, copies_nothing=True)

    def test_dequantised_weights(self):
        """MatMul with DequantizeLinear of a constant, the scales along either axis or one for all."""
        rng = np.random.default_rng(3)
        def logits(type, axis, zeros, transposed=False, perm=(1, 0)):
            rows = columns = tiny_models.VOCABULARY  # square, so that shapes do not tell the axes apart
            low, high = (0, 255) if type == np.uint8 else (-128, 127)
            q = rng.integers(low, high + 1, (rows, columns)).astype(type)
            count = () if axis is None else (rows, columns)[axis]
            scale, zero = rng.uniform(0.001, 0.01, count).astype(np.float32), rng.integers(low, high + 1, count).astype(type)
            def f(g, x, out):
                operands = [g.weight("quantised", q), g.f32(scale)] + ([g.weight("zero points", zero)] if zeros else [])
                w = g.op("DequantizeLinear", *operands, **({} if axis is None else {"axis": axis}))
                return g.op("MatMul", x, g.op("Transpose", w, perm=perm) if transposed else w, out=out)
            return {"logits": f}
        self.check({f"a Transpose that moves nothing, axis {axis}": logits(np.int8, axis, False, True, (0, 1)) for axis in (None, 0, 1)})
        self.check({f"{t.__name__}, axis {axis}{', zero points' * zeros}{', transposed' * transposed}": logits(t, axis, zeros, transposed)
                    for t in (np.int8, np.uint8) for axis in (None, 0, 1) for zeros in (False, True) for transposed in (False, True)}, copies_nothing=True)

    def test_weights_dequantised_by_hand(self):
        """Cast, Sub and Mul in place of DequantizeLinear; read as bytes where scales and zero points are one number or one for each column."""
        rng = np.random.default_rng(3)
        size = tiny_models.VOCABULARY  # square, so that shapes do not tell the axes apart
        def logits(type, scales, zeros=None, transposed=False, fraction=0.0):
            low, high = (0, 255) if type == np.uint8 else (-128, 127)
            q = rng.integers(low, high + 1, (size, size)).astype(type)
            scale = rng.uniform(0.001, 0.01, scales).astype(np.float32)
            def f(g, x, out):
                w = g.op("Cast", g.weight("quantised", q), to=TensorProto.FLOAT)
                if zeros is not None:
                    w = g.op("Sub", w, g.f32(np.random.default_rng(4).integers(low, high + 1, zeros) + fraction))
                w = g.op("Mul", w, g.f32(scale)) if scales != (1, 1) else g.op("Mul", g.f32(scale), w)
                return g.op("MatMul", x, g.op("Transpose", w, perm=[1, 0]) if transposed else w, out=out)
            return {"logits": f}
        columns, rows = (1, size), (size, 1)
        def from_half(g, x, out):
            q = g.weight("quantised", rng.integers(-128, 128, (size, size)).astype(np.int8))
            w = g.op("DequantizeLinear", q, g.weight("scale", rng.uniform(0.001, 0.01, size).astype(np.float16)), axis=1)
            return g.op("MatMul", x, g.op("Cast", w, to=TensorProto.FLOAT), out=out)
        read = {"one scale": logits(np.int8, ()), "one by one": logits(np.uint8, (1, 1), ()), "a scale for each column": logits(np.int8, (size,)), "zero points": logits(np.uint8, columns, columns),
                "zero points, one scale": logits(np.int8, (), (size,)), "one zero point": logits(np.uint8, (size,), ()), "transposed": logits(np.int8, rows, rows, True), "dequantised to halves": {"logits": from_half}}
        others = {"a scale for each row": logits(np.int8, rows), "transposed, for each row": logits(np.int8, columns, columns, True), "zero points for each row": logits(np.uint8, columns, rows),
                  "no integers": logits(np.uint8, columns, columns, fraction=0.25)}
        self.check(read | others)
        for name, hooks in (read | others).items():
            with self.subTest(name):
                packed = self.start(self.write(name, LEARNED, hooks), SHORT).result()["packed_bytes"]
                (self.assertLess if name in read else self.assertGreater)(packed - self.start(self.write("plain", LEARNED, {}), SHORT).result()["packed_bytes"], 3 * size * size)

    def test_weights_cast_from_half_precision(self):
        """They are packed, or looked up, as they are stored."""
        size = tiny_models.VOCABULARY
        matrix = np.random.default_rng(3).standard_normal((size, size)).astype(np.float16)
        table = np.random.default_rng(4).standard_normal((tiny_models.CONTEXT, WIDTH)).astype(np.float16)
        def cast(g, name, weights):
            return g.op("Cast", g.weight(name, weights), to=TensorProto.FLOAT)
        cases = {
            "product": {"logits": lambda g, x, out: g.op("MatMul", x, cast(g, "half", matrix), out=out)},
            "product, transposed behind the cast": {"logits": lambda g, x, out: g.op("MatMul", x, g.op("Transpose", cast(g, "half", matrix), perm=[1, 0]), out=out)},
            "product, transposed before the cast": {"logits": lambda g, x, out: g.op("MatMul", x, g.op("Cast", g.op("Transpose", g.weight("half", matrix), perm=[1, 0]), to=TensorProto.FLOAT), out=out)},
            "table": {"hidden": lambda g, x: g.op("Add", x, g.unsqueeze(g.op("Gather", cast(g, "table", table), g.queries), 0))},
            "sum": {"hidden": lambda g, x: g.op("Add", x, g.op("ReduceMean", cast(g, "table", table), axes=[0], keepdims=1))},
        }
        self.check(cases)
        plain = self.start(self.write("plain", LEARNED, {}), SHORT).result()
        for name, hooks in cases.items():
            with self.subTest(name):
                run = self.start(self.write(name, LEARNED, hooks), SHORT).result()
                self.assertLess(run["packed_bytes"] - plain["packed_bytes"], 3 * size * size)
                self.assertLess(run["bytes_written_per_token"] - plain["bytes_written_per_token"], table.nbytes // 2)

    def test_weights_computed_from_constants(self):
        """They are computed once, when they are packed, and what they are made of is let go."""
        rng = np.random.default_rng(3)
        def product(make, rows, columns):
            """Two products, of matrices of more than 1 MiB."""
            wide, tall = (rng.integers(-127, 128, shape).astype(np.int8) for shape in ((rows, columns), (columns, rows)))
            def f(g, x, out):
                y = g.op("MatMul", x, g.op("Mul", make(g, "wide", wide), g.f32(0.002)))
                return g.op("MatMul", y, g.op("Mul", make(g, "tall", tall), g.f32(0.001)), out=out)
            return {"logits": f}
        def cast(g, w, to=TensorProto.FLOAT):
            return g.op("Cast", w, to=to)
        def halves(g, name, w):
            return g.op("Concat", *(cast(g, g.weight(f"{name} {i}", half)) for i, half in enumerate(np.split(w, 2))), axis=0)
        def four_bits(g, name, w):
            """Eight in a word, as GPTQ packs them: a scale for each group of rows, which the group's index repeats."""
            rows = -(-w.shape[0] // 8)
            levels = np.zeros((rows * 8, w.shape[1]), np.uint32)
            levels[:w.shape[0]] = w & 15
            words = (levels.reshape(rows, 8, -1) << np.arange(0, 32, 4, dtype=np.uint32)[:, None]).sum(axis=1, dtype=np.uint32)
            repeated = g.op("Expand", g.op("Unsqueeze", g.weight(name, words), g.constant([1])), g.constant([1, 8, 1]))
            shifted = g.op("BitShift", repeated, g.constant(np.arange(0, 32, 4)[:, None], np.uint32), direction="RIGHT")
            values = g.slice(g.reshape(g.op("Mod", shifted, g.constant(16, np.uint32)), rows * 8, w.shape[1]), 0, w.shape[0], 0)
            groups = g.constant(np.arange(w.shape[0]) // 64)
            scales = g.f32(np.linspace(8, 16, -(-w.shape[0] // 64) * w.shape[1]).reshape(-1, w.shape[1]))
            return g.op("Mul", g.op("Gather", scales, groups, axis=0), g.op("Sub", cast(g, values), g.f32(8)))
        def parted(g, name, w):
            half = w.shape[1] // 2
            parts = g.op("Split", cast(g, g.weight(name, w)), g.constant([half, w.shape[1] - half]), outputs=2, axis=1)
            return g.op("Concat", *parts[::-1], axis=1)
        makes = {
            "by row": lambda g, name, w: g.op("Mul", cast(g, g.weight(name, w)), g.f32(np.linspace(0.5, 1, w.shape[0])[:, None])),
            "by column of a transposition": lambda g, name, w: g.op("Mul", g.op("Transpose", cast(g, g.weight(name, w.T)), perm=[1, 0]), g.f32(np.linspace(0.5, 1, w.shape[1]))),
            "transposed and cast": lambda g, name, w: g.op("Mul", cast(g, g.op("Transpose", g.weight(name, w.T.astype(np.float16)), perm=[1, 0])), g.f32(np.linspace(0.5, 1, w.shape[1]))),
            "added": lambda g, name, w: g.op("Add", cast(g, g.weight(name, w.astype(np.int16) + 128)), g.f32(-128)),
            "divided": lambda g, name, w: g.op("Div", cast(g, g.weight(name, w)), g.f32(1.5)),
            "through double": lambda g, name, w: cast(g, cast(g, g.weight(name, w.astype(np.float16)), TensorProto.DOUBLE)),
            "gathered": lambda g, name, w: g.op("Gather", cast(g, g.weight(name, w)), g.constant(np.arange(w.shape[1])[::-1]), axis=1),
            "joined": halves,
            "of four bits": four_bits,
            "parted": parted,
        }
        rows, columns = tiny_models.VOCABULARY, 3 * 2**20 // 4 // tiny_models.VOCABULARY
        cases = {name: product(make, rows, columns) for name, make in makes.items()}
        self.check(cases, copies_nothing=True)
        plain = self.start(self.write("plain", LEARNED, {}), SHORT).result()
        for name, hooks in some(cases, 3).items():
            with self.subTest(name):
                run = self.start(self.write(name, LEARNED, hooks), SHORT).result()
                self.assertLess(run["bytes_written_per_token"] - plain["bytes_written_per_token"], rows * columns)
        # In matrices: 2 packed, 2 or 3 being computed, what the heap keeps of those before, the file. All at once: 10, and 16 of four bits.
        for name, matrices in some({"by row": 6.5, "by column of a transposition": 6.5, "through double": 6.5, "of four bits": 11}, 3).items():
            with self.subTest(f"memory, {name}"):
                path = self.write(f"large {name}", LEARNED, product(makes[name], rows, 7 * columns))
                run = self.start(path, SHORT).result()
                matrix = 4 * rows * 7 * columns
                memory = json.loads(Run("inspect", path, "--json").out)["memory"]
                self.assertAlmostEqual((memory["weights"] + memory["computed"]) / (2 * matrix), 1, delta=0.05)
                self.assertLess(run["peak_rss_mib"] - plain["peak_rss_mib"], matrices * matrix / 2**20)

    def test_constants_that_cannot_be_computed(self):
        def f(g, x, out):
            twice = g.op("Mul", g.f32(np.ones((tiny_models.VOCABULARY, 4000))), g.f32(2))
            return g.op("MatMul", x, g.op("Gather", twice, g.constant(np.arange(4000, 0, -1)), axis=1), out=out)
        self.refused(Run("run", self.write("out of range", LEARNED, {"logits": f}), "--prompt-ids", "1"), "Gather", "4000")

    def test_many_dequantised_weights(self):
        """So many that the graph's values move in memory while they are rewritten."""
        rng = np.random.default_rng(4)
        def f(g, x, out):
            for i in range(40):
                q = g.weight(f"quantised {i}", rng.integers(-128, 128, (tiny_models.VOCABULARY, tiny_models.VOCABULARY)).astype(np.int8))
                w = g.op("DequantizeLinear", q, g.f32(rng.uniform(0.001, 0.003, tiny_models.VOCABULARY)), axis=1)
                x = g.op("MatMul", x, w, out=out if i == 39 else None)
            return x
        path = self.write("40 of them", LEARNED, {"logits": f})
        for options in ((), ("--no-pack-cache",)):
            self.assertEqual(self.start(path, SHORT, *options).result()["output_ids"], self.start(path, SHORT, "--naive").result()["output_ids"])

if __name__ == "__main__":
    main()
