"""onnxruntime-genai: its generator, with the KV cache that the folder's configuration asks for."""
import json
import tempfile
import time
from pathlib import Path

from . import in_process, prompt_ids

MOST_STREAMS = 32  # of a generator; more is refused


class OrtGenai:
    def __init__(self, a, folder):
        import numpy
        import onnxruntime_genai
        self.np, self.genai, self.version = numpy, onnxruntime_genai, onnxruntime_genai.__version__
        self.folder = folder
        config = json.loads((Path(a.model) / "genai_config.json").read_text())
        config["model"]["decoder"].setdefault("session_options", {})["intra_op_num_threads"] = a.threads
        self.vocabulary = config["model"]["vocab_size"]
        for file in Path(a.model).iterdir():  # the same files under a configuration with the thread count
            if file.name != "genai_config.json":
                (folder / file.name).symlink_to(file.resolve())
        (folder / "genai_config.json").write_text(json.dumps(config))

    def load(self):
        self.model = self.genai.Model(str(self.folder))

    def run(self, count, prompt, tokens):
        """(ms of the prompts, ms of the tokens)"""
        parameters = self.genai.GeneratorParams(self.model)
        length = prompt + tokens + 1
        parameters.set_search_options(max_length=length, min_length=length, do_sample=False, batch_size=count)
        generator = self.genai.Generator(self.model, parameters)
        ids = self.np.array(prompt_ids(count * prompt, self.vocabulary), self.np.int32).reshape(count, prompt)
        begin = time.perf_counter()
        generator.append_tokens(ids)
        generator.generate_next_token()
        fed = time.perf_counter()
        for _ in range(tokens):
            generator.generate_next_token()
        end = time.perf_counter()
        return 1000 * (fed - begin), 1000 * (end - fed)

    def case(self, prompt, tokens):
        prefill, decode = self.run(1, prompt, tokens)
        return prefill, decode / tokens, {}

    def stream(self, count, prompt, tokens):
        if count > MOST_STREAMS:
            return f"at most {MOST_STREAMS} sequences in a batch"
        return sum(self.run(count, prompt, tokens - 1))  # the first token of an answer follows from the prompt


def measure(a):
    with tempfile.TemporaryDirectory() as folder:
        return in_process(a, OrtGenai(a, Path(folder)))
