"""Broken models and side files: refused with one clear line, never a crash, a hang or memory without bound.

    python tests/bad_input_test.py --situ build/situ [unittest options]

Needs numpy and onnx (`make python`).
"""
import json
import os
import shutil
import unittest

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tiny_exports
import tiny_models
import cli_case
from cli_case import IDS, CliTest, Run, main
from sweep import SWEEPING, some

# -- broken files

def node(model, op, index=0):
    return [n for n in model.graph.node if n.op_type == op][index]

def initializer(model, name):
    return next(t for t in model.graph.initializer if t.name == name)

def put(model, name, array):
    initializer(model, name).CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array), name))

def set_attributes(n, **attributes):
    for key, v in attributes.items():
        for a in [a for a in n.attribute if a.name == key]:
            n.attribute.remove(a)
        if v is not None:
            n.attribute.append(helper.make_attribute(key, v))

def spliced(op, *operands, name="bad", **attributes):
    """A change of a model: puts the node between the last norm 'x' [1, S, 32] and the logits' product. Operands that
    are not names become initialisers."""
    def change(model):
        tail = next(n for n in model.graph.node if "logits" in n.output)
        source, tail.input[0] = tail.input[0], "bad_output"
        names = []
        for i, o in enumerate(operands):
            if not isinstance(o, str):
                model.graph.initializer.append(numpy_helper.from_array(np.asarray(o), f"bad_{i}"))
            names.append((source if o == "x" else o) if isinstance(o, str) else f"bad_{i}")
        at = list(model.graph.node).index(tail)
        model.graph.node.insert(at, helper.make_node(op, names, ["bad_output"], name=name, **attributes))
    return change

def huge(op, *operands, **attributes):
    """As spliced, but the node's result is summed up and added, so that any size would fit."""
    def change(model):
        spliced(op, *operands, name="huge", **attributes)(model)
        n = next(n for n in model.graph.node if n.name == "huge")
        source = next(t for t in model.graph.node if "logits" in t.output)
        last_norm = next(n for n in reversed(model.graph.node) if n.op_type == "Mul").output[0]
        n.output[0], source.input[0] = "huge_output", "sum"
        at = list(model.graph.node).index(n) + 1
        for extra in (helper.make_node("Add", [last_norm, "number"], ["sum"]), helper.make_node("Cast", ["total"], ["number"], to=1), helper.make_node("ReduceSum", ["huge_output"], ["total"], keepdims=0)):
            model.graph.node.insert(at, extra)
    return change

def field_head(number, size):
    out = bytearray()
    for n in (number << 3 | 2, size):
        while n >= 128:
            out.append(n & 127 | 128)
            n >>= 7
        out.append(n)
    return bytes(out)

def field(number, payload):
    """One length-delimited protobuf field, for nesting that the onnx package refuses to write."""
    return field_head(number, len(payload)) + payload

def nested_if(depth):
    """A node If whose branch has a node If, and so on. What encloses the innermost graph is put around it piece by piece."""
    leaf = field(1, helper.make_node("Relu", ["hidden"], ["o0"], name="leaf").SerializeToString()) + field(2, b"leaf") + field(12, helper.make_tensor_value_info("o0", 1, None).SerializeToString())
    is_graph = b"\xa0\x01\x05"  # of an attribute
    otherwise = field(5, field(1, b"else_branch") + field(6, leaf) + is_graph)
    before, after, size = [], [], len(leaf)
    def enclose(front, back):
        nonlocal size
        before.append(front)
        after.append(back)
        size += len(front) + len(back)
    for d in range(1, depth + 1):
        if d > 1:
            enclose(field_head(1, size), field(2, b"g") + field(12, helper.make_tensor_value_info(f"o{d - 1}", 1, None).SerializeToString()))
        enclose(field(1, b"then_branch") + field_head(6, size), is_graph)
        enclose(field_head(5, size), otherwise)
        enclose(field(1, b"condition") + field(2, b"o%d" % d) + field(3, b"if%d" % d) + field(4, b"If"), b"")
    return b"".join(reversed(before)) + leaf + b"".join(after)

FEWER = bool(os.environ.get("SITU_TEST_FEWER"))  # under sanitizers, where a run takes five times as long

