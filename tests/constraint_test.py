"""Answers that must match a JSON schema, a regular expression or a grammar: `situ run --json-schema`, `--regex`, `--grammar`.

    python tests/constraint_test.py --situ build/situ [unittest options]
"""
import json
import re

import tiny_exports
import tiny_models
from cli_case import CliTest, Run, main
from sampling_test import tokenizer_json

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer", "minimum": -9, "maximum": 99}, "b": {"enum": ["x", "yes \u00e9"]}, "c": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2}},
          "required": ["a", "b", "c"], "additionalProperties": False}

# JSON may have any number of them, and a random model likes them.
FEW_SPACES = ("--logit-bias", "0=-20")

class ConstraintTest(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.spec = next(s for s in tiny_models.SPECS if s.name == "llama")
        cls.ids = tiny_exports.write_weights(cls.spec, tiny_models.make_weights(cls.spec, 1), cls.folder / "ids")
        cls.model = tiny_exports.write_weights(cls.spec, tiny_models.make_weights(cls.spec, 1), cls.folder / "text")
        (cls.model / "tokenizer.json").write_text(tokenizer_json())

    def answer(self, *options, prompt=(5, 6, 7)):
        got = self.generate(self.model, prompt, *options, count=100)
        self.assertEqual((got["finish_reason"], got["bytes_copied_per_token"]), ("stop", 0), (options, got["text"]))
        return got["text"]

    def test_a_schema(self):
        different = set()
        path = self.folder / "schema.json"
        path.write_text(json.dumps(SCHEMA))
        for seed in range(6):
            given = ("--json-schema", json.dumps(SCHEMA)) if seed % 2 else ("--json-schema-file", path)
            text = self.answer(*given, *FEW_SPACES, "--temperature", 3, "--seed", seed)
            document = json.loads(text)
            self.assertEqual(list(document), ["a", "b", "c"])
            self.assertTrue(-9 <= document["a"] <= 99 and isinstance(document["a"], int))
            self.assertIn(document["b"], SCHEMA["properties"]["b"]["enum"])
            self.assertTrue(len(document["c"]) <= 2 and all(isinstance(x, bool) for x in document["c"]))
            different.add(text)
        self.assertGreater(len(different), 3)

    def test_a_regular_expression(self):
        for expression in ("[a-c]{3,5}x", "(ab|cd)*end", "\\d+(\\.\\d{2})?!", "", "\u00e9[^a-z]{4}\u00e9"):
            for options in ((), ("--temperature", 2, "--seed", 5), ("--threads", 1, "--chunk", 2), ("--repetition-penalty", 1.5)):
                text = self.answer("--regex", expression.replace("\\d+", "\\d{1,20}").replace(")*", "){0,9}"), *options)
                self.assertRegex(text, re.compile(r"\A(?:" + expression + r")\Z"))

    def test_a_grammar(self):
        grammar = 'start: sum "."\nsum: NUMBER ("+" NUMBER)~1..3\nNUMBER: /[0-9]{1,3}/\n'
        (self.folder / "sum.lark").write_text(grammar)
        text = self.answer("--grammar", grammar)
        self.assertRegex(text, r"\A\d{1,3}(\+\d{1,3}){1,3}\.\Z")
        self.assertEqual(self.answer("--grammar-file", self.folder / "sum.lark"), text)

    def test_guessing_and_grammars(self):
        expected = self.answer("--json-schema", json.dumps(SCHEMA), *FEW_SPACES, "--temperature", 2, "--seed", 3)
        for guesses in (("--draft", self.model), ("--prompt-lookup", 4)):
            self.assertEqual(self.answer("--json-schema", json.dumps(SCHEMA), *FEW_SPACES, "--temperature", 2, "--seed", 3, *guesses), expected)
        self.assertEqual(self.generate(self.model, (5, 6, 7), "--naive", "--json-schema", json.dumps(SCHEMA), *FEW_SPACES, "--temperature", 2, "--seed", 3, count=100)["text"], expected)

    def test_where_an_answer_may_end(self):
        # Its end is a token of text here, which ends the answer where the expression is whole and nowhere else.
        stop = 97 - 32  # "a"
        got = self.generate(self.model, (5, 6, 7), "--regex", "[ab]{2,40}", "--stop-id", stop, "--logit-bias", f"{stop}=100", count=100)
        self.assertEqual((got["text"], got["finish_reason"]), ("bb", "stop"))
        got = self.generate(self.model, (5, 6, 7), "--regex", "[ab]{2,40}", "--stop-id", stop, "--logit-bias", f"{stop}=100", "--min-new-tokens", 5, count=100)
        self.assertEqual(got["text"], "bbbbb")
        self.assertEqual(len(self.answer("--regex", "[ab]{3}", "--min-new-tokens", 3)), 3)
        got = self.generate(self.model, (5, 6, 7), "--regex", "[ab]{9,40}", count=5)
        self.assertEqual((len(got["text"]), got["finish_reason"]), (5, "length"))

    def test_refused(self):
        def refused(options, *words, model=self.model):
            self.refused(Run("run", model, "--prompt-ids", "5,6", *options), *words)
        refused(("--json-schema", "{"), "json_schema")
        refused(("--json-schema", '{"type": "integer", "minimum": 5, "maximum": 3}'), "json_schema")
        refused(("--json-schema", "false"), "json_schema")
        refused(("--json-schema", '{"type": "string", "unknownKeyword": 1, "contentEncoding": "base64"}'), "json_schema")
        refused(("--regex", "(a"), "regex")
        refused(("--grammar", "start: nowhere"), "grammar", "nowhere")
        refused(("--regex", "a", "--grammar", 'start: "a"'), "regex", "grammar", "one grammar")
        refused(("--regex", "a", "--beams", 2), "a grammar", "beam")
        refused(("--regex", "a"), "tokenizer.json", model=self.ids)
        refused(("--json-schema-file", self.folder / "nowhere"), "nowhere", "cannot be read")
        refused(("--regex", "\u65e5"), "regex")
        for options in ((), ("--temperature", 2), ("--prompt-lookup", 3)):
            run = Run("run", self.model, "--prompt-ids", "5,6", "--json", "--regex", "[ab]{3}", "--min-new-tokens", 4, *options)
            got = json.loads(run.out)
            self.assertEqual((run.code, len(got["text"]), got["finish_reason"]), (2, 3, "error"), run)
            self.assertRegex(got["error"], "no token can be chosen after 3 new ones.*the grammar, min_new_tokens 4")
            self.assertEqual(run.err, f"situ: {got['error']}\n")
        refused(("--regex", "", "--min-new-tokens", 1), "after 0 new ones", "the grammar, min_new_tokens 1")
        refused(("--regex", "[ab]{3}", "--logit-bias", "65=-inf", "--logit-bias", "66=-inf"), "the grammar", "logit_bias")

if __name__ == "__main__":
    main()
