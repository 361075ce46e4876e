"""Attention as onnxruntime's optimiser fuses it (com.microsoft): the ids of the same decoder in plain operators.

    python tests/fused_attention_test.py --situ build/situ [unittest options]

Needs numpy and onnx (`make python`).
"""
import numpy as np
import onnx
from onnx import TensorProto, helper

import tiny_exports
import tiny_models
from cli_case import CliTest, Run, main
from tiny_models import EPSILON, HEADS, HEAD_SIZE, LAYERS, VOCABULARY

SPEC = next(s for s in tiny_models.SPECS if s.name == "gpt")
PROMPT = "5,9,2,11,7,3"
DISTANCES = np.linspace(-3, 3, 8 * HEADS, dtype=np.float32).reshape(8, HEADS)[[3, 0, 5, 1, 7, 2, 4, 6]]
BUCKETS = [0, 1, 2, 3, 4, 4, 5, 5, 5, 6, 6, 6, 6, 6, 7]  # of distances, of 8 buckets up to 20


class Fused(tiny_exports.Optimum):
    """EmbedLayerNormalization and Attention with K and V in one past, or MultiHeadAttention on what `given` says."""
    given, mask, bias, causal = "stacked", "", "", 1

    def build(self):
        self.inputs = [tiny_exports.value(n, ["batch", length], TensorProto.INT64)
                       for n, length in (("input_ids", "seq"), ("position_ids", "seq"), ("attention_mask", "total"))]
        ids, positions, self.keys = (self.op("Cast", v.name, to=TensorProto.INT32) for v in self.inputs)
        self.tokens, self.total = self.extent("input_ids", 1), self.extent("attention_mask", 1)
        norm = [self.weight("0.norm1" + s, self.w["0.norm1" + s]) for s in ("", ".bias")]
        h, _, x = self.op("EmbedLayerNormalization", ids, "", self.weight("embed", self.w["embed"]), self.weight("positions", self.w["positions"]), "",
                          *norm, "", positions, outputs=3, domain="com.microsoft", epsilon=EPSILON)
        self.before()
        for i in range(LAYERS):
            x = self.op("Add", x, self.attention(h if i == 0 else self.norm(x, f"{i}.norm1"), i))
            x = self.op("Add", x, self.mlp(self.norm(x, f"{i}.norm2"), i))
        self.logits(self.norm(x, "norm"), "logits")
        self.outputs.insert(0, tiny_exports.value("logits", ["batch", "seq", VOCABULARY]))
        return self.model([("", 14), ("com.microsoft", 1)], "onnxruntime.transformers")

    def before(self):
        pass

    def visible(self):  # [S, T]
        keys = self.op("Range", self.constant(0), self.total, self.constant(1))
        queries = self.op("Unsqueeze", self.op("Range", self.op("Sub", self.total, self.tokens), self.total, self.constant(1)), self.constant([1]))
        return self.op("LessOrEqual", self.op("Unsqueeze", keys, self.constant([0])), queries)

    def attention(self, h, i):
        y = self.stacked(h, i) if self.given == "stacked" else self.apart(h, i)
        return self.linear(y, f"{i}.o")

    def stacked(self, h, i):
        weights = self.weight(f"{i}.qkv", np.concatenate([self.w[f"{i}.{p}"] for p in "qkv"], 1))
        past, present = self.state(i, "key_value", [2, "batch", HEADS, None, HEAD_SIZE], 3)
        return self.op("Attention", h, weights, self.weight("none", np.zeros(3 * HEADS * HEAD_SIZE, np.float32)), self.mask, past, self.bias,
                       out=[f"attended.{i}", present], domain="com.microsoft", num_heads=HEADS, unidirectional=self.causal)[0]

    def apart(self, h, i):
        q, k, v = (self.linear(h, f"{i}.{p}") for p in "qkv")
        bias = ""
        if self.given == "by head":
            # Of Q alone: that of keys and values is in them.
            added = np.linspace(-1, 1, 3 * HEADS * HEAD_SIZE, dtype=np.float32)
            q, bias = self.op("Sub", q, self.f32(added[:HEADS * HEAD_SIZE])), self.weight("added", added)
            k, v = (self.op("Transpose", self.op("Reshape", x, self.constant([0, 0, HEADS, HEAD_SIZE])), perm=[0, 2, 1, 3]) for x in (k, v))
        pasts, presents = zip(*(self.state(i, part, ["batch", HEADS, None, HEAD_SIZE], 2) for part in ("key", "value")))
        if self.given == "keys and values":
            k, v = self.packed(h, i, "kv"), ""
        if self.given == "all":
            q, k, v = self.packed(h, i, "qkv"), "", ""
        return self.op("MultiHeadAttention", q, k, v, bias, self.mask, self.bias, *pasts, out=[f"attended.{i}", *presents], domain="com.microsoft",
                       num_heads=HEADS, unidirectional=self.causal)[0]

    def packed(self, h, i, parts):
        heads = np.stack([self.w[f"{i}.{p}"].reshape(-1, HEADS, HEAD_SIZE) for p in parts], 2)
        y = self.op("MatMul", h, self.weight(f"{i}.{parts}", heads.reshape(len(heads), -1)))
        return self.op("Reshape", y, self.constant([0, 0, HEADS, len(parts), HEAD_SIZE]))


class ByKeys(Fused):
    def before(self):
        self.mask = self.keys