class BrokenModelTest(CliTest):
    checks = 0

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        specs = {s.name: s for s in tiny_models.SPECS}
        for name in ("llama", "genai", "genai-zero-points"):
            tiny_exports.write_model(specs[name], cls.folder / name)
        cls.llama = (cls.folder / "llama" / "model.onnx").read_bytes()
        cls.file = "weights and graph.onnx"

    def setUp(self):
        self.work = self.folder / "work"
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir()

    def run_bytes(self, data, *options, name="model.onnx"):
        (self.work / name).write_bytes(data)
        return Run("run", self.work / name, "--prompt-ids", IDS, "-n", 2, *options)

    def check(self, title, change, *words, model=None, modes=((), ("--naive",))):
        """Both modes refuse the changed model with these words; in `make test` one of them, and of every eighth model where
        there are to be fewer."""
        BrokenModelTest.checks += 1
        if FEWER and BrokenModelTest.checks % 8 != 0:
            return
        m = onnx.ModelProto.FromString(self.llama) if model is None else onnx.load(self.folder / model / self.file)
        if model:
            shutil.copy(self.folder / model / "genai_config.json", self.work)
        change(m)
        path = self.work / (self.file if model else "model.onnx")
        path.write_bytes(m.SerializeToString())
        for mode in modes if SWEEPING else modes[BrokenModelTest.checks % len(modes):][:1]:
            with self.subTest(title, mode=mode):
                self.refused(Run("run", self.work if model else path, "--prompt-ids", IDS, "-n", 2, *mode), *words)

    def test_files_that_are_no_models(self):
        for data in (b"", b"\0", b"hello\n" * 100, b'{"a": 1}', b"\x0a", os.urandom(1000), self.llama[:1]):
            self.refused(self.run_bytes(data), "model.onnx")
        size = len(self.llama)
        for cut in sorted({2, 3, 10, 100, 1000, size // 4, size // 2, size - 100, size - 3, size - 1}):
            with self.subTest(cut=cut):
                self.refused(self.run_bytes(self.llama[:cut]), "model.onnx")

    def test_a_refusal_of_names_of_megabytes_is_short(self):
        def change(m):
            for d in next(v for v in m.graph.input if v.name == "input_ids").type.tensor_type.shape.dim:
                d.dim_param = "é" * 1_500_000
        m = onnx.ModelProto.FromString(self.llama)
        change(m)
        run = self.run_bytes(m.SerializeToString())
        self.refused(run, "input_ids", "é…é")
        self.assertLess(len(run.err.encode()), 66 << 10)

    def test_external_data(self):
        def located(**entries):
            def change(folder):
                m = onnx.load(folder / self.file, load_external_data=False)
                t = initializer(m, "embed")
                for key, text in entries.items():
                    for e in [e for e in t.external_data if e.key == key]:
                        t.external_data.remove(e)
                    t.external_data.add(key=key, value=text)
                (folder / self.file).write_bytes(m.SerializeToString())
            return change

        def link(folder):
            shutil.move(folder / "data.bin", self.folder / "outside.bin")
            os.symlink(self.folder / "outside.bin", folder / "data.bin")

        outside = self.folder / "secret.bin"
        outside.write_bytes(b"\0" * 100000)
        for title, change, words in [("climbs", located(location="../secret.bin"), ["embed", "../secret.bin"]), ("climbs inside", located(location="a/../../secret.bin"), ["embed", ".."]),
                                     ("absolute", located(location=str(outside)), ["embed", outside]), ("no location", located(location=""), ["embed", "location"]), ("folder", located(location="."), ["embed"]),
                                     ("link", link, ["outside.bin"]), ("missing", lambda f: (f / "data.bin").unlink(), ["data.bin"]), ("truncated", lambda f: os.truncate(f / "data.bin", 64), ["data.bin", 64]),
                                     ("emptied", lambda f: os.truncate(f / "data.bin", 0), ["data.bin"]), ("past the end", located(offset="99999999"), ["embed", 99999999]),
                                     ("overflows", located(offset=str(2**63 - 1)), ["embed", 2**63 - 1]), ("negative", located(offset="-8"), ["embed", "-8"]), ("word", located(offset="abc"), ["embed", "abc"]),
                                     ("short", located(length="8"), ["embed", 8, 12288]), ("negative length", located(length="-1"), ["embed", "-1"])]:
            with self.subTest(title):
                shutil.rmtree(self.work)
                shutil.copytree(self.folder / "genai", self.work)
                change(self.work)
                self.refused(Run("run", self.work, "--prompt-ids", IDS), self.file, *words)

    def test_initialisers(self):
        def dims(*values):
            def change(m):
                del initializer(m, "embed").dims[:]
                initializer(m, "embed").dims.extend(values)
            return change

        def edit(**fields):
            def change(m):
                for k, v in fields.items():
                    setattr(initializer(m, "embed"), k, v(initializer(m, "embed")) if callable(v) else v)
            return change

        for values in ((-1, 32), (2**40, 32), (2**32, 2**32), (2**62, 4), (2**63 - 1,), (0, 32), (96, 31), (96,) + (1,) * 8):
            self.check(f"dims {values}", dims(*values), "initializer[0]" if len(values) < 3 else "rank")
        self.check("short", edit(raw_data=lambda t: t.raw_data[:-4]), "embed", 12284, 12288)
        self.check("long", edit(raw_data=lambda t: t.raw_data + b"\0\0\0\0"), "embed", 12292, 12288)
        for number in (0, 8, 99, -1):
            self.check(f"type {number}", edit(data_type=number), "embed")
        self.check("half", edit(data_type=TensorProto.FLOAT16), "embed", 12288, 6144)
        self.check("empty vocabulary", lambda m: put(m, "embed", np.zeros((0, 32), np.float32)), "Gather")
        self.check("empty width", lambda m: put(m, "embed", np.zeros((96, 0), np.float32)), 32, 0)
        self.check("integer embedding", lambda m: put(m, "embed", np.zeros((96, 32), np.int64)), "int64")

    def test_types_and_shapes(self):
        f32 = lambda *shape: np.ones(shape, np.float32)
        i64 = lambda *values: np.array(values, np.int64)
        for op, operands, attributes, words in [
                ("MatMul", ["x", np.ones((32, 32), np.int64)], {}, ["float32", "int64"]), ("MatMul", ["x", f32(33, 32)], {}, [32, 33]), ("MatMul", [], {}, []), ("MatMul", ["x"], {}, []),
                ("Add", ["x", np.ones(32, np.int64)], {}, ["float32", "int64"]), ("Add", ["x", f32(31)], {}, [32, 31]), ("Add", ["x", f32(1, 3, 32)], {}, [3]), ("Add", ["x"], {}, []),
                ("Reshape", ["x", i64(7, -1)], {}, ["7"]), ("Reshape", ["x", i64(1, -1, 31)], {}, [31]), ("Reshape", ["x", i64(-1, -1)], {}, ["-1"]), ("Reshape", ["x", i64(1, -1, 32, 1, 1, 1, 1, 1, 1)], {}, ["rank 9"]),
                ("Reshape", ["x", i64(2**62, -1, 32)], {}, [2**62]), ("Reshape", ["x", i64(1, -2, 32)], {}, ["-2"]), ("Reshape", ["x", f32(3)], {}, []), ("Reshape", ["x", "x"], {}, []),
                ("Concat", ["x", f32(1, 3, 31)], {"axis": 1}, [32, 31]), ("Concat", ["x", f32(1, 3, 32)], {"axis": 2}, [3]), ("Concat", ["x", f32(3, 32)], {"axis": 0}, ["rank"]), ("Concat", ["x", "x"], {"axis": 7}, [7]),
                ("Concat", ["x", "x"], {}, ["axis"]), ("Concat", ["x", np.ones((1, 3, 32), np.int64)], {"axis": 1}, ["int64"]), ("Transpose", ["x"], {"perm": [0, 0, 1]}, []), ("Transpose", ["x"], {"perm": [0, 1, 5]}, [5]), ("Transpose", ["x"], {"perm": [0, 1, -1]}, ["-1"]),
                ("Transpose", ["x"], {"perm": [0, 1]}, []), ("Slice", ["x", i64(0), i64(5), i64(9), i64(1)], {}, [9]), ("Slice", ["x", i64(0), i64(5), i64(2), i64(0)], {}, ["step 0"]), ("Slice", ["x", i64(0, 1), i64(5)], {}, []),
                ("Unsqueeze", ["x", i64(0, 0)], {}, [0]), ("Unsqueeze", ["x", i64(100)], {}, [100]), ("Squeeze", ["x", i64(2)], {}, [32, 1]), ("Cast", ["x"], {"to": 99}, [99]), ("Expand", ["x", i64(1, 1, 31)], {}, [32, 31]),
                ("Gather", ["x", ""], {}, []), ("Gather", [f32(4, 32), i64(-5)], {}, [-5, 4]), ("Gather", [f32(4, 32), "x"], {}, ["float32"]), ("Softmax", ["x"], {"axis": 9}, [9]), ("Softmax", ["x"], {"axis": "one"}, ["axis"]),
                ("Where", ["x", "x", "x"], {}, ["float32"]), ("ReduceSum", ["x", i64(9)], {}, [9]), ("Flatten", ["x"], {"axis": 9}, [9]), ("LayerNormalization", ["x", f32(31)], {}, [31])]:
            self.check(f"{op} {attributes} {[getattr(o, 'shape', o) for o in operands]}", spliced(op, *operands, **attributes), f"{op} 'bad'", *words)
        self.check("two lines", spliced("MatMul", "x", f32(33, 32), name="two\nlines"), "lines", 33)

    def test_index_out_of_range_at_run_time(self):
        def positions(m):
            spliced("Gather", np.ones((4, 32), np.float32), "position_ids")(m)
        self.check("table of four positions", positions, "context length is 4")
        for index in (200, -33):
            self.check(f"constant {index}", spliced("Gather", "x", np.full(32, index), axis=2), "Gather 'bad'", index, 32)

    def test_inputs(self):
        def kind(index, number):
            return lambda m: setattr(m.graph.input[index].type.tensor_type, "elem_type", number)

        def dim(name, axis, size):
            def change(m):
                next(i for i in m.graph.input if i.name == name).type.tensor_type.shape.dim[axis].dim_value = size
            return change
        self.check("float ids", kind(0, TensorProto.FLOAT), "input_ids", "float32")
        self.check("half past", kind(3, TensorProto.FLOAT16), "float16", "float32")
        self.check("ids without a type", lambda m: m.graph.input[0].ClearField("type"), "input_ids")
        self.check("ids without a shape", lambda m: m.graph.input[0].type.tensor_type.ClearField("shape"), "input_ids")
        for part in ("key", "value"):
            for axis, size in ((1, 3), (1, 1), (3, 9), (3, 0), (3, 2**40), (1, -5)):
                self.check(f"past {part} axis {axis} is {size}", dim(f"past_key_values.0.{part}", axis, size), size)
        def extra(*dims):
            def change(m):
                m.graph.input.append(helper.make_tensor_value_info("extra", 1, dims))
                m.graph.node.append(helper.make_node("Neg", ["extra"], ["minus"]))
            return change
        self.check("unknown input", extra("a"), "extra")
        self.check("past of nothing", extra(1, 2, "past_sequence_length", 8), "extra")
        self.check("a batch of two", dim("input_ids", 0, 2), "input_ids", "batch of 2")

        def one_name(m):
            for d in m.graph.input[0].type.tensor_type.shape.dim:
                d.dim_param = "N"
        self.check("one name for two dims", one_name, "input_ids", "same name")
        self.check("no inputs", lambda m: m.graph.ClearField("input"), "input_ids")

        def embeddings(m):
            table = next(n for n in m.graph.node if n.op_type == "Gather" and "input_ids" in n.input)
            for n in m.graph.node:
                n.input[:] = ["inputs_embeds" if x in ("input_ids", table.output[0]) else x for x in n.input]
            m.graph.node.remove(table)
            m.graph.input.remove(next(i for i in m.graph.input if i.name == "input_ids"))
            m.graph.input.append(helper.make_tensor_value_info("inputs_embeds", TensorProto.FLOAT, ["batch_size", "sequence_length", 32]))
        self.check("embeddings", embeddings, "inputs_embeds", "exclude_embeds")

    def test_states_that_do_not_match(self):
        def present(m):
            return next(n for n in m.graph.node if "present.0.key" in n.output)
        self.check("no present", lambda m: m.graph.output.remove(next(o for o in m.graph.output if o.name == "present.0.key")), "past_key_values.0.key")
        self.check("new rows first", lambda m: present(m).input.insert(0, present(m).input.pop()), "past_key_values.0.key")
        self.check("one past for two", lambda m: present(m).input.__setitem__(0, "past_key_values.1.key"), "past_key_values.")
        self.check("past twice", lambda m: present(m).input.__setitem__(1, "past_key_values.0.key"))
        for axis in (0, 1, 3):
            self.check(f"axis {axis}", lambda m: set_attributes(present(m), axis=axis))

        def crossed(a, b):
            def change(m):
                for n in m.graph.node:
                    n.output[:] = [{a: b, b: a}.get(x, x) for x in n.output]
                    n.input[:] = [{a: b, b: a}.get(x, x) for x in n.input]
            return change
        self.check("layers crossed", crossed("present.0.key", "present.1.key"), "past_key_values.", ".key", "by their names")
        self.check("key and value crossed", crossed("present.0.key", "present.0.value"), "past_key_values.0.", "present.0.", "by their names")
        def fixed_position(m):
            del next(i for i in m.graph.input if i.name == "position_ids").type.tensor_type.shape.dim[:]
            for size in (1, 1):
                next(i for i in m.graph.input if i.name == "position_ids").type.tensor_type.shape.dim.add().dim_value = size
        # A graph of one token is looked at in every step of its context: 4096 of them take sanitizers 30 s.
        self.check("one position", fixed_position, "position_ids", "[1, 1]", "for each token", modes=(("--context", 64), ("--naive",)))

        def appends(other):  # to the state, the new rows and others; attention goes on reading the past and the new rows
            def change(m):
                concat = present(m)
                past, new = concat.input
                for n in m.graph.node:
                    n.input[:] = ["grown" if x == "present.0.key" else x for x in n.input]
                concat.output[0] = "grown"
                at = list(m.graph.node).index(concat)
                for inputs, output in ((past, "rows"), "present.0.key"), ((new, new if other == "new" else past), "rows"):
                    m.graph.node.insert(at, helper.make_node("Concat", inputs, [output], axis=2))
            return change
        for other, rows in ("new", "2*S rows"), ("past", "P + S rows"):
            self.check(f"appends {rows}", appends(other), "past_key_values.0.key", rows, "one for each token")

    def test_a_model_without_a_cache(self):
        """A step feeds new tokens only: without past inputs, later tokens would be answered without their context."""
        class Cacheless(tiny_exports.Optimum):
            def extent(self, x, axis):
                return super().extent("input_ids" if x == "attention_mask" else x, axis)

            def append_heads(self, k, v, i):
                return self.repeat(k), self.repeat(v)
        spec = tiny_models.SPECS[0]
        built = Cacheless(spec, tiny_models.choose_weights(spec)[0]).build()
        # The mask is causal among the new tokens only; the padding mask and its input go.
        padding = next(n for n in built.graph.node if n.op_type == "And")
        next(n for n in built.graph.node if n.op_type == "Where").input[0] = padding.input[0]
        cast = next(n for n in built.graph.node if "attention_mask" in n.input)
        for n in [n for n in built.graph.node if n in (padding, cast) or cast.output[0] in n.input]:
            built.graph.node.remove(n)
        built.graph.input.remove(next(i for i in built.graph.input if i.name == "attention_mask"))
        self.check("no past", lambda m: m.CopyFrom(built), "past")

    def test_logits(self):
        def last(op, *constants, **attributes):
            def change(m):
                next(n for n in m.graph.node if "logits" in n.output).output[0] = "scores"
                for i, c in enumerate(constants):
                    m.graph.initializer.append(numpy_helper.from_array(np.array(c), f"c{i}"))
                m.graph.node.append(helper.make_node(op, ["scores", *(f"c{i}" for i in range(len(constants)))], ["logits"], name="last", **attributes))
            return change
        self.check("declared double", lambda m: setattr(m.graph.output[0].type.tensor_type, "elem_type", TensorProto.DOUBLE), "logits", "float64", "float32")
        self.check("scalar", last("ReduceSum", keepdims=0), "logits")
        self.check("integers", last("Cast", to=TensorProto.INT64), "int64")
        self.check("transposed", last("Transpose", perm=[0, 2, 1]), "logits")
        self.check("empty", last("Slice", [0], [0], [2]))
        self.check("an input", lambda m: setattr(m.graph.output[0], "name", "input_ids"), "input_ids")
        self.check("an initialiser", lambda m: setattr(m.graph.output[0], "name", "head"), modes=[()])

    def test_graph_structure(self):
        def append(*nodes):
            return lambda m: m.graph.node.extend(helper.make_node(op, i, o, name=n, domain=d) for op, i, o, n, d in nodes)
        self.check("cycle", append(("Add", ["input_ids", "b"], ["a"], "one", ""), ("Add", ["a", "a"], ["b"], "two", "")), "cycle")
        self.check("self", append(("Add", ["a", "a"], ["a"], "one", "")), "one")
        self.check("made twice", append(("Relu", ["head"], ["twice"], "one", ""), ("Neg", ["head"], ["twice"], "two", "")), "twice", "one", "two")
        self.check("initialiser made", append(("Relu", ["head"], ["embed"], "one", "")), "embed", "one")
        self.check("used, not made", append(("Relu", ["nowhere"], ["a"], "one", "")), "nowhere", "one")
        self.check("two initialisers", lambda m: m.graph.initializer.append(initializer(m, "embed")), "embed")
        self.check("two inputs", lambda m: m.graph.input.append(m.graph.input[0]), "input_ids")
        self.check("output not made", lambda m: setattr(m.graph.output[0], "name", "nowhere"), "nowhere")
        self.check("no outputs", lambda m: m.graph.ClearField("output"), "no outputs")
        self.check("no nodes", lambda m: m.graph.ClearField("node"), "logits")
        self.check("no graph", lambda m: m.ClearField("graph"), "graph")
        self.check("no opset", lambda m: m.ClearField("opset_import"), "opset")
        self.check("unknown operators", append(("Frobnicate", ["embed"], ["a"], "first one", "my.domain"), ("Wibble", ["a"], ["b"], "second one", "")),
                   "my.domain.Frobnicate", "first one", "Wibble", "second one", "2 operators")

    def test_subgraphs(self):
        def branch(op, name, source):
            return helper.make_graph([helper.make_node(op, [source], [name])], name, [], [helper.make_tensor_value_info(name, 1, None)])

        def data_dependent(m):
            source = next(n for n in m.graph.node if "logits" in n.output).input[0]
            spliced("If", "positive", then_branch=branch("Relu", "a", source), else_branch=branch("Neg", "b", source))(m)
            m.graph.initializer.append(numpy_helper.from_array(np.float32(0), "zero"))
            m.graph.node.insert(len(m.graph.node) - 2, helper.make_node("ReduceSum", [source], ["total"], keepdims=0))
            m.graph.node.insert(len(m.graph.node) - 2, helper.make_node("Greater", ["total", "zero"], ["positive"]))
        self.check("predicate from data", data_dependent, "If 'bad'", "positive")
        for depth in (200, 20000):
            m = onnx.ModelProto.FromString(self.llama)
            tail = next(n for n in m.graph.node if "logits" in n.output)
            m.graph.node.append(helper.make_node("Identity", [tail.input[0]], ["hidden"]))
            m.graph.initializer.append(numpy_helper.from_array(np.array(True), "condition"))
            tail.input[0] = f"o{depth}"
            graph = m.graph.SerializeToString() + field(1, nested_if(depth))
            m.ClearField("graph")
            with self.subTest(depth=depth):
                self.refused(self.run_bytes(m.SerializeToString() + field(7, graph)), "model.onnx", "if")

    def test_states_beyond_memory(self):
        def state(*shape):
            def change(m):
                dims = [*shape]
                m.graph.input.append(helper.make_tensor_value_info("past_huge", TensorProto.FLOAT, dims))
                m.graph.output.append(helper.make_tensor_value_info("present_huge", TensorProto.FLOAT, dims))
                m.graph.node.append(helper.make_node("Relu", ["past_huge"], ["present_huge"]))
            return change
        for size in (2**25, 2**28, 2**40):
            self.check(f"{size}", state(1, 2, size, 8), "past_huge", "too large")
        self.check("2**62", state(1, 2, 2**62, 8), "past_huge")
        def appended(m):
            state(1, 2**24, "past_sequence_length", 8)(m)
            m.graph.node[-1].op_type = "Concat"
            m.graph.node[-1].input.append("new_rows")
            set_attributes(m.graph.node[-1], axis=2)
            m.graph.initializer.append(numpy_helper.from_array(np.array([1, 2**24, 1, 8]), "new_rows_shape"))
            m.graph.node.insert(0, helper.make_node("Expand", ["one", "new_rows_shape"], ["new_rows"]))
            m.graph.initializer.append(numpy_helper.from_array(np.ones((1, 1, 1, 1), np.float32), "one"))
        self.check("appended", appended, "past_huge")

    def test_sizes_beyond_memory(self):
        for size in (2**40, 2**36, 2**33):
            i64 = lambda *v: np.array(v, np.int64)
            self.check(f"ConstantOfShape {size}", huge("ConstantOfShape", i64(size)), "huge")
            self.check(f"Expand {size}", huge("Expand", "x", i64(size, 1, 1)))
            self.check(f"Range {size}", huge("Range", np.int64(0), np.int64(size), np.int64(1)), "huge")
            self.check(f"Tile {size}", huge("Tile", "x", i64(size, 1, 1)))
            self.check(f"OneHot {size}", huge("OneHot", "input_ids", np.int64(size), np.array([0, 1], np.float32)))
        self.check("overflow", huge("ConstantOfShape", np.array([2**20] * 4)), "huge")
        self.check("negative", huge("ConstantOfShape", np.array([-3])), "huge", -3)
        self.check("Range step 0", huge("Range", np.int64(0), np.int64(5), np.int64(0)), "huge")
        self.check("Range of small steps", huge("Range", np.float32(0), np.float32(1e30), np.float32(1e-30)), "huge")
        self.check("Range to nowhere", huge("Range", np.float32(0), np.float32(np.nan), np.float32(1)), "huge")

    def test_matmul_nbits(self):
        for key, values in {"N": (31, 0, -32, 2**40, None), "K": (16, 31, 0, -32, 2**40, None), "block_size": (0, 24, -16, 32, 2**31, None), "bits": (3, 0, 8, -4, 99)}.items():
            for v in values:
                self.check(f"{key} {v}", lambda m: set_attributes(node(m, "MatMulNBits"), **{key: v}), "MatMulNBits '", model="genai")
        for name, array, words in [("0.qkv.scales", np.ones((64, 1), np.float32), ["scales", 64, 128]), ("0.qkv.scales", np.ones((64, 2), np.int32), ["scales", "int32"]), ("0.qkv.bits", np.ones((64, 2, 7), np.uint8), [896, 1024]),
                                   ("0.qkv.bits", np.ones(64, np.uint8), [64, 1024]), ("0.qkv.bits", np.ones((64, 2, 8), np.int64), ["int64"])]:
            self.check(f"{name} {array.shape}", lambda m: put(m, name, array), "MatMulNBits '", *words, model="genai")
        self.check("zero points", lambda m: put(m, "0.qkv.zero_points", np.ones((3, 3), np.uint8)), "zero_points", 9, 96, model="genai-zero-points")
        for count in (1, 2):
            self.check(f"{count} operands", lambda m: node(m, "MatMulNBits").input.__delitem__(slice(count, None)), "MatMulNBits '", model="genai")

    def test_group_query_attention(self):
        for key, values in {"num_heads": (3, 0, -4, 5, 8, 2**40, None), "kv_num_heads": (3, 0, -1, 2**62, None)}.items():
            for v in values:
                self.check(f"{key} {v}", lambda m: set_attributes(node(m, "GroupQueryAttention"), **{key: v}), "GroupQueryAttention '", model="genai")
        for shape in ((64, 40), (64,)):
            tables = lambda m: [put(m, t, np.ones(shape, np.float32)) for t in ("cos_cache", "sin_cache")]
            self.check(f"tables {shape}", tables, "GroupQueryAttention", model="genai")
        self.check("unlike tables", lambda m: put(m, "sin_cache", np.ones((64, 2), np.float32)), 4, 2, model="genai")
        self.check("integer table", lambda m: put(m, "cos_cache", np.ones((64, 4), np.int64)), "int64", model="genai")
        self.check("table of four positions", lambda m: [put(m, t, np.ones((4, 4), np.float32)) for t in ("cos_cache", "sin_cache")], "4", model="genai")
        for count in (0, 1, 3, 7):
            self.check(f"{count} operands", lambda m: node(m, "GroupQueryAttention").input.__delitem__(slice(count, None)), "GroupQueryAttention '", model="genai")

    def test_causal_attention_without_its_past(self):
        """By the operator's definition query i would see key i at most, whatever the past holds."""
        def outside(m):
            for n, at, presents in tiny_exports.append_beside(m):
                n.input[1:3] = [f"{at} all keys", f"{at} all values"]
                for i, present in enumerate(presents):
                    row = numpy_helper.from_array(np.array([0, 0, 8]), f"{at} {i} row")
                    m.graph.initializer.append(row)
                    m.graph.node.insert(at, helper.make_node("Reshape", [f"{present} turned", row.name], [n.input[1 + i]]))
                    m.graph.node.insert(at, helper.make_node("Transpose", [present], [f"{present} turned"], perm=[0, 2, 1, 3]))
        tiny_exports.write_model(next(s for s in tiny_models.SPECS if s.name == "opset23-causal"), self.folder / "causal")
        self.llama = (self.folder / "causal" / "model.onnx").read_bytes()
        self.check("is_causal", outside, "is_causal without past_key", "P + S keys for S queries")

    def test_fused_operators_without_their_operands(self):
        contrib = [("SkipSimplifiedLayerNormalization", 3), ("SkipLayerNormalization", 3), ("RotaryEmbedding", 4), ("BiasGelu", 2), ("FusedMatMul", 2), ("MultiHeadAttention", 3), ("GroupQueryAttention", 1)]
        for op, count in contrib:
            for present in range(count):
                def change(m):
                    m.opset_import.append(helper.make_opsetid("com.microsoft", 1))
                    spliced(op, *["x"] * present, domain="com.microsoft", num_heads=4, kv_num_heads=4)(m)
                self.check(f"{op} with {present}", change, op)

    def test_random_damage_never_crashes(self):
        """Bytes changed, fields dropped, operands swapped: refused with one line, or run to the end."""
        rng = np.random.default_rng(1)
        for i in some(range(60), 15 if FEWER else 3):
            data = bytearray(self.llama)
            graph_end = len(data) - 86 * 1024  # weights lie at the end and cannot break anything
            for _ in range(rng.integers(1, 4)):
                data[int(rng.integers(0, graph_end))] = int(rng.integers(0, 256))
            self.survives(i, bytes(data))
        for i in some(range(60), 15 if FEWER else 3):
            m = onnx.ModelProto.FromString(self.llama)
            n = m.graph.node[int(rng.integers(len(m.graph.node)))]
            others = [v for o in m.graph.node for v in o.output]
            choice = i % 5
            if choice == 0 and n.input:
                n.input.pop()
            elif choice == 1 and n.input:
                n.input[int(rng.integers(len(n.input)))] = others[int(rng.integers(len(others)))]
            elif choice == 2 and n.attribute:
                n.attribute.pop()
            elif choice == 3 and n.input:
                n.input.append(n.input[0])
            else:
                n.op_type = m.graph.node[int(rng.integers(len(m.graph.node)))].op_type
            self.survives(f"{choice} {n.name}", m.SerializeToString())

    def survives(self, title, data):
        with self.subTest(title):
            run = self.run_bytes(data)
            self.assertEqual(run.stopped, "", run)
            if run.code != 0:
                self.refused(run)

class SideFilesTest(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.genai = cls.folder / "genai"
        tiny_exports.write_model(next(s for s in tiny_models.SPECS if s.name == "genai"), cls.genai)
        cls.config = json.loads((cls.genai / "genai_config.json").read_text())

    def run_with(self, **files):
        work = self.folder / "work"
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(self.genai, work)
        for name, text in files.items():
            (work / f"{name}.json").write_bytes(text if isinstance(text, bytes) else text.encode())
        return Run("run", work, "--prompt-ids", IDS, "-n", 2)

    def edited(self, key, v, part="decoder"):
        config = json.loads(json.dumps(self.config))
        target = config["model"]["decoder"] if part == "decoder" else config["model"]
        target[key] = v
        return json.dumps(config)

    def test_genai_config(self):
        for text in ("hello", "", "[]", "[" * 200000, '{"model": []}', '{}', '{"a":' * 5000 + "1" + "}" * 5000, b"\xff\xfe\0\1{", '{"model": 5}', '{"model": {"decoder": []}}'):
            with self.subTest(text=text[:40]):
                self.refused(self.run_with(genai_config=text), "work")
        for v in ("../work/model.onnx", "/etc/passwd", "nowhere.onnx", ".", "data.bin", "a\nb.onnx"):
            with self.subTest(filename=v):
                self.refused(self.run_with(genai_config=self.edited("filename", v)), v.split("\n")[0])
        for v in (10**18, 2**24 + 1, -5, "64", 64.5, 1e300, 10**30, [64]):
            with self.subTest(context_length=v):
                self.refused(self.run_with(genai_config=self.edited("context_length", v, "model")), "context")

        for v in ("x", [1, "x"], {}, 2.5):
            with self.subTest(eos_token_id=v):
                self.refused(self.run_with(genai_config=self.edited("eos_token_id", v, "model")), "eos_token_id")
        self.refused(self.run_with(genai_config=self.edited("filename", 5)), "filename")
        self.refused(self.run_with(genai_config=self.edited("outputs", {**self.config["model"]["decoder"]["outputs"], "logits": 7})), "model.decoder.outputs.logits should be a string, is 7")
        for v in ("foo.%d", "foo", "%d%d"):
            with self.subTest(past_key_names=v):
                self.refused(self.run_with(genai_config=self.edited("inputs", {**self.config["model"]["decoder"]["inputs"], "past_key_names": v})), v)

    def test_numbers_that_json_has_no_word_for(self):
        """Python writes them: read as absent, and left alone in strings."""
        run = self.run_with(config='{"name": "NaN \\" -Infinity", "time_step_limit": [0.0, Infinity], "a": NaN, "b": -Infinity}')
        self.assertEqual(run.code, 0, run)
        self.assertEqual(self.run_with(config=json.dumps({"a": "[" * 500})).code, 0)
        self.refused(self.run_with(config='{"a": 1e400}'), "config.json", "too large")
        self.refused(self.run_with(config='{"max_position_embeddings": Infinity,\n "b": }'), "config.json", "line 2")

    def test_side_files_that_are_no_files(self):
        for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "config.json", "generation_config.json", "genai_config.json"):
            for make in (os.mkfifo, lambda path: os.symlink("/dev/zero", path), lambda path: os.symlink(path.name, path)):
                work = self.folder / "no files"
                shutil.rmtree(work, ignore_errors=True)
                shutil.copytree(self.genai, work)
                (work / name).unlink(missing_ok=True)
                make(work / name)
                with self.subTest(name):
                    self.refused(Run("run", work, "--prompt-ids", IDS), name)
        self.refused(Run("run", self.link_to_itself("model.onnx"), "--prompt-ids", IDS), "model.onnx")
        self.refused(Run("inspect", self.link_to_itself("tokenizer.json")), "tokenizer.json")

    def link_to_itself(self, name):
        work = self.folder / f"link {name}"
        work.mkdir()
        (work / "model.onnx").write_bytes(b"")
        (work / name).unlink(missing_ok=True)
        os.symlink(name, work / name)
        return work

    def test_git_lfs_pointers(self):
        """Files that were not downloaded are named. Ids need no tokenizer."""
        pointer, words = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 2104556\n", "git-lfs pointer"
        for name in ("tokenizer", "special_tokens_map"):
            with self.subTest(name):
                fine = {"tokenizer": json.dumps({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}})}
                run = self.run_with(**{**fine, name: pointer})
                self.assertEqual((run.code, run.out != "", f"{name}.json: a {words}" in run.err), (0, True, True), run)
                self.refused(Run("run", self.folder / "work", "--prompt", "a"), f"{name}.json: a {words}")
        self.refused(Run("chat", self.folder / "work"), words)
        for name in ("config", "generation_config", "genai_config"):
            with self.subTest(name):
                self.refused(self.run_with(**{name: pointer}), f"{name}.json: a {words}")
        self.run_with(config="{}")
        work = self.folder / "work"
        graph = work / self.config["model"]["decoder"]["filename"]
        onnx.save(onnx.load(graph), graph, save_as_external_data=True, location="weights.data", size_threshold=0)
        (work / "weights.data").write_text(pointer)
        self.refused(Run("run", work, "--prompt-ids", IDS), "weights.data", words)

    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("setpriv"), "needs root, to be somebody else")
    def test_a_folder_that_may_not_be_entered(self):
        work = self.folder / "closed"
        work.mkdir(mode=0o755)
        (work / "model.onnx").write_bytes(b"")
        self.folder.chmod(0o755)
        work.chmod(0o644)
        program = self.folder / "situ"  # where others may run it
        shutil.copy(cli_case.SITU, program)
        situ, cli_case.SITU = cli_case.SITU, "setpriv"
        try:
            self.refused(Run("--reuid", 65534, "--clear-groups", program, "run", work, "--prompt-ids", IDS), "Permission denied")
        finally:
            cli_case.SITU = situ

    def test_names_that_the_graph_does_not_have(self):
        for part, key in (("inputs", "input_ids"), ("inputs", "attention_mask"), ("outputs", "logits")):
            with self.subTest(key):
                names = {**self.config["model"]["decoder"][part], key: "nowhere"}
                self.refused(self.run_with(genai_config=self.edited(part, names)), "nowhere")

    def test_tokenizer(self):
        good = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None}
        models = [{"type": "Nope"}, {"type": "BPE", "vocab": {"a": -1}, "merges": []}, {"type": "BPE", "vocab": {"a": 2**63}, "merges": []}, {"type": "BPE", "vocab": {"a": 0}, "merges": ["a zz"]}, {"type": "BPE", "vocab": [], "merges": 5}]
        for text in ["hello", "", "{}", "[" * 100000, '{"a":' * 100000] + [json.dumps({**good, "model": m}) for m in models]:
            with self.subTest(text=text[-60:]):
                self.refused(self.run_with(tokenizer=text), "tokenizer.json")
        fine = json.dumps({**good, "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}})
        self.refused(self.run_with(tokenizer=fine, tokenizer_config="nope"), "tokenizer_config.json")
        self.refused(self.run_with(tokenizer=fine, tokenizer_config="[" * 100000), "tokenizer_config.json")
        work = self.folder / "work"
        (work / "tokenizer_config.json").unlink()
        for prompt in ("", "zz"):
            self.refused(Run("run", work, "--prompt", prompt), "prompt")
        self.refused(Run("run", work, "--prompt", "ab", "--chat"), "chat template")
        self.refused(Run("run", work, "--prompt-ids", IDS, "--chat"), "--chat")
        self.refused(Run("run", work, "--prompt", os.fsdecode(b"a\xff\xfeb")), "UTF-8")

if __name__ == "__main__":
    main()
