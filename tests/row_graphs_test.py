"""Graphs that look like rows sorted by expert, groups of them, or windows of convolutions, and are not: what is not proved stays as it is. Sinks of attention, which are.

    python tests/row_graphs_test.py --situ build/situ [unittest options]

Needs numpy and onnx (`make python`).
"""
import numpy as np
from onnx import TensorProto

import decoder_graphs
import tiny_models
from cli_case import Run, main
from decoder_graphs import END, LEARNED
from graph_case import GraphCase
from tiny_exports import value
from tiny_models import HEADS, WIDTH

def count_up(g, count):
    return g.op("Range", g.constant(0), g.op("Squeeze", count, g.constant([0])), g.constant(1))

def put_back(g, rows, order, count):
    places = g.op("ScatterND", g.op("Expand", g.constant(0), count), g.unsqueeze(order, -1), count_up(g, count))
    return g.op("Gather", rows, places)

def sorted_rows(weights):
    """Two rows for each token in the order of numbers, times what `weights` makes of (numbers, sorted numbers, count), and back."""
    def f(g, x):
        ids = g.reshape("input_ids", -1, 1)
        numbers = (g.op("Mod", g.op("Mul", ids, g.constant(by)), g.constant(of)) for by, of in ((7, 5), (3, 4)))
        flat = g.reshape(g.op("Concat", *numbers, axis=1), -1)
        count = g.op("Shape", flat)
        ordered, order = g.op("TopK", flat, count, outputs=2, axis=0, largest=0)
        rows = g.op("Gather", g.reshape(x, -1, WIDTH), g.op("Div", order, g.constant(2)), axis=0)
        scale = g.op("Cast", g.unsqueeze(weights(g, flat, ordered, count), 1), to=TensorProto.FLOAT)
        rows = g.op("Add", rows, g.op("Mul", scale, g.f32(np.random.default_rng(5).standard_normal(WIDTH) * 0.3)))
        y = g.op("Reshape", put_back(g, rows, order, count), g.shape(1, g.tokens, 2, WIDTH))
        return g.op("Add", x, g.op("ReduceSum", y, g.constant([2]), keepdims=0))
    return f

def group_ends(g, numbers, size, experts):
    counts = g.op("ScatterElements", g.constant([0] * experts, np.float32), numbers, g.op("Expand", g.f32(1), size), axis=0, reduction="add")
    ends = g.op("Cast", g.op("CumSum", g.op("Cast", counts, to=TensorProto.INT32), g.constant(0)), to=TensorProto.INT64)
    return [g.op("Squeeze", e, g.constant([0])) for e in g.op("Split", ends, outputs=experts)]

def groups_of_another_sort(g, x, experts=3):
    """Rows in one order, groups that another sort has only the size of."""
    ids = g.reshape("input_ids", -1)
    first, second = g.op("Mod", ids, g.constant(experts)), g.op("Mod", g.op("Div", ids, g.constant(2)), g.constant(experts))
    count = g.op("Shape", first)
    ordered, _ = g.op("TopK", first, count, outputs=2, axis=0, largest=0)
    _, order = g.op("TopK", second, count, outputs=2, axis=0, largest=0)
    ends = group_ends(g, second, g.unsqueeze(g.op("Size", ordered), 0), experts)
    rows = g.op("Gather", g.reshape(x, -1, WIDTH), order)
    stack = g.weight("stack", np.random.default_rng(0).standard_normal((experts, WIDTH, WIDTH)).astype(np.float32))
    products = []
    for e, w in enumerate(g.op("Split", stack, outputs=experts, axis=0)):
        part = g.op("Gather", rows, g.op("Range", ends[e - 1] if e else g.constant(0), ends[e], g.constant(1)))
        products.append(g.op("MatMul", part, g.op("Squeeze", w, g.constant([0]))))
    y = g.op("Reshape", put_back(g, g.op("Concat", *products, axis=0), order, count), g.shape(1, g.tokens, WIDTH))
    return g.op("Add", x, y)

def window(pads, taps, rows):
    """A convolution of a state of so many rows and the new tokens."""
    def f(g, x):
        g.inputs.append(value("past_conv.0", [1, WIDTH, rows]))
        g.outputs.append(value("present_conv.0", [1, WIDTH, rows]))
        both = g.op("Concat", "past_conv.0", g.op("Transpose", x, perm=[0, 2, 1]), axis=2)
        g.op("Slice", both, *(g.constant([v]) for v in (-rows, 2**63 - 1, 2)), out="present_conv.0")
        w = g.weight("taps", np.random.default_rng(3).standard_normal((WIDTH, 1, taps)).astype(np.float32))
        return g.op("Add", x, g.op("Transpose", g.op("Conv", both, w, group=WIDTH, pads=pads, kernel_shape=[taps]), perm=[0, 2, 1]))
    return f

