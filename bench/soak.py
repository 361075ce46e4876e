#!/usr/bin/env python3
"""Whether a server keeps anything of what it has answered: soak.py MODEL [--minutes 30 | --requests N] [--clients 32] [--slots 4096] [--situ build/situ]

Clients ask for streams and whole answers of all lengths; a third goes before it is answered, by a close or a reset. The state is so small that
requests and kept prompts fill it at once: what it grows by would hide what is lost. Once a minute, and at the end with nobody there, a line:
requests, resident MiB, descriptors, threads, slots in use. Ends with 1 where descriptors, threads or slots have become more, or the resident set
is more than 5% (of a small process 4 MiB) above that after the first tenth of the time.

With --requests N clients ask for so many answers to prompts of 1 to 24 tokens that nobody has asked before; the resident set must not be more than
5% above that after the first twentieth of them (20,000: 1,000).
"""

import argparse
import asyncio
import json
import os
import random
import socket
import struct
import sys
import time
import urllib.request
from pathlib import Path

from serve import WORDS, Running, free_port


async def ask(port, draw):
    chat = draw.random() < 0.5
    text = " ".join(draw.choice(WORDS) for _ in range(draw.choice([1, 10, 100, 400])))
    body = {"max_tokens": draw.choice([1, 16, 64, 200]), "ignore_eos": True, "stream": draw.random() < 0.7, "temperature": draw.choice([0, 1])}
    body |= {"messages": [{"role": "user", "content": text}]} if chat else {"prompt": text}
    data = json.dumps(body).encode()
    path = "/v1/chat/completions" if chat else "/v1/completions"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
        if draw.random() < 0.33:
            try:
                await asyncio.wait_for(reader.read(), draw.random() * 0.5)
            except TimeoutError:
                pass
            if draw.random() < 0.5:
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        else:
            answer = await reader.read()
            if b" 200 " not in answer[:20]:
                raise RuntimeError(answer[:300])
    finally:
        writer.close()


def unique_prompts(count):
    """Tokens of a prompt, 1 to 24 as long as there are so short ones left."""
    draw, seen = random.Random(1), set()
    while len(seen) < count:
        prompt = tuple(draw.randrange(3, 90) for _ in range(draw.randint(1, 24)))
        if prompt not in seen:
            seen.add(prompt)
            yield list(prompt), draw.randint(1, 8)


async def ask_short(port, prompt, tokens):
    body = json.dumps({"prompt": prompt, "max_tokens": tokens, "ignore_eos": True}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    answer = await reader.read()
    writer.close()
    if b" 200 " not in answer[:20]:
        raise RuntimeError(answer[:300])


def figures(pid, port):
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
    time.sleep(0.2)  # until that connection is closed
    used = sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(("situ_slots_used{", "situ_requests_running{")))
    resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
    return {"resident_mib": round(resident, 1), "descriptors": len(os.listdir(f"/proc/{pid}/fd")), "threads": len(os.listdir(f"/proc/{pid}/task")), "in_use": used}


async def soak_short(pid, port, a):
    rows, prompts = [], enumerate(unique_prompts(a.requests), 1)

    async def client():
        for number, (prompt, tokens) in prompts:
            await ask_short(port, prompt, tokens)
            if number % max(1, a.requests // 20) == 0:
                rows.append({"requests": number, **await asyncio.to_thread(figures, pid, port)})
                print(json.dumps(rows[-1]), flush=True)

    await asyncio.gather(*(client() for _ in range(a.clients)))
    return rows, a.requests


async def soak(pid, port, a):
    draw, done, start = random.Random(1), 0, time.monotonic()
    end, rows = start + 60 * a.minutes, []

    async def client(seed):
        nonlocal done
        own = random.Random(seed)
        while time.monotonic() < end:
            await ask(port, own)
            done += 1

    async def watch():
        while time.monotonic() < end:
            await asyncio.sleep(min(60, 6 * a.minutes))
            rows.append({"minutes": round((time.monotonic() - start) / 60, 1), "requests": done, **await asyncio.to_thread(figures, pid, port)})
            print(json.dumps(rows[-1]), flush=True)

    await asyncio.gather(watch(), *(client(draw.random()) for _ in range(a.clients)))
    return rows, done


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--requests", type=int)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--slots", type=int, default=4096)
    parser.add_argument("--situ", default="build/situ")
    a = parser.parse_args()
    port = free_port()
    with Running([a.situ, "serve", a.model, "--port", str(port), "--slots", str(a.slots)], port) as server:
        pid = server.process.pid
        asyncio.run(ask_short(port, [2], 1) if a.requests else ask(port, random.Random(2)))
        before = figures(pid, port)
        rows, done = asyncio.run((soak_short if a.requests else soak)(pid, port, a))
        time.sleep(2)
        after = figures(pid, port)
    print(json.dumps({"requests": done, "before": before, "after": after}))
    early = rows[0 if a.requests else max(0, len(rows) // 10 - 1)]["resident_mib"]
    most = 1.05 * early if a.requests else max(1.05 * early, early + 4)
    wrong = [k for k in ("descriptors", "threads", "in_use") if after[k] > before[k]] + (["resident_mib"] if after["resident_mib"] > most else [])
    sys.exit(f"more than before: {', '.join(wrong)}" if wrong else 0)


if __name__ == "__main__":
    main()
