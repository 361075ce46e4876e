"""Writes ONNX graphs a node at a time: what the models of fixed_window.py and cross_attention.py share."""
import numpy as np
import onnx
from onnx import helper, numpy_helper


class GraphWriter:
    def __init__(self):
        self.nodes, self.initializers, self.inputs, self.outputs = [], [], [], []

    def op(self, op, *inputs, out=None, domain="", **attributes):
        out = out or f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [out], name=f"{op}_{len(self.nodes)}", domain=domain, **attributes))
        return out

    def constant(self, value, dtype=np.int64):
        name = f"c{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.array(value, dtype), name))
        return name

    def reshape(self, x, *dims):
        return self.op("Reshape", x, self.constant(dims))

    def input(self, name, dtype, dims):
        self.inputs.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), dims))
        return name

    def output(self, name, dtype, dims):
        self.outputs.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), dims))
        return name

    def save(self, file, **options):
        graph = helper.make_graph(self.nodes, "main", self.inputs, self.outputs, self.initializers)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)], ir_version=10)
        onnx.save(model, file, **options)
