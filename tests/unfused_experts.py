"""Mixtures of experts in the plain operators of exporters: each writes y = sum over choices of weight * f_expert(x).

A style is a function of the graph that is written, x [S, WIDTH], weights and index [S, k], the number of experts and
`expert(g, e, rows)`, which writes f_e; it returns y [S, WIDTH].
"""
import numpy as np

from tiny_models import WIDTH


def scatter_and_add(g, x, weights, index, k, experts, expert, opset_16=False):
    """The TorchScript exporter's loop: one-hot, NonZero, Gather, and index_add as a scatter into zeros."""
    hot = g.op("OneHot", index, g.constant(experts), g.constant([0, 1]), axis=-1)
    masks = g.op("Transpose", hot, perm=[2, 1, 0])  # [E, k, S]
    front = g.op("Unsqueeze", x, g.constant([0]))
    shape = g.op("Concat", g.op("Unsqueeze", g.extent(x, 0), g.constant([0])), g.constant([WIDTH]), axis=0)
    y = g.op("ConstantOfShape", shape, value=zero())
    for e in range(experts):
        found = g.op("NonZero", g.op("Cast", g.op("Gather", masks, g.constant(e), axis=0), to=9))
        choice, token = (g.op("Squeeze", part, g.constant([1])) for part in g.op("Split", g.op("Transpose", found, perm=[1, 0]), g.constant([1, 1]), outputs=2, axis=1))
        shape = g.op("Concat", g.constant([-1]), g.op("Unsqueeze", g.extent(x, 1), g.constant([0])), axis=0)
        rows = g.op("Reshape", g.op("Gather", front, token, axis=1), shape)
        column = g.op("Unsqueeze", weights, g.constant([2]))
        at = g.op("Add", choice, g.op("Mul", token, g.extent(column, 1)))
        width = g.op("Unsqueeze", g.extent(column, 2), g.constant([0]))
        scale = g.op("Gather", g.op("Flatten", column, axis=2), at, axis=0)
        scale = g.op("Reshape", scale, g.op("Concat", g.constant([-1]), width, axis=0))
        scale = g.op("Reshape", scale, g.op("Concat", g.op("Shape", at), width, axis=0))
        rows = g.op("Cast", g.op("Mul", expert(g, e, rows), scale), to=1)
        rows = g.op("Expand", rows, g.op("Shape", g.slice(y, 0, 1, 0)))
        places = g.op("Expand", g.op("Unsqueeze", token, g.constant([1])), g.op("Shape", rows))
        if opset_16:
            y = g.op("ScatterElements", y, places, rows, axis=0, reduction="add")
        else:
            y = g.op("Add", y, g.op("ScatterElements", g.op("ConstantOfShape", g.op("Shape", y), value=zero()), places, rows, axis=0))
    return y


def index_add(g, x, weights, index, k, experts, expert):
    return scatter_and_add(g, x, weights, index, k, experts, expert, opset_16=True)


def scatter_nd(g, x, weights, index, k, experts, expert):
    """The dynamo exporter's loop: comparison with each expert, GatherND, ScatterND that adds."""
    masks = g.op("Transpose", g.op("Cast", g.op("Equal", g.op("Unsqueeze", index, g.constant([-1])), g.constant(np.arange(experts))), to=7), perm=[2, 1, 0])
    y = g.op("Expand", g.f32(0), g.op("Shape", x))
    for e in range(experts):
        found = g.op("Transpose", g.op("NonZero", g.op("Gather", masks, g.constant(e), axis=0)), perm=[1, 0])
        choice, token = g.slice(found, 0, 1, 1), g.slice(found, 1, 2, 1)
        rows = g.op("GatherND", x, token)
        scale = g.op("GatherND", g.op("Unsqueeze", weights, g.constant([2])), g.op("Concat", token, choice, axis=-1))
        y = g.op("ScatterND", y, token, g.op("Mul", expert(g, e, rows), scale), reduction="add")
    return y


def by_token(g, x, weights, index, k, experts, expert):
    """Masks [E, S, k], as torch.where of the choice of each expert gives rows by token."""
    masks = g.op("Transpose", g.op("OneHot", index, g.constant([experts]), g.constant([0, 1]), axis=-1), perm=[2, 0, 1])
    y = g.op("Mul", x, g.f32(0.0))
    y = g.op("Sub", y, y)
    y = g.op("ConstantOfShape", g.op("Shape", y), value=zero())
    for e in reversed(range(experts)):
        found = g.op("NonZero", g.op("Cast", g.op("Gather", masks, g.constant(e), axis=0), to=9))
        token, choice = g.op("Gather", found, g.constant(0), axis=0), g.op("Gather", found, g.constant(1), axis=0)
        scale = g.op("GatherND", weights, g.op("Concat", *(g.op("Unsqueeze", v, g.constant([1])) for v in (token, choice)), axis=1))
        rows = g.op("Mul", g.op("Unsqueeze", scale, g.constant([1])), expert(g, e, g.op("Gather", x, token, axis=0)))
        y = g.op("ScatterND", y, g.op("Unsqueeze", token, g.constant([1])), rows, reduction="add")
    return y


def zero():
    from onnx import numpy_helper
    return numpy_helper.from_array(np.zeros(1, np.float32))


LOOPS = {"scatter and add": scatter_and_add, "index_add": index_add, "scatter nd": scatter_nd, "by token": by_token}
