"""Options, prompts, images and sounds as other libraries write them, and errors that name the item. tests/python_test.py runs them."""
import base64
import dataclasses
import io
import subprocess
import sys
import warnings

import numpy as np
import situ

import image_files
import tiny_encoders
import tiny_speech
import tiny_vision
from batch_test import write_hearing
from python_case import PythonTest
from python_prompts import with_parts


class Number:
    """An element of a tensor: an index, and no Integral."""

    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value


class Tensor:
    """What is used of a tensor of one axis."""

    ndim = 1

    def __init__(self, ids):
        self.ids = [Number(i) for i in ids]

    def __len__(self):
        return len(self.ids)

    def __iter__(self):
        return iter(self.ids)

    def __getitem__(self, key):
        return self.ids[key]


class Series:
    """What is used of a table's column, whose index is not 0, 1, ..."""

    ndim = 1

    def __init__(self, values):
        self.values = values

    def __iter__(self):
        return iter(self.values)

    def __len__(self):
        return len(self.values)

    def __getitem__(self, key):
        return {f"row {i}": v for i, v in enumerate(self.values)}[key]

    def tolist(self):
        return self.values


class Dumped:
    """A message of a client that is made with pydantic."""

    def __init__(self, **fields):
        self.fields = fields

    def model_dump(self, **options):
        return self.fields


@dataclasses.dataclass
class Turn:
    role: str
    content: object


