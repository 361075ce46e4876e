"""examples/python on tiny models, against stubs of what they need. tests/python_test.py runs them."""
import asyncio
import importlib.util
import math
import sys
import types
from pathlib import Path
from unittest import mock

import numpy as np
import situ

import image_files
import tiny_models
import tiny_vision
from python_case import PythonTest
from python_prompts import with_parts
from sampling_test import text_of

EXAMPLES = Path(__file__).resolve().parent.parent / "examples/python"


def example(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stub_of_lm_eval():
    """What the example uses of lm-evaluation-harness: the class LM and the registry."""
    names = {name: types.ModuleType(name) for name in ("lm_eval", "lm_eval.api", "lm_eval.api.model", "lm_eval.api.registry")}
    known = {}

    class LM:
        def __init__(self):
            self._rank, self._world_size = 0, 1

    def register_model(*names_of_it):
        return lambda made: known.update(dict.fromkeys(names_of_it, made)) or made

    names["lm_eval.api.model"].LM, names["lm_eval.api.registry"].register_model = LM, register_model
    return names, known


class ExamplesTest(PythonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.weights, _, _ = tiny_models.choose_weights(cls.spec)

    def logprobs(self, ids):
        """ln p(ids[t] | ids[:t]) and whether it is the most probable one, for t from 1 on."""
        logits = tiny_models.forward_all(self.spec, self.weights, ids)
        rows = logits - logits.max(-1, keepdims=True)
        rows -= np.log(np.exp(rows).sum(-1, keepdims=True))
        return [(rows[t, i], int(rows[t].argmax()) == i) for t, i in enumerate(ids[1:])]

    def test_lm_eval(self):
        modules, known = stub_of_lm_eval()
        with mock.patch.dict(sys.modules, modules):
            example("lm_eval_situ")
        lm = known["situ"](path=str(self.text_path), threads=1)
        pairs = [("ab c", " de"), ("12", "3"), ("a ", "b"), (text_of(self.prompt), text_of(self.ids[:3]))]
        instances = [types.SimpleNamespace(args=pair) for pair in pairs]
        for (context, continuation), (total, greedy) in zip(pairs, lm.loglikelihood(instances)):
            ids = lm.model.encode(context + continuation)
            after = len(ids) - len(lm.model.encode(context.rstrip()))
            want = self.logprobs(ids)[-after:]
            self.assertAlmostEqual(total, sum(p for p, _ in want), 3, msg=context)
            self.assertEqual(greedy, all(best for _, best in want))
        self.assertTrue(lm.loglikelihood(instances[3:])[0][1])
        for text in ("abc", text_of(list(range(40, 90)) * 3)):  # the second in three windows
            ids, most = lm.model.encode(text), lm.context - 1
            want = 0.0  # the first token has nothing before it: the tokenizer knows none that begins or ends a text
            for start in range(0, len(ids), most):
                end = min(start + most, len(ids))
                first = max(0, end - most - 1)
                want += sum(p for p, _ in self.logprobs(ids[first:end])[-(end - start):])
            got, = lm.loglikelihood_rolling([types.SimpleNamespace(args=(text,))])
            self.assertAlmostEqual(got, want, 2)
        asked = [types.SimpleNamespace(args=(text_of(self.prompt), given)) for given in ({"until": [text_of(self.ids[4:6])], "max_gen_toks": 8}, {"until": [], "max_gen_toks": 3}, {"max_gen_toks": 3, "do_sample": False})]
        self.assertEqual(lm.generate_until(asked), [text_of(self.ids[:4]), text_of(self.ids[:3]), text_of(self.ids[:3])])
        self.assertEqual(lm.apply_chat_template([{"role": "user", "content": "1"}]), "u1a")
        self.assertIsInstance(lm.tokenizer_name, str)

    def test_async_chat(self):
        model = situ.load(self.text_path, context_length=1024)
        with mock.patch.object(module := example("async_chat"), "SAID", ("12", "3")):
            conversations = asyncio.run(module.chat(model, 32, 2, max_new_tokens=120, ignore_eos=True))
        stats = model.stats()
        self.assertEqual(([len(c) for c in conversations], stats["answer_tokens"]), ([5] * 32, 32 * 2 * 120))
        # How many share a step hangs on how soon they ask beside a model as small: python_test's AsyncTest counts that.
        for conversation in conversations[::10]:
            self.assertEqual(conversation[-1]["content"], model.generate(conversation[:-1], max_new_tokens=120, ignore_eos=True).text)

    def test_images(self):
        model = situ.load(with_parts(tiny_vision.write_seeing(self.folder / "seen")))
        picture = image_files.png(np.random.default_rng(3).integers(0, 256, (4, 12)).tolist(), 8, 2)
        answer = example("images").ask(model, [picture, picture], "a", max_new_tokens=4, ignore_eos=True)
        self.assertEqual(len(answer.output_ids), 4)
        self.assertEqual([s.name for s in answer.stages], ["vision_encoder", "embed", "prefill", "decode"])

    def test_ray_score(self):
        ids = self.prompt + self.ids
        found = example("ray_score").score(situ.load(self.text_path), text_of(ids))
        total = sum(p for p, _ in self.logprobs(ids))
        self.assertEqual(found["tokens"], len(ids))
        self.assertAlmostEqual(found["logprob"], total, 3)
        self.assertAlmostEqual(found["perplexity"], math.exp(-total / (len(ids) - 1)), 3)
