#!/usr/bin/env python3
"""How long a server goes on for clients that went: leaving.py MODEL [--rounds 20] [--situ build/situ]

A client asks for an answer without an end and goes while it is made, by a close or a reset, with a stream, a whole answer, or bytes of a next
request behind the first. Prints a JSON object a kind: percentiles in ms of the time from there to the request's line in the log (it is
cancelled), and to situ_slots_used of 0 (its slots are free), which is asked for again and again on one connection.
"""

import argparse
import http.client
import json
import re
import socket
import struct
import subprocess
import threading
import time

import tables

SHARES = (50, 90, 100)


class Watched:
    """A server whose log is read as it comes."""

    def __init__(self, situ, model):
        self.process = subprocess.Popen([situ, "serve", model, "--port", "0", "--window", "64"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline().rsplit(":", 1)[1])
        self.cancelled = []  # when
        threading.Thread(target=self.follow, daemon=True).start()

    def follow(self):
        for line in self.process.stderr:
            if "finish=cancelled" in line:
                self.cancelled.append(time.monotonic())

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), 60)


def used(connection):
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    return sum(float(n) for n in re.findall(r"^situ_slots_used\{.*\} (\S+)$", text, re.MULTILINE))


def leave(server, metrics, stream, behind, reset):
    body = json.dumps({"messages": [{"role": "user", "content": "Hi"}], "ignore_eos": True, "stream": stream}).encode()
    known = len(server.cancelled)
    with server.connect() as s:
        s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body + behind)
        while not used(metrics):
            pass
        time.sleep(0.1)
        if reset:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    gone = time.monotonic()
    while used(metrics):
        pass
    free = time.monotonic()
    while len(server.cancelled) == known:
        time.sleep(0.0005)
    return 1000 * (server.cancelled[-1] - gone), 1000 * (free - gone)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--situ", default="build/situ")
    a = parser.parse_args()
    server = Watched(a.situ, a.model)
    metrics = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    for name, stream, behind in (("stream", True, b""), ("whole", False, b""), ("whole, and a request behind it", False, b"GET /health HTTP/1.1\r\n")):
        for reset in (False, True):
            rows = [leave(server, metrics, stream, behind, reset) for _ in range(a.rounds)]
            print(json.dumps({"client": name, "goes": "by a reset" if reset else "by a close", "cancelled_ms": tables.percentiles((r[0] for r in rows), SHARES), "free_ms": tables.percentiles((r[1] for r in rows), SHARES)}), flush=True)
    server.process.terminate()
    server.process.wait()


if __name__ == "__main__":
    main()
