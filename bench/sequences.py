"""What operations on sequences cost: bytes copied, by the ledger, and time. Needs the package situ (`pip install .`) and numpy.

usage: sequences.py MODEL [--tokens 2048] [--reps 9] [--threads T] [--long N --window W]

With --long, N tokens are generated with a window of W, and the time of a token and the memory are printed on the way.
"""
import argparse
import itertools
import statistics
import time

import situ


def timed(model, reps, work, before=None, after=None):
    """Median milliseconds of work(what before() gives), and the bytes that one call copies."""
    times, copied = [], 0
    for _ in range(reps):
        state = before() if before else None
        model.reset_ledger()
        start = time.perf_counter()
        result = work(state)
        times.append((time.perf_counter() - start) * 1e3)
        copied = max(copied, model.ledger.copied)
        if after:
            after(result)
    return statistics.median(times), copied


def table(arguments):
    n = arguments.tokens
    model = situ.load(arguments.model, threads=arguments.threads, context_length=n + 256)
    prompts = [[(7 * i + 13 * k) % 1000 + 5 for i in range(n)] for k in range(4)]
    sessions = [model.session() for _ in prompts]
    rows = []

    def row(name, *work):
        rows.append((name, *timed(model, arguments.reps, *work)))

    start = time.perf_counter()
    sessions[0].step(prompts[0])
    rows.append((f"prompt of {n} tokens", (time.perf_counter() - start) * 1e3, model.ledger.copied))
    for s, p in zip(sessions[1:], prompts[1:]):
        s.step(p)
    first = sessions[0]
    row("one more token", lambda _: first.step([5]), None, lambda _: first.rewind(n))
    row("rewind to the middle", lambda s: s.rewind(n // 2), first.fork)
    row("fork", lambda _: first.fork())
    row("reorder of 4 beams", lambda old: [old[0].fork(), old[0].fork(), old[2].fork(), old[3].fork()], lambda: [first.fork() for _ in range(4)])

    def back(_):
        for s in sessions:
            s.rewind(n)

    row("token of 4 sequences that share nothing", lambda _: model.step([(s, [5]) for s in sessions]), None, back)
    row("token of 4 beams", lambda beams: model.step([(b, [5]) for b in beams]), lambda: [first.fork() for _ in range(4)])
    joins = prompts[3][:64]
    row("the same, and a prompt of 64 joins", lambda beams: model.step([(b, [5]) for b in beams] + [(model.session(), joins)]), lambda: [first.fork() for _ in range(4)])
    del sessions, first
    model.generate(prompts[0], max_new_tokens=1, prefix_cache=True)
    ends = itertools.count(100)  # another one each time: what was kept of the last would do for the same
    row(f"prompt whose first {n - 64} tokens are kept", lambda _: model.generate(prompts[0][: n - 64] + [next(ends)] * 64, max_new_tokens=1, prefix_cache=True))
    print(f"{arguments.model}, {model.facts.isa}, {model.facts.threads} threads, {model.facts.state_bytes_per_token} bytes of state a token")
    print(f"{'operation':45} {'ms':>10} {'copied':>8}")
    for name, ms, copied in rows:
        print(f"{name:45} {ms:10.3f} {copied:8d}")


def long(arguments):
    model = situ.load(arguments.model, threads=arguments.threads, window=arguments.window)
    session = model.session()
    logits = session.step([1, 2, 3])
    step = max(1, arguments.long // 10)
    model.reset_ledger()
    print(f"{'tokens':>8} {'ms a token':>11} {'RSS MiB':>8} {'copied':>7}")
    for begin in range(0, arguments.long, step):
        times = []
        for _ in range(min(step, arguments.long - begin)):
            start = time.perf_counter()
            logits = session.step([int(logits.argmax())])
            times.append((time.perf_counter() - start) * 1e3)
        with open("/proc/self/status") as status:
            resident = next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024
        print(f"{session.length:8d} {statistics.median(times):11.3f} {resident:8.0f} {model.ledger.copied:7d}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--reps", type=int, default=9)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--long", type=int, default=0)
    parser.add_argument("--window", type=int, default=512)
    arguments = parser.parse_args()
    long(arguments) if arguments.long else table(arguments)


if __name__ == "__main__":
    main()
