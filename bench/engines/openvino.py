"""OpenVINO GenAI on a GGUF file: the plain pipeline, or continuous batching over a paged KV cache.

Times are the package's own: time to first token, and the mean time of an output token after the first.
"""
import importlib.metadata
import time

from . import in_process, prompt_ids

VOCABULARY = 30000  # ids below are tokens of every model here
CACHE_GB = 4  # of continuous batching: room for all streams, so that no cache grows while the clock runs


class OpenVino:
    def __init__(self, a, batching):
        self.a, self.batching = a, batching
        self.version = importlib.metadata.version("openvino-genai")

    def load(self):
        import numpy
        import openvino
        import openvino_genai
        self.np, self.ov, self.genai = numpy, openvino, openvino_genai
        properties = {"INFERENCE_NUM_THREADS": self.a.threads, "ATTENTION_BACKEND": "PA" if self.batching else "SDPA"}
        if self.batching:
            properties["scheduler_config"] = scheduler = openvino_genai.SchedulerConfig()
            scheduler.cache_size = CACHE_GB
            scheduler.max_num_batched_tokens = 4096
            scheduler.enable_prefix_caching = False  # a prompt comes twice here, and is to be computed twice
        self.pipe = openvino_genai.LLMPipeline(str(self.a.model), "CPU", **properties)

    def generate(self, count, prompt, tokens):
        ids = self.np.array(prompt_ids(count * prompt, VOCABULARY), self.np.int64).reshape(count, prompt)
        inputs = self.genai.TokenizedInputs(self.ov.Tensor(ids), self.ov.Tensor(self.np.ones_like(ids)))
        return self.pipe.generate(inputs, max_new_tokens=tokens, ignore_eos=True).perf_metrics

    def case(self, prompt, tokens):
        metrics = self.generate(1, prompt, tokens + 1)
        return metrics.get_ttft().mean, metrics.get_tpot().mean, {}

    def stream(self, count, prompt, tokens):
        begin = time.perf_counter()
        self.generate(count, prompt, tokens)
        return 1000 * (time.perf_counter() - begin)


def measure(a, batching=False):
    return in_process(a, OpenVino(a, batching))


def measure_batching(a):
    return measure(a, batching=True)
