"""Encoder-decoders on the command line: against the NumPy oracle of tiny_seq2seq.py, against recorded answers, and bad input.

    python tests/encoder_decoder_test.py --situ build/situ [unittest options]

Recorded answers: models in ../shared, and the folder that SITU_EXPORTS names (tests/exports/make.sh fills it).
"""
import json
import os
import shutil
import unittest
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

import golden
import tiny_exports
import tiny_models
import tiny_seq2seq as tiny
from cli_case import CliTest, Run, main
from sweep import some
from tiny_seq2seq import CONTEXT, NEW_TOKENS, SOURCE, SPECS, START, VOCABULARY, WIDTH, Spec

SPEC = {s.name: s for s in SPECS}
EXPORTS = os.environ.get("SITU_EXPORTS")


def comma(ids):
    return ",".join(map(str, ids))


class EncoderDecoderCase(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.pool = ThreadPoolExecutor(os.cpu_count())
        cls.oracles = {}

    def oracle(self, spec):
        """One for all specs with the same weights."""
        key = spec.positions, spec.norm, spec.source, spec.layers, spec.normed
        if key not in self.oracles:
            self.oracles[key] = tiny.choose_weights(spec)
        return self.oracles[key]

    def model(self, spec, change=None, settings={}):
        """The folder of a model, written once where nothing is changed. change(files): the graphs by file name."""
        folder = self.folder / (spec.name if not change and not settings else self.id() + spec.name)
        if change or settings or not folder.exists():
            files = tiny.files_of(spec, self.oracle(spec).w)
            if change:
                change(files)
            shutil.rmtree(folder, ignore_errors=True)
            tiny.write_folder(folder, files, {**tiny.config(spec), **settings})
        return folder

    def source(self, spec, source):
        """The options that hand a source to the encoder."""
        if spec.source == "ids":
            return ["--prompt-ids", comma(source)]
        file = self.folder / f"{spec.source}{source.shape[1]}.npy"
        np.save(file, source)
        return ["--encoder-input", f"input_features={file}"]

    def answer(self, folder, *options, count=NEW_TOKENS):
        """The object that --json prints."""
        threads = () if "--threads" in options else ("--threads", 1)
        run = Run("run", folder, "-n", count, "--ignore-eos", "--json", *threads, *options)
        self.assertEqual((run.code, run.err), (0, ""), run)
        return json.loads(run.out)

    def answers(self, *asked):
        """Several answers at the same time."""
        return list(self.pool.map(lambda options: self.answer(*options), asked))

    def check(self, placed, naive, ids):
        """Both modes give these ids; in place without a copied byte, as a host would run the files with some."""
        self.assertEqual(placed["output_ids"], ids)
        self.assertEqual(naive["output_ids"], ids)
        self.assertEqual(placed["bytes_copied_per_token"], 0)
        self.assertGreater(naive["bytes_copied_per_token"], 0)


class OracleTest(EncoderDecoderCase):
    def test_greedy_and_beams(self):
        for spec in SPECS:
            with self.subTest(spec.name):
                source, oracle = tiny.source_of(spec), self.oracle(spec)
                folder, given = self.model(spec), self.source(spec, source)
                placed, naive, beams, naive_beams = self.answers(
                    (folder, *given), (folder, *given, "--naive"), (folder, *given, "--beams", 3), (folder, *given, "--beams", 3, "--naive"))
                self.check(placed, naive, oracle.greedy(source)[0])
                self.check(beams, naive_beams, oracle.beams(source, 3)[0])

    def test_sources_of_other_lengths(self):
        """The same file takes a source of one token and one as long as the table of positions; and where there is none, an array that
        becomes many more rows than the context has tokens."""
        for name, lengths in {"bart": (1, 2, CONTEXT), "t5-pair": (1, 2, CONTEXT), "layers-t5": (1, CONTEXT), "features": (1, 3, CONTEXT), "halves": (2, 50, 1000)}.items():
            spec = SPEC[name]
            for length in some(lengths, 2):
                with self.subTest(name, length=length):
                    rng = np.random.default_rng(length)
                    source = rng.integers(3, VOCABULARY, length).tolist() if spec.source == "ids" else tiny.source_of(spec, length)
                    folder, given = self.model(spec), self.source(spec, source)
                    ids, margin = self.oracle(spec).greedy(source)
                    self.assertGreater(margin, 1e-4, "the answer is not clear")
                    self.check(*self.answers((folder, *given), (folder, *given, "--naive")), ids)

    def test_arrays_of_which_several_lengths_make_as_many_rows(self):
        """Frames become rows, and the decoder takes the mask of the frames: given as an array, or ones of the array's length."""
        mask = self.folder / "mask.npy"
        for name in ("frames", "frames-count"):
            spec = SPEC[name]
            folder, oracle = self.model(spec), self.oracle(spec)
            for frames in some((1, 2, tiny.STRIDE, tiny.STRIDE + 1, 57, 58, 60, tiny.STRIDE * CONTEXT), 3):
                with self.subTest(name, frames=frames):
                    source = np.random.default_rng(frames).standard_normal((1, frames, tiny.FEATURES)).astype(np.float32)
                    given, (ids, margin) = self.source(spec, source), oracle.greedy(source)
                    self.assertGreater(margin, 1e-4, "the answer is not clear")
                    np.save(mask, np.ones((1, frames), np.int64))
                    masked = [*given, "--encoder-input", f"attention_mask={mask}"]
                    for more in (given, masked):
                        self.check(*self.answers((folder, *more), (folder, *more, "--naive")), ids)

    def test_types_of_tokens(self):
        """An input of the encoder that tells which of two texts a token is of: zeros, the first, where no array gives it."""
        def typed(files):
            m, name = files["encoder_model.onnx"], "token_type_ids"
            lookup = next(n for n in m.graph.node if n.op_type == "Gather" and "input_ids" in n.input)
            known, lookup.output[0] = lookup.output[0], "of words"
            m.graph.initializer.append(onnx.numpy_helper.from_array(np.array([np.zeros(tiny.WIDTH), np.sin(np.arange(tiny.WIDTH)) * 4], np.float32), "types"))
            m.graph.node.insert(list(m.graph.node).index(lookup) + 1, onnx.helper.make_node("Gather", ["types", name], ["of types"]))
            m.graph.node.insert(list(m.graph.node).index(lookup) + 2, onnx.helper.make_node("Add", ["of words", "of types"], [known]))
            ids = next(v for v in m.graph.input if v.name == "input_ids")
            m.graph.input.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT64, [d.dim_param for d in ids.type.tensor_type.shape.dim]))
        spec, arrays = SPEC["bart"], {}
        folder, given = self.model(spec, typed), self.source(spec, tiny.SOURCE)
        for name, types in (("first", [0] * 7), ("mixed", [0, 0, 0, 1, 1, 1, 1]), ("short", [0, 1])):
            np.save(self.folder / f"{name}.npy", np.array([types], np.int64))
            arrays[name] = [*given, "--encoder-input", f"token_type_ids={self.folder / f'{name}.npy'}"]
        asked = [(folder, *options, *naive) for options in (given, arrays["first"], arrays["mixed"]) for naive in ((), ("--naive",))]
        *zeros, mixed, naive = (a["output_ids"] for a in self.answers(*asked))
        self.assertEqual(zeros, [self.oracle(spec).greedy(tiny.SOURCE)[0]] * 4)
        self.assertEqual(mixed, naive)
        self.assertNotEqual(mixed, zeros[0])
        self.refused(Run("run", folder, *arrays["short"]), "token_type_ids", "[1, 2]", "7 tokens")

    def test_a_decoder_that_hangs_on_the_number_of_frames(self):
        """Beside the rows that they become: refused in place, run literally with the array's own length."""
        spec = Spec("leftover", source="frames", chosen="leftover")
        folder, source = self.model(spec), tiny.source_of(spec)
        options = self.source(spec, source)
        self.refused(Run("run", folder, "-n", 2, *options), "frames", "rows", "masks")
        whole = np.resize(source, (1, 8 * tiny.STRIDE, tiny.FEATURES))
        ids = self.oracle(spec).greedy(whole)[0]
        self.assertEqual(self.answer(folder, *self.source(spec, whole), "--naive")["output_ids"], ids)
        self.assertNotEqual(self.answer(folder, *options, "--naive")["output_ids"], self.oracle(spec).greedy(source)[0])

    def test_what_inspect_says_of_an_encoder_that_is_compiled_later(self):
        for name, later in {"features": True, "bart": False}.items():
            with self.subTest(name):
                text, facts = (Run("inspect", self.model(SPEC[name]), *more) for more in ((), ("--json",)))
                self.assertEqual((text.code, facts.code), (0, 0), text)
                self.assertEqual(json.loads(facts.out)["compiled later"], ["encode"] if later else [])
                self.assertEqual("the encoder: it is compiled when its arrays come" in text.out, later)
                self.assertEqual("\nCopied: nothing\n" in text.out, not later)

    def test_prompts_of_the_decoder_in_chunks(self):
        rng = np.random.default_rng(4)
        cases = [(name, length) for name in ("bart", "t5", "bart-pair", "layers-flag", "features") for length in (17, 1, 2)]
        for name, length in some(cases, 2):
            spec = SPEC[name]
            source, folder = tiny.source_of(spec), self.model(spec)
            prompt = [START, *rng.integers(3, VOCABULARY, length - 1).tolist()]
            with self.subTest(name, length=length):
                given = [*self.source(spec, source), "--decoder-prompt-ids", comma(prompt)]
                asked = [(folder, *given, *more) for more in ((), ("--chunk", 1), ("--chunk", 5), ("--naive",))]
                *placed, naive = self.answers(*asked)
                ids, _ = self.oracle(spec).greedy(source, prompt)
                for p in placed:
                    self.assertEqual(p["decoder_prompt_ids"], prompt)
                    self.check(p, naive, ids)

    def test_prompt_ids_are_the_decoders_where_the_encoder_takes_arrays(self):
        spec, prompt = SPEC["features"], [START, 9, 30]
        source = tiny.source_of(spec)
        answer = self.answer(self.model(spec), *self.source(spec, source), "--prompt-ids", comma(prompt))
        self.assertEqual(answer["output_ids"], self.oracle(spec).greedy(source, prompt)[0])

    def test_what_json_says(self):
        placed, naive = self.answers(*((self.model(SPEC["bart"]), "--prompt-ids", comma(SOURCE), *more) for more in ((), ("--naive",))))
        for answer in (placed, naive):
            self.assertEqual((answer["prompt_ids"], answer["decoder_prompt_ids"]), (SOURCE, [START]))
            self.assertGreater(answer["encode_ms"], 0)
            self.assertGreater(answer["prefill_ms"], 0)

    def test_the_start_token_of_generation_config_comes_first(self):
        folder = self.model(SPEC["bart"], settings={"decoder_start_token_id": 7})
        (folder / "generation_config.json").write_text(json.dumps({"decoder_start_token_id": 11, "eos_token_id": 1}))
        answer = self.answer(folder, "--prompt-ids", comma(SOURCE))
        self.assertEqual(answer["decoder_prompt_ids"], [11])
        self.assertEqual(answer["output_ids"], self.oracle(SPEC["bart"]).greedy(SOURCE, [11])[0])

    def test_a_forced_first_token_is_part_of_the_answer(self):
        folder = self.model(SPEC["bart"], settings={"forced_bos_token_id": 19})
        answer = self.answer(folder, "--prompt-ids", comma(SOURCE))
        self.assertEqual(answer["output_ids"], [19, *self.oracle(SPEC["bart"]).greedy(SOURCE, [START, 19], NEW_TOKENS - 1)[0]])

    def test_the_file_says_how_many_beams(self):
        spec = SPEC["bart"]
        folder = self.model(spec, settings={})
        own = self.folder / "beams"
        shutil.copytree(folder, own, dirs_exist_ok=True)
        (own / "generation_config.json").write_text(json.dumps({"num_beams": 3, "decoder_start_token_id": START}))
        oracle, given = self.oracle(spec), ["--prompt-ids", comma(SOURCE)]
        self.assertEqual(self.answer(own, *given)["output_ids"], oracle.beams(SOURCE, 3)[0])
        self.assertEqual(self.answer(own, *given, "--beams", 1)["output_ids"], oracle.greedy(SOURCE)[0])

    def test_numbers_of_rows_that_are_only_declared(self):
        """Those of one example: of the encoder's output, of keys and values of it, of its mask."""
        def declare(files):
            for name, graph in files.items():
                for v in graph.graph.input if "decoder" in name else graph.graph.output:
                    dims = v.type.tensor_type.shape.dim
                    axis = {"encoder_hidden_states": 1, "last_hidden_state": 1, "encoder_attention_mask": 1}.get(v.name, 2 if ".encoder." in v.name else None)
                    if axis is not None:
                        dims[axis].dim_value = 4
        for name in ("bart", "t5", "bart-pair", "layers-flag", "features"):
            spec = SPEC[name]
            source = tiny.source_of(spec)
            folder, given = self.model(spec, declare), self.source(spec, source)
            with self.subTest(name):
                self.check(*self.answers((folder, *given), (folder, *given, "--naive")), self.oracle(spec).greedy(source)[0])

    def test_an_encoder_that_does_not_say_what_it_returns(self):
        """Dims without a name, and no shape at all."""
        for name in ("bart", "bart-pair", "layers-flag"):
            for whole in (False, True):
                def forget(files):
                    for v in files["encoder_model.onnx"].graph.output:
                        if whole:
                            v.type.tensor_type.ClearField("shape")
                        else:
                            for d in v.type.tensor_type.shape.dim:
                                d.Clear()
                with self.subTest(name, whole=whole):
                    folder, source = self.model(SPEC[name], forget), tiny.source_of(SPEC[name])
                    given = folder, *self.source(SPEC[name], source)
                    self.check(*self.answers(given, (*given, "--naive")), self.oracle(SPEC[name]).greedy(source)[0])

    def test_root_and_onnx_are_equal_places(self):
        folder = self.model(SPEC["t5"])
        own = self.folder / "places"
        (own / "onnx").mkdir(parents=True)
        for file in folder.iterdir():
            shutil.copy(file, own / "onnx" / file.name if file.name == "encoder_model.onnx" else own / file.name)
        self.assertEqual(self.answer(own, "--prompt-ids", comma(SOURCE))["output_ids"], self.oracle(SPEC["t5"]).greedy(SOURCE)[0])


    def test_a_pair_whose_halves_are_rounded_at_other_places(self):
        """As where an optimiser fused other operators in one of the files."""
        def round_before_logits(files):
            graph = files["decoder_with_past_model.onnx"].graph
            last = next(i for i, n in enumerate(graph.node) if "logits" in n.output)
            x = graph.node[last].input[0]
            for i, (a, b, type) in enumerate(((x, "half", onnx.TensorProto.FLOAT16), ("half", "rounded", onnx.TensorProto.FLOAT))):
                graph.node.insert(last + i, onnx.helper.make_node("Cast", [a], [b], to=type))
            graph.node[last + 2].input[0] = "rounded"
        def append_halves(files):
            graph, nodes = files["decoder_with_past_model.onnx"].graph, []
            for n in graph.node:
                if n.op_type == "Concat" and n.output[0].startswith("present"):
                    for i, x in enumerate(n.input):
                        nodes.append(onnx.helper.make_node("Cast", [x], [f"{n.output[0]}.half.{i}"], to=onnx.TensorProto.FLOAT16))
                        n.input[i] = nodes[-1].output[0]
                    present, n.output[0] = n.output[0], n.output[0] + ".half"
                    nodes += [n, onnx.helper.make_node("Cast", [n.output[0]], [present], to=onnx.TensorProto.FLOAT)]
                else:
                    nodes.append(n)
            nodes = [onnx.NodeProto.FromString(n.SerializeToString()) for n in nodes]
            del graph.node[:]
            graph.node.extend(nodes)
        for change in (round_before_logits, append_halves):
            with self.subTest(change.__name__):
                self.assertEqual(self.answer(self.model(SPEC["bart-pair"], change), "--prompt-ids", comma(SOURCE))["output_ids"],
                                 self.oracle(SPEC["bart-pair"]).greedy(SOURCE)[0])

    def test_a_pair_holds_its_weights_once(self):
        """Peak memory with two matrices more, that both files of a pair hold: it grows as with one file that holds them."""
        wide = 1 << 18
        mib = 2 * 4 * WIDTH * wide >> 20
        matrices = {name: np.resize(np.random.default_rng(0).standard_normal(9973).astype(np.float32) / wide, shape)
                    for name, shape in (("widen", (WIDTH, wide)), ("narrow", (wide, WIDTH)))}

        def grow(files):
            for name in files.keys() - {"encoder_model.onnx"}:
                graph = files[name].graph
                graph.initializer.extend(numpy_helper.from_array(array, n) for n, array in matrices.items())
                last = next(i for i, n in enumerate(graph.node) if "logits" in n.output)
                x = graph.node[last].input[0]
                nodes = [onnx.helper.make_node("MatMul", [x, "widen"], ["wide"]), onnx.helper.make_node("MatMul", ["wide", "narrow"], ["more"]),
                         onnx.helper.make_node("Add", [x, "more"], ["sum"])]
                graph.node[last].input[0] = "sum"
                for i, node in enumerate(nodes):
                    graph.node.insert(last + i, node)

        grown = {}
        for name in ("layers-flag", "bart-pair"):
            small, large = (self.answer(self.model(SPEC[name], change), "--prompt-ids", comma(SOURCE)) for change in (None, grow))
            self.assertEqual(large["output_ids"], small["output_ids"])
            grown[name] = large["peak_rss_mib"] - small["peak_rss_mib"]
        self.assertGreater(grown["layers-flag"], 0.9 * mib)
        self.assertLess(grown["bart-pair"] - grown["layers-flag"], 0.2 * mib)


