"""Graphs that repeat or reorder what they compute: nothing is copied where the order is known, and the ids are those of the literal run.

    python tests/repeats_test.py --situ build/situ [unittest options]

Needs numpy and onnx (`make python`).
"""
from dataclasses import replace

import numpy as np
from onnx import TensorProto

import tiny_exports
from cli_case import main
from decoder_graphs import LEARNED, ROTARY, mix, scores
from graph_case import LONG, GraphCase
from tiny_models import HEADS, HEAD_SIZE

HALF = HEAD_SIZE // 2


def rotate_pairs(g, x, cos, sin):
    pairs = g.reshape(x, 1, -1, g.tokens, HALF, 2)
    first, second = g.slice(pairs, 0, 1, 4), g.slice(pairs, 1, 2, 4)
    turned = g.reshape(g.op("Concat", g.op("Neg", second), first, axis=-1), 1, -1, g.tokens, HEAD_SIZE)
    return g.op("Add", g.op("Mul", x, cos), g.op("Mul", turned, sin))


def rotate_halves(g, x, cos, sin, half):
    turned = g.op("Concat", g.op("Neg", g.slice(x, half, 2 * half, 3)), g.slice(x, 0, half, 3), axis=-1)
    return g.op("Add", g.op("Mul", x, cos), g.op("Mul", turned, sin))


