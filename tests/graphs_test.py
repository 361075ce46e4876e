"""Graphs that nearly match a pattern which a pass rewrites: the ids must be those of the literal run, node by node.

    python tests/graphs_test.py --situ build/situ [unittest options]

Needs numpy and onnx (`make python`).
"""
import json
from dataclasses import replace

import numpy as np
import onnx
from onnx import TensorProto

import decoder_graphs
import tiny_exports
import tiny_models
from cli_case import COUNT, IDS, Run, main
from decoder_graphs import END, LEARNED, MULTI_HEAD, ROTARY
from graph_case import LONG, SHORT, GraphCase
from sweep import SWEEPING, some
from tiny_models import HEADS, HEAD_SIZE, WIDTH

LAST = 2**31 - 1  # as some exporters write the end of a Slice

class GraphsTest(GraphCase):
    # -- what is the identity on the numbers 0, 1, 2, ..

    def test_functions_of_queries_keys_and_values(self):
        functions = {
            "relu": lambda g, x: g.op("Relu", x),
            "abs": lambda g, x: g.op("Abs", x),
            "leaky relu": lambda g, x: g.op("LeakyRelu", x, alpha=0.2),
            "floor": lambda g, x: g.op("Floor", x),
            "round to quarters": lambda g, x: g.mul(g.op("Round", g.mul(x, 4)), 0.25),
            "max": lambda g, x: g.op("Max", x, g.f32(0)),
            "clip from below": lambda g, x: g.op("Clip", x, g.f32(0)),
            "clip": lambda g, x: g.op("Clip", x, g.f32(-1), g.f32(1)),
            "half of what is negative": lambda g, x: g.op("Where", g.op("Less", x, g.f32(0)), g.mul(x, 0.5), x),
        }
        def each(names):
            return {f"{f} of {part}": {part: functions[f]} for f in names for part in ("query", "key", "value")}
        self.check(some(each(functions), 2))
        self.check(some(each(["relu", "half of what is negative"]), 2), ROTARY)

    def test_functions_of_scores_and_probabilities(self):
        self.check({
            "relu": {"scores": lambda g, s: g.op("Relu", s)},
            "thresholded relu": {"scores": lambda g, s: g.op("ThresholdedRelu", s, alpha=2.0)},
            "clip": {"scores": lambda g, s: g.op("Clip", s, g.f32(-1), g.f32(1))},
            "clip at 30": {"scores": lambda g, s: g.op("Clip", g.mul(s, 40), g.f32(-30), g.f32(30))},
            "cap for each head": {"scores": lambda g, s: (lambda c: g.op("Mul", g.op("Tanh", g.op("Div", s, c)), c))(g.f32(np.linspace(0.5, 2, HEADS).reshape(1, HEADS, 1, 1)))},
            "factor for each head": {"scores": lambda g, s: g.mul(s, np.linspace(0.2, 3, HEADS).reshape(1, HEADS, 1, 1))},
            "small probabilities dropped": {"probabilities": lambda g, p: g.op("Where", g.op("Less", p, g.f32(0.1)), g.f32(0), p)},
            "square root of probabilities": {"probabilities": lambda g, p: g.op("Sqrt", p)},
        })

    # -- what holds for the first tokens only

    def test_factors_by_position_and_length(self):
        def step(g, position, at):  # 1 up to `at`, then 2.5
            return g.op("Where", g.op("Less", position, g.constant(at)), g.f32(1), g.f32(2.5))
        def table(g, position, at):
            return g.op("Gather", g.f32(np.where(np.arange(tiny_models.CONTEXT + 1) < at, 1, 4)), position, axis=0)
        cases = {}
        for factor, at in ((step, 40), (table, 56)):
            def by(position, axes, factor=factor, at=at):
                return lambda g, x: g.op("Mul", x, g.unsqueeze(factor(g, getattr(g, position), at), *axes))
            name = f"{factor.__name__} at {at}"
            cases[f"query by position, {name}"] = {"query": by("queries", [0, 1, 3])}
            cases[f"key by position, {name}"] = {"key": by("keys", [0, 1, 3])}
            cases[f"value by position, {name}"] = {"value": by("keys", [0, 1, 3])}
            cases[f"scores by query, {name}"] = {"scores": by("queries", [0, 1, 3])}
            cases[f"scores by key, {name}"] = {"scores": by("keys", [0, 1, 2])}
            cases[f"scores by length, {name}"] = {"scores": by("total", [0])}
        # Each kind by one of the factors.
        self.check({name: c for i, (name, c) in enumerate(cases.items()) if SWEEPING or (i + i // 6) % 2 == 0}, prompt=LONG)
        self.check({name: c for name, c in cases.items() if name == "query by position, step at 40"}, ROTARY, LONG)

    def test_biases_by_position(self):
        def added(condition):
            return lambda g, s: g.op("Add", s, g.unsqueeze(g.op("Where", condition(g), g.f32(0), g.f32(3)), 0, 1))
        def distance(g):  # [S, T]
            return g.op("Sub", g.unsqueeze(g.queries, 1), g.unsqueeze(g.keys, 0))
        slopes = np.linspace(0.1, 0.7, HEADS).reshape(1, HEADS, 1, 1)
        self.check({
            "from key 40 on": {"scores": added(lambda g: g.op("Less", g.unsqueeze(g.keys, 0), g.constant(40)))},
            "up to a distance of 40": {"scores": added(lambda g: g.op("Less", distance(g), g.constant(40)))},
            "slopes up to a distance of 35": {"scores": lambda g, s: g.op("Sub", s, g.mul(g.unsqueeze(g.op("Cast", g.op("Min", distance(g), g.constant(35)), to=TensorProto.FLOAT), 0, 1), slopes))},
        }, prompt=LONG)

    def test_masks_that_begin_like_a_causal_one(self):
        """Written into the mask that is added to the scores, or chosen before it is added."""
        def distance(g):  # [S, T]
            return g.op("Sub", g.unsqueeze(g.queries, 1), g.unsqueeze(g.keys, 0))
        def near(g, size):
            return g.op("Less", distance(g), g.constant(size))
        def one_of(g, *conditions):
            return conditions[0] if len(conditions) == 1 else g.op("Or", conditions[0], one_of(g, *conditions[1:]))
        def query(g, op, limit):
            return g.unsqueeze(g.op(op, g.queries, g.constant(limit)), 1)
        def key(g, op, limit):
            return g.unsqueeze(g.op(op, g.keys, g.constant(limit)), 0)
        conditions = {
            "window 12": lambda g: near(g, 12),
            "window 12 and two first keys": lambda g: one_of(g, near(g, 12), key(g, "Less", 2)),
            "chunks of 20": lambda g: g.op("Equal", *(g.op("Div", g.unsqueeze(x, axis), g.constant(20)) for x, axis in ((g.queries, 1), (g.keys, 0)))),
            "keys 33 to 36 hidden": lambda g: one_of(g, key(g, "Less", 33), key(g, "Greater", 36)),
            "window from query 40 on": lambda g: one_of(g, near(g, 3), query(g, "Less", 40)),
            "window from query 33 to query 55": lambda g: one_of(g, near(g, 3), query(g, "Less", 33), query(g, "Greater", 55)),
        }
        def chosen(place, condition, hidden):
            return {place: lambda g, x: g.op("Where", g.unsqueeze(condition(g), 0, 1), x, g.f32(hidden))}
        cases = {f"{name}, {place}": chosen(place, c, hidden) for name, c in conditions.items() for place, hidden in (("mask", tiny_exports.MASKED), ("scores", -1e9))}
        self.check(some(cases, 3), prompt=LONG)

    def test_masks_without_closed_form(self):
        """Heads repeated by a list are a copy of all keys and values, unless the attention is recognised: with -inf for hidden keys too."""
        def listed(g, q, k, v):
            heads = g.constant([h // (HEADS // g.spec.kv_heads) for h in range(HEADS)])
            return decoder_graphs.mix(g, decoder_graphs.scores(g, q, g.op("Gather", k, heads, axis=1)), g.op("Gather", v, heads, axis=1))
        def chunks(hidden):
            def mask(g, x):
                query, key = (g.op("Div", g.unsqueeze(p, axis), g.constant(20)) for p, axis in ((g.queries, 1), (g.keys, 0)))
                return g.op("Where", g.unsqueeze(g.op("Equal", query, key), 0, 1), x, g.f32(hidden))
            return {"mask": mask, "attend": listed}
        self.check({f"{hidden} for hidden keys": chunks(hidden) for hidden in (tiny_exports.MASKED, -np.inf)}, prompt=LONG, copies_nothing=True)

    def test_masks_that_change_far_along(self):
        """Beyond the queries that are all looked at when a mask is recognised."""
        prompt = [int(t) for t in np.random.default_rng(7).integers(0, tiny_models.VOCABULARY, 2000)]
        def compared(position, axis, op, limit):
            return lambda g: g.unsqueeze(g.op(op, getattr(g, position), g.constant(limit)), axis)
        def table(g):  # of the rule "the first token alone from query 1990 on", looked up by query
            return g.unsqueeze(g.op("Gather", g.constant((np.arange(4096) < 1990).astype(np.int64)), g.queries, axis=0), 1)
        def limits(g):  # 10 of them are passed from query 1990 to 2009
            passed = g.op("Cast", g.op("GreaterOrEqual", g.unsqueeze(g.queries, 1), g.constant([list(range(100, 1000, 100)) + [1990] + list(range(2010, 2110, 10))])), to=TensorProto.INT64)
            return g.op("Not", g.op("Equal", g.op("ReduceSum", passed, g.constant([1]), keepdims=1), g.constant(10)))
        def at_first(g):
            return g.op("Less", g.unsqueeze(g.keys, 0), g.constant(1))
        rules = {
            "from query 1990 on": compared("queries", 1, "Less", 1990),
            "query 2002": lambda g: g.op("Not", g.unsqueeze(g.op("Equal", g.queries, g.constant(2002)), 1)),
            "half of the query below 1001": lambda g: g.unsqueeze(g.op("Less", g.op("Div", g.queries, g.constant(2)), g.constant(1001)), 1),
            "a table": lambda g: g.op("Cast", table(g), to=TensorProto.BOOL),
            "twice the query from 3990 to 4008": lambda g: g.op("Not", g.op("And", *(g.unsqueeze(g.op(op, g.op("Mul", g.queries, g.constant(2)), g.constant(limit)), 1) for op, limit in (("Greater", 3989), ("Less", 4009))))),
            "the sum of two queries from 3990 to 4008": lambda g: (lambda q: g.op("Not", g.op("And", g.op("Greater", q, g.constant(3989)), g.op("Less", q, g.constant(4009)))))(g.unsqueeze(g.op("Add", g.queries, g.queries), 1)),
            "six times the query": lambda g: (lambda q: g.op("Not", g.op("And", g.op("Greater", q, g.constant(11989)), g.op("Less", q, g.constant(12009)))))(g.unsqueeze(g.op("Mul", g.op("Mul", g.queries, g.constant(2)), g.constant(3)), 1)),
            "between two of 20 limits": limits,
            "steps of 2000 tokens": lambda g: g.op("Not", g.op("Equal", g.tokens, g.constant(2000))),
        }
        def chosen(place, rule, hidden):
            return {place: lambda g, x: g.op("Where", g.unsqueeze(g.op("Or", rule(g), at_first(g)), 0, 1), x, g.f32(hidden))}
        cases = {f"{name}, {place}": chosen(place, rule, hidden) for name, rule in rules.items() for place, hidden in (("mask", tiny_exports.MASKED), ("scores", -1e9))}
        self.check(some(cases, 5), ROTARY, prompt, options=("--context", 2500))

    def test_rotary_embeddings_of_another_form(self):
        def form(turned, op="Add", cos=None, sin=None):
            def f(g, x):
                first, second = g.slice(x, 0, HEAD_SIZE // 2, 3), g.slice(x, HEAD_SIZE // 2, HEAD_SIZE, 3)
                turn = g.op("Concat", *turned(g, first, second), axis=-1)
                return g.op(op, g.op("Mul", x, cos(g, g.cos) if cos else g.cos), g.op("Mul", turn, sin(g, g.sin) if sin else g.sin))
            return {"rotary": f}
        def usual(g, first, second):
            return g.op("Neg", second), first
        def later(g, sin):  # turns the other way from position 40 on
            return g.op("Where", g.unsqueeze(g.op("Less", g.queries, g.constant(40)), 0, 1, 3), sin, g.op("Neg", sin))
        self.check({
            "the other half negated": form(lambda g, first, second: (second, g.op("Neg", first))),
            "nothing negated": form(lambda g, first, second: (second, first)),
            "one half twice": form(lambda g, first, second: (g.op("Neg", first), first)),
            "difference": form(usual, "Sub"),
            "cos scaled": form(usual, cos=lambda g, c: g.mul(c, 2)),
            "sin clipped": form(usual, sin=lambda g, s: g.op("Relu", s)),
            "cos and sin exchanged": form(usual, cos=lambda g, c: g.sin, sin=lambda g, s: g.cos),
            "sin by position": form(usual, sin=later),
        }, ROTARY, LONG)

    def test_tables_that_hold_numbers_twice(self):
        """The angles are doubled, then moved, and cos and sin taken of the result: read where they stand once."""
        frequencies = 10000.0 ** (-np.arange(0, HEAD_SIZE, 2) / HEAD_SIZE)
        def rotary(doubled, interleaved=False):
            def f(g, x):
                angles = g.mul(g.unsqueeze(g.op("Cast", g.queries, to=TensorProto.FLOAT), 1), frequencies.reshape(1, -1))
                whole = g.unsqueeze(doubled(g, angles), 0, 1)
                cos, sin = (g.mul(g.op(op, whole), 1.5) for op in ("Cos", "Sin"))
                if interleaved:
                    pairs = g.reshape(x, 1, -1, g.tokens, HEAD_SIZE // 2, 2)
                    first, second = g.slice(pairs, 0, 1, 4), g.slice(pairs, 1, 2, 4)
                    turn = g.reshape(g.op("Concat", g.op("Neg", second), first, axis=-1), 1, -1, g.tokens, HEAD_SIZE)
                else:
                    turn = g.op("Concat", g.op("Neg", g.slice(x, HEAD_SIZE // 2, HEAD_SIZE, 3)), g.slice(x, 0, HEAD_SIZE // 2, 3), axis=-1)
                return g.op("Add", g.op("Mul", x, cos), g.op("Mul", turn, sin))
            return {"rotary": f}
        self.check({
            "Concat": rotary(lambda g, f: g.op("Concat", f, f, axis=-1)),
            "Tile": rotary(lambda g, f: g.op("Tile", f, g.constant([1, 2]))),
            "in pairs": rotary(lambda g, f: g.reshape(g.op("Concat", g.unsqueeze(f, 2), g.unsqueeze(f, 2), axis=-1), g.tokens, HEAD_SIZE), True),
        }, ROTARY, copies_nothing=True)
        def twice_at_first(g, f):
            far = g.unsqueeze(g.op("Less", g.constant(20), g.queries), 1)
            return g.op("Concat", f, g.op("Where", far, g.mul(f, 1.5), f), axis=-1)
        self.check({"not twice from position 21 on": rotary(twice_at_first)}, ROTARY, LONG)

    def test_rotary_embeddings_of_joined_heads(self):
        """Part of each head is rotated, where a Concat of heads that went their own ways was computed (StableLM)."""
        def joined(again):
            def f(g, x):
                first, rest = g.slice(x, 0, 1, 1), g.slice(x, 1, END, 1)
                parts = g.mul(first, 1.5), g.mul(rest, 0.5)
                y = tiny_exports.Optimum.rotary(g, g.op("Concat", *parts, axis=1))
                return g.op("Add", y, parts[0]) if again else y
            return {"rotary": f}
        spec = replace(ROTARY, name="partial-rotary", rotary_dim=4)
        self.check({"joined": joined(False)}, spec, copies_nothing=True)
        self.check({"a part is read again": joined(True)}, spec)

    def test_rotary_by_rows_of_positions(self):
        """Sections of the angles from three rows of positions, which are equal for text, as multimodal models have them."""
        half = HEAD_SIZE // 2
        sections = [half - 2 * (half // 3), half // 3, half // 3]
        def rotary(change):
            def table(g, angle, function):
                parts = g.op("Split", g.op(function, angle), g.constant(sections * 2), outputs=6, axis=-1)
                return g.unsqueeze(g.op("Concat", *(g.op("Gather", part, g.constant(i % 3), axis=0) for i, part in enumerate(parts)), axis=-1), 1)
            def f(g, x):
                rows = change(g, g.mul(g.unsqueeze(g.op("Cast", "position_ids", to=TensorProto.FLOAT), 0), np.ones((3, 1, 1))))
                angle = g.mul(g.unsqueeze(rows, 3), 100.0 ** (-np.arange(half) / half))
                angle = g.op("Concat", angle, angle, axis=-1)
                turned = g.op("Concat", g.op("Neg", g.slice(x, half, END, 3)), g.slice(x, 0, half, 3), axis=-1)
                return g.op("Add", g.op("Mul", x, table(g, angle, "Cos")), g.op("Mul", turned, table(g, angle, "Sin")))
            return {"rotary": f}
        def from_40_on(g, rows):
            return g.op("Where", g.op("Less", rows, g.f32(40)), rows, g.mul(rows, np.float32([1, 0.5, 1]).reshape(3, 1, 1)))
        same = rotary(lambda g, rows: rows)
        self.check({"equal": same}, ROTARY, LONG, copies_nothing=True)
        self.check({"another one from 40 on": (rotary(from_40_on), same)}, ROTARY, LONG)

    def test_tables_looked_up_element_by_element(self):
        """As GPT-J has them: they tell how long the context is."""
        angle = np.arange(tiny_models.CONTEXT)[:, None] * 100.0 ** (-np.arange(HEAD_SIZE) // 2 * 2 / HEAD_SIZE)
        def f(g, x):
            index = g.op("Expand", g.unsqueeze("position_ids", 2), g.shape(1, g.tokens, HEAD_SIZE))
            cos, sin = (g.unsqueeze(g.op("GatherElements", g.expand(g.f32(t[None]), 1, tiny_models.CONTEXT, HEAD_SIZE), index, axis=1), 1) for t in (np.cos(angle), np.sin(angle)))
            turned = g.op("Concat", g.op("Neg", g.slice(x, HEAD_SIZE // 2, END, 3)), g.slice(x, 0, HEAD_SIZE // 2, 3), axis=-1)
            return g.op("Add", g.op("Mul", x, cos), g.op("Mul", turned, sin))
        self.check({"both": {"rotary": f}}, ROTARY, LONG, copies_nothing=True)
        found = json.loads(Run("inspect", self.write("context", ROTARY, {"rotary": f}), "--json").out)
        self.assertEqual((found["memory"]["slots"], found["sequences"]["in one step"] > 1), (tiny_models.CONTEXT, True))

    def test_tables_of_the_new_tokens(self):
        """Their rows stand in front of others, as transformers' exporter gives them to fused attention: only those are read. From 1 on they are not those of the tokens."""
        half = HEAD_SIZE // 2
        def from_row(first):
            def f(g, x):
                angle = g.mul(g.op("Cast", g.reshape("position_ids", -1, 1), to=TensorProto.FLOAT), 50.0 ** (-np.arange(half) / half))
                more = g.expand(g.f32(np.full((1, half), 0.25)), g.total, half)
                tables = (g.op("Concat", g.op(part, angle), more, axis=0) for part in ("Cos", "Sin"))
                rows = g.op("Range", g.constant(first), g.op("Add", g.tokens, g.constant(first)), g.constant(1))
                return g.op("RotaryEmbedding", x, g.unsqueeze(rows, 0), *tables, domain="com.microsoft")
            return {"rotary": f}
        self.check({"new ones": from_row(0)}, ROTARY, LONG, copies_nothing=True)
        self.check({"from the second on": (from_row(1), from_row(0))}, ROTARY, LONG, options=("--chunk", 7))

    # -- operators over a whole row

    def test_rows_put_together(self):
        """A function of a whole row [first, second] is not that of each half: the wrong rewrite is written out too."""
        def turned(g, x):
            first, second = g.halves(x)
            return g.op("Neg", second), first
        def used_twice(g, x):
            return [g.op("Tanh", g.mul(h, 3)) for h in g.halves(x)]
        def whole(parts, f, extra):
            def change(g, x):
                halves = parts(g, x)
                y = g.op("Add", x, g.mul(f(g, g.op("Concat", *halves, axis=-1), weight), 5))
                return g.op("Add", y, g.op("Concat", *halves[::-1], axis=-1)) if extra else y
            return {"hidden": change}
        def each(parts, f, extra):
            def change(g, x):
                halves = parts(g, x)
                y = g.op("Concat", *(f(g, h, w) for h, w in zip(halves, np.split(weight, 2))), axis=-1)
                y = g.op("Add", x, g.mul(y, 5))
                return g.op("Add", y, g.op("Concat", *halves[::-1], axis=-1)) if extra else y
            return {"hidden": change}
        weight = np.random.default_rng(4).standard_normal(WIDTH)
        functions = {
            "LayerNormalization": lambda g, x, w: g.op("LayerNormalization", x, g.f32(w), axis=-1),
            "LpNormalization": lambda g, x, w: g.op("LpNormalization", x, axis=-1),
            "root mean square": lambda g, x, w: g.mul(decoder_graphs.rms()(g, x), w),
            "Softmax": lambda g, x, w: g.op("Softmax", x, axis=-1),
            "LogSoftmax": lambda g, x, w: g.mul(g.op("LogSoftmax", g.mul(x, 3), axis=2), w),
        }
        cases = {}
        for parts, extra in ((turned, False), (used_twice, True)):
            cases |= {f"{name}, {parts.__name__}": (whole(parts, f, extra), each(parts, f, extra)) for name, f in functions.items()}
        cases["Trilu, turned"] = {"hidden": lambda g, x: g.op("Trilu", g.op("Concat", *turned(g, x), axis=-1), g.constant(3), upper=0)}, each(turned, lambda g, x, w: g.op("Trilu", x, g.constant(3), upper=0), False)
        self.check(some(cases, 2))

    def test_rows_repeated(self):
        def doubled(g, x):  # [1, S, C]: every number of the first half twice
            return g.reshape(g.expand(g.unsqueeze(g.halves(x)[0], 3), 1, g.tokens, WIDTH // 2, 2), 1, g.tokens, WIDTH)
        def tripled(g, x):  # [1, S, H, 3, E]
            return g.expand(g.reshape(x, 1, g.tokens, HEADS, 1, HEAD_SIZE), 1, g.tokens, HEADS, 3, HEAD_SIZE)
        def summed(g, y):
            return g.reshape(g.op("ReduceSum", y, g.constant([3]), keepdims=0), 1, g.tokens, WIDTH)
        weight = np.random.default_rng(3).standard_normal((3, HEAD_SIZE))
        def weighted(g, y):
            return summed(g, g.mul(y, 6 * weight))
        def add(f):
            return {"hidden": lambda g, x: g.op("Add", x, f(g, x))}
        self.check({
            "Softmax over the repeated axis": add(lambda g, x: g.op("Mul", weighted(g, g.op("Softmax", tripled(g, x), axis=3)), x)),
            "LogSoftmax over the repeated axis": add(lambda g, x: g.op("Mul", summed(g, g.op("LogSoftmax", tripled(g, x), axis=3)), x)),
            "Softmax over an axis that holds copies": add(lambda g, x: g.mul(g.op("Softmax", doubled(g, x), axis=-1), 20)),
            "LogSoftmax over an axis that holds copies": add(lambda g, x: g.op("LogSoftmax", doubled(g, x), axis=-1)),
            "LayerNormalization over copies with weights of their own": add(lambda g, x: summed(g, g.op("LayerNormalization", tripled(g, x), g.f32(weight), axis=-2))),
            "triangle of copies": add(lambda g, x: summed(g, g.op("Trilu", tripled(g, x), upper=1))),
        })

    def test_parts_of_what_was_joined(self):
        """Cut where it was joined, the parts are the operands: each product is written to its own place. Cut elsewhere they are not."""
        for spec in LEARNED, ROTARY:
            wide, narrow = HEADS * HEAD_SIZE, spec.kv_heads * HEAD_SIZE
            def sliced(shift):
                def f(g, q, k, v, i):
                    x = g.op("Concat", v, q, k, axis=-1)
                    part = lambda begin, size: g.slice(x, begin + shift, begin + shift + size, 2)
                    return g.plain_attention(part(narrow, wide), part(0, narrow), g.op("Slice", x, *(g.constant([n]) for n in (-narrow, END, -1))), i)
                return {"fused": f}
            def split(*sizes):
                def f(g, q, k, v, i):
                    a, b, c = g.op("Split", g.op("Concat", k, v, q, axis=2), g.constant(list(sizes)), outputs=3, axis=-1)
                    q, k, v = (c, b, a) if sizes[2] == wide else (a, c, b)
                    return g.plain_attention(q, k, v, i)
                return {"fused": f}
            self.check({"Slice": sliced(0), "Split": split(narrow, narrow, wide)}, spec, copies_nothing=True)
            self.check({"Slice of two": sliced(2)} | ({"Split of two": split(wide, narrow, narrow)} if wide != narrow else {}), spec)

    def test_softmax_by_hand(self):
        """As optimisers write it out for half-precision graphs."""
        def parts(g, s):
            e = g.op("Exp", g.op("Sub", s, g.op("ReduceMax", s, axes=[-1])))
            return e, g.op("ReduceSum", e, g.constant([-1]))
        ways = {
            "Div": lambda g, s: g.op("Div", *parts(g, s)),
            "Reciprocal": lambda g, s: (lambda e, total: g.op("Mul", e, g.op("Reciprocal", total)))(*parts(g, s)),
            "without the largest": lambda g, s: (lambda e: g.op("Div", e, g.op("ReduceSum", e, g.constant([-1]))))(g.op("Exp", s)),
            "with a guard": lambda g, s: (lambda p: g.op("Where", g.op("IsNaN", p), g.f32(0), p))(g.op("Div", *parts(g, s))),
        }
        cases = {name: {"scores": lambda g, s: g.mul(s, 2.5), "masked": way} for name, way in ways.items()}
        self.check(cases, copies_nothing=True)
        for name, hooks in cases.items():
            self.assertEqual(len(self.found(name, LEARNED, hooks, "attention")), tiny_models.LAYERS, name)
        def changed(f):
            return {"masked": lambda g, s: f(g, *parts(g, s), s)}
        self.check({
            "a larger sum": changed(lambda g, e, total, s: g.op("Div", e, g.op("Add", total, g.f32(0.5)))),
            "another sum": changed(lambda g, e, total, s: g.op("Div", e, g.op("ReduceSum", g.op("Mul", e, e), g.constant([-1])))),
            "the mean": changed(lambda g, e, total, s: g.op("Div", e, g.op("ReduceMean", e, axes=[-1]))),
            "a root of it": changed(lambda g, e, total, s: g.op("Sqrt", g.op("Div", e, total))),
            "clipped scores": {"masked": lambda g, s: g.op("Div", *parts(g, g.op("Clip", g.mul(s, 40), g.f32(-60), g.f32(60))))},
            "over the queries": changed(lambda g, e, total, s: g.op("Div", e, g.op("Add", total, g.op("ReduceMax", total, axes=[-2])))),
        })

    def test_fused_rotary_of_a_part(self):
        """RotaryEmbedding of some columns, put together with the others, as optimisers leave it."""
        def tables(g, width):
            angle = np.arange(tiny_models.CONTEXT)[:, None] * 100.0 ** (-np.arange(0, width, 2) / width)
            return g.f32(np.cos(angle)), g.f32(np.sin(angle))
        def rotated(g, x, width=HEAD_SIZE // 2):
            return g.op("RotaryEmbedding", x, "position_ids", *tables(g, width), domain="com.microsoft")
        half = HEAD_SIZE // 2
        def split(g, x):
            first, rest = g.op("Split", x, g.constant([half, half]), outputs=2, axis=-1)
            return g.op("Concat", rotated(g, first), rest, axis=-1)
        def sliced(g, x):
            return g.op("Concat", rotated(g, g.slice(x, 0, half, 3)), g.slice(x, half, END, 3), axis=-1)
        self.check({"Split": {"rotary": split}, "Slice": {"rotary": sliced}}, ROTARY, copies_nothing=True)
        def others(f):
            return {"rotary": lambda g, x: f(g, g.slice(x, 0, half, 3), g.slice(x, half, END, 3))}
        self.check({
            "the others first": others(lambda g, a, b: g.op("Concat", b, rotated(g, a), axis=-1)),
            "the first again": others(lambda g, a, b: g.op("Concat", rotated(g, a), a, axis=-1)),
            "the last rotated": others(lambda g, a, b: g.op("Concat", rotated(g, b), a, axis=-1)),
            "one column less": {"rotary": lambda g, x: g.op("Concat", rotated(g, g.slice(x, 0, half, 3)), g.slice(x, half - 1, HEAD_SIZE - 1, 3), axis=-1)},
        }, ROTARY)

    def test_fused_operators_of_optimisers(self):
        """SkipLayerNormalization with outputs that are named and not read; FusedMatMul with a factor, of halves too."""
        def skip(g, x):
            gain = g.f32(np.linspace(0.5, 1.5, WIDTH))
            y, mean, deviation, total = g.op("SkipLayerNormalization", x, g.mul(x, 0.5), gain, outputs=4, domain="com.microsoft", epsilon=1e-5)
            return g.op("Add", y, total)
        def product(type):
            def f(g, x):
                matrix = g.op("Cast", g.f32(np.random.default_rng(6).standard_normal((WIDTH, WIDTH)) / 4), to=type)
                y = g.op("FusedMatMul", g.op("Cast", x, to=type), matrix, domain="com.microsoft", alpha=0.7, transB=1)
                return g.op("Add", x, g.op("Cast", y, to=TensorProto.FLOAT))
            return {"hidden": f}
        def read(g, x):
            y, mean, _, _ = g.op("SkipLayerNormalization", x, x, g.f32(np.ones(WIDTH)), outputs=4, domain="com.microsoft")
            return g.op("Add", y, mean)
        self.refused(Run("run", self.write("read", LEARNED, {"hidden": read}), "--prompt-ids", "1"), "SkipLayerNormalization", "mean")
        self.check({"skip": {"hidden": skip}, "float": product(TensorProto.FLOAT), "half": product(TensorProto.FLOAT16)}, copies_nothing=True)

    def test_permutations_are_copies(self):
        """Of what is computed, by indices that are known before the step: nothing new is made."""
        order = np.random.default_rng(4).permutation(HEAD_SIZE)
        hooks = {"value": lambda g, x: g.op("Gather", g.op("Tanh", x), g.constant(order), axis=3)}
        self.check({"channels": hooks})
        run = self.start(self.write("permuted", LEARNED, hooks), SHORT).result()
        self.assertGreater(run["bytes_copied_per_token"], 4 * HEAD_SIZE * len(SHORT))

    def test_one_row_in_two_states(self):
        """K and V are the same: the row is copied to the second state, from whatever slot the step has written."""
        hooks = {"fused": lambda g, q, k, v, i: g.plain_attention(q, k, k, i)}
        self.check({"K as V": hooks}, LEARNED)
        path = self.write("for beams", LEARNED, hooks)
        for options in (("--beams", 3), ("--prompt-lookup", 4), ("--chunk", 2)):
            self.assertEqual(self.start(path, SHORT * 2, *options).result()["output_ids"], self.start(path, SHORT * 2, "--naive", *options[:2 * (options[0] == "--beams")]).result()["output_ids"], options)

    def test_logits_of_double_precision(self):
        path = self.write("double", LEARNED, {"logits": lambda g, x, out: g.op("Cast", x, to=TensorProto.DOUBLE, out=out)})
        model = onnx.load(path)
        next(o for o in model.graph.output if o.name == "logits").type.tensor_type.elem_type = TensorProto.DOUBLE
        onnx.save(model, path)
        plain = self.plain(LEARNED, SHORT, {})
        for options in ((), ("--naive",)):
            self.assertEqual(self.start(path, SHORT, *options).result()["output_ids"], plain, options)

    def test_scatters_into_zeros(self):
        """As a router of experts writes the scores of the best ones; what it writes into is made where the result is."""
        def hooks(zeros, reduction="none", update=lambda g, t: t):
            def f(g, x):
                scores = g.op("MatMul", x, g.f32(np.random.default_rng(2).standard_normal((WIDTH, 8))))
                best, index = g.op("TopK", scores, g.constant([3]), outputs=2)
                y = g.op("ScatterElements", zeros(g, scores), index, update(g, g.op("Softmax", best)), axis=-1, **({} if reduction == "none" else {"reduction": reduction}))
                return g.op("Add", x, g.op("MatMul", y, g.f32(np.random.default_rng(3).standard_normal((8, WIDTH)))))
            return {"hidden": f}
        makes = {
            "ConstantOfShape": lambda g, t: g.op("ConstantOfShape", g.op("Shape", t), value=onnx.numpy_helper.from_array(np.zeros(1, np.float32))),
            "Expand": lambda g, t: g.op("Expand", g.f32(-1), g.op("Shape", t)),
            "the scores": lambda g, t: t,
        }
        cases = {name: hooks(make) for name, make in makes.items() if name != "the scores"}
        self.check(cases, copies_nothing=True)
        self.check({"the scores": hooks(makes["the scores"]), "sums": hooks(makes["Expand"], "add")})
        def itself(g, x):
            index = g.op("Cast", g.op("Mul", g.op("Sigmoid", x), g.f32(WIDTH - 1)), to=TensorProto.INT64)
            y = g.mul(x, 1.5)
            return g.op("ScatterElements", y, index, y, axis=-1)
        self.check({"an update by itself": {"hidden": itself}})

    def test_norms_of_tiny_rows(self):
        """Without an epsilon, and with one beside the root: on rows where one inside the root is another norm."""
        def norm(gain, add=lambda g, root: root):
            def f(g, x):  # of 48 numbers: the epsilon that is measured there is a little below 0
                x = g.mul(g.op("Concat", x, g.slice(x, 0, WIDTH // 2, 2), axis=2), gain)
                root = g.op("Sqrt", g.op("ReduceMean", g.op("Mul", x, x), axes=[-1]))
                return g.slice(g.op("Div", x, add(g, root)), 0, WIDTH, 2)
            return {"rms": f}
        def inside(gain):  # what it must not be taken for
            def f(g, x):
                x = g.mul(g.op("Concat", x, g.slice(x, 0, WIDTH // 2, 2), axis=2), gain)
                return g.slice(g.op("Div", x, g.op("Sqrt", g.op("Add", g.op("ReduceMean", g.op("Mul", x, x), axes=[-1]), g.f32(1e-5)))), 0, WIDTH, 2)
            return {"rms": f}
        self.check({"no epsilon": (norm(1e-3), inside(1e-3)), "beside the root": (norm(1e-6, lambda g, root: g.op("Add", root, g.f32(1e-8))), inside(1e-6))})

    def test_columns_that_are_spread(self):
        """One number for each token times a vector, of which parts are taken: no projection."""
        vector = np.random.default_rng(2).standard_normal(2 * WIDTH)
        def gate(op, split):
            def f(g, x):
                y = g.op(op, g.op("Sigmoid", g.op("ReduceMean", x, axes=[2], keepdims=1)), g.f32(vector))
                a, b = split(g, y)
                return g.op("Add", g.op("Mul", x, a), b)
            return {"hidden": f}
        parts = lambda g, y: g.op("Split", y, g.constant([WIDTH, WIDTH]), axis=2, outputs=2)
        slices = lambda g, y: (g.slice(y, 0, WIDTH, 2), g.slice(y, WIDTH, 2 * WIDTH, 2))
        self.check({f"{op}, {name}": gate(op, split) for op in ("Mul", "Add") for name, split in (("Split", parts), ("Slice", slices))})

    # -- order

    def test_long_chains(self):
        def chain(op, count):
            def f(g, x):
                for _ in range(count):
                    x = g.op(op, x)
                return x
            return f
        for op in some(("Neg", "Identity"), 2):
            with self.subTest(op):
                path = self.write(op, LEARNED, {"hidden": chain(op, 20000)})
                self.assertEqual(self.start(path, SHORT).result()["output_ids"], self.plain(LEARNED, SHORT, {}))

    def test_wide_and_deep(self):
        """Nodes by the thousand do not cost their square: with passes that look at each pair of them each graph takes minutes."""
        count = 4000
        def deep(g, x):  # each step in the place of the one before
            for i in range(count // 2): x = g.mul(g.op("Add", x, x), 0.5)
            return x
        def parts(g, x):  # all at once in one block
            return g.op("ReduceMax", g.op("Concat", *[g.op("Unsqueeze", g.mul(x, 1 - i / count), g.constant([0])) for i in range(count // 2)], axis=0), axes=[0], keepdims=0)
        def columns(g, x):  # of a Split
            wide = g.op("Tile", x, g.constant([1, 1, count // 2]))
            parts = g.op("Split", wide, axis=2, outputs=count // 2)
            return g.op("Add", g.op("Neg", g.op("Neg", parts[0])), g.op("Sub", parts[1], parts[-1]))
        for name, hook in {"deep": deep, "parts": parts, "columns": columns}.items():
            path = self.write(name, LEARNED, {"hidden": hook})
            with self.subTest(name):
                self.assertEqual(self.start(path, SHORT).result()["output_ids"], self.start(path, SHORT, "--naive").result()["output_ids"])

    def test_reversed_slices(self):
        def flip(axis, begin, end, step=-1):
            return lambda g, x: g.slice(x, begin, end, axis, step)
        def add(f):
            return {"hidden": lambda g, x: g.op("Add", x, g.mul(f(g, x), 3))}
        self.check({
            "value along the head size": {"value": flip(3, -1, -2**63)},
            "value along the head size, end just before 0": {"value": flip(3, HEAD_SIZE - 1, -HEAD_SIZE - 1)},
            "value along the heads": {"value": flip(1, -1, -LAST)},
            "value along the tokens": {"value": flip(2, -1, -2**63)},
            "value along the tokens, finite end": {"value": flip(2, -1, -10000)},
            "key along the head size": {"key": flip(3, -1, -LAST)},
            "key along the tokens": {"key": flip(2, -1, -600)},
            "query along the head size": {"query": flip(3, -1, -9)},
            "hidden along the width": add(flip(2, -1, -2**63)),
            "probabilities along the keys": {"probabilities": flip(3, -1, -5000)},
        })
        for prompt, ends in ((SHORT, (-2**63, -LAST, -10000)), (LONG, (-513,))):
            self.check({f"hidden along the tokens, end {end}": add(flip(1, -1, end)) for end in ends}, prompt=prompt)

    def test_order_of_heads(self):
        """K and V without a copy for each query head: neighbours share one, or every second head."""
        cores = {"broadcast": decoder_graphs.heads_shared_by_broadcast, "expand": decoder_graphs.heads_shared_by_expand}
        for how, core in cores.items():
            near, far = {"attend": core("h / group")}, {"attend": core("h mod groups")}
            self.check({f"{how}, h / group": (near, far), f"{how}, h mod groups": (far, near)}, copies_nothing=how == "broadcast")
            self.assertEqual(self.plain(LEARNED, SHORT, near), self.plain(LEARNED, SHORT, {}))

    def test_heads_copied_for_each_query_head(self):
        """By what reads the rows of one head several times: they are read where they stand."""
        def repeated(spec, f):
            group = HEADS // spec.kv_heads
            def core(g, q, k, v):
                return decoder_graphs.mix(g, decoder_graphs.scores(g, q, f(g, k, group)), f(g, v, group))
            return {"attend": core}
        def inner(g, x, group, tiled):  # [1, G, T, E] as [1, G, H/G, T, E], then [1, H, T, E]
            return g.reshape(tiled(g, g.unsqueeze(x, 2), group), 1, HEADS, g.total, HEAD_SIZE)
        copies = {
            "Gather": lambda g, x, group: g.op("Gather", x, g.constant(np.repeat(np.arange(g.spec.kv_heads), group)), axis=1),
            "Tile": lambda g, x, group: inner(g, x, group, lambda g, x, n: g.op("Tile", x, g.constant([1, 1, n, 1, 1]))),
            "Concat": lambda g, x, group: inner(g, x, group, lambda g, x, n: g.op("Concat", *[x] * n, axis=2)),
        }
        for spec, (name, f) in some([(spec, copy) for spec in (LEARNED, ROTARY) for copy in copies.items()], 2):
            path = self.write(name, spec, repeated(spec, f))
            for options in ((), ("--kv-type", "f32"), ("--chunk", 4)):
                with self.subTest(name, spec=spec.name, options=options):
                    run = self.start(path, SHORT, *options).result()
                    self.assertEqual((run["output_ids"], run["bytes_copied_per_token"]), (self.plain(spec, SHORT, {}), 0))
            self.start(path, SHORT, "--kv-type", "q8").result()
        for spec in LEARNED, ROTARY:
            others = {"heads in turn": lambda g, x, group: g.op("Tile", x, g.constant([1, group, 1, 1])),
                      "another head": lambda g, x, group: g.op("Gather", x, g.constant([*np.repeat(np.arange(g.spec.kv_heads), group)[1:], 0]), axis=1)}
            self.check({name: repeated(spec, f) for name, f in others.items()}, spec)

    # -- functions of rows and numbers

    def test_norms_with_a_clipped_variance(self):
        cases = {}
        for limit, gain in ((0.5, 1), (10, 4), (100, 12)):
            plain = {"rms": decoder_graphs.rms(gain=gain)}
            cases[f"at most {limit}"] = {"rms": decoder_graphs.rms(lambda g, v, limit=limit: g.op("Clip", v, g.f32(0), g.f32(limit)), gain)}, plain
            cases[f"at least {limit}"] = {"rms": decoder_graphs.rms(lambda g, v, limit=limit: g.op("Max", v, g.f32(limit)), gain / 8)}, {"rms": decoder_graphs.rms(gain=gain / 8)}
        self.check(cases)

    def test_clipped_activations(self):
        def cases(f, limit):
            def of(change):
                return {"activation": lambda g, x: change(g, g.mul(x, limit))}
            yield f"{f.__name__} of a number of at most {limit}", (of(lambda g, x: f(g, g.op("Clip", x, g.f32(-limit), g.f32(limit)))), of(f))
            yield f"{f.__name__}, at most {limit}", (of(lambda g, x: g.op("Min", f(g, x), g.f32(limit))), of(f))
        self.check(dict(c for f, limit in ((decoder_graphs.silu, 5), (decoder_graphs.silu, 20), (decoder_graphs.gelu, 20)) for c in cases(f, limit)))

    def test_softcap_is_recognised(self):
        hooks = {"scores": lambda g, s: g.mul(g.op("Tanh", g.op("Div", s, g.f32(1.5))), 1.5)}
        self.check({"softcap": hooks}, copies_nothing=True)
        facts = json.loads(Run("inspect", self.write("inspected", LEARNED, hooks), "--json").out)
        found = [f["what"] for f in facts["recognised"] if f["kind"] == "attention"]
        self.assertEqual(len(found), tiny_models.LAYERS)
        self.assertTrue(all("softcap 1.5" in what for what in found), found)

    def test_one_number_of_a_product(self):
        weight = np.random.default_rng(5).standard_normal((WIDTH, 8))
        def add(f):
            return {"hidden": lambda g, x: g.op("Add", x, f(g, g.op("MatMul", x, g.f32(weight))))}
        self.check({f"index {index} along {axis}": add(lambda g, y, index=index, axis=axis: g.unsqueeze(g.op("Gather", y, g.constant(index), axis=axis), 2))
                    for index, axis in ((0, 2), (3, -1), (-1, -1))})
        rows = np.random.default_rng(6).standard_normal((4, WIDTH)), np.random.default_rng(7).standard_normal((2, WIDTH))
        self.check({f"index 1 of axis {axis}": add(lambda g, y, axis=axis: g.op("MatMul", g.op("Gather", g.reshape(y, 1, g.tokens, 4, 2), g.constant(1), axis=axis), g.f32(rows[axis - 3] if axis == 2 else rows[0])))
                    for axis in (2, 3)})

    # -- nodes that change nothing

    def test_nodes_between_states_and_their_concat(self):
        def transposed_twice(g, x, **out):
            return g.op("Transpose", g.op("Transpose", x, perm=[0, 2, 1, 3]), perm=[0, 2, 1, 3], **out)
        nodes = {
            "Identity": lambda g, x, **out: g.op("Identity", x, **out),
            "Concat": lambda g, x, **out: g.op("Concat", x, axis=2, **out),
            "Slice": lambda g, x, **out: g.op("Slice", x, g.constant([0]), g.constant([END]), g.constant([2]), **out),
            "Reshape": lambda g, x, **out: g.op("Reshape", x, g.constant([0, 0, -1, HEAD_SIZE]), **out),
            "Reshape that keeps all": lambda g, x, **out: g.op("Reshape", x, g.constant([0, 0, 0, 0]), **out),
            "Expand": lambda g, x, **out: g.op("Expand", x, g.constant([1, 1, 1, 1]), **out),
            "Mul": lambda g, x, **out: g.op("Mul", x, g.f32(1), **out),
            "Dropout": lambda g, x, **out: g.op("Dropout", x, **out),
            "Cast": lambda g, x, **out: g.op("Cast", x, to=TensorProto.FLOAT, **out),
            "Transpose twice": transposed_twice,
        }
        runs = {}
        for name, node in some(nodes, 2).items():
            for place, hooks in {"past": {"past": node}, "present": {"present": lambda g, x, out, node=node: node(g, x, out=out)}}.items():
                path = self.write(f"{name} {place}", LEARNED, hooks)
                runs[name, place] = self.start(path, SHORT), self.start(path, SHORT, "--naive")
        for (name, place), (placed, naive) in runs.items():
            with self.subTest(name, place=place):
                ids = self.plain(LEARNED, SHORT, {})
                self.assertEqual(naive.result()["output_ids"], ids)
                self.assertEqual((placed.result()["output_ids"], placed.result()["bytes_copied_per_token"]), (ids, 0))

    # -- fused operators, against the same decoder of plain ones

    def test_lengths_of_group_query_attention(self):
        spec = next(s for s in tiny_models.SPECS if s.name == "genai")
        def write(name, lengths):
            class Changed(tiny_exports.Genai):
                def attention(self, h, i):
                    if i == 0:
                        self.lengths[0] = lengths(self, self.lengths[0])
                    return super().attention(h, i)
            export = Changed(spec, tiny_models.make_weights(spec, 1))
            folder = self.folder / f"lengths {name}"
            folder.mkdir()
            onnx.save(export.build(), folder / export.config()["model"]["decoder"]["filename"])
            (folder / "genai_config.json").write_text(json.dumps(export.config()))
            return folder
        one = lambda g: g.constant(1, np.int32)
        changes = {
            "one more": lambda g, n: g.op("Add", n, one(g)),
            "one less": lambda g, n: g.op("Sub", n, one(g)),
            "constant": lambda g, n: g.constant([8], np.int32),
            "never below 20": lambda g, n: g.op("Max", n, g.constant(20, np.int32)),
            "never above 12": lambda g, n: g.op("Min", n, g.constant(12, np.int32)),
        }
        for name, change in changes.items():
            with self.subTest(name):
                path = write(name, change)
                for options in ((), ("--naive",)):
                    self.refused(Run("run", path, "--prompt-ids", IDS, "-n", COUNT, *options), "GroupQueryAttention", "seqlens_k")
        path = write("as they should be", lambda g, n: g.op("Sub", g.op("Add", n, one(g)), one(g)))
        self.assertEqual(self.generate(path, SHORT)["output_ids"], self.generate(path, SHORT, "--naive")["output_ids"])

    def test_attention_of_three_dims(self):
        """ai.onnx.Attention on [1, S, heads * E] with is_causal, with an attention_mask that nothing reads and without one."""
        spec = next(s for s in tiny_models.SPECS if s.name == "opset23-causal")
        w, prompt, ids = tiny_models.choose_weights(spec)
        for opset in (23, 24):
            for mask in (True, False):
                with self.subTest(opset=opset, mask=mask):
                    model = tiny_exports.Opset23(spec, w).build()
                    model.opset_import[0].version = opset
                    if not mask:
                        tiny_exports.remove_input(model, "attention_mask")
                    path = self.folder / f"opset {opset} {mask}.onnx"
                    onnx.save(model, path)
                    for options in ((), ("--naive",)):
                        self.assertEqual(self.generate(path, prompt, *options)["output_ids"], ids, options)

    def test_multi_head_attention_with_a_bias(self):
        plain = {"projected": decoder_graphs.add_bias}
        ids = self.plain(MULTI_HEAD, SHORT, plain)
        self.assertNotEqual(ids, self.plain(MULTI_HEAD, SHORT, {}))
        path = self.write("fused", MULTI_HEAD, {"fused": decoder_graphs.multi_head_attention})
        for options in ((), ("--naive",)):
            self.assertEqual(self.generate(path, SHORT, *options)["output_ids"], ids, options)

    # -- switching passes off

    def test_names_of_passes(self):
        path = self.write("plain", LEARNED, {})
        for names in ("nonsense", "recognise_attention,nonsense", "nonsense,all"):
            for command in (["run", path, "--prompt-ids", IDS], ["run", path, "--prompt-ids", IDS, "--naive"], ["inspect", path]):
                with self.subTest(names, command=command):
                    self.refused(Run(*command, SITU_DISABLE_PASSES=names), "SITU_DISABLE_PASSES", "'nonsense'", "recognise_attention", "simplify", "all")
        for names in ("", "simplify", "all", "recognise_attention,recognise_functions"):
            self.assertEqual(self.generate(path, SHORT, SITU_DISABLE_PASSES=names)["output_ids"], self.plain(LEARNED, SHORT, {}), names)

if __name__ == "__main__":
    main()
