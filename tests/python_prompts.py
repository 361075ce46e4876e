"""Prompts from Python: messages with texts, images and sounds, arrays, ids; the tokenizer beside answers. tests/python_test.py runs them."""
import io
import json
import shutil
import re
import threading
from pathlib import Path

import numpy as np
import situ
from situ import _situ

import image_files
import tiny_models
import tiny_speech
import tiny_vision
from batch_test import PARTS, SEEN, tokenizer_json, write_hearing
from python_case import PythonTest

ROOT = Path(__file__).resolve().parent.parent
TURNS = "{% for m in messages %}{{ m.role[0] }}{{ m.content }}{% if m.tool_calls %}{{ m.tool_calls | tojson }}{% endif %};{% endfor %}{% if tools %}{% for t in tools %}{{ t.function.name if t.function else t.name }}{% endfor %}{% endif %}{% if shout %}!{% endif %}{% if add_generation_prompt %}a{% endif %}"


def fields_of(header, struct):
    text = (ROOT / "include/situ" / header).read_text()
    fields = re.sub(r"//.*", "", re.search(r"struct %s \{(.*?)\n\};" % struct, text, re.S).group(1))
    return [name for line in fields.split(";") for name in re.findall(r"(\w+)\s*(?:=[^,]*)?(?:,|$)", re.sub(r"<.*>", "", line.strip())) if name]


def with_parts(folder):
    (folder / "tokenizer.json").write_text(tokenizer_json(SEEN, range(SEEN.index("<|turn|>"), tiny_vision.IMAGE + 1)))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": PARTS}))
    return folder


