"""The Python package: tiny models against their oracle in NumPy and the command line, views, streams, threads, errors.

    python tests/python_test.py [--situ build/situ] [unittest options]

Needs the package situ, numpy and onnx: `make python-test` makes an environment that has them.
"""
import gc
import json
import math
import os
import pickle
import re
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
import weakref
from pathlib import Path
from unittest import mock
import numpy as np
import situ
from situ import _situ

import cli_case
import tiny_exports
import tiny_models
from cli_case import COUNT
from python_case import CHAT_TEMPLATE, LONG, PythonTest
from python_parts import *  # noqa: F401, F403: unittest finds them here
from sampling_test import CHARACTERS, text_of
from thread_case import call_beside

ROOT = Path(__file__).resolve().parent.parent

def address(array):
    return array.__array_interface__["data"][0]

class GenerateTest(PythonTest):
    def test_equals_the_oracle_and_copies_nothing(self):
        for spec in (s for s in tiny_models.SPECS if s.name in ("llama", "half", "genai", "bloom", "opset23")):
            path = self.folder / ("oracle-" + spec.name)
            prompt, ids = tiny_exports.write_model(spec, path)
            for naive in (False, True):
                with self.subTest(spec.name, naive=naive):
                    model = situ.load(path, naive=naive)
                    answer = model.generate(prompt, max_new_tokens=COUNT, ignore_eos=True)
                    self.assertEqual((answer.output_ids, answer.finish_reason), (ids, "length"))
                    self.assertEqual(model.facts.mode, "naive" if naive else "in-place")
                    self.assertEqual(answer.bytes_copied_per_token > 0, naive)
                    self.assertEqual(model.ledger.copied > 0, naive)

    def test_equals_the_command_line(self):
        if not Path(cli_case.SITU).exists():
            self.skipTest(f"{cli_case.SITU} is not built")
        for options, arguments in (({}, []), ({"temperature": 2, "seed": 7}, ["--temperature", 2, "--seed", 7]),
                                   ({"logit_bias": {5: -math.inf, self.ids[0]: -3.5}}, ["--logit-bias", "5=-inf", "--logit-bias", f"{self.ids[0]}=-3.5"]),
                                   ({"repetition_penalty": 1.5, "logprobs": 3}, ["--repetition-penalty", 1.5, "--logprobs", 3])):
            with self.subTest(options):
                run = self.generate(self.path, self.prompt, *arguments)
                answer = self.model.generate(self.prompt, max_new_tokens=COUNT, ignore_eos=True, **options)
                self.assertEqual((answer.output_ids, answer.seed), (run["output_ids"], run.get("seed")))
                self.assertEqual([(o.logprob, [tuple(t) for t in o.top]) for o in answer.logprobs],
                                 [(o["logprob"], [(t["id"], t["logprob"]) for t in o["top"]]) for o in run.get("logprobs", [])])

    def test_grammars(self):
        model = situ.load(self.text_path)
        schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["n"], "additionalProperties": False}
        for given in (schema, json.dumps(schema)):
            answer = model.generate("12", json_schema=given, temperature=2, seed=4, max_new_tokens=40)
            self.assertEqual((list(json.loads(answer.text)), answer.finish_reason), (["n"], "stop"))
        answers = model.generate(["12", "3", "45"], regex="[ab]{2,3}c", temperature=2, seed=4, max_new_tokens=40)
        self.assertEqual([a.text for a in answers], [model.generate(p, regex="[ab]{2,3}c", temperature=2, seed=4, max_new_tokens=40).text for p in ("12", "3", "45")])
        for a in answers:
            self.assertRegex(a.text, r"\A[ab]{2,3}c\Z")
        self.assertRegex("".join(t.text for t in model.stream("12", grammar='start: "x" "y"+ "z"', max_new_tokens=40, temperature=2, seed=1)), "xy+z?")
        with self.assertRaisesRegex(situ.SituError, "json_schema"):
            model.generate("12", json_schema=False)

    def test_perplexity(self):
        ids = self.prompt + self.ids
        nll = [-math.log(x) for x in (self.probability(ids[:t], ids[t]) for t in range(1, len(ids)))]
        got = self.model.perplexity(ids)
        self.assertAlmostEqual(got.mean_nll, sum(nll) / len(nll), delta=1e-4)
        self.assertAlmostEqual(got.perplexity, math.exp(got.mean_nll))
        self.assertEqual((got.tokens, got.bytes_copied), (len(ids) - 1, 0))
        self.assertEqual(self.model.perplexity(np.array(ids), context=9, stride=8).tokens, len(ids) - 1)
        answer = self.model.generate(self.prompt, max_new_tokens=COUNT, ignore_eos=True, report_perplexity=True)
        self.assertAlmostEqual(answer.perplexity, math.exp(sum(nll[len(self.prompt) - 1:]) / COUNT), delta=1e-3 * answer.perplexity)
        self.assertIsNone(self.model.generate(self.prompt, max_new_tokens=2).perplexity)
        together = self.model.generate([self.prompt, self.prompt[:3]], max_new_tokens=COUNT, ignore_eos=True, report_perplexity=True)
        self.assertAlmostEqual(together[0].perplexity, answer.perplexity)
        with self.assertRaisesRegex(situ.SituError, "at least 2"):
            self.model.perplexity([1])

    def probability(self, past, token):
        logits = self.model.session().step(past).astype(np.float64)
        return float(np.exp(logits[token] - logits.max()) / np.exp(logits - logits.max()).sum())

    def test_text_and_chat(self):
        model = situ.load(self.text_path)
        self.assertTrue(model.has_tokenizer and model.has_chat_template)
        text = text_of(self.prompt)
        self.assertEqual((model.encode(text), model.decode(self.prompt)), (self.prompt, text))
        self.assertEqual(model.generate(text, max_new_tokens=COUNT).text, text_of(self.ids))
        self.assertEqual(model.generate(text, max_new_tokens=COUNT, echo=True).text, text + text_of(self.ids))
        messages = [{"role": "system", "content": "1"}, {"role": "user", "content": "2"}]
        self.assertEqual(model.decode(model.encode_chat(messages)), "s1u2a")
        self.assertEqual(model.generate("2", chat=True, max_new_tokens=9).output_ids, model.generate("u2a", max_new_tokens=9).output_ids)
        self.assertEqual(model.generate(text, stop=[text_of(self.ids[3:5])], max_new_tokens=COUNT).text, text_of(self.ids[:3]))

    def test_answers_that_fail(self):
        table = np.zeros((6, tiny_models.VOCABULARY))
        table[np.arange(6), np.arange(1, 7)] = 5
        table[5, 7] = np.nan
        model = situ.load(tiny_exports.write_table_model(table, self.folder / "fails"))
        said = "logits of id 7 are not a number"
        for options in ({}, {"beams": 2}, {"prompt_lookup": 3}):
            answer = model.generate([0], **options)
            self.assertEqual((answer.output_ids, answer.finish_reason), ([1, 2, 3, 4, 5], "error"), options)
            self.assertIn(f"model.onnx: {said} after 5", answer.error)
        with self.assertRaisesRegex(situ.SituError, said):
            model.generate([5])
        answers = model.generate([[0], [3], [5], [1]], max_new_tokens=3)
        self.assertEqual([(a.output_ids, a.finish_reason) for a in answers], [([1, 2, 3], "length"), ([4, 5], "error"), ([], "error"), ([2, 3, 4], "length")])
        self.assertEqual([a.error is None for a in answers], [True, False, False, True])
        with self.assertRaisesRegex(situ.SituError, said):
            model.generate([[5], [5]])
        stream = model.stream([0])
        self.assertEqual([next(stream).id for _ in range(5)], [1, 2, 3, 4, 5])
        with self.assertRaisesRegex(situ.SituError, said) as caught:
            next(stream)
        self.assertEqual((caught.exception.code, stream.generation.output_ids, stream.generation.finish_reason), ("internal", [1, 2, 3, 4, 5], "error"))

    def test_conversations_end_at_the_tokenizers_token(self):
        folder = self.folder / "turns"
        shutil.copytree(self.text_path, folder)
        plain = situ.load(folder).generate("u2a", max_new_tokens=4).output_ids
        (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": CHAT_TEMPLATE, "eos_token": CHARACTERS[plain[2]]}))
        model = situ.load(folder)
        short = plain[:plain.index(plain[2])]
        ids = model.encode_chat([{"role": "user", "content": "2"}])
        raw = list(ids)
        for answer, want in ((model.generate(ids, max_new_tokens=4), short), (model.generate("2", chat=True, max_new_tokens=4), short), (model.generate([ids, ids], max_new_tokens=4)[1], short),
                             (model.generate(raw, max_new_tokens=4), plain), (model.generate("u2a", max_new_tokens=4), plain), (model.generate([raw, ids], max_new_tokens=4)[0], plain), (model.generate([raw, ids], max_new_tokens=4)[1], short),
                             (model.generate(raw, max_new_tokens=4, end_of_turn=True), short), (model.generate(ids, max_new_tokens=4, end_of_turn=False), plain)):
            self.assertEqual(answer.output_ids, want)
        self.assertEqual([t.id for t in model.stream(ids, max_new_tokens=4) if t.id >= 0], short)

    def test_prompts_of_any_kind(self):
        for prompt in (tuple(self.prompt), np.array(self.prompt), np.array(self.prompt, np.int32), list(np.array(self.prompt))):
            self.assertEqual(self.generate_ids(self.model, prompt), self.ids, type(prompt))
        one = self.model.generate([self.prompt[0]], max_new_tokens=4).output_ids
        answers = self.model.generate([self.prompt, [self.prompt[0]]], max_new_tokens=4)
        self.assertEqual([a.output_ids for a in answers], [self.ids[:4], one])
        for prompts in (np.array([self.prompt] * 2), [np.array(self.prompt)] * 2, (self.prompt, np.array(self.prompt, np.int32))):
            self.assertEqual([a.output_ids for a in self.model.generate(prompts, max_new_tokens=4)], [self.ids[:4]] * 2)
        model = situ.load(self.text_path)
        text = text_of(self.prompt)
        for prompts in ([text, text], (text, text)):
            self.assertEqual([a.text for a in model.generate(prompts, max_new_tokens=4)], [text_of(self.ids[:4])] * 2)

    def test_options_are_those_of_the_header(self):
        header = (ROOT / "include/situ/generate.h").read_text()
        fields = re.sub(r"//.*", "", re.search(r"struct GenerateOptions \{(.*?)\n\};", header, re.S).group(1))
        names = [name for line in fields.split(";") for name in re.findall(r"(\w+)\s*(?:=[^,]*)?(?:,|$)", re.sub(r"<.*>", "", line.strip())) if name]
        self.assertIn("frequency_penalty", names)
        self.assertEqual(_situ.option_names(), names)
        self.assertEqual(list(situ.Options.__annotations__), names)

    def test_results_are_plain_values(self):
        answer = self.model.generate(self.prompt, max_new_tokens=2, logprobs=1, temperature=1)
        self.assertEqual(pickle.loads(pickle.dumps(answer)), answer)
        self.assertIsInstance(answer.seed, int)
        for value in (self.model.facts, self.model.ledger):
            self.assertEqual(pickle.loads(pickle.dumps(value)), value)

    def test_ledger_and_facts(self):
        facts = self.model.facts
        self.assertEqual((facts.vocabulary, facts.file), (tiny_models.VOCABULARY, str(self.path / "model.onnx")))
        self.assertEqual(situ.load(self.path, threads=1, context_length=40).facts.context_length, 40)
        self.generate_ids(self.model)
        self.assertGreater(self.model.ledger.computed, 0)
        self.model.reset_ledger()
        self.assertEqual(self.model.ledger, (0, 0, 0))
        self.assertGreater(situ.peak_rss_mib(), 1)
        self.assertIn("in-place", repr(self.model))

class SessionTest(PythonTest):
    def test_old_views_are_memory_still(self):
        model = situ.load(self.path)
        sessions = [model.session() for _ in range(12)]
        old = model.step([(s, [1]) for s in sessions[:3]])
        reference = weakref.ref(sessions[0])
        model.step([(s, [2]) for s in sessions])
        self.assertTrue(all(np.isfinite(v).all() for v in old))
        self.assertIs(reference(), sessions[0])

    def test_logits_are_a_view_of_what_the_model_computes(self):
        for options in ({}, {"naive": True}):
            model = situ.load(self.path, **options)
            session = model.session()
            self.assertEqual((session.length, session.logits_address), (0, 0))
            logits = session.step(self.prompt)
            self.assertEqual((logits.dtype, logits.shape), (np.float32, (tiny_models.VOCABULARY,)))
            self.assertEqual(address(logits), session.logits_address)
            self.assertFalse(logits.flags.owndata or logits.flags.writeable)
            with self.assertRaises(ValueError):
                logits.flags.writeable = True
            first = logits.copy()
            again = session.step([int(logits.argmax())])
            self.assertEqual(address(again), session.logits_address)
            second = again.copy()
            last = session.step([int(again.argmax())])
            self.assertEqual((address(last), session.logits_address), (address(again), address(again)))
            # The same memory: what the earlier step of a token returned shows the numbers of this one.
            self.assertFalse(np.array_equal(second, again))
            np.testing.assert_array_equal(last, again)
            del model, session
            gc.collect()
            self.assertTrue(np.isfinite(logits).all() and not np.array_equal(first, second))

    def test_a_view_holds_until_the_next_step_of_its_session(self):
        for options in ({}, {"naive": True}):
            model = situ.load(self.path, **options)
            session, others = model.session(), [model.session() for _ in range(4)]
            logits = session.step(self.prompt)
            together = model.step([(s, [1 + i]) for i, s in enumerate(others)])
            views = [logits, *together, model.session().step([7])]  # of a session that is no more
            copies = [v.copy() for v in views]
            self.assertEqual(len({v.tobytes() for v in views}), len(views))
            stream = model.stream(self.prompt[::-1], max_new_tokens=COUNT)
            others[0].fork().step([3]) if not options.get("naive") else None
            model.session().step([2, 3])
            model.step([(model.session(), [5]), (model.session(), [6, 7])])
            model.generate([[1], [2, 3]], max_new_tokens=4)
            model.perplexity(self.prompt)
            list(stream)
            for view, copy in zip(views, copies):
                np.testing.assert_array_equal(view, copy)
            # One of those that stepped together goes on alone.
            others[1].step([4])
            for i in (0, 1, 3, 4, 5):
                np.testing.assert_array_equal(views[i], copies[i])
            if not options.get("naive"):
                self.assertEqual(model.ledger.copied, 0)

    def test_logits_that_are_computed_elsewhere(self):
        """In half precision, and of all tokens: they are converted or copied to where the session has them."""
        for name, passes, copied in (("half", "", 0), ("llama", "last_token", 4 * tiny_models.VOCABULARY)):
            path = self.folder / f"elsewhere {name}"
            prompt, ids = tiny_exports.write_model(next(s for s in tiny_models.SPECS if s.name == name), path)
            with mock.patch.dict(os.environ, SITU_DISABLE_PASSES=passes):
                model = situ.load(path)
            session, other = model.session(), model.session()
            logits, found, places = session.step(prompt), [], set()
            self.assertEqual(model.ledger.copied, copied)
            for _ in ids:
                other.step([1])
                found.append(int(logits.argmax()))
                places.add(address(logits))
                logits = session.step(found[-1:])
            self.assertEqual((found, places), (ids, {session.logits_address}))

    def test_steps_equal_the_oracle(self):
        weights, _, _ = tiny_models.choose_weights(self.spec)
        session, ids = self.model.session(), list(self.prompt)
        logits = session.step(np.array(ids))
        for _ in range(COUNT):
            np.testing.assert_allclose(logits, tiny_models.forward(self.spec, weights, ids), rtol=0, atol=1e-3)
            ids.append(int(logits.argmax()))
            logits = session.step(ids[-1:])
        self.assertEqual(ids[len(self.prompt):], self.ids)
        self.assertEqual(session.length, len(ids))

    def test_sessions_step_together(self):
        model = situ.load(self.path)
        self.assertEqual(model.facts.one_sequence, "")
        fed = [self.prompt, self.prompt[:1], self.prompt[::-1]]
        alone = []
        for ids in fed:
            session = model.session()
            alone.append([session.step(ids).copy(), session.step([1]).copy()])
        model.reset_ledger()
        sessions = [model.session() for _ in fed]
        for step in (0, 1):
            logits = model.step(list(zip(sessions, fed if step == 0 else [[1]] * 3)))
            for i, row in enumerate(logits):
                np.testing.assert_array_equal(row, alone[i][step])
                self.assertEqual(address(row), sessions[i].logits_address)
                self.assertFalse(row.flags.owndata or row.flags.writeable)
        self.assertEqual(model.ledger.copied, 0)

    def test_a_session_that_is_refused_leaves_the_others(self):
        model = situ.load(self.path, slots=48, context_length=12)
        alone = model.session()
        want = [alone.step(self.prompt).copy(), alone.step([3]).copy()]
        sessions = [model.session() for _ in range(4)]
        sessions[2].step([5])
        feeds = [(sessions[0], self.prompt), (sessions[1], [-1]), (sessions[2], [1] * 12), (sessions[3], self.prompt), (sessions[0], [2])]
        for tokens, length in ((self.prompt, len(self.prompt)), ([3], len(self.prompt) + 1)):
            feeds[0], feeds[3] = (sessions[0], tokens), (sessions[3], tokens)
            first, negative, long, last, twice = model.step(feeds)
            for logits, session in ((first, sessions[0]), (last, sessions[3])):
                np.testing.assert_array_equal(logits, want[length - len(self.prompt)])
                self.assertEqual((address(logits), session.length), (session.logits_address, length))
            for error, code, words in ((negative, "invalid_argument", "outside the vocabulary"), (long, "context_exceeded", "13 tokens"),
                                       (twice, "invalid_argument", "session 4 is in the step twice")):
                self.assertIsInstance(error, situ.SituError)
                self.assertEqual(error.code, code)
                self.assertIn(words, str(error))
            self.assertEqual([s.length for s in sessions[1:3]], [0, 1])
        self.assertEqual(model.ledger.copied, 0)

    def test_prompts_have_the_answers_of_each_alone(self):
        for options in ({}, {"naive": True}, {"slots": 60, "chunk": 3}):
            model = situ.load(self.path, **options)
            prompts = [self.prompt, self.prompt[:2], self.prompt[::-1], self.prompt[:1]]
            for wanted in ({}, {"temperature": 1.3, "seed": 3}, {"beams": 2}):
                if options.get("naive") and "beams" in wanted:
                    continue
                with self.subTest(**options, **wanted):
                    answers = model.generate(prompts, max_new_tokens=8, ignore_eos=True, **wanted)
                    self.assertEqual([a.output_ids for a in answers], [self.generate_ids(model, p, max_new_tokens=8, **wanted) for p in prompts])

    def test_rewind(self):
        session = self.model.session()
        first = session.step(self.prompt).copy()
        session.step([1, 2, 3])
        session.rewind(len(self.prompt) - 1)
        self.assertEqual(session.length, len(self.prompt) - 1)
        np.testing.assert_allclose(session.step(self.prompt[-1:]), first, rtol=0, atol=1e-5)
        with self.assertRaisesRegex(situ.SituError, "cannot rewind a sequence of 7 tokens to 8"):
            session.rewind(8)

    def test_fork(self):
        session = self.model.session()
        session.step(self.prompt[:-1])
        before = self.model.ledger.copied
        forks = [session.fork(), session.fork()]
        del session
        gc.collect()
        for fork in forks:
            ids, logits = [], fork.step(self.prompt[-1:])
            for _ in range(COUNT):
                ids.append(int(logits.argmax()))
                logits = fork.step(ids[-1:])
            self.assertEqual(ids, self.ids)
        self.assertEqual(self.model.ledger.copied, before)

    def test_prefixes_are_shared(self):
        model = situ.load(self.path)
        cached = [model.generate(self.prompt, max_new_tokens=COUNT, ignore_eos=True, prefix_cache="all") for _ in range(2)]
        self.assertEqual([g.cached_tokens for g in cached], [0, len(self.prompt) - 1])
        self.assertEqual([g.output_ids for g in cached], [self.ids, self.ids])
        self.assertEqual([g.bytes_copied_per_token for g in cached], [0, 0])

    def test_a_step_that_fails_leaves_the_session(self):
        session = self.model.session()
        session.step(self.prompt)
        with self.assertRaisesRegex(situ.SituError, "token 1 has id 96, outside the vocabulary of 96"):
            session.step([1, 96])
        self.assertEqual(session.length, len(self.prompt))
        for wrong in ("12", [1.5], None, b"12"):
            with self.assertRaises(TypeError):
                session.step(wrong)

    def test_sessions_take_turns(self):
        sessions = [self.model.session(), self.model.session()]
        logits = [s.step(self.prompt).copy() for s in sessions]
        ids = [[], []]
        for _ in range(COUNT):
            for i, session in enumerate(sessions):
                ids[i].append(int(logits[i].argmax()))
                logits[i] = session.step(ids[i][-1:]).copy()
        self.assertEqual(ids, [self.ids, self.ids])

    def test_objects_keep_their_model_alive(self):
        session = situ.load(self.path).session()
        gc.collect()
        logits = session.step(self.prompt)
        del session
        gc.collect()
        self.assertEqual(int(logits.argmax()), self.ids[0])
        stream = situ.load(self.path).stream(self.prompt, max_new_tokens=COUNT)
        gc.collect()
        self.assertEqual([t.id for t in stream], self.ids)

class StreamTest(PythonTest):
    def test_the_model_is_used_between_tokens_that_were_guessed(self):
        model, prompt = self.long_model(), self.prompt * 3
        want = model.generate(prompt, max_new_tokens=60, ignore_eos=True)
        other, found = model.session(), []
        for token in model.stream(prompt, max_new_tokens=60, ignore_eos=True, prompt_lookup=8):
            found.append(token.id)
            other.step([1, 2, 3] if other.length < 100 else [4])
        self.assertEqual([i for i in found if i is not None and i >= 0], want.output_ids)

    def threads(self):
        return len(os.listdir("/proc/self/task"))

    def test_gives_what_generate_gives(self):
        model = situ.load(self.text_path)
        text = text_of(self.prompt)
        for options in ({}, {"echo": True}, {"stop": [text_of(self.ids[3:5])]}, {"logprobs": 2}, {"temperature": 2, "seed": 3}):
            with self.subTest(options):
                stream = model.stream(text, max_new_tokens=COUNT, **options)
                tokens = list(stream)
                answer = model.generate(text, max_new_tokens=COUNT, **options)
                self.assertEqual([t.id for t in tokens if t.id >= 0], answer.output_ids)
                self.assertEqual("".join(t.text for t in tokens), answer.text)
                self.assertEqual([t.logprob for t in tokens if t.logprob is not None], [o.logprob for o in answer.logprobs])
                got = stream.generation
                self.assertEqual((got.output_ids, got.text, got.seed, got.finish_reason), (answer.output_ids, answer.text, answer.seed, answer.finish_reason))
                self.assertEqual(list(stream), [])

    def test_ending_early_leaves_nothing(self):
        def leave(stream):
            with stream:
                next(stream)

        def drop(stream):
            next(stream)

        def close(stream):
            stream.close()
            stream.close()
            self.assertIsNone(next(stream, None))
            self.assertEqual(stream.generation.finish_reason, "cancelled")

        model = self.long_model()
        before = self.threads()
        for end in (leave, drop, close):
            with self.subTest(end.__name__):
                end(model.stream(self.prompt, max_new_tokens=LONG - 10, ignore_eos=True))
                self.assertEqual(self.threads(), before)
                self.assertEqual(self.generate_ids(model), self.ids)  # the model is free, and as it was

    def test_a_slow_reader_keeps_nobody_waiting(self):
        model = self.long_model()
        stream = model.stream(self.prompt, max_new_tokens=300, ignore_eos=True)
        self.assertEqual(self.generate_ids(model), self.ids)
        while model.stats()["running"]:
            time.sleep(0.001)
        self.assertEqual(len([t for t in stream if t.id >= 0]), 300)

    def test_streams_share_steps(self):
        model = self.long_model()
        before = model.stats()
        streams = [model.stream([*self.prompt, i], max_new_tokens=200, ignore_eos=True) for i in range(64)]
        tokens = [[t.id for t in s] for s in streams]
        self.assertEqual({len(t) for t in tokens}, {200})
        self.assertLess(model.stats()["steps"] - before["steps"], 64 * 200 / 8)
        self.assertEqual(tokens[5], model.generate([*self.prompt, 5], max_new_tokens=200, ignore_eos=True).output_ids)

    def test_the_model_may_be_used_meanwhile(self):
        model = situ.load(self.text_path)
        session = model.session()
        logits = session.step(self.prompt).copy()
        streams = [model.stream(text_of(self.prompt), max_new_tokens=COUNT, echo=True) for _ in range(2)]
        tokens = [[], []]
        for a, b in zip(*streams):
            tokens[0].append(a.id)
            tokens[1].append(b.id)
            self.assertEqual(model.encode("ab"), [65, 66])
            self.assertEqual(self.generate_ids(model, max_new_tokens=3), self.ids[:3])
        self.assertEqual(tokens, [[-1, *self.ids]] * 2)
        self.assertEqual(int(logits.argmax()), self.ids[0])
        self.assertEqual(int(session.step(self.ids[:1]).argmax()), self.ids[1])

    def test_errors_come_with_next(self):
        stream = self.model.stream([1, 2, 1000])
        for _ in range(2):
            with self.assertRaisesRegex(situ.SituError, "id 1000"):
                next(stream)
        stream.close()

    def test_a_program_may_end_with_an_open_stream(self):
        program = f"import situ\ns = situ.load({str(self.path)!r}, context_length={LONG}).stream({self.prompt}, max_new_tokens={LONG - 10})\nprint(next(s).id)"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=cli_case.PATIENCE)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, f"{self.ids[0]}\n", ""))