class RecordedTest(EncoderDecoderCase):
    def check_folder(self, folder):
        cases = golden.read_cases(folder)
        asked = [(c, beams) for c in cases for beams in (1, 3) if beams == 1 or c.beams]
        runs = [(c, beams, *(self.pool.submit(Run, "run", *c.arguments(beams), "--threads", 1, *more) for more in ((), ("--naive",)))) for c, beams in asked]
        for case, beams, *both in runs:
            for naive, run in enumerate(r.result() for r in both):
                with self.subTest(folder.name, case=case.number, beams=beams, naive=bool(naive)):
                    self.assertEqual((run.code, run.err), (0, ""), run)
                    answer = json.loads(run.out)
                    self.assertTrue(case.holds(answer["output_ids"], beams), f"{answer['output_ids']}: not {case.greedy if beams == 1 else case.beams}")
                    self.assertEqual(answer["bytes_copied_per_token"] > 0, bool(naive), answer["bytes_copied_per_token"])
        self.assertTrue(runs, f"{folder} has no cases")

    @unittest.skipUnless((golden.SHARED / "tiny").is_dir(), f"{golden.SHARED} is not there")
    def test_models_of_shared(self):
        names = ("vlm/trocr", "tiny/t5", "tiny/bart", "vlm/moonshine", "tiny/marian", "styles/condflag-handcross", "styles/ortO3-t5",
                 "styles/optimum-whisper", "styles/ortO2-whisper")  # baseline_ids_test has all but the first and the fourth
        found = [golden.SHARED / name for name in names if (golden.SHARED / name).is_dir()]
        self.assertGreater(len(found), 3)
        for folder in some(found, 3):
            self.check_folder(folder)

    @unittest.skipUnless(EXPORTS, "SITU_EXPORTS is not set: tests/exports/make.sh OUT makes the folder that it names")
    def test_exports(self):
        folders = sorted(f.parent for f in Path(EXPORTS).glob("*/expected.json"))
        self.assertTrue(folders, f"SITU_EXPORTS={EXPORTS} holds no exports")
        for folder in folders:
            self.check_folder(folder)
            self.check_more(folder)

    def check_more(self, folder):
        """Longer prompts of the decoder, and answers by the settings of the files alone: those end with an end-of-sequence id."""
        more = json.loads((folder / "expected.json").read_text())
        for number, case in enumerate(more.get("decoder_prompt_cases", [])):
            with self.subTest(folder.name, decoder_prompt_case=number):
                options = ["--prompt-ids", comma(case["input_ids"]), "--decoder-prompt-ids", comma(case["decoder_input_ids"]), "--beams", 1]
                self.assertEqual(self.answer(folder, *options, count=len(case["greedy_ids"]))["output_ids"], case["greedy_ids"])
        for number, case in enumerate(more.get("default_cases", [])):
            with self.subTest(folder.name, default_case=number):
                # transformers ends after 20 tokens where nothing is said; here 128 is the default.
                run = Run("run", folder, "-n", 19, "--prompt-ids", comma(case["input_ids"]), "--json")
                self.assertEqual((run.code, run.err), (0, ""), run)
                answer = json.loads(run.out)
                end = case["greedy_ids"][len(answer["output_ids"]):]
                self.assertEqual(answer["output_ids"] + end, case["greedy_ids"])
                self.assertEqual(bool(end), answer["finish_reason"] == "stop", answer["finish_reason"])


