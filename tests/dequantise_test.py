#!/usr/bin/env python3
"""bench/dequantise.py: a float32 export computes what its quantised model does, and what it cannot take is refused."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import gguf
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

ROOT = Path(__file__).resolve().parent.parent
ROWS, COLUMNS = 6, 64


def quantised(folder, zero_points=False):
    """ids -> rows of a 4-bit table -> the product with the same table, as a tied embedding and head. Returns the table."""
    random = np.random.default_rng(3)
    q = random.integers(0, 256, (ROWS, COLUMNS // 32, 16), dtype=np.uint8)
    scales = random.uniform(0.5, 1, (ROWS, COLUMNS // 32)).astype(np.float32)
    arrays = {"q": q, "scales": scales, "shape": np.array([ROWS, COLUMNS // 2])}
    more = ["q"] if zero_points else []
    nodes = [helper.make_node("Reshape", ["q", "shape"], ["table"]),
             helper.make_node("GatherBlockQuantized", ["table", "ids", "scales"], ["x"], domain="com.microsoft", bits=4, block_size=32, gather_axis=0, quantize_axis=1),
             helper.make_node("MatMulNBits", ["x", "q", "scales", *more], ["y"], "head", domain="com.microsoft", bits=4, block_size=32, K=COLUMNS, N=ROWS)]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("ids", TensorProto.INT64, ["s"])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["s", ROWS])], [numpy_helper.from_array(v, k) for k, v in arrays.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)], ir_version=10), folder / "model.onnx")
    digits = np.stack([q & 15, q >> 4], axis=-1).reshape(ROWS, COLUMNS // 32, 32).astype(np.float32) - 8
    return (digits * scales[..., None]).reshape(ROWS, COLUMNS)


def dequantise(source, target):
    return subprocess.run([sys.executable, "-B", ROOT / "bench" / "dequantise.py", source, target], capture_output=True, text=True, timeout=900)


class DequantiseTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name) / "model"
        self.folder.mkdir()
        self.out = self.folder.parent / "out"

    def test_a_folder(self):
        (self.folder / "genai_config.json").write_text("{}")
        table = quantised(self.folder)
        run = dequantise(self.folder, self.out)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertTrue((self.out / "genai_config.json").exists())
        model = onnx.load(self.out / "model.onnx")
        self.assertEqual([n.op_type for n in model.graph.node], ["Gather", "MatMul"])
        ids = np.array([4, 0, 5])
        (y,) = ReferenceEvaluator(model).run(None, {"ids": ids})
        np.testing.assert_allclose(y, table[ids] @ table.T, rtol=1e-5)

    def test_zero_points_are_refused(self):
        quantised(self.folder, zero_points=True)
        run = dequantise(self.folder, self.out)
        self.assertEqual(run.returncode, 1)
        self.assertIn("node head: more inputs", run.stderr)

    def test_a_gguf_file(self):
        q4_0 = gguf.GGMLQuantizationType.Q4_0
        data = gguf.quantize(np.random.default_rng(4).normal(size=(ROWS, COLUMNS)).astype(np.float32), q4_0)
        writer = gguf.GGUFWriter(self.folder / "a.gguf", "llama")
        writer.add_context_length(7)
        writer.add_token_list(["a", "b"])
        writer.add_tensor("w", data, raw_dtype=q4_0)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        self.assertEqual(dequantise(self.folder / "a.gguf", self.folder / "b.gguf").returncode, 0)
        reader = gguf.GGUFReader(self.folder / "b.gguf")
        np.testing.assert_array_equal(reader.tensors[0].data.reshape(ROWS, COLUMNS), gguf.dequantize(data, q4_0))
        self.assertEqual(reader.fields["llama.context_length"].contents(), 7)
        self.assertEqual(reader.fields["tokenizer.ggml.tokens"].contents(), ["a", "b"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
