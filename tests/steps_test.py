"""Graphs that compute something with the length of a step or of a sequence: which prompts may be cut into chunks, what holds for
the probed steps alone, sizes and numbers made of lengths. The ids must be those of the literal run, node by node.

    python tests/steps_test.py --situ build/situ [unittest options]

Needs numpy and onnx (`make python`).
"""
import numpy as np
import onnx
from onnx import TensorProto

import tiny_exports
import tiny_models
from cli_case import main
from decoder_graphs import END, LEARNED, ROTARY
from graph_case import LONG, SHORT, GraphCase
from tiny_models import HEADS, HEAD_SIZE, WIDTH

class StepsTest(GraphCase):
    def test_tokens_that_depend_on_later_ones(self):
        """Logits of the last token alone need more than its own row."""
        def add(f):
            return {"hidden": lambda g, x: g.op("Add", x, g.mul(f(g, x), 3))}
        def flat(g, x, width):
            return g.reshape(g.op("Softmax", g.reshape(x, 1, -1), axis=1), 1, -1, width)
        self.check({
            "Softmax over the tokens": add(lambda g, x: g.op("Softmax", x, axis=1)),
            "Softmax over all": add(lambda g, x: g.mul(flat(g, x, WIDTH), 20)),
            "sum over the tokens": add(lambda g, x: g.op("CumSum", x, g.constant(1))),
            "mean over the tokens": add(lambda g, x: g.op("ReduceMean", x, axes=[1])),
            "one token later": add(lambda g, x: g.op("Concat", g.slice(x, -1, END, 1), g.slice(x, 0, -1, 1), axis=1)),
            "first token": add(lambda g, x: g.op("Gather", x, g.constant([0]), axis=1)),
            "triangle": {"hidden": lambda g, x: g.op("Trilu", x, upper=1)},
            "logits, maximum over the tokens": {"logits": lambda g, x, out: g.op("Sub", x, g.op("ReduceMax", x, axes=[1]), out=out)},
            "logits, triangle": {"logits": lambda g, x, out: g.op("Trilu", x, g.constant(30), upper=1, out=out)},
            "logits, reversed": {"logits": lambda g, x, out: g.op("Slice", x, *(g.constant([n]) for n in (-1, -10000, 1, -1)), out=out)},
            "logits, by position": {"logits": lambda g, x, out: g.op("Mul", x, g.unsqueeze(g.op("Cast", g.op("Sub", g.constant(12), g.queries), to=TensorProto.FLOAT), 0, 2), out=out)},
        })

    def test_prompts_that_cannot_be_cut(self):
        """Fed four tokens at a time, unless the graph says that this would change them."""
        def length(g):
            return g.op("Cast", g.op("Add", g.op("ReduceMax", g.keys, keepdims=1), g.constant([1])), to=TensorProto.FLOAT)
        def share(g):  # of the step's length that a query has behind it, [S, 1]
            return g.unsqueeze(g.op("Div", g.op("Cast", g.op("Add", g.queries, g.constant(1)), to=TensorProto.FLOAT), length(g)), 1)
        def flat(g, s):
            return g.op("Reshape", g.op("Softmax", g.reshape(s, 1, HEADS, -1), axis=-1), g.op("Shape", s))
        self.check({
            "queries by their share of the length": {"query": lambda g, q: g.op("Mul", q, g.mul(share(g), 3))},
            "scores by the length": {"scores": lambda g, s: g.op("Mul", s, length(g))},
            "probabilities by the length": {"probabilities": lambda g, p: g.op("Mul", p, length(g))},
            "Softmax over the queries": {"masked": lambda g, s: g.op("Softmax", s, axis=2)},
            "Softmax over queries and keys": {"masked": flat},
            "probabilities summed over the queries": {"probabilities": lambda g, p: g.op("CumSum", p, g.constant(2))},
            "no probability below 0.1": {"probabilities": lambda g, p: g.op("Max", p, g.f32(0.1))},
            "first tokens see each other": {"mask": lambda g, m: g.op("Where", g.op("And", g.op("Less", g.unsqueeze(g.queries, 1), g.constant(8)), g.op("Less", g.unsqueeze(g.keys, 0), g.constant(8))), g.f32(0), m)},
            "mean over the tokens": {"hidden": lambda g, x: g.op("Add", x, g.mul(g.op("ReduceMean", x, axes=[1]), 3))},
        }, options=("--chunk", 4))

    def test_attention_to_the_tokens_of_a_step(self):
        """Causal, but without a past: what a token sees depends on where the prompt is cut."""
        spec = next(s for s in tiny_models.SPECS if s.name == "opset23-causal")
        model = tiny_exports.Opset23(spec, tiny_models.choose_weights(spec)[0]).build()
        list(tiny_exports.append_beside(model))
        path = self.folder / "of the step.onnx"
        onnx.save(model, path)
        whole, step = self.start(path, SHORT, "--naive").result(), self.start(path, SHORT[-1:], "--naive").result()
        self.assertNotEqual(whole["output_ids"], step["output_ids"], "the tokens before it change nothing")
        for options in ((), ("--chunk", 4)):
            self.assertEqual(self.start(path, SHORT, *options).result()["output_ids"], whole["output_ids"], options)

    def test_prompts_that_only_a_first_step_may_be(self):
        """Right for prompts without past and for single tokens; later chunks would count their positions from 0."""
        starts = {
            "chosen by the step": lambda g, past: g.op("Where", g.op("Equal", g.tokens, g.constant(1)), past, g.constant(0)),
            "times whether it is one token": lambda g, past: g.op("Mul", past, g.op("Cast", g.op("Equal", g.tokens, g.constant(1)), to=TensorProto.INT64)),
            "divided by its length": lambda g, past: g.op("Div", past, g.tokens),
        }
        def queries(g, start):
            first = start(g, g.op("Sub", g.total, g.tokens))
            return g.op("Range", first, g.op("Add", first, g.tokens), g.constant(1))
        def mask(start):
            return {"mask": lambda g, m: g.unsqueeze(g.op("Where", g.op("LessOrEqual", g.unsqueeze(g.keys, 0), g.unsqueeze(queries(g, start), 1)), g.f32(0), g.f32(tiny_exports.MASKED)), 0, 1)}
        def table(start):
            rows = np.random.default_rng(4).standard_normal((tiny_models.CONTEXT, WIDTH))
            return {"hidden": lambda g, x: g.op("Add", x, g.unsqueeze(g.op("Gather", g.f32(rows), queries(g, start)), 0))}
        cases = {f"{kind}, {name}": f(start) for name, start in starts.items() for kind, f in (("rows of a table", table), ("mask", mask))}
        for name, hooks in cases.items():
            with self.subTest(name):
                path = self.write(name, LEARNED, hooks)
                runs = [self.start(path, LONG, *options) for options in (("--naive",), ("--chunk", 4), ())]
                naive, chunks, whole = (r.result()["output_ids"] for r in runs)
                self.assertEqual((chunks, whole), (naive, naive))

    def test_sizes_that_bend(self):
        """More in the middle of a sequence than at its ends: rows that are as many as a function of the length says."""
        total = tiny_models.CONTEXT
        counts = {
            "a parabola": lambda g: g.op("Add", g.op("Mul", g.op("Mul", g.total, g.op("Sub", g.constant(total), g.total)), g.constant(20)), g.constant(1)),
            "a remainder": lambda g: g.op("Add", g.op("Mod", g.op("Mul", g.total, g.constant(1000)), g.constant(8000)), g.constant(1)),
            "a small remainder": lambda g: g.op("Add", g.op("Mod", g.total, g.constant(50)), g.constant(1)),
            "the smaller part": lambda g: g.op("Add", g.op("Mul", g.op("Min", g.tokens, g.op("Sub", g.total, g.tokens)), g.constant(500)), g.constant(1)),
        }
        def rows(count):
            def f(g, x):
                numbers = g.unsqueeze(g.op("Cast", g.op("Range", g.constant(0), count(g), g.constant(1)), to=TensorProto.FLOAT), 1)
                return g.op("Add", x, g.op("ReduceMean", g.op("Tanh", g.op("Mul", g.slice(x, -1, END, 1), numbers)), axes=[1], keepdims=1))
            return {"hidden": f}
        for prompt in (SHORT, LONG):
            self.check({name: rows(count) for name, count in counts.items()}, prompt=prompt)

    def test_truth_made_of_lengths(self):
        """Casts to bool are 0 or 1, Mod with fmod has the sign of what is divided."""
        vector = np.random.default_rng(3).standard_normal(WIDTH)
        def number(f):
            return {"hidden": lambda g, x: g.op("Add", x, g.op("Mul", g.f32(vector), g.op("Cast", f(g, g.op("Sub", g.total, g.tokens)), to=TensorProto.FLOAT)))}
        def truth(g, past):
            return g.op("Cast", past, to=TensorProto.BOOL)
        def choice(g, condition):
            return g.op("Where", condition, g.constant(3), g.constant(-1))
        def ones(g, past):
            filled = g.op("ConstantOfShape", g.shape(g.total), value=onnx.numpy_helper.from_array(np.array([2])))
            return g.op("ReduceSum", g.op("Cast", g.op("Cast", filled, to=TensorProto.BOOL), to=TensorProto.INT64), g.constant([0]), keepdims=0)
        self.check({
            "is there a past": number(lambda g, past: g.op("Cast", truth(g, past), to=TensorProto.INT64)),
            "is there none": number(lambda g, past: choice(g, g.op("Not", truth(g, past)))),
            "are there both": number(lambda g, past: choice(g, g.op("Equal", truth(g, past), truth(g, g.tokens)))),
            "the sign of what is divided": number(lambda g, past: g.op("Mod", g.op("Sub", g.total, g.constant(20)), g.constant(5), fmod=1)),
            "how many are not 0": number(ones),
        })

    def test_prompts_of_exports_without_chunks(self):
        """Masks of S x S hold for prompts without past and for single tokens; the prompt is one step, whatever --chunk says."""
        def square(g, mask):
            return g.unsqueeze(g.op("Trilu", g.expand(g.f32(tiny_exports.MASKED), g.tokens, g.tokens), g.constant(1), upper=1), 0, 1)
        def rotary(slow):  # another table for more than 40 tokens in all, as long-rope models have
            def f(g, x):
                first, second = g.slice(x, 0, HEAD_SIZE // 2, 3), g.slice(x, HEAD_SIZE // 2, HEAD_SIZE, 3)
                turn = g.op("Concat", g.op("Neg", second), first, axis=-1)
                cos, sin = (g.op("Where", g.op("Less", g.total, g.constant(41)), t, g.mul(t, slow)) for t in (g.cos, g.sin))
                return g.op("Add", g.op("Mul", x, cos), g.op("Mul", turn, sin))
            return {"rotary": f, "mask": square}
        for chunk in (7, 41, 512):
            self.check({f"chunks of {chunk}": (rotary(0.5), {"mask": square})}, ROTARY, LONG, options=("--chunk", chunk), copies_nothing=True)

    def test_positions_by_the_length_of_the_step(self):
        """Long-rope models for some devices look further down in one table when the step reaches beyond a position."""
        angle = np.arange(2 * tiny_models.CONTEXT)[:, None] * 10000.0 ** (-np.arange(0, HEAD_SIZE, 2) / HEAD_SIZE)
        angle[tiny_models.CONTEXT:] *= 0.3
        def rotary(moved):
            def f(g, x):
                largest = g.op("ReduceMax", "position_ids", keepdims=0)
                offset = g.op("Mul", g.op("Cast", g.op("GreaterOrEqual", largest, g.constant(40)), to=TensorProto.INT64), g.constant(tiny_models.CONTEXT * moved))
                return g.op("RotaryEmbedding", x, g.op("Add", "position_ids", offset), g.f32(np.cos(angle)), g.f32(np.sin(angle)), domain="com.microsoft")
            return {"rotary": f}
        for chunk in (7, 45, 512):
            self.check({f"chunks of {chunk}": (rotary(1), rotary(0))}, ROTARY, LONG, options=("--chunk", chunk), copies_nothing=True)

    def test_lengths_that_grow_without_end(self):
        """Integers made of the lengths, whose symbolic form doubles with every node."""
        links = {
            "squares": lambda g, v: g.op("Mod", g.op("Mul", v, v), g.constant(1009)),
            "minima and maxima": lambda g, v: g.op("Min", g.op("Max", g.op("Sub", v, g.tokens), g.op("Sub", g.constant(9), v)), g.op("Add", v, g.total)),
            "remainders": lambda g, v: g.op("Add", g.op("Mod", g.op("Mul", v, g.constant(3)), g.constant(1009)), g.op("Div", v, g.constant(2))),
            "choices": lambda g, v: g.op("Where", g.op("Less", v, g.constant(50)), g.op("Add", v, g.tokens), g.op("Sub", v, g.total)),
        }
        def chain(link):
            def f(g, x):
                v = g.total
                for _ in range(60):
                    v = link(g, v)
                return g.op("Add", x, g.mul(g.op("Cast", g.op("Greater", v, g.constant(11)), to=TensorProto.FLOAT), 1.5))
            return f
        for name, link in links.items():
            with self.subTest(name):
                path = self.write(name, LEARNED, {"hidden": chain(link)})
                naive, placed = self.start(path, SHORT, "--naive"), self.start(path, SHORT)
                self.assertEqual(placed.result()["output_ids"], naive.result()["output_ids"])
    def test_rotary_embeddings_cut_by_the_length(self):
        """Their halves have another border in longer sequences."""
        def border(g, moved):
            return g.unsqueeze(g.op("Add", g.constant(HEAD_SIZE // 2), g.op("Mul", g.constant(moved), g.op("Cast", g.op("Greater", g.total, g.constant(30)), to=TensorProto.INT64))), 0)
        def by_slices(g, x, k):
            return g.op("Slice", x, g.constant([0]), k, g.constant([3])), g.op("Slice", x, k, g.constant([END]), g.constant([3]))
        def by_split(g, x, k):
            return g.op("Split", x, g.op("Concat", k, g.op("Sub", g.constant([HEAD_SIZE]), k), axis=0), outputs=2, axis=3)
        def by_gather(g, x, k):
            places = g.op("Mod", g.op("Add", g.op("Range", g.constant(0), g.constant(HEAD_SIZE), g.constant(1)), k), g.constant(HEAD_SIZE))
            turned = g.op("Gather", x, places, axis=3)
            return g.slice(turned, HEAD_SIZE // 2, HEAD_SIZE, 3), g.slice(turned, 0, HEAD_SIZE // 2, 3)
        def rotary(parts, moved):
            def f(g, x):
                first, second = parts(g, x, border(g, moved))
                return g.op("Add", g.op("Mul", x, g.cos), g.op("Mul", g.op("Concat", g.op("Neg", second), first, axis=-1), g.sin))
            return {"rotary": f}
        self.check({parts.__name__: (rotary(parts, 1), rotary(parts, 0)) for parts in (by_slices, by_split, by_gather)}, ROTARY, LONG)

    def test_prompts_whose_parts_pick_other_heads(self):
        """Heads are rolled by a place that follows from how long the sequence is."""
        def far(g):
            return g.op("Cast", g.op("Greater", g.total, g.constant(6)), to=TensorProto.INT64)
        def gathered(g, x, axis):
            return g.op("Gather", x, g.op("Mod", g.op("Add", g.constant(range(HEADS if axis == 1 else HEAD_SIZE)), far(g)), g.constant(HEADS if axis == 1 else HEAD_SIZE)), axis=axis)
        def sliced(g, x, axis):
            k = g.unsqueeze(far(g), 0)
            return g.op("Concat", g.op("Slice", x, k, g.constant([END]), g.constant([axis])), g.op("Slice", x, g.constant([0]), k, g.constant([axis])), axis=axis)
        def cut(g, x, axis):
            k = g.unsqueeze(g.op("Add", far(g), g.constant(1)), 0)
            a, b = g.op("Split", x, g.op("Concat", k, g.op("Sub", g.constant([HEADS if axis == 1 else HEAD_SIZE]), k), axis=0), outputs=2, axis=axis)
            return g.op("Concat", b, a, axis=axis)
        self.check({f"{f.__name__} {part}, axis {axis}": {part: lambda g, x, f=f, axis=axis: f(g, x, axis)}
                    for f in (gathered, sliced, cut) for part, axis in (("query", 1), ("query", 3), ("scores", 1))}, options=("--chunk", 4))

    def test_prompts_whose_parts_see_another_past(self):
        """Rows of the past alone are summed up: none are there in the first part, and all earlier ones in a later part."""
        def past_added(summed):
            pasts = []
            def remember(g, past):
                pasts.append(past)
                return past
            def add(g, q):
                return g.op("Add", q, g.mul(summed(g, pasts[-2]), 2))  # the key's
            return {"past": remember, "query": add}
        def heads(g, x):  # [1, G, 1, E] as [1, H, 1, E]
            return g.reshape(g.expand(g.unsqueeze(x, 2), 1, g.spec.kv_heads, HEADS // g.spec.kv_heads, 1, HEAD_SIZE), 1, HEADS, 1, HEAD_SIZE)
        self.check({
            "sum": past_added(lambda g, past: heads(g, g.op("Tanh", g.op("ReduceSum", past, g.constant([2]), keepdims=1)))),
            "product with ones": past_added(lambda g, past: heads(g, g.op("Tanh", g.op("MatMul", g.expand(g.f32(1), 1, 1, 1, g.op("Sub", g.total, g.tokens)), past)))),
        }, options=("--chunk", 5))

    def test_integers_that_wrap(self):
        """Lengths in int32 that leave it, and -1 as a byte without a sign."""
        vector = np.random.default_rng(3).standard_normal(WIDTH)
        def number(f):
            return {"hidden": lambda g, x: g.op("Add", x, g.op("Mul", g.f32(vector), g.op("Cast", f(g), to=TensorProto.FLOAT)))}
        def int32(g, x):
            return g.op("Cast", x, to=TensorProto.INT32)
        def filled(g, kind):
            ones = g.op("ConstantOfShape", g.shape(g.total), value=onnx.numpy_helper.from_array(np.array([-1])))
            return g.op("ReduceSum", g.op("Cast", g.op("Cast", ones, to=kind), to=TensorProto.INT64), g.constant([0]), keepdims=0)
        self.check({
            "a cast": number(lambda g: g.op("Mod", int32(g, g.op("Add", g.op("Mul", g.total, g.constant(2**32)), g.constant(2))), int32(g, g.constant(3)))),
            "a product": number(lambda g: g.op("Div", g.op("Mul", int32(g, g.total), int32(g, g.constant(2**30))), int32(g, g.constant(2**29)))),
            "bytes": number(lambda g: g.op("Div", filled(g, TensorProto.UINT8), g.constant(128))),
        })

if __name__ == "__main__":
    main()
