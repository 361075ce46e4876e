"""Tokenizers that would run for years or take all memory: an error within bounded time and memory, and Control-C ends
them at once.

    python tests/hostile_tokenizer_test.py --situ build/situ [unittest options]

Needs numpy and onnx (`make python`).
"""
import json
import os
import resource
import shutil
import signal
import subprocess
import time
from pathlib import Path

import cli_case
import tiny_exports
import tiny_models
from cli_case import CliTest, main
from sampling_test import tokenizer_json
from sweep import SWEEPING

# Each with a text on which it backtracks.
PATTERNS = {
    "(a|aa){1,20}$": "a" * 3999 + "!",
    "(x+x+)+y": "x" * 3500,
    "(?:a*)*b|(?:a|a)*c": "a" * 3000,
    r"(\w+\s?)+$": "word " * 700 + "!",
}
SLOW = next(iter(PATTERNS))
SECONDS = 20         # that a run may compute: a machine where others compute too takes longer
AT_ONCE = 6          # seconds of its CPUs until Control-C has ended it; a search alone would take 12
BASE = 256 << 20     # bytes of a run, and how many more for a byte of the tokenizer
PER_BYTE = 12

class Measured:
    """One run: its exit code, what it printed, the seconds since it began or was interrupted, those of its CPUs, its largest resident set."""

    def __init__(self, *arguments, interrupt_after=None, address_space=None):
        limit = None if address_space is None else lambda: resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))
        with subprocess.Popen([cli_case.SITU, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=limit, env={**os.environ, "SITU_CACHE_DIR": ""}) as process:
            start = time.monotonic()
            if interrupt_after is not None:
                time.sleep(interrupt_after)
                self.was_running = process.poll() is None
                start = time.monotonic()
                process.send_signal(signal.SIGINT)
            # What it prints is small: neither pipe fills. ru_maxrss would be that of this program, if it was larger.
            ended, self.resident = 0, 0
            while not ended:
                try:
                    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
                    self.resident = max([self.resident, *(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))])
                except OSError:
                    pass
                ended, status, usage = os.wait4(process.pid, os.WNOHANG)
                time.sleep(0 if ended else 0.005)
            self.seconds, self.computed = time.monotonic() - start, usage.ru_utime + usage.ru_stime
            process.returncode = self.code = os.waitstatus_to_exitcode(status)
            self.out, self.err = process.stdout.read().decode(), process.stderr.read().decode()

    def __str__(self):
        return f"exit code {self.code}, {self.seconds:.2f} s, {self.computed:.2f} s computed, {self.resident >> 20} MiB\nstdout: {self.out[:200]}\nstderr: {self.err[:500]}"

