"""`situ transcribe`: tiny speech models against their oracle in NumPy, every option, the files it writes, and bad input.

    python tests/speech_test.py --situ build/situ [unittest options]

Needs numpy and onnx (`make python`). One test needs a model and a recording of ../shared, or of the folder that SITU_SHARED names.
"""
import contextlib
import itertools
import json
import os
import signal
import struct
import subprocess
import threading
import unittest
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import cli_case
import golden
import tiny_speech as tiny
from cli_case import CliTest, Run, main
from speech_oracle import LogMel, Options, Oracle, log_softmax
from tiny_seq2seq import CONTEXT, FEATURES, FRAMES, SPEECH, forward
from tiny_speech import END, HOP, RATE, TIMES

SEEDS = 3, 4            # of weights: windows of every kind, some of them doubtful
MARGIN = 1e-5           # of every decision that the oracle takes
CERTAIN = 1e-4          # a temperature at which the most probable token is drawn
FIELDS = ["audio", "duration_s", "samples_16k", "language", "language_probability", "text", "segments", "output_ids", "load_ms", "features_ms", "encode_ms",
          "decode_ms_per_token", "peak_rss_mib", "bytes_copied_per_token"]
SEGMENT_FIELDS = ["start", "end", "text", "tokens", "avg_logprob", "compression_ratio", "no_speech_prob", "temperature"]


