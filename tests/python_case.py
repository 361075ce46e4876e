"""What the tests of the Python package share: a tiny model, with and without a tokenizer."""
import json
import os
import shutil

import situ

import tiny_exports
import tiny_models
from cli_case import COUNT, CliTest
from sampling_test import tokenizer_json

CHAT_TEMPLATE = "{% for m in messages %}{{ m.role[0] }}{{ m.content }}{% endfor %}a"
LONG = 1 << 20  # tokens: a generation that a test has to end, since contexts are as long


class PythonTest(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        os.environ["SITU_CACHE_DIR"] = ""
        cls.spec = tiny_models.SPECS[0]
        cls.path = cls.folder / "llama"
        cls.prompt, cls.ids = tiny_exports.write_model(cls.spec, cls.path)
        cls.text_path = cls.folder / "text"
        shutil.copytree(cls.path, cls.text_path)
        (cls.text_path / "tokenizer.json").write_text(tokenizer_json())
        (cls.text_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": CHAT_TEMPLATE}))

    def setUp(self):
        self.model = situ.load(self.path)

    def generate_ids(self, model, prompt=None, **options):
        return model.generate(self.prompt if prompt is None else prompt, **{"max_new_tokens": COUNT, "ignore_eos": True, **options}).output_ids

    def long_model(self, **options):
        return situ.load(self.path, context_length=LONG, **options)
