#!/usr/bin/env python3
"""`situ check`: whether a model runs, as what, and if not why: for each class of models, and for what is wrong in each stage.

python tests/check_test.py --situ build/situ [unittest options]
"""
import json
import unittest
from dataclasses import replace

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import decoder_graphs
import tiny_encoders
import tiny_exports
import tiny_models
import tiny_seq2seq
import tiny_speech
import tiny_vision
from cli_case import CliTest, Run, main

FIELDS = {"runs", "as", "reasons", "programs", "states", "recognised", "bytes_copied_per_token_planned", "try", "notes"}
REASON = {"kind", "operator", "domain", "opset", "count", "first_node", "detail"}


def spec(name, module=tiny_models):
    return next(s for s in module.SPECS if s.name == name)


class CheckCase(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.llama = tiny_exports.write_weights(spec("llama"), tiny_models.make_weights(spec("llama"), 1), cls.folder / "llama")
        cls.graph = onnx.load(cls.llama / "model.onnx")

    def check(self, model, *options, code=0):
        run = Run("check", model, "--json=full", *options)
        self.assertEqual((run.code, run.err, run.stopped), (code, "", ""), run)
        facts = json.loads(run.out)
        self.assertEqual(FIELDS - set(facts), set())
        for reason in facts["reasons"]:
            self.assertEqual(set(reason), REASON)
        self.assertEqual(facts["runs"], not facts["reasons"])
        return facts

    def reasons(self, model, *options):
        """[(kind, operator, domain, opset, count, first node, detail)]"""
        return [tuple(r[key] for key in ("kind", "operator", "domain", "opset", "count", "first_node", "detail"))
                for r in self.check(model, *options, code=2)["reasons"]]

    def write(self, change, model=None):
        """The decoder with a change, as a file of its own."""
        graph = onnx.ModelProto()
        graph.CopyFrom(model or self.graph)
        change(graph)
        path = self.folder / (self.id().rsplit(".", 1)[1] + str(len(list(self.folder.iterdir()))) + ".onnx")
        onnx.save(graph, path)
        return path


def add_node(graph, op, name, domain="", behind=None, **attributes):
    """An operator behind the logits, which it hands on."""
    behind = behind or "logits"
    node = next(n for n in graph.graph.node if behind in n.output)
    node.output[list(node.output).index(behind)] = f"before {name}"
    graph.graph.node.append(helper.make_node(op, [f"before {name}"], [behind], name=name, domain=domain, **attributes))


class RunsTest(CheckCase):
    def test_decoder(self):
        facts = self.check(self.llama)
        self.assertEqual((facts["as"], facts["bytes_copied_per_token_planned"], facts["try"]), ("decoder", 0, []))
        inspected = json.loads(Run("inspect", self.llama, "--json").out)
        self.assertEqual(facts["states"], inspected["states"])
        self.assertEqual(facts["recognised"], [f for f in inspected["recognised"]])
        named = lambda programs: [(p["name"], p["kernel_calls"], p["arena_bytes"]) for p in programs]
        self.assertEqual(named(facts["programs"]), named(inspected["module"]["programs"]))

    def test_text(self):
        run = Run("check", self.llama)
        self.assertEqual((run.code, run.err), (0, ""), run)
        self.assertRegex(run.out, r"\ARuns: decoder\n2 programs, 4 states, 0 bytes copied per token\n")

    def test_checkpoints_that_are_no_exports(self):
        for name, line in (("model.safetensors", "optimum-cli export onnx --model FOLDER OUTPUT"), ("pytorch_model.bin", "optimum-cli export onnx --model FOLDER OUTPUT"), ("model.gguf", "GGUF")):
            folder = self.folder / f"checkpoint {name}"
            folder.mkdir()
            (folder / name).write_bytes(b"GGUF\3\0\0\0" * 4)
            for path in (folder, folder / name) if name.endswith("gguf") else (folder,):
                found = self.check(path, code=2)["try"]
                self.assertEqual(len(found), 1, found)
                self.assertIn(line.replace("FOLDER", str(folder)), found[0])
                self.assertIn(f"Try: {found[0]}", Run("check", path).out.splitlines())

    def test_verify(self):
        for model, count in ((self.llama, 4), (self.seq2seq("bart"), 2), (self.encoder(), 3)):
            with self.subTest(model.name):
                facts = self.check(model, "--verify", count)["verify"]
                self.assertEqual((facts["prompts"], facts["ids_equal"]), (count, True))
                self.assertGreater(facts["largest_logit"], 0)
                self.assertLess(facts["largest_difference"], 1e-4 * facts["largest_logit"])

    def test_verify_of_half_precision(self):
        """Both sides compute, and keep states, in float."""
        for name in ("half", "half-inside"):
            half = spec(name)
            facts = self.check(tiny_exports.write_weights(half, tiny_models.make_weights(half, 3), self.folder / name), "--verify")["verify"]
            self.assertEqual((facts["prompts"], facts["ids_equal"]), (4, True))
            self.assertLess(facts["largest_difference"], 1e-4 * facts["largest_logit"])

    def test_verify_with_rounded_activations(self):
        genai = spec("genai-zero-points")
        folder = tiny_exports.write_weights(genai, tiny_models.make_weights(genai, 3), self.folder / "genai")
        file = folder / json.loads((folder / "genai_config.json").read_text())["model"]["decoder"]["filename"]
        graph = onnx.load(file, load_external_data=False)
        products = [n for n in graph.graph.node if n.op_type == "MatMulNBits"]
        for node in products:
            attributes = [a for a in node.attribute if a.name != "accuracy_level"]
            del node.attribute[:]
            node.attribute.extend([*attributes, helper.make_attribute("accuracy_level", 4)])
        onnx.save(graph, file)
        facts = self.check(folder, "--verify")["verify"]
        self.assertEqual((facts["prompts"], facts["ids_equal"]), (4, True))
        self.assertLess(facts["largest_difference"], 1e-4 * facts["largest_logit"])

    def test_verify_of_prompts_whose_parts_count(self):
        """What a graph gives a token follows from the step that it is in: both sides are fed the same ones."""
        longer = lambda g, x: g.op("Add", x, g.op("Cast", g.op("Greater", g.tokens, g.constant(8)), to=TensorProto.FLOAT))
        facts = self.check(decoder_graphs.write(self.folder / "longer.onnx", decoder_graphs.LEARNED, hidden=longer), "--verify", 3)["verify"]
        self.assertEqual((facts["prompts"], facts["ids_equal"]), (3, True))

    def test_verify_of_a_decoder_without_its_head(self):
        """What embeds texts has inputs for a past, which stays empty on both sides."""
        model = onnx.load(self.llama / "model.onnx")
        head = next(n for n in model.graph.node if "logits" in n.output)
        model.graph.node.append(helper.make_node("Identity", [head.input[0]], ["hidden_states"]))
        logits = next(o for o in model.graph.output if o.name == "logits")
        logits.CopyFrom(helper.make_tensor_value_info("hidden_states", TensorProto.FLOAT, ["batch_size", "sequence_length", tiny_models.WIDTH]))
        folder = self.folder / "headless"
        folder.mkdir()
        onnx.save(model, folder / "model.onnx")
        facts = self.check(folder, "--verify", 2)
        self.assertEqual((facts["as"], facts["verify"]["prompts"]), ("embeddings", 2))

    def test_scales_that_are_no_numbers(self):
        genai = spec("genai-zero-points")
        folder = tiny_exports.write_weights(genai, tiny_models.make_weights(genai, 3), self.folder / "scales")
        file = folder / json.loads((folder / "genai_config.json").read_text())["model"]["decoder"]["filename"]
        graph = onnx.load(file)
        scales = next(n for n in graph.graph.node if n.op_type == "MatMulNBits").input[2]
        tensor = next(t for t in graph.graph.initializer if t.name == scales)
        numbers = numpy_helper.to_array(tensor).copy()
        numbers.flat[-1] = np.nan
        tensor.CopyFrom(numpy_helper.from_array(numbers, scales))
        onnx.save(graph, file)
        for command in ("check", "run --prompt-ids 5,6,7"):
            name, *more = command.split()
            run = Run(name, folder, *more)
            self.assertEqual(run.code, 2, run)
        (reason,) = self.reasons(folder)
        self.assertEqual((reason[0], reason[1], reason[6]), ("attribute", "MatMulNBits", f"operand 2 (scales) has nan at element {numbers.size - 1}"))

    def seq2seq(self, name):
        s = replace(spec(name, tiny_seq2seq), layers=1)
        return tiny_seq2seq.write_folder(self.folder / name, tiny_seq2seq.files_of(s, tiny_seq2seq.make_weights(s, 1)), tiny_seq2seq.config(s))

    def encoder(self, name="bert"):
        return tiny_encoders.write(self.folder / name, tiny_encoders.encoder(tiny_encoders.weights()))

    def test_other_classes(self):
        whisper = tiny_speech.write_folder(self.folder / "whisper", tiny_speech.make_weights(1))
        facts = self.check(whisper, "--verify", 1)
        self.assertEqual((facts["as"], facts["verify"]["prompts"]), ("encoder-decoder of arrays", 1))
        vision, w = tiny_vision.Spec("tiny"), tiny_vision.make_weights(1)
        tiny_vision.write_folder(self.folder / "vision", tiny_vision.files_of(vision, w))
        self.assertEqual(self.check(self.folder / "vision")["as"], "decoder with encoders of pictures")
        self.assertEqual(self.check(self.encoder("embed"))["as"], "embeddings")

    def test_a_first_call_beside_a_decoder(self):
        """As transformers' exporter writes them: fixed dims have names of digits, and what a cache knows is an input and an output."""
        folder = self.folder / "exported"
        folder.mkdir()
        model = onnx.ModelProto()
        model.CopyFrom(self.graph)
        for v in list(model.graph.input) + list(model.graph.output):
            dim = v.type.tensor_type.shape.dim[-1]
            if len(v.type.tensor_type.shape.dim) == 4 and dim.dim_value:
                dim.dim_param = str(dim.dim_value)
        for name, values in (("input.window", model.graph.input), ("output.window", model.graph.output)):
            values.append(helper.make_tensor_value_info(name, TensorProto.INT64, []))
        model.graph.node.append(helper.make_node("Identity", ["input.window"], ["output.window"]))
        for name in ("decode", "prefill"):
            onnx.save(model, folder / f"{name}.onnx")
        self.assertEqual(self.check(folder)["states"], self.check(self.llama)["states"])

    def test_configuration_that_differs(self):
        folder = self.folder / "differs"
        folder.mkdir()
        (folder / "model.onnx").symlink_to(self.llama / "model.onnx")
        (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 64, "vocab_size": 100, "num_hidden_layers": 3, "num_attention_heads": 4,
                                                        "num_key_value_heads": 4, "hidden_size": 32, "num_local_experts": 8}))
        notes = "\n".join(self.check(folder)["notes"])
        for words in ("vocabulary of 100", "layers: 3", "key and value heads: 4", "8 experts"):
            self.assertIn(words, notes)


