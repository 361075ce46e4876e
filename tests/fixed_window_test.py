"""Exports whose extents are all numbers: the ids are the oracle's, nothing is copied, prompts have any length.

    python tests/fixed_window_test.py --situ build/situ [unittest options]
"""
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tiny_exports
import tiny_models
from cli_case import CliTest, Run, main
from fixed_exports import constant, fixed

LENGTH = 32  # T: also the width of the models, and twice a window of 16
FORMS = [(positions, folded) for positions in ("input", "mask") for folded in ("nothing", "shapes")]

def spec_of(name):
    return next(s for s in tiny_models.SPECS if s.name == name)

def export(spec, w):
    return {"optimum": tiny_exports.Optimum, "opset23": tiny_exports.Opset23}[spec.style](spec, w).build()

def with_padding(model):
    """The mask operand of opset 23 Attention, which shows all keys up to a query, and no key that the mask hides."""
    graph = model.graph
    at, node = next((i, n) for i, n in enumerate(graph.node) if n.op_type == "LessOrEqual")
    shown, node.output[0] = node.output[0], "causal"
    graph.node.insert(at + 1, helper.make_node("Cast", ["attention_mask"], ["real"], to=TensorProto.BOOL))
    graph.node.insert(at + 2, helper.make_node("And", ["causal", "real"], [shown]))
    return model

