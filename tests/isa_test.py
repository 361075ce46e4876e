"""The ids of the models in ../shared (SITU_SHARED names another folder) on every instruction set that this CPU has, forced by SITU_ISA.

    python tests/isa_test.py --situ build/situ [unittest options]

What other instruction sets change are last bits: ids are compared up to the first step whose two best logits are as close as
activations of 8 bits leave open (as the models' own files say).
"""
import json
import os
import unittest
from concurrent.futures import ThreadPoolExecutor

import golden
from cli_case import CliTest, main
from cli_test import built_isas, cpu_has

REFUSED = ("gpt_oss", "lfm2", "qwen3_5", "tiny/t5", "tiny/bart", "tiny/marian")  # mixtures of experts, recurrent states, encoder-decoders


@unittest.skipUnless((golden.SHARED / "tiny").is_dir(), f"{golden.SHARED} is not there")
class IsaTest(CliTest):
    def check(self, folders, cases):
        isas = [isa for isa in built_isas(folders[0]) if cpu_has(isa)]
        jobs = []
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for folder in folders:
                for case in golden.read_cases(folder)[cases]:
                    ids = case.greedy[:case.compared]
                    jobs += [(folder, case.number, isa, ids, pool.submit(self.generate, folder, case.ids, "--threads", 1, count=len(ids), SITU_ISA=isa)) for isa in isas]
            for folder, number, isa, ids, run in jobs:
                with self.subTest(folder.name, case=number, isa=isa):
                    answer = run.result()
                    self.assertEqual((answer["isa"], answer["output_ids"], answer["bytes_copied_per_token"]), (isa, ids, 0))

    def test_tiny_models(self):
        folders = [f for style in ("tiny", "genai") for f in sorted((golden.SHARED / style).iterdir())
                   if (f / "expected.json").exists() and not any(name in f"{style}/{f.name}" for name in REFUSED)]
        self.check(folders, slice(1, 2))

    def test_a_real_model(self):
        self.check([golden.SHARED / "smollm2-135m-instruct-int4"], slice(None))

    def test_chunks_change_no_bit(self):
        folder = golden.SHARED / "smollm2-135m-instruct-int4"
        tokens = [i for case in json.loads((folder / "expected.json").read_text())["cases"] for i in (case.get("prompt_ids") or case["input_ids"]) + case["greedy_ids"]]
        prompt = (tokens * 300)[:150]
        for isa in filter(cpu_has, built_isas(folder)):
            # The portable kernels take ten times as long, and have no types or layouts of their own.
            for options in ((), ("--kv-type", "f32"), ("--kv-type", "q8"), ("--window", 100))[:1 if isa == "portable" else None]:
                with self.subTest(isa=isa, options=options), ThreadPoolExecutor(os.cpu_count()) as pool:
                    runs = [pool.submit(self.generate, folder, prompt, "--logprobs", 3, "--threads", 1, "--chunk", chunk, *options, count=4, SITU_ISA=isa) for chunk in (7, 130, 512)]
                    answers = [run.result()["logprobs"] for run in runs]
                    self.assertEqual(answers, answers[:1] * len(answers))


if __name__ == "__main__":
    main()
