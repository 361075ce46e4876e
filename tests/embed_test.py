"""Embeddings and scores of pairs against NumPy, by the files of sentence-transformers: `situ embed`.

    python tests/embed_test.py --situ build/situ [unittest options]
"""
import json
import shutil

import numpy as np
import onnx

import tiny_encoders as tiny
from cli_case import CliTest, Run, main

TEXTS = ["harbour", "the small boats waited for the tide", "", "  a grey cat \u3000\n", "the old wall " * 20]
RNG = np.random.default_rng(7)

def unit(x):
    return x / np.sqrt((x * x).sum())

class EmbedTest(CliTest):
    def setUp(self):
        self.weights = tiny.weights()
        self.model = tiny.encoder(self.weights)
        self.place = self.folder / self.id().rsplit(".", 1)[1]

    def write(self, name="m", model=None, **files):
        return tiny.write(self.place / name, model or self.model, **files)

    def embed(self, folder, *texts, notes=None):
        run = Run("embed", folder, "--json", *texts)
        self.assertEqual((run.code, run.stopped), (0, ""), run)
        self.assertEqual(run.err.count("note:"), notes if notes is not None else run.err.count("note:"), run)
        return json.loads(run.out)

    def rows(self, text, most=tiny.POSITIONS, **how):
        return tiny.forward(self.weights, tiny.ids_of(text, most=most)[0], **how)

    def near(self, got, want, limit=1e-5):
        self.assertEqual(np.shape(got), np.shape(want))
        self.assertLess(np.abs(np.asarray(got) - want).max(), limit)

    def refuse(self, *arguments):
        *command, words = arguments
        run = Run("embed", *command)
        self.assertEqual((run.code, run.out, run.err.count("\n")), (2, "", 1), run)
        for word in words:
            self.assertIn(word, run.err)

    def test_all_poolings_and_layers_side_by_side(self):
        dense, bias = RNG.standard_normal((5, 6 * tiny.WIDTH)).astype(np.float32), RNG.standard_normal(5).astype(np.float32)
        gamma, beta = RNG.standard_normal(5).astype(np.float16), RNG.standard_normal(5).astype(np.float16)
        modes = ("cls_token", "max_tokens", "mean_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
        folder = self.write(modules=[
            ("Pooling", "1_Pooling", tiny.pooling(*modes), None),
            ("Dense", "2_Dense", {"in_features": dense.shape[1], "out_features": 5, "bias": True, "activation_function": "torch.nn.modules.activation.Tanh"}, {"linear.bias": bias, "linear.weight": dense}),
            ("LayerNorm", "3_LayerNorm", {"dimension": 5}, {"norm.weight": gamma, "norm.bias": beta}),
            ("Normalize", "4_Normalize", None, None)], bert={"max_seq_length": 20, "do_lower_case": True})
        made = self.embed(folder, *[t.upper() for t in TEXTS], notes=1)
        self.assertEqual((made["dims"], made["tokens"]), (5, [len(tiny.ids_of(t, most=20)[0]) for t in TEXTS]))
        for text, got in zip(TEXTS, made["embeddings"]):
            r = self.rows(text, most=20)
            n, k = len(r), np.arange(1, len(r) + 1)[:, None]
            x = np.concatenate([r[0], r.max(0), r.mean(0), r.sum(0) / np.sqrt(n), (r * k).sum(0) / k.sum(), r[-1]])
            x = np.tanh(dense @ x + bias)
            self.near(got, unit((x - x.mean()) / np.sqrt(x.var() + 1e-5) * gamma + beta))

    def test_a_text_does_not_depend_on_the_others(self):
        for name, model in (("plain", self.model), ("fused", tiny.encoder(self.weights, fused=True)), ("einsum", tiny.encoder(self.weights, einsum=True))):
            folder = self.write(name, model)
            together = self.embed(folder, *TEXTS)["embeddings"]
            for text, got in zip(TEXTS, together):
                self.near(got, self.rows(text).mean(0))
            self.assertEqual([together[1]], self.embed(folder, TEXTS[1])["embeddings"])

    def test_without_files_decoders_give_the_last_token(self):
        for fused in (False, True):
            folder = self.write(f"fused{fused}", tiny.encoder(self.weights, causal=True, fused=fused, output="output"))
            for text, got in zip(TEXTS, self.embed(folder, *TEXTS)["embeddings"]):
                self.near(got, self.rows(text, causal=True)[-1])

    def test_texts_in_brackets_are_texts(self):
        folder = self.write()
        texts = ["[the , tide]", "[]", "[[harbour]", "tide]", "[CLS]"]
        made = self.embed(folder, *texts)
        self.assertEqual(made["tokens"], [5, 3, 3, 3, 3])
        self.assertEqual([self.embed(folder, t)["tokens"][0] for t in texts[:2]], [5, 3])

    def test_prompts(self):
        folder = self.write(modules=[("Pooling", "1_Pooling", {"embedding_dimension": tiny.WIDTH, "pooling_mode": "mean", "include_prompt": False}, None)],
                            prompts={"prompts": {"q": "query : ", "none": ""}, "default_prompt_name": "q"})
        prompted = self.rows("query : the tide")
        self.near(self.embed(folder, "the tide")["embeddings"][0], prompted[3:].mean(0))
        self.near(self.embed(folder, "the tide", "--prompt-name", "none")["embeddings"][0], self.rows("the tide").mean(0))
        self.near(self.embed(folder, "tide", "--prompt", "the ")["embeddings"][0], self.rows("the tide")[2:].mean(0))
        self.refuse(folder, "tide", "--prompt-name", "doc", ["'doc'", "none, q"])
        lines = self.place / "lines.txt"
        lines.write_text("the tide\r\n\nharbour\n")
        self.assertEqual(self.embed(folder, "-f", lines)["tokens"], [6, 4, 5])
        run = Run("embed", folder, "-f", lines)
        self.assertEqual((run.code, run.out.count("\n")), (0, 3), run)

    def test_pairs(self):
        head = RNG.standard_normal((tiny.WIDTH, 1)).astype(np.float32)
        three = RNG.standard_normal((tiny.WIDTH, 3)).astype(np.float32)
        score = lambda a, b, w: tiny.forward(self.weights, *tiny.ids_of(a, b))[0] @ w
        b = "the cat slept on the old wall"
        sigmoid = lambda x: 1 / (1 + np.exp(-x))
        for name, w, config, f in (("one", head, {}, lambda x: sigmoid(x)[0]), ("identity", head, {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}, lambda x: x[0]),
                                   ("old", head, {"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}, lambda x: x[0]), ("three", three, {}, lambda x: x)):
            folder = self.write(name, tiny.encoder(self.weights, labels=w), config=config)
            got = self.embed(folder, *TEXTS[:3], "--pair", b, notes=0)["scores"]
            self.near(got, [f(score(t, b, w)) for t in TEXTS[:3]])
        self.near(self.embed(folder, "harbour " * 30, "--pair", "the old wall " * 9, notes=1)["scores"], [score("harbour " * 30, "the old wall " * 9, three)])
        self.refuse(folder, "tide", ["--pair"])
        self.refuse(self.write(), "tide", "--pair", b, ["gives embeddings"])

    def test_output_names(self):
        self.refuse(self.write("logits", tiny.encoder(self.weights, output="logits")), "tide", ["logits"])
        for name in ("token_embeddings", "hidden_states", "hidden"):
            self.near(self.embed(self.write(name, tiny.encoder(self.weights, output=name)), "the tide")["embeddings"][0], self.rows("the tide").mean(0))

    def test_operators_of_pictures(self):
        """The first token's row as a picture [1, 3, 2, 2], through pooling, norms and Resize, against their formulas."""
        w = {"words": RNG.standard_normal((len(tiny.WORDS), tiny.WIDTH)).astype(np.float32), **{n: RNG.random(3).astype(np.float32) + 0.5 for n in ("scale", "bias", "mean", "var")}}
        x = w["words"][2].astype(np.float64).reshape(1, 3, 2, 2)
        c = {n: w[n].reshape(1, 3, 1, 1).astype(np.float64) for n in ("scale", "bias", "mean", "var")}
        normed = lambda v, axes: (v - v.mean(axes, keepdims=True)) / np.sqrt(v.var(axes, keepdims=True) + 1e-5)
        line = np.array([[1, 0.75, 0.25, 0], [0, 0.25, 0.75, 1]])
        cases = (("AveragePool", [], {"kernel_shape": [2, 1]}, x.mean(2, keepdims=True)), ("MaxPool", [], {"kernel_shape": [2, 2]}, x.max((2, 3))),
                 ("GlobalAveragePool", [], {}, x.mean((2, 3))), ("GlobalMaxPool", [], {}, x.max((2, 3))),
                 ("BatchNormalization", ["scale", "bias", "mean", "var"], {}, (x - c["mean"]) / np.sqrt(c["var"] + 1e-5) * c["scale"] + c["bias"]),
                 ("GroupNormalization", ["scale", "bias"], {"num_groups": 3}, normed(x, (2, 3)) * c["scale"] + c["bias"]),
                 ("Resize", ["", "sizes"], {"mode": "linear"}, line.T @ x @ line),
                 ("Resize", ["", "sizes"], {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}, x.repeat(2, 2).repeat(2, 3)))
        g = tiny.Writer()
        for name, value in w.items():
            g.const(name, value, np.float32)
        g.const("sizes", [1, 3, 4, 4]), g.const("flat", [1, -1]), g.const("first", 0), g.const("picture", [1, 3, 2, 2])
        g.op("Gather", ["words", "input_ids"], "rows")
        g.op("Gather", ["rows", "first"], "row", axis=1)
        g.op("Reshape", ["row", "picture"], "x")
        for i, (op, more, attributes, _) in enumerate(cases):
            g.op(op, ["x", *([""] if op == "Resize" else []), *more], f"y{i}", **attributes)
            g.op("Reshape", [f"y{i}", "flat"], f"z{i}")
        g.op("Concat", [f"z{i}" for i in range(len(cases))], "sentence_embedding", axis=1)
        graph = onnx.helper.make_graph(g.nodes, "g", [onnx.helper.make_tensor_value_info("input_ids", onnx.TensorProto.INT64, ["b", "s"])],
                                       [onnx.helper.make_tensor_value_info("sentence_embedding", onnx.TensorProto.FLOAT, ["b", "w"])], g.tensors)
        folder = self.write("m", onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10))
        self.near(self.embed(folder, "tide")["embeddings"][0], np.concatenate([want.ravel() for *_, want in cases]))

    def test_damaged_files(self):
        pool = ("Pooling", "1_Pooling", tiny.pooling("mean_tokens"), None)
        settings = {"in_features": tiny.WIDTH, "out_features": 3, "bias": False, "activation_function": "torch.nn.modules.linear.Identity"}
        dense = ("Dense", "2_Dense", settings, {"linear.weight": np.zeros((3, tiny.WIDTH), np.float32)})
        good = self.write("good", modules=[pool, dense], bert={"max_seq_length": 9}, prompts={"prompts": {}})
        self.embed(good, "tide")
        def changed(file, change):
            folder = self.place / "changed"
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(good, folder)
            path = folder / file
            value = change(path.read_bytes() if file.endswith("safetensors") else json.loads(path.read_text()))
            path.unlink() if value is None else path.write_bytes(value if isinstance(value, bytes) else json.dumps(value).encode())
            return folder
        def with_type(kind):
            return lambda m: m[:1] + [{**m[1], "type": kind}] + m[2:]
        for file, change, words in (
                ("modules.json", lambda m: {}, ["not a JSON array"]),
                ("modules.json", lambda m: [], ["0 modules"]),
                ("modules.json", lambda m: b"[{", ["not JSON"]),
                ("modules.json", with_type("sentence_transformers.models.CNN"), ["[1].type", "CNN"]),
                ("modules.json", with_type("own.Thing"), ["[1].type 'own.Thing'"]),
                ("modules.json", lambda m: m[1:], ["[0].type", "first module"]),
                ("modules.json", lambda m: [{**m[0], "path": "../x"}], ["[0].path '../x'"]),
                ("1_Pooling/config.json", lambda c: {**c, "pooling_mode_mean_tokens": "yes"}, ["pooling_mode_mean_tokens", "yes"]),
                ("1_Pooling/config.json", lambda c: {**c, "pooling_mode_mean_tokens": False}, ["none of the pooling modes"]),
                ("1_Pooling/config.json", lambda c: {**c, "pooling_mode": "middle"}, ["pooling_mode", "middle"]),
                ("1_Pooling/config.json", lambda c: {**c, "word_embedding_dimension": 13}, ["word_embedding_dimension", "13", "12"]),
                ("1_Pooling/config.json", lambda c: None, ["1_Pooling/config.json"]),
                ("2_Dense/config.json", lambda c: {**c, "activation_function": "torch.nn.Mish"}, ["2_Dense", "activation_function", "Mish"]),
                ("2_Dense/config.json", lambda c: {**c, "in_features": -1}, ["in_features", "-1"]),
                ("2_Dense/config.json", lambda c: {**c, "in_features": 4}, ["linear.weight", "[3, 12]", "[3, 4]"]),
                ("2_Dense/model.safetensors", lambda b: b[:-1], ["linear.weight", "data_offsets"]),
                ("2_Dense/model.safetensors", lambda b: b"\xff" * 20, ["2_Dense", "header"]),
                ("2_Dense/model.safetensors", lambda b: b[:5], ["2_Dense", "8 bytes"]),
                ("2_Dense/model.safetensors", lambda b: None, ["2_Dense", "model.safetensors"]),
                ("sentence_bert_config.json", lambda c: {"max_seq_length": 0}, ["sentence_bert_config.json", "max_seq_length"]),
                ("sentence_bert_config.json", lambda c: {"max_seq_length": 1}, ["text 1", "at most 1 tokens", "2 are added"]),
                ("config_sentence_transformers.json", lambda c: {"default_prompt_name": "x"}, ["default_prompt_name", "x"]),
                ("config_sentence_transformers.json", lambda c: {"prompts": {"a": 1}}, ["prompts.a"])):
            with self.subTest(file=file, words=words):
                self.refuse(changed(file, change), "tide", words)
        self.refuse(good, ["no text"])
        self.refuse(good, "-f", self.place / "none", ["none"])

    def test_numbers_that_overflow(self):
        model = tiny.encoder({**self.weights, "g1": np.full(tiny.WIDTH, 3e38, np.float32)})
        self.refuse(self.write("m", model, modules=[("Pooling", "1_Pooling", tiny.pooling("mean_sqrt_len_tokens"), None)]), "tide", "the old wall", ["text", "number"])

if __name__ == "__main__":
    main()