class FixedWindowTest(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.chosen = {}

    def choose(self, name):
        """(export, prompt, ids of the oracle)"""
        if name not in self.chosen:
            spec = spec_of(name)
            w, prompt, ids = tiny_models.choose_weights(spec)
            model = export(spec, w)
            self.chosen[name] = with_padding(model) if spec.style == "opset23" else model, w, prompt, ids
        return self.chosen[name]

    def save(self, model, name):
        folder = self.folder / name
        folder.mkdir()
        onnx.save(model, folder / "model.onnx")
        (folder / "config.json").write_text(json.dumps({"max_position_embeddings": tiny_models.CONTEXT, "eos_token_id": tiny_models.VOCABULARY}))
        return folder

    def write(self, name, window, length=LENGTH, change=lambda graph: None, label="", **form):
        model = fixed(self.choose(name)[0], window, length, **form)
        change(model.graph)
        return self.save(model, f"{self.id()} {name} {window} {length} {form} {label}".replace("/", "|"))

    def check(self, name, window, length=LENGTH, **form):
        _, _, prompt, ids = self.choose(name)
        path = self.write(name, window, length, **form)
        with self.subTest(name, window=window, **form):
            placed, naive = self.generate(path, prompt), self.generate(path, prompt, "--naive")
            self.assertEqual(placed["output_ids"], ids)
            self.assertEqual(naive["output_ids"], ids)
            self.assertEqual(placed["bytes_copied_per_token"], 0)
            self.assertGreater(naive["bytes_copied_per_token"], 0)

    # -- what is lifted

    def test_windows_of_any_width(self):
        """Also as wide as there are heads (4), rows of a head (8) and groups (2), than the prompt (7), and half of T."""
        for window in (1, 2, 4, 7, 8, 16, 31):
            for positions, folded in FORMS:
                self.check("llama", window, positions=positions, folded=folded)

    def test_kinds_of_models(self):
        for name in ("multi-head", "multi-query", "gpt", "bloom", "window", "interleaved", "combined", "half", "half-inside", "opset23"):
            for window, (positions, folded) in zip((1, 4, 1, 4), FORMS):
                if name != "bloom" or positions == "input":  # has no positions
                    self.check(name, window, positions=positions, folded=folded)

    def test_the_context_is_the_window(self):
        _, w, _, _ = self.choose("llama")
        prompt = [int(t) for t in np.random.default_rng(3).integers(0, tiny_models.VOCABULARY, LENGTH + 1)]
        for window, (positions, folded) in ((1, FORMS[0]), (1, FORMS[3]), (5, FORMS[1]), (5, FORMS[2])):
            path = self.write("llama", window, positions=positions, folded=folded)
            for count in (LENGTH - 1, LENGTH):
                for options in ((), ("--naive",), ("--chunk", 3)):
                    got = self.generate(path, prompt[:count], *options, count=20)
                    self.assertEqual(got["output_ids"], tiny_models.greedy(spec_of("llama"), w, prompt[:count], LENGTH - count + 1)[0], (window, count, options))
                    self.assertEqual(got["finish_reason"], "length")
            for options in ((), ("--naive",)):
                self.refused(Run("run", path, "--prompt-ids", ",".join(map(str, prompt)), "-n", 1, *options), f"prompt has {LENGTH + 1}", f"context length is {LENGTH}")
                self.refused(Run("run", path, "--prompt-ids", "1", "--context", LENGTH + 1, *options), f"context of {LENGTH + 1}", f"[1, {LENGTH}]")
            self.refused(Run("run", path, "--prompt-ids", "1", "--window", LENGTH + 1), f"window of {LENGTH + 1}", f"[1, {LENGTH}]")

    def test_chunks_beams_and_guesses(self):
        model, _, prompt, ids = self.choose("llama")
        free = self.save(model, "free shapes")
        beams = self.generate(free, prompt, "--beams", 3)["output_ids"]
        for window, (positions, folded) in ((1, FORMS[2]), (4, FORMS[0]), (4, FORMS[3])):
            path = self.write("llama", window, positions=positions, folded=folded)
            for options in (("--chunk", 1), ("--chunk", 3), ("--prompt-lookup", 4), ("--threads", 2)):
                got = self.generate(path, prompt, *options)
                self.assertEqual((got["output_ids"], got["bytes_copied_per_token"]), (ids, 0), (window, options))
            got = self.generate(path, prompt, "--beams", 3)
            self.assertEqual((got["output_ids"], got["bytes_copied_per_token"]), (beams, 0), window)

    def test_old_rows_leave_a_window(self):
        """As in the host's loop, where a step of one token moves T - 1 rows on."""
        spec, length = spec_of("llama"), 12
        _, w, prompt, _ = self.choose("llama")
        ids, margin = tiny_models.greedy(replace(spec, window=length), w, prompt, 40)
        self.assertGreater(margin, 2e-4)
        for positions, folded in FORMS:
            path = self.write("llama", 1, length, positions=positions, folded=folded)
            got = self.generate(path, prompt, "--window", length, count=40)
            self.assertEqual((got["output_ids"], got["bytes_copied_per_token"]), (ids, 0), (positions, folded))

    # -- what is not

    def unlifted(self, words, name="llama", window=4, change=lambda graph: None, label="", positions="input", folded="nothing"):
        """Refused, with the words; the literal run goes on, if it can."""
        path = self.write(name, window, change=change, label=label, positions=positions, folded=folded)
        with self.subTest(label or words, window=window):
            self.refused(Run("run", path, "--prompt-ids", "5,6,7,8,9"), *words)
            return self.generate(path, [5, 6, 7, 8, 9], "--naive", count=3)["output_ids"]

    def test_tables_of_the_window(self):
        for window in (1, 4):
            self.unlifted(("depends on its fixed extents",), window=window, folded="everything")

    def test_hidden_rows_that_are_seen(self):
        def find(graph, op):
            return next(n for n in graph.node if n.op_type == op)
        def shown(graph):  # the mask hides later tokens, and no row that is none
            find(graph, "And").op_type = "Or"
        def last_but(graph):  # the first key is always shown
            n = find(graph, "And")
            table = constant(graph, "first", (np.arange(LENGTH) == 0).reshape(1, 1, 1, LENGTH))
            graph.node.insert(list(graph.node).index(n), helper.make_node("Cast", [table], ["first shown"], to=TensorProto.BOOL))
            graph.node.insert(list(graph.node).index(n), helper.make_node("Or", [n.input[1], "first shown"], ["real or first"]))
            n.input[1] = "real or first"
        def of_all_rows(graph):  # a mean over all rows of a past
            n = find(graph, "Softmax")
            at = list(graph.node).index(n)
            graph.node.insert(at, helper.make_node("ReduceMean", ["present.0.key"], ["mean"], axes=[0, 1, 2, 3], keepdims=0))
            graph.node.insert(at + 1, helper.make_node("Mul", [n.input[0], "mean"], ["by the mean"]))
            n.input[0] = "by the mean"
        def length_as_number(graph):  # scores divided by the number of keys
            n = find(graph, "Softmax")
            at = list(graph.node).index(n)
            one = constant(graph, "axis 1", 1)
            for i, node in enumerate((helper.make_node("Shape", ["attention_mask"], ["mask shape"]), helper.make_node("Gather", ["mask shape", one], ["keys"]),
                                      helper.make_node("Cast", ["keys"], ["number"], to=TensorProto.FLOAT), helper.make_node("Div", [n.input[0], "number"], ["by the keys"]))):
                graph.node.insert(at + i, node)
            n.input[0] = "by the keys"
        def first_row(graph):  # the oldest row of the window as a bias
            n = find(graph, "Softmax")
            at = list(graph.node).index(n)
            graph.node.insert(at, helper.make_node("Slice", ["present.0.key", *(constant(graph, name, [v]) for name, v in (("from", 0), ("to", 1), ("along", 2)))], ["oldest"]))
            graph.node.insert(at + 1, helper.make_node("ReduceSum", ["oldest"], ["sum of it"], keepdims=0))
            graph.node.insert(at + 2, helper.make_node("Where", ["sum of it is more", n.input[0], "twice"], ["by the oldest"]))
            zero = helper.make_node("Constant", [], ["zero"], value=numpy_helper.from_array(np.float32(0)))
            graph.node.insert(at + 2, helper.make_node("Greater", ["sum of it", "zero"], ["sum of it is more"]))
            graph.node.insert(at + 2, helper.make_node("Add", [n.input[0], n.input[0]], ["twice"]))
            graph.node.insert(at, zero)
            n.input[0] = "by the oldest"
        for window in (1, 4):
            self.unlifted(("with 1 of 32 ones in its mask", "sees key 0", "holds no token"), window=window, change=shown, label="shown")
            self.unlifted(("depends on its fixed extents",), window=window, change=last_but, label="the first key")
            for change in (of_all_rows, first_row):
                self.unlifted(("depends on its fixed extents",), window=window, change=change, label=change.__name__)
            self.unlifted(("depends on its fixed extents", "keys"), window=window, change=length_as_number, label="length")

    def test_attention_that_takes_no_padding(self):
        for name in ("opset23", "opset23-causal"):
            spec = spec_of(name)
            w, _, _ = tiny_models.choose_weights(spec)
            path = self.save(fixed(export(spec, w), 4, LENGTH), f"no padding {name}")
            self.refused(Run("run", path, "--prompt-ids", "1,2"), "depends on its fixed extents", "Attention", "no token")

    def test_positions_of_the_window(self):
        """Places in the window instead of positions of tokens."""
        def places(graph):
            n = next(n for n in graph.node if n.op_type == "CumSum")
            n.op_type = "Sub"
            del n.attribute[:]
            n.input[:] = [constant(graph, "places", np.arange(LENGTH).reshape(1, LENGTH)), constant(graph, "none", 0)]
            next(m for m in graph.node if m.op_type == "Sub" and m.input[0] == n.output[0]).input[1] = "none"
        for window in (1, 4):
            self.unlifted(("depends on its fixed extents",), window=window, change=places, positions="mask")

    def test_forms_that_are_not_known(self):
        def dims_of(graph, name):
            return next(v for v in list(graph.input) + list(graph.output) if v.name == name).type.tensor_type.shape.dim
        def no_mask(graph):
            next(v for v in graph.input if v.name == "attention_mask").name = "keep"
            for n in graph.node:
                n.input[:] = ["keep" if i == "attention_mask" else i for i in n.input]
        def longer_mask(graph):
            dims_of(graph, "attention_mask")[1].dim_value = LENGTH + 1
        def short_mask(graph):
            dims_of(graph, "attention_mask")[1].dim_value = 4
        def two_masks(graph):
            dims_of(graph, "attention_mask")[0].dim_value = 2
        def other_past(graph):
            dims_of(graph, "past_key_values.1.value")[2].dim_value = LENGTH
        for change, words in ((no_mask, ("no input is an attention mask",)), (longer_mask, ("past_key_values.0.key", "T - W", f"T = {LENGTH + 1}", "W = 4")),
                              (short_mask, ("attention_mask", "[1, 4]", "4 tokens")), (two_masks, ("attention_mask", f"[2, {LENGTH}]")),
                              (other_past, ("past_key_values.1.value", f"{LENGTH - 4} = T - W"))):
            path = self.write("llama", 4, change=change, label=change.__name__)
            with self.subTest(change.__name__):
                self.refused(Run("run", path, "--prompt-ids", "1,2"), "input_ids", "exactly 4 tokens", "all extents are fixed", *words)

    def test_extents_that_are_off_by_one(self):
        """Constants that are extents, changed by one each in turn: refused, or the literal run gives the same ids."""
        prompt, caught, same = self.choose("llama")[2], 0, 0
        for window in (1, 4):
            model = fixed(self.choose("llama")[0], window, LENGTH, positions="mask", folded="shapes")
            extents = {window, LENGTH, LENGTH - window} - {1}
            places = [(t, i) for t, tensor in enumerate(model.graph.initializer) if tensor.data_type == TensorProto.INT64
                      for i, x in enumerate(np.atleast_1d(numpy_helper.to_array(tensor))) if x in extents]
            def look(place):
                (t, i), by = place
                changed = onnx.ModelProto.FromString(model.SerializeToString())
                values = np.array(numpy_helper.to_array(changed.graph.initializer[t]))
                values.reshape(-1)[i] += by
                name = changed.graph.initializer[t].name
                changed.graph.initializer[t].CopyFrom(numpy_helper.from_array(values, name))
                path = self.save(changed, f"off {window} {t} {i} {by}")
                run = Run("run", path, "--prompt-ids", ",".join(map(str, prompt)), "-n", 8, "--ignore-eos", "--json", "--threads", 1)
                if run.code == 2:
                    return True
                self.assertEqual(json.loads(run.out)["output_ids"], self.generate(path, prompt, "--naive", count=8)["output_ids"], (name, i, by))
                return False
            self.assertGreater(len(places), 3)
            with ThreadPoolExecutor(2) as pool:
                for refused in pool.map(look, [(p, by) for p in places for by in (-1, 1)]):
                    caught, same = caught + refused, same + (not refused)
        self.assertGreater(caught, 4 * same)

if __name__ == "__main__":
    main()
