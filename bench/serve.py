#!/usr/bin/env python3
"""Throughput and latencies of servers under load: serve.py MODEL [--llama-server PROGRAM --gguf FILE] [options]

One asyncio client on the same CPUs asks /v1/completions for streams: unique prompts, greedy, without an end token, lengths mixed alike for
every server. In a closed loop (--clients 1,8,32,64: each asks again as soon as it is answered), and with arrivals at a rate (--rate requests a
second; 0: 70% of what the last closed loop of llama-server gave). Prints a JSON object a run: tokens a second, percentiles of the time to the
first token and of the time between tokens in ms, CPU seconds of client, server and the server's thread of HTTP. All of them go to
bench/results/MACHINE/serve.json, a table to standard output in the end. Run it while the machine has nothing else to do.
"""

import argparse
import asyncio
import json
import os
import random
import resource
import socket
import subprocess
import sys
import time
from pathlib import Path

import machine
import tables

RESULTS = Path(__file__).parent / "results"
WORDS = "the boat harbour tide grey cat slept on an old wall and waited for rain while somebody counted waves again".split()
TICKS = os.sysconf("SC_CLK_TCK")


def lengths(number):
    """(words of the prompt, tokens of the answer) of a request: the same for every server."""
    draw = random.Random(number)
    return draw.choice([20, 60, 60, 200, 500]), draw.choice([16, 64, 64, 128, 256])


def prompt(number, words):
    draw = random.Random(f"prompt {number}")
    return f"{number} " + " ".join(draw.choice(WORDS) for _ in range(words))


class Figures:
    def __init__(self):
        self.tokens, self.requests, self.first, self.between = 0, 0, [], []


async def ask(port, number, figures):
    words, count = lengths(number)
    body = json.dumps({"prompt": prompt(number, words), "max_tokens": count, "temperature": 0, "ignore_eos": True, "stream": True}).encode()
    begun = last = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    status = await reader.readline()
    if b" 200 " not in status:
        raise RuntimeError(f"{status!r}: {(await reader.read())[-300:]!r}")
    tokens = 0
    while line := await reader.readline():
        if not line.startswith(b"data: {"):
            continue
        choices = json.loads(line[6:]).get("choices")
        if not choices or choices[0].get("finish_reason") is not None and not choices[0].get("text"):
            continue
        now = time.monotonic()
        (figures.between if tokens else figures.first).append(now - (last if tokens else begun))
        last = now
        tokens += 1
    writer.close()
    figures.tokens += count  # an event may join tokens of one character
    figures.requests += 1


async def closed_loop(port, clients, seconds, numbers):
    figures, end = Figures(), time.monotonic() + seconds

    async def client():
        while time.monotonic() < end:
            await ask(port, next(numbers), figures)

    await asyncio.gather(*(client() for _ in range(clients)))
    return figures


async def arrivals(port, rate, seconds, numbers):
    figures, tasks, draw = Figures(), [], random.Random(1)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        tasks.append(asyncio.create_task(ask(port, next(numbers), figures)))
        await asyncio.sleep(draw.expovariate(rate))
    await asyncio.gather(*tasks)
    return figures


def cpu_seconds(stat):
    fields = Path(stat).read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def cpu_of(pid):
    """Of the process, and of its thread of HTTP (0: it has none of that name)."""
    http = 0.0
    for task in Path(f"/proc/{pid}/task").iterdir():
        if "http" in (task / "comm").read_text():
            http += cpu_seconds(task / "stat")
    return cpu_seconds(f"/proc/{pid}/stat"), http


def in_ms(seconds):
    return tables.percentiles((1000 * s for s in seconds), (50, 90, 99))


def measure(name, pid, what, load):
    before, mine, start = cpu_of(pid), resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    figures = asyncio.run(load())
    took, after, now = time.monotonic() - start, cpu_of(pid), resource.getrusage(resource.RUSAGE_SELF)
    row = {"server": name, **what, "requests": figures.requests, "seconds": round(took, 1), "tokens_per_second": round(figures.tokens / took, 1), "requests_per_second": round(figures.requests / took, 3),
           "first_ms": in_ms(figures.first), "between_ms": in_ms(figures.between),
           "cpu_s": {"client": round(now.ru_utime + now.ru_stime - mine.ru_utime - mine.ru_stime, 2), "server": round(after[0] - before[0], 2), "http": round(after[1] - before[1], 2)}}
    print(json.dumps(row), flush=True)
    return row


class Running:
    """A server until the block ends."""

    def __init__(self, command, port):
        self.port = port
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def __enter__(self):
        end = time.monotonic() + 300
        while True:
            try:
                with socket.create_connection(("127.0.0.1", self.port), 1) as s:
                    s.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                    if b" 200 " in s.recv(100):
                        return self
            except OSError:
                pass
            if self.process.poll() is not None or time.monotonic() > end:
                sys.exit(f"{self.process.args[0]} does not answer")
            time.sleep(0.1)

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a folder for situ")
    parser.add_argument("--situ", default="build/situ")
    parser.add_argument("--llama-server", help="the program of llama.cpp")
    parser.add_argument("--gguf", help="the same model for it")
    parser.add_argument("--clients", default="1,8,32,64")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--rate", type=float, help="of arrivals; 0: 70%% of llama-server's requests a second")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--note", help="a sentence for the table")
    parser.add_argument("--results", type=Path, default=RESULTS)
    a = parser.parse_args()
    report = {"machine": machine.name(), "date": time.strftime("%Y-%m-%d"), "threads": a.threads, "model": Path(a.model).resolve().name, "seconds": a.seconds, "rows": []}
    clients = [int(n) for n in a.clients.split(",")]
    port, most = free_port(), max(clients)
    servers = {"situ": [a.situ, "serve", a.model, "--port", port, "--threads", a.threads, "--max-running", most]}
    if a.llama_server:
        servers = {"llama-server": [a.llama_server, "-m", a.gguf, "--port", port, "-t", a.threads, "-np", most, "-c", 1024 * most, "--no-webui"], **servers}
    rate = a.rate
    for name, command in servers.items():
        numbers = iter(range(1, 1 << 30))
        with Running([str(c) for c in command], port) as server:
            pid = server.process.pid
            for count in clients:
                row = measure(name, pid, {"clients": count}, lambda count=count: closed_loop(port, count, a.seconds, numbers))
                report["rows"].append(row)
            if rate == 0 and name == "llama-server":
                rate = 0.7 * row["requests_per_second"]
            if rate:
                report["rows"].append(measure(name, pid, {"rate": round(rate, 3)}, lambda: arrivals(port, rate, a.seconds, numbers)))
    if a.note:
        report["note"] = a.note
    tables.write_results(a.results, "serve", report)
    print("\n".join(tables.serve_lines(report)))


if __name__ == "__main__":
    main()
