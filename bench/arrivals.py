#!/usr/bin/env python3
"""Latencies under arrivals: Situ beside OpenVINO GenAI's continuous batching, at the same times.

usage: arrivals.py MODEL GGUF [options]         MODEL: a folder; GGUF: the same weights (bench/models.py makes both)

Requests with prompts of --prompt tokens and answers of --answer tokens, drawn alike for both as `situ bench` draws them. OpenVINO first
answers all of them with --streams in flight: requests a second are its capacity. Then they arrive at --share of that, as a Poisson process,
at OpenVINO and at `situ bench --rate`. Everything runs once before it is timed. The result goes to bench/results/MACHINE/arrivals.json, a table to
standard output: percentiles of the time from arrival to the first token, and of the time between tokens of a request. Needs the package
openvino-genai (bench/requirements.txt). Run it while the machine has nothing else to do.
"""
import argparse
import importlib.metadata
import math
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import machine  # noqa: E402
import tables  # noqa: E402
from engines import prompt_ids  # noqa: E402
from engines.openvino import CACHE_GB, VOCABULARY  # noqa: E402
from engines.situ import situ  # noqa: E402

SHARES = (50, 95, 99)


class Random64:
    """std::mt19937_64 with seed 0, by which `situ bench` draws."""

    N, M, MASK = 312, 156, (1 << 64) - 1

    def __init__(self):
        self.state, self.next = [0], self.N
        for i in range(1, self.N):
            last = self.state[-1]
            self.state.append((6364136223846793005 * (last ^ last >> 62) + i) & self.MASK)

    def __call__(self):
        if self.next == self.N:
            for i in range(self.N):
                bits = self.state[i] & self.MASK << 31 | self.state[(i + 1) % self.N] & (1 << 31) - 1
                self.state[i] = self.state[(i + self.M) % self.N] ^ bits >> 1 ^ (0xB5026F5AA96619E9 if bits & 1 else 0)
            self.next = 0
        x = self.state[self.next]
        self.next += 1
        x ^= x >> 29 & 0x5555555555555555
        x ^= x << 17 & 0x71D67FFFEDA60000
        x ^= x << 37 & 0xFFF7EEE000000000
        return x ^ x >> 43


def draw(count, prompt, answer, rate):
    """[(tokens of the prompt, of the answer, seconds until it arrives)] as `ask` in src/cli/bench_streams.cc draws them. No rate: 0 seconds."""
    random, at, asked = Random64(), 0.0, []
    for _ in range(count):
        lengths = [first + random() % (last - first + 1) for first, last in (prompt, answer)]
        chance = (random() >> 11) * 2.0**-53
        asked.append((*lengths, at))
        if rate:
            at -= math.log1p(-chance) / rate
    return asked


class OpenVino:
    def __init__(self, a):
        import numpy
        import openvino
        import openvino_genai
        self.np, self.ov, self.genai, self.streams = numpy, openvino, openvino_genai, a.streams
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.cache_size = CACHE_GB
        scheduler.enable_prefix_caching = False  # every prompt is another one
        if a.batched_tokens:
            scheduler.max_num_batched_tokens = a.batched_tokens
        self.pipe = openvino_genai.ContinuousBatchingPipeline(a.gguf, scheduler, "CPU", {"INFERENCE_NUM_THREADS": a.threads})

    def run(self, asked):
        """(seconds, ms to first tokens, ms between tokens)"""
        ids = prompt_ids(sum(prompt for prompt, _, _ in asked), VOCABULARY)
        prompts = []
        for prompt, _, _ in asked:
            prompts.append(self.ov.Tensor(self.np.array([ids[:prompt]], self.np.int64)))
            ids = ids[prompt:]
        running, first, between, following = {}, [], [], 0
        start = time.perf_counter()
        while following < len(asked) or running:
            while following < len(asked) and len(running) < self.streams and time.perf_counter() - start >= asked[following][2]:
                config = self.genai.GenerationConfig(max_new_tokens=asked[following][1], ignore_eos=True, do_sample=False)
                # It is asked for when it arrives, though this thread may come to it later.
                running[following] = [self.pipe.add_request(following, prompts[following], config), start + asked[following][2], 0]
                following += 1
            if not running:
                time.sleep(max(0.0, start + asked[following][2] - time.perf_counter()))
                continue
            self.pipe.step()
            now = time.perf_counter()
            for number, (handle, last, tokens) in list(running.items()):
                if not handle.can_read():
                    continue
                for output in handle.read().values():
                    for _ in output.generated_ids:
                        (between if tokens else first).append(1000 * (now - last))
                        last, tokens = now, tokens + 1
                running[number][1:] = last, tokens
                if tokens >= asked[number][1]:
                    del running[number]
        return time.perf_counter() - start, first, between


def measured_openvino(a):
    """Requests a second at --share of its capacity, and its figures at that rate."""
    engine = OpenVino(a)
    rate = a.rate
    if not rate:
        asked = draw(a.requests, a.prompt, a.answer, None)
        engine.run(asked)
        rate = a.share * a.requests / engine.run(asked)[0]
    seconds, first, between = engine.run(draw(a.requests, a.prompt, a.answer, rate))
    return rate, {"version": importlib.metadata.version("openvino-genai"), "seconds": seconds, "ttft_ms": tables.percentiles(first, SHARES), "itl_ms": tables.percentiles(between, SHARES)}


def measured_situ(a, rate):
    text = ["-".join(map(str, r)) for r in (a.prompt, a.answer)]
    row = situ("bench", a.model, "--streams", a.streams, "--requests", a.requests, "--rate", rate, "--prompt", text[0], "--answer", text[1], "--reps", 1,
               "--threads", a.threads, "--json")["rows"][0]
    return {"seconds": row["ms_mean"] / 1000, **{name: row[name] for name in ("ttft_ms", "itl_ms", "steps", "preemptions", "bytes_copied_per_token")}}


def tokens(text):
    first, last = map(int, text.split("-"))
    return first, last


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("gguf")
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--streams", type=int, default=64, help="most in flight")
    parser.add_argument("--prompt", type=tokens, default=(32, 1024), metavar="A-B")
    parser.add_argument("--answer", type=tokens, default=(16, 256), metavar="A-B")
    parser.add_argument("--share", type=float, default=0.7, help="of OpenVINO's capacity")
    parser.add_argument("--rate", type=float, help="requests a second, instead")
    parser.add_argument("--batched-tokens", type=int, help="of a step of OpenVINO; else its own choice")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    a = parser.parse_args()
    rate, openvino = measured_openvino(a)
    report = {"machine": machine.name(), "date": time.strftime("%Y-%m-%d"), "threads": a.threads, "model": Path(a.model).resolve().name, "requests_per_s": rate,
              "requests": a.requests, "prompt": a.prompt, "answer": a.answer, "share": a.share, "engines": {"openvino-cb": openvino, "situ": measured_situ(a, rate)}}
    tables.write_results(a.results, "arrivals", report)
    print("\n".join(tables.arrival_lines(report)))


if __name__ == "__main__":
    main()
