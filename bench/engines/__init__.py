"""The engines that are measured, one module each, all by the same rules:

- the figure of a prompt is the time from its first token's arrival to its last token's logits, or to the choice that
  follows, where an engine does both in one; the figure of a token is the total time of the tokens / tokens;
- each case runs once before it is timed, as long and as wide as it is then timed;
- buffers for prompts, logits and KV caches exist before the clock starts.

A module has `measure(a)`, where `a` has model (folder or file), threads, cases [(prompt, tokens)], streams [count],
stream_prompt and stream_tokens. The result is {"version", "load_s", "rss_mib", "cases": [{"prompt", "tokens",
"prefill_ms", "decode_ms"}], "streams": [{"streams", "ms"}]}: decode_ms of a token, rss_mib at most during the first
case, ms from the first prompt to the last answer's end. An impossible count has {"streams", "reason"}.
"""
import resource
import time


def prompt_ids(count, vocabulary):
    """The ids that `situ bench` takes: repeatable, below the vocabulary."""
    ids, x = [], 1
    for _ in range(count):
        x = (x * 6364136223846793005 + 1442695040888963407) % 2**64
        ids.append((x >> 33) % vocabulary)
    return ids


def peak_mib(who=resource.RUSAGE_SELF):
    return resource.getrusage(who).ru_maxrss / 1024


def in_process(a, engine):
    """Measures an engine that is a Python package. `engine` has version, load(), case(prompt, tokens), which gives the
    two times of a case in ms and what else is to be reported, and stream(count, prompt, tokens), which gives ms or a
    text: why not."""
    begin = time.perf_counter()
    engine.load()
    report = {"version": engine.version, "load_s": time.perf_counter() - begin, "cases": [], "streams": []}
    for prompt, tokens in a.cases:
        engine.case(prompt, tokens)
        prefill_ms, decode_ms, more = engine.case(prompt, tokens)
        report["cases"].append({"prompt": prompt, "tokens": tokens, "prefill_ms": prefill_ms, "decode_ms": decode_ms, **more})
        report.setdefault("rss_mib", peak_mib())
    for count in a.streams:
        ms = engine.stream(count, a.stream_prompt, a.stream_tokens)
        if not isinstance(ms, str):
            ms = engine.stream(count, a.stream_prompt, a.stream_tokens)
        report["streams"].append({"streams": count, "reason" if isinstance(ms, str) else "ms": ms})
    return report
