"""What the inputs and outputs of a graph mean: ids, positions, masks, states and logits, by their names, their shapes and by what
the graph computes with them. What could mean two things, or another thing than its name says, is refused.

    python tests/bindings_test.py --situ build/situ [unittest options]

Needs numpy and onnx (`make python`).
"""
import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

import tiny_exports
import tiny_models
from cli_case import CliTest, Run, main
from decoder_graphs import END
from tiny_models import WIDTH

class BindingsTest(CliTest):
    def renamed(self, spec_name, old, new, change=lambda m: None):
        """The path of a tiny model whose value `old` has another name and which `change` then changes, with its prompt and its ids."""
        folder = self.folder / f"renamed {self.id()} {spec_name} {old} {new} {len(list(self.folder.iterdir()))}"
        prompt, ids = tiny_exports.write_model(next(s for s in tiny_models.SPECS if s.name == spec_name), folder)
        model = onnx.load(folder / "model.onnx")
        self.assertIn(old, [v.name for v in (*model.graph.input, *model.graph.output)])
        for v in (*model.graph.input, *model.graph.output):
            v.name = new if v.name == old else v.name
        for n in model.graph.node:
            n.input[:] = [new if x == old else x for x in n.input]
            n.output[:] = [new if x == old else x for x in n.output]
        change(model)
        onnx.save(model, folder / "model.onnx")
        return folder / "model.onnx", prompt, ids

    def test_inputs_of_other_names(self):
        """Positions are known by their names, masks by their names and by what they do: timesteps and masks of what is hidden look the same otherwise."""
        for name, old, new in (("llama", "attention_mask", "attn_mask"), ("bloom", "attention_mask", "attn_mask"), ("llama", "position_ids", "input_pos"),
                               ("llama", "attention_mask", "padding_mask"), ("llama", "attention_mask", "Mask"), ("llama", "position_ids", "positionIds")):
            with self.subTest(name, old=old, new=new):
                path, prompt, ids = self.renamed(name, old, new)
                for options in ((), ("--naive",)):
                    self.assertEqual(self.generate(path, prompt, *options)["output_ids"], ids, options)
        for old, new in (("attention_mask", "sliding_mask"), ("position_ids", "block_position_ids")):
            with self.subTest(old=old, new=new):
                self.refused(Run("run", self.renamed("llama", old, new)[0], "--prompt-ids", "1,2,3"), f"'{new}' has no known meaning")

    def test_stacked_states_continue_their_own_parts(self):
        """Keys and values that change places in the stack are two states that continue each other: not what one of them is."""
        def swapped(m):
            stack = next(n for n in m.graph.node if n.output[0] == "present.0.key_value")
            stack.input[:] = stack.input[::-1]
        for options in ((), ("--naive",)):
            self.refused(Run("run", self.renamed("stacked", "logits", "logits", swapped)[0], "--prompt-ids", "1,2,3", *options), "past_key_values.0.key_value", "neither appends")

    def test_parts_of_stacked_states(self):
        """However a part is taken out of the stack, and whatever comes behind it: the same states, nothing copied."""
        def squeezed(m, make):
            for count, n in enumerate([n for n in m.graph.node if n.op_type == "Gather" and n.input[0].startswith("past_key_values")]):
                at, name = list(m.graph.node).index(n), n.output[0]
                for i, made in enumerate(make(n.input[0], count % 2, name)):
                    m.graph.node.insert(at + i, made)
                m.graph.node.remove(n)
            for number in (0, 1, 2):
                m.graph.initializer.append(numpy_helper.from_array(np.array([number], np.int64), f"number {number}"))
        node = onnx.helper.make_node
        ways = {"gather": lambda past, part, name: [node("Gather", [past, f"number {part}"], [name + " row"], axis=0), node("Squeeze", [name + " row", "number 0"], [name])],
                "slice": lambda past, part, name: [node("Slice", [past, f"number {part}", f"number {part + 1}", "number 0"], [name + " row"]), node("Squeeze", [name + " row", "number 0"], [name])],
                "split": lambda past, part, name: [node("Split", [past], [name + " row 0", name + " row 1"], axis=0, num_outputs=2), node("Squeeze", [f"{name} row {part}", "number 0"], [name])]}
        for way, make in ways.items():
            def changed(m, make=make):
                m.opset_import[0].version = 18
                squeezed(m, make)
                for n in [n for n in m.graph.node if n.output[0].startswith("present")]:
                    m.graph.node.append(node("Identity", [n.output[0] + " stack"], [n.output[0]]))
                    n.output[0] += " stack"
                self.name_lengths(m, "kv_len")
            path, prompt, ids = self.renamed("stacked", "logits", "logits", changed)
            with self.subTest(way):
                answer = self.generate(path, prompt)
                self.assertEqual((answer["output_ids"], answer["bytes_copied_per_token"]), (ids, 0))
                self.assertEqual(self.generate(path, prompt, "--naive")["output_ids"], ids)

    @staticmethod
    def name_lengths(m, name):
        for v in m.graph.input:
            for d in v.type.tensor_type.shape.dim:
                if v.name.startswith("past") and d.dim_param.startswith("past"):
                    d.dim_param = name

    def test_lengths_of_other_names(self):
        """The extent that grows is told by what appends to it, through whatever stands between: not by its name."""
        for spec in ("llama", "bloom", "combined", "half-combined", "stacked"):
            def changed(m):
                self.name_lengths(m, "m")
                for v in [v.name for v in m.graph.input if v.name.startswith("past")]:
                    for n in m.graph.node:
                        n.input[:] = [v + " again" if x == v else x for x in n.input]
                    m.graph.node.insert(0, onnx.helper.make_node("Identity", [v], [v + " again"]))
            path, prompt, ids = self.renamed(spec, "logits", "logits", changed)
            for options in ((), ("--naive",)):
                with self.subTest(spec, options=options):
                    self.assertEqual(self.generate(path, prompt, *options)["output_ids"], ids)

    def test_names_are_spelled_out_on_a_terminal(self):
        def named(m):
            m.producer_name = "tool\x1b[2J"
            for n in m.graph.node:
                n.name = "\x1b[31m" + n.name
        def unknown(m):
            named(m)
            m.graph.node[0].op_type = "Odd\x1b[0m"
        for change, code in ((named, 0), (unknown, 2)):
            run = Run("inspect", self.renamed("llama", "logits", "logits", change)[0])
            self.assertEqual(run.code, code, run)
            self.assertIn("tool\\x1b[2J", run.out)
            self.assertNotIn("\x1b", run.out + run.err)

    def test_pasts_of_a_known_length(self):
        for options in ((), ("--naive",)):
            def fixed(m):
                for v in m.graph.input:
                    for d in v.type.tensor_type.shape.dim:
                        if v.name.startswith("past") and d.dim_param.startswith("past"):
                            d.dim_value = 2
            self.refused(Run("run", self.renamed("llama", "logits", "logits", fixed)[0], "--prompt-ids", "1,2,3", *options), "cannot tell whether S + 2 and P + S are equal")

    def test_masks_of_other_types(self):
        for element in (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BOOL, TensorProto.INT8, TensorProto.UINT8):
            with self.subTest(element=element):
                path, prompt, ids = self.renamed("llama", "attention_mask", "attention_mask", lambda m: setattr(next(i for i in m.graph.input if i.name == "attention_mask").type.tensor_type, "elem_type", element))
                for options in ((), ("--naive",)):
                    self.assertEqual(self.generate(path, prompt, *options)["output_ids"], ids, options)

    def test_masks_of_what_is_hidden(self):
        """1 says "hidden": ones would hide all, by whatever name."""
        def inverted(m):
            cast = next(n for n in m.graph.node if n.op_type == "Cast" and n.input[0] in ("attention_mask", "padding_mask"))
            kept, cast.output[0] = cast.output[0], "hidden"
            m.graph.node.insert(list(m.graph.node).index(cast) + 1, onnx.helper.make_node("Not", ["hidden"], [kept]))
        for name in ("attention_mask", "padding_mask"):
            for options in ((), ("--naive",)):
                with self.subTest(name, options=options):
                    self.refused(Run("run", self.renamed("llama", "attention_mask", name, inverted)[0], "--prompt-ids", "1,2,3", *options), f"'{name}' has no known meaning", "sees nothing")

    def test_masks_with_a_row_for_each_query(self):
        """[queries, keys] instead of [batch, keys], in a graph that hides no later token itself: ones would show them."""
        spec = next(s for s in tiny_models.SPECS if s.name == "opset23-causal")
        for dims in (["sequence", "t"], ["q", "t"], [None, "t"], ["batch", "t"]):
            for options in ((), ("--naive",)):
                with self.subTest(dims=dims, options=options):
                    model = tiny_exports.Opset23(spec, tiny_models.choose_weights(spec)[0]).build()
                    tiny_exports.remove_input(model, "attention_mask")
                    ids = next(i for i in model.graph.input if i.name == "input_ids").type.tensor_type.shape.dim
                    ids[0].dim_param, ids[1].dim_param = "batch", "sequence"
                    model.graph.input.append(onnx.helper.make_tensor_value_info("attention_mask", TensorProto.INT64, dims))
                    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([0, 1]), "two axes"))
                    for n in [n for n in model.graph.node if n.op_type == "Attention"]:
                        at = list(model.graph.node).index(n)
                        n.input.extend([""] * (4 - len(n.input)))
                        n.input[3] = f"mask {at}"
                        for a in [a for a in n.attribute if a.name == "is_causal"]:
                            n.attribute.remove(a)
                        model.graph.node.insert(at, onnx.helper.make_node("Unsqueeze", [f"kept {at}", "two axes"], [f"mask {at}"]))
                        model.graph.node.insert(at, onnx.helper.make_node("Cast", ["attention_mask"], [f"kept {at}"], to=TensorProto.BOOL))
                    path = self.folder / f"rows {dims} {options}.onnx"
                    onnx.save(model, path)
                    run = Run("run", path, "--prompt-ids", "1,2,3", "-n", "2", "--context", tiny_models.CONTEXT, *options)
                    if dims[0] == "batch":
                        self.assertEqual(run.code, 0, run.err)
                    else:
                        self.refused(run, "attention_mask", "host would have to make")

    def test_positions_that_are_none(self):
        """A number that the graph counts on from, and rows that are not equal for text."""
        def counted(dims):
            def change(m):
                shape = next(i for i in m.graph.input if i.name == "position_ids").type.tensor_type.shape
                del shape.dim[:]
                for d in dims:
                    shape.dim.add().dim_param = d
                user = next(n for n in m.graph.node if "position_ids" in n.input)
                at = list(m.graph.node).index(user)
                user.input[list(user.input).index("position_ids")] = "counted"
                for name, value in (("zero", 0), ("one", 1)):
                    m.graph.initializer.append(onnx.numpy_helper.from_array(np.array(value), f"{name} of positions"))
                for n in (onnx.helper.make_node("Add", ["position_ids", "steps"], ["counted"]), onnx.helper.make_node("Range", ["zero of positions", "count", "one of positions"], ["steps"]),
                          onnx.helper.make_node("Gather", ["extents", "one of positions"], ["count"]), onnx.helper.make_node("Shape", ["input_ids"], ["extents"])):
                    m.graph.node.insert(at, n)
            return change
        def rows(*dims):
            def change(m):
                shape = next(i for i in m.graph.input if i.name == "position_ids").type.tensor_type.shape
                sequence = shape.dim[1].dim_param
                del shape.dim[:]
                for d in dims:
                    shape.dim.add().dim_value = d
                shape.dim.add().dim_param = sequence
            return change
        for name, change in (("a vector", counted(["n"])), ("a matrix", counted(["batch_size", "n"])), ("two rows", rows(2, 1)), ("two rows of a batch", rows(1, 2)), ("two sequences", rows(2))):
            for options in ((), ("--naive",)):
                with self.subTest(name, options=options):
                    self.refused(Run("run", self.renamed("llama", "position_ids", "position_ids", change)[0], "--prompt-ids", "1,2,3", *options), "'position_ids'", "not a position for each token")

    def test_states_that_count_otherwise(self):
        """Names that say no other pairs: from 1, with zeros, with the element type. The graph's pairs are taken."""
        for of_past, of_present in ((lambda i, x: f"past_key_values.{i}.{x}", lambda i, x: f"present.{i + 1}.{x}"), (lambda i, x: f"past_{x}_{i}", lambda i, x: f"present_{x}_{i:02d}"),
                                    (lambda i, x: f"past_{x}_{i}_fp16", lambda i, x: f"present_{x}_{i}"), (lambda i, x: f"past_{x}_{i}", lambda i, x: f"cat_{7 * i + len(x)}")):
            def change(m):
                states = {f"past_key_values.{i}.{x}": of_past(i, x) for i in range(9) for x in ("key", "value")} | {f"present.{i}.{x}": of_present(i, x) for i in range(9) for x in ("key", "value")}
                for v in (*m.graph.input, *m.graph.output):
                    v.name = states.get(v.name, v.name)
                for n in m.graph.node:
                    n.input[:] = [states.get(x, x) for x in n.input]
                    n.output[:] = [states.get(x, x) for x in n.output]
            with self.subTest(past=of_past(0, "key"), present=of_present(0, "key")):
                path, prompt, ids = self.renamed("llama", "logits", "logits", change)
                self.assertEqual(self.generate(path, prompt)["output_ids"], ids)

    def test_two_outputs_that_continue_a_state(self):
        """The namesake does; where there is none, a host could hand either back."""
        def change(rename):
            def f(m):
                concat = next(n for n in m.graph.node if "present.0.key" in n.output)
                at = list(m.graph.node).index(concat)
                m.graph.node.insert(at, onnx.helper.make_node("Concat", [concat.input[0], "minus"], ["extra.0.key"], axis=2))
                m.graph.node.insert(at, onnx.helper.make_node("Neg", [concat.input[1]], ["minus"]))
                output = next(o for o in m.graph.output if o.name == "present.0.key")
                extra = onnx.ValueInfoProto()
                extra.CopyFrom(output)
                extra.name = "extra.0.key"
                m.graph.output.insert(0, extra)
                if rename:
                    output.name = "other.0.key"
                    for n in m.graph.node:
                        n.input[:] = [output.name if x == "present.0.key" else x for x in n.input]
                        n.output[:] = [output.name if x == "present.0.key" else x for x in n.output]
            return f
        for options in ((), ("--naive",)):
            path, prompt, ids = self.renamed("llama", "logits", "logits", change(False))
            self.assertEqual(self.generate(path, prompt, *options)["output_ids"], ids, options)
            self.refused(Run("run", self.renamed("llama", "logits", "logits", change(True))[0], "--prompt-ids", "1,2,3", *options), "extra.0.key", "other.0.key", "both continue the state 'past_key_values.0.key'")

    def test_logits_of_another_name(self):
        folder = self.folder / "scores"
        prompt, ids = tiny_exports.write_model(next(s for s in tiny_models.SPECS if s.name == "llama"), folder)
        model = onnx.load(folder / "model.onnx")
        logits = next(o for o in model.graph.output if o.name == "logits")
        next(n for n in model.graph.node if "logits" in n.output).output[0] = logits.name = "scores"
        model.graph.output.remove(logits)
        model.graph.output.append(logits)
        onnx.save(model, folder / "model.onnx")
        for options in ((), ("--naive",)):
            self.assertEqual(self.generate(folder / "model.onnx", prompt, *options)["output_ids"], ids, options)
        # Hidden states may come first: logits are as wide as the vocabulary. Where another output is so too, nothing tells.
        last = next(n for n in model.graph.node if "scores" in n.output)
        model.graph.output.insert(0, onnx.helper.make_tensor_value_info(last.input[0], TensorProto.FLOAT, ["batch_size", "sequence_length", WIDTH]))
        onnx.save(model, folder / "model.onnx")
        self.assertEqual(self.generate(folder / "model.onnx", prompt)["output_ids"], ids)
        model.graph.node.append(onnx.helper.make_node("Neg", ["scores"], ["values"]))
        model.graph.output.append(onnx.helper.make_tensor_value_info("values", TensorProto.FLOAT, ["batch_size", "sequence_length", tiny_models.VOCABULARY]))
        onnx.save(model, folder / "model.onnx")
        self.refused(Run("run", folder / "model.onnx", "--prompt-ids", "1,2,3"), "which output holds the logits?", "scores", "values")

    def test_models_without_a_head(self):
        """Hidden states and scores of classes are no logits, whatever they are called."""
        def headless(m):
            head = next(n for n in m.graph.node if "hidden" in n.output)
            m.graph.node.append(onnx.helper.make_node("Identity", [head.input[0]], ["last_hidden_state"]))
            del m.graph.output[[o.name for o in m.graph.output].index("hidden")]
            m.graph.output.append(onnx.helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["batch_size", "sequence_length", None]))
        def classes(m):
            head = next(n for n in m.graph.node if "logits" in n.output)
            m.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((WIDTH, 2), np.float32), "classes"))
            head.op_type, head.input[:] = "MatMul", [head.input[0], "classes"]
            del head.attribute[:]
            m.graph.output[[o.name for o in m.graph.output].index("logits")].type.tensor_type.shape.dim[2].dim_value = 2
        rows = f"the table that token ids index has {tiny_models.VOCABULARY} rows"
        for options in ((), ("--naive",)):
            self.refused(Run("run", self.renamed("llama", "logits", "hidden", headless)[0], "--prompt-ids", "1,2,3", *options), "no output holds logits", "last_hidden_state", rows)
            self.refused(Run("run", self.renamed("llama", "logits", "logits", classes)[0], "--prompt-ids", "1,2,3", *options), "'logits'", "cannot be logits", rows)

    def with_input(self, name, dims, nodes, element=TensorProto.INT64):
        """A tiny model with one more input, whose head reads "y" instead of "x". nodes: (operator, inputs, outputs, attributes) that
        make y [1, .., C] of x [1, S, C] and of the input."""
        def changed(m):
            head = next(n for n in m.graph.node if "logits" in n.output)
            for number in (-1, 0, 1, END):
                m.graph.initializer.append(numpy_helper.from_array(np.array([number], np.int64), f"[{number}]"))
            m.graph.initializer.append(numpy_helper.from_array(np.array([np.zeros(WIDTH), np.ones(WIDTH)], np.float32), "types"))
            m.graph.initializer.append(numpy_helper.from_array(np.array(1, np.int64), "1"))
            m.graph.input.append(onnx.helper.make_tensor_value_info(name, element, dims))
            at = list(m.graph.node).index(head)
            before = [("Shape", ["input_ids"], ["ids"], {}), ("Gather", ["ids", "1"], ["tokens"], {}), ("Unsqueeze", ["tokens", "[0]"], ["[tokens]"], {}), *nodes]
            for i, (op, inputs, outputs, attributes) in enumerate(before):
                inputs = [head.input[0] if v == "x" else v for v in inputs]
                m.graph.node.insert(at + i, onnx.helper.make_node(op, inputs, outputs, **attributes))
            m.graph.node[at + len(before)].input[0] = "y"
        return self.renamed("llama", "logits", "logits", changed)

    def test_how_many_tokens_have_logits(self):
        """An input that counts them: one while answering, as many as are wanted where guesses are checked."""
        n, cut = "num_logits_to_keep", lambda begin: ("Slice", ["x", begin, f"[{END}]", "[1]"], ["y"], {})
        from_end = [("Neg", ["[n]"], ["-n"], {}), cut("-n")]
        begin = ("Sub", ["tokens", n], ["begin"], {})
        spellings = {
            "from the end": (n, [], TensorProto.INT64, [("Unsqueeze", [n, "[0]"], ["[n]"], {}), *from_end]),
            "a list of one": ("logits_to_keep", ["k"], TensorProto.INT32, [("Cast", ["logits_to_keep"], ["[n]"], {"to": TensorProto.INT64}), *from_end]),
            "0 is all": (n, [], TensorProto.INT64, [("Unsqueeze", [n, "[0]"], ["[n]"], {}), ("Neg", ["[n]"], ["some"], {}), ("Equal", ["[n]", "[0]"], ["all"], {}), ("Where", ["all", "[0]", "some"], ["-n"], {}), cut("-n")]),
            "from the front": (n, [1], TensorProto.INT64, [("Sub", ["[tokens]", n], ["begin"], {}), cut("begin")]),
            "a range": (n, [], TensorProto.INT64, [begin, ("Range", ["begin", "tokens", "1"], ["places"], {}), ("Gather", ["x", "places"], ["y"], {"axis": 1})]),
            "a split": (n, [], TensorProto.INT64, [begin, ("Unsqueeze", ["begin", "[0]"], ["[begin]"], {}), ("Unsqueeze", [n, "[0]"], ["[n]"], {}), ("Concat", ["[begin]", "[n]"], ["sizes"], {"axis": 0}), ("Split", ["x", "sizes"], ["rest", "y"], {"axis": 1})]),
        }
        path, prompt, ids = self.renamed("llama", "logits", "logits")
        twice = self.generate(path, prompt * 2)["output_ids"]
        for spelling, (name, dims, element, nodes) in spellings.items():
            with self.subTest(spelling):
                path = self.with_input(name, dims, nodes, element)[0]
                answer = self.generate(path, prompt * 2, "--prompt-lookup", 3)
                self.assertEqual((answer["output_ids"], answer["bytes_copied_per_token"]), (twice, 0))
                self.assertGreater(answer["speculation"]["guessed"], 0)
                self.assertEqual(self.generate(path, prompt, "--naive")["output_ids"], ids)
        for spelling, dims, nodes, words in (("tokens, not a count", ["k"], [("Gather", ["x", n], ["y"], {"axis": 1})], (n, "not how many of the last tokens")),
                                             ("the first ones", [], [("Unsqueeze", [n, "[0]"], ["[n]"], {}), ("Slice", ["x", "[0]", "[n]", "[1]"], ["y"], {})], ("not the last ones of the step",))):
            with self.subTest(spelling):
                self.refused(Run("run", self.with_input(n, dims, nodes)[0], "--prompt-ids", "1,2,3"), *words)

    def test_which_text_a_token_is_of(self):
        """Zeros: the type of the first text, whose row of the table is zero here."""
        added = [("Gather", ["types", "token_type_ids"], ["rows"], {}), ("Add", ["x", "rows"], ["y"], {})]
        last = [("Neg", ["[tokens]"], ["begin"], {}), ("Slice", ["token_type_ids", "begin", f"[{END}]", "[1]"], ["of step"], {}), ("Gather", ["types", "of step"], ["rows"], {}), ("Add", ["x", "rows"], ["y"], {})]
        for dims, nodes, element in ((["batch_size", "sequence_length"], added, TensorProto.INT64), (["b", "s"], added, TensorProto.INT32), (["batch_size", "total_sequence_length"], last, TensorProto.INT64)):
            with self.subTest(dims=dims):
                path, prompt, ids = self.with_input("token_type_ids", dims, nodes, element)
                answer = self.generate(path, prompt)
                self.assertEqual((answer["output_ids"], answer["bytes_copied_per_token"]), (ids, 0))
                self.assertEqual(self.generate(path, prompt, "--naive")["output_ids"], ids)
        self.refused(Run("run", self.with_input("token_type_ids", [2, "sequence_length"], added)[0], "--prompt-ids", "1,2,3"), "'token_type_ids' [2, S] is not a type for each token")

    def test_what_has_the_shape_of_a_mask(self):
        """Its mean is added to what the logits are made of: refused, where ones would be wrong in silence."""
        spec = next(s for s in tiny_models.SPECS if s.name == "opset23-causal")
        model = tiny_exports.Opset23(spec, tiny_models.choose_weights(spec)[0]).build()
        tiny_exports.remove_input(model, "attention_mask")
        model.graph.input.append(onnx.helper.make_tensor_value_info("att_mask", TensorProto.INT64, ["batch", "t"]))
        tail = next(n for n in model.graph.node if "logits" in n.output)
        at = list(model.graph.node).index(tail)
        for n in (onnx.helper.make_node("Add", [tail.input[0], "mean"], ["shifted"]), onnx.helper.make_node("ReduceMean", ["numbers"], ["mean"], keepdims=0), onnx.helper.make_node("Cast", ["att_mask"], ["numbers"], to=1)):
            model.graph.node.insert(at, n)
        tail.input[0] = "shifted"
        path = self.folder / "mean.onnx"
        onnx.save(model, path)
        for options in ((), ("--naive",)):
            self.refused(Run("run", path, "--prompt-ids", "1,2,3", *options), "'att_mask' has no known meaning")

if __name__ == "__main__":
    main()