class InputsTest(PythonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.words = situ.load(cls.text_path)

    def answer(self, prompt="12", **options):
        return self.words.generate(prompt, **{"ignore_eos": True, **options})

    def test_names_of_other_libraries(self):
        for others, own in (({"max_tokens": 3}, {"max_new_tokens": 3}), ({"max_completion_tokens": 3}, {"max_new_tokens": 3}),
                            ({"max_tokens": 3, "early_stopping": True, "length_penalty": 1.0, "seed": -1}, {"max_new_tokens": 3}),
                            ({"max_tokens": 3, "num_beams": 2, "early_stopping": True, "num_return_sequences": 2}, {"max_new_tokens": 3, "beams": 2, "early_stopping": "true", "num_return": 2}),
                            ({"max_tokens": 3, "do_sample": True, "temperature": 2.0, "seed": 3}, {"max_new_tokens": 3, "sample": True, "temperature": 2.0, "seed": 3}),
                            ({"max_tokens": 3, "do_sample": False, "temperature": 2.0, "top_k": 3}, {"max_new_tokens": 3}),
                            ({"max_tokens": 3, "n": 2, "temperature": 1.5, "seed": 1}, {"max_new_tokens": 3, "choices": 2, "temperature": 1.5, "seed": 1}),
                            ({"max_tokens": 3, "num_return_sequences": 2, "temperature": 1.5, "seed": 1}, {"max_new_tokens": 3, "choices": 2, "temperature": 1.5, "seed": 1}),
                            ({"max_tokens": 3, "logprobs": True, "top_logprobs": 2}, {"max_new_tokens": 3, "logprobs": 2}),
                            ({"max_tokens": 3, "suppress_tokens": np.array([5])}, {"max_new_tokens": 3, "suppress_ids": [5]}),
                            ({"max_tokens": 3, "logit_bias": {"5": -100}}, {"max_new_tokens": 3, "logit_bias": {5: -100}}),
                            ({"max_tokens": 3, "no_repeat_ngram_size": 1}, {"max_new_tokens": 3, "no_repeat_ngram": 1})):
            with self.subTest(others):
                a, b = self.answer(**others), self.answer(**own)
                self.assertEqual((a.output_ids, a.logprobs, a.seed, [x.output_ids for x in a.answers]), (b.output_ids, b.logprobs, b.seed, [x.output_ids for x in b.answers]))
        self.assertEqual(self.answer(chat=True, do_sample=False, max_tokens=2).seed, None)
        schema = type("Schema", (), {"model_json_schema": classmethod(lambda cls: {"const": 12})})
        for options in ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"const": 12}}}}, {"json_schema": schema}, {"guided_json": '{"const": 12}'}):
            self.assertEqual(self.words.generate("1", max_tokens=9, **options).text, "12")
        self.assertEqual(situ.load(self.path, n_threads=1, n_ctx=40).facts.context_length, 40)

    def test_proposed_names(self):
        for call, words in ((lambda: self.answer(temprature=1), "'temprature' of generate; did you mean 'temperature'"), (lambda: self.answer(maxtokens=1), "'max_new_tokens'"),
                            (lambda: self.answer(max_length=9), "max_new_tokens"), (lambda: self.answer(eos_token_id=1), "stop_ids"), (lambda: self.answer(stream=True), "Model.stream"),
                            (lambda: self.answer(max_tokens=1, max_new_tokens=1), "max_tokens is another name of max_new_tokens"),
                            (lambda: situ.load(self.path, thread=1), "'threads'"), (lambda: situ.load(self.path, device="cuda"), "CPU"),
                            (lambda: self.words.transcribe("x", beams_size=1), "'beams'"), (lambda: self.answer(xyz=1), "no option 'xyz' of generate$")):
            with self.assertRaisesRegex(TypeError, words):
                call()

    def test_none_is_not_set(self):
        names = [n for n in situ.RequestOptions.__annotations__ if n != "max_new_tokens"]
        self.assertIn("stop", names)
        wanted = self.words.generate("12", max_new_tokens=2)
        for name in names:
            self.assertEqual(self.words.generate("12", max_new_tokens=2, **{name: None}).output_ids, wanted.output_ids, name)
        self.assertEqual(self.words.generate("12", **dict.fromkeys(situ.RequestOptions.__annotations__)).output_ids, self.words.generate("12").output_ids)
        situ.load(self.path, **dict.fromkeys(situ.LoadOptions.__annotations__))
        self.assertEqual(self.words.perplexity("1234", context=None, stride=None).tokens, self.words.perplexity("1234").tokens)

    def test_one_stop_text(self):
        text = self.answer(max_new_tokens=8).text
        for stop in (text[3], [text[3]], (text[3],), (t for t in text[3])):
            answer = self.answer(max_new_tokens=8, stop=stop)
            self.assertEqual((answer.text, answer.finish_reason), (text[:text.index(text[3])], "stop"))

    def test_prompts_of_any_kind(self):
        wanted = self.model.generate([5, 6, 7], max_new_tokens=2).output_ids
        for ids in (Tensor([5, 6, 7]), (i for i in (5, 6, 7)), range(5, 8), Series([5, 6, 7]), np.array([5, 6, 7], np.uint8), [Number(i) for i in (5, 6, 7)]):
            self.assertEqual(self.model.generate(ids, max_new_tokens=2).output_ids, wanted, type(ids))
        for several in ([Tensor([5, 6, 7])], (ids for ids in ([5, 6, 7],)), np.array([[5, 6, 7]])):
            self.assertEqual([a.output_ids for a in self.model.generate(several, max_new_tokens=2)], [wanted], type(several))
        self.assertEqual(self.words.decode(Tensor([40, 41])), self.words.decode([40, 41]))
        self.assertEqual(self.model.perplexity(Tensor([5, 6, 7])).mean_nll, self.model.perplexity([5, 6, 7]).mean_nll)
        session, other = self.model.session(), self.model.session()
        np.testing.assert_array_equal(session.step(Tensor([5, 6])), other.step([5, 6]))
        texts = [a.text for a in self.words.generate(["12", "3"], max_new_tokens=3)]
        for several in ((t for t in ("12", "3")), {"12": 0, "3": 0}.keys(), Series(["12", "3"]), np.array(["12", "3"])):
            self.assertEqual([a.text for a in self.words.generate(several, max_new_tokens=3)], texts, type(several))
        for wrong, words in (({"12", "3"}, "no order"), ({"role": "user", "content": "1"}, r"\[message\]"), ({"input_ids": [1]}, r"prompt\['input_ids'\]"), (np.array(5), "ndarray")):
            with self.assertRaisesRegex(TypeError, words):
                self.words.generate(wrong)

    def test_errors_name_the_item(self):
        message = {"role": "user", "content": "1"}
        for call, words in ((lambda: self.words.generate(["1", None]), "prompt 1: "), (lambda: self.model.generate([[1], [2, "x"]]), "prompt 1: token 1 "), (lambda: self.words.generate(["1", "2", "\ud800"]), "prompt 2: "),
                            (lambda: self.words.generate([message, {"role": "user", "content": 5}]), "message 1: "), (lambda: self.words.generate([message, {"role": "user", "content": ["1", 5]}]), "message 1: part 1: "),
                            (lambda: self.words.generate([[message], [message, {"content": "1"}]]), "prompt 1: message 1: "), (lambda: self.answer(stop=["1", 5]), "stop: text 1 "),
                            (lambda: self.answer(bad_words_ids=[[1], [None]]), "bad_words_ids: 1: token 0 "), (lambda: self.answer(stop_ids=[1, "x"]), "stop_ids: token 1 "),
                            (lambda: self.model.step([(self.model.session(), [1]), (self.model.session(), ["x"])]), "session 1: token 0 "), (lambda: self.words.decode([1, None]), "token 1 ")):
            with self.assertRaisesRegex((TypeError, situ.SituError), "^" + words):
                call()

    def test_messages_are_objects_too(self):
        wanted = self.words.render([{"role": "user", "content": "1"}, {"role": "assistant", "content": "2"}, {"role": "user", "content": "3"}])
        answer = Dumped(role="assistant", content="2", refusal=None, annotations=[], audio=None, function_call=None, tool_calls=None)
        plain = type("Plain", (), {"role": "user", "content": "1"})()
        self.assertEqual(self.words.render([plain, answer, Turn("user", "3")]), wanted)
        self.assertEqual(self.words.render((m for m in (plain, answer, Turn("user", [{"type": "text", "text": "3"}])))), wanted)
        with self.assertWarnsRegex(UserWarning, "not shown to the model: mood"):
            self.words.render([Dumped(role="user", content="1", mood="good")])

    def test_images_of_any_kind(self):
        seeing = situ.load(with_parts(tiny_vision.write_seeing(self.folder / "images")))
        png = image_files.png(np.random.default_rng(3).integers(0, 256, (4, 15), np.uint8).tolist(), 8, 2)
        path = self.folder / "one.png"
        path.write_bytes(png)
        text = base64.b64encode(png).decode()
        url = "data:image/png;base64," + text

        def ask(part):
            return [p.logprob for p in seeing.generate([{"role": "user", "content": [part, "a"]}], max_new_tokens=3, ignore_eos=True, logprobs=0).logprobs]

        wanted = ask({"type": "image", "image": png})
        with open(path, "rb") as file:
            for part in ({"type": "image", "image": path}, {"type": "image", "image": memoryview(png)}, {"type": "image", "image": io.BytesIO(png)}, {"type": "image", "image": file},
                         {"type": "image_url", "image_url": {"url": url, "detail": "low"}}, {"type": "image_url", "image_url": url}, {"type": "input_image", "image_url": url}, {"type": "image", "url": url},
                         {"type": "image", "base64": text}, {"type": "image_url", "image_url": {"url": path.as_uri()}}, Dumped(type="image_url", image_url={"url": url.rstrip("=")})):
                self.assertEqual(ask(part), wanted, str(part)[:60])
        for part, words in (({"type": "image_url", "image_url": {"url": "https://example.org/x.png"}}, "message 0: part 0 .image_url.: .*is not loaded"), ({"type": "image_url", "image_url": {"url": "data:image/png;base64,x"}}, "base64"),
                            ({"type": "video_url", "video_url": url}, "no type 'video_url'"), ({"type": "image"}, "'image'"), ({"type": "image", "image": io.StringIO("x")}, "'rb'")):
            with self.assertRaisesRegex((TypeError, situ.SituError), words):
                ask(part)

    def test_sounds_of_any_kind(self):
        model = situ.load(write_hearing(self.folder / "hearing sounds"))
        samples = np.asarray(tiny_speech.tones(0.5), np.float32)
        wav = self.folder / "two.wav"
        tiny_speech.write_wav(wav, samples)

        def ask(part):
            return model.generate([{"role": "user", "content": [part, "a"]}], max_new_tokens=4, ignore_eos=True).output_ids

        content = wav.read_bytes()
        wanted = ask({"type": "audio", "audio": wav})
        for part in ({"type": "audio", "audio": io.BytesIO(content)}, {"type": "input_audio", "input_audio": {"data": base64.b64encode(content).decode(), "format": "wav"}},
                     {"type": "audio_url", "audio_url": {"url": "data:audio/wav;base64," + base64.b64encode(content).decode()}}, {"type": "audio", "audio": {"array": samples, "sampling_rate": 16000}}):
            self.assertEqual(ask(part), wanted, str(part)[:60])
        with self.assertWarnsRegex(UserWarning, "from -1 to 1"):
            ask({"type": "audio", "audio": samples * (1.5 / np.abs(samples).max())})
        with self.assertRaisesRegex(situ.SituError, "32768"):
            ask({"type": "audio", "audio": samples * 32768})

    def test_recordings_of_any_kind(self):
        model = situ.load(tiny_speech.write_folder(self.folder / "recordings", tiny_speech.make_weights(1)))
        samples = np.asarray(tiny_speech.tones(0.5), np.float32)
        samples /= np.abs(samples).max()
        wav = self.folder / "three.wav"
        tiny_speech.write_wav(wav, samples)
        content = wav.read_bytes()

        def text(audio, **options):
            spoken = model.transcribe(audio, **options)
            return [(s.text, s.tokens) for s in spoken], spoken.transcript

        wanted = text(wav)[0]
        with open(wav, "rb") as file:
            for audio in (content, bytearray(content), io.BytesIO(content), file):
                self.assertEqual(text(audio)[0], wanted, type(audio))
        self.assertEqual(text(wav, beam_size=2, temperature=0.0, vad_filter=False, word_timestamps=False, initial_prompt=None, language=None)[0], text(wav, beams=2, temperatures=[0])[0])
        with self.assertRaisesRegex(situ.SituError, "the audio"):
            model.transcribe(b"no audio")
        with warnings.catch_warnings(record=True):
            self.assertRegex(text(samples * 1.5)[1].notes[0], "1.5")
        for call in (model.transcribe, model.features):
            with self.assertRaisesRegex(situ.SituError, "32768"):
                call(samples * 32768)

    def test_embeddings_and_scores(self):
        model = situ.load(tiny_encoders.write(self.folder / "bert", tiny_encoders.encoder(tiny_encoders.weights())))
        texts = ["harbour", "a grey cat", "tide"]
        wanted = model.embed(texts)
        for several in (tuple(texts), (t for t in texts), dict.fromkeys(texts).values(), dict.fromkeys(texts).keys(), Series(texts), np.array(texts)):
            if not isinstance(several, type({}.values())):
                np.testing.assert_array_equal(model.embed(several), wanted)
        for wrong, words in ((None, "text 2 .*NoneType"), (float("nan"), "text 2 .*float"), ("\ud800", "text 2 is not valid Unicode")):
            with self.assertRaisesRegex((TypeError, situ.SituError), words):
                model.embed([*texts[:2], wrong])
        with self.assertRaisesRegex(TypeError, "text 1: token 1 "):
            model.embed([[1], [1, "x"]])
        for pairs, words in ((["hi", "yo"], "pair 0: "), (("hi", "yo"), "pair 0: "), ([("a", "b"), ("a",)], "pair 1: "), ([("a", "b"), {"q": "a", "d": "b"}], "pair 1: "), ([("a", None)], "pair 0: the second text"), ({"a": "b"}, "pairs")):
            with self.assertRaisesRegex(TypeError, words):
                model.score(pairs)

    def test_the_version(self):
        self.assertRegex(situ.__version__, r"\A\d+\.\d+\.\d+\Z")

    def program(self, *arguments, before=""):
        """The command `situ` of the package, as its script calls it."""
        code = f"import situ_program, sys; sys.argv[0] = 'situ'; {before}situ_program.main()"
        return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60)

    def test_the_command_is_the_program(self):
        run = self.program("--version")
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        self.assertEqual(run.stdout.splitlines()[0], f"situ {situ.__version__}")
        self.assertEqual(run.stdout.count("\n"), 5)
        run = self.program("run", "/nowhere", "hi")
        self.assertEqual((run.returncode, run.stdout, run.stderr.count("\n")), (2, "", 1))
        self.assertEqual(self.program("nothing").returncode, 2)

    def test_the_command_leaves_numpy_out(self):
        before = "import atexit; atexit.register(lambda: print(sorted({'numpy', 'situ'} & set(sys.modules)))); "
        run = self.program("--version", before=before)
        self.assertEqual(run.stdout.splitlines()[-1], "[]", run)
