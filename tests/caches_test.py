"""States that are not each a layer's own K and V with one reader, and what graphs leave behind: outputs that nobody reads.

    python tests/caches_test.py --situ build/situ [unittest options]

Needs numpy and onnx (`make python`).
"""
import numpy as np
import onnx
from onnx import TensorProto

import decoder_graphs
from cli_case import IDS, Run, main
from decoder_graphs import LEARNED, ROTARY
from graph_case import SHORT, GraphCase
from tiny_exports import value
from tiny_models import HEADS, HEAD_SIZE, WIDTH


class CachesTest(GraphCase):
    def test_outputs_that_nobody_reads(self):
        gain = np.linspace(0.5, 2, WIDTH)
        def dropout(g, x):
            return g.op("Dropout", g.mul(x, gain), g.f32(0.1), outputs=2)[0]
        def norm(g, x):
            return g.op("LayerNormalization", x, g.f32(gain), outputs=3)[0]
        self.check({"mask": {"hidden": dropout}, "statistics": {"hidden": norm}}, copies_nothing=True)
        def read(g, x):
            y, mask = g.op("Dropout", x, outputs=2)
            return g.op("Where", mask, y, x)
        self.refused(Run("run", self.write("read", LEARNED, {"hidden": read}), "--prompt-ids", IDS), "Dropout", "output mask is read")

    def test_latents(self):
        """Multi-head latent attention: a cache of rows that products make keys and values of, and one of what the keys of all heads share."""
        rng, half = np.random.default_rng(3), HEAD_SIZE // 2
        def latents(turned=False):
            def fused(g, q, k, v, i):
                rank = g.spec.kv_heads * HEAD_SIZE
                def rows(x, part, size):
                    past, present = g.state(i, part, ["batch_size", 1, None, size], 2)
                    return g.op("Concat", past, g.reshape(x, 1, 1, g.tokens, size), out=present, axis=2)
                c, shared = rows(k, "key", rank), rows(g.rotary(g.reshape(g.slice(v, 0, HEAD_SIZE, 2), 1, 1, g.tokens, HEAD_SIZE)), "value", HEAD_SIZE)
                both = g.op("MatMul", c, g.f32(weights[:rank]))
                if turned:  # by places: the product alone does not tell a row
                    places = g.op("Cast", g.unsqueeze(g.op("Range", g.constant(0), g.total, g.constant(1)), 1), to=TensorProto.FLOAT)
                    both = g.op("Mul", both, g.op("Cos", g.mul(places, 0.3)))
                both = g.op("Transpose", g.reshape(both, 1, g.total, HEADS, half + HEAD_SIZE), perm=[0, 2, 1, 3])
                k = g.op("Concat", g.slice(both, 0, half, 3), g.expand(shared, 1, HEADS, g.total, HEAD_SIZE), axis=3)
                q = g.heads(q, HEADS)
                q = g.op("Concat", g.mul(g.slice(q, 0, half, 3), 0.7), g.rotary(q), axis=3)
                y = decoder_graphs.mix(g, decoder_graphs.scores(g, q, k), g.slice(both, half, half + HEAD_SIZE, 3))
                return g.reshape(g.op("Transpose", y, perm=[0, 2, 1, 3]), 1, g.tokens, HEADS * HEAD_SIZE)
            return {"fused": fused}
        weights = rng.standard_normal((WIDTH, HEADS * (half + HEAD_SIZE))) / 3
        def derived(hooks):
            return [what.split(" is ")[0] for what in self.found("derived", ROTARY, hooks, "derived state")]
        self.check({"latents": latents()}, ROTARY, copies_nothing=True)
        self.check({"latents of places": latents(turned=True)}, ROTARY)
        each = {f"[1, {HEADS}, P + S, {size}]" for size in (HEAD_SIZE, half + HEAD_SIZE)}
        self.assertEqual(set(derived(latents())), each)
        self.assertEqual(set(derived(latents(turned=True))), {f"[1, 1, P + S, {HEADS * (half + HEAD_SIZE)}]"})  # what is the same for all places
        beams = [self.start(self.write(name, ROTARY, latents()), SHORT, *more).result() for name, more in (("one", ()), ("beams", ("--beams", 2)))]
        self.assertEqual(len(beams[0]["output_ids"]), len(beams[1]["output_ids"]))

    def test_caches_of_quantised_rows(self):
        """QuantizeLinear in front of the append and DequantizeLinear behind it, one scale for all, for a head, for a channel: read where they lie."""
        def stored(scale, axis=1, zero=0, dtype=np.int8, parts=("key", "value"), apart=False):
            def f(g, x, i, part):
                if part not in parts:
                    past, present = g.state(i, part, ["batch_size", g.spec.kv_heads, None, HEAD_SIZE], 2)
                    return g.op("Concat", past, x, out=present, axis=2)
                outer, g.outer = g.outer, onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
                past, present = g.state(i, part, ["batch_size", g.spec.kv_heads, None, HEAD_SIZE], 2)
                g.outer = outer
                by = [g.f32(scale), *([] if zero is None else [g.constant(np.full(np.shape(scale), zero), dtype)])]
                x = g.op("QuantizeLinear", x, *by, axis=axis)
                both = g.op("Concat", past, x, out=present, axis=2)
                if apart:
                    return g.op("Concat", *(g.op("DequantizeLinear", rows, *by, axis=axis) for rows in (past, x)), axis=2)
                return g.op("DequantizeLinear", both, *by, axis=axis)
            return {"stored": f}
        def rows(g, i, part, dims, axis, dtype):
            outer, g.outer = g.outer, dtype
            names = g.state(i, part, ["batch_size", *dims], axis)
            g.outer = outer
            return names
        def moved(g, x, i, part):  # tokens in front of heads in the cache
            past, present = rows(g, i, part, [None, g.spec.kv_heads, HEAD_SIZE], 1, TensorProto.UINT8)
            by = [g.f32(0.03), g.constant(121, np.uint8)]
            x = g.op("Transpose", g.op("QuantizeLinear", x, *by), perm=[0, 2, 1, 3])
            return g.op("DequantizeLinear", g.op("Transpose", g.op("Concat", past, x, out=present, axis=1), perm=[0, 2, 1, 3]), *by)
        def by_hand(g, x, i, part):
            past, present = rows(g, i, part, [g.spec.kv_heads, None, HEAD_SIZE], 2, TensorProto.INT8)
            x = g.op("Cast", g.op("Clip", g.op("Round", g.op("Div", x, g.f32(0.03))), g.f32(-128), g.f32(127)), to=TensorProto.INT8)
            return g.op("Mul", g.op("Cast", g.op("Concat", past, x, out=present, axis=2), to=TensorProto.FLOAT), g.f32(0.03))
        heads, channels = (np.linspace(0.02, 0.05, n) for n in (LEARNED.kv_heads, HEAD_SIZE))
        cases = {"one": stored(0.03), "heads": stored(heads, 1), "channels": stored(channels, -1), "no zero": stored(0.03, zero=None, dtype=np.uint8),
                 "unsigned": stored(0.03, zero=128, dtype=np.uint8), "uneven": stored(0.03, zero=100, dtype=np.uint8),
                 "keys": stored(channels, -1, parts=("key",)), "values": stored(0.03, parts=("value",)), "apart": stored(heads, 1, apart=True),
                 "moved": {"stored": moved}, "by hand": {"stored": by_hand}}
        for name, hooks in cases.items():
            path = self.write(name, LEARNED, hooks)
            for options in ((), ("--beams", 3)):
                with self.subTest(name, options=options):
                    naive, placed = (self.generate(path, SHORT, *options, *more) for more in (("--naive",), ()))
                    self.assertEqual(placed["output_ids"], naive["output_ids"])
                    self.assertEqual(placed["bytes_copied_per_token"], 0)

    def test_caches_of_other_layers(self):
        """GroupQueryAttention with K and V of no tokens over the present of layer 0, against plain operators on it."""
        def plain(g, q, k, v, i):
            if i == 0:
                return g.plain_attention(q, k, v, i)
            y = decoder_graphs.attend(g, g.heads(q, HEADS), "present.0.key", "present.0.value")
            return g.reshape(g.op("Transpose", y, perm=[0, 2, 1, 3]), g.batch, g.tokens, WIDTH)
        def gqa(g, q, k, v, caches, out):
            lengths = g.op("Cast", g.op("Sub", g.op("ReduceSum", "attention_mask", g.constant([1]), keepdims=0), g.constant([1])), to=TensorProto.INT32)
            total = g.op("Cast", g.total, to=TensorProto.INT32)
            return g.op("GroupQueryAttention", q, k, v, *caches, lengths, total, domain="com.microsoft", num_heads=HEADS, kv_num_heads=g.spec.kv_heads, out=out)[0]
        def fused(empty, named=True, past="present"):
            def f(g, q, k, v, i):
                if i == 0:
                    pasts, presents = zip(*(g.state(0, part, ["batch_size", g.spec.kv_heads, None, HEAD_SIZE], 2) for part in ("key", "value")))
                    return gqa(g, q, k, v, pasts, ["y0", *presents])
                none = empty(g, k)
                return gqa(g, q, none, none, [f"{past}.0.{part}" for part in ("key", "value")], [f"y{i}", *((f"k{i}", f"v{i}") if named else ("", ""))])
            return {"fused": f}
        sliced = lambda g, k: g.slice(k, 0, 0, 1)
        constant = lambda g, k: g.f32(np.zeros((1, 0, g.spec.kv_heads * HEAD_SIZE)))
        ids = self.plain(LEARNED, SHORT, {"fused": plain})
        self.assertNotEqual(ids, self.plain(LEARNED, SHORT, {}))
        for name, hooks in {"sliced": fused(sliced), "constant": fused(constant), "without presents": fused(sliced, False)}.items():
            path = self.write(name, LEARNED, hooks)
            for options in ((), ("--naive",), ("--chunk", 2)):
                run = self.generate(path, SHORT, *options)
                self.assertEqual(run["output_ids"], ids, (name, options))
                self.assertTrue(run["bytes_copied_per_token"] == 0 or options == ("--naive",))
        self.refused(Run("run", self.write("past", LEARNED, fused(sliced, past="past_key_values")), "--prompt-ids", IDS), "GroupQueryAttention", "have no tokens", "[1, 2, P, 8]")

    def test_caches_of_integers(self):
        """GroupQueryAttention with a cache of 8 or 4 bits, against attention on rows that are rounded and scaled back."""
        def scale(g, i, part, bits, by_channel):
            count = g.spec.kv_heads * HEAD_SIZE if by_channel else 1
            most = 4 / (127 if bits == 8 else 7)
            s = (most * np.random.default_rng(2 * i + (part == "key")).uniform(0.5, 1.0, count)).astype(np.float32)
            s[1::3] = 0  # a channel of which a builder saw nothing is worth nothing
            return s
        def rounded(bits, by_channel):
            def f(g, q, k, v, i):
                both = []
                for part, x in (("key", k), ("value", v)):
                    s = scale(g, i, part, bits, by_channel)
                    x = g.op("Round", g.op("Mul", x, g.f32(np.float32(1) / np.where(s == 0, np.float32(1), s))))
                    least = -(1 << bits - 1)
                    both.append(g.op("Mul", g.op("Clip", x, g.f32(least), g.f32(-least - 1)), g.f32(s)))
                return g.plain_attention(q, *both, i)
            return {"fused": f}
        def gqa(bits, by_channel, width=None, **attributes):
            def f(g, q, k, v, i):
                dims = ["batch_size", g.spec.kv_heads, None, width or (HEAD_SIZE if bits == 8 else HEAD_SIZE // 2)]
                g.outer = TensorProto.INT8 if bits == 8 else TensorProto.UINT8
                pasts, presents = zip(*(g.state(i, part, dims, 2) for part in ("key", "value")))
                g.outer = TensorProto.FLOAT
                lengths = g.op("Cast", g.op("Sub", g.op("ReduceSum", "attention_mask", g.constant([1]), keepdims=0), g.constant([1])), to=TensorProto.INT32)
                scales = [g.weight(f"{i}.{part}.scale", scale(g, i, part, bits, by_channel)) for part in ("key", "value")]
                kind = "PER_CHANNEL" if by_channel else "PER_TENSOR"
                kinds = {"k_quant_type": kind, "v_quant_type": kind, "kv_cache_bit_width": bits, **attributes}
                return g.op("GroupQueryAttention", q, k, v, *pasts, lengths, g.op("Cast", g.total, to=TensorProto.INT32), "", "", "", "", "", *scales,
                            domain="com.microsoft", num_heads=HEADS, kv_num_heads=g.spec.kv_heads, out=[f"y{i}", *presents], **kinds)[0]
            return {"fused": f}
        for bits in (8, 4):
            for by_channel in (False, True):
                name = f"{bits} bits, {by_channel}"
                ids = self.plain(LEARNED, SHORT, rounded(bits, by_channel))
                path = self.write(name, LEARNED, gqa(bits, by_channel))
                for options in ((), ("--naive",), ("--chunk", 2)):
                    run = self.generate(path, SHORT, *options)
                    self.assertEqual(run["output_ids"], ids, (name, options))
                    self.assertTrue(run["bytes_copied_per_token"] == 0 or options == ("--naive",))
        self.assertEqual(self.generate(path, SHORT, "--beams", 3)["bytes_copied_per_token"], 0)
        self.refused(Run("run", path, "--prompt-ids", IDS, "--kv-type", "f16"), "cannot be stored as float16")
        for name, hooks, *words in (("of other bits", gqa(8, False, kv_cache_bit_width=6), "kv_cache_bit_width is 6"),
                                    ("of one kind", gqa(8, True, v_quant_type="PER_TENSOR"), "v_scale [16] should be 1 constant"),
                                    ("another kind", gqa(8, True, k_quant_type="PER_ROW"), "k_quant_type is 'PER_ROW'"),
                                    ("floats", gqa(8, True, k_quant_type="NONE", v_quant_type="NONE"), "there is a k_scale")):
            self.refused(Run("run", self.write(name, LEARNED, hooks), "--prompt-ids", IDS), "GroupQueryAttention", *words)

    def test_states_that_are_handed_on(self):
        def handed_on(dims, type=TensorProto.FLOAT, reads=None, present="present_extra.0", nodes=1):
            def f(g, x):
                g.inputs.append(value("past_extra.0", dims, type))
                g.outputs.append(value(present, dims, type))
                y = "past_extra.0"
                for i in range(nodes):
                    y = g.op("Identity", y, out=present if i + 1 == nodes else None)
                return reads(g, x) if reads else x
            return {"hidden": f}
        added = lambda g, x: g.op("Add", x, g.op("Cast", g.op("ReduceSum", "past_extra.0", keepdims=0), to=TensorProto.FLOAT))
        ids = self.plain(LEARNED, SHORT, {})
        for name, hooks in {
            "unread": handed_on([1, 16, 8]),
            "read": handed_on(["batch_size", 16, 8], reads=added),
            "twice": handed_on([1, 2, 3, 4], reads=added, nodes=2),
            "rows of two": handed_on([1, 8], reads=added),
            "a count": handed_on([1], TensorProto.INT64, added),
            "rows of the past": handed_on(["batch_size", "past_sequence_length", 8]),
        }.items():
            path = self.write(name, LEARNED, hooks)
            with self.subTest(name):
                for options in ((), ("--naive",)):
                    self.assertEqual(self.generate(path, SHORT, *options)["output_ids"], ids, options)
        self.refused(Run("run", self.write("huge", LEARNED, handed_on([1, 2**40], reads=added)), "--prompt-ids", IDS), "past_extra.0", "too large")
        self.refused(Run("run", self.write("of no name", LEARNED, handed_on([1, 8], reads=added, present="extra")), "--prompt-ids", IDS), "past_extra.0", "no known meaning")

    # -- steps of one token

    def declared(self, name, hooks={}, **dims):
        """The model with other dims of its inputs and outputs."""
        path = self.write(name, LEARNED, hooks)
        model = onnx.load(path)
        for v in (*model.graph.input, *model.graph.output):
            if v.name in dims:
                v.CopyFrom(value(v.name, dims[v.name], v.type.tensor_type.elem_type))
        onnx.save(model, path)
        return path

    def test_steps_that_are_declared_as_one_token(self):
        """A single token sees all keys: no mask hides later ones, and its position is the number of past ones."""
        ids = self.plain(LEARNED, SHORT, {})
        one = {"input_ids": [1, 1], "position_ids": [1, 1]}
        paths = {
            "as it is": self.declared("as it is", **one),
            "one of a batch": self.declared("one of a batch", input_ids=["batch_size", 1]),
            "without a mask": self.declared("without a mask", {"mask": lambda g, x: g.mul(x, 0)}, **one),
        }
        for name, path in paths.items():
            for options in ((), ("--naive",), ("--chunk", 4)):
                with self.subTest(name, options=options):
                    self.assertEqual(self.generate(path, SHORT, *options)["output_ids"], ids)
        beams = self.generate(self.write("beams", LEARNED, {}), SHORT, "--beams", 3)["output_ids"]
        self.assertEqual(self.generate(paths["without a mask"], SHORT, "--beams", 3)["output_ids"], beams)
        self.refused(Run("run", paths["as it is"], "--prompt-ids", IDS, "--prompt-lookup", 3), "one token at a time")

if __name__ == "__main__":
    main()
