"""Exports of tiny_exports.py as fixed windows: all extents are numbers, as an exporter without dynamic axes leaves them.

W tokens a step, T keys; input_ids [1, W], attention_mask [1, T], past [.., T - W, ..], present [.., T, ..].
"""
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

SHAPES = {"Shape", "Gather", "Unsqueeze", "Squeeze", "Concat", "Sub", "Add", "Mul", "Div", "Slice", "Cast", "ConstantOfShape"}


def fixed(model, window, length, positions="input", folded="nothing", **config):
    """positions: an input, or counted in the mask. folded: nothing; shapes (extents are constants); everything (tables too)."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    names = {"batch_size": 1, "batch": 1, "sequence_length": window, "seq": window, "past_sequence_length": length - window}
    for v in list(model.graph.input) + list(model.graph.output):
        for d in v.type.tensor_type.shape.dim:
            if d.HasField("dim_param"):
                d.dim_value = names.get(d.dim_param, length)
    if positions == "mask" and any(v.name == "position_ids" for v in model.graph.input):
        count_positions(model.graph, window, length)
    if folded != "nothing":
        fold(model, everything=folded == "everything")
    return model


def constant(graph, name, value):
    graph.initializer.append(numpy_helper.from_array(np.array(value, np.int64), name))
    return name


def count_positions(graph, window, length):
    """position_ids = max(cumsum(mask) - 1, 0), of the last tokens."""
    del graph.input[[v.name for v in graph.input].index("position_ids")]
    c = lambda name, value: constant(graph, f"count/{name}", value)
    nodes = [helper.make_node("CumSum", ["attention_mask", c("axis", 1)], ["count/sum"]),
             helper.make_node("Sub", ["count/sum", c("one", 1)], ["count/from_0"]),
             helper.make_node("Max", ["count/from_0", c("zero", 0)], ["count/all"]),
             helper.make_node("Slice", ["count/all", c("begin", [length - window]), c("end", [length]), c("axes", [1])], ["position_ids"])]
    for i, n in enumerate(nodes):
        graph.node.insert(i, n)


def fold(model, everything):
    """Evaluates what depends on nothing but shapes: integers of rank 0 and 1 made by SHAPES, or all of it."""
    graph = onnx.shape_inference.infer_shapes(model).graph
    shapes = {v.name: [d.dim_value if d.HasField("dim_value") else None for d in v.type.tensor_type.shape.dim]
              for v in list(graph.value_info) + list(graph.input) + list(graph.output)}
    shapes |= {t.name: list(t.dims) for t in graph.initializer}
    known = {t.name: numpy_helper.to_array(t) for t in graph.initializer if t.data_type in (TensorProto.INT64, TensorProto.BOOL) or everything}
    kept = []
    for n in model.graph.node:
        result = None
        if n.op_type == "Constant":
            result = [numpy_helper.to_array(n.attribute[0].t)]
        elif n.op_type == "Shape" and None not in shapes.get(n.input[0], [None]):
            result = [np.array(shapes[n.input[0]], np.int64)]
        elif n.input and all(i in known for i in n.input) and (everything or n.op_type in SHAPES):
            # Made before the run, as onnxruntime and torch fold them.
            of = helper.make_graph([n], "g", [], [onnx.ValueInfoProto(name=o) for o in n.output],
                                   [numpy_helper.from_array(np.asarray(known[i]), i) for i in dict.fromkeys(n.input)])
            result = ReferenceEvaluator(helper.make_model(of, opset_imports=model.opset_import)).run(None, {})
            if not everything and any(np.asarray(r).dtype != np.int64 or np.ndim(r) > 1 for r in result):
                result = None
        if result is None:
            kept.append(n)
            continue
        for name, r in zip(n.output, result):
            known[name] = np.asarray(r)
            shapes[name] = list(known[name].shape)
    read = {i for n in kept for i in n.input}
    there = {t.name for t in model.graph.initializer}
    del model.graph.node[:]
    model.graph.node.extend(kept)
    model.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in known.items() if k in read and k not in there)
