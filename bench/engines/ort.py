"""ONNX Runtime by Python with IO binding, greedy. KV caches lie

  fed back   in two buffers in turn: what was present is past in the next step (any export);
  shared     in one buffer that is past and present (exports with GroupQueryAttention).

`loop_ms` of a case is what the loop itself costs a token: the same bindings and the same choice of a token, but a graph
of one Identity is run. It is in decode_ms, too.
"""
import json
import time
from pathlib import Path

from . import in_process, prompt_ids


class Ort:
    def __init__(self, a, shared):
        import numpy
        import onnxruntime
        self.np, self.ort, self.version = numpy, onnxruntime, onnxruntime.__version__
        self.a, self.shared = a, shared

    def session_of(self, model):
        options = self.ort.SessionOptions()
        options.intra_op_num_threads = self.a.threads
        options.log_severity_level = 3
        return self.ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def load(self):
        folder = Path(self.a.model)
        config = folder / "genai_config.json"
        decoder = json.loads(config.read_text())["model"]["decoder"] if config.exists() else {}
        self.session = self.session_of(str(folder / decoder.get("filename", "model.onnx")))
        inputs = {i.name: i for i in self.session.get_inputs()}
        self.inputs = set(inputs)
        # Exporters list pasts and presents in the same order; a cache is [batch, heads, past, size].
        self.past = [name for name in inputs if name.startswith("past")]
        self.present = [o.name for o in self.session.get_outputs() if o.name.startswith("present")]
        if any(inputs[name].type != "tensor(float)" for name in self.past):
            raise ValueError("the states are not float32")
        self.logits = self.session.get_outputs()[0].name
        self.vocabulary = self.session.get_outputs()[0].shape[-1]
        shape = inputs[self.past[0]].shape
        self.heads, self.size = decoder.get("num_key_value_heads", shape[1]), decoder.get("head_size", shape[3])

    def prepare(self, count, prompt, tokens):
        """All buffers of a run of `count` sequences. They are written once, so that no page is touched first while the clock runs."""
        np, most = self.np, prompt + tokens + 1
        self.count, self.most = count, most
        self.ids = np.array(prompt_ids(count * prompt, self.vocabulary), np.int64).reshape(count, prompt)
        self.next = np.zeros((count, 1), np.int64)
        self.mask = np.ones(count * most, np.int64)
        self.positions = np.tile(np.arange(most, dtype=np.int64), (count, 1))
        self.outputs = {n: np.full((count, n, self.vocabulary), 1, np.float32) for n in (prompt, 1)}
        rows = count * self.heads * most * self.size
        self.caches = [[np.full(rows, 0, np.float32) + 0 for _ in self.past] for _ in range(1 if self.shared else 2)]
        self.binding = self.session.io_binding()
        if self.shared:
            for past, present, cache in zip(self.past, self.present, self.caches[0]):
                self.bind(self.binding.bind_input, past, cache, (count, self.heads, most, self.size))
                self.bind(self.binding.bind_output, present, cache, (count, self.heads, most, self.size))
        self.turn = 0

    def bind(self, bound, name, array, shape):
        bound(name, "cpu", 0, array.dtype.type, shape, array.ctypes.data)

    def bind_step(self, ids, past):
        new = ids.shape[1]
        self.bind(self.binding.bind_input, "input_ids", ids, ids.shape)
        self.bind(self.binding.bind_input, "attention_mask", self.mask, (self.count, past + new))
        if "position_ids" in self.inputs:
            self.held = self.np.ascontiguousarray(self.positions[:, past : past + new])
            self.bind(self.binding.bind_input, "position_ids", self.held, ids.shape)
        self.bind(self.binding.bind_output, self.logits, self.outputs[new], self.outputs[new].shape)
        if not self.shared:
            before, after = self.caches[self.turn], self.caches[1 - self.turn]
            for name, array in zip(self.past, before):
                self.bind(self.binding.bind_input, name, array, (self.count, self.heads, past, self.size))
            for name, array in zip(self.present, after):
                self.bind(self.binding.bind_output, name, array, (self.count, self.heads, past + new, self.size))
            self.turn = 1 - self.turn

    def step(self, ids, past, run):
        self.bind_step(ids, past)
        run()
        self.next[:, 0] = self.outputs[ids.shape[1]][:, -1].argmax(axis=-1)

    def run(self, count, prompt, tokens):
        """(ms of the prompts, ms of the tokens)"""
        self.prepare(count, prompt, tokens)
        session, binding = self.session, self.binding
        begin = time.perf_counter()
        self.step(self.ids, 0, lambda: session.run_with_iobinding(binding))
        fed = time.perf_counter()
        for i in range(tokens):
            self.step(self.next, prompt + i, lambda: session.run_with_iobinding(binding))
        end = time.perf_counter()
        return 1000 * (fed - begin), 1000 * (end - fed)

    def loop_ms(self, prompt, tokens):
        """What a step costs where the graph does nothing. After run(): with its buffers."""
        import onnx
        from onnx import helper
        value = [helper.make_tensor_value_info(name, onnx.TensorProto.INT64, [1, 1]) for name in ("x", "y")]
        graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "identity", value[:1], value[1:])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        session = self.session_of(model.SerializeToString())
        binding, y = session.io_binding(), self.np.zeros((1, 1), self.np.int64)
        self.bind(binding.bind_input, "x", self.next, (1, 1))
        self.bind(binding.bind_output, "y", y, (1, 1))
        begin = time.perf_counter()
        for i in range(tokens):
            self.step(self.next, prompt + i, lambda: session.run_with_iobinding(binding))
        return 1000 * (time.perf_counter() - begin) / tokens

    def case(self, prompt, tokens):
        prefill, decode = self.run(1, prompt, tokens)
        return prefill, decode / tokens, {"loop_ms": self.loop_ms(prompt, tokens)}

    def stream(self, count, prompt, tokens):
        return sum(self.run(count, prompt, tokens - 1))  # the first token of an answer follows from the prompt


def measure(a, shared=False):
    return in_process(a, Ort(a, shared))


def measure_shared(a):
    return measure(a, shared=True)
