"""`situ transcribe`: tiny speech models against their oracle in NumPy, and every option.

    python tests/speech_test.py --situ build/situ [unittest options]

Needs numpy and onnx (`make python`).
"""
import json
from dataclasses import replace

import numpy as np

import sweep
import tiny_speech as tiny
from cli_case import Run, main
from speech_case import CERTAIN, MARGIN, SEEDS, SEGMENT_FIELDS, SpeechCase
from speech_oracle import LogMel, Options, Oracle, log_softmax
from tiny_seq2seq import CONTEXT, FEATURES, FRAMES, SPEECH, forward
from tiny_speech import END, HOP, RATE, TIMES


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

    def test_a_window_of_zeros_has_no_text(self):
        """At the front, where the language is not known yet, in the middle, and everywhere; whatever is asked for."""
        speech, fixed = tiny.tones(1, 5), ("--timestamps", "none", "--language", "German")
        for name, parts, o, options in (("front", [np.zeros(RATE), speech], Options(), ()),
                                        ("behind", [speech, np.zeros(2 * RATE)], Options(timestamps=False, language="de"), fixed),
                                        ("odd", [np.zeros(2 * RATE + 333)], Options(timestamps=False, language="de"), fixed)):
            file, samples = self.wav(name + ".wav", np.concatenate(parts))
            oracle = self.check(o, *options, file=file, samples=samples)
            self.assertEqual(oracle.answer["text"] == "", name == "odd")
            self.assertEqual(min((w["seek"] for w in oracle.windows), default=None), {"front": RATE, "behind": 0, "odd": None}[name])
        for more in (["--no-speech-threshold", "none"], ["--timestamps", "word"], ["--task", "translate"]):
            found = self.one(file, *more)
            self.assertEqual((found["text"], found["segments"], found["language"], found["language_probability"], found["samples_16k"]), ("", [], "", 0, 2 * RATE + 333))

    def test_the_first_window_with_speech_tells_the_language(self):
        """Those before it have no text; where nobody speaks, no language is known."""
        oracle, mel = Oracle(self.weights[SEEDS[0]]), LogMel(self.samples)
        sources = [forward(SPEECH, oracle.w, "encoder", mel.window(at)) for at in range(0, len(self.samples), RATE)]
        silent = [float(np.exp(log_softmax(oracle.logits(source, [tiny.START])[0]))[tiny.NO_SPEECH]) for source in sources]
        first = int(np.argmin(silent))
        self.assertGreater(first, 0, "the first window is the one with speech")
        for threshold, known in ((min(silent) * 1.05, True), (min(silent) * 0.95, False)):
            o = Options(timestamps=False, no_speech=threshold, logprob=-9)
            oracle = self.check(o, "--timestamps", "none", "--no-speech-threshold", threshold, "--logprob-threshold", -9)
            self.assertEqual(bool(oracle.answer["text"]), known)
            self.assertEqual([w["seek"] for w in oracle.windows][:1], [first * RATE] if known else [])
            file, _ = self.bursts("late.wav", [0.5, 0.4])
            batched = [self.one(file, "--temperature", 0, "--no-speech-threshold", threshold, f"--batched={n}") for n in (1, 3)]
            self.equal(*batched)

    def test_words(self):
        """Word times by the oracle's own alignment, over several windows, which begin where the words before them end."""
        moved = set()
        for seed in SEEDS:
            for language in ("en", "fr"):
                with self.subTest(seed, language=language):
                    options = [self.tones, "--temperature", 0, "--language", language]
                    oracle = Oracle(self.weights[seed])
                    want = oracle.transcribe(self.samples, Options(language=language, words=True))
                    self.assertGreater(oracle.margin, MARGIN, "the answer is not clear")
                    found = self.one(*options, "--timestamps", "word", model=self.models[seed])
                    self.equal(found, want)
                    self.assertIn("no alignment_heads", found["notes"][0])
                    self.assertEqual("".join(w["word"] for s in found["segments"] for w in s["words"]), found["text"])
                    end = 0
                    for got, own in zip(found["segments"], want["segments"]):
                        self.assertEqual(list(got), [*SEGMENT_FIELDS, "words"])
                        self.assertEqual([w["word"] for w in got["words"]], [w["word"] for w in own["words"]])
                        for a, b in zip(got["words"], own["words"]):
                            self.assertEqual(list(a), ["start", "end", "word", "probability"])
                            for name in ("start", "end", "probability"):
                                self.assertAlmostEqual(a[name], b[name], places=4, msg=name)
                        times = [end, got["start"], *(t for w in got["words"] for t in (w["start"], w["end"])), got["end"]]
                        self.assertEqual(times, sorted(times))
                        self.assertGreater(got["end"], got["start"])
                        end = got["end"]
                    plain = Oracle(self.weights[seed])
                    plain.transcribe(self.samples, Options(language=language))
                    moved.add([w["seek"] for w in oracle.windows] != [w["seek"] for w in plain.windows])
        self.assertIn(True, moved, "no window is moved by its words")

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
        """The next temperature is so low that the most probable tokens are drawn. What is silent has no language, which is given here."""
        seen = set()
        for o in (Options(temperatures=(0, CERTAIN)), Options(temperatures=(0, CERTAIN), logprob=None), Options(temperatures=(0, CERTAIN), ratio=0.9),
                  Options(temperatures=(0, CERTAIN), logprob=-0.7, ratio=None), Options(no_speech=1e-4), Options(no_speech=1e-4, logprob=None),
                  Options(no_speech=1e-4, logprob=-0.7, temperatures=(0, CERTAIN)), Options(no_speech=None, ratio=None, logprob=None)):
            with self.subTest(o):
                o = replace(o, language="fr")
                oracle = self.check(o, "--language", "fr", *(x for name, value in (("compression-ratio", o.ratio), ("logprob", o.logprob), ("no-speech", o.no_speech))
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

    def test_what_the_files_ask_for(self):
        """generation_config.json's language and task, or its forced ids, where the options say nothing."""
        forced = [[1, tiny.DE], [2, tiny.TRANSLATE], [3, tiny.NO_TIMESTAMPS]]

        def asked(name, generation, config=None):
            folder = tiny.write_folder(self.folder / name, self.weights[SEEDS[0]], generation=generation)
            if config is not None:
                (folder / "config.json").write_text(json.dumps({**json.loads((folder / "config.json").read_text()), **config}))
            return folder
        named = asked("named", {"language": "<|de|>", "task": "translate"})
        ids = asked("ids", {"forced_decoder_ids": forced}, {"forced_decoder_ids": [[1, tiny.FR]]})
        free = asked("free", {"forced_decoder_ids": None, "language": None}, {"forced_decoder_ids": forced})
        wrong = asked("wrong", {"language": "klingon", "task": "whisper"})

        def text(model, *options):
            found = self.one(self.tones, "--temperature", 0, "--timestamps", "none", *options, model=model)
            return found["language"], found["text"], found["language_probability"] == 1
        cases = [(self.model, "--language", "de", "--task", "translate"), (named,), (ids,), (self.model,), (free,), (named, "--language", "auto", "--task", "transcribe"),
                 (self.model, "--language", "fr", "--task", "translate"), (named, "--language", "French"), (wrong, "--language", "FRENCH", "--task", "translate"),
                 (self.model, "--language", "<|fr|>", "--task", "translate")]
        german, *rest = self.pool.map(lambda c: text(*c), cases)
        self.assertEqual(rest[:2], [german] * 2)
        self.assertEqual(rest[3:5], [rest[2]] * 2)
        self.assertEqual(rest[6:], [rest[5]] * 3)
        self.assertEqual(len({german, rest[2], rest[5]}), 3)
        self.refused(Run("transcribe", wrong, self.tones, "--task", "translate"), "wrong/generation_config.json", "unknown language 'klingon'", "auto, de, en, fr")
        self.refused(Run("transcribe", wrong, self.tones, "--language", "de"), "wrong/generation_config.json", "whisper")

    def test_a_prompt_that_is_cut(self):
        """A note says how much of it stands before the text."""
        room = CONTEXT // 2 - 1
        for options, notes in ((["--prompt", "a" * 40], [f"prompt of 41 tokens: the last {room} "]), (["--prompt", "a" * (room - 1)], []),
                               (["--prompt", "a" * 12, "--hotwords", "b" * 30], [f"hotwords of 31 tokens: the first {room // 2} ", f"prompt of 13 tokens: the last {room - room // 2} "])):
            found = self.one(self.tones, "--temperature", 0, *options).get("notes", [])
            self.assertEqual([note.startswith(start) for note, start in zip(found, notes, strict=True)], [True] * len(notes), found)

    def test_threads_and_packs(self):
        want = self.one(self.tones, "--temperature", 0)["output_ids"]
        for options in (["--threads", 2], ["--no-pack-cache"]):
            self.assertEqual(self.one(self.tones, "--temperature", 0, *options)["output_ids"], want)
        self.refused(Run("transcribe", self.model, self.tones, "--variant", "q4"), "q4")

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
                ways = ("--batched=1",), ("--batched=2",), ("--batched=5", "--threads", 2), ("--batched",), ("--batched=64",)
                asked = [(file, *options, *more) for more in sweep.some(ways, 2)]
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


if __name__ == "__main__":
    main()
