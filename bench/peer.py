"""One measurement of one engine on one model, printed as JSON: {"prefill_tps", "decode_tps", "load_s", "rss_mib"}.

usage: peer.py ENGINE MODEL --prompt P --tokens N [--threads T]
ENGINE: situ         MODEL is a folder; needs build/situ
        ort-naive    ONNX Runtime, present handed back as past
        ort-shared   ONNX Runtime, IO binding on one buffer that is past and present (GroupQueryAttention exports)
        ort-genai    onnxruntime-genai
        openvino     openvino-genai on a GGUF file
        llama.cpp    llama-cpp-python on a GGUF file
"""
import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SITU = Path(__file__).parent.parent / "build" / "situ"
WARM_UP = 4


def prompt_ids(count, vocabulary):
    ids, x = [], 1
    for _ in range(count):
        x = (x * 6364136223846793005 + 1442695040888963407) % 2**64
        ids.append((x >> 33) % vocabulary)
    return ids


def genai_config(model):
    return json.loads((Path(model) / "genai_config.json").read_text())["model"]


def timed(a, load, start, step):
    """start(ids) feeds a prompt, step() one more token; a short run first, so that nothing is done for the first time."""
    begin = time.perf_counter()
    load()
    loaded = time.perf_counter() - begin
    for prompt, tokens in ((WARM_UP, WARM_UP), (a.prompt, a.tokens)):
        begin = time.perf_counter()
        start(prompt)
        fed = time.perf_counter()
        for _ in range(tokens):
            step()
        end = time.perf_counter()
    return {"prefill_tps": a.prompt / (fed - begin), "decode_tps": a.tokens / (end - fed), "load_s": loaded}


def situ(a):
    out = subprocess.run([SITU, "bench", a.model, "-p", str(a.prompt), "-n", str(a.tokens), "--reps", "1", "--threads", str(a.threads), "--json"],
                         check=True, capture_output=True, text=True).stdout
    row = json.loads(out)["rows"][0]["in-place"]
    run = subprocess.run([SITU, "run", a.model, "--prompt-ids", "1,2,3", "-n", "2", "--ignore-eos", "--json"], check=True, capture_output=True, text=True).stdout
    answer = json.loads(run)
    return {"prefill_tps": 1000 * a.prompt / row["prefill_ms_mean"], "decode_tps": row["decode_tokens_per_s_mean"], "load_s": answer["load_ms"] / 1000, "rss_mib": answer["peak_rss_mib"]}


class Ort:
    """A decoder session; subclasses say where past and present live."""

    def __init__(self, a):
        self.a = a

    def load(self):
        import numpy
        import onnxruntime
        self.np, self.ort = numpy, onnxruntime
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.a.threads
        options.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(str(self.model_file()), options, providers=["CPUExecutionProvider"])
        inputs = {i.name: i.shape for i in self.session.get_inputs()}
        self.inputs = set(inputs)
        # Exporters list pasts and presents in the same order; a cache is [batch, heads, past, size].
        self.past = [name for name in inputs if name.startswith("past")]
        self.present = [o.name for o in self.session.get_outputs() if o.name.startswith("present")]
        self.logits = self.session.get_outputs()[0].name
        self.vocabulary = self.session.get_outputs()[0].shape[-1]
        if (Path(self.a.model) / "genai_config.json").exists():  # its graphs may give the size of a head as a name
            decoder = genai_config(self.a.model)["decoder"]
            self.heads, self.size = decoder["num_key_value_heads"], decoder["head_size"]
        else:
            self.heads, self.size = inputs[self.past[0]][1], inputs[self.past[0]][3]

    def model_file(self):
        folder = Path(self.a.model)
        return folder / genai_config(folder)["decoder"]["filename"] if (folder / "genai_config.json").exists() else folder / "model.onnx"

    def feeds(self, ids):
        total = self.length + len(ids)
        feeds = {"input_ids": self.np.array([ids], self.np.int64), "attention_mask": self.np.ones((1, total), self.np.int64)}
        if "position_ids" in self.inputs:
            feeds["position_ids"] = self.np.arange(self.length, total, dtype=self.np.int64)[None]
        return feeds

    def cache(self, length):
        return self.np.zeros((1, self.heads, length, self.size), self.np.float32)

    def start(self, count):
        self.length = 0
        self.reset(count)
        self.run(prompt_ids(count, self.vocabulary))

    def step(self):
        self.run([self.next])


