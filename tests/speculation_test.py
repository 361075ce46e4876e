"""Guessed tokens: `situ run --draft` and `--prompt-lookup` give the text that there is without them.

    python tests/speculation_test.py --situ build/situ [unittest options]
"""
import dataclasses
import json
import shutil

import numpy as np

import tiny_exports
import tiny_models
from cli_case import CliTest, Run, main
from sampling_test import tokenizer_json

class SpeculationTest(CliTest):
    def write(self, name, seed):
        spec = next(s for s in tiny_models.SPECS if s.name == name)
        return tiny_exports.write_weights(spec, tiny_models.make_weights(spec, seed), self.folder / f"{name} {seed}")

    def test_the_text_is_the_same(self):
        model, other, quantised = self.write("llama", 1), self.write("llama", 2), self.write("genai", 1)
        prompt = [int(t) for t in np.random.default_rng(1).integers(0, tiny_models.VOCABULARY, 9)] * 2
        accepted = {}
        for options in ((), ("--temperature", 1, "--seed", 3), ("--temperature", 2, "--top-k", 5, "--seed", 4, "--repetition-penalty", 1.3), ("--window", 7)):
            expected = self.generate(model, prompt, *options, count=40)["output_ids"]
            for guesses in (("--draft", model), ("--draft", other, "--draft-tokens", 2), ("--draft", quantised, "--draft-tokens", 9), ("--draft", model, "--chunk", 3),
                            ("--prompt-lookup", 5)):
                with self.subTest(options=options, guesses=guesses):
                    got = self.generate(model, prompt, *options, *guesses, count=40)
                    self.assertEqual(got["output_ids"], expected)
                    self.assertEqual(got["bytes_copied_per_token"], 0)
                    accepted[options, guesses] = got["speculation"]["accepted"], got["speculation"]["guessed"]
        # The model agrees with itself, and then takes fewer steps; another does not.
        self.assertEqual(*accepted[(), ("--draft", model)])
        self.assertGreater(accepted[("--temperature", 1, "--seed", 3), ("--draft", model)][0], 20)
        self.assertLess(*accepted[(), ("--draft", other, "--draft-tokens", 2)])

    def test_where_the_draft_ends(self):
        model, small = self.write("llama", 1), self.folder / "small"
        prompt = [5, 6, 7, 8]
        shutil.copytree(self.write("llama", 3), small)
        (small / "config.json").write_text('{"max_position_embeddings": 20}')
        expected = self.generate(model, prompt, count=50)["output_ids"]
        got = self.generate(model, prompt, "--draft", small, count=50)
        self.assertEqual(got["output_ids"], expected)
        self.assertLessEqual(got["speculation"]["guessed"], 20 * 4)
        got = self.generate(model, prompt, "--draft", model, "--context", 54, count=60)
        self.assertEqual((got["output_ids"][:50], got["finish_reason"]), (expected, "length"))

    def test_more_guesses_than_the_window_and_a_step_hold(self):
        model, other = self.write("llama", 1), self.write("llama", 2)
        prompt = list(range(5, 15))
        for options in (("--window", 5, "--chunk", 1), ("--window", 5, "--chunk", 8, "--sink", 2)):
            expected = self.generate(model, prompt, *options, count=50)["output_ids"]
            self.assertEqual(self.generate(model, prompt, *options, "--draft", other, "--draft-tokens", 40, count=50)["output_ids"], expected)

    def test_a_draft_of_another_size(self):
        """The files of a family have more logits than tokens, some more than others: their tokenizers say that tokens are the same."""
        model, prompt = self.write("llama", 11), [5, 6, 7, 8]
        spec = dataclasses.replace(next(s for s in tiny_models.SPECS if s.name == "llama"), vocabulary=80)
        narrow = tiny_exports.write_weights(spec, tiny_models.make_weights(spec, 12), self.folder / "narrow")
        refused = lambda m, draft, *words: self.refused(Run("run", m, "--prompt-ids", "5,6", "-n", 3, "--draft", draft), m, draft, *words)
        refused(model, narrow, "a vocabulary of 80 tokens there and 96 here")
        refused(narrow, model, "a vocabulary of 96 tokens there and 80 here")
        (model / "tokenizer.json").write_text(tokenizer_json())
        refused(model, narrow, "a vocabulary of 80 tokens there and 96 here")
        (narrow / "tokenizer.json").write_text(tokenizer_json())
        for options in ((), ("--temperature", 1, "--seed", 3)):
            got = self.generate(model, prompt, "--draft", narrow, *options, count=40)
            self.assertEqual((got["output_ids"], got["bytes_copied_per_token"]), (self.generate(model, prompt, *options, count=40)["output_ids"], 0))
            self.assertGreater(got["speculation"]["guessed"], 0)
        longer = json.loads(tokenizer_json())
        longer["model"]["vocab"]["one more"] = count = len(longer["model"]["vocab"])
        (narrow / "tokenizer.json").write_text(json.dumps(longer))
        refused(model, narrow, f"a tokenizer of {count + 1} tokens there and {count} here")

    def test_refused(self):
        model, other = self.write("llama", 1), self.write("gpt", 1)
        run = lambda *options: Run("run", model, "--prompt-ids", "1,2,3", "-n", 3, *options)
        self.refused(run("--draft", self.folder / "nowhere"), "the draft", "nowhere")
        self.refused(run("--draft-tokens", 3), "--draft")
        self.refused(run("--draft", other, "--prompt-lookup", 3), "prompt_lookup", "draft_tokens")
        self.refused(run("--draft", other, "--beams", 3), "draft_tokens", "beam")
        self.refused(run("--draft", other, "--naive"), "--draft", "--naive")
        for folder, text in ((model, tokenizer_json()), (other, tokenizer_json().replace('"a"', '"zz"'))):
            (folder / "tokenizer.json").write_text(text)
        self.refused(run("--draft", other), other, model, "token 65 is 'zz' there and 'a' here")

if __name__ == "__main__":
    main()
