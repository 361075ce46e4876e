"""What the tests of the command line share: running the program within bounds, and what a refusal looks like.

A refused input means: exit code 2, nothing on standard output, and one line on standard error that holds the words that
the test names, within bounded time and memory.
"""
import argparse
import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import tiny_models

SITU = None
TIMEOUT = 20           # seconds that one run may compute; a correct one needs less than one
PATIENCE = 900         # seconds that it may take, on a machine where others compute too
MEMORY_LIMIT = 1 << 30  # resident bytes; a correct run of these models needs 16 MiB, 200 MiB under a sanitizer
ASAN_OPTIONS = "detect_stack_use_after_return=0:malloc_context_size=1:quarantine_size_mb=1"
# Of runs that say nothing of it; "": the program's own choice. ctest runs tests side by side: two threads that wait for each
# other, beside two more, take several times as long.
THREADS = os.environ.get("SITU_TEST_THREADS", "")
IDS = "5,6,7,8,9,10,11"
COUNT = tiny_models.NEW_TOKENS

class Run:
    """One run of the program, ended when it takes too long or too much memory. Packed weights are not saved, unless the
    test says where. Where AddressSanitizer is in it, it looks for what every run may show: the frames of functions that returned, and
    who allocated what, are looked at in the unit tests; here they take 40% of the time."""

    def __init__(self, *arguments, stdin=subprocess.DEVNULL, **environment):
        self.arguments = [os.fspath(a) if isinstance(a, Path) else str(a) for a in arguments]
        if THREADS and self.arguments and self.arguments[0] in ("run", "transcribe", "perplexity", "bench") and "--threads" not in self.arguments:
            self.arguments[1:1] = ["--threads", THREADS]
        self.stopped = ""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = subprocess.Popen([SITU, *self.arguments], stdin=stdin, stdout=out, stderr=err, env={**os.environ, "ASAN_OPTIONS": ASAN_OPTIONS, "SITU_CACHE_DIR": "", **environment})
            self.watch(process)
            self.code = process.returncode
            out.seek(0), err.seek(0)
            self.out, self.err = out.read().decode(errors="replace"), err.read().decode(errors="replace")

    def watch(self, process):
        """Waits for the end, which the kernel tells; looks at time and memory ten times a second."""
        end = time.monotonic() + PATIENCE
        ended = select.poll()
        pidfd = os.pidfd_open(process.pid)
        ended.register(pidfd, select.POLLIN)
        while not ended.poll(100):
            self.stopped = self.excess(process.pid, end)
            if self.stopped:
                process.kill()
                break
        os.close(pidfd)
        process.wait()

    def excess(self, pid, end):
        try:
            resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            user, system = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
        except (OSError, IndexError):
            return ""  # it has just ended
        if resident > MEMORY_LIMIT:
            return f"uses more than {MEMORY_LIMIT >> 20} MiB"
        if (int(user) + int(system)) / os.sysconf("SC_CLK_TCK") > TIMEOUT:
            return f"computes for more than {TIMEOUT} s"
        return f"takes more than {PATIENCE} s" if time.monotonic() > end else ""

    def __str__(self):
        return f"situ {' '.join(self.arguments)}: exit code {self.code} {self.stopped}\nstdout: {self.out[:300]}\nstderr: {self.err[:2000]}"

def open_terminal():
    """The two ends of a terminal. A machine that gives none (a container without /dev/pts) skips the test."""
    try:
        return pty.openpty()
    except OSError as error:
        raise unittest.SkipTest(f"this machine gives no terminal: {error}")

class CliTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # In memory where that is offered: the tests write several hundred small models.
        cls.folder = Path(tempfile.mkdtemp(prefix="situ_cli_", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def generate(self, model, prompt, *options, count=COUNT, **environment):
        run = Run("run", model, "--prompt-ids", ",".join(map(str, prompt)), "-n", count, "--ignore-eos", "--json", *options, **environment)
        self.assertEqual((run.code, run.err), (0, ""), run)
        return json.loads(run.out)

    def refused(self, run, *words, code=2):
        self.assertEqual((run.code, run.stopped), (code, ""), run)
        self.assertEqual(run.out, "", run)
        self.assertRegex(run.err, r"\Asitu: [^\n]+\n\Z", run)
        for word in words:
            self.assertIn(str(word), run.err)

def main():
    """python TEST.py --situ build/situ [unittest options]"""
    global SITU
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--situ", default=str(Path(__file__).parent.parent / "build" / "situ"))
    known, rest = parser.parse_known_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell runs in the background, programs of tests too
    SITU = str(Path(known.situ).resolve())
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