class RepeatsTest(GraphCase):
    def test_repeat_interleave_by_places(self):
        """torch's repeat_interleave: what is repeated moves to the front, is expanded, and all places are gathered in order."""
        frequencies = 10000.0 ** (-np.arange(HALF) / HALF)
        in_order = [[i, j] for i in range(HALF) for j in range(2)]
        def by_constants(order):
            return lambda g: g.constant(order)
        def by_nonzero(g):
            counts = g.op("Less", g.op("Range", g.constant(0), g.constant(2), g.constant(1)), g.expand(g.constant([[2]]), HALF, 1))
            return g.op("Transpose", g.op("NonZero", counts), perm=[1, 0])
        def repeated(g, x, places):
            """x [1, S, C] -> [1, S, 2C]"""
            x = g.unsqueeze(g.op("Transpose", x, perm=[2, 1, 0]), 1)
            x = g.op("GatherND", g.expand(x, HALF, 2, g.tokens, 1), places(g))
            return g.op("Transpose", x, perm=[2, 1, 0])
        def rotary(places, tables_first, by_rows=True):
            def f(g, x):
                position = g.op("Cast", g.op("Unsqueeze", "position_ids", g.constant([1])), to=TensorProto.FLOAT)  # [1, 1, S]
                angles = g.op("Transpose", g.op("MatMul", g.f32(frequencies[None, :, None]), position), perm=[0, 2, 1])
                if tables_first:
                    cos, sin = (repeated(g, g.op(f, angles), places) for f in ("Cos", "Sin"))
                else:
                    angles = repeated(g, angles, places)
                    cos, sin = (g.op(f, angles) for f in ("Cos", "Sin"))
                return rotate_pairs(g, x, g.unsqueeze(cos, 1), g.unsqueeze(sin, 1))
            return {"rotary": f}
        for tables_first in (False, True):
            self.check({
                "by constants": rotary(by_constants(in_order), tables_first),
                "by NonZero": rotary(by_nonzero, tables_first),
            }, ROTARY, LONG, copies_nothing=True)
            same = rotary(by_constants(in_order), tables_first)
            others = {"two exchanged": in_order[2:4] + in_order[:2] + in_order[4:], "backwards": in_order[::-1], "one four times": in_order[:2] * 2 + in_order[4:]}
            self.check({name: (rotary(by_constants(order), tables_first), same) for name, order in others.items()}, ROTARY, LONG)

    def test_places_of_one_head_at_a_time(self):
        """x[:, :, [-2]] of queries, keys and values in one product, as Falcon writes it, by Gather and by GatherND."""
        def chosen(operator, places):
            def f(g, x):
                if operator == "Gather":
                    parts = [g.op("Gather", x, g.constant([p]), axis=1) for p in places]
                else:
                    front = g.op("Transpose", x, perm=[1, 0, 2, 3])
                    parts = [g.op("Transpose", g.op("GatherND", front, g.constant([[p]])), perm=[1, 0, 2, 3]) for p in places]
                return g.op("Concat", *parts, axis=1)
            return {"query": f}
        order = list(range(1, HEADS)) + [0]
        every_other = {"query": lambda g, x: g.op("Concat", *(g.op("Gather", x, g.constant(list(range(i, HEADS, 2))), axis=1) for i in range(2)), axis=1)}
        self.check({"every other head": every_other}, copies_nothing=True)
        for operator in ("Gather", "GatherND"):
            self.check({f"from the front, {operator}": chosen(operator, order), f"from the end, {operator}": chosen(operator, [p - HEADS for p in order])})

    def test_heads_repeated_before_they_are_cached(self):
        """As Falcon's new decoder architecture: the cache has a place for every query head, but each row of K and V once."""
        def fused(order="h / group", change=lambda g, x: x, rotary=True, scale=1.7, other_values=False):
            def f(g, q, k, v, i):
                kv_heads, group = g.spec.kv_heads, HEADS // g.spec.kv_heads
                dims = (kv_heads, group) if order == "h / group" else (group, kv_heads)
                def repeated(x):
                    x = g.reshape(x, 1, g.tokens, *((kv_heads, 1) if order == "h / group" else (1, kv_heads)), HEAD_SIZE)
                    x = g.reshape(g.expand(x, 1, g.tokens, *dims, HEAD_SIZE), 1, g.tokens, HEADS, HEAD_SIZE)
                    return g.op("Transpose", x, perm=[0, 2, 1, 3])
                q, k, v = g.heads(q, HEADS), repeated(k), repeated(v)
                v = g.op("Concat", g.slice(v, 1, HEADS, 1), g.slice(v, 0, 1, 1), axis=1) if other_values else v
                if rotary:
                    q, k = (tiny_exports.Optimum.rotary(g, x) for x in (q, k))
                k, v = change(g, k), change(g, v)
                both = []
                for part, x in (("key", k), ("value", v)):
                    past, present = g.state(i, part, ["batch_size", HEADS, None, HEAD_SIZE], 2)
                    both.append(g.op("Concat", past, x, out=present, axis=2))
                y = mix(g, g.mul(scores(g, q, both[0]), scale), both[1])
                return g.reshape(g.op("Transpose", y, perm=[0, 2, 1, 3]), g.batch, g.tokens, HEADS * HEAD_SIZE)
            return {"fused": f}
        for spec, rotary in ((ROTARY, True), (LEARNED, False)):
            for options in ((), ("--chunk", 3)):
                self.check({"repeated": fused(rotary=rotary)}, spec, LONG, copies_nothing=True, options=options)
            found = self.start(self.write("states", spec, fused(rotary=rotary)), LONG, "--beams", 2).result()
            naive = self.start(self.write("states", spec, fused(rotary=rotary)), LONG, "--beams", 2, "--naive").result()
            self.assertEqual(found["output_ids"], naive["output_ids"])
        columns = np.linspace(0.5, 1.5, HEAD_SIZE)
        self.check({
            "another factor for each column": fused(change=lambda g, x: g.mul(x, columns)),
            "through half precision": fused(change=lambda g, x: g.op("Cast", g.op("Cast", x, to=TensorProto.FLOAT16), to=TensorProto.FLOAT)),
        }, ROTARY, LONG, copies_nothing=True)
        # Of one state alone nothing is made: attention would not be recognised, and take no window.
        self.check({"values in another order": (fused(other_values=True), fused())}, ROTARY, LONG, options=("--window", 100))
        factor = np.linspace(0.5, 1.5, HEADS).reshape(1, HEADS, 1, 1)
        self.check({
            "other heads": fused("h mod groups"),
            "another factor for each": (fused(change=lambda g, x: g.mul(x, factor)), fused()),
        }, ROTARY, LONG)

    def test_a_part_that_all_heads_share(self):
        """Multi-head latent attention: most of each key is one row for all heads, rotated after its pairs became halves."""
        rotated, half = HEAD_SIZE - 2, HEAD_SIZE // 2 - 1
        def fused(to_halves=True, change=lambda g, x: x, reshaped=True):
            def halves(g, x, heads):
                """[1, heads, S, rotated]: (0 1) (2 3) .. becomes 0 2 .. 1 3 .."""
                dims = (half, 2) if to_halves else (2, half)
                return g.reshape(g.op("Transpose", g.reshape(x, 1, heads, g.tokens, *dims), perm=[0, 1, 2, 4, 3]), 1, heads, g.tokens, rotated)
            def f(g, q, k, v, i):
                kv_heads = g.spec.kv_heads
                angle = g.mul(g.unsqueeze(g.op("Cast", "position_ids", to=TensorProto.FLOAT), 1, 3), 100.0 ** (-np.arange(half) / half))
                angle = g.op("Concat", angle, angle, axis=-1)
                cos, sin = g.op("Cos", angle), g.op("Sin", angle)
                rotate = lambda x, heads: rotate_halves(g, halves(g, x, heads), cos, sin, half)
                q = g.heads(q, HEADS)
                q = g.op("Concat", g.slice(q, 0, 2, 3), rotate(g.slice(q, 2, HEAD_SIZE, 3), HEADS), axis=-1)
                shared = g.slice(k, 2, HEAD_SIZE, 2)
                shared = g.reshape(shared, 1, 1, g.tokens, rotated) if reshaped else shared
                shared = change(g, g.expand(rotate(shared, 1), 1, kv_heads, g.tokens, rotated))
                k = g.op("Concat", g.slice(g.heads(k, kv_heads), 0, 2, 3), shared, axis=-1)
                k, v = g.appended(k, i, "key"), g.appended(g.heads(v, kv_heads), i, "value")
                y = mix(g, g.mul(scores(g, q, g.repeat(k)), 3), g.repeat(v))
                return g.reshape(g.op("Transpose", y, perm=[0, 2, 1, 3]), g.batch, g.tokens, HEADS * HEAD_SIZE)
            return {"fused": f}
        spec = replace(ROTARY, name="latent")
        for options in ((), ("--chunk", 3)):
            self.check({"pairs": fused(), "pairs of [1, S, C]": fused(reshaped=False)}, spec, LONG, copies_nothing=True, options=options)
        factor = np.linspace(0.5, 1.5, spec.kv_heads).reshape(1, spec.kv_heads, 1, 1)
        self.check({
            "halves to pairs": (fused(False), fused()),
            "a factor for each head": (fused(change=lambda g, x: g.mul(x, factor)), fused()),
        }, spec, LONG)


if __name__ == "__main__":
    main()