class RefusedTest(CheckCase):
    def test_operators_of_all_kinds_at_once(self):
        def change(graph):
            add_node(graph, "Mystery", "first", "com.microsoft")
            add_node(graph, "Mystery", "second", "com.microsoft")
            add_node(graph, "LSTM", "third")
            next(n for n in graph.graph.node if n.op_type == "MatMul").attribute.append(helper.make_attribute("flavour", 1))
            add_node(graph, "Identity", "own")
            graph.graph.node[-1].attribute.append(helper.make_attribute("__mark", 1))
        opset = self.graph.opset_import[0].version
        found = self.reasons(self.write(change))
        product = next(n.name for n in self.graph.graph.node if n.op_type == "MatMul")
        self.assertEqual(found, [("operator", "LSTM", "ai.onnx", opset, 1, "third", "not supported"),
                                 ("operator", "Mystery", "com.microsoft", 1, 2, "first", "not supported"),
                                 ("attribute", "MatMul", "ai.onnx", opset, 1, product, "attribute flavour is not supported")])

    def test_operands_and_outputs(self):
        def change(graph):
            add_node(graph, "Relu", "more")
            graph.graph.node[-1].input.append("logits scale")
            add_node(graph, "Gelu", "gelu", "com.microsoft")
            graph.graph.node[-1].output.append("more of it")
            graph.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(1, np.float32), "logits scale"))
        found = self.reasons(self.write(change))
        self.assertEqual([r[:3] + r[4:] for r in found],
                         [("attribute", "Relu", "ai.onnx", 1, "more", "operand 1 is not supported: there are 1"),
                          ("attribute", "Gelu", "com.microsoft", 1, "gelu", "output 1 is not supported: there are 1")])

    def test_opset(self):
        def change(graph):
            graph.opset_import[0].version = 28
            add_node(graph, "SpaceToDepth", "second", blocksize=1)
            add_node(graph, "LSTM", "third")
        facts = self.check(self.write(change), code=2)
        kinds = {(r["kind"], r["operator"]) for r in facts["reasons"]}
        self.assertIn(("opset", "SpaceToDepth"), kinds)
        self.assertIn(("operator", "LSTM"), kinds)
        self.assertIn("export with opset 24 or a lower one", facts["try"])

    def test_opset_out_of_range(self):
        path = self.write(lambda g: g.opset_import[0].__setattr__("version", 99))
        (reason,) = self.check(path, code=2)["reasons"]
        self.assertEqual((reason["kind"], reason["operator"], reason["opset"]), ("opset", None, 99))

    def test_shapes_at_once(self):
        def change(graph):
            for i in (1, 2):
                graph.graph.node.append(helper.make_node("MatMul", [f"wrong {i}", f"wrong {i}"], [f"made {i}"], name=f"wrong {i}"))
                graph.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((2, 2 + i), np.float32), f"wrong {i}"))
                graph.graph.node.append(helper.make_node("Relu", [f"made {i}"], [f"in its wake {i}"], name=f"behind {i}"))
                graph.graph.output.append(helper.make_tensor_value_info(f"in its wake {i}", TensorProto.FLOAT, [2, 3]))
        self.assertEqual([(r[0], r[1], r[5]) for r in self.reasons(self.write(change))],
                         [("shape", "MatMul", "wrong 1"), ("shape", "MatMul", "wrong 2")])

    def test_inputs_at_once(self):
        def change(graph):
            for name in ("mystery", "riddle"):
                graph.graph.input.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]))
                add_node(graph, "Mul", name + " node")
                graph.graph.node[-1].input.append(name)
        found = self.reasons(self.write(change))
        self.assertEqual([r[:2] for r in found], [("input", None)] * 2)
        self.assertEqual([r[6] for r in found], [f"input '{n}' has no known meaning" for n in ("mystery", "riddle")])

    def test_weights_of_adapters(self):
        """One reason for all of them, and what to take instead."""
        def change(graph):
            for i, part in enumerate("ABAB"):
                name = f"layers.{i // 2}.lora_{part}.weight"
                graph.graph.input.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]))
                add_node(graph, "Mul", name + " node")
                graph.graph.node[-1].input.append(name)
        facts = self.check(self.write(change), code=2)
        self.assertEqual([r["detail"] for r in facts["reasons"]], ["4 inputs are weights of LoRA adapters, which nothing here gives; first 'layers.0.lora_A.weight'"])
        self.assertIn("merge the adapter into the model before the export", facts["try"][0])

    def test_a_program_of_one_device(self):
        facts = self.check(self.write(lambda g: add_node(g, "EPContext", "npu", "com.microsoft", source="QNN")), code=2)
        self.assertEqual([(r["kind"], r["operator"], r["detail"]) for r in facts["reasons"]], [("operator", "EPContext", "compiled for QNN")])
        self.assertIn("take the export for CPUs", facts["try"][0])

    def test_parts_of_an_export(self):
        """As transformers' exporter writes a model with media: text runs through decode.onnx, where export.json says that the other graphs are its parts."""
        folder = self.folder / "parts"
        folder.mkdir()
        for name in ("decode", "language_model", "lm_head"):
            onnx.save(self.graph, folder / f"{name}.onnx")
        self.assertIn("which of these should run", self.check(folder, code=2)["reasons"][0]["detail"])
        for parts, code in (("decode", "lm_head"), 2), (("decode", "language_model", "lm_head"), 0):
            (folder / "export.json").write_text(json.dumps({"components": {name: {"file": f"{name}.onnx"} for name in parts}}))
            self.check(folder, code=code)

    def test_a_first_call_beside_a_decoder_of_one_token(self):
        """As transformers' exporter writes a decoder: prompts run whole through prefill.onnx, unless it is no call of the same decoder, which is said."""
        def rename(graph, old, new):
            for n in graph.node:
                n.input[:], n.output[:] = ([new if v == old else v for v in names] for names in (n.input, n.output))
            for v in (*graph.input, *graph.output):
                v.name = new if v.name == old else v.name

        def pair(name, tokens=1, change=None):
            folder = self.folder / name
            folder.mkdir()
            (folder / "config.json").write_text(json.dumps({"max_position_embeddings": tiny_models.CONTEXT}))
            for file in ("prefill", "decode"):
                model = onnx.ModelProto()
                model.CopyFrom(self.graph)
                graph, first = model.graph, file == "prefill"
                for v in [v for v in graph.input if v.name.startswith("past_key_values.")]:
                    _, layer, part = v.name.split(".")
                    kept = f"cache.layers.{layer}.{part}s"
                    rename(graph, f"present.{layer}.{part}", kept if first else "output." + kept)
                    if first:
                        dims = [d.dim_value or (1 if i == 0 else 0) for i, d in enumerate(v.type.tensor_type.shape.dim)]
                        graph.initializer.append(numpy_helper.from_array(np.zeros(dims, np.float32), v.name))
                        graph.input.remove(v)
                    else:
                        rename(graph, v.name, "input." + kept)
                if first and change:
                    change(graph)
                if not first and tokens:
                    for v in graph.input:
                        if v.name in ("input_ids", "position_ids"):
                            v.type.tensor_type.shape.dim[1].dim_value = tokens
                onnx.save(model, folder / f"{file}.onnx")
            return folder

        def programs(folder):
            return [p["graph"] for p in json.loads(Run("inspect", folder, "--json").out)["module"]["programs"]]

        def scaled(graph):
            weight = next(t for t in graph.initializer if t.name.endswith("0.o"))
            weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) * np.float32(1.5), weight.name))

        prompt, options = [5, 7, 4, 8, 6, 9, 11], ((), ("--chunk", 2), ("--naive",), ("--beams", 2))
        whole = [self.generate(self.llama, prompt, *o)["output_ids"] for o in options]
        good = pair("pair")
        self.assertEqual(programs(good), ["prefill", "decode"])
        for o, ids in zip(options, whole):
            got = self.generate(good, prompt, *o)
            self.assertEqual((got["output_ids"], got["bytes_copied_per_token"] * (o != ("--naive",))), (ids, 0), o)
        self.assertEqual(self.check(good)["notes"], [])
        # A decoder of any number of tokens needs no other graph; it is used where the other is none of the same decoder.
        self.assertEqual((programs(pair("any", tokens=0)), self.check(self.folder / "any")["notes"]), (["decode", "decode"], []))
        other = pair("other", change=scaled)
        self.assertEqual(programs(other), ["decode", "decode"])
        notes = self.check(other)["notes"]
        self.assertEqual(len(notes), 1)
        self.assertRegex(notes[0], r"^prefill\.onnx is not used, and decode\.onnx takes prompts: .*prefill\.onnx and decode\.onnx are not two calls of one decoder")
        run = Run("run", other, "--prompt-ids", ",".join(map(str, prompt)), "-n", 12, "--ignore-eos", "--json")
        self.assertEqual((json.loads(run.out)["output_ids"], "prefill.onnx is not used" in run.err), (whole[0][:12], True), run)

    def test_folders_inside_of_a_folder(self):
        """The only model below runs; of several each is named; links and hidden folders are left alone."""
        out = self.folder / "converted"
        for below, count in (("model", 1), ("cpu/int4", 2)):
            (out / below).mkdir(parents=True)
            (out / ".cache").mkdir(exist_ok=True)
            for place in (out / below, out / ".cache"):
                onnx.save(self.graph, place / "model.onnx")
            if not (out / "again").exists():
                (out / "again").symlink_to(out / "model")
            facts = self.check(out, code=0 if count == 1 else 2)
        self.assertEqual([r["detail"] for r in facts["reasons"]], [f"{out}: which of these folders should run? Name one: {out / 'cpu/int4'}, {out / 'model'}"])

    def test_steps_of_two_tokens(self):
        def change(graph):
            next(v for v in graph.graph.input if v.name == "input_ids").type.tensor_type.shape.dim[1].dim_value = 2
        self.assertIn("takes 2 tokens in every step", self.reasons(self.write(change))[0][-1])

    def test_states(self):
        def change(graph):
            for output in [v for v in graph.graph.output if v.name.startswith("present.0")]:
                graph.graph.output.remove(output)
        found = self.reasons(self.write(change))
        self.assertEqual([r[:2] for r in found], [("state", None)] * 2)

    def test_no_cache(self):
        def change(graph):
            for output in [v for v in graph.graph.output if v.name != "logits"]:
                graph.graph.output.remove(output)
            for given in [v for v in graph.graph.input if v.name.startswith("past")]:
                graph.graph.input.remove(given)
                graph.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros((1, 2, 0, 8), np.float32), given.name))
        facts = self.check(self.write(change), code=2)
        self.assertEqual(facts["reasons"][0]["kind"], "state", facts["reasons"])
        self.assertIn("with a cache", facts["try"][0])

    def test_files_at_once(self):
        s = replace(spec("bart", tiny_seq2seq), layers=1)
        folder = tiny_seq2seq.write_folder(self.folder / "broken", tiny_seq2seq.files_of(s, tiny_seq2seq.make_weights(s, 1)), tiny_seq2seq.config(s))
        for file in folder.glob("*.onnx"):
            file.write_bytes(file.read_bytes()[:1000])
        self.assertEqual([r[0] for r in self.reasons(folder)], ["file"] * 2)
        (reason,) = self.reasons(self.folder / "not there")
        self.assertEqual(reason[0], "file")

    def test_operators_of_every_file(self):
        s = replace(spec("bart", tiny_seq2seq), layers=1)
        files = tiny_seq2seq.files_of(s, tiny_seq2seq.make_weights(s, 1))
        for name, op in (("encoder_model.onnx", "LSTM"), ("decoder_model_merged.onnx", "GRU")):
            graph = files[name].graph
            add_node(files[name], op, "odd", behind=graph.output[0].name)
        folder = tiny_seq2seq.write_folder(self.folder / "odd", files, tiny_seq2seq.config(s))
        self.assertEqual({r[:2] for r in self.reasons(folder)}, {("operator", "LSTM"), ("operator", "GRU")})

    def test_size(self):
        gpt = spec("gpt")  # a table of 64 positions
        folder = tiny_exports.write_weights(gpt, tiny_models.make_weights(gpt, 1), self.folder / "gpt")
        facts = self.check(folder, "--context", 1000, code=2)
        self.assertEqual([r["kind"] for r in facts["reasons"]], ["size"])
        self.assertEqual(facts["try"], ["--context 62"])

    def test_sequences(self):
        path = self.write(lambda g: g.graph.input.append(helper.make_tensor_sequence_value_info("list", TensorProto.FLOAT, None)))
        self.assertEqual([r[:2] for r in self.reasons(path)], [("input", None)])

    def test_encoder_of_pictures(self):
        files = tiny_vision.files_of(tiny_vision.Spec("tiny"), tiny_vision.make_weights(1))
        add_node(files["vision_encoder.onnx"], "LSTM", "odd", behind=files["vision_encoder.onnx"].graph.output[0].name)
        tiny_vision.write_folder(self.folder / "odd pictures", files)
        self.assertEqual([r[:2] for r in self.reasons(self.folder / "odd pictures")], [("operator", "LSTM")])

    def test_another_variant(self):
        folder = self.folder / "variants"
        folder.mkdir()
        (folder / "model_fp16.onnx").symlink_to(self.llama / "model.onnx")
        for variant in ("_q4", "_int8"):
            (folder / f"model{variant}.onnx").symlink_to(self.write(lambda g: add_node(g, "Mystery", "odd", "com.microsoft")))
        self.assertEqual(self.check(folder, "--variant", "q4", code=2)["try"], ["--variant fp16"])

    def test_text(self):
        run = Run("check", self.write(lambda g: add_node(g, "Mystery", "odd", "com.microsoft")))
        self.assertEqual((run.code, run.err), (2, ""), run)
        self.assertIn("Does not run", run.out)
        self.assertIn("com.microsoft.Mystery (opset 1): not supported; 1 node 'odd'", run.out)

    def test_arguments(self):
        self.refused(Run("check"), "model")
        self.refused(Run("check", self.llama, "--verify", "0"), "--verify")
        self.refused(Run("check", self.llama, "--verify", "many"), "--verify")


if __name__ == "__main__":
    main()
