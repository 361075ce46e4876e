"""One transcription by one peer, printed as JSON; each peer runs in an environment of its own (bench/run.sh speech).

usage: speech_peer.py ENGINE MODEL AUDIO [--beams N] [--threads T] [--batched N]
       speech_peer.py join OUT AUDIO...      one wav of 16 kHz, half a second of silence after each (faster-whisper's environment)
ENGINE: faster-whisper   MODEL is a folder of CTranslate2; computes in int8
        ort              MODEL is a folder of Optimum: ONNX Runtime in a Python loop, by the rules of openai/whisper for timestamps and windows
        ort-genai        MODEL is a folder of onnxruntime-genai
        whisper.cpp      MODEL is a GGML file (speech_ggml.py)

AUDIO is a wav of 16 kHz. Printed: version, load_ms, text, tokens, and of the file's windows features_ms, encode_ms (sums), windows,
decode_ms (of all tokens, with prompts), where the engine tells them. Temperature 0 without fallback, English, no text before.
"""
import argparse
import json
import re
import sys
import tempfile
import time
import wave
from pathlib import Path

RATE, WINDOW, HOP, FFT = 16000, 480000, 160, 400


def samples_of(path):
    import numpy as np
    with wave.open(str(path), "rb") as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (RATE, 1, 2), "a wav of 16 kHz, mono, 16 bits"
        return np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768


def ms_since(begin):
    return 1000 * (time.perf_counter() - begin)


