"""A hub on loopback: as much of the protocol of model hubs as `situ pull` and huggingface_hub use, and what may go wrong with it.

    hub = Hub()
    hub.add("org/model", {"config.json": b"{}", "onnx/model.onnx": data}, large={"onnx/model.onnx"})
    Run("pull", "org/model", **hub.environment(cache))

Large files are at another server (another origin), as those of hubs are. What a hub does wrong is in its fields.
"""
import functools
import hashlib
import json
import os
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from cli_case import CliTest


def git_id(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def files_of(folder):
    """The files below a folder, by their paths."""
    folder = Path(folder)
    return {str(f.relative_to(folder)): f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()}


class Repository:
    def __init__(self, files, large, commit, private, gated, revisions):
        self.files, self.large, self.private, self.gated = files, set(large), private, gated
        self.revisions = {"main": commit, **revisions}

    def digest(self, path):
        return sha256(self.files[path]) if path in self.large else git_id(self.files[path])

    def entry(self, path):
        data = self.files[path]
        entry = {"type": "file", "path": path, "size": len(data), "oid": git_id(data)}
        if path in self.large:
            entry["lfs"] = {"oid": sha256(data), "size": len(data), "pointerSize": 130}
        return entry


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def error(self, status, code):
        self.answer(status, json.dumps({"error": code}).encode(), X_Error_Code=code, X_Error_Message=code)

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        server, url = self.server, urllib.parse.urlsplit(self.path)
        with server.hub.lock:
            server.hub.requests.append((server.name, self.command, self.path, {name.title(): value for name, value in self.headers.items()}))
            trouble = server.hub.trouble(server.name, self.command, url.path)
        try:
            if trouble is not None and trouble(self):
                return
            server.serve(self, url)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def send_file(self, data, cut=None, **headers):
        """The file, or the rest that Range asks for; `cut`: the connection ends behind so many bytes of it."""
        begin, wanted = 0, self.headers.get("Range", "")
        if wanted.startswith("bytes=") and self.server.hub.ranges:
            begin = int(wanted[6:].split("-")[0])
            if begin >= len(data):
                return self.answer(416)
            headers["Content_Range"] = f"bytes {begin}-{len(data) - 1}/{len(data)}"
        rest = data[begin:]
        body = rest if cut is None else rest[:cut]
        self.answer(206 if begin else 200, body, Content_Length=str(len(rest)), **headers)
        if cut is not None:
            self.wfile.flush()
            self.close_connection = True
            self.connection.shutdown(2)


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, hub, name, serve, context=None):
        super().__init__(("127.0.0.1", 0), Handler)
        self.hub, self.name, self.serve = hub, name, serve
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_side=True)
        scheme, host = ("https", "localhost") if context is not None else ("http", "127.0.0.1")
        self.url = f"{scheme}://{host}:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def handle_error(self, *_):  # clients that go
        pass


