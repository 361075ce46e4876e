"""Embeddings and scores of pairs against NumPy, by the files of sentence-transformers: `situ embed`.

    python tests/embed_test.py --situ build/situ [unittest options]
"""
import bz2
import gzip
import json
import lzma
import shutil

import numpy as np
import onnx

import tiny_encoders as tiny
import tiny_exports
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

    def scores(self, w, second, *firsts):
        return np.array([tiny.forward(self.weights, *tiny.ids_of(t, second))[0] @ w for t in firsts])

    def test_activations_of_scores(self):
        """sentence-transformers 6 saves the class in config_sentence_transformers.json, older versions in config.json."""
        one, three = (RNG.standard_normal((tiny.WIDTH, n)).astype(np.float32) for n in (1, 3))
        second, firsts = "the old wall", ("harbour", "the tide")
        sigmoid, softmax = lambda x: 1 / (1 + np.exp(-x)), lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True)
        saved = lambda path, kind="CrossEncoder": {"model_type": kind, "activation_fn": path, "prompts": {}, "default_prompt_name": None}
        identity = "torch.nn.modules.linear.Identity"
        for name, w, prompts, config, f in (
                ("identity", one, saved(identity), {}, lambda x: x), ("sigmoid", three, saved("torch.nn.modules.activation.Sigmoid"), {}, sigmoid),
                ("softmax", three, saved("torch.nn.modules.activation.Softmax"), {}, softmax), ("tanh", one, saved("torch.nn.modules.activation.Tanh"), {}, np.tanh),
                ("none", one, saved(None), {}, sigmoid), ("none3", three, saved(None), {}, lambda x: x),
                ("both", one, saved(identity), {"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Tanh"}}, lambda x: x),
                ("null", one, saved(None), {"sentence_transformers": {"activation_fn": identity}}, lambda x: x),
                ("another class", one, saved(identity, "SentenceTransformer"), {}, sigmoid)):
            with self.subTest(name):
                folder = self.write(name, tiny.encoder(self.weights, labels=w), config=config, prompts=prompts, modules=[])
                want = f(self.scores(w, second, *firsts))
                self.near(self.embed(folder, *firsts, "--pair", second, notes=0)["scores"], want[:, 0] if w is one else want)
        folder = self.write("own", tiny.encoder(self.weights, labels=one), prompts=saved("own.Activation"), modules=[])
        run = Run("embed", folder, "--json", "harbour", "--pair", second)
        self.assertEqual((run.code, "own.Activation" in run.err), (0, True), run)
        self.near(json.loads(run.out)["scores"], sigmoid(self.scores(one, second, "harbour"))[:, 0])
        self.refuse(self.write("unknown", tiny.encoder(self.weights, labels=one), prompts=saved("torch.nn.modules.activation.GLU"), modules=[]), "harbour", "--pair", second,
                    ["config_sentence_transformers.json", "activation_fn", "GLU", "Sigmoid"])

    def test_modular_rerankers(self):
        draw = lambda *shape: RNG.standard_normal(shape).astype(np.float32)
        w1, b1, w2, gamma, beta, half = draw(tiny.WIDTH, tiny.WIDTH), draw(tiny.WIDTH), draw(2, tiny.WIDTH), draw(tiny.WIDTH), draw(tiny.WIDTH), draw(2, tiny.WIDTH)
        dense = lambda i, o, function, **more: {"in_features": i, "out_features": o, "bias": "b" in more, "activation_function": "torch.nn.modules." + function, **{k: v for k, v in more.items() if k != "b"}}
        last = dense(tiny.WIDTH, 2, "linear.Identity", module_input_name="sentence_embedding", module_output_name="scores", use_residual=True)
        modules = [("Pooling", "1_Pooling", {"embedding_dimension": tiny.WIDTH, "pooling_mode": "cls", "include_prompt": True}, None),
                   ("Dense", "2_Dense", dense(tiny.WIDTH, tiny.WIDTH, "activation.SiLU", b=1), {"linear.weight": w1, "linear.bias": b1}),
                   ("LayerNorm", "3_LayerNorm", {"dimension": tiny.WIDTH}, {"norm.weight": gamma, "norm.bias": beta}),
                   ("Dense", "4_Dense", last, {"linear.weight": w2, "residual.weight": half})]
        saved = {"model_type": "CrossEncoder", "activation_fn": "torch.nn.modules.activation.Sigmoid", "prompts": {"q": "query : "}, "default_prompt_name": "q"}
        folder = self.write("m", modules=modules, prompts=saved)
        def score(first, second):
            x = tiny.forward(self.weights, *tiny.ids_of(first, second))[0]
            x = w1 @ x + b1
            x = x / (1 + np.exp(-x))
            x = (x - x.mean()) / np.sqrt(x.var() + 1e-5) * gamma + beta
            return 1 / (1 + np.exp(-(w2 @ x + half @ x)))
        self.near(self.embed(folder, "tide", "harbour", "--pair", "the old wall")["scores"], [score("query : " + t, "the old wall") for t in ("tide", "harbour")])
        self.near(self.embed(folder, "tide", "--prompt", "a ", "--pair", "the old wall")["scores"], [score("a tide", "the old wall")])
        self.refuse(folder, "tide", ["scores pairs"])
        self.refuse(self.write("no scores", modules=modules[:3], prompts=saved), "tide", "--pair", "x", ["CrossEncoder", "scores"])
        self.refuse(self.write("by token", modules=[modules[0], ("Dense", "2_Dense", {**last, "module_input_name": "token_embeddings"}, None)]), "tide", ["2_Dense", "token_embeddings"])
        self.refuse(self.write("from nowhere", modules=[modules[0], ("Dense", "2_Dense", {**last, "use_residual": False, "module_input_name": "other"}, {"linear.weight": w2})]), "tide", "--pair", "x", ["2_Dense", "'other'"])

    def test_decoders_score_by_a_logit(self):
        """LogitScore of a decoder whose logits behind a token are a row of a table."""
        letters = list("abcdefgh<>;01")
        table = RNG.standard_normal((len(letters), len(letters))).astype(np.float32)
        empty = {k: None for k in ("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor")}
        tokenizer = json.dumps({"version": "1.0", "added_tokens": [], **empty, "decoder": {"type": "Fuse"},
                                "model": {"type": "BPE", "vocab": {c: i for i, c in enumerate(letters)}, "merges": [], "unk_token": None, "byte_fallback": False}})
        yes, no = 2, 5
        saved = {"model_type": "CrossEncoder", "activation_fn": "torch.nn.modules.linear.Identity", "prompts": {"p": "gg"}, "default_prompt_name": None}
        message = lambda form: {"transformer_task": "text-generation", "modality_config": {"text": {}, "message": {"method": "forward", "method_output_name": "logits", "format": form}},
                                "processing_kwargs": {"chat_template": {"add_generation_prompt": True}}}
        template = "{% for m in messages %}<{{ m.role[0] }}{{ m.content }}>{% endfor %}{% if add_generation_prompt %};h{% endif %}"
        def write(name, score, bert=None, saved=saved, template=None):
            folder = tiny_exports.write_table_model(table, self.place / name, config={"max_position_embeddings": 12}, modules=[
                {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"},
                {"idx": 1, "name": "1", "path": "1_LogitScore", "type": "sentence_transformers.cross_encoder.modules.logit_score.LogitScore"}],
                config_sentence_transformers=saved, **({"sentence_bert_config": bert} if bert else {}))
            (folder / "tokenizer.json").write_text(tokenizer)
            if template:
                (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
            (folder / "1_LogitScore").mkdir()
            (folder / "1_LogitScore" / "config.json").write_text(json.dumps({"module_input_name": "causal_logits", **score}))
            return folder
        behind = lambda letter: table[letters.index(letter)]
        both = {"true_token_id": yes, "false_token_id": no}
        differences = write("both", both)
        self.near(self.embed(differences, "ab", "d", "--pair", "bc")["scores"], [behind("c")[yes] - behind("c")[no]] * 2)
        self.assertEqual(self.embed(differences, "ab", "--prompt-name", "p", "--pair", "bc")["tokens"], [6])
        self.assertEqual(self.embed(differences, "a" * 30, "--pair", "bc", notes=1)["tokens"], [12])
        self.near(self.embed(write("one", {"true_token_id": yes, "false_token_id": None}), "ab", "--pair", "e")["scores"], [behind("e")[yes]])
        usual = write("usual", both, saved={**saved, "activation_fn": None})
        self.near(self.embed(usual, "ab", "--pair", "e")["scores"], [1 / (1 + np.exp(behind("e")[no] - behind("e")[yes]))])
        talk = write("talk", both, message("flat"), template=template.replace("m.role[0]", "'a' if m.role == 'query' else 'd'"))
        self.near(self.embed(talk, "b", "--pair", "c")["scores"], [behind("h")[yes] - behind("h")[no]])
        self.assertEqual(self.embed(talk, "b", "--pair", "c")["tokens"], [len("<ab><dc>;h")])
        # The end of the template stays where a text is cut: else "c" would be last.
        self.near(self.embed(talk, "b", "--pair", "c" * 30, notes=1)["scores"], [behind("h")[yes] - behind("h")[no]])
        self.refuse(write("silent", both, message("flat"), template="{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}"), "b", "--pair", "c", ["query and document"])
        self.refuse(write("no template", both, message("flat")), "b", "--pair", "c", ["chat template"])
        self.refuse(write("far", {"true_token_id": 99}), "b", "--pair", "c", ["99", "13 logits"])
        self.refuse(write("negative", {"true_token_id": -1}), "b", "--pair", "c", ["true_token_id", "-1"])
        self.refuse(differences, "b", ["scores pairs"])
        self.refuse(tiny_exports.write_table_model(table, self.place / "none"), "b", "--pair", "c", ["LogitScore"])

    def test_sizes(self):
        pool = ("Pooling", "1_Pooling", tiny.pooling("mean_tokens"), None)
        both = [pool, ("Normalize", "2_Normalize", None, None)]
        whole = self.rows("the tide").mean(0)
        take = lambda folder, *more: self.embed(folder, "the tide", *more)["embeddings"][0]
        plain = self.write("plain", modules=[pool])
        self.near(take(plain, "--dimensions", str(tiny.WIDTH)), whole)
        self.refuse(plain, "tide", "--dimensions", "5", ["12", "dimensions is 5"])
        unit_length = self.write("unit", modules=both)
        self.near(take(unit_length, "--dimensions", "5"), unit(whole[:5]))
        for size in ("13", "0"):
            self.refuse(unit_length, "tide", "--dimensions", size, [size])
        listed = self.write("listed", modules=both, config={"matryoshka_dimensions": [4, 8, 12]})
        self.near(take(listed, "--dimensions", "8"), unit(whole[:8]))
        self.refuse(listed, "tide", "--dimensions", "5", ["12", "4, 8"])
        self.near(take(self.write("open", modules=[pool], config={"is_matryoshka": True}), "--dimensions", "5"), unit(whole[:5]))
        cut = self.write("cut", modules=both, prompts={"truncate_dim": 6})
        self.near(take(cut), unit(whole)[:6])  # as encode() gives it
        self.near(take(cut, "--dimensions", "6"), unit(whole[:6]))
        self.near(take(cut, "--dimensions", "12"), unit(whole))
        self.refuse(self.write("wrong", modules=both, config={"matryoshka_dimensions": [0]}), "tide", ["matryoshka_dimensions"])

    def test_no_flag_is_the_mean(self):
        for name, flags, row in (("none", {"pooling_mode_mean_tokens": False}, lambda r: r.mean(0)), ("empty", {}, lambda r: r.mean(0)), ("cls", {"pooling_mode_cls_token": True}, lambda r: r[0])):
            folder = self.write(name, modules=[("Pooling", "1_Pooling", {"word_embedding_dimension": tiny.WIDTH, **flags}, None)])
            self.near(self.embed(folder, "the tide")["embeddings"][0], row(self.rows("the tide")))

    def test_white_space_stays(self):
        folder = self.write()
        file = folder / "tokenizer.json"
        whole = json.loads(file.read_text())
        whole["pre_tokenizer"] = {"type": "Split", "pattern": {"String": " "}, "behavior": "Isolated", "invert": False}
        file.write_text(json.dumps(whole))
        self.assertEqual(self.embed(folder, "tide", " tide ", "  ")["tokens"], [3, 5, 4])

    def test_positions_behind_the_padding(self):
        model = tiny.encoder(self.weights, pad=1)
        folder = self.write("m", model)
        most = tiny.POSITIONS - 2
        text = "the old grey wall " * 9
        self.near(self.embed(folder, text, notes=1)["embeddings"][0], self.rows(text, most=most, first=2).mean(0))
        self.assertEqual(self.embed(folder, text)["tokens"], [most])

    def test_files_of_other_programs(self):
        """Byte order marks are left out, other encodings named; '-' is standard input."""
        folder, lines = self.write(), self.place / "lines.txt"
        want = self.embed(folder, "the tide", "harbour")
        lines.write_bytes(b"\xef\xbb\xbfthe tide\r\nharbour\r\n")
        self.assertEqual(self.embed(folder, "-f", lines), want)
        with open(lines, "rb") as file:
            run = Run("embed", folder, "--json", "-f", "-", stdin=file)
        self.assertEqual((run.code, json.loads(run.out)), (0, want), run)
        (self.place / "m" / "config_sentence_transformers.json").write_bytes(b"\xef\xbb\xbf" + json.dumps({"prompts": {"q": "the "}}).encode())
        self.assertEqual(self.embed(folder, "--prompt-name", "q", "tide")["tokens"], want["tokens"][:1])
        for data, word in (("tide\n".encode("utf-16"), "UTF-16"), ("tide\n".encode("utf-16-be"), "UTF-16BE"), ("tide\n".encode("utf-32"), "UTF-32"), (gzip.compress(b"tide\n"), "gunzip"),
                           (bz2.compress(b"tide\n"), "bunzip2"), (lzma.compress(b"tide\n"), "unxz"), (b"PK\x03\x04rest", "unzip")):
            lines.write_bytes(data)
            self.refuse(folder, "-f", lines, ["lines.txt", word])
            with open(lines, "rb") as file:
                run = Run("embed", folder, "-f", "-", stdin=file)
            self.assertEqual((run.code, "standard input" in run.err, word in run.err), (2, True, True), run)

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
                ("sentence_bert_config.json", lambda c: {"modality_config": {"text": {"method": "forward", "method_output_name": "pooler_output"}}}, ["pooler_output", "modality_config"]),
                ("sentence_bert_config.json", lambda c: {"modality_config": {"message": {"format": "other"}}}, ["modality_config.message.format", "other"]),
                ("sentence_bert_config.json", lambda c: {"processing_kwargs": {"text": {"truncation": "only_first"}}}, ["processing_kwargs.text.truncation", "only_first"]),
                ("1_Pooling/config.json", lambda c: {**c, "pooling_mode": "middle"}, ["pooling_mode", "middle"]),
                ("1_Pooling/config.json", lambda c: {**c, "word_embedding_dimension": 13}, ["word_embedding_dimension", "13", "12"]),
                ("1_Pooling/config.json", lambda c: None, ["1_Pooling/config.json"]),
                ("2_Dense/config.json", lambda c: {**c, "activation_function": "torch.nn.PReLU"}, ["2_Dense", "activation_function", "PReLU", "Mish"]),
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