class BadInputTest(EncoderDecoderCase):
    def refuse(self, folder, *words, options=("--prompt-ids", comma(SOURCE)), count=NEW_TOKENS):
        """In place and naive."""
        for mode in ((), ("--naive",)):
            self.refused(Run("run", folder, "-n", count, "--ignore-eos", "--json", *options, *mode), *words)

    def test_no_encoder(self):
        for name in ("bart", "bart-pair", "layers-flag", "features"):
            with self.subTest(name):
                self.refuse(self.model(SPEC[name], lambda files: files.pop("encoder_model.onnx")), "encoder", options=self.source(SPEC[name], tiny.source_of(SPEC[name])))

    def test_no_decoder(self):
        self.refuse(self.model(SPEC["bart"], lambda files: files.pop("decoder_model_merged.onnx")), "decoder")
        self.refuse(self.model(SPEC["bart-pair"], lambda files: files.pop("decoder_model.onnx")), "decoder")

    def test_two_encoders(self):
        folder = self.model(SPEC["bart"], settings={"copied": 1})
        (folder / "onnx").mkdir()
        shutil.copy(folder / "encoder_model.onnx", folder / "onnx")
        self.refuse(folder, "twice", "encoder_model")

    def test_variants_without_a_choice(self):
        folder = self.model(SPEC["bart"], settings={"copied": 2})
        shutil.copy(folder / "encoder_model.onnx", folder / "encoder_model_fp16.onnx")
        (folder / "encoder_model.onnx").rename(folder / "encoder_model_q4.onnx")
        self.refuse(folder, "encoder_model", "fp16", "q4", "--variant")
        self.answer(folder, "--prompt-ids", comma(SOURCE), "--variant", "encoder_model=q4")

    def test_an_encoder_of_another_width(self):
        def widen(files):
            graph = files["encoder_model.onnx"].graph
            last = next(n for n in graph.node if "last_hidden_state" in n.output)
            last.output[0] = "narrow"
            graph.node.append(onnx.helper.make_node("Concat", ["narrow", "narrow"], ["last_hidden_state"], name="wide", axis=2))
            graph.output[0].type.tensor_type.shape.dim[2].dim_value = 2 * WIDTH
        for name in ("bart", "t5-pair", "layers-flag"):
            with self.subTest(name):
                self.refuse(self.model(SPEC[name], widen), 2 * WIDTH, WIDTH, "encoder_hidden_states", "encoder_model.onnx")

    def test_a_pair_with_different_weights(self):
        def change(files):
            graph = files["decoder_with_past_model.onnx"].graph
            table = next(t for t in graph.initializer if t.name == "decoder.0.self.q")
            table.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(table) * np.float32(1.5), table.name))
        self.refuse(self.model(SPEC["bart-pair"], change), "decoder_model.onnx", "decoder_with_past_model.onnx")

    def test_a_pair_whose_first_graph_has_no_symbol_left(self):
        """The source's rows, whose extents the other file calls by other names, would be one more."""
        def fill(files):
            for v in files["decoder_with_past_model.onnx"].graph.input:
                for d in v.type.tensor_type.shape.dim:
                    if d.dim_param:
                        d.dim_param = f"cached_{d.dim_param}"
            graph = files["decoder_model.onnx"].graph
            known = {d.dim_param for v in graph.input for d in v.type.tensor_type.shape.dim if d.dim_param}
            names = [f"n{i}" for i in range(4096 - len(known))]
            for i in range(0, len(names), 8):
                graph.input.append(onnx.helper.make_tensor_value_info(f"unused_{i}", onnx.TensorProto.INT64, names[i:i + 8]))
        self.refuse(self.model(SPEC["bart-pair"], fill), "decoder_model.onnx", "one more symbol", 4096)

    def test_a_pair_with_a_parameter_that_differs_a_little(self):
        """Less than answers show: the name says that it is one. Names that exporters number say nothing."""
        def pair(name, array, other):
            def change(files):
                for file, numbers in (("decoder_model.onnx", array), ("decoder_with_past_model.onnx", other)):
                    files[file].graph.initializer.append(numpy_helper.from_array(numbers, name))
                    graph = files[file].graph
                    last = next(i for i, n in enumerate(graph.node) if "logits" in n.output)
                    graph.node[last].output[0] = "less"
                    nodes = [onnx.helper.make_node("ReduceMean", [name], ["mean"], keepdims=0), onnx.helper.make_node("Add", ["less", "mean"], ["logits"])]
                    for i, node in enumerate(nodes):
                        graph.node.insert(last + 1 + i, node)
            return change
        for shape in ((4, 8), (128, 256)):  # compared by itself, or where constants are made one
            array = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
            other = array.copy()
            other[-1, -1] += np.float32(1e-3)
            for name, one in {"shared.weight": True, "decoder.layers.0.fc1.weight": True, "onnx::MatMul_123": False, "_v_12": False, "graph.val_12": False}.items():
                with self.subTest(name, shape=shape):
                    folder = self.model(SPEC["bart-pair"], pair(name, array, other))
                    if one:
                        self.refuse(folder, "decoder_model.onnx", "decoder_with_past_model.onnx", name)
                        folder = self.model(SPEC["bart-pair"], pair(name, array, array))
                    self.answer(folder, "--prompt-ids", comma(SOURCE))

    def test_bench(self):
        for options in ((), ("--streams", 2)):
            with self.subTest(options):
                run = Run("bench", self.model(SPEC["bart"]), *options)
                self.refused(run, "bench measures decoder-only models")
                self.assertEqual(run.out, "")

    def test_a_merged_decoder_without_a_cached_branch(self):
        def first_alone(files):
            files["decoder_model_merged.onnx"], _ = tiny.pair_models(replace(SPEC["bart"], layout="pair"), self.oracle(SPEC["bart"]).w)
        self.refuse(self.model(SPEC["bart"], first_alone), "decoder_model_merged.onnx", "past")

        def twice_the_first(files):
            node = next(n for n in files["decoder_model_merged.onnx"].graph.node if n.op_type == "If")
            graphs = {a.name: a.g for a in node.attribute}
            graphs["then_branch"].CopyFrom(graphs["else_branch"])
        self.refuse(self.model(SPEC["bart"], twice_the_first), "decoder_model_merged.onnx", "use_cache_branch")

    def test_a_source_longer_than_the_positions(self):
        too_long = [5] * (CONTEXT + 1)
        self.refuse(self.model(SPEC["bart"]), CONTEXT, CONTEXT + 1, options=("--prompt-ids", comma(too_long)))

    def test_an_answer_longer_than_the_positions(self):
        self.refuse(self.model(SPEC["bart"]), CONTEXT, options=("--prompt-ids", comma(SOURCE), "--decoder-prompt-ids", comma([START] * (CONTEXT + 1))))

    def test_an_empty_source(self):
        self.refuse(self.model(SPEC["bart"]), "empty", options=("--prompt-ids", ""))
        self.refuse(self.model(SPEC["bart"]), "empty", options=("--prompt", ""))

    def test_an_array_of_no_rows(self):
        self.refuse(self.model(SPEC["features"]), "input_features", options=self.source(SPEC["features"], np.zeros((1, 0, tiny.FEATURES), np.float32)))

    def test_an_array_of_more_rows_than_there_are_positions(self):
        self.refuse(self.model(SPEC["features"]), CONTEXT, options=self.source(SPEC["features"], np.zeros((1, CONTEXT + 1, tiny.FEATURES), np.float32)))

    def test_ids_outside_the_vocabulary(self):
        spec = SPEC["bart"]
        given = ("--prompt-ids", comma(SOURCE))
        for settings in ({"decoder_start_token_id": VOCABULARY}, {"forced_bos_token_id": VOCABULARY}, {"decoder_start_token_id": -1}):
            with self.subTest(settings):
                self.refuse(self.model(spec, settings=settings), *settings, *settings.values(), VOCABULARY)
        for options in ((*given, "--decoder-prompt-ids", f"{START},{VOCABULARY}"), (*given, "--forced-bos-id", VOCABULARY), ("--prompt-ids", f"3,{VOCABULARY}"),
                        (*given, "--decoder-prompt-ids", f"{START},-1")):
            with self.subTest(options):
                self.refuse(self.model(spec), VOCABULARY, options=options)

    def test_a_start_token_that_nothing_names(self):
        folder = self.model(SPEC["bart"], settings={"decoder_start_token_id": None})
        self.refuse(folder, "decoder_start_token_id")
        ids = self.answer(folder, "--prompt-ids", comma(SOURCE), "--decoder-prompt-ids", START)["output_ids"]
        self.assertEqual(ids, self.oracle(SPEC["bart"]).greedy(SOURCE)[0])

    def test_options_without_a_meaning(self):
        folder = self.model(SPEC["bart"])
        for option, word in (("--window", 8), ("--draft", folder), ("--prompt-lookup", 3)):
            with self.subTest(option):
                self.refused(Run("run", folder, "--prompt-ids", comma(SOURCE), option, word), option.lstrip("-").replace("-", " ").split()[-1], "encoder")

    def test_options_of_encoder_decoders_for_a_decoder_alone(self):
        folder = self.folder / "llama"
        tiny_exports.write_model(tiny_models.SPECS[0], folder)
        file = self.folder / "a.npy"
        np.save(file, np.zeros((1, 2), np.float32))
        for option, word in (("--decoder-prompt-ids", "2"), ("--encoder-input", f"x={file}")):
            with self.subTest(option):
                self.refused(Run("run", folder, "--prompt-ids", "5,6", option, word), option, "encoder")

    def test_arrays_that_do_not_fit(self):
        spec = SPEC["features"]
        folder, good = self.model(spec), tiny.source_of(spec)
        wrong = {"two dims": (good[0], "input_features"), "six features": (np.zeros((1, 4, tiny.FEATURES + 1), np.float32), tiny.FEATURES + 1),
                 "a batch": (np.concatenate([good, good]), "batch"), "another type": (good.astype(np.float64), "<f8"), "integers": (good.astype(np.int64), "int64")}
        for name, (array, word) in wrong.items():
            with self.subTest(name):
                file = self.folder / "wrong.npy"
                np.save(file, array)
                self.refuse(folder, word, options=("--encoder-input", f"input_features={file}"))
        file = self.folder / "good.npy"
        np.save(file, good)
        for options, word in ((("--encoder-input", f"input_feature={file}"), "input_features"), (("--encoder-input", f"input_features={file}") * 2, "input_features"),
                              (("--encoder-input", str(file)), "NAME=FILE"), (("--encoder-input", "input_features=none.npy"), "none.npy"), (("--prompt-ids", "2,5"), "input_features")):
            with self.subTest(options):
                self.refuse(folder, word, options=options)


if __name__ == "__main__":
    main()