class ByQueries(Fused):
    causal = 0

    def before(self):
        self.mask = self.op("Unsqueeze", self.op("Cast", self.visible(), to=TensorProto.INT32), self.constant([0]))

class OfAllPositions(Fused):
    causal = 0

    def before(self):
        self.mask = self.constant(np.tril(np.ones((1, 1, tiny_models.CONTEXT, tiny_models.CONTEXT))), np.int32)

class Bias(Fused):
    causal = 0

    def before(self):
        self.bias = self.op("Unsqueeze", self.op("Where", self.visible(), self.f32(0), self.f32(-1e4)), self.constant([0, 1]))

class Distances(Bias):
    """RelativePositionBias for all positions, of which the last rows are those of the step."""
    def before(self):
        super().before()
        table = self.weight("distances", DISTANCES.T.reshape(DISTANCES.shape))  # it lies by columns
        far = self.op("RelativePositionBias", table, self.total, self.total, domain="com.microsoft", max_distance=20, is_bidirectional=0)
        past = self.op("Sub", self.total, self.tokens)
        self.bias = self.op("Add", self.bias, self.op("Slice", far, *(self.op("Unsqueeze", x, self.constant([0])) for x in (past, self.total)), self.constant([2])))

class ByDistance(tiny_exports.Optimum):
    """The same from a row for each distance."""
    def prepare(self):
        super().prepare()
        total = self.extent("attention_mask", 1)
        keys = self.op("Range", self.constant(0), total, self.constant(1))
        queries = self.op("Unsqueeze", self.op("Range", self.op("Sub", total, self.tokens), total, self.constant(1)), self.constant([1]))
        apart = self.op("Where", self.op("Less", keys, queries), self.op("Sub", queries, keys), self.constant(0))
        rows = np.array([DISTANCES[bucket] for bucket in BUCKETS])
        y = self.op("Gather", self.f32(rows), self.op("Gather", self.constant(np.minimum(np.arange(tiny_models.CONTEXT), 14)), apart))
        self.mask = self.op("Add", self.mask, self.op("Unsqueeze", self.op("Transpose", y, perm=[2, 0, 1]), self.constant([0])))

class KeysHidden(Fused):
    """The third token is never seen."""
    def before(self):
        keys = self.op("Range", self.constant(0), self.total, self.constant(1))
        seen = self.op("Not", self.op("Equal", keys, self.constant(2)))
        self.mask = self.op("Unsqueeze", self.op("Cast", seen, to=TensorProto.INT32), self.constant([0]))

class Hidden(tiny_exports.Optimum):
    def prepare(self):
        super().prepare()
        keys = self.op("Range", self.constant(0), self.extent("attention_mask", 1), self.constant(1))
        self.mask = self.op("Add", self.mask, self.op("Where", self.op("Equal", keys, self.constant(2)), self.f32(-1e4), self.f32(0)))

class Apart(ByKeys):
    given = "apart"

class KeysAndValues(ByKeys):
    given = "keys and values"

class All(ByKeys):
    given = "all"

class ByHead(ByKeys):
    given = "by head"

class HiddenApart(KeysHidden):
    given = "apart"

class Lengths(Fused):
    """Of a part of the keys."""
    def before(self):
        self.mask = self.op("Cast", self.op("Unsqueeze", self.op("Sub", self.total, self.constant(1)), self.constant([0])), to=TensorProto.INT32)

class FromABuffer(Fused):
    def stacked(self, h, i):
        super().stacked(h, i)
        self.nodes[-1].input.append(self.constant(1, np.int32))
        return self.nodes[-2].output[0]


class FusedAttentionTest(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.weights, _, _ = tiny_models.choose_weights(SPEC)

    def ids(self, export, *options):
        return self.generate(self.write(export), [int(t) for t in PROMPT.split(",")], *options)

    def write(self, export):
        path = self.folder / f"{export.__name__}.onnx"
        onnx.save(export(SPEC, self.weights).build(), path)
        return path

    def check(self, exports, plain):
        expected = self.ids(plain, "--naive")["output_ids"]
        for export in exports:
            for options in ((), ("--naive",)):
                with self.subTest(export.__name__, options=options):
                    answer = self.ids(export, *options)
                    self.assertEqual(answer["output_ids"], expected)
                    self.assertTrue("--naive" in options or answer["bytes_copied_per_token"] == 0, answer["bytes_copied_per_token"])

    def test_as_plain_operators(self):
        self.check([Fused, ByKeys, ByQueries, OfAllPositions, Bias, Apart, KeysAndValues, All, ByHead], tiny_exports.Optimum)

    def test_bias_by_distance(self):
        self.assertNotEqual(self.ids(ByDistance)["output_ids"], self.ids(tiny_exports.Optimum)["output_ids"])
        self.check([Distances], ByDistance)

    def test_masks_that_hide_a_key(self):
        self.assertNotEqual(self.ids(Hidden)["output_ids"], self.ids(tiny_exports.Optimum)["output_ids"])
        self.check([KeysHidden, HiddenApart], Hidden)

    def test_refused(self):
        for export, words in ((Lengths, ("Attention", "keys", "padding")), (FromABuffer, ("past_sequence_length",))):
            with self.subTest(export.__name__):
                self.refused(Run("run", self.write(export), "--prompt-ids", PROMPT), *words)


if __name__ == "__main__":
    main()