class Hub:
    """`troubles`: (server, method, part of a path) -> a list of functions of the request, each used once: it answers and
    returns True, or returns a false value."""

    TOKEN = "hf_" + "t" * 20

    def __init__(self, context=None, plain_store=False):
        self.lock = threading.Lock()
        self.repositories, self.requests, self.troubles = {}, [], []
        self.page, self.ranges, self.etags, self.listed = 1000, True, {}, {}
        self.hub, self.store = Server(self, "hub", self.serve, context), Server(self, "store", self.serve_store, None if plain_store else context)

    def close(self):
        for server in (self.hub, self.store):
            server.shutdown()
            server.server_close()

    @property
    def url(self):
        return self.hub.url

    def environment(self, home, **more):
        """What points a program at this hub, with its cache below `home`."""
        no_proxy = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy", "HF_HUB_CACHE", "HF_TOKEN", "HF_TOKEN_PATH", "HF_HUB_OFFLINE"), "")
        return {**no_proxy, "HF_ENDPOINT": self.url, "HF_HOME": str(home), "XDG_STATE_HOME": str(Path(home) / "state"), **more}

    def add(self, name, files, large=(), private=False, gated=False, **revisions):
        commit = hashlib.sha1(json.dumps([name, {path: sha256(data) for path, data in files.items()}]).encode()).hexdigest()
        self.repositories[name] = Repository(dict(files), large, commit, private, gated, revisions)
        return commit

    def trouble(self, server, method, path):
        for i, (of, what, part, act) in enumerate(self.troubles):
            if of == server and what in ("*", method) and part in path:
                del self.troubles[i]
                return act
        return None

    def fail(self, server, method, part, act, times=1):
        self.troubles += [(server, method, part, act)] * times

    def asked(self, server=None, method=None, part=""):
        """The requests so far, as (server, method, path, headers)."""
        with self.lock:
            return [r for r in self.requests if server in (None, r[0]) and method in (None, r[1]) and part in r[2]]

    # -- what the servers say

    def repository(self, request, name):
        """None: an error was answered."""
        repository = self.repositories.get(name)
        allowed = request.headers.get("Authorization") == f"Bearer {self.TOKEN}"
        if repository is None or (repository.private and not allowed):
            request.error(404 if allowed else 401, "RepoNotFound")
            return None
        return repository

    def serve(self, request, url):
        parts = [urllib.parse.unquote(p) for p in url.path.strip("/").split("/")]
        if parts[:2] == ["api", "models"] and len(parts) >= 4:
            repository = self.repository(request, "/".join(parts[2:4]))
            if repository is None:
                return None
            revision = parts[5] if len(parts) > 5 else "main"
            commit = repository.revisions.get(revision, revision if revision in repository.revisions.values() else None)
            if commit is None:
                return request.error(404, "RevisionNotFound")
            name = "/".join(parts[2:4])
            if len(parts) == 4 or parts[4] == "revision":
                siblings = [{"rfilename": path} for path in repository.files]
                return request.answer(200, json.dumps({"_id": "0" * 24, "id": name, "modelId": name, "sha": commit, "private": repository.private, "gated": "auto" if repository.gated else False, "siblings": siblings}).encode(), Content_Type="application/json")
            if parts[4] == "tree":
                begin = int(dict(urllib.parse.parse_qsl(url.query)).get("cursor", 0))
                entries = self.listed.get(name) or [repository.entry(path) for path in sorted(repository.files)]
                headers = {"Content_Type": "application/json"}
                if begin + self.page < len(entries):
                    headers["Link"] = f'<{self.url}{url.path}?recursive=true&cursor={begin + self.page}>; rel="next"'
                return request.answer(200, json.dumps(entries[begin : begin + self.page]).encode(), **headers)
        if len(parts) >= 5 and parts[2] == "resolve":
            return self.resolve(request, "/".join(parts[:2]), parts[3], "/".join(parts[4:]))
        return request.error(404, "RepoNotFound")

    def resolve(self, request, name, revision, path):
        repository = self.repository(request, name)
        if repository is None:
            return None
        if repository.gated and request.headers.get("Authorization") != f"Bearer {self.TOKEN}":
            return request.error(403, "GatedRepo")
        commit = repository.revisions.get(revision, revision)
        if path not in repository.files:
            return request.error(404, "EntryNotFound")
        data = repository.files[path]
        etag = self.etags.get(path, repository.digest(path))
        if path in repository.large:
            return request.answer(302, X_Repo_Commit=commit, X_Linked_Etag=f'"{etag}"', X_Linked_Size=str(len(data)), Location=f"{self.store.url}/{sha256(data)}")
        if request.command == "HEAD":
            return request.answer(200, X_Repo_Commit=commit, ETag=f'"{etag}"', Content_Length=str(len(data)))
        return request.send_file(data, X_Repo_Commit=commit, ETag=f'"{etag}"')

    def serve_store(self, request, url):
        digest = url.path.strip("/")
        for repository in self.repositories.values():
            for path in repository.large:
                if sha256(repository.files[path]) == digest:
                    return request.send_file(repository.files[path], ETag=f'"{digest}"')
        return request.answer(404)


# -- what may be wrong

def cut(after, data):
    """The connection ends behind so many bytes."""
    return lambda request: request.send_file(data, cut=after) or True


def instead(data):
    return lambda request: request.send_file(data) or True


def status(code, **headers):
    return lambda request: request.answer(code, **headers) or True


class HubTest(CliTest):
    """Tests with a hub of their own, and a cache that is empty."""

    def setUp(self):
        self.hub = Hub()
        self.addCleanup(self.hub.close)
        self.home = Path(self.folder / f"home-{self.id().rsplit('.', 1)[-1]}")
        self.cache = self.home / "hub"

    def environment(self, **more):
        return self.hub.environment(self.home, **more)