class RowGraphsTest(GraphCase):
    def test_sorted_rows(self):
        self.check({
            "weights in the order": {"hidden": sorted_rows(lambda g, numbers, ordered, count: ordered)},
            "weights that are not": {"hidden": sorted_rows(lambda g, numbers, ordered, count: numbers)},
            "the number of a row": {"hidden": sorted_rows(lambda g, numbers, ordered, count: count_up(g, count))},
        })

    def test_padding_is_no_row_of_the_past(self):
        self.check({f"{taps} taps, {rows} rows, {pads} before": {"hidden": window([pads, 0], taps, rows)} for taps, rows, pads in ((4, 3, 0), (4, 2, 1), (4, 1, 2))})

    def test_refused(self):
        def groups(part):
            def f(g, x):
                flat = g.reshape("input_ids", -1)
                g.op("TopK", flat, g.op("Shape", flat), outputs=2, axis=0, largest=0)
                rows, w = g.reshape(x, -1, WIDTH), g.f32(np.ones((WIDTH, WIDTH)))
                y = g.op("Concat", *(part(g, rows, w, g.constant(e), g.constant(e + 1)) for e in range(2)), axis=0)
                return g.op("Add", x, g.op("ReduceSum", y, keepdims=1))
            return f
        cases = {
            "groups of another sort": (groups_of_another_sort, "is not known before the step runs"),
            "no indices": (groups(lambda g, rows, w, b, e: g.op("MatMul", g.op("Gather", rows), w)), r"input 1 \(indices\) is missing"),
            "no limit": (groups(lambda g, rows, w, b, e: g.op("MatMul", g.op("Gather", rows, g.op("Range", b)), w)), r"input 1 \(limit\) is missing"),
            "no step": (groups(lambda g, rows, w, b, e: g.op("MatMul", g.op("Gather", rows, g.op("Range", b, e, "")), w)), r"input 2 \(delta\) is missing"),
            "one factor": (groups(lambda g, rows, w, b, e: g.op("MatMul", g.op("Gather", rows, g.op("Range", b, e, g.constant(1))))), r"input 1 \(B\) is missing"),
            "no operand": (groups(lambda g, rows, w, b, e: g.op("MatMul", g.op("ConstantOfShape"), w)), r"input 0 \(input\) is missing"),
        }
        for name, (hidden, reason) in cases.items():
            with self.subTest(name):
                run = Run("run", self.write(name, LEARNED, {"hidden": hidden}), "--prompt-ids", "5,6,7", "-n", 1)
                self.assertEqual((run.code, run.out), (2, ""), run)
                self.assertRegex(run.err, reason)

    def test_sinks(self):
        sink = np.linspace(-1, 3, HEADS).reshape(1, HEADS, 1, 1)
        def columns(g, value):
            return g.expand(g.f32(value), 1, HEADS, g.tokens, 1)
        def less_the_largest(g, x):
            return g.op("Sub", x, g.op("ReduceMax", x, axes=[-1]))
        cases = {
            "behind the scores": {"masked": lambda g, s: g.slice(g.op("Softmax", g.op("Concat", s, columns(g, sink), axis=-1), axis=-1), 0, -1, 3)},
            "before the scores": {"masked": lambda g, s: g.slice(g.op("Softmax", g.op("Concat", columns(g, sink), s, axis=-1), axis=-1), 1, END, 3)},
            "less the largest": {"masked": lambda g, s: g.slice(g.op("Softmax", less_the_largest(g, g.op("Concat", s, columns(g, sink), axis=-1)), axis=-1), 0, -1, 3)},
        }
        def beside(columns, axis, masked=True):
            def f(g, q, k, v):
                seen = decoder_graphs.scores(g, q, g.repeat(k))
                s = g.op("Add", seen, g.mask)
                gate = g.op("Sigmoid", g.op("Sub", g.op("ReduceLogSumExp", s if masked else seen, axes=[axis], keepdims=int(columns)), g.f32(sink if columns else sink[..., 0])))
                return g.op("Mul", g.op("MatMul", g.op("Softmax", s, axis=-1), g.repeat(v)), gate if columns else g.unsqueeze(gate, 3))
            return {"attend": f}
        cases |= {
            "in half precision": {"masked": lambda g, s: g.slice(g.op("Softmax", g.op("Concat", s, g.op("Cast", g.expand(g.constant(sink, np.float16), 1, HEADS, g.tokens, 1), to=TensorProto.FLOAT), axis=-1), axis=-1), 0, -1, 3)},
            "by the logarithm of the sum": beside(False, 3),
            "by the logarithm of the sum, with its axis": beside(True, -1),
        }
        self.check(cases, copies_nothing=True)
        for name, hooks in cases.items():
            self.assertEqual([what.endswith("sinks") for what in self.found(name, LEARNED, hooks, "attention")], [True] * tiny_models.LAYERS, name)
        # By these, tokens depend on later ones: a prompt is not fed in parts.
        self.check({
            "all but the first": {"masked": lambda g, s: g.slice(g.op("Softmax", g.op("Concat", s, columns(g, sink), axis=-1), axis=-1), 1, END, 3)},
            "by the sum over hidden keys too": beside(True, -1, False),
            "less the largest of all queries": {"masked": lambda g, s: g.op("Softmax", g.op("Sub", s, g.op("ReduceMax", s, axes=[-2])), axis=-1)},
        }, options=("--chunk", 3))
        self.check({
            "less for later keys": {"masked": lambda g, s: cases["behind the scores"]["masked"](g, g.op("Add", s, g.mul(g.unsqueeze(g.op("Cast", g.keys, to=TensorProto.FLOAT), 0, 1, 2), np.linspace(0.1, 0.4, HEADS).reshape(1, HEADS, 1, 1))))},
            "something for all scores": {"masked": lambda g, s: cases["behind the scores"]["masked"](g, g.op("Add", s, g.f32(1.5)))},
            "by query": {"masked": lambda g, s: g.slice(g.op("Softmax", g.op("Concat", s, g.mul(g.slice(s, 0, 1, 3), 0.5), axis=-1), axis=-1), 0, -1, 3)},
            "one more in the denominator": {"masked": lambda g, s: (lambda e: g.op("Div", e, g.op("Add", g.op("ReduceSum", e, g.constant([-1])), g.f32(1))))(g.op("Exp", s))},
        })

if __name__ == "__main__":
    main()