class HostileTokenizerTest(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.base = cls.folder / "base"
        tiny_exports.write_model(tiny_models.SPECS[0], cls.base)
        cls.good = json.loads(tokenizer_json())

    def model(self, text, **files):
        """A folder with this tokenizer.json, or with the good one and these parts."""
        folder = self.folder / "hostile"
        if folder.exists():
            shutil.rmtree(folder)
        shutil.copytree(self.base, folder)
        (folder / "tokenizer.json").write_text(json.dumps({**self.good, **text}) if isinstance(text, dict) else text)
        for name, content in files.items():
            (folder / f"{name}.json").write_text(content)
        return folder

    def split(self, regex):
        return self.model({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}})

    def replace(self, regex):
        return self.model({"normalizer": {"type": "Replace", "pattern": {"Regex": regex}, "content": "x"}})

    def vocabulary(self, entries):
        """A file with so many tokens, the good ones first."""
        head = json.dumps({**self.good, "model": 0})[:-2]
        vocabulary = json.dumps(self.good["model"]["vocab"])[:-1]
        more = ",".join(f'"t{i}":{i}' for i in range(tiny_models.VOCABULARY, entries))
        return self.model(f'{head}{{"type":"BPE","merges":[],"vocab":{vocabulary},{more}}}}}}}')

    def bounded(self, run, folder, codes=(0, 2)):
        size = sum(f.stat().st_size for f in folder.glob("*.json"))
        self.assertIn(run.code, codes, run)
        self.assertLess(run.computed, SECONDS, run)
        self.assertLessEqual(run.resident, BASE + PER_BYTE * size, run)
        if run.code:
            self.assertEqual(run.out, "", run)
            self.assertRegex(run.err, r"\Asitu: [^\n]+\n\Z", run)

    def test_patterns(self):
        for i, (regex, text) in enumerate(PATTERNS.items()):
            for make in (self.split, self.replace) if SWEEPING else ((self.split, self.replace)[i % 2],):
                with self.subTest(regex, make=make.__name__):
                    folder = make(regex)
                    run = Measured("run", folder, "--prompt", text, "-n", 1)
                    self.bounded(run, folder)
                    if regex == SLOW:
                        self.assertRegex(run.err, "takes more than|gives up")

    def test_a_pattern_that_takes_the_engines_stack(self):
        folder = self.split("(?:(?:(?:(?:a|)|b){1000}){1000}){1000}c")
        self.bounded(Measured("run", folder, "--prompt", "a" * 4000, "-n", 1), folder)

    def test_patterns_that_are_too_much(self):
        folder = self.split("a." * 40000)
        run = Measured("run", folder, "--prompt", "a")
        self.bounded(run, folder, (2,))
        self.assertIn("the limit is 65536", run.err)
        folder = self.split("(" * 4000 + "a" + ")" * 4000)
        self.bounded(Measured("run", folder, "--prompt", "a"), folder, (2,))
        folder = self.model({"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}] * 257}})
        self.bounded(Measured("run", folder, "--prompt", "a"), folder, (2,))

    def test_nested_and_wide_files(self):
        nested = "[" * 20_000_000
        wide = "[" + "[]," * 6_600_000 + "[]]"
        good = json.dumps(self.good)
        for name, text, files in (("nested", nested, {}), ("nested normalizer", good.replace('"normalizer": null', f'"normalizer": {nested}'), {}),
                                  ("wide normalizer", good.replace('"normalizer": null', f'"normalizer": {wide}'), {}), ("wide model", good.replace('"unk_token": null', f'"unk_token": {wide}'), {}),
                                  ("nested configuration", good, {"tokenizer_config": nested}), ("wide configuration", good, {"tokenizer_config": f'{{"a": {wide}}}'}),
                                  ("wide map", good, {"special_tokens_map": f'{{"a": {wide}}}'}), ("wide generation_config", good, {"generation_config": f'{{"a": {wide}}}'})):
            with self.subTest(name):
                folder = self.model(text, **files)
                self.bounded(Measured("run", folder, "--prompt", "a"), folder, (2,))

    def test_large_vocabularies(self):
        folder = self.vocabulary(500_000)
        self.bounded(Measured("run", folder, "--prompt", "a", "-n", 1), folder, (0,))
        folder = self.vocabulary(5_000_000)
        run = Measured("run", folder, "--prompt", "a", "-n", 1)
        self.bounded(run, folder, (2,))
        self.assertIn("vocab has more than", run.err)

    def test_memory_that_is_not_there(self):
        folder = self.vocabulary(500_000)
        for mebibytes in (120, 160, 200, 240):
            with self.subTest(mebibytes):
                run = Measured("run", folder, "--prompt", "a", "-n", 1, address_space=mebibytes << 20)
                self.bounded(run, folder, (1, 2))  # 1: the tokenizer had room, the weights have none

    def interrupted(self, folder, *arguments, after=0.5):
        run = Measured(*arguments, interrupt_after=after)
        self.assertTrue(run.was_running, run)
        self.assertEqual(run.code, 130, run)
        self.assertLess(run.computed, AT_ONCE, run)
        return run

    def test_an_interrupt_ends_a_search(self):
        text = self.folder / "text"
        text.write_text(PATTERNS[SLOW])
        for make in (self.split, self.replace):
            folder = make(SLOW)
            self.interrupted(folder, "run", folder, "--prompt", PATTERNS[SLOW])
        self.interrupted(folder, "perplexity", folder, text)
        run = self.interrupted(folder, "run", folder, "--prompt", PATTERNS[SLOW], "--json")
        answer = json.loads(run.out)
        self.assertEqual((answer["finish_reason"], answer["output_ids"], answer["text"]), ("cancelled", [], ""))

    def test_an_interrupt_ends_loading(self):
        folder = self.vocabulary(1_000_000)
        for arguments in (["run", folder, "--prompt", "a"], ["chat", folder], ["inspect", folder], ["bench", folder]):
            with self.subTest(arguments[0]):
                self.interrupted(folder, *arguments, after=0.3)

    def test_an_interrupt_leaves_the_conversation(self):
        """A regular expression that nothing stops runs on, and the conversation goes on without it."""
        folder = self.model({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": SLOW}, "behavior": "Isolated", "invert": False}}, tokenizer_config=json.dumps({"chat_template": "{{ messages[-1].content }}"}))
        with subprocess.Popen([cli_case.SITU, "chat", folder, "-n", "4", "--ignore-eos", "--threads", "1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env={**os.environ, "SITU_CACHE_DIR": ""}) as process:
            process.stdin.write(PATTERNS[SLOW] + "\n")
            process.stdin.flush()
            time.sleep(1)
            process.send_signal(signal.SIGINT)
            self.assertIn("interrupted before the reply began", process.stderr.readline())
            out, err = process.communicate("Hi\n/exit\n", timeout=cli_case.PATIENCE)
            self.assertEqual((process.returncode, len(out)), (0, 5), err)

if __name__ == "__main__":
    main()
