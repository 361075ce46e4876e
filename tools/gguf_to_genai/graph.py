"""Writes an ONNX graph node by node, and the bytes of its weights to the data file as they come.

Shapes: B batch, S new tokens; N rows and K columns of a weight.
"""

from typing import NamedTuple

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from .linear import BLOCK

MICROSOFT = "com.microsoft"
DATA_FILE = "model.onnx.data"
# A cache line and the widest vector load: a runtime can map the data file and use it in place.
ALIGNMENT = 64


class LinearNames(NamedTuple):
    """A Linear in the graph: the names of its arrays, and the sizes that the operators ask for."""

    arrays: list
    bits: int
    rows: int
    columns: int


class Graph:
    """The nodes and initialisers so far. What adds a node returns the name of its first output."""

    def __init__(self, data):
        self.data = data
        self.nodes = []
        self.initializers = []

    def initializer(self, name, array):
        self.data.write(bytes(-self.data.tell() % ALIGNMENT))
        where = {"location": DATA_FILE, "offset": self.data.tell(), "length": array.nbytes}
        tensor = TensorProto(name=name, dims=array.shape, data_location=TensorProto.EXTERNAL)
        tensor.data_type = helper.np_dtype_to_tensor_dtype(array.dtype)
        for key, value in where.items():
            tensor.external_data.add(key=key, value=str(value))
        self.data.write(np.ascontiguousarray(array).data)
        self.initializers.append(tensor)
        return name

    def linear_weights(self, name, linear):
        arrays = [
            self.initializer(f"{name}.weight_Q{linear.bits}", linear.q),
            self.initializer(f"{name}.weight_scales", linear.scales),
        ]
        if linear.zero_points is not None:
            arrays.append(self.initializer(f"{name}.weight_zero_points", linear.zero_points))
        rows, blocks = linear.scales.shape
        return LinearNames(arrays, linear.bits, rows, blocks * BLOCK)

    def node(self, op, name, inputs, outputs=None, domain="", **attributes):
        outputs = outputs or [f"{name}/output_0"]
        self.nodes.append(helper.make_node(op, inputs, outputs, name, domain=domain, **attributes))
        return outputs[0]

    def constant(self, name, value):
        tensor = numpy_helper.from_array(np.array(value, np.int64))
        return self.node("Constant", name, [], value=tensor)

    def linear(self, name, x, weights, output=None):
        """y [B, S, N] = x [B, S, K] * W^T"""
        return self.node(
            "MatMulNBits",
            f"{name}/MatMul_Q{weights.bits}",
            [x, *weights.arrays],
            [output or f"{name}/MatMul/output_0"],
            MICROSOFT,
            K=weights.columns,
            N=weights.rows,
            bits=weights.bits,
            block_size=BLOCK,
            accuracy_level=4,  # activations may be rounded to int8; costs 0.001 nats here
        )

    def embedding(self, name, ids, weights):
        """y [B, S, K] = the rows `ids` [B, S] of W"""
        shape = self.constant(f"{name}/shape", [weights.rows, weights.columns * weights.bits // 8])
        table = self.node("Reshape", f"{name}/Reshape", [weights.arrays[0], shape])
        return self.node(
            "GatherBlockQuantized",
            f"{name}/GatherBlockQuantized",
            [table, ids, *weights.arrays[1:]],
            domain=MICROSOFT,
            bits=weights.bits,
            block_size=BLOCK,
            gather_axis=0,
            quantize_axis=1,
        )
