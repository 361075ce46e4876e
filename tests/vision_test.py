"""Prompts with pictures on the command line: against the NumPy oracle of tiny_vision.py, against recorded answers, and bad input.

    python tests/vision_test.py --situ build/situ [unittest options]
"""
import json
import os
import shutil
import subprocess
import unittest
from pathlib import Path

import numpy as np
import onnx

import cli_case
import tiny_speech
import tiny_vision as tiny
from cli_case import CliTest, Run, main
from speech_oracle import HOP, MELS, WINDOW, LogMel
from sweep import SWEEPING, some
from tiny_vision import IMAGE, NEW_TOKENS, PATCH, ROWS, SPECS, Spec

SPEC = {s.name: s for s in SPECS}
SHARED = Path(os.environ.get("SITU_SHARED", Path(__file__).parent.parent / "../shared")) / "models" / "vlm"


def pictures(spec, count, seed=0, dropped=()):
    """Arrays of the encoder, and how many rows it makes of each picture or tile."""
    rng = np.random.default_rng(seed)
    if spec.takes == "grid":
        grids = np.array([[1, 4, 6], [1, 2, 4], [2, 2, 2]][:count], np.int64)
        pixels = rng.standard_normal((int(grids.prod(1).sum()), PATCH)).astype(np.float32)
        return {"pixel_values": pixels, "grid_thw": grids}, [int(g.prod()) // 4 for g in grids]
    pixels = rng.standard_normal((count, tiny.SIDE**2 if spec.takes == "shuffle" else ROWS, PATCH)).astype(np.float32)
    if spec.takes in ("fixed", "shuffle"):
        return {"pixel_values": pixels}, [ROWS] * count
    for d in dropped:
        pixels[d] = 0
    mask = np.ones((1, count), bool)
    mask[0, -1] = count < 2 or count - 1 in dropped  # the last tile is muted, where there are others
    return {"pixel_values": pixels[None], "pixel_mask": mask}, [ROWS] * (count - len(dropped))


def prompt_of(rows, apart):
    """Text, rows of pictures, text; `apart`: so many tokens of text between pictures."""
    ids = [1, 17, 40]
    for i, n in enumerate(rows):
        ids += [IMAGE] * n + ([9 + i, 33][:apart] if i + 1 < len(rows) else [])
    return ids + [21, 50]


class VisionCase(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.weights = {}

    def clear(self, spec):
        """Weights by which the answers of cases() are clear, and those answers hang on the pictures."""
        if spec.name not in self.weights:
            for seed in range(100):
                w = tiny.make_weights(seed)
                answers = [tiny.greedy(spec, w, ids, arrays) for _, ids, arrays in self.cases(spec)]
                if min(margin for _, margin in answers) > 3e-3 and len({tuple(a) for a, _ in answers}) == len(answers):
                    self.weights[spec.name] = w
                    break
            else:
                raise AssertionError(f"{spec.name}: no weights give clear answers")
        return self.weights[spec.name]

    @staticmethod
    def cases(spec):
        one, rows = pictures(spec, 1)
        other, _ = pictures(spec, 1, seed=7)
        two, rows2 = pictures(spec, 2, seed=3)
        yield "one", prompt_of(rows, 0), one
        yield "another", prompt_of(rows, 0), other
        yield "two apart", prompt_of(rows2, 1), two
        yield "two together", prompt_of(rows2, 0), two
        yield "text", [1, 17, 40, 9], {}
        if spec.takes == "tiles":
            dropped, kept = pictures(spec, 3, seed=5, dropped=(1,))
            yield "a tile dropped between", prompt_of(kept, 2), dropped
            padded, kept = pictures(spec, 2, seed=6, dropped=(1,))
            yield "padded", prompt_of(kept, 0), padded
        if spec.takes == "grid":
            three, rows3 = pictures(spec, 3, seed=4)
            yield "three", prompt_of(rows3, 2), three

    def all_cases(self, specs):
        return [(spec, *case) for spec in specs for case in self.cases(spec)]

    def model(self, spec, config={}, change=None):
        folder = self.folder / (spec.name if not config and not change else f"{self.id()}{spec.name}{len(list(self.folder.iterdir()))}")
        if not folder.exists():
            files = tiny.files_of(spec, self.clear(spec))
            if change:
                change(files)
            tiny.write_folder(folder, files, config)
        return folder

    def options(self, arrays, folder=None):
        options = []
        for name, array in arrays.items():
            file = self.folder / f"{name}{len(list(self.folder.iterdir()))}.npy"
            np.save(file, array)
            options += ["--encoder-input", f"{name}={file}"]
        return options

    def run_case(self, folder, ids, arrays, *options, count=NEW_TOKENS):
        threads = () if "--threads" in options else ("--threads", 1)
        run = Run("run", folder, "-n", count, "--ignore-eos", "--json", "--prompt-ids", ",".join(map(str, ids)), *self.options(arrays), *threads, *options)
        self.assertEqual((run.code, run.stopped), (0, ""), run)
        return json.loads(run.out)


class OracleTest(VisionCase):
    def test_answers_are_the_oracles(self):
        """In place without a copied byte, in whatever pieces; as a host would run the files, with some."""
        for number, (spec, name, ids, arrays) in enumerate(self.all_cases(SPECS)):
            with self.subTest(spec.name, case=name):
                wanted, _ = tiny.greedy(spec, self.clear(spec), ids, arrays)
                # Rows of a norm go to one place, and choosing among tiles that are not evenly spaced moves them.
                copied = spec.last == "norm" and name == "two apart"
                for options in some(((), ("--chunk", 3), ("--chunk", 1, "--threads", 2)), 2):
                    placed = self.run_case(self.model(spec), ids, arrays, *options)
                    self.assertEqual(placed["output_ids"], wanted, options)
                    self.assertEqual(placed["bytes_copied_per_token"] > 0, copied, options)
                if number % 3 != 0 and not SWEEPING:
                    continue
                naive = self.run_case(self.model(spec), ids, arrays, "--naive")
                self.assertEqual(naive["output_ids"], wanted)
                self.assertGreater(naive["bytes_copied_per_token"], 0)

    def test_stages(self):
        """Each encoder, the embeddings, prompt and answer: not a byte is copied, but by a host that merges embeddings itself."""
        for spec in (SPEC["fixed"], SPEC["tiles"], SPEC["grid"]):
            with self.subTest(spec.name):
                _, ids, arrays = next(self.cases(spec))
                rows = 4 * tiny.WIDTH * ids.count(IMAGE)
                for mode in ((), ("--naive",)):
                    answer = self.run_case(self.model(spec), ids, arrays, *mode)
                    stages = {s["name"]: s for s in answer["stages"]}
                    self.assertEqual([s["name"] for s in answer["stages"]], ["vision_encoder", "embed", "prefill", "decode"])
                    copied = sum(s["bytes_copied"] for s in answer["stages"])
                    self.assertAlmostEqual(copied / NEW_TOKENS, answer["bytes_copied_per_token"])
                    self.assertEqual(copied > 0, bool(mode))
                    self.assertAlmostEqual(stages["decode"]["bytes_written"] / (NEW_TOKENS - 1), answer["bytes_written_per_token"])
                    self.assertAlmostEqual(stages["prefill"]["ms"], answer["prefill_ms"])
                    self.assertAlmostEqual(stages["decode"]["ms"] / (NEW_TOKENS - 1), answer["decode_ms_per_token"])
                    self.assertLessEqual(stages["vision_encoder"]["ms"] + stages["embed"]["ms"], answer["encode_ms"])
                    self.assertAlmostEqual(answer["encode_ms"] + answer["prefill_ms"], answer["time_to_first_token_ms"])
                    self.assertTrue(all(s["ms"] > 0 and s["bytes_written"] >= s["bytes_copied"] for s in answer["stages"]), answer["stages"])
                    self.assertGreaterEqual(stages["vision_encoder"]["bytes_written"], rows)  # its rows lie in the embeddings
                    # A host looks up all tokens and writes the encoder's rows over those of their tokens.
                    self.assertEqual(stages["embed"]["bytes_copied"], rows if mode else 0)
                _, ids, _ = next(c for c in self.cases(spec) if c[0] == "text")
                self.assertNotIn("stages", self.run_case(self.model(spec), ids, {}))

    def test_beams(self):
        """Forks of a prompt with pictures: as the literal run of the files has them."""
        for spec, name, ids, arrays in some(self.all_cases(SPECS), 3):
            with self.subTest(spec.name, case=name):
                placed, naive = (self.run_case(self.model(spec), ids, arrays, "--beams", 3, *more) for more in ((), ("--naive",)))
                self.assertEqual(placed["output_ids"], naive["output_ids"])

    def test_other_names_of_the_token(self):
        spec = SPEC["fixed"]
        (_, ids, arrays), wanted = next(self.cases(spec)), None
        wanted, _ = tiny.greedy(spec, self.clear(spec), ids, arrays)
        folder = self.model(spec, {"image_token_id": None, "image_token_index": IMAGE})
        self.assertEqual(self.run_case(folder, ids, arrays)["output_ids"], wanted)

    def test_what_inspect_shows(self):
        run = Run("inspect", self.model(SPEC["grid"]), "--json")
        module = json.loads(run.out)["module"]
        self.assertEqual([g["name"] for g in module["graphs"]], ["embed_tokens", "vision_encoder", "decoder_model_merged"])
        self.assertEqual([p["name"] for p in module["programs"]], ["prompt", "token", "lookup", "behind", "vision_encoder"])
        port = next(p for p in module["ports"] if p["name"] == "inputs_embeds")
        self.assertEqual((port["writer"], port["readers"]), ("lookup, vision_encoder", ["behind"]))


class GenaiTest(VisionCase):
    """The layout of onnxruntime-genai, whose embedding model writes the rows of pictures itself."""
    def test_answers_are_the_oracles(self):
        for spec in (SPEC["fixed"], SPEC["tiles"], SPEC["grid"]):
            w = self.clear(spec)
            for how in tiny.MERGES:
                folder = tiny.write_genai_folder(self.folder / f"genai-{spec.name}-{how}", spec, w, tiny.merging_model(w, how))
                for name, ids, arrays in some(list(self.cases(spec)), 3):
                    with self.subTest(spec.name, how=how, case=name):
                        wanted, _ = tiny.greedy(spec, w, ids, arrays)
                        placed = self.run_case(folder, ids, arrays)
                        self.assertEqual((placed["output_ids"], placed["bytes_copied_per_token"]), (wanted, 0))
                        self.assertEqual(self.run_case(folder, ids, arrays, "--naive")["output_ids"], wanted)

    def test_what_is_no_merge_is_refused(self):
        spec = SPEC["fixed"]
        w = self.clear(spec)
        _, ids, arrays = next(self.cases(spec))
        cases = [(dict(how=how, wrong=wrong), None, ["embedding.onnx", "image_features", "token 60"])
                 for how, wrong in (("scatter", "added"), ("scatter", "reversed"), ("where", "shifted"))]
        cases += [({}, lambda m: m.pop("image_token_id"), ["embedding.onnx", "image_features", "image_token_id"]),
                  ({}, lambda m: m.update(image_token_id=59), ["embedding.onnx", "image_features", "token 59"]),
                  ({}, lambda m: m.update(image_token_id="x"), ["genai_config.json", "image_token_id"]),
                  ({}, lambda m: m.pop("embedding"), ["genai_config.json", "model.embedding"]),
                  ({}, lambda m: m["vision"].update(filename="../vision.onnx"), ["genai_config.json", "model.vision.filename"]),
                  ({}, lambda m: m["vision"].update(filename="none.onnx"), ["none.onnx"]),
                  ({}, lambda m: m["vision"].update(pipeline=[]), ["genai_config.json", "model.vision.pipeline"])]
        for i, (merging, change, words) in enumerate(cases):
            with self.subTest(case=i):
                folder = tiny.write_genai_folder(self.folder / f"refused{i}", spec, w, tiny.merging_model(w, **merging), change)
                self.refused(Run("run", folder, "-n", 1, "--prompt-ids", ",".join(map(str, ids)), *self.options(arrays)), *words)


class SoundTest(VisionCase):
    """--audio: files become windows of spectrograms, as VoxtralProcessor of transformers makes them."""
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        spec = SPEC["fixed"]
        files = tiny.files_of(spec, tiny.make_weights(3))
        del files["vision_encoder.onnx"]
        files["audio_encoder.onnx"] = tiny.sound_model(MELS, WINDOW // HOP, tiny.make_weights(3))
        cls.model_folder = cls.folder / "voxtral"
        half = tiny.SOUND_ROWS * 5
        tiny.write_folder(cls.model_folder, files, {"model_type": "voxtral", "image_token_id": None, "audio_token_id": IMAGE,
                                                    "audio_config": {"max_source_positions": half, "hidden_size": 4, "intermediate_size": 20}})
        (cls.model_folder / "preprocessor_config.json").write_text(json.dumps(tiny_speech.preprocessor_config()))

    @staticmethod
    def rows(samples):
        """[rows, C]: windows of the whole file, whose last one ends with silence, and its peak."""
        windows = -(-len(samples) // WINDOW)
        mel = LogMel(np.pad(samples, (0, windows * WINDOW - len(samples))))
        for _ in range(2):
            features = np.stack([mel.window(i * WINDOW) for i in range(windows)])
        of_frame, of_row = tiny.sound_weights(MELS, WINDOW // HOP)
        frames = np.tanh(features.astype(np.float64).transpose(0, 2, 1) @ of_frame)
        return frames.reshape(windows * tiny.SOUND_ROWS, -1) @ of_row

    def wav(self, name, samples):
        file = self.folder / f"{name}.wav"
        tiny_speech.write_wav(file, samples)
        return file, np.round(np.clip(samples, -1, 1) * 32767).astype(np.int16) / 32768

    def test_answers_are_the_oracles(self):
        w = tiny.make_weights(3)
        short, long = self.wav("short", tiny_speech.tones(0.6, seed=1)), self.wav("long", tiny_speech.tones(2.4, seed=2))
        for sounds in ([short], [long], [long, short]):
            features = np.concatenate([self.rows(samples) for _, samples in sounds])
            counts = [-(-len(samples) // WINDOW) * tiny.SOUND_ROWS for _, samples in sounds]
            ids = [1, 17, *(i for n in counts for i in [*[IMAGE] * n, 9]), 21]
            wanted, margin = tiny.greedy(SPEC["fixed"], w, ids, {}, 5, features)
            self.assertGreater(margin, 1e-3)
            for mode in ((), ("--naive",), ("--chunk", 7)):
                found = self.run_case(self.model_folder, ids, {}, *(o for file, _ in sounds for o in ("--audio", file)), *mode, count=5)
                self.assertEqual(found["output_ids"], wanted)
                self.assertEqual([s["tokens"] for s in found["sounds"]], counts)
                self.assertEqual(found["bytes_copied_per_token"] > 0, mode == ("--naive",))

    def test_texts(self):
        folder = tiny.with_words(self.model_folder, self.folder / "words", {"[AUDIO]": IMAGE, "[BEGIN_AUDIO]": IMAGE + 1}, tiny.VOCABULARY)
        one, two = self.wav("one", tiny_speech.tones(0.5))[0], self.wav("two", tiny_speech.tones(1.5))[0]
        row = [IMAGE] * tiny.SOUND_ROWS
        for files, options, ids in (([one], ("--prompt", "a"), [IMAGE + 1, *row, 11]), ([two, one], ("--prompt", "a [AUDIO] b [AUDIO]"), [11, *row, *row, 12, *row]),
                                    ([one], ("--prompt", "a", "--chat"), [13, IMAGE + 1, *row, 11])):
            sounds = [o for file in files for o in ("--audio", file)]
            found = json.loads(Run("run", folder, "-n", 4, "--ignore-eos", "--json", *sounds, *options).out)
            self.assertEqual(found["prompt_ids"], ids)
            self.assertEqual(found["output_ids"], self.run_case(folder, ids, {}, *sounds, count=4)["output_ids"])
        self.refused(Run("run", folder, "--audio", one, "--prompt", "[AUDIO] [AUDIO]"), "2 places for sounds", "1 sounds")

    def test_what_does_not_fit(self):
        file, _ = self.wav("one", tiny_speech.tones(0.5))
        ids = ",".join(map(str, [1, *[IMAGE] * tiny.SOUND_ROWS, 2]))
        other = self.folder / "other"
        shutil.copytree(self.model_folder, other)
        (other / "config.json").write_text((other / "config.json").read_text().replace("voxtral", "unknown"))
        many = self.wav("many", tiny_speech.tones(11))[0]
        for folder, sound, ids, words in ((self.model_folder, self.folder / "none.wav", ids, ["none.wav"]), (other, file, ids, ["unknown", "--encoder-input"]),
                                          (self.model_folder, file, "1,2", [IMAGE]), (self.model_folder, many, ids, ["many.wav", "10 tokens for each 1 s", "96"]),
                                          (self.model(SPEC["fixed"]), file, ids, ["no audio encoder"])):
            with self.subTest(words):
                self.refused(Run("run", folder, "-n", 1, "--prompt-ids", ids, "--audio", sound), *words)


class BadInputTest(VisionCase):
    def bad(self, folder, ids, arrays, *words):
        for mode in ((), ("--naive",)):
            self.refused(Run("run", folder, "-n", 2, "--prompt-ids", ",".join(map(str, ids)), *self.options(arrays), *mode), *words)

    def test_rows_and_tokens(self):
        for spec in SPECS:
            with self.subTest(spec.name):
                _, ids, arrays = next(self.cases(spec))
                rows, folder = ids.count(IMAGE), self.model(spec)
                self.bad(folder, ids, {}, "vision_encoder.onnx", rows, IMAGE, "no array")
                self.bad(folder, [1, 2, 3], arrays, "vision_encoder.onnx", "no token", IMAGE)
                grid = spec.takes == "grid"
                self.bad(folder, [1, IMAGE, *ids[1:]], arrays, *((rows, "grid") if grid else (rows, rows + 1, IMAGE)))
                self.bad(folder, [i for n, i in enumerate(ids) if n != ids.index(IMAGE)], arrays, *((rows, "grid") if grid else (rows, rows - 1, IMAGE)))

    def test_arrays(self):
        spec = SPEC["fixed"]
        _, ids, arrays = next(self.cases(spec))
        folder, pixels = self.model(spec), arrays["pixel_values"]
        self.bad(folder, ids, {"pixels": pixels}, "pixels", "no such input", "pixel_values")
        self.bad(folder, ids, {"pixel_values": pixels[0]}, "pixel_values", "[4, 6]")
        self.bad(folder, ids, {"pixel_values": pixels.astype(np.float16)}, "pixel_values", "float16")
        self.bad(folder, ids, {"pixel_values": pixels[:, :3]}, "pixel_values", "[1, 3, 6]")
        self.bad(self.model(SPEC["tiles"]), ids, {"pixel_values": pixels[None]}, "pixel_mask", "not given")
        with self.subTest("extents that contradict each other"):
            _, ids, arrays = next(self.cases(SPEC["tiles"]))
            self.bad(self.model(SPEC["tiles"]), ids, {**arrays, "pixel_mask": np.ones((1, 2), bool)}, "pixel_mask", 2, 1)

    def test_two_encoders_with_inputs_of_one_name(self):
        spec, other = SPEC["fixed"], IMAGE - 1
        def twice(files):
            files["audio_encoder.onnx"] = files["vision_encoder.onnx"]
        folder = self.model(spec, {"audio_token_id": other}, twice)
        _, ids, arrays = [c for c in self.cases(spec) if c[0] == "two apart"][0]
        wanted, _ = tiny.greedy(spec, self.clear(spec), ids, arrays)
        last = len(ids) - 1 - ids[::-1].index(IMAGE)
        ids = [other if last - ROWS < i <= last else id for i, id in enumerate(ids)]
        one, two = arrays["pixel_values"][:1], arrays["pixel_values"][1:]
        for mode in ((), ("--naive",)):
            found = self.run_case(folder, ids, {"vision_encoder.pixel_values": one, "audio_encoder.pixel_values": two}, *mode)
            self.assertEqual(found["output_ids"], wanted)
        self.bad(folder, ids, {"pixel_values": one}, "vision_encoder.pixel_values", "audio_encoder.pixel_values")
        self.bad(folder, ids, {"vision_encoder.pixel_values": one}, "audio_encoder.onnx", "no array")

    def test_numbers_that_are_none(self):
        spec = SPEC["tiles"]
        _, ids, arrays = next(self.cases(spec))
        for bad in (np.nan, np.inf):
            pixels = arrays["pixel_values"].copy()
            pixels[0, 0, 1, 2] = bad
            self.bad(self.model(spec), ids, {**arrays, "pixel_values": pixels}, "pixel_values", "element 8", str(bad))
        self.bad(self.model(spec), ids, {**arrays, "pixel_mask": np.zeros_like(arrays["pixel_mask"])}, "pixel_mask", "all zero")

    def test_files_that_are_missing(self):
        spec = SPEC["fixed"]
        _, ids, arrays = next(self.cases(spec))
        for gone, words in (("embed_tokens.onnx", ["embed_tokens.onnx is missing"]), ("decoder_model_merged.onnx", ["decoder_model_merged.onnx is missing"])):
            self.bad(self.model(spec, change=lambda files: files.pop(gone)), ids, arrays, *words)
        def florence(files):
            files["encoder_model.onnx"] = files["vision_encoder.onnx"]
        self.bad(self.model(spec, change=florence), ids, arrays, "encoder_model.onnx", "Florence-2")

    def test_nothing_but_zeros(self):
        spec = SPEC["tiles"]
        _, ids, arrays = next(self.cases(spec))
        self.bad(self.model(spec), ids, {**arrays, "pixel_values": 0 * arrays["pixel_values"]}, "NonZero", "vision_encoder.onnx")

    def test_grids(self):
        spec, folder = SPEC["grid"], None
        _, ids, arrays = next(self.cases(spec))
        folder, rows = self.model(spec), ids.count(IMAGE)
        for grid, words in ([[1, 4, 4]], ("grids are given of 1",)), ([[1, 4, 6], [1, 2, 2]], ("pictures", "2")), ([[0, 4, 6]], ("(0, 4, 6)",)), ([[1, 3, 8]], ("(1, 3, 8)",)), \
                ([[1, -4, -6]], ("-4",)), ([[1, 2**40, 2**40]], (2**40,)), ([[2**62, 4, 6]], (2**62,)), ([[1, 2, 12]], ()):
            with self.subTest(grid=grid):
                given = {**arrays, "grid_thw": np.array(grid, np.int64)}
                if words:
                    self.bad(folder, ids, given, *words)
                else:  # another grid of as many rows
                    wanted, _ = tiny.greedy(spec, self.clear(spec), ids, given)
                    self.assertEqual(self.run_case(folder, ids, given)["output_ids"], wanted)
        # The grid says other patches than there are.
        self.bad(folder, ids, {**arrays, "pixel_values": arrays["pixel_values"][:-4]}, "vision_encoder.onnx")

    def test_configurations(self):
        spec = SPEC["fixed"]
        _, ids, arrays = next(self.cases(spec))
        self.bad(self.model(spec, {"image_token_id": None}), ids, arrays, "image_token_id", "config.json")
        self.bad(self.model(spec, {"image_token_id": "sixty"}), ids, arrays, "image_token_id", "sixty")
        with self.subTest("no side of a picture's rows"):
            _, ids, arrays = next(self.cases(SPEC["grid"]))
            self.bad(self.model(SPEC["grid"], {"vision_config": {}}), ids, arrays, "spatial_merge_size")

    def test_sections_of_rotary_tables(self):
        spec = SPEC["fused"]
        _, ids, arrays = next(self.cases(spec))
        def changed(name, value):
            def change(files):
                for node in files["decoder_model_merged.onnx"].graph.node:
                    if node.op_type == "MRotaryEmbedding":
                        keep = [a for a in node.attribute if a.name != name]
                        del node.attribute[:]
                        node.attribute.extend([*keep, onnx.helper.make_attribute(name, value)])
            return change
        for name, value in (("mrope_section", [1, 2]), ("mrope_section", [1, 2, 2]), ("mrope_section", [2, -1, 3]), ("mrope_layout", 2)):
            with self.subTest(name, value=value):
                self.bad(self.model(spec, change=changed(name, value)), ids, arrays, "MRotaryEmbedding", name)

    def test_graphs_that_do_not_fit(self):
        spec = SPEC["fixed"]
        _, ids, arrays = next(self.cases(spec))
        def narrow(files):
            w = dict(self.clear(spec))
            w["embed"] = w["embed"][:, :16]
            files["embed_tokens.onnx"] = tiny.lookup_model(SPEC["fixed"], w)
            files["embed_tokens.onnx"].graph.output[0].type.tensor_type.shape.dim[2].dim_value = 16
        self.bad(self.model(spec, change=narrow), ids, arrays, "embed_tokens.onnx", "inputs_embeds")

    def test_an_array_for_a_model_of_text(self):
        spec = SPEC["fixed"]
        _, ids, arrays = next(self.cases(spec))
        folder = self.folder / "without"
        files = tiny.files_of(spec, self.clear(spec))
        del files["vision_encoder.onnx"]
        tiny.write_folder(folder, files)
        self.bad(folder, [1, 2, 3], arrays, "encoder")
        self.bad(folder, ids, {}, IMAGE, "no vision encoder")
        wanted, _ = tiny.greedy(spec, self.clear(spec), [1, 17, 40, 9], {})
        self.assertEqual(self.run_case(folder, [1, 17, 40, 9], {})["output_ids"], wanted)


class RecordedTest(VisionCase):
    def test_recorded_answers(self):
        """Folders of ../shared: ids of ONNX Runtime on the same files."""
        folders = sorted(SHARED.glob("*/expected.json")) if SHARED.exists() else []
        if not folders:
            self.skipTest(f"{SHARED} is not there")
        for file in folders:
            expected, folder = json.loads(file.read_text()), file.parent
            cases = {c["name"]: c for c in expected["cases"] if c.get("image_token_id", expected.get("image_token_id")) is not None}
            for variant, recorded in {"": {"cases": list(cases.values())}, **expected.get("variants", {})}.items():
                for c in recorded["cases"] if cases else ():
                    with self.subTest(folder.name, case=c["name"], variant=variant):
                        given = cases[c["name"]]
                        options = [o for n, v in (given.get("encoder_inputs") or {}).items() for o in ("--encoder-input", f"{n}={folder / v['file']}")]
                        if variant:
                            options += ["--variant", variant, "--kv-type", "f32"]  # ONNX Runtime keeps keys and values in float
                        wanted = c.get("ids_ort") or c["greedy_ids"]
                        answer = self.run_case(folder, given["input_ids"], {}, *options, count=len(wanted))
                        self.assertEqual((answer["output_ids"], answer["bytes_copied_per_token"]), (wanted, 0))

    def test_image_files(self):
        """The same answers from the files that the recorded arrays were made of."""
        checked = 0
        for file in sorted(SHARED.glob("*/expected.json")) if SHARED.exists() else []:
            expected, folder = json.loads(file.read_text()), file.parent
            for c in expected["cases"]:
                if expected.get("image_token_id") is None or not c.get("images") or "note" in c:  # of arrays that no file gives
                    continue
                with self.subTest(folder.name, case=c["name"]):
                    settings = [f"{k}={json.dumps(v)}" for k, v in (c.get("processor_overrides") or {}).items()]
                    options = [o for name, values in (("--image", [folder / i for i in c["images"]]), ("--processor", settings)) for v in values for o in (name, v)]
                    answer = self.run_case(folder, c["input_ids"], {}, *options, count=len(c["greedy_ids"]))
                    self.assertEqual((answer["output_ids"], answer["bytes_copied_per_token"]), (c["greedy_ids"], 0))
                    self.assertEqual([i["tokens"] for i in answer["images"]], [c["num_image_tokens"] // len(c["images"])] * len(c["images"]))
                    checked += 1
        if not checked:
            self.skipTest(f"{SHARED} is not there")

    def test_an_image_is_a_source(self):
        """TrOCR: the encoder of an encoder-decoder takes the image, the decoder its start token."""
        folder = SHARED / "trocr"
        if not folder.exists():
            self.skipTest(f"{folder} is not there")
        for c in json.loads((folder / "expected.json").read_text())["cases"]:
            for prompt in ((), ("--prompt-ids", c["decoder_start_token_id"])):
                with self.subTest(c["name"], prompt=prompt):
                    run = Run("run", folder, "--image", folder / c["image"], "-n", len(c["greedy_ids"]), "--ignore-eos", "--json", *prompt)
                    self.assertEqual(run.code, 0, run)
                    answer = json.loads(run.out)
                    self.assertEqual((answer["output_ids"], answer["bytes_copied_per_token"]), (c["greedy_ids"], 0))
        self.refused(Run("run", folder, "-n", 1), "--prompt")

    def test_text_and_image_files(self):
        """A placeholder in a text becomes the image's tokens; without any, the image comes first; templates place it."""
        if not (SHARED / "llava").exists():
            self.skipTest(f"{SHARED} is not there")
        folder = tiny.with_words(SHARED / "llava", self.folder / "llava_text")
        image = ("--image", folder / "image1.png")
        for options, ids in ((("--prompt", "a"), [*[500] * 16, 11]), (("--prompt", "a <image> b"), [11, *[500] * 16, 12]),
                             (("--prompt", "a", "--chat"), [13, *[500] * 16, 11]), (("--prompt", "a", "--system", "b"), [0, 12, 13, *[500] * 16, 11])):
            with self.subTest(options):
                found = json.loads(Run("run", folder, "-n", 4, "--ignore-eos", "--json", *image, *options).out)
                self.assertEqual(found["prompt_ids"], ids)
                self.assertEqual(found["output_ids"], self.generate(folder, ids, *image, count=4)["output_ids"])
        self.refused(Run("run", folder, *image, "--prompt", "<image> <image> a"), "2 places for images (<image>)", "1 image")
        for options in (("--prompt", "a <image>"), ("--prompt", "a", "--system", "<image>")):
            self.refused(Run("run", folder, *options), "tag of an image (<image>)", "--image FILE")

    def test_images_in_a_conversation(self):
        """/image: of the next message, before its text; every reply is that of all messages and images before."""
        if not (SHARED / "llava").exists():
            self.skipTest(f"{SHARED} is not there")
        folder = tiny.with_words(SHARED / "llava", self.folder / "llava_chat")
        one, two = (folder / f"image{i}.png" for i in (1, 2))
        saved = self.folder / "saved.json"

        def chat(*lines):
            done = subprocess.run([cli_case.SITU, "chat", folder, "-n", "3", "--ignore-eos", "--threads", "1"], input="\n".join(map(str, lines)) + "\n", capture_output=True, text=True, timeout=cli_case.PATIENCE,
                                  env={**os.environ, "SITU_CACHE_DIR": ""})
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stdout.splitlines(), [line for line in done.stderr.splitlines() if line.startswith("situ: ")]

        def reply(ids, *images):
            answer = self.generate(folder, ids, *(o for i in images for o in ("--image", i)), count=3)
            self.assertEqual(answer["bytes_copied_per_token"], 0)
            return answer["text"], answer["output_ids"]

        places = [500] * 16
        first, said = reply([13, *places, 11], one)
        # What was said comes back by the words of its tokens.
        second, _ = reply([13, *places, 11, 14, *said, 13, *places, *places, 12], one, two, one)
        text, _ = reply([13, 12])
        lines = (f"/image {one}", "a", f"/image {two}", f"/image {one}", "b")
        self.assertEqual(chat(*lines), ([first, second], []))
        self.assertEqual(chat(*lines, "/undo", "/undo", "b"), ([first, second, text], []))
        self.assertEqual(chat(f"/image {one}", "/clear", "b"), ([text], []))
        self.assertEqual(chat(*lines, "/regen", f"/save {saved}"), ([first, second, second], []))
        self.assertEqual([m.get("images", []) for m in json.loads(saved.read_text())], [[str(one)], [], [str(two), str(one)], []])
        self.assertEqual(chat(f"/load {saved}", "/regen"), ([second], []))
        self.assertIn("tag of an image (<image>), and there is none: give it with /image FILE", chat("b <image>", "b")[1][0])
        replies, errors = chat("/image", "/image /none.png", f"/image {folder / 'config.json'}", f"/image {one}", "a")
        self.assertEqual((replies, [word in error for word, error in zip(["/image needs", "/none.png: no such file", "config.json"], errors, strict=True)]), ([first], [True] * 3), errors)

    def test_image_files_that_do_not_fit(self):
        folder = SHARED / "llava"
        if not folder.exists():
            self.skipTest(f"{folder} is not there")
        image, ids = folder / "image1.png", "1,500,3"
        for options, words in (
                (("--prompt-ids", ids, "--image", image), ("16", "1")),
                (("--prompt-ids", "1,2", "--image", image), ("500",)),
                (("--prompt-ids", ids, "--image", "/dev/null"), ("/dev/null", "regular file")),
                (("--prompt-ids", ids, "--image", image, "--max-pixels", 10), ("52 x 40", "10", "--max-pixels")),
                (("--prompt-ids", ids, "--image", image, "--processor", "x=1"), ("x", "crop_size")),
                (("--prompt-ids", ids, "--image", image, "--processor", "x"), ("'x'", "KEY=VALUE")),
                (("--prompt-ids", ids, "--processor", "x=1"), ("--image",)),
                (("--prompt-ids", ids, "--image", image, "--max-pixels", 10**11), ("--max-pixels",)),
                (("--prompt-ids", ids, "--image", image, *("--processor", "do_center_crop=false", "--processor", "size.shortest_edge=6000")), ("image1.png", "tokens", "context")),
                (("--image", image), ("--prompt",)),
                (("--prompt", "hi", "--image", image), ("tokenizer.json",))):
            with self.subTest(options):
                self.refused(Run("run", folder, *options), *words)
        text = SHARED.parent / "tiny" / "llama"
        self.refused(Run("run", text, "--prompt-ids", "1,2", "--image", image), "vision encoder")


if __name__ == "__main__":
    main()