class PromptsTest(PythonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder = cls.folder / "turns"
        shutil.copytree(cls.text_path, folder)
        (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TURNS}))
        cls.chat = situ.load(folder)
        cls.seeing = situ.load(with_parts(tiny_vision.write_seeing(cls.folder / "seeing")))

    def test_load_options_are_those_of_the_header(self):
        names = fields_of("load_options.h", "LoadOptions")
        self.assertIn("variants", names)
        self.assertEqual(_situ.load_option_names(), names)
        self.assertEqual(list(situ.LoadOptions.__annotations__), names)

    def test_messages(self):
        user = {"role": "user", "content": "1"}
        turns = [{"role": "system", "content": "2", "name": None}, user, {"role": "assistant", "content": "3", "refusal": None, "annotations": []}, user]
        self.assertEqual(self.chat.render(turns), "s2;u1;a3;u1;a")
        self.assertEqual(self.chat.decode(self.chat.encode_chat(turns)), "s2;u1;a3;u1;a")
        by_text = self.chat.generate("s2;u1;a3;u1;a", max_new_tokens=5).output_ids
        for prompt in (turns, tuple(turns), self.chat.encode_chat(turns)):
            self.assertEqual(self.chat.generate(prompt, max_new_tokens=5).output_ids, by_text)
        self.assertEqual([a.output_ids for a in self.chat.generate([turns, "s2;u1;a3;u1;a", [user]], max_new_tokens=5)][:2], [by_text] * 2)
        self.assertEqual([t.id for t in self.chat.stream(turns, max_new_tokens=5) if t.id >= 0], by_text)
        self.assertEqual(self.chat.render([{"role": "user", "content": ["1", {"type": "text", "text": "2"}]}]), "u1\n2;a")
        self.assertEqual(self.chat.render([user], tools=[{"name": "f"}], template_variables={"shout": True}), "u1;f!a")
        self.assertEqual(self.chat.render([user], template_variables={"shout": None, "add_generation_prompt": None}), "u1;")
        self.assertEqual(self.chat.render([user], add_generation_prompt=False), "u1;")
        self.assertEqual(self.chat.render(turns[:3], continue_last=True), "s2;u1;a3")
        call = {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}]}
        self.assertEqual(self.chat.render([call]), 'a[{"id": "c", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}];a')
        for wrong in ([{"role": "user", "content": "1", "more": 2}], [{"content": "1"}], [{"role": "user"}], [{"role": "user", "content": [{"type": "video"}]}], [{"role": "user", "content": 5}],
                      [{"role": "assistant", "content": "", "tool_calls": [{"name": "f"}]}], "text", [1]):
            with self.assertRaises(TypeError):
                self.chat.render(wrong)
        for options in ({"chat": True}, {"images": ["a.png"]}):
            with self.assertRaises(TypeError):
                self.chat.generate(turns, **options)
        with self.assertRaises(TypeError):
            self.chat.render(turns, temperature=1)

    def test_conversations_are_drawn_as_the_files_say(self):
        folder = self.folder / "drawn"
        shutil.copytree(self.folder / "turns", folder)
        (folder / "generation_config.json").write_text(json.dumps({"do_sample": True, "temperature": 1.5}))
        model, turns = situ.load(folder), [{"role": "user", "content": "1"}]
        for prompt, options, drawn in ((turns, {}, True), ("1", {"chat": True}, True), (model.encode_chat(turns), {}, True), ("1", {}, False), (turns, {"temperature": 0}, False),
                                       (turns, {"sample_as_files": False}, False), ("1", {"sample_as_files": True}, True)):
            self.assertEqual(model.generate(prompt, max_new_tokens=2, **options).seed is not None, drawn, (prompt, options))
        self.assertIsNone(self.chat.generate(turns, max_new_tokens=2).seed)

    def test_the_tokenizer(self):
        model = self.seeing
        turn = SEEN.index("<|turn|>")
        self.assertEqual(model.encode("a<|turn|>"), [1, turn])
        self.assertEqual(model.encode("a<|turn|>", parse_special=False)[0], 1)
        self.assertNotIn(turn, self.encoded_plain(model))
        self.assertEqual((model.decode([1, turn]), model.decode([1, turn], skip_special=False)), ("a", "a<|turn|>"))
        self.assertEqual((model.id_of("<|turn|>"), model.id_of("none")), (turn, None))
        self.assertEqual(model.render([{"role": "user", "content": "a<|turn|>"}]), "<|turn|>u:a<|turn|><|end|><|turn|>a:")
        ids = model.encode_chat([{"role": "user", "content": "a"}, {"role": "assistant", "content": "<|turn|>"}])
        self.assertEqual(ids.count(turn), 4)
        self.assertEqual(model.encode_chat([{"role": "assistant", "content": "a", "parse_special": False}]).count(turn), 2)

    @staticmethod
    def encoded_plain(model):
        return model.encode_chat([{"role": "user", "content": "a"}])[1:-3]

    def test_images_in_any_turn(self):
        rng = np.random.default_rng(3)
        pixels = rng.integers(0, 256, (2, 4, 5, 3), np.uint8)
        files = [image_files.png(p.reshape(4, -1).tolist(), 8, 2) for p in pixels]
        paths = [self.folder / f"{i}.png" for i in range(2)]
        for path, data in zip(paths, files):
            path.write_bytes(data)

        def ask(*images):
            first, second = ({"type": "image", "image": i} for i in images)
            turns = [{"role": "system", "content": "a"}, {"role": "user", "content": [first, "b"]}, {"role": "assistant", "content": "c"}, {"role": "user", "content": ["d", second]}]
            answer = self.seeing.generate(turns, max_new_tokens=6, ignore_eos=True, logprobs=0)
            return [p.logprob for p in answer.logprobs]

        wanted = ask(*paths)
        self.assertEqual(len(wanted), 6)
        self.assertNotEqual(wanted, ask(*paths[::-1]))
        for images in (files, pixels, (str(paths[0]), files[1]), (np.asfortranarray(pixels[0]), bytearray(files[1]))):
            self.assertEqual(ask(*images), wanted)
        try:
            from PIL import Image
        except ImportError:
            return
        self.assertEqual(ask(*map(Image.fromarray, pixels)), wanted)
        self.assertEqual(ask(*(Image.open(io.BytesIO(f)) for f in files)), wanted)

    def test_arrays_and_exact_tokens(self):
        pixels = np.random.default_rng(1).standard_normal((1, 3, 4, 4)).astype(np.float32)
        ids = [1, *[tiny_vision.IMAGE] * tiny_vision.ROWS, 2]
        one, again = (self.seeing.generate(ids, arrays={"pixel_values": p}, max_new_tokens=4, ignore_eos=True).output_ids for p in (pixels, np.asfortranarray(pixels)))
        self.assertEqual(one, again)
        self.assertNotEqual(one, self.seeing.generate(ids, arrays={"pixel_values": -pixels}, max_new_tokens=4, ignore_eos=True).output_ids)
        for arrays, words in (({"pixels": pixels, "pixel_values": pixels}, "pixels"), ({"pixel_values": pixels[0]}, "pixel_values"), ({"pixel_values": pixels.astype(np.int32)}, "pixel_values"), ({}, "60")):
            with self.assertRaisesRegex(situ.SituError, words):
                self.seeing.generate(ids, arrays=arrays)
        with self.assertRaises(TypeError):
            self.seeing.generate(ids, arrays={"pixel_values": pixels.astype(np.complex64)})

    def test_sounds(self):
        model = situ.load(write_hearing(self.folder / "hearing"))
        wav = self.folder / "one.wav"
        samples = tiny_speech.tones(0.5)
        tiny_speech.write_wav(wav, samples)

        def ask(sound):
            answer = model.generate([{"role": "user", "content": [{"type": "audio", "audio": sound}, "a"]}], max_new_tokens=4, ignore_eos=True, logprobs=0)
            return answer.output_ids, [round(p.logprob, 3) for p in answer.logprobs]

        self.assertEqual(ask(wav), ask(wav.read_bytes()))
        whole = (np.asarray(samples) * 32767).round().astype(np.int16).astype(np.float32) / 32768  # as the file has them
        self.assertEqual(ask(wav)[0], ask(whole)[0])
        by_text = model.generate("a", sounds=[wav], max_new_tokens=4, ignore_eos=True)
        self.assertEqual(len(by_text.output_ids), 4)
        with self.assertRaises(situ.SituError):
            ask(np.zeros(0, np.float32))
        with self.assertRaises(TypeError):
            ask(np.zeros(4, np.int16))

    def test_top_log_probabilities_of_a_stream(self):
        whole = self.model.generate(self.prompt, max_new_tokens=4, logprobs=2)
        for token, wanted in zip(self.model.stream(self.prompt, max_new_tokens=4, logprobs=2), whole.logprobs):
            self.assertEqual((token.logprob, list(token.top), token.choice), (wanted.logprob, wanted.top, 0))
        tokens = list(self.model.stream(self.prompt, max_new_tokens=3, choices=3, temperature=1, seed=1, logprobs=0))
        answers = self.model.generate(self.prompt, max_new_tokens=3, choices=3, temperature=1, seed=1, logprobs=0).answers
        for k, answer in enumerate(answers):
            self.assertEqual([t.id for t in tokens if t.choice == k], answer.output_ids)
            self.assertEqual([t.logprob for t in tokens if t.choice == k], [p.logprob for p in answer.logprobs])

    def test_scores_of_prompts(self):
        logits = tiny_models.forward_all(self.spec, self.weights(), self.prompt)
        scores = self.model.generate(self.prompt, prompt_logprobs=3, max_new_tokens=0).prompt_logprobs
        self.assertEqual([s.id for s in scores], self.prompt[1:])
        for s, row in zip(scores, logits):
            row = row - row.max() - np.log(np.exp(row - row.max()).sum())
            self.assertAlmostEqual(s.logprob, row[s.id], 3)
            self.assertEqual([t.id for t in s.top], list(np.argsort(-row)[:3]))

    def weights(self):
        return tiny_models.choose_weights(self.spec)[0]

    def test_encode_and_render_while_others_generate(self):
        model = situ.load(self.folder / "turns", context_length=1 << 20)
        stream = model.stream([1, 2], max_new_tokens=1 << 19, ignore_eos=True)
        next(stream)
        done = []

        def work():
            for _ in range(20):
                done.append((model.encode("12"), model.render([{"role": "user", "content": "1"}]), model.decode([49])))

        threads = [threading.Thread(target=work) for _ in range(4)]
        [t.start() for t in threads], [t.join() for t in threads]
        self.assertEqual((len(done), len(set(map(repr, done)))), (80, 1))
        self.assertFalse(stream.generation)
        stream.close()
