"""How `situ run` chooses tokens and where it stops: a tiny model against its oracle in NumPy, and the options.

    python tests/sampling_test.py --situ build/situ [unittest options]

Needs numpy and onnx (`make python`).
"""
import json
import os
import shutil
import subprocess
from dataclasses import replace

import numpy as np

import cli_case
import tiny_exports
import tiny_models
from cli_case import COUNT, CliTest, Run, main

# One character a token: the printable ones of ASCII, and as the last a letter of two bytes.
CHARACTERS = [chr(32 + i) for i in range(tiny_models.VOCABULARY - 1)] + ["\u00e9"]

def text_of(ids):
    return "".join(CHARACTERS[i] for i in ids)

def tokenizer_json():
    empty = {k: None for k in ("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor")}
    model = {"type": "BPE", "vocab": {c: i for i, c in enumerate(CHARACTERS)}, "merges": [], "unk_token": None, "byte_fallback": False}
    return json.dumps({"version": "1.0", "added_tokens": [], **empty, "decoder": {"type": "Fuse"}, "model": model})

def write_chat_model(folder, template, context=tiny_models.CONTEXT):
    """A tiny model with a token for each character and a chat template."""
    tiny_exports.write_model(replace(tiny_models.SPECS[0], context=context), folder)
    (folder / "tokenizer.json").write_text(tokenizer_json())
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    return folder

