"""A decoder of 24 layers with 64 experts each, written out as a loop: 100,000 nodes.

    python tests/large_experts.py OUT      writes OUT/model.onnx with random weights

It has to load, or be refused, in less than 10 s of a processor and 2 GiB.
"""
import json
import math
import sys
from pathlib import Path

import numpy as np
import onnx

import tiny_exports
import tiny_models
from tiny_models import CONTEXT, VOCABULARY, WIDTH, Spec
from unfused_experts import scatter_and_add

EXPERTS, CHOICES, INNER = 64, 4, 32


class Large(tiny_exports.Optimum):
    odd = False

    def mlp(self, h, i):
        rng = np.random.default_rng(i)

        def matrix(name, rows, columns):
            return self.named(name, (rng.standard_normal((rows, columns)) / math.sqrt(rows)).astype(np.float32))

        def expert(g, e, x):
            function = "Tanh" if self.odd and (i, e) == (tiny_models.LAYERS - 1, EXPERTS - 1) else "Sigmoid"
            gate, up = (g.op("MatMul", x, matrix(f"{i}.{e}.{part}", WIDTH, INNER)) for part in ("gate", "up"))
            return g.op("MatMul", g.op("Mul", g.op("Mul", gate, g.op(function, gate)), up), matrix(f"{i}.{e}.down", INNER, WIDTH))

        rows = self.op("Reshape", h, self.constant([-1, WIDTH]))
        scores = self.op("Softmax", self.op("MatMul", rows, matrix(f"{i}.router", WIDTH, EXPERTS)), axis=-1)
        weights, index = self.op("TopK", scores, self.constant([CHOICES]), outputs=2, axis=-1)
        return self.op("Reshape", scatter_and_add(self, rows, weights, index, CHOICES, EXPERTS, expert), self.op("Shape", h))

    def named(self, name, array):
        """weight() without a look at all others."""
        self.initializers.append(onnx.numpy_helper.from_array(array, name))
        return name


def write(folder, layers=24, odd=False):
    """The number of nodes. odd: one expert of the last layer computes another function than the others."""
    spec, before = Spec("large"), tiny_models.LAYERS
    tiny_exports.LAYERS = tiny_models.LAYERS = layers
    export = Large(spec, tiny_models.make_weights(spec, 1))
    export.odd = odd
    model = export.build()
    tiny_exports.LAYERS = tiny_models.LAYERS = before
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model, folder / "model.onnx")
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": CONTEXT, "eos_token_id": VOCABULARY}))
    return len(model.graph.node)


if __name__ == "__main__":
    print(write(sys.argv[1]), "nodes")
