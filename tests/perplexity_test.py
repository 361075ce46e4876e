"""How well a model foretells a text, against its oracle in NumPy: `situ perplexity` and `situ run --report-perplexity`.

    python tests/perplexity_test.py --situ build/situ [unittest options]
"""
import json
import math

import numpy as np

import tiny_exports
import tiny_models
from cli_case import CliTest, Run, main
from sampling_test import text_of, tokenizer_json

def log_softmax(logits):
    shifted = logits - logits.max()
    return shifted - math.log(np.exp(shifted).sum())

class PerplexityTest(CliTest):
    def write(self, name):
        spec = next(s for s in tiny_models.SPECS if s.name == name)
        weights = tiny_models.make_weights(spec, 3)
        folder = tiny_exports.write_weights(spec, weights, self.folder / name)
        (folder / "tokenizer.json").write_text(tokenizer_json())
        return spec, weights, folder

    def measure(self, folder, text, *options, **environment):
        path = self.folder / "text.txt"
        path.write_text(text)
        run = Run("perplexity", folder, path, "--json", *options, **environment)
        self.assertEqual((run.code, run.err), (0, ""), run)
        return json.loads(run.out)

    def test_equals_the_oracle(self):
        ids = [int(t) for t in np.random.default_rng(1).integers(0, tiny_models.VOCABULARY, 90)]
        for name in ("llama", "gpt", "genai-window", "half"):
            spec, weights, folder = self.write(name)
            for context, stride in ((90, None), (17, 16)):
                if context > tiny_models.CONTEXT:
                    continue
                nll, scored = [], 1
                for begin in range(0, len(ids), stride or context // 2):
                    end = min(begin + context, len(ids))
                    logits = tiny_models.forward_all(spec, weights, ids[begin:end])
                    nll += [-log_softmax(logits[t - begin - 1])[ids[t]] for t in range(scored, end)]
                    scored = max(scored, end)
                for options in ((), ("--chunk", 3), ("--naive",)):
                    with self.subTest(name, context=context, stride=stride, options=options):
                        got = self.measure(folder, text_of(ids), "--context", context, *(("--stride", stride) if stride else ()), *options)
                        self.assertEqual(got["tokens"], len(ids) - 1)
                        self.assertAlmostEqual(got["mean_nll"], np.mean(nll), delta=2e-2 if name == "half" else 1e-4)
                        self.assertAlmostEqual(got["perplexity"], math.exp(got["mean_nll"]), delta=1e-9 * got["perplexity"])
                        self.assertEqual(got["bytes_copied"] > 0, options == ("--naive",))

    def test_where_sequences_are_computed_alone(self):
        _, _, folder = self.write("llama")
        text = text_of([int(t) for t in np.random.default_rng(2).integers(0, tiny_models.VOCABULARY, 30)])
        expected = self.measure(folder, text)
        for passes in ("recognise_attention", "recognise_rotary,last_token"):
            got = self.measure(folder, text, SITU_DISABLE_PASSES=passes)
            self.assertAlmostEqual(got["mean_nll"], expected["mean_nll"], delta=1e-4)

    def test_beyond_all_numbers(self):
        spec, weights, folder = self.write("llama")
        weights["head"] = weights["head"] * 1e5
        tiny_exports.write_weights(spec, weights, folder)
        path = self.folder / "text.txt"
        path.write_text(text_of(range(20)))
        run = Run("perplexity", folder, path, "--json")
        self.assertIsNone(json.loads(run.out)["perplexity"])
        self.assertEqual(run.err, f"situ: note: {path}: the perplexity is beyond all numbers: infinite, which JSON has as null\n")

    def test_of_an_answer(self):
        spec, weights, folder = self.write("llama")
        prompt = [5, 6, 7, 8]
        for options in ((), ("--temperature", 3, "--seed", 4), ("--prompt-lookup", 4), ("--naive",), ("--threads", 1)):
            got = self.generate(folder, prompt, "--report-perplexity", "--logprobs", 0, *options)
            of_logprobs = math.exp(-np.mean([t["logprob"] for t in got["logprobs"]]))
            self.assertAlmostEqual(got["perplexity"], of_logprobs, delta=1e-4 * of_logprobs)
            ids = prompt + got["output_ids"]
            logits = tiny_models.forward_all(spec, weights, ids)
            nll = [-log_softmax(logits[t - 1])[ids[t]] for t in range(len(prompt), len(ids))]
            self.assertAlmostEqual(got["perplexity"], math.exp(np.mean(nll)), delta=1e-3 * math.exp(np.mean(nll)))
        self.assertNotIn("perplexity", self.generate(folder, prompt))
        run = Run("run", folder, "--prompt-ids", "5,6,7", "-n", 3, "--report-perplexity")
        self.assertRegex(run.err, r", perplexity \d", run)
        self.refused(Run("run", folder, "--prompt-ids", "5,6,7", "--report-perplexity", "--beams", 2), "report_perplexity", "beam")

    def test_refused(self):
        _, _, folder = self.write("llama")
        path = self.folder / "refused.txt"
        self.refused(Run("perplexity", folder, path), path, "cannot be read")
        self.refused(Run("perplexity", folder, self.folder), self.folder, "cannot be read")
        for content, words in ((b"", ("0 tokens", "at least 2")), (b"a", ("1 tokens",)), (b"ab\xff", (path, "UTF-8")), ("日本".encode(), ())):
            path.write_bytes(content)
            if words:
                self.refused(Run("perplexity", folder, path), *words)
        path.write_text(text_of(range(20)))
        self.refused(Run("perplexity", folder, path, "--context", 10, "--stride", 10), "windows of 10", "10 apart")
        self.refused(Run("perplexity", folder, path, "--context", 1), "windows of 1")
        (folder / "tokenizer.json").unlink()
        self.refused(Run("perplexity", folder, path), "tokenizer.json")

if __name__ == "__main__":
    main()