class ThreadTest(PythonTest):
    def test_the_gil_is_free_while_the_model_computes(self):
        model, end = self.long_model(threads=1), time.monotonic() + cli_case.PATIENCE
        for work in (lambda: model.generate(self.prompt, max_new_tokens=500, ignore_eos=True),
                     lambda: model.session().step(self.prompt * 300)):
            # Where the machine is busy the other thread may wake up too late: then once more.
            while not call_beside(work, lambda: None)[1]:
                self.assertLess(time.monotonic(), end)

    def test_threads_take_turns(self):
        model, answers, errors = self.long_model(), [], []

        def work():
            try:
                for _ in range(5):
                    answers.append(self.generate_ids(model))
                    with model.stream(self.prompt, max_new_tokens=COUNT) as stream:
                        answers.append([t.id for t in stream])
                    session = model.session()
                    session.step(self.prompt)
                    session.rewind(session.length - 2)
                    self.assertEqual(session.length, len(self.prompt) - 2)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(errors, [])
        self.assertEqual(answers, [self.ids] * 40)

    def test_threads_that_step_read_their_own_logits(self):
        model = self.long_model(threads=1)
        prompts = [self.prompt, self.prompt[:2], self.prompt[::-1], self.prompt[:1]]
        want, got = [self.generate_ids(model, p, max_new_tokens=300) for p in prompts], [[] for _ in prompts]

        def work(i):
            session = model.session()
            logits = session.step(prompts[i])
            while len(got[i]) < 300:
                time.sleep(0)  # others step now
                got[i].append(int(logits.argmax()))
                logits = session.step(got[i][-1:])

        threads = [threading.Thread(target=work, args=(i,)) for i in range(len(prompts))]
        before = model.ledger.copied
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(got, want)
        self.assertEqual(model.ledger.copied, before)

    def test_control_c_at_the_prompt_of_the_example(self):
        arguments = [sys.executable, ROOT / "examples/python/chat.py", self.text_path, "-n", "4"]
        with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as chat:
            self.assertEqual(chat.stdout.read(2), "> ")
            chat.send_signal(signal.SIGINT)
            while not select.select([chat.stdout], [], [], 1)[0] and chat.poll() is None:  # it came before the program waited for the line
                chat.send_signal(signal.SIGINT)
            self.assertEqual(chat.stdout.read(3), "\n> ")
            out, err = chat.communicate("12\n", timeout=cli_case.PATIENCE)
        self.assertEqual((chat.returncode, err), (0, ""), out)

    def test_control_c_ends_a_generation(self):
        model = self.long_model()
        for work in (lambda: model.generate(self.prompt, max_new_tokens=LONG - 10, ignore_eos=True),
                     lambda: list(model.stream(self.prompt, max_new_tokens=LONG - 10, ignore_eos=True))):
            timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            with self.assertRaises(KeyboardInterrupt):
                work()
            timer.join()
            gc.collect()
            self.assertEqual(self.generate_ids(model), self.ids)

    def test_what_takes_long_can_be_ended(self):
        """Each of these would take minutes at least."""
        model = self.long_model()
        text = self.prompt * (LONG // 2 // len(self.prompt))
        session = model.session()
        session.step(self.prompt)
        cases = {
            "a prompt": lambda: model.generate(text, max_new_tokens=2),
            "prompts": lambda: model.generate([text, self.prompt], max_new_tokens=2),
            "beams": lambda: model.generate(self.prompt, max_new_tokens=LONG - 10, ignore_eos=True, beams=2),
            "perplexity": lambda: model.perplexity(text),
            "a step": lambda: session.step(text),
            "a step of several": lambda: model.step([(session, text)]),
        }
        for name, work in cases.items():
            with self.subTest(name):
                timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
                timer.start()
                with self.assertRaises(KeyboardInterrupt):
                    work()
                timer.join()
                gc.collect()
                self.assertEqual(session.length, len(self.prompt))
                self.assertEqual(self.generate_ids(model), self.ids)
        for prompt, options in ((text, {}), (self.prompt, {"beams": 2})):
            stream = model.stream(prompt, max_new_tokens=LONG // 2 - 10, ignore_eos=True, **options)
            time.sleep(0.3)
            stream.close()
            self.assertEqual((stream.generation.output_ids, stream.generation.finish_reason), ([], "cancelled"))
        self.assertEqual(self.generate_ids(model), self.ids)

    def test_a_signal_handler_may_use_the_model(self):
        model, seen = self.long_model(), []

        def handle(number, frame):
            seen.append(self.generate_ids(model))
            seen.append(model.session().length)

        def generate():
            answer = model.generate(self.prompt, max_new_tokens=1000, ignore_eos=True)
            return answer, list(seen)

        previous, end = signal.signal(signal.SIGALRM, handle), time.monotonic() + cli_case.PATIENCE
        try:
            expected, during = generate()[0], []
            while not during:  # the signal may come too late
                self.assertLess(time.monotonic(), end)
                seen.clear()
                (answer, during), _ = call_beside(generate, lambda: signal.pthread_kill(threading.main_thread().ident, signal.SIGALRM))
        finally:
            signal.signal(signal.SIGALRM, previous)
        self.assertEqual(during, [self.ids, 0])
        self.assertEqual(answer.output_ids, expected.output_ids)

    def test_a_fork_is_refused_and_ends(self):
        for _ in range(20):  # the stream's thread is somewhere else each time
            self.fork(situ.load(self.path))

    def fork(self, model):
        session = model.session()
        stream = model.stream(self.prompt, max_new_tokens=COUNT)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forks of processes with threads: the case at hand
            child = os.fork()
        if child == 0:
            refused = 0
            for use in (lambda: model.generate([1]), lambda: session.step([1]), lambda: next(stream), lambda: model.stream([1])):
                try:
                    use()
                except situ.SituError as error:
                    refused += "fork" in str(error)
            use = None
            del model, session, stream
            gc.collect()
            os._exit(refused)
        end = time.monotonic() + cli_case.PATIENCE
        while (done := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < end:
            time.sleep(0.002)
        if done[0] == 0:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            self.fail("the fork does not end")
        self.assertEqual(os.waitstatus_to_exitcode(done[1]), 4)
        self.assertEqual([t.id for t in stream], self.ids)

if __name__ == "__main__":
    cli_case.main()
