"""Windows: sequences of any length that keep only what they attend to, against an oracle that forgets nothing.

    python tests/window_test.py --situ build/situ [unittest options]
"""
import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np

import tiny_exports
import tiny_models
from cli_case import CliTest, Run, main
from sweep import SWEEPING, some

LENGTH = 3 * tiny_models.CONTEXT  # of prompt and answer: past the end of every table of positions
PROMPT = 30

def spec_of(name):
    return next(s for s in tiny_models.SPECS if s.name == name)

def weights_for(spec, windowed):
    """Weights, a prompt, and the answer by the oracle, which is not near a tie where it is compared."""
    for seed in range(1000):
        w = tiny_models.make_weights(spec, seed)
        prompt = [int(t) for t in np.random.default_rng(seed).integers(0, tiny_models.VOCABULARY, PROMPT)]
        if tiny_models.greedy(windowed, w, prompt, 24)[1] < 2e-3:
            continue
        ids, margin = tiny_models.greedy(windowed, w, prompt, LENGTH - PROMPT)
        if margin > 2e-4 and len(set(ids)) > 5:
            return w, prompt, ids
    raise RuntimeError(f"{spec.name}: no seed gives ids that a test can rely on")

class WindowTest(CliTest):
    def test_equals_the_oracle(self):
        for i, (name, window, sink) in enumerate(some((("llama", 7, 0), ("multi-query", 20, 3), ("interleaved", 1, 2), ("bloom", 5, 0), ("bloom", 6, 3), ("alibi", 9, 0), ("alibi", 4, 2), ("relative", 9, 0), ("relative-later", 7, 0), ("relative-later", 50, 0),
                                   ("genai", 6, 1), ("genai-window", 9, 0), ("genai-window", 9, 3), ("genai-window", 3, 2), ("window", 4, 2), ("window", 1000, 3), ("genai-partial", 12, 0), ("opset23-causal", 8, 2)), 3)):
            spec = spec_of(name)
            limits = not spec.window or window < spec.window  # a window of its own that is no wider hides the first tokens too
            windowed = replace(spec, window=window, sink=sink) if limits else spec
            w, prompt, ids = weights_for(spec, windowed)
            model = tiny_exports.write_weights(spec, w, self.folder / f"{name} {window} {sink}")
            for chunk in (512, 4) if SWEEPING else ((512, 4)[i % 2],):
                with self.subTest(name, window=window, sink=sink, chunk=chunk):
                    got = self.generate(model, prompt, "--window", window, *(("--sink", sink) if sink else ()), "--chunk", chunk, count=LENGTH - PROMPT)
                    self.assertEqual(got["output_ids"], ids)
                    self.assertEqual(got["bytes_copied_per_token"], 0)

    def test_wrong_guesses_leave_the_window_whole(self):
        spec, rejected = spec_of("llama"), 0
        for seed in range(20, 26):
            model = tiny_exports.write_weights(spec, tiny_models.make_weights(spec, seed), self.folder / f"guesses {seed}")
            prompt = [int(t) for t in np.random.default_rng(seed).integers(0, tiny_models.VOCABULARY, 24)] * 2
            for chunk in (1, 512):
                options = ("--window", 6, "--chunk", chunk)
                got = self.generate(model, prompt, *options, "--prompt-lookup", 20, count=48)
                self.assertEqual(got["output_ids"], self.generate(model, prompt, *options, count=48)["output_ids"], (seed, chunk))
                rejected += got["speculation"]["guessed"] - got["speculation"]["accepted"]
        self.assertGreater(rejected, 0, "nothing was rewound")

    def test_a_memory_that_is_small_makes_chunks_shorter(self):
        spec = spec_of("llama")
        windowed = replace(spec, window=6, sink=2)
        w, prompt, ids = weights_for(spec, windowed)
        model = tiny_exports.write_weights(spec, w, self.folder / "memory")
        options = ("--window", 6, "--sink", 2)
        run = lambda memory: Run("run", model, "--prompt-ids", "1,2,3", *options, "--memory", memory)
        # The message is of chunks of 1, the least that there are.
        weights, activations, token = (int(n) for n in re.search(r"weights take (\d+), activations (\d+) and one token of state (\d+)", run(1000).err).groups())
        needed = 6 + 2 + 32 + 1 + 8
        memory_of = lambda tokens: weights + activations + tokens * token
        for tokens in (needed, needed + 1, needed + 60, 1000, 5000):
            got = self.generate(model, prompt, *options, "--memory", memory_of(tokens), count=LENGTH - PROMPT)
            self.assertEqual((got["output_ids"], got["bytes_copied_per_token"]), (ids, 0), tokens)
        for tokens in (1, needed - 1):
            self.refused(run(memory_of(tokens)), f"for {tokens} tokens", "window of 6", f"takes {needed}", "chunk of 1 and 8 sequences")

    def test_what_cannot_go_on_for_ever_is_refused(self):
        for name, options, words in (("gpt", (), ("no window, with which positions have no end", "table")),
                                     ("relative", ("--sink", 2), ("no window", "bias by distance", "first tokens"))):
            path = self.folder / f"refused {name}"
            prompt, _ = tiny_exports.write_model(spec_of(name), path)
            self.refused(Run("run", path, "--prompt-ids", "1,2,3", "--window", 8, *options), *words)
        path = self.folder / "plain"
        prompt, ids = tiny_exports.write_model(spec_of("llama"), path)
        self.refused(Run("run", path, "--prompt-ids", "1,2,3", "--window", 8, "--naive"), "window", "naive")
        self.refused(Run("run", path, "--prompt-ids", "1,2,3", "--sink", 8), "--window")
        self.refused(Run("run", path, "--prompt-ids", "1,2,3", "--window", 8, SITU_DISABLE_PASSES="recognise_attention"), "no window", "not recognised")
        fixed = Path(os.environ.get("SITU_SHARED", Path(__file__).parent.parent.parent / "shared")) / "models/genai/llama-fp16"
        if fixed.is_dir():  # its prompts are of no past
            self.refused(Run("run", fixed, "--prompt-ids", "1,2,3", "--window", 8), "no window, with which a sequence has no end")
        # A window that is never left changes nothing.
        self.assertEqual(self.generate(path, prompt, "--window", 1000)["output_ids"], ids)

if __name__ == "__main__":
    main()