class OrtNaive(Ort):
    def reset(self, count):
        self.state = [self.cache(0) for _ in self.past]

    def run(self, ids):
        out = self.session.run([self.logits, *self.present], {**self.feeds(ids), **dict(zip(self.past, self.state))})
        self.length += len(ids)
        self.next, self.state = int(out[0][0, -1].argmax()), out[1:]


class OrtShared(Ort):
    def reset(self, count):
        self.state = [self.ort.OrtValue.ortvalue_from_numpy(self.cache(count + self.a.tokens + 1)) for _ in self.past]
        self.binding = self.session.io_binding()

    def run(self, ids):
        self.binding.clear_binding_inputs()
        self.binding.clear_binding_outputs()
        for name, array in self.feeds(ids).items():
            self.binding.bind_cpu_input(name, array)
        for past, present, value in zip(self.past, self.present, self.state):
            self.binding.bind_ortvalue_input(past, value)
            self.binding.bind_ortvalue_output(present, value)
        self.binding.bind_output(self.logits)
        self.session.run_with_iobinding(self.binding)
        self.length += len(ids)
        self.next = int(self.binding.get_outputs()[-1].numpy()[0, -1].argmax())


def ort(a, engine):
    e = engine(a)
    return timed(a, e.load, e.start, e.step)


def ort_genai(a):
    import numpy
    import onnxruntime_genai
    config = json.loads((Path(a.model) / "genai_config.json").read_text())
    config["model"]["decoder"].setdefault("session_options", {})["intra_op_num_threads"] = a.threads
    state = {}
    with tempfile.TemporaryDirectory() as folder:  # the same files under a configuration with the thread count
        for file in Path(a.model).iterdir():
            if file.name != "genai_config.json":
                (Path(folder) / file.name).symlink_to(file.resolve())
        (Path(folder) / "genai_config.json").write_text(json.dumps(config))

        def load():
            state["model"] = onnxruntime_genai.Model(folder)

        def start(count):
            parameters = onnxruntime_genai.GeneratorParams(state["model"])
            length = count + a.tokens + WARM_UP
            parameters.set_search_options(max_length=length, min_length=length, do_sample=False)
            state["generator"] = onnxruntime_genai.Generator(state["model"], parameters)
            state["generator"].append_tokens(numpy.array(prompt_ids(count, config["model"]["vocab_size"]), numpy.int32))
            state["generator"].generate_next_token()

        return timed(a, load, start, lambda: state["generator"].generate_next_token())


def openvino(a):
    import numpy
    import openvino
    import openvino_genai
    state = {}

    def load():
        state["pipe"] = openvino_genai.LLMPipeline(a.model, "CPU", {"INFERENCE_NUM_THREADS": a.threads})

    def generate(count, tokens):
        ids = openvino.Tensor(numpy.array([prompt_ids(count, 30000)], numpy.int64))
        inputs = openvino_genai.TokenizedInputs(ids, openvino.Tensor(numpy.ones((1, count), numpy.int64)))
        state["metrics"] = state["pipe"].generate(inputs, max_new_tokens=tokens + 1, ignore_eos=True).perf_metrics

    begin = time.perf_counter()
    load()
    loaded = time.perf_counter() - begin
    generate(WARM_UP, WARM_UP)
    generate(a.prompt, a.tokens)
    first, later = state["metrics"].get_ttft().mean, state["metrics"].get_tpot().mean  # ms
    return {"prefill_tps": 1000 * a.prompt / first, "decode_tps": 1000 / later, "load_s": loaded}


def llama_cpp(a):
    import llama_cpp
    state = {}

    def load():
        state["model"] = llama_cpp.Llama(a.model, n_ctx=a.prompt + a.tokens + 2 * WARM_UP, n_threads=a.threads, n_threads_batch=a.threads, verbose=False)

    def start(count):
        state["model"].reset()
        state["model"].eval(prompt_ids(count, state["model"].n_vocab()))

    return timed(a, load, start, lambda: state["model"].eval([state["model"].sample(temp=0)]))


ENGINES = {"situ": situ, "ort-naive": lambda a: ort(a, OrtNaive), "ort-shared": lambda a: ort(a, OrtShared), "ort-genai": ort_genai, "openvino": openvino,
           "llama.cpp": llama_cpp}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("model")
    parser.add_argument("--prompt", type=int, default=35)
    parser.add_argument("--tokens", type=int, default=120)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    try:
        result = ENGINES[arguments.engine](arguments)
    except subprocess.CalledProcessError as error:
        sys.exit(error.stderr.strip() or str(error))
    result.setdefault("rss_mib", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    print(json.dumps(result))
