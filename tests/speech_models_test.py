"""`situ transcribe` on folders of several layouts and with fewer or other files, against the oracle of speech_oracle.py.

    python tests/speech_models_test.py --situ build/situ [unittest options]

Needs numpy and onnx (`make python`).
"""
import numpy as np
import onnx

import tiny_speech as tiny
from cli_case import Run, main
from speech_oracle import LogMel, Options
from speech_case import SEEDS, SpeechCase

# generation_config.json without ids that are in the tokenizer too.
NOTHING = {name: None for name in ("decoder_start_token_id", "eos_token_id", "no_timestamps_token_id", "prev_sot_token_id", "lang_to_id", "task_to_id")}


class ModelsTest(SpeechCase):
    def test_layouts(self):
        """The decoder as two files, and one whose layers decide for themselves."""
        for layout in ("pair", "layers"):
            with self.subTest(layout):
                self.check(Options(), model=tiny.write_folder(self.folder / layout, self.weights[SEEDS[0]], layout))

    def test_ids_from_the_tokenizer(self):
        """Where generation_config.json says nothing but what is suppressed."""
        for layout in ("merged", "genai"):
            model = tiny.write_folder(self.folder / "names", self.weights[SEEDS[0]], layout, generation=NOTHING)
            self.check(Options(prompt="abc"), "--prompt", "abc", model=model)

    def test_folders_of_onnxruntime_genai(self):
        """Their encoder writes the source's keys and values; sizes of the spectrogram are those of its input."""
        model = tiny.write_folder(self.folder / "genai", self.weights[SEEDS[0]], "genai", generation=NOTHING)
        for options, more in ((Options(), []), (Options(beams=3), ["--beams", 3])):
            self.check(options, *more, model=model)
        got, want = (self.one(self.tones, "--timestamps", "word", model=m) for m in (model, self.models[SEEDS[0]]))
        self.assertEqual(got["output_ids"], want["output_ids"])
        self.assertEqual(got["bytes_copied_per_token"], 0)

    def test_spectrograms_of_halves(self):
        """Where the encoder takes float16, the spectrogram is rounded to it."""
        folder = tiny.write_folder(self.folder / "halves", self.weights[SEEDS[0]])
        model = onnx.load(folder / "encoder_model.onnx")
        for node in model.graph.node:
            node.input[:] = ["features" if name == "input_features" else name for name in node.input]
        model.graph.node.insert(0, onnx.helper.make_node("Cast", ["input_features"], ["features"], to=onnx.TensorProto.FLOAT))
        model.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
        onnx.save(model, folder / "encoder_model.onnx")
        spectrogram = LogMel(self.samples).window(0)[None].astype(np.float16)
        answers = []
        for model, array in ((folder, spectrogram), (folder, spectrogram.astype(np.float32)), (self.model, spectrogram.astype(np.float32))):
            np.save(self.folder / "array.npy", array)
            answers += [self.one("--encoder-input", f"input_features={self.folder / 'array.npy'}", *naive, model=model)["segments"] for naive in ((), ("--naive",))]
        self.assertTrue(answers[0])
        self.assertEqual(answers[:2], answers[2:4])
        self.assertEqual(*({str([s["tokens"] for s in a]) for a in some} for some in (answers[:4], answers[4:])))
        self.one(self.tones, model=folder)
        spectrogram[0, 0, 0] = np.nan
        np.save(self.folder / "nan.npy", spectrogram)
        self.refused(Run("transcribe", folder, "--encoder-input", f"input_features={self.folder / 'nan.npy'}"), f"{self.folder / 'nan.npy'}: the spectrogram has a value that is not finite")

    def test_models_of_english_alone(self):
        model = tiny.write_folder(self.folder / "english", self.weights[SEEDS[0]], generation={"is_multilingual": False, "lang_to_id": None, "task_to_id": None})
        for language in ("auto", "en"):
            oracle = self.check(Options(multilingual=False), "--language", language, model=model)
            self.assertEqual((oracle.answer["language"], oracle.answer["language_probability"]), ("en", 1))
            self.assertEqual(oracle.windows[0]["prompt"], [tiny.START])
        # Silence is as likely behind the prompt's one token, however the text is found.
        silent = [self.one(self.tones, "--temperature", 0, *beams, model=model)["segments"][0]["no_speech_prob"] for beams in ((), ("--beams", 3))]
        self.assertEqual(*silent)
        self.assertGreater(silent[0], 0)
        self.refused(Run("transcribe", model, self.tones, "--language", "de"), "English only", "'de'")
        self.refused(Run("transcribe", model, self.tones, "--task", "translate"), "English only", "translates nothing")


if __name__ == "__main__":
    main()