class SamplingTest(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.spec = tiny_models.SPECS[0]
        cls.weights, cls.prompt, cls.ids = tiny_models.choose_weights(cls.spec)
        cls.model, cls.text = cls.folder / "ids", cls.folder / "text"
        tiny_exports.write_model(cls.spec, cls.model)
        shutil.copytree(cls.model, cls.text)
        (cls.text / "tokenizer.json").write_text(tokenizer_json())

    def logits(self, answered):
        return tiny_models.forward(self.spec, self.weights, [*self.prompt, *answered])

    def ids_of(self, *options, model=None):
        return self.generate(model or self.model, self.prompt, *options)["output_ids"]

    # -- sampling

    def test_greedy_is_the_default_and_has_no_seed(self):
        for options in ([], ["--seed", 5], ["--temperature", 0], ["--sample", "--temperature", 0, "--top-p", 0.5], ["--top-k", 1], ["--top-p", 1e-9], ["--top-p", 0], ["--min-p", 1]):
            self.assertEqual(self.ids_of(*options), self.ids, options)
        self.assertNotIn("seed", self.generate(self.model, self.prompt, "--seed", 5))
        self.assertNotIn("logprobs", self.generate(self.model, self.prompt))

    def test_a_seed_gives_the_same_tokens(self):
        first = self.generate(self.model, self.prompt, "--sample", "--temperature", 2)
        self.assertIsInstance(first["seed"], int)
        self.assertNotEqual(first["output_ids"], self.ids)
        other = self.generate(self.model, self.prompt, "--sample", "--temperature", 2)
        self.assertNotEqual((first["seed"], first["output_ids"]), (other["seed"], other["output_ids"]))
        for options in ([], ["--chunk", 1], ["--threads", 1], ["--naive"]):
            again = self.generate(self.model, self.prompt, "--temperature", 2, "--seed", first["seed"], *options)
            self.assertEqual((again["output_ids"], again["seed"]), (first["output_ids"], first["seed"]), options)
        self.assertEqual(self.generate(self.model, self.prompt, "--sample", "--seed", 2**64 - 1)["seed"], 2**64 - 1)

    def test_drawn_tokens_are_among_the_candidates(self):
        counts = []
        for seed in range(5):
            drawn = self.ids_of("--temperature", 3, "--top-k", 4, "--seed", seed)
            for at, token in enumerate(drawn):
                self.assertIn(token, np.argsort(self.logits(drawn[:at]))[-4:])
            counts += [int(np.sum(self.logits(drawn[:at]) > self.logits(drawn[:at])[t])) for at, t in enumerate(drawn)]
        self.assertEqual(set(counts), {0, 1, 2, 3})  # each of the four comes

    def test_defaults_of_the_folder(self):
        folder = self.folder / "configured"
        shutil.copytree(self.model, folder)
        (folder / "generation_config.json").write_text(json.dumps({"do_sample": True, "top_k": 1, "repetition_penalty": 5.0, "top_p": "x"}))
        penalised = self.ids_of("--repetition-penalty", 5)
        self.assertEqual(self.ids_of(model=folder), penalised)  # greedy takes penalties alone from there
        self.assertEqual(self.ids_of("--repetition-penalty", 1, model=folder), self.ids)
        self.assertEqual(self.ids_of("--beams", 2, model=folder), self.ids_of("--beams", 2, "--repetition-penalty", 5))
        self.refused(Run("run", folder, "--prompt-ids", "1", "--sample"), "generation_config.json", "top_p", '"x"')
        sampled = self.ids_of("--sample", "--top-p", 1, model=folder)
        self.assertEqual(sampled, penalised)  # top_k 1
        self.assertEqual(self.ids_of("--sample", "--top-p", 1, "--repetition-penalty", 1, model=folder), self.ids)

    # -- penalties and bans

    def greedy(self, change):
        """The oracle's ids where `change` edits the logits; None when two are too near each other for float32."""
        ids = []
        for _ in range(COUNT):
            logits = change(self.logits(ids).copy(), ids)
            best, second = np.sort(logits)[::-1][:2]
            self.assertGreater(best - second, 1e-4)
            ids.append(int(np.argmax(logits)))
        return ids

    def test_penalties_in_greedy_decoding(self):
        def repetition(logits, ids):
            for t in set(self.prompt + ids):
                logits[t] = logits[t] * 1.7 if logits[t] < 0 else logits[t] / 1.7
            return logits

        def presence(logits, ids):
            for t in set(ids):
                logits[t] -= 0.5 + 0.75 * ids.count(t)
            return logits

        def bias(logits, ids):
            logits[self.ids[0]] -= 3
            logits[self.ids[1]] = -np.inf
            return logits

        def unigrams(logits, ids):
            logits[self.prompt + ids] = -np.inf
            return logits

        cases = [(repetition, ["--repetition-penalty", 1.7]), (presence, ["--presence-penalty", 0.5, "--frequency-penalty", 0.75]),
                 (bias, ["--logit-bias", f"{self.ids[0]}=-3", "--logit-bias", f"{self.ids[1]}=-inf"]), (unigrams, ["--no-repeat-ngram", 1])]
        for change, options in cases:
            with self.subTest(options=options):
                found = self.ids_of(*options)
                self.assertEqual(found, self.greedy(change))
                self.assertNotEqual(found, self.ids)

    def test_bad_words(self):
        word = self.ids[2:4]
        found = self.ids_of("--bad-words", text_of(word), "--bad-words", text_of(self.ids[:1]), model=self.text)
        self.assertNotIn(text_of(word), text_of(found))
        self.assertNotIn(self.ids[0], found)

    def test_min_new_tokens(self):
        folder = self.folder / "ends"
        shutil.copytree(self.model, folder)
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": self.ids[0]}))
        def run(*options):
            return json.loads(Run("run", folder, "--prompt-ids", ",".join(map(str, self.prompt)), "-n", COUNT, "--json", *options).out)
        self.assertEqual((run()["output_ids"], run()["finish_reason"]), ([], "stop"))
        answer = run("--min-new-tokens", 5)
        self.assertGreaterEqual(len(answer["output_ids"]), 5)
        self.assertNotIn(self.ids[0], answer["output_ids"])

    def test_nothing_left(self):
        bans = [o for i in range(tiny_models.VOCABULARY) for o in ("--logit-bias", f"{i}=-inf")]
        for sample in ([], ["--sample"]):
            self.refused(Run("run", self.model, "--prompt-ids", "1", *bans, *sample), "model.onnx", "no token can be chosen", "logit_bias")

    # -- where it fails

    def test_an_answer_that_fails_is_shown_as_far_as_it_came(self):
        rows = 6  # the sixth token is followed by no number
        table = np.zeros((rows, tiny_models.VOCABULARY))
        table[np.arange(rows), np.arange(1, rows + 1)] = 5
        table[rows - 1, 7] = np.nan
        folder = tiny_exports.write_table_model(table, self.folder / "fails", tokenizer=tokenizer_json(), tokenizer_config={"chat_template": "{{ messages[-1].content }}"})
        error = f"{folder / 'model.onnx'}: logits of id 7 are not a number after 5 new tokens"
        for options in ([], ["--beams", 2], ["--naive"], ["--sample", "--top-k", 1]):
            run = Run("run", folder, "--prompt", CHARACTERS[0], "-n", 20, "--json", *options)
            answer = json.loads(run.out)
            self.assertEqual((run.code, run.err), (2, f"situ: {error}\n"), run)
            self.assertEqual((answer["output_ids"], answer["text"], answer["finish_reason"], answer["error"]), ([1, 2, 3, 4, 5], text_of([1, 2, 3, 4, 5]), "error", error))
        run = Run("run", folder, "--prompt", CHARACTERS[0], "-n", 20)
        self.assertEqual((run.code, run.out, run.err), (2, text_of([1, 2, 3, 4, 5]) + "\n", f"situ: {error}\n"), run)
        self.refused(Run("run", folder, "--prompt-ids", rows - 1, "--json"), "logits of id 7 are not a number after 0 new tokens")
        chat = subprocess.run([cli_case.SITU, "chat", folder], input=f"{CHARACTERS[0]}\n/exit\n", capture_output=True, text=True, env={**os.environ, "SITU_CACHE_DIR": ""})
        self.assertEqual((chat.returncode, chat.stdout), (2, text_of([1, 2, 3, 4, 5]) + "\n"), chat)
        self.assertIn(f"situ: {error}\n", chat.stderr)

    # -- where it stops

    def test_stop_strings(self):
        whole = self.generate(self.text, self.prompt)["text"]
        self.assertEqual(whole, text_of(self.ids))
        for begin, end in ((0, 1), (3, 6), (COUNT - 2, COUNT), (5, 6)):
            stop = whole[begin:end]
            with self.subTest(stop=stop):
                answer = self.generate(self.text, self.prompt, "--stop", whole + "!", "--stop", stop)
                self.assertEqual((answer["text"], answer["finish_reason"]), (whole[:whole.index(stop)], "stop"))
                self.assertEqual(answer["output_ids"], self.ids[:whole.index(stop) + len(stop)])
                run = Run("run", self.text, "--prompt-ids", ",".join(map(str, self.prompt)), "-n", COUNT, "--ignore-eos", "--stop", stop)
                self.assertEqual(run.out, whole[:whole.index(stop)] + "\n")
        answer = self.generate(self.text, self.prompt, "--stop", whole + "!")  # held back to the end, and never came
        self.assertEqual((answer["text"], answer["finish_reason"]), (whole, "length"))

    def test_stop_ids(self):
        answer = self.generate(self.model, self.prompt, "--stop-id", self.ids[4], "--stop-id", 0)
        end = min(self.ids.index(t) for t in (self.ids[4], 0) if t in self.ids)
        self.assertEqual((answer["output_ids"], answer["finish_reason"]), (self.ids[:end], "stop"))

    # -- what is reported

    def test_logprobs_are_those_of_the_model(self):
        for options in ([], ["--temperature", 2, "--seed", 4, "--top-k", 3, "--repetition-penalty", 1.5]):
            answer = self.generate(self.model, self.prompt, "--logprobs", 3, *options)
            self.assertEqual([p["id"] for p in answer["logprobs"]], answer["output_ids"])
            for at, entry in enumerate(answer["logprobs"]):
                logits = self.logits(answer["output_ids"][:at])
                logprobs = logits - np.log(np.sum(np.exp(logits - logits.max()))) - logits.max()
                self.assertAlmostEqual(entry["logprob"], logprobs[entry["id"]], places=3)
                self.assertEqual([t["id"] for t in entry["top"]], [int(t) for t in np.argsort(logprobs)[::-1][:3]])
                np.testing.assert_allclose([t["logprob"] for t in entry["top"]], np.sort(logprobs)[::-1][:3], atol=1e-3)
        self.assertEqual(self.generate(self.model, self.prompt, "--logprobs", 0)["logprobs"][0]["top"], [])

    def test_echo(self):
        answer = self.generate(self.text, self.prompt, "--echo", "--stop", text_of(self.prompt[-1:]) + "never")
        self.assertEqual((answer["text"], answer["output_ids"]), (text_of(self.prompt + self.ids), self.ids))
        run = Run("run", self.text, "--prompt", "Hi", "-n", 3, "--echo")
        self.assertTrue(run.out.startswith("Hi"), run)
        self.refused(Run("run", self.model, "--prompt-ids", "1", "--echo"), "echo", "tokenizer.json")

    def test_beams(self):
        def search(beams, count):
            running, step = [(0.0, [])], 0
            for step in range(count):
                found = []
                for score, ids in running:
                    logits = self.logits(ids)
                    logprobs = logits - np.log(np.sum(np.exp(logits - logits.max()))) - logits.max()
                    found += [(score + logprobs[t], [*ids, t]) for t in range(len(logprobs))]
                running = sorted(found, key=lambda f: -f[0])[:beams]
            return running

        for beams in (2, 3, 5):
            answer = self.generate(self.model, self.prompt, "--beams", beams, "--num-return", beams)
            want = search(beams, len(self.ids))
            self.assertEqual([a["output_ids"] for a in answer["answers"]], [ids for _, ids in want], beams)
            np.testing.assert_allclose([a["score"] for a in answer["answers"]], [score / len(self.ids) for score, _ in want], atol=1e-4)
            self.assertEqual(answer["output_ids"], want[0][1])
            self.assertEqual(answer["bytes_copied_per_token"], 0)
        naive = self.generate(self.model, self.prompt, "--beams", 3, "--naive")
        self.assertEqual(naive["output_ids"], search(3, len(self.ids))[0][1])
        self.assertEqual(len(naive["answers"]), 1)
        apart = self.generate(self.model, self.prompt, "--beams", 4, "--beam-groups", 4, "--diversity-penalty", 100, "--num-return", 4)
        self.assertEqual(len({a["output_ids"][0] for a in apart["answers"]}), 4)
        end = int(search(3, len(self.ids))[0][1][2])
        ended = self.generate(self.model, self.prompt, "--beams", 3, "--stop-id", end, "--length-penalty", 0, "--early-stopping", "true")
        self.assertEqual(ended["finish_reason"], "stop")
        self.assertNotIn(end, ended["output_ids"])
        self.assertEqual(self.generate(self.text, self.prompt, "--beams", 3)["text"], text_of(search(3, len(self.ids))[0][1]))

    def test_misuse_of_beams(self):
        for options, words in ((["--beams", "0"], ["beams", "0"]), (["--beams", "257"], ["beams", "257"]), (["--beams", "4", "--beam-groups", "3"], ["beam_groups 3", "beams 4"]),
                               (["--beams", "2", "--num-return", "3"], ["num_return", "3", "beams 2"]), (["--beams", "2", "--top-k", "3"], ["beams 2", "sampling"]),
                               (["--beams", "2", "--early-stopping", "maybe"], ["early_stopping", "maybe"]), (["--beams", "2", "--length-penalty", "nan"], ["length_penalty", "nan"]),
                               (["--beams", "2", "--beam-groups", "2", "--diversity-penalty", "-1"], ["diversity_penalty", "-1"]), (["--json", "--beams", "2", "--logprobs", "1"], ["beams 2", "logprobs"]),
                               (["--length-penalty", "0.5"], ["length_penalty", "beams is 1"]), (["--early-stopping", "true"], ["early_stopping"]), (["--diversity-penalty", "1"], ["diversity_penalty"]), (["--beams", "2", "--diversity-penalty", "1"], ["diversity_penalty", "beam_groups is 1"])):
            with self.subTest(options=options):
                self.refused(Run("run", self.model, "--prompt-ids", "1", *options), *words)

    def test_misuse(self):
        cases = [(["--temperature", "-1"], ["temperature", "-1"]), (["--temperature", "nan"], ["temperature", "nan"]), (["--temperature", "hot"], ["--temperature", "hot"]),
                 (["--top-p", "-0.1"], ["top_p", "-0.1"]), (["--top-p", "1.5"], ["top_p", "1.5"]), (["--top-k", "-1"], ["top_k", "-1"]), (["--top-k", "2.5"], ["--top-k", "2.5"]),
                 (["--min-p", "2"], ["min_p", "2"]), (["--typical-p", "0"], ["typical_p", "0"]), (["--repetition-penalty", "0"], ["repetition_penalty", "0"]),
                 (["--presence-penalty", "inf"], ["presence_penalty", "inf"]), (["--frequency-penalty", "nan"], ["frequency_penalty", "nan"]), (["--no-repeat-ngram", "-2"], ["no_repeat_ngram", "-2"]),
                 (["--logit-bias", "5"], ["--logit-bias", "5"]), (["--logit-bias", "x=1"], ["x=1"]), (["--logit-bias", "5=x"], ["5=x"]), (["--logit-bias", "96=1"], ["logit_bias", 96]),
                 (["--logit-bias", "5=nan"], ["logit_bias", "nan"]), (["--logit-bias", "5=1", "--logit-bias", "5=2"], ["logit_bias", "twice"]),
                 (["--min-new-tokens", "-1"], ["min_new_tokens", "-1"]), (["--min-new-tokens", "5", "-n", "4"], ["min_new_tokens", 5, 4]), (["--stop-id", "96"], ["stop_ids", 96]),
                 (["--stop", "x"], ["stop", "tokenizer.json"]), (["--bad-words", "x"], ["bad_words", "tokenizer.json"]), (["--seed", "-1"], ["--seed", "-1"]), (["--seed", "x"], ["--seed"]),
                 (["--seed", str(2**64)], ["--seed"]), (["--logprobs", "2"], ["--json"]), (["--json", "--logprobs", "-1"], ["logprobs", "-1"]), (["--json", "--logprobs", "97"], ["logprobs", 97])]
        for options, words in cases:
            with self.subTest(options=options):
                self.refused(Run("run", self.model, "--prompt-ids", "1", *options), *words)
        self.refused(Run("run", self.text, "--prompt-ids", "1", "--stop", ""), "stop", "empty")

if __name__ == "__main__":
    main()