class SpeechCase(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.pool = ThreadPoolExecutor(os.cpu_count())
        cls.weights = {seed: tiny.make_weights(seed) for seed in SEEDS}
        cls.models = {seed: tiny.write_folder(cls.folder / f"model{seed}", w) for seed, w in cls.weights.items()}
        cls.model = cls.models[SEEDS[0]]
        cls.tones = cls.folder / "tones.wav"
        cls.samples = tiny.write_wav(cls.tones, tiny.tones(4.3, 1))

    def wav(self, name, samples, **options):
        """A file, and the samples that it holds."""
        return self.folder / name, tiny.write_wav(self.folder / name, samples, **options)

    def run_all(self, *options, code=0, model=None, stdin=None):
        """The objects that --json prints, one for each file."""
        threads = () if "--threads" in options else ("--threads", 1)
        run = Run("transcribe", model or self.model, "--json", *threads, *options, stdin=stdin)
        self.assertEqual((run.code, run.stopped), (code, ""), run)
        return [json.loads(line) for line in run.out.splitlines()]

    def one(self, *options, **more):
        found, = self.run_all(*options, **more)
        return found

    def equal(self, got, want):
        """The command's object and the oracle's."""
        self.assertEqual([s["tokens"] for s in got["segments"]], [s["tokens"] for s in want["segments"]])
        for name in ("language", "text", "output_ids"):
            self.assertEqual(got[name], want[name], name)
        self.assertAlmostEqual(got["language_probability"], want["language_probability"], places=4)
        for a, b in zip(got["segments"], want["segments"]):
            self.assertEqual((a["text"], a["temperature"]), (b["text"], b["temperature"]))
            for name in ("start", "end", "avg_logprob", "compression_ratio", "no_speech_prob"):
                self.assertAlmostEqual(a[name], b[name], places=4, msg=name)

    def check(self, o, *options, seed=SEEDS[0], file=None, samples=None, model=None):
        """In place and naive give what the oracle gives; in place without a copied byte. Returns the oracle, for its windows."""
        oracle = Oracle(self.weights[seed])
        want = oracle.transcribe(self.samples if samples is None else samples, o)
        self.assertGreater(oracle.margin, MARGIN, "the answer is not clear")
        temperature = ",".join(map(str, o.temperatures))
        asked = [(file or self.tones, "--temperature", temperature, *options, *naive) for naive in ((), ("--naive",))]
        placed, naive = self.pool.map(lambda a: self.one(*a, model=model or self.models[seed]), asked)
        self.equal(placed, want)
        self.equal(naive, want)
        self.assertEqual(placed["bytes_copied_per_token"], 0)
        self.assertGreater(naive["bytes_copied_per_token"], 0)
        oracle.answer = want
        return oracle


class OracleTest(SpeechCase):
    def test_windows_by_timestamps(self):
        for seed in SEEDS:
            with self.subTest(seed):
                oracle = self.check(Options(), seed=seed)
                seeks = [w["seek"] for w in oracle.windows]
                self.assertTrue(any(b - a < RATE for a, b in zip(seeks, seeks[1:])), "no window begins at a segment")
                self.assertTrue(any(b - a == RATE for a, b in zip(seeks, seeks[1:])), "no window is taken whole")
                self.assertGreater(len(oracle.answer["segments"]), len(seeks))
                self.assertTrue(any(len(w["ids"]) == w["most"] for w in oracle.windows), "no answer ends by its length")
                self.assertTrue(any(len(w["ids"]) < w["most"] for w in oracle.windows), "no answer ends by itself")

    def test_noise_and_silence(self):
        for name, samples in (("noise", tiny.noise(2.5)), ("silence", np.zeros(2 * RATE))):
            file, samples = self.wav(name + ".wav", samples)
            self.check(Options(), file=file, samples=samples)

    def test_lengths(self):
        """Of one frame, of one window; and what is less than a frame behind a window."""
        tones = tiny.tones(3, 5)
        for count in (160, 161, 3000, RATE, RATE + HOP - 1, RATE + HOP, 2 * RATE + 7):
            with self.subTest(count):
                file, samples = self.wav(f"{count}.wav", tones[:count])
                self.check(Options(timestamps=False), "--timestamps", "none", file=file, samples=samples)
        for count in (3000, RATE + 3000):
            with self.subTest(count):
                file, samples = self.wav(f"{count}.wav", tones[:count])
                self.check(Options(), file=file, samples=samples)

    def test_less_than_a_frame_is_refused(self):
        for count in (1, 159):
            file, _ = self.wav(f"{count}.wav", tiny.tones(3, 5)[:count])
            for more in ([], ["--vad"], ["--batched"]):
                self.refused(Run("transcribe", self.model, file, *more), f"{count}.wav: too short: samples at 16000 Hz: {count}")

    def test_without_timestamps_windows_are_fixed(self):
        for seed in SEEDS:
            oracle = self.check(Options(timestamps=False), "--timestamps", "none", seed=seed)
            self.assertEqual([w["seek"] for w in oracle.windows], [i * RATE for i in range(5)])
            self.assertTrue(any(i >= TIMES for w in oracle.windows for i in w["ids"]), "the model writes no timestamps of its own")

    def test_languages_and_tasks(self):
        given = set()
        for language in ("auto", *tiny.LANGUAGES):
            for task in ("transcribe", "translate"):
                with self.subTest(language, task=task):
                    oracle = self.check(Options(language=language, task=task, timestamps=False), "--language", language, "--task", task, "--timestamps", "none")
                    self.assertEqual(oracle.answer["language_probability"] == 1, language != "auto")
                    given.add((language, task, oracle.answer["text"]))
        self.assertEqual(len({text for language, _, text in given if language != "auto"}), 6, "languages and tasks make no difference")

    def test_prompt_and_hotwords(self):
        long = "abc def gab hox kilm nop q" * 2
        for prompt, hotwords, condition in (("abc de", "", True), (long, "", True), (long, "", False), ("", "kilo", True), ("", "kilo", False),
                                            (" abc ", long, True), (long, long, False), ("abc", "de", True)):
            with self.subTest(prompt=prompt, hotwords=hotwords, condition=condition):
                oracle = self.check(Options(prompt=prompt, hotwords=hotwords, condition=condition), "--prompt", prompt, "--hotwords", hotwords,
                                    "--condition-on-previous-text", str(condition).lower())
                first, second = (w["prompt"] for w in oracle.windows[:2])
                if prompt == long:  # as much of its end as half the context holds
                    self.assertEqual(len(first), CONTEXT // 2 + 3)
                if hotwords == "kilo" and not condition:
                    self.assertEqual(first, second)

    def test_condition_on_previous_text(self):
        texts = set()
        for condition in (True, False):
            oracle = self.check(Options(condition=condition), "--condition-on-previous-text", str(condition).lower())
            self.assertEqual(any(len(w["prompt"]) > 3 for w in oracle.windows), condition)
            texts.add(oracle.answer["text"])
        self.assertEqual(len(texts), 2)

    def test_what_is_not_said_is_no_prompt(self):
        """A window whose answer has no text leaves none before the next one."""
        seed = SEEDS[0]
        oracle = self.check(Options(), seed=seed)
        self.assertTrue(any(w["ids"] and not any(i < END for i in w["ids"]) for w in oracle.windows[:-1]), "every window has text")

    def test_thresholds_and_fallback(self):
        """The next temperature is so low that the most probable tokens are drawn."""
        seen = set()
        for o in (Options(temperatures=(0, CERTAIN)), Options(temperatures=(0, CERTAIN), logprob=None), Options(temperatures=(0, CERTAIN), ratio=0.9),
                  Options(temperatures=(0, CERTAIN), logprob=-0.7, ratio=None), Options(no_speech=1e-4), Options(no_speech=1e-4, logprob=None),
                  Options(no_speech=1e-4, logprob=-0.7, temperatures=(0, CERTAIN)), Options(no_speech=None, ratio=None, logprob=None)):
            with self.subTest(o):
                oracle = self.check(o, *(x for name, value in (("compression-ratio", o.ratio), ("logprob", o.logprob), ("no-speech", o.no_speech))
                                         for x in (f"--{name}-threshold", "none" if value is None else value)))
                temperatures = [w["temperature"] for w in oracle.windows]
                seen.add((len(set(temperatures)) > 1, len(oracle.answer["segments"]) == 0, len(oracle.answer["output_ids"]) < sum(len(w["ids"]) for w in oracle.windows)))
        self.assertGreater(len(seen), 2, seen)

    def test_beams(self):
        answers = set()
        for beams, patience, penalty in ((2, 1, 1), (3, 1, 1), (5, 1, 1), (3, 2, 1), (3, 0.4, 1), (3, 1, 0), (3, 2, 2.5), (3, 2, -1)):
            with self.subTest(beams, patience=patience, penalty=penalty):
                oracle = Oracle(self.weights[SEEDS[1]])
                want = oracle.transcribe(self.samples, Options(beams=beams, patience=patience, length_penalty=penalty, condition=False))
                self.assertGreater(oracle.margin, MARGIN, "the answer is not clear")
                options = ["--temperature", 0, "--beams", beams, "--patience", patience, "--length-penalty", penalty, "--condition-on-previous-text", "false"]
                placed, naive = self.pool.map(lambda o: self.one(self.tones, *o, model=self.models[SEEDS[1]]), (options, [*options, "--naive"]))
                self.equal(placed, want)
                self.equal(naive, want)
                self.assertEqual(placed["bytes_copied_per_token"], 0)
                answers.add(tuple(want["output_ids"]))
        self.assertGreater(len(answers), 4)

    def test_drawn_tokens(self):
        """Their log-probabilities are those of the model at any temperature, and above 0.5 the text before is forgotten."""
        for temperature in (0.4, 0.8):
            with self.subTest(temperature):
                options = [self.tones, "--temperature", temperature, "--best-of", 1, "--timestamps", "none", "--seed", 1]
                got = self.one(*options)
                self.assertEqual(len(got["segments"]), 5)
                oracle = Oracle(self.weights[SEEDS[0]])
                want = oracle.transcribe(self.samples, Options(timestamps=False), given=[(s["tokens"], temperature) for s in got["segments"]])
                self.equal(got, want)
                self.assertEqual(len(oracle.windows[2]["prompt"]) > 4, temperature < 0.5)
                self.assertFalse({*tiny.SUPPRESSED} & {*got["output_ids"]})


class OptionsTest(SpeechCase):
    def test_seeds_and_best_of(self):
        def ids(*options):
            return self.one(self.tones, "--temperature", 1, "--timestamps", "none", *options)["output_ids"]
        asked = [(), ("--seed", 0), ("--seed", 1), ("--seed", 2**64 - 1), ("--seed", 1, "--best-of", 1), ("--seed", 1, "--threads", 2), ("--seed", 1, "--naive")]
        default, zero, one, most, single, threads, naive = self.pool.map(lambda o: ids(*o), asked)
        self.assertEqual(default, zero)
        self.assertEqual(one, threads)
        self.assertEqual(one, naive)
        self.assertEqual(len({tuple(x) for x in (zero, one, most, single)}), 4)

    def test_the_most_probable_of_several_is_taken(self):
        average = [self.one(self.tones, "--temperature", 1, "--timestamps", "none", "--best-of", n, "--condition-on-previous-text", "false")["segments"][0]["avg_logprob"]
                   for n in (1, 2, 16)]
        self.assertEqual(average, sorted(average))
        self.assertLess(average[0], average[-1])

    def test_fallback_by_default(self):
        """Doubtful windows alone are drawn, each temperature after the others."""
        everywhere = self.one(self.tones, "--logprob-threshold", 0)
        self.assertEqual({s["temperature"] for s in everywhere["segments"]}, {1})
        never = self.one(self.tones, "--logprob-threshold", "none", "--compression-ratio-threshold", "none")
        self.assertEqual({s["temperature"] for s in never["segments"]}, {0})
        self.assertEqual(never["output_ids"], self.one(self.tones, "--temperature", 0, "--logprob-threshold", "none")["output_ids"])
        some = self.one(self.tones, "--temperature", "0,0.5")
        self.assertEqual({s["temperature"] for s in some["segments"]}, {0, 0.5})

    def test_vad(self):
        """Two stretches of tones in quiet noise: nothing between them, and times are those of the recording."""
        quiet = tiny.noise(9, 0.001)
        for at in (2, 6):
            quiet[at * RATE:(at + 1) * RATE] += tiny.tones(1, at)
        file, _ = self.wav("gap.wav", quiet)
        options = [file, "--temperature", 0, "--no-speech-threshold", "none"]
        whole, found = self.one(*options), self.one(*options, "--vad")
        self.assertEqual((whole["duration_s"], found["duration_s"], found["samples_16k"]), (9, 9, 9 * RATE))
        spans = [(s["start"], s["end"]) for s in found["segments"]]
        self.assertTrue(spans)
        for start, end in spans:
            self.assertTrue(1.7 <= start <= 3.3 or 5.7 <= start <= 7.3, spans)
            self.assertTrue(1.7 <= end <= 3.3 or 5.7 <= end <= 7.3, spans)
        self.assertTrue(any(3.3 < s["start"] < 5.7 for s in whole["segments"]))
        silent, _ = self.wav("silent.wav", np.zeros(2 * RATE))
        nothing = self.one(silent, "--vad")
        self.assertEqual((nothing["text"], nothing["segments"], nothing["output_ids"], nothing["duration_s"]), ("", [], [], 2))

    def test_threads_and_packs(self):
        want = self.one(self.tones, "--temperature", 0)["output_ids"]
        for options in (["--threads", 2], ["--no-pack-cache"]):
            self.assertEqual(self.one(self.tones, "--temperature", 0, *options)["output_ids"], want)
        self.refused(Run("transcribe", self.model, self.tones, "--variant", "q4"), "q4")

    def test_words(self):
        """Texts, the order of times, and probabilities; the times themselves are compared on a recording. A row of this model's source is
        ten times as long as a row of Whisper's."""
        file, samples = self.wav("second.wav", self.samples[RATE:2 * RATE])
        for seed in SEEDS:
            options = [file, "--temperature", 0, "--language", "en"]
            plain, found = (self.one(*options, *more, model=self.models[seed]) for more in ((), ("--timestamps", "word")))
            self.assertTrue(found["segments"])
            self.assertEqual(found["output_ids"], plain["output_ids"])
            self.assertIn("no alignment_heads", found["notes"][0])
            self.assertEqual([s["tokens"] for s in found["segments"]], [s["tokens"] for s in plain["segments"]])
            oracle, prompt = Oracle(self.weights[seed]), [tiny.START, tiny.EN, tiny.TRANSCRIBE, tiny.NO_TIMESTAMPS]
            first = [s for s in found["segments"] if s["avg_logprob"] == found["segments"][0]["avg_logprob"]]  # of one window
            ids = [i for s in first for i in s["tokens"] if i < END]
            rows = oracle.logits(forward(SPEECH, self.weights[seed], "encoder", LogMel(samples).window(0)), prompt + ids)[len(prompt) - 1:]
            likely = iter([np.exp(log_softmax(row))[i] for row, i in zip(rows, ids)])
            times = []
            for segment in found["segments"]:
                self.assertEqual(list(segment), [*SEGMENT_FIELDS, "words"])
                self.assertEqual("".join(w["word"] for w in segment["words"]), segment["text"])
                for word in segment["words"]:
                    self.assertEqual(list(word), ["start", "end", "word", "probability"])
                    if segment in first:
                        self.assertAlmostEqual(word["probability"], np.mean([next(likely) for _ in word["word"]]), places=4)
                    self.assertNotIn(" ", word["word"][1:])
                    times += [word["start"], word["end"]]
            self.assertEqual(times, sorted(times))

    def test_encoder_input(self):
        """A spectrogram in place of a recording: its one window."""
        file, samples = self.wav("first.wav", self.samples[:RATE])
        array = self.folder / "first.npy"
        np.save(array, LogMel(samples).window(0)[None])
        want = self.one(file, "--temperature", 0)
        for options in ([], ["--naive"]):
            found = self.one("--encoder-input", f"input_features={array}", "--temperature", 0, *options)
            *whole, last = [s["tokens"] for s in found["segments"]]  # the last one is text that the window does not finish
            self.assertEqual((found["audio"], whole), (str(array), [s["tokens"] for s in want["segments"][:len(whole)]]))
            self.assertTrue(last and whole)
            self.assertTrue(found["segments"])
        self.refused(Run("transcribe", self.model, file, "--encoder-input", f"input_features={array}"), "--encoder-input", "recordings")
        self.refused(Run("transcribe", self.model, "--encoder-input", f"pixels={array}"), "pixels", "input_features")
        np.save(array, np.zeros((1, FEATURES, 2 * FRAMES), np.float32))
        self.refused(Run("transcribe", self.model, "--encoder-input", f"input_features={array}"), "input_features", "200")
        np.save(array, np.zeros((1, FEATURES, FRAMES), np.int64))
        self.refused(Run("transcribe", self.model, "--encoder-input", f"input_features={array}"), "input_features", "float32")

    def bursts(self, name, lengths, pause=1.0):
        """A file of tones of so many seconds each, in quiet noise."""
        samples = tiny.noise(sum(lengths) + pause * (len(lengths) + 1), 0.001)
        at = pause
        for i, length in enumerate(lengths):
            samples[int(at * RATE):int(at * RATE) + int(length * RATE)] += tiny.tones(length, i)[:int(length * RATE)]
            at += length + pause
        return self.wav(name, samples)

    def said(self, samples, o):
        """The oracle's answers for a window, and for what is left of it where an answer ends with a pair of timestamps."""
        answers = []
        while len(samples) >= RATE // 30:
            oracle = Oracle(self.weights[SEEDS[0]])
            oracle.transcribe(samples, o)
            answers.append(oracle.windows[0]["ids"])
            moved = oracle.cut(answers[-1], len(samples) / RATE, True)[1]
            pair = max((i for i in range(1, len(answers[-1])) if min(answers[-1][i - 1:i + 1]) >= TIMES), default=0)
            if moved is None or any(i < END for i in answers[-1][pair:]):  # a segment that is not finished ends with the window
                break
            samples = samples[round(moved * RATE):]
        return answers

    def test_batched(self):
        """Windows of speech by themselves: each as the oracle has it alone, however many are decoded together."""
        file, samples = self.bursts("bursts.wav", [0.5, 0.4, 0.45, 0.55, 0.5])
        longest = 0
        for more, o in (((), {}), (("--prompt", "abc de", "--hotwords", "kilo"), {"prompt": "abc de", "hotwords": "kilo"})):
            options = [file, "--temperature", 0, "--language", "en", "--no-speech-threshold", "none", *more]
            fixed, timed = (self.one(*options, "--batched=3", "--timestamps", form) for form in ("none", "segment"))
            fixed = fixed["segments"]
            self.assertEqual(len(fixed), 5)
            want, margin = [], np.inf
            for s in fixed:
                alone = samples[round(s["start"] * RATE):round(s["end"] * RATE)]
                oracle = Oracle(self.weights[SEEDS[0]])
                answer = oracle.transcribe(alone, Options(timestamps=False, language="en", no_speech=None, **o))
                self.assertEqual(answer["output_ids"], s["tokens"])
                margin = min(margin, oracle.margin)
                want.append(self.said(alone, Options(language="en", no_speech=None, **o)))
            self.assertGreater(margin, MARGIN, "the answer is not clear")
            longest = max(longest, *map(len, want))
            self.assertEqual([i for i in timed["output_ids"] if i < END], [i for answers in want for ids in answers for i in ids if i < END])
        self.assertGreater(longest, 1, "no text ends before its window")

    def test_batched_together_as_one_by_one(self):
        """With fallback, draws, beams and words, for any number, and without a copied byte. Float products of one row and of several add
        up in other orders: the last digits of probabilities differ."""
        file, _ = self.bursts("many.wav", [0.3, 0.2, 0.7, 0.6, 2.4, 0.5, 0.3, 0.7], 0.8)
        texts = set()
        for options in ([], ["--timestamps", "none"], ["--temperature", "0,0.5,1", "--logprob-threshold", "-0.6", "--seed", 5], ["--beams", 3, "--temperature", 0],
                        ["--temperature", 1, "--best-of", 2], ["--timestamps", "word"], ["--prompt", "abc", "--condition-on-previous-text", "false"]):
            with self.subTest(options):
                asked = [(file, *options, *more) for more in (("--batched=1",), ("--batched=2",), ("--batched=5", "--threads", 2), ("--batched",), ("--batched=64",))]
                if options[-1:] != ["word"]:
                    asked.append((file, *options, "--batched=3", "--naive"))
                one, *others = self.pool.map(lambda o: self.one(*o), asked)
                self.assertGreater(len(one["segments"]), 3)
                self.assertEqual(one["bytes_copied_per_token"], 0)
                naive = others.pop() if options[-1:] != ["word"] else one
                for found in (*others, naive):
                    self.equal(found, one)
                    self.assertEqual([s.get("words") and [(w["start"], w["end"], w["word"]) for w in s["words"]] for s in found["segments"]],
                                     [s.get("words") and [(w["start"], w["end"], w["word"]) for w in s["words"]] for s in one["segments"]])
                    self.assertEqual(found["bytes_copied_per_token"] > 0, found is naive and naive is not one)
                times = [x for s in one["segments"] for x in (s["start"], s["end"])]
                self.assertEqual(times, sorted(times))
                texts.add(one["text"])
        self.assertGreater(len(texts), 4)
        silent, _ = self.wav("quiet.wav", np.zeros(2 * RATE))
        nothing = self.one(silent, "--batched")
        self.assertEqual((nothing["text"], nothing["segments"], nothing["output_ids"], nothing["duration_s"]), ("", [], [], 2))

    def test_misuse(self):
        numbers = {"--beams": ("0", "257", "1.5", "x"), "--best-of": ("0", "257", "x"), "--patience": ("0", "-1", "nan", "101", "x"), "--length-penalty": ("nan", "inf", "x"),
                   "--temperature": ("-1", "nan", "inf", "hot", "", "0,", "0,,1", "0 1", "101"), "--compression-ratio-threshold": ("x", "nan", ""), "--logprob-threshold": ("x", "nan"),
                   "--no-speech-threshold": ("x", "nan", "None"), "--condition-on-previous-text": ("yes", "1"), "--seed": ("-1", "x", str(2**64)), "--threads": ("0", "1025", "x"),
                   "--task": ("write",), "--timestamps": ("letter",), "--format": ("doc",), "--batched": ("0", "65", "x")}
        cases = [(name, value) for name, values in numbers.items() for value in values]
        def run(case):
            return Run("transcribe", self.model, self.tones, f"{case[0]}={case[1]}")
        for (name, value), found in zip(cases, self.pool.map(run, cases)):
            with self.subTest(name, value=value):
                self.refused(found, name[2:].split("-")[0], "" if "," in value else value)
        self.refused(Run("transcribe", self.model, self.tones, "--language", "xx"), "unknown language 'xx'", "auto, de, en, fr")
        self.refused(Run("transcribe", self.model, self.tones, "--json", "--format", "srt"), "--json", "srt")
        self.refused(Run("transcribe", self.model, self.tones, "--prompt", "\udcff"), "--prompt", "UTF-8")
        self.refused(Run("transcribe", self.model, self.tones, "--hotwords", "\udcff"), "--hotwords", "UTF-8")
        self.refused(Run("transcribe", self.model), "recording", "--encoder-input")

    def test_bad_models(self):
        def changed(name, **fields):
            return tiny.write_folder(self.folder / name, self.weights[SEEDS[0]], **fields)
        self.refused(Run("transcribe", changed("mels", preprocessor={"feature_size": 8}), self.tones), "input_features", "6 mels", "feature_size 8")
        self.refused(Run("transcribe", changed("frames", preprocessor={"chunk_length": 2}), self.tones), "100 frames", "2 s", "200")
        self.refused(Run("transcribe", changed("words", preprocessor={"feature_size": "x"}), self.tones), "preprocessor_config.json", "feature_size")
        self.refused(Run("transcribe", changed("outside", generation={"decoder_start_token_id": 64}), self.tones), "startoftranscript", "64")
        self.refused(Run("transcribe", changed("late", generation={"no_timestamps_token_id": 63}), self.tones), "<|0.00|>", "64")
        missing = changed("missing")
        (missing / "tokenizer.json").unlink()
        self.refused(Run("transcribe", missing, self.tones), "tokenizer.json")
        self.refused(Run("transcribe", self.folder / "nowhere", self.tones), "nowhere")


class FilesTest(SpeechCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.other = cls.folder / "other.wav"
        tiny.write_wav(cls.other, tiny.tones(2, 9))
        cls.want = {f: json.loads(Run("transcribe", cls.model, f, "--json", "--temperature", 0, "--threads", 1).out) for f in (cls.tones, cls.other)}

    def transcribe(self, *options, code=0, **more):
        run = Run("transcribe", self.model, "--temperature", 0, "--threads", 1, *options, **more)
        self.assertEqual((run.code, run.stopped), (code, ""), run)
        return run

    @staticmethod
    def time(seconds, mark="."):
        ms = round(seconds * 1000)
        return f"{ms // 60000:02}:{ms // 1000 % 60:02}{mark}{ms % 1000:03}"

    def expected(self, form, segments):
        times = [(s["start"], s["end"], s["text"].strip()) for s in segments]
        return {"text": "".join(f"[{self.time(a)} --> {self.time(b)}] {text}\n" for a, b, text in times),
                "plain": "".join(f"{text}\n" for _, _, text in times),
                "srt": "".join(f"{i}\n00:{self.time(a, ',')} --> 00:{self.time(b, ',')}\n{text}\n\n" for i, (a, b, text) in enumerate(times, 1)),
                "vtt": "WEBVTT\n\n" + "".join(f"{self.time(a)} --> {self.time(b)}\n{text}\n\n" for a, b, text in times),
                "tsv": "start\tend\ttext\n" + "".join(f"{round(1000 * a)}\t{round(1000 * b)}\t{text}\n" for a, b, text in times)}[form]

    def test_json(self):
        run = self.transcribe(self.tones, "--json")
        self.assertEqual(run.out.count("\n"), 1)
        got = json.loads(run.out)
        self.assertEqual(list(got), FIELDS)
        self.assertEqual(got["audio"], str(self.tones))
        self.assertEqual((got["duration_s"], got["samples_16k"]), (len(self.samples) / RATE, len(self.samples)))
        for segment in got["segments"]:
            self.assertEqual(list(segment), SEGMENT_FIELDS)
        self.assertEqual(got["text"], "".join(s["text"] for s in got["segments"]))
        for name in ("load_ms", "features_ms", "encode_ms", "decode_ms_per_token", "peak_rss_mib"):
            self.assertGreater(got[name], 0, name)
        self.assertEqual(run.err, self.expected("text", got["segments"]))  # as they are decided
        same = json.loads(self.transcribe(self.tones, "--format", "json").out)
        self.assertEqual(same["segments"], got["segments"])

    def test_text_and_subtitles(self):
        segments = self.want[self.tones]["segments"]
        self.assertGreater(len(segments), 5)
        for form in ("text", "srt", "vtt", "tsv"):
            run = self.transcribe(self.tones, "--format", form)
            self.assertEqual((run.out, run.err), (self.expected(form, segments), ""), form)
        run = self.transcribe(self.tones, "--timestamps", "none")
        fixed = self.one(self.tones, "--temperature", 0, "--timestamps", "none")["segments"]
        self.assertEqual(run.out, self.expected("plain", fixed))

    def test_several_files(self):
        run = self.transcribe(self.tones, self.other)
        self.assertEqual(run.out, "".join(f"{f}:\n" + self.expected("text", self.want[f]["segments"]) for f in (self.tones, self.other)))
        found = self.run_all(self.other, self.tones, "--temperature", 0)
        self.assertEqual([f["audio"] for f in found], [str(self.other), str(self.tones)])
        self.assertEqual([f["segments"] for f in found], [self.want[f]["segments"] for f in (self.other, self.tones)])

    def test_a_folder_of_files(self):
        for form in ("text", "json", "srt", "vtt", "tsv"):
            out = self.folder / "new" / form
            run = self.transcribe(self.tones, self.other, "--format", form, "-o", out)
            self.assertEqual(run.out, "")
            self.assertEqual(sorted(f.name for f in out.iterdir()), [f"other.{form}", f"tones.{form}"])
            for file in (self.tones, self.other):
                text, segments = (out / f"{file.stem}.{form}").read_text(), self.want[file]["segments"]
                if form == "json":
                    self.assertEqual(json.loads(text)["segments"], segments)
                else:
                    self.assertEqual(text, self.expected("plain" if form == "text" else form, segments))

    def test_refused_before_any_work(self):
        """Before the model is looked for, too."""
        nowhere, out = self.folder / "no model", self.folder / "untouched"
        above = self.folder / "above"
        above.mkdir()
        self.refused(Run("transcribe", nowhere, self.tones, above / "tones.mp3", "-o", out), "tones", "-o", str(self.tones), "above/tones.mp3")
        self.assertFalse(out.exists())
        for form in ("srt", "vtt", "tsv"):
            self.refused(Run("transcribe", nowhere, self.tones, self.other, "--format", form), form, "-o")
        self.refused(Run("transcribe", nowhere, "-", "-"), "'-'", "twice")
        self.refused(Run("transcribe", nowhere, self.tones, "--timestamps", "word", "--naive"), "word", "--naive")
        self.refused(Run("transcribe", nowhere, self.tones, "-o", self.tones), "-o", "tones.wav")

    def test_standard_input(self):
        with self.tones.open("rb") as stdin:
            found = self.one("-", "--temperature", 0, stdin=stdin)
        self.assertEqual((found["audio"], found["segments"]), ("-", self.want[self.tones]["segments"]))
        out = self.folder / "in"
        with self.tones.open("rb") as stdin:
            self.transcribe("-", "--format", "srt", "-o", out, stdin=stdin)
        self.assertEqual((out / "stdin.srt").read_text(), self.expected("srt", self.want[self.tones]["segments"]))
        self.refused(Run("transcribe", self.model, "-", stdin=subprocess.DEVNULL), "stdin", "empty")

    def test_a_bad_file_does_not_stop_the_others(self):
        text = self.folder / "text.wav"
        text.write_text("no audio at all, only words\n" * 20)
        for bad, word in ((self.folder / "missing.wav", "missing.wav"), (text, "text.wav"), (self.folder, str(self.folder))):
            run = self.transcribe(self.tones, bad, self.other, "--json", code=2)
            first, failed, last = map(json.loads, run.out.splitlines())
            self.assertEqual(list(failed), ["audio", "error"])
            self.assertEqual(failed["audio"], str(bad))
            self.assertIn(word, failed["error"])
            self.assertEqual([f["segments"] for f in (first, last)], [self.want[f]["segments"] for f in (self.tones, self.other)])
            self.assertEqual([line for line in run.err.splitlines() if line.startswith("situ: ")], [f"situ: {failed['error']}"])
        out = self.folder / "some"
        run = self.transcribe(self.tones, self.folder / "missing.wav", self.other, "--format", "srt", "-o", out, code=2)
        self.assertEqual(sorted(f.name for f in out.iterdir()), ["other.srt", "tones.srt"])
        self.assertEqual(run.out, "")
        # An object that an earlier run left does not look like this one's.
        (out / "missing.json").write_text("{}")
        self.transcribe(self.folder / "missing.wav", self.other, "--format", "json", "-o", out, code=2)
        self.assertEqual(list(json.loads((out / "missing.json").read_text())), ["audio", "error"])
        self.assertIn("segments", json.loads((out / "other.json").read_text()))
        (out / "tones.tsv").mkdir()
        self.refused(Run("transcribe", self.model, self.tones, "--format", "tsv", "-o", out), "tones.tsv")
        self.assertFalse(list(out.glob("*.part")))
        self.refused(Run("transcribe", self.model, self.folder / "missing.wav"), "missing.wav")

    def test_bad_options_are_said_once(self):
        self.refused(Run("transcribe", self.model, self.tones, self.other, "--language", "xx"), "unknown language 'xx'")
        self.refused(Run("transcribe", self.model, self.tones, self.other, "--patience", "0"), "patience")

    def test_a_truncated_file(self):
        """What there is is transcribed; the exit code and a line say that there should be more."""
        cut = self.folder / "cut.wav"
        cut.write_bytes(self.tones.read_bytes()[:44 + 2 * int(2.5 * RATE)])
        file, _ = self.wav("whole.wav", self.samples[:int(2.5 * RATE)])
        want = self.one(file, "--temperature", 0)
        found = self.one(cut, "--temperature", 0, code=2)
        self.assertEqual(list(found), [*FIELDS, "error"])
        self.assertEqual((found["segments"], found["duration_s"]), (want["segments"], 2.5))
        self.assertIn("cut.wav", found["error"])
        run = self.transcribe(cut, code=2)
        self.assertEqual(run.out, self.expected("text", want["segments"]))
        self.assertRegex(run.err, r"\Asitu: [^\n]*cut\.wav[^\n]*2\.50 s of 4\.30 s[^\n]*\n\Z")

    def test_samples_that_are_no_numbers(self):
        """What was decoded before them is kept."""
        for bad in (np.nan, np.inf):
            samples = np.float32(self.samples)
            samples[4 * RATE] = bad
            file = self.folder / "float.wav"
            head = b"RIFF" + struct.pack("<I", 36 + samples.nbytes) + b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 3, 1, RATE, 4 * RATE, 4, 32)
            file.write_bytes(head + b"data" + struct.pack("<I", samples.nbytes) + samples.tobytes())
            found = self.one(file, "--temperature", 0, code=2)
            self.assertEqual(list(found), [*FIELDS, "error"])
            self.assertIn("float.wav", found["error"])
            self.assertTrue(found["segments"])
            self.assertEqual(found["segments"], self.want[self.tones]["segments"][:len(found["segments"])])
            run = self.transcribe(file, code=2)
            self.assertEqual(run.out, self.expected("text", found["segments"]))
            self.assertEqual(run.err, f"situ: {found['error']}\n")

    def test_nobody_reads(self):
        with open("/dev/full", "wb") as full:
            for options in ([], ["--json"], ["--format", "srt"], [self.other], ["--json", self.folder / "missing.wav", self.other]):
                done = subprocess.run([cli_case.SITU, "transcribe", self.model, self.tones, *options], stdout=full, stderr=subprocess.PIPE)
                self.assertEqual(done.returncode, 2, options)
                self.assertTrue(done.stderr.endswith(b"situ: standard output cannot be written\n"), done.stderr)
                self.assertNotIn(b"missing.wav", done.stderr, "no other file is begun")

    def test_progress_on_a_terminal(self):
        master, terminal = cli_case.open_terminal()
        process = subprocess.Popen([cli_case.SITU, "transcribe", self.model, self.tones, "--temperature", "0", "--threads", "1"], stdout=subprocess.PIPE, stderr=terminal)
        os.close(terminal)
        shown = b""
        with contextlib.suppress(OSError):  # the end: nobody has the terminal open
            while piece := os.read(master, 1 << 16):
                shown += piece
        os.close(master)
        out, _ = process.communicate(timeout=cli_case.PATIENCE)
        shown = shown.decode()
        self.assertEqual((process.returncode, out.decode()), (0, self.expected("text", self.want[self.tones]["segments"])))
        self.assertRegex(shown, r"\A\r\[ {40}\]   0% 0 s\r\x1b\[K")
        self.assertRegex(shown, r"\[#{30,40} *\] +[0-9]+% 4 s\r\x1b\[K\Z")

    def test_an_interrupt(self):
        long, _ = self.wav("long.wav", np.tile(self.samples, 100))
        for options in ([], ["--json"]):
            with self.subTest(options):
                process = subprocess.Popen([cli_case.SITU, "transcribe", self.model, long, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                           env={**os.environ, "SITU_CACHE_DIR": ""})
                first = (process.stderr if options else process.stdout).readline()
                process.send_signal(signal.SIGINT)
                out, err = process.communicate(timeout=cli_case.PATIENCE)
                self.assertEqual(process.returncode, 130, err)
                self.assertRegex(first.decode(), r"\A\[00:0")
                if options:
                    found = json.loads(out)
                    self.assertEqual((list(found), found["cancelled"]), ([*FIELDS, "cancelled"], True))
                    self.assertTrue(found["segments"])
                    self.assertLess(len(found["segments"]), 500)

    def test_an_interrupt_leaves_files_as_they_are(self):
        long, _ = self.wav("long.wav", np.tile(self.samples, 100))
        out = self.folder / "whole"
        out.mkdir()
        (out / "long.json").write_text("whole")
        process = subprocess.Popen([cli_case.SITU, "transcribe", self.model, long, "--format", "json", "-o", out], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env={**os.environ, "SITU_CACHE_DIR": ""})
        process.stderr.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=cli_case.PATIENCE)
        self.assertEqual((process.returncode, err.decode().splitlines()[-1]), (130, f"situ: interrupted: {out / 'long.json'} is not written"))
        self.assertEqual([(f.name, f.read_text()) for f in out.iterdir()], [("long.json", "whole")])

    def test_an_interrupt_where_nobody_speaks(self):
        """A recording without an end, of which no window is ever whole."""
        header = struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 2**31 - 1, b"WAVE", b"fmt ", 16, 1, 1, RATE, 2 * RATE, 2, 16, b"data", 2**31 - 37)

        def feed(to, begun):
            with contextlib.suppress(BrokenPipeError), to:
                to.write(header)
                for i in itertools.count():
                    to.write(bytes(2**16))
                    if i == 16:  # more than a pipe holds
                        begun.set()

        for options in (["--vad"], ["--batched"], ["--vad", "--json"]):
            with self.subTest(options):
                process = subprocess.Popen([cli_case.SITU, "transcribe", self.model, "-", *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                           stderr=subprocess.PIPE, env={**os.environ, "SITU_CACHE_DIR": ""})
                begun, stdin = threading.Event(), process.stdin
                process.stdin = None  # the other thread's
                writer = threading.Thread(target=feed, args=(stdin, begun))
                writer.start()
                self.assertTrue(begun.wait(cli_case.PATIENCE))
                process.send_signal(signal.SIGINT)
                out, err = process.communicate(timeout=cli_case.PATIENCE)
                writer.join()
                self.assertEqual(process.returncode, 130, err)
                if "--json" in options:
                    self.assertEqual((json.loads(out)["cancelled"], json.loads(out)["segments"]), (True, []))


@unittest.skipUnless((golden.SHARED / "whisper-base-int8").is_dir() and (golden.SHARED.parent / "audio" / "jfk.flac").is_file(),
                     "no models/whisper-base-int8 and audio/jfk.flac in ../shared or SITU_SHARED")
class RecordingTest(CliTest):
    def test_jfk(self):
        run = Run("transcribe", golden.SHARED / "whisper-base-int8", golden.SHARED.parent / "audio" / "jfk.flac", "--json")
        self.assertEqual((run.code, run.stopped), (0, ""), run)
        found = json.loads(run.out)
        self.assertIn("ask not what your country", found["text"])
        self.assertEqual((found["language"], found["bytes_copied_per_token"]), ("en", 0))
        self.assertAlmostEqual(found["segments"][-1]["end"], 11, delta=0.7)

    def test_the_words_of_jfk(self):
        run = Run("transcribe", golden.SHARED / "whisper-base-int8", golden.SHARED.parent / "audio" / "jfk.flac", "--json", "--language", "en", "--timestamps", "word")
        self.assertEqual((run.code, run.stopped), (0, ""), run)
        words = {w["word"].strip(" ,."): w for s in json.loads(run.out)["segments"] for w in s["words"]}
        for word, start, end in (("fellow", 1.18, 1.54), ("Americans", 1.54, 2.1), ("country", 9.94, 10.36)):  # the last of each
            self.assertAlmostEqual(words[word]["start"], start, delta=0.2)
            self.assertAlmostEqual(words[word]["end"], end, delta=0.2)


if __name__ == "__main__":
    main()
