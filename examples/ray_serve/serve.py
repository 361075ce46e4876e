"""OpenAI's chat and completions calls on Ray Serve: serve.py MODEL [--replicas N] [--port 8000] [--threads N]

Each replica is a process with a model of its own, on any machine of the cluster (MODEL is then a path that all of them have). Bodies
are read and answers written by situ.openai, as `situ serve` does; Ray spreads requests over the replicas.

    curl http://127.0.0.1:8000/v1/chat/completions -d '{"messages": [{"role": "user", "content": "Hi"}], "stream": true}'

Needs `pip install "ray[serve]"`.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import situ
import situ.openai

try:
    from ray import serve
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response, StreamingResponse
except ImportError:
    print('ray_serve: skipped: ray is not installed (pip install "ray[serve]")')
    sys.exit(77)

MOST = 64  # answers that a replica works at


async def events(pieces: situ.openai.Pieces, waiting: ThreadPoolExecutor) -> AsyncIterator[str]:
    """Server-sent events. A client that goes ends the generator, and with it the answer."""
    failed = False
    try:
        while (piece := await asyncio.get_running_loop().run_in_executor(waiting, next, pieces, None)) is not None:
            failed = "error" in piece
            yield f"data: {json.dumps(piece)}\n\n"
        if not failed:
            yield "data: [DONE]\n\n"
    finally:
        pieces.close()


@serve.deployment(max_ongoing_requests=MOST)
class Replica:
    """A process with its model: requests share the model's steps."""

    def __init__(self, path: str, threads: int) -> None:
        self.model = situ.load(path, threads=threads)
        self.waiting = ThreadPoolExecutor(MOST)  # asyncio's own has few threads, which would be as many answers

    async def __call__(self, request: Request) -> Response:
        if request.method != "POST":
            return JSONResponse({"error": {"message": "calls are POST", "type": "invalid_request_error", "param": None, "code": "method_not_allowed"}}, 405)
        loop = asyncio.get_running_loop()
        pieces = await loop.run_in_executor(self.waiting, situ.openai.begin, request.url.path, await request.body(), self.model)
        if pieces.streams:
            return StreamingResponse(events(pieces, self.waiting), media_type="text/event-stream", headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        try:
            return JSONResponse(await loop.run_in_executor(self.waiting, next, pieces, None))
        except situ.openai.Refused as refused:
            return JSONResponse(refused.body, refused.status)
        finally:
            pieces.close()  # a client that goes cancels this


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--threads", type=int, default=0, help="of each replica; 0: one for each CPU")
    arguments = parser.parse_args()
    serve.start(http_options={"host": "127.0.0.1", "port": arguments.port})
    replica: Any = Replica
    serve.run(replica.options(num_replicas=arguments.replicas).bind(arguments.model, arguments.threads))
    print(f"ready http://127.0.0.1:{arguments.port}", flush=True)
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    main()
