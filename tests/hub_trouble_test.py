"""What a network, a disk or a hub may do to `situ pull`: cuts, wrong bytes, redirects, names that lead elsewhere, https.

    python tests/hub_trouble_test.py --situ build/situ [unittest options]

Needs numpy and onnx (`make python`).
"""
import fcntl
import os
import resource
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
from pathlib import Path

import cli_case
from cli_case import main
from hub_case import Hub, cut, files_of, instead, sha256, status
from hub_test import NAME, NamesTest


class TroubleTest(NamesTest):
    """What a network, a disk or a hub may do. The graph is at another server than the hub."""

    def setUp(self):
        super().setUp()
        self.graph = self.files["model.onnx"]
        self.blob = self.cache / "models--org--model" / "blobs" / sha256(self.graph)
        self.part = Path(f"{self.blob}.incomplete")

    def whole(self, run):
        self.assertEqual((run.code, run.out), (0, f"{self.snapshot}\n"), run)
        self.assertEqual(files_of(self.snapshot), self.files)
        self.assertFalse(self.part.exists())

    def test_a_cut_goes_on(self):
        self.hub.fail("store", "GET", "", cut(1000, self.graph))
        self.whole(self.pull())
        self.assertEqual([r[3].get("Range") for r in self.hub.asked("store")], [None, "bytes=1000-"])

    def test_a_hub_that_begins_anew(self):
        self.hub.fail("store", "GET", "", cut(1000, self.graph))
        self.hub.ranges = False
        self.whole(self.pull())

    def test_killed_and_called_again(self):
        """The part that kill -9 leaves is taken up."""
        stopped = []

        def stop(request):
            request.answer(200, self.graph[:2000], Content_Length=str(len(self.graph)))
            request.wfile.flush()
            while not self.part.exists() or self.part.stat().st_size < 2000:
                time.sleep(0.01)
            stopped[0].kill()
            return True

        self.hub.fail("store", "GET", "", stop)
        stopped.append(subprocess.Popen([cli_case.SITU, "pull", NAME], env={**os.environ, **self.environment()}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        self.assertEqual(stopped[0].wait(60), -signal.SIGKILL)
        self.assertEqual(self.part.read_bytes(), self.graph[:2000])
        self.whole(self.pull())
        self.assertEqual(self.hub.asked("store")[-1][3].get("Range"), "bytes=2000-")

    def test_interrupted(self):
        process = []

        def stop(request):
            request.answer(200, self.graph[:2000], Content_Length=str(len(self.graph)))
            request.wfile.flush()
            while not self.part.exists() or self.part.stat().st_size < 2000:
                time.sleep(0.01)
            process[0].send_signal(signal.SIGINT)
            process[0].wait()
            return True

        self.hub.fail("store", "GET", "", stop)
        process.append(subprocess.Popen([cli_case.SITU, "pull", NAME], env={**os.environ, **self.environment()}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL))
        self.assertEqual((process[0].wait(60), process[0].stdout.read()), (130, b""))
        process[0].stdout.close()
        self.whole(self.pull())

    def test_wrong_bytes(self):
        wrong = bytes(len(self.graph))
        self.hub.fail("store", "GET", "", instead(wrong))
        self.whole(self.pull())  # one new try
        self.assertEqual(len(self.hub.asked("store")), 2)
        self.hub.add("org/wrong", {**self.files, "model.onnx": self.graph + b"\0"}, large={"model.onnx"})
        self.hub.fail("store", "GET", "", instead(self.graph + b"1"), times=2)
        self.failed(self.pull("org/wrong"), 1, "model.onnx", "twice", sha256(self.graph + b"\0"))
        self.assertEqual(list(self.cache.glob("models--org--wrong/blobs/*.incomplete")), [])
        self.assertFalse((self.cache / "models--org--wrong/refs/main").exists())

    def test_wrong_bytes_of_small_files(self):
        self.hub.fail("hub", "GET", "/tokenizer.json", instead(self.files["tokenizer.json"].replace(b"a", b"b")), times=2)
        self.failed(self.pull(), 1, "tokenizer.json", "twice")

    def test_too_many_and_too_few_bytes(self):
        self.hub.fail("store", "GET", "", instead(self.graph + b"more"), times=2)
        self.failed(self.pull(), 1, "model.onnx", "twice")
        self.hub.fail("store", "GET", "", instead(self.graph[:500]))
        self.whole(self.pull())

    def test_a_token_stays_with_the_hub(self):
        for private in ("HF_TOKEN", "HF_TOKEN_PATH", "HF_HOME"):
            name = f"org/{private.lower()}"
            commit = self.hub.add(name, self.files, large={"model.onnx"}, private=True)
            token, environment = self.folder / "token", {}
            token.write_text(self.hub.TOKEN + "\n")
            if private == "HF_HOME":
                (self.home / "token").write_text(self.hub.TOKEN)
            else:
                environment = {private: self.hub.TOKEN if private == "HF_TOKEN" else str(token)}
            before = len(self.hub.asked())
            run = self.pull(name, **environment)
            self.assertEqual((run.code, run.out), (0, f"{self.cache}/models--{name.replace('/', '--')}/snapshots/{commit}\n"), run)
            for server, method, path, headers in self.hub.asked()[before:]:
                self.assertEqual(headers.get("Authorization"), f"Bearer {self.hub.TOKEN}" if server == "hub" else None, path)

    def test_a_token_goes_over_https_or_to_this_machine(self):
        self.failed(self.pull(HF_ENDPOINT="http://192.0.2.1:1", HF_TOKEN="hf_x"), 2, "HF_ENDPOINT", "https")
        for token in ("hf x", "hf\nx: y", "\x7f"):
            self.failed(self.pull(HF_TOKEN=token), 2, "HF_TOKEN")
        self.failed(self.pull(HF_ENDPOINT="ftp://127.0.0.1"), 2, "HF_ENDPOINT")
        self.failed(self.pull(HF_ENDPOINT="http://user@127.0.0.1"), 2, "HF_ENDPOINT")

    def test_private_unknown_gated(self):
        self.hub.add("org/private", self.files, private=True)
        self.hub.add("org/gated", self.files, gated=True)
        for name in ("org/private", "org/unknown"):
            self.failed(self.pull(name), 2, name, "HF_TOKEN", "private")
        self.failed(self.pull("org/unknown", HF_TOKEN=self.hub.TOKEN), 2, "org/unknown", "HF_TOKEN")
        self.failed(self.pull("org/gated"), 2, "org/gated", "HF_TOKEN", f"{self.hub.url}/org/gated")
        self.assertEqual(self.pull("org/gated", HF_TOKEN=self.hub.TOKEN).code, 0)
        self.failed(self.situ("run", "org/unknown", "--prompt", "Hi"), 2, "org/unknown")

    def test_busy(self):
        self.hub.fail("hub", "GET", "/revision/", status(429, Retry_After="1"))
        self.hub.fail("store", "GET", "", status(503))
        self.whole(self.pull())
        self.hub.fail("hub", "GET", "/revision/", status(429, Retry_After="61"))
        self.failed(self.pull(), 1, "429", "61 s")

    def test_no_answer(self):
        self.hub.fail("hub", "GET", "/revision/", status(500), times=4)
        self.failed(self.pull(), 1, NAME, "500")
        self.assertEqual(len(self.hub.asked()), 4)
        self.hub.close()
        self.failed(self.pull(), 1, NAME)

    def test_a_hub_that_is_gone_ends_nothing_that_is_here(self):
        self.pull()
        self.hub.close()
        self.assertEqual(self.run_model().out, self.answer)

    def test_redirects(self):
        """At most five; none to what is not http."""
        def to(url):
            return status(302, Location=url)

        self.hub.fail("store", "GET", "", to(f"/{sha256(self.graph)}"), times=4)
        self.whole(self.pull())
        for where, code, word in ((f"{self.hub.store.url}/x", 1, "redirects"), ("file:///etc/passwd", 2, "file:"), ("ftp://127.0.0.1/x", 2, "ftp:"), ("http://a@127.0.0.1/", 2, "user")):
            name = f"org/to-{len(self.hub.repositories)}"
            self.hub.add(name, {**self.files, "model.onnx": self.graph + name.encode()}, large={"model.onnx"})
            self.hub.fail("store", "GET", "", to(where), times=9 if code == 1 else 1)
            if code == 1:
                self.hub.troubles *= 3
            self.failed(self.pull(name), code, word)
            self.hub.troubles = []

    def test_names_that_are_not_to_be_trusted(self):
        """Nothing is written."""
        entry = self.hub.repositories[NAME].entry("config.json")
        graph = self.hub.repositories[NAME].entry("model.onnx")
        for change in ({"path": "../config.json"}, {"path": "/etc/x"}, {"path": "a/../../b"}, {"path": "a\\b"}, {"path": "a\0b"}, {"path": "a//b"}, {"path": "."}, {"path": "a/./b"}, {"path": ""}, {"oid": "../../x"}, {"oid": "g" * 40},
                       {"oid": "a" * 39}, {"size": -1}, {"size": "1"}, {"size": 2**63}):
            self.hub.listed[NAME] = [graph, {**entry, **change}]
            self.failed(self.pull(), 2, NAME, "the hub says")
            self.nothing_written()
        self.hub.listed[NAME] = [graph, {**entry, "path": "model.onnx/config.json"}]
        self.failed(self.pull(), 2, "a file and a folder")
        self.hub.listed[NAME] = [{**graph, "lfs": {"oid": "../" * 20 + "x" * 4, "size": 1}}, entry]
        self.failed(self.pull(), 2, "the hub says")
        self.nothing_written()

    def test_answers_that_are_not_to_be_trusted(self):
        first = next(p for p in ("config.json", "model.onnx") if p in self.files)  # what is fetched first
        for etag in ("../../../x", "a" * 63, "x/../y", ""):
            self.hub.etags = {first: etag}
            self.failed(self.pull(), 2, first, "no digest")
            self.nothing_written()
        self.hub.etags = {first: "a" * len(self.hub.repositories[NAME].digest(first))}
        self.failed(self.pull(), 2, first, "two digests")
        self.nothing_written()
        self.hub.etags = {"model.onnx": "../../../x"}
        self.failed(self.pull(), 2, "model.onnx", "no digest")
        self.assertFalse(self.blob.exists() or self.part.exists())
        shutil.rmtree(self.cache)
        self.hub.etags = {}
        repository = self.hub.repositories[NAME]
        for commit in ("../x", "a" * 39, "A" * 40, ""):
            repository.revisions["main"] = commit
            self.failed(self.pull(), 2, "no commit")
        repository.revisions["main"] = self.commit
        for body in (b"[]", b"{", b"[" * 1000, b"nothing"):
            self.hub.fail("hub", "GET", "/tree/", lambda request, body=body: request.answer(200, body) or True)
            run = self.pull()
            self.assertIn(run.code, (1, 2), run)
        self.hub.fail("hub", "GET", "/tree/", lambda request: request.answer(200, b"[]", Link=f'<{self.hub.store.url}/next>; rel="next"') or True)
        self.failed(self.pull(), 2, "another server")
        self.nothing_written()

    def test_links_of_the_cache_lead_nowhere_else(self):
        """A snapshot with a link out of the cache is no model."""
        self.pull()
        outside = self.folder / "outside.onnx"
        (self.snapshot / "model.onnx").unlink()
        self.part.symlink_to(outside)
        self.blob.unlink()
        self.failed(self.pull(), 1, "incomplete")  # a link in place of the part is not written through
        self.assertFalse(outside.exists())

    def test_no_room(self):
        """The sizes are looked at before anything is fetched."""
        entries = [self.hub.repositories[NAME].entry(p) for p in self.files]
        for entry in entries:
            if "lfs" in entry:
                entry["lfs"]["size"] = entry["size"] = 1 << 60
        self.hub.listed[NAME] = entries
        self.failed(self.pull(), 1, NAME, "are needed", "free")
        self.assertEqual(self.hub.asked("store"), [])

    def test_a_disk_that_is_full(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (len(self.graph) // 2, len(self.graph) // 2))

        done = subprocess.run([cli_case.SITU, "pull", NAME], env={**os.environ, **self.environment()}, capture_output=True, text=True, timeout=60, preexec_fn=limit)
        self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
        self.assertIn("cannot be written", done.stderr.splitlines()[-1])
        self.whole(self.pull())

    def test_two_at_once_fetch_once(self):
        both = [subprocess.Popen([cli_case.SITU, "pull", NAME], env={**os.environ, **self.environment()}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
        for process in both:
            out, err = process.communicate(timeout=60)
            self.assertEqual((process.returncode, out), (0, f"{self.snapshot}\n"), err)
        self.assertEqual(len(self.hub.asked("store")), 1)

    def test_the_lock_is_huggingface_hubs(self):
        lock = self.cache / ".locks" / "models--org--model" / f"{sha256(self.graph)}.lock"
        lock.parent.mkdir(parents=True)
        with open(lock, "w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            process = subprocess.Popen([cli_case.SITU, "pull", NAME], env={**os.environ, **self.environment()}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            while not (self.snapshot / "config.json").exists():
                self.assertIsNone(process.poll())
            self.assertEqual(self.hub.asked("store"), [])
        self.assertEqual(process.communicate(timeout=60)[0], f"{self.snapshot}\n")


class ProgressTest(NamesTest):
    """How far a download is: a line that is written over on a terminal, else one every ten seconds. The store gives a little at a time
    until the line is there."""

    def pull_slowly(self, err, seen):
        data = self.files["model.onnx"]

        def slowly(request):
            request.answer(200, Content_Length=str(len(data)))
            sent = 0
            while not seen.is_set() and sent < len(data) - 1:
                request.wfile.write(data[sent : sent + 1])
                request.wfile.flush()
                sent += 1
                time.sleep(0.05)
            request.wfile.write(data[sent:])
            return True

        self.hub.fail("store", "GET", "", slowly)
        return subprocess.Popen([cli_case.SITU, "pull", NAME], env={**os.environ, **self.environment()}, stdout=subprocess.PIPE, stderr=err)

    def test_a_line_every_ten_seconds(self):
        seen = threading.Event()
        with self.pull_slowly(subprocess.PIPE, seen) as process:
            lines = [process.stderr.readline().decode() for _ in range(2)]
            seen.set()
            lines += process.stderr.read().decode().splitlines(True)
            process.stdout.read()
        self.assertRegex(lines[0], rf"\Asitu: {NAME}: fp32, ")
        for line in lines[1:]:
            self.assertRegex(line, r"\Asitu: [\d.]+ MB of [\d.]+ MB, [\d.]+ MB/s(, \d+ s left)?\n\Z")

    def test_a_line_on_a_terminal(self):
        master, slave = cli_case.open_terminal()
        seen, text = threading.Event(), b""
        with self.pull_slowly(slave, seen) as process:
            os.close(slave)
            while True:
                try:
                    piece = os.read(master, 4096)
                except OSError:
                    break
                if not piece:
                    break
                text += piece
                if b" s left" in text:
                    seen.set()
            process.stdout.read()
            self.assertEqual(process.wait(60), 0, text)
        os.close(master)
        shown = text.decode().split("\r\x1b[K")
        lines = [line for line in shown if " MB of " in line]
        self.assertRegex(lines[0], r"\A[\d.]+ MB of [\d.]+ MB, [\d.]+ MB/s, \d+ s left \Z")
        self.assertEqual(shown[-1], "")  # the line is gone at the end


class Proxy:
    """A proxy on loopback that makes tunnels."""

    def __init__(self):
        self.asked, self.socket = [], socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"

    def __enter__(self):
        threading.Thread(target=self.accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.socket.close()

    def accept(self):
        while True:
            try:
                client, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self.tunnel, args=(client,), daemon=True).start()

    def tunnel(self, client):
        head = b""
        while b"\r\n\r\n" not in head:
            head += client.recv(1)
        line = head.split(b"\r\n")[0].decode()
        self.asked.append(line)
        host, port = line.split()[1].rsplit(":", 1)
        server = socket.create_connection((host, int(port)))
        client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        threading.Thread(target=self.copy, args=(server, client), daemon=True).start()
        self.copy(client, server)

    @staticmethod
    def copy(source, to):
        try:
            while data := source.recv(65536):
                to.sendall(data)
            to.shutdown(socket.SHUT_WR)
        except OSError:
            pass


class HttpsTest(NamesTest):
    """A hub with a certificate that SSL_CERT_FILE vouches for."""

    def setUp(self):
        super().setUp()
        if shutil.which("openssl") is None:
            self.skipTest("no openssl to make certificates")
        self.authority, leaf, keys = (self.folder / name for name in ("ca.pem", "leaf.pem", "keys.txt"))

        def openssl(*arguments):
            subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, cwd=self.folder, timeout=60)

        keys.write_text("subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\n")
        new = ("req", "-newkey", "rsa:2048", "-nodes", "-subj")
        openssl(*new, "/CN=authority", "-x509", "-days", 2, "-keyout", "ca.key", "-out", self.authority)
        openssl(*new, "/CN=localhost", "-keyout", "leaf.key", "-out", "leaf.csr")
        openssl("x509", "-req", "-in", "leaf.csr", "-CA", self.authority, "-CAkey", "ca.key", "-CAcreateserial", "-days", 2, "-extfile", keys, "-out", leaf)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(leaf, self.folder / "leaf.key")

    def serve(self, **options):
        self.hub = Hub(self.context, **options)
        self.addCleanup(self.hub.close)
        self.hub.add(NAME, self.files, large={"model.onnx"})

    def test_https(self):
        self.serve()
        trusted = {"SSL_CERT_FILE": str(self.authority), "SSL_CERT_DIR": ""}
        self.assertEqual(self.pull(**trusted).out, f"{self.snapshot}\n")
        shutil.rmtree(self.cache)
        before = self.hub.connections
        shutil.copy(self.folder / "leaf.pem", self.folder / "other.pem")  # who signed it is not in it
        self.failed(self.pull(SSL_CERT_FILE=str(self.folder / "other.pem"), SSL_CERT_DIR=""), 1, NAME)
        self.assertEqual(self.hub.connections, before + 1)  # another try ends in the same

    def test_a_proxy(self):
        """HTTPS_PROXY: the proxy is asked for a way to the hub, and sees no more than bytes. Hosts of NO_PROXY are asked directly."""
        self.serve()
        trusted = {"SSL_CERT_FILE": str(self.authority), "SSL_CERT_DIR": ""}
        with Proxy() as proxy:
            self.assertEqual(self.pull(**trusted, HTTPS_PROXY=proxy.url).out, f"{self.snapshot}\n")
            hosts = {self.hub.url.removeprefix("https://"), self.hub.store.url.removeprefix("https://")}
            self.assertEqual(set(proxy.asked), {f"CONNECT {host} HTTP/1.1" for host in hosts})
            before = len(proxy.asked)
            shutil.rmtree(self.cache)
            self.assertEqual(self.pull(**trusted, HTTPS_PROXY=proxy.url, NO_PROXY="localhost").out, f"{self.snapshot}\n")
            self.assertEqual(len(proxy.asked), before)

    def test_http_to_this_machine_needs_no_proxy(self):
        """A proxy would read the token."""
        with Proxy() as proxy:
            for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "https_proxy", "http_proxy", "all_proxy"):
                self.assertEqual(self.pull(HF_TOKEN=self.hub.TOKEN, **{name: proxy.url}).out, f"{self.snapshot}\n")
                shutil.rmtree(self.cache)
            self.assertEqual(proxy.asked, [])

    def test_https_never_leads_to_http(self):
        self.serve(plain_store=True)
        self.failed(self.pull(SSL_CERT_FILE=str(self.authority), SSL_CERT_DIR=""), 2, "from https to 'http:")
        self.assertEqual(self.hub.asked("store"), [])


if __name__ == "__main__":
    main()
