"""What the tests of `situ transcribe` share: tiny speech models, recordings, and the comparison with their oracle."""
import json
import os
from concurrent.futures import ThreadPoolExecutor

import tiny_speech as tiny
from cli_case import CliTest, Run
from speech_oracle import Oracle
from tiny_speech import RATE

SEEDS = 3, 4            # of weights: windows of every kind, some of them doubtful
MARGIN = 1e-5           # of every decision that the oracle takes
CERTAIN = 1e-4          # a temperature at which the most probable token is drawn
FIELDS = ["audio", "duration_s", "samples_16k", "language", "language_probability", "text", "segments", "output_ids", "load_ms", "features_ms", "encode_ms",
          "decode_ms_per_token", "peak_rss_mib", "bytes_copied_per_token"]
SEGMENT_FIELDS = ["start", "end", "text", "tokens", "avg_logprob", "compression_ratio", "no_speech_prob", "temperature"]


class SpeechCase(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.pool = ThreadPoolExecutor(os.cpu_count())
        cls.weights = {seed: tiny.make_weights(seed) for seed in SEEDS}
        cls.models = {seed: tiny.write_folder(cls.folder / f"model{seed}", w) for seed, w in cls.weights.items()}
        cls.model = cls.models[SEEDS[0]]
        cls.tones = cls.folder / "tones.wav"
        cls.samples = tiny.write_wav(cls.tones, tiny.tones(4.3, 1))

    def wav(self, name, samples, **options):
        """A file, and the samples that it holds."""
        return self.folder / name, tiny.write_wav(self.folder / name, samples, **options)

    def bursts(self, name, lengths, pause=1.0):
        """A file of tones of so many seconds each, in quiet noise."""
        samples = tiny.noise(sum(lengths) + pause * (len(lengths) + 1), 0.001)
        at = pause
        for i, length in enumerate(lengths):
            samples[int(at * RATE):int(at * RATE) + int(length * RATE)] += tiny.tones(length, i)[:int(length * RATE)]
            at += length + pause
        return self.wav(name, samples)

    def run_all(self, *options, code=0, model=None, stdin=None):
        """The objects that --json prints, one for each file."""
        threads = () if "--threads" in options else ("--threads", 1)
        run = Run("transcribe", model or self.model, "--json", *threads, *options, stdin=stdin)
        self.assertEqual((run.code, run.stopped), (code, ""), run)
        return [json.loads(line) for line in run.out.splitlines()]

    def one(self, *options, **more):
        found, = self.run_all(*options, **more)
        return found

    def equal(self, got, want):
        """The command's object and the oracle's."""
        self.assertEqual([s["tokens"] for s in got["segments"]], [s["tokens"] for s in want["segments"]])
        for name in ("language", "text", "output_ids"):
            self.assertEqual(got[name], want[name], name)
        self.assertAlmostEqual(got["language_probability"], want["language_probability"], places=4)
        for a, b in zip(got["segments"], want["segments"]):
            self.assertEqual((a["text"], a["temperature"]), (b["text"], b["temperature"]))
            for name in ("start", "end", "avg_logprob", "compression_ratio", "no_speech_prob"):
                self.assertAlmostEqual(a[name], b[name], places=4, msg=name)

    def check(self, o, *options, seed=SEEDS[0], file=None, samples=None, model=None):
        """In place and naive give what the oracle gives; in place without a copied byte. Returns the oracle, for its windows."""
        oracle = Oracle(self.weights[seed])
        want = oracle.transcribe(self.samples if samples is None else samples, o)
        self.assertGreater(oracle.margin, MARGIN, "the answer is not clear")
        temperature = ",".join(map(str, o.temperatures))
        asked = [(file or self.tones, "--temperature", temperature, *options, *naive) for naive in ((), ("--naive",))]
        placed, naive = self.pool.map(lambda a: self.one(*a, model=model or self.models[seed]), asked)
        self.equal(placed, want)
        self.equal(naive, want)
        self.assertEqual(placed["bytes_copied_per_token"], 0)
        if oracle.windows:
            self.assertGreater(naive["bytes_copied_per_token"], 0)
        oracle.answer = want
        return oracle