def join(out, files):
    import numpy as np
    from faster_whisper import decode_audio
    parts = [part for file in files for part in (decode_audio(file, RATE), np.zeros(RATE // 2, np.float32))]
    with wave.open(out, "wb") as file:
        file.setnchannels(1), file.setsampwidth(2), file.setframerate(RATE)
        file.writeframes((np.clip(np.concatenate(parts), -1, 1) * 32767).astype("<i2").tobytes())


def faster_whisper(a):
    begin = time.perf_counter()
    import faster_whisper as fw
    model = fw.WhisperModel(a.model, device="cpu", compute_type="int8", cpu_threads=a.threads)
    spent = {"load_ms": ms_since(begin), "features_ms": 0, "encode_ms": 0, "decode_ms": 0, "windows": 0}

    def timed(of, name, key):
        plain = getattr(of, name)

        def call(*arguments, **options):
            start = time.perf_counter()
            result = plain(*arguments, **options)
            spent[key] += ms_since(start)
            spent["windows"] += key == "encode_ms"
            return result
        return call

    model.encode = timed(model, "encode", "encode_ms")
    model.generate_with_fallback = timed(model, "generate_with_fallback", "decode_ms")
    extractor = model.feature_extractor
    model.feature_extractor = type("Timed", (), {"__call__": staticmethod(timed(extractor, "__call__", "features_ms")), "__getattr__": lambda _, n: getattr(extractor, n)})()
    options = {"language": "en", "beam_size": a.beams, "temperature": 0, "condition_on_previous_text": False}
    if a.batched:
        segments, _ = fw.BatchedInferencePipeline(model).transcribe(a.audio, batch_size=a.batched, without_timestamps=False, **options)
    else:
        segments, _ = model.transcribe(a.audio, **options)
    segments = list(segments)
    if a.batched:
        del spent["decode_ms"]  # is called in another place
    return {"version": fw.__version__, **spent, "text": "".join(s.text for s in segments), "tokens": sum(len(s.tokens) for s in segments)}


class Features:
    """What WhisperFeatureExtractor of transformers computes, in NumPy."""

    def __init__(self, mels):
        import numpy as np
        self.np = np
        mel = lambda hz: np.where(hz < 1000, 3 * hz / 200, 15 + np.log(np.maximum(hz, 1e-9) / 1000) * 27 / np.log(6.4))
        hertz = lambda m: np.where(m < 15, 200 * m / 3, 1000 * np.exp((m - 15) * np.log(6.4) / 27))
        bins, edges = np.linspace(0, RATE / 2, FFT // 2 + 1), hertz(np.linspace(0, mel(np.float64(RATE / 2)), mels + 2))
        rising, falling = (bins - edges[:-2, None]) / np.diff(edges)[:-1, None], (edges[2:, None] - bins) / np.diff(edges)[1:, None]
        self.filters = np.float32(np.maximum(0, np.minimum(rising, falling)) * (2 / (edges[2:] - edges[:-2]))[:, None])
        self.hann = np.float32(0.5 - 0.5 * np.cos(2 * np.pi * np.arange(FFT) / FFT))

    def __call__(self, samples):
        np = self.np
        padded = np.pad(np.pad(samples, (0, WINDOW - len(samples))), FFT // 2, mode="reflect")
        frames = np.lib.stride_tricks.sliding_window_view(padded, FFT)[:WINDOW:HOP] * self.hann
        levels = np.log10(np.maximum(1e-10, self.filters @ (np.abs(np.fft.rfft(frames)) ** 2).T.astype(np.float32)))
        return ((np.maximum(levels, levels.max() - 8) + 4) / 4).astype(np.float32)[None]


class OrtLoop:
    """Optimum's encoder and merged decoder. Self-attention caches are bound from one step's outputs to the next one's inputs, those of
    cross-attention stay where the first step left them; with beams, chosen rows are gathered, as a loop around ONNX Runtime must."""

    def __init__(self, a):
        import numpy as np
        import onnxruntime as ort
        self.np, self.ort, self.a, folder = np, ort, a, Path(a.model)
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = a.threads, 3
        session = lambda pattern: ort.InferenceSession(str(next(folder.glob(pattern))), options, providers=["CPUExecutionProvider"])
        self.encoder, self.decoder = session("encoder_model*.onnx"), session("decoder_model_merged*.onnx")
        self.rules = json.loads((folder / "generation_config.json").read_text())
        self.end = self.rules["eos_token_id"]
        self.prompt = [self.rules["decoder_start_token_id"], self.rules["lang_to_id"]["<|en|>"], self.rules["task_to_id"]["transcribe"]]
        self.times = self.rules["no_timestamps_token_id"] + 1  # <|0.00|>, in steps of 0.02 s
        self.past = [i for i in self.decoder.get_inputs() if i.name.startswith("past")]
        self.outputs = [o.name for o in self.decoder.get_outputs()]

    def step(self, ids, states, past):
        """Logits [rows, vocabulary] after the last ids; `states` {input: OrtValue} are renewed."""
        ort, np, rows = self.ort, self.np, len(ids)
        binding = self.decoder.io_binding()
        binding.bind_cpu_input("input_ids", np.asarray(ids, np.int64))
        binding.bind_cpu_input("use_cache_branch", np.array([past > 0]))
        binding.bind_ortvalue_input("encoder_hidden_states", self.hidden if rows == 1 else self.hidden_rows)
        for i in self.past:
            binding.bind_ortvalue_input(i.name, states.get(i.name) or ort.OrtValue.ortvalue_from_numpy(np.zeros((rows, i.shape[1], 0, i.shape[3]), np.float32)))
        for name in self.outputs:
            binding.bind_output(name, "cpu")
        self.decoder.run_with_iobinding(binding)
        found = dict(zip(self.outputs, binding.get_outputs()))
        for i in self.past:
            if past == 0 or ".encoder." not in i.name:
                states[i.name] = found[i.name.replace("past_key_values", "present")]
        return found["logits"].numpy()[:, -1]

    def scores(self, logits, texts):
        """Log-probabilities under the rules, after the ids of each row."""
        np, times = self.np, self.times
        x = logits.astype(np.float64)
        x[:, self.rules["suppress_tokens"] + [times - 1]] = -np.inf
        for row, ids in zip(x, texts):
            said = [t for t in ids if t >= times]
            last, before = (len(ids) > n and ids[-1 - n] >= times for n in (0, 1))
            if not ids:  # a time of at most one second
                row[self.rules["begin_suppress_tokens"]] = row[:times] = row[times + self.rules["max_initial_timestamp_index"] + 1:] = -np.inf
            elif last and (before or len(ids) == 1):
                row[times:] = -np.inf
            elif last:
                row[:self.end] = -np.inf
            if said:  # none goes back; a pair may be of one time
                row[times:said[-1] + (not last or before)] = -np.inf
            top = row.max()
            if np.log(np.exp(row[times:] - top).sum() + 1e-300) + top > row[:times].max():
                row[:times] = -np.inf
        x -= x.max(axis=1, keepdims=True)
        return x - np.log(np.exp(x).sum(axis=1, keepdims=True))

    def greedy(self):
        states, ids, fed = {}, [], [self.prompt]
        while len(ids) < 224:
            best = int(self.scores(self.step(fed, states, len(ids)), [ids])[0].argmax())
            if best == self.end:
                break
            ids.append(best)
            fed = [[best]]
        return ids

    def search(self, beams):
        np, states, done = self.np, {}, []
        x = self.scores(self.step([self.prompt], states, 0), [[]])
        states = {name: self.ort.OrtValue.ortvalue_from_numpy(np.repeat(v.numpy(), beams, axis=0)) for name, v in states.items()}
        running, x = [(0.0, [])], x[:1]
        for count in range(1, 225):
            total = np.array([score for score, _ in running])[:, None] + x
            best = np.argsort(-total, axis=None)[:2 * beams]
            found = [(float(total.flat[k]), int(k) // x.shape[1], int(k) % x.shape[1]) for k in best]
            done += [(score / count, running[row][1]) for score, row, token in found[:beams] if token == self.end]
            found = [f for f in found if f[2] != self.end][:beams]
            if len(done) >= beams:
                break
            rows, running = [row for _, row, _ in found], [(score, running[row][1] + [token]) for score, row, token in found]
            if count > 1 and rows != list(range(beams)):
                states = {n: v if ".encoder." in n else self.ort.OrtValue.ortvalue_from_numpy(v.numpy()[rows]) for n, v in states.items()}
            x = self.scores(self.step([[ids[-1]] for _, ids in running], states, count), [ids for _, ids in running])
        return max(done or [(s, ids) for s, ids in running])[1]

    def kept(self, ids):
        """The ids up to the last pair of times, and the samples before it: there the next window begins. All of both, where the text
        ends with a single time, or has no pair."""
        is_time = [i >= self.times for i in ids]
        pairs = [k for k in range(1, len(ids)) if is_time[k - 1] and is_time[k]]
        if not pairs or is_time[-2:] == [False, True]:
            return ids, WINDOW
        return ids[:pairs[-1]], max(1, ids[pairs[-1] - 1] - self.times) * RATE // 50

    def window(self, features):
        """(ids, ms of the encoder, ms of the decoder)"""
        begin = time.perf_counter()
        hidden = self.encoder.run(None, {self.encoder.get_inputs()[0].name: features})[0]
        encode = ms_since(begin)
        begin = time.perf_counter()
        self.hidden = self.ort.OrtValue.ortvalue_from_numpy(hidden)
        if self.a.beams > 1:
            self.hidden_rows = self.ort.OrtValue.ortvalue_from_numpy(self.np.repeat(hidden, self.a.beams, axis=0))
        ids = self.greedy() if self.a.beams == 1 else self.search(self.a.beams)
        return ids, encode, ms_since(begin)


def ort(a):
    begin = time.perf_counter()
    import onnxruntime
    from tokenizers import Tokenizer
    loop, tokenizer, features = OrtLoop(a), Tokenizer.from_file(str(Path(a.model) / "tokenizer.json")), Features(80)
    r = {"version": onnxruntime.__version__, "load_ms": ms_since(begin), "features_ms": 0, "encode_ms": 0, "decode_ms": 0, "windows": 0, "text": "", "tokens": 0}
    samples, at = samples_of(a.audio), 0
    while at + HOP <= len(samples):
        begin = time.perf_counter()
        mel = features(samples[at:at + WINDOW])
        r["features_ms"] += ms_since(begin)
        ids, encode, decode = loop.window(mel)
        ids, moved = loop.kept(ids)
        at += moved
        r = {**r, "encode_ms": r["encode_ms"] + encode, "decode_ms": r["decode_ms"] + decode, "windows": r["windows"] + 1,
             "text": r["text"] + tokenizer.decode([i for i in ids if i < loop.end]), "tokens": r["tokens"] + len(ids)}
    return r


def ort_genai(a):
    import onnxruntime_genai as og
    if not (Path(a.model) / "genai_config.json").exists():
        sys.exit("needs a folder with genai_config.json whose encoder writes the cross-attention cache, which Optimum's does not")
    begin = time.perf_counter()
    model = og.Model(a.model)
    processor = model.create_multimodal_processor()
    r = {"version": og.__version__, "load_ms": ms_since(begin), "features_ms": 0, "windows": 0, "decode_ms": 0, "text": "", "tokens": 0}
    samples = samples_of(a.audio)
    with tempfile.NamedTemporaryFile(suffix=".wav") as part:
        for at in range(0, len(samples), WINDOW):
            with wave.open(part.name, "wb") as file:
                file.setnchannels(1), file.setsampwidth(2), file.setframerate(RATE)
                file.writeframes((samples[at:at + WINDOW] * 32767).astype("<i2").tobytes())
            begin = time.perf_counter()
            inputs = processor(["<|startoftranscript|><|en|><|transcribe|><|notimestamps|>"], audios=og.Audios.open(part.name))
            r["features_ms"] += ms_since(begin)
            begin = time.perf_counter()
            parameters = og.GeneratorParams(model)
            parameters.set_search_options(do_sample=False, num_beams=a.beams, num_return_sequences=1, max_length=228, batch_size=1)
            generator = og.Generator(model, parameters)
            generator.set_inputs(inputs)
            while not generator.is_done():
                generator.generate_next_token()
            ids = generator.get_sequence(0)[4:]
            r["decode_ms"] += ms_since(begin)  # with the encoder
            r["text"], r["tokens"], r["windows"] = r["text"] + processor.decode(ids), r["tokens"] + len(ids), r["windows"] + 1
    return r


def whisper_cpp(a):
    """whisper.cpp prints its timings to stderr, of a whole process: here, of a child with the same arguments."""
    import subprocess
    if not a.child:
        run = subprocess.run([sys.executable, "-B", *sys.argv, "--child"], capture_output=True, text=True)
        if run.returncode:
            sys.exit((run.stderr.strip().splitlines() or ["failed"])[-1])
        r = json.loads(run.stdout.splitlines()[-1])
        spent = {name: (float(ms), int(runs or 1)) for name, ms, runs in re.findall(r"(\w+) time =\s*([\d.]+) ms(?: /\s*(\d+) runs)?", run.stderr)}
        if "encode" in spent:
            r.update(features_ms=spent["mel"][0], encode_ms=spent["encode"][0], windows=spent["encode"][1], decode_ms=sum(spent[k][0] for k in ("decode", "batchd", "prompt", "sample") if k in spent),
                     tokens=spent["decode"][1] if a.beams == 1 else spent["batchd"][1] // a.beams)
        return r
    import importlib.metadata
    from pywhispercpp.model import Model
    begin = time.perf_counter()
    search = {"params_sampling_strategy": 1} if a.beams > 1 else {}
    model = Model(a.model, redirect_whispercpp_logs_to=False, n_threads=a.threads, **search)
    load = ms_since(begin)
    more = {"beam_search": {"beam_size": a.beams, "patience": -1.0}} if a.beams > 1 else {}
    segments = model.transcribe(samples_of(a.audio), language="en", temperature=0.0, temperature_inc=0.0, no_context=True, **more)
    model.print_timings()
    text = "".join(" " + s.text.strip() for s in segments)
    return {"version": importlib.metadata.version("pywhispercpp"), "load_ms": load, "text": text, "tokens": None}


def main():
    if sys.argv[1:2] == ["join"]:
        join(sys.argv[2], sys.argv[3:])
        return
    engines = {"faster-whisper": faster_whisper, "ort": ort, "ort-genai": ort_genai, "whisper.cpp": whisper_cpp}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=engines)
    parser.add_argument("model")
    parser.add_argument("audio")
    parser.add_argument("--beams", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batched", type=int, default=0)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    a = parser.parse_args()
    print(json.dumps(engines[a.engine](a)))


if __name__ == "__main__":
    main()
