"""What a terminal, a pipe and Control-C get: control characters, exit codes, and what fails before a model is opened.

    python tests/terminal_test.py --situ build/situ [unittest options]

Needs numpy and onnx (`make python`).
"""
import fcntl
import json
import os
import select
import signal
import struct
import subprocess
import termios
import time

import cli_case
import tiny_exports
import tiny_models
from cli_case import IDS, CliTest, Run, main, open_terminal

ENDLESS = ["-n", 1 << 30, "--ignore-eos", "--window", 40, "--threads", 1]  # constant memory
SECONDS = 300  # for what takes milliseconds

def byte_letters():
    """The letter of the GPT-2 alphabet for each byte."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in plain]
    return {**{b: chr(b) for b in plain}, **{b: chr(0x100 + i) for i, b in enumerate(others)}}

# One byte a token, so that a character of two bytes is split over tokens.
BYTES = [*range(0x41, 0x5B), *range(0x61, 0x7B), *b" ;:[]!?0123456789", 0x00, 0x07, 0x08, 0x09, 0x0A, 0x0D, 0x1B, 0x7F, 0xC2, 0xC3, 0x80, 0x85, 0x9B, 0x9D, 0x9F, 0xA0, 0xA9]
# Text that an attacker's model may write, and what a terminal gets.
TEXT = "a\x1b]0;b\x07c\x08\td\n\x7fe\r\u009b31m\u0085f\u0080\u009f\u00a0\u00e9\x00!"
REGEX = "".join(f"\\x{{{ord(c):x}}}" for c in TEXT)
SHOWN = "".join("\ufffd" if (c < " " and c not in "\n\t") or "\x7f" <= c <= "\x9f" else c for c in TEXT)

def tokenizer_json():
    letters = byte_letters()
    assert len(BYTES) <= tiny_models.VOCABULARY
    vocabulary = {letters[b]: i for i, b in enumerate(BYTES)}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    model = {"type": "BPE", "vocab": vocabulary, "merges": [], "unk_token": None, "byte_fallback": False}
    return json.dumps({"version": "1.0", "added_tokens": [], "truncation": None, "padding": None, "normalizer": None, "post_processor": None, "pre_tokenizer": level, "decoder": level, "model": model})

class Terminal:
    """A program whose standard output, and input, is a terminal that changes nothing."""

    def __init__(self, *arguments):
        self.master, slave = open_terminal()
        settings = termios.tcgetattr(slave)
        settings[1] &= ~termios.OPOST
        settings[3] &= ~termios.ECHO
        termios.tcsetattr(slave, termios.TCSANOW, settings)
        self.process = subprocess.Popen([cli_case.SITU, *map(str, arguments)], stdin=slave, stdout=slave, stderr=subprocess.PIPE, start_new_session=True, env={**os.environ, "SITU_CACHE_DIR": ""},
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(slave)
        self.seen = b""

    def write(self, text):
        os.write(self.master, text.encode())

    def read_until(self, text=None):
        """All that it has written, up to `text`; to the end without one."""
        end = time.monotonic() + SECONDS
        while text is None or text.encode() not in self.seen:
            if not select.select([self.master], [], [], max(0, end - time.monotonic()))[0]:
                raise AssertionError(f"{text!r} is not in {self.seen!r}")
            try:
                piece = os.read(self.master, 4096)
            except OSError:  # nobody has it open any more
                piece = b""
            if not piece:
                break
            self.seen += piece
        return self.seen.decode()

    def end(self):
        self.read_until()
        os.close(self.master)
        err = self.process.stderr.read().decode()
        self.process.stderr.close()
        return self.process.wait(SECONDS), err

class TerminalTest(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = cls.folder / "model"
        tiny_exports.write_model(tiny_models.SPECS[0], cls.model)
        (cls.model / "tokenizer.json").write_text(tokenizer_json())
        (cls.model / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages[-1].content }}"}))

    # -- what is printed

    def test_a_terminal_gets_no_control_characters(self):
        terminal = Terminal("run", self.model, "--prompt", "Hi", "--regex", REGEX, "-n", 60)
        code, err = terminal.end()
        self.assertEqual((code, terminal.seen.decode()), (0, SHOWN + "\n"), err)
        ids = ",".join(str(BYTES.index(b)) for b in TEXT.encode())
        terminal = Terminal("run", self.model, "--prompt-ids", ids, "--echo", "-n", 1, "--logit-bias", "0=1000")
        code, err = terminal.end()
        self.assertEqual((code, terminal.seen.decode()), (0, SHOWN + "A\n"), err)

    def test_other_answers_too(self):
        terminal = Terminal("run", self.model, "--prompt", "Hi", "--beams", 2, "--num-return", 2, "-n", 1, "--logit-bias", f"{BYTES.index(0x1B)}=1000", "--logit-bias", f"{BYTES.index(0x07)}=1000")
        code, err = terminal.end()
        self.assertEqual((code, terminal.seen.decode()), (0, "\ufffd\n--\n\ufffd\n"), err)

    def test_a_character_that_never_becomes_whole(self):
        terminal = Terminal("run", self.model, "--prompt", "Hi", "-n", 1, "--logit-bias", f"{BYTES.index(0xC2)}=1000")
        code, err = terminal.end()
        self.assertEqual((code, terminal.seen.decode()), (0, "\ufffd\n"), err)

    def test_a_conversation_gets_none(self):
        terminal = Terminal("chat", self.model, "--greedy", "--regex", REGEX, "-n", 60)
        terminal.write("Hi\n")
        terminal.read_until("!\n")
        terminal.write("/exit\n")
        code, err = terminal.end()
        self.assertEqual(code, 0, err)
        self.assertEqual(terminal.seen.decode(), f"\x1b[1m> \x1b[0m{SHOWN}\n\x1b[1m> \x1b[0m")

    def test_pipes_and_json_are_exact(self):
        with subprocess.Popen([cli_case.SITU, "run", self.model, "--prompt", "Hi", "--regex", REGEX, "-n", "60"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            self.assertEqual(process.communicate(timeout=SECONDS)[0].decode(), TEXT + "\n")
        answer = Run("run", self.model, "--prompt", "Hi", "--regex", REGEX, "-n", 60, "--json")
        self.assertEqual((answer.code, json.loads(answer.out)["text"]), (0, TEXT), answer)
        terminal = Terminal("run", self.model, "--prompt", "Hi", "--regex", REGEX, "-n", 60, "--json")
        code, err = terminal.end()
        self.assertEqual((code, json.loads(terminal.seen)["text"]), (0, TEXT), err)

    def test_errors_are_spelled_out(self):
        run = Run("run", self.folder / "no\x1b[2J\u009b\u00e9", "--prompt", "a")
        self.refused(run, "no\\x1b[2J\\u009b\u00e9")

    # -- Control-C

    def start(self, *arguments, **pipes):
        return subprocess.Popen([cli_case.SITU, *map(str, arguments)], **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **pipes}, env={**os.environ, "SITU_CACHE_DIR": ""})

    def test_an_interrupt_ends_an_answer(self):
        for options in ([], ["--prompt-lookup", 3], ["--beams", 2]):
            with self.subTest(options=options):
                with self.start("run", self.model, "--prompt", "Hi", *ENDLESS, *options) as process:
                    if options != ["--beams", 2]:  # they print at the end
                        self.assertEqual(len(process.stdout.read(5)), 5)
                    else:
                        time.sleep(0.5)
                    process.send_signal(signal.SIGINT)
                    out, err = process.communicate(timeout=SECONDS)
                self.assertEqual(process.returncode, 130, err)
                self.assertTrue(out.endswith(b"\n") or options == ["--beams", 2])
                self.assertRegex(err.decode(), r"\A\[.*interrupted.*\]\n\Z")

    def test_an_interrupt_with_json(self):
        for seconds in (0, 0.01, 0.05, 0.2, 1):
            with self.subTest(seconds):
                with self.start("run", self.model, "--prompt", "Hi", *ENDLESS, "--json") as process:
                    time.sleep(0.05 + seconds)  # Python's own start of a process, then any place
                    process.send_signal(signal.SIGINT)
                    out, err = process.communicate(timeout=SECONDS)
                self.assertEqual(process.returncode, 130, err)
                answer = json.loads(out)
                self.assertEqual(answer["finish_reason"], "cancelled")
                self.assertRegex(err.decode(), r"\A\[.*interrupted.*\]\n\Z")
        self.assertGreater(len(answer["output_ids"]), 0)
        self.assertGreater(answer["decode_ms_per_token"], 0)

    def test_a_second_interrupt_kills(self):
        """Where the first one cannot end the answer, since nobody reads it."""
        read, write = os.pipe()
        fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
        with self.start("run", self.model, "--prompt-ids", "1", *ENDLESS, stdout=write) as process:
            os.close(write)
            end = time.monotonic() + SECONDS
            while struct.unpack("i", fcntl.ioctl(read, termios.FIONREAD, b"\0" * 4))[0] < 4096:
                self.assertLess(time.monotonic(), end)
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            time.sleep(0.3)
            self.assertIsNone(process.poll())
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.wait(SECONDS), 130)
            process.stderr.read()
        os.close(read)

    def test_no_interrupt_of_a_conversation_is_lost(self):
        """Also between two lines: each gives its own hint."""
        count = 200
        with self.start("chat", self.model, stdin=subprocess.PIPE) as process:
            for _ in range(count):
                process.stdin.write(b"/undo\n")
                process.stdin.flush()
                self.assertIn(b"nothing to forget", process.stderr.readline())
                process.send_signal(signal.SIGINT)
                self.assertEqual((process.stdout.readline(), process.stdout.readline()), (b"\n", b"(/exit or Ctrl-D leaves)\n"))
            process.communicate(b"/exit\n", timeout=SECONDS)
            self.assertEqual(process.returncode, 0)

    def test_an_interrupt_by_the_terminal_ends_a_reply(self):
        terminal = Terminal("chat", self.model, *ENDLESS)
        terminal.write("Hi\n")
        terminal.read_until("\x1b[0m")
        while len(terminal.seen) < 50:
            terminal.seen += os.read(terminal.master, 4096)
        terminal.write("\x03")
        terminal.read_until("\n\x1b[1m> ")
        terminal.write("/exit\n")
        code, err = terminal.end()
        self.assertEqual(code, 0, err)
        self.assertRegex(err, r"prompt tokens, .* new: prefill")

    def test_every_command_ends_with_130(self):
        text = self.folder / "text"
        text.write_text("abc def " * 100000)
        for arguments in (["perplexity", self.model, text, "--context", 16, "--stride", 1], ["bench", self.model, "--streams", 2, "--requests", 100000, "--prompt", "4-4", "--answer", "40-40"]):
            with self.subTest(arguments[0]), self.start(*arguments) as process:
                time.sleep(0.5)
                self.assertIsNone(process.poll())
                process.send_signal(signal.SIGINT)
                out, err = process.communicate(timeout=SECONDS)
                self.assertEqual((process.returncode, err), (130, b"situ: interrupted\n"))

    def test_nobody_reads_the_output(self):
        for arguments in (["run", self.model, "--prompt", "Hi", *ENDLESS], ["run", self.model, "--prompt", "Hi", "--json"], ["inspect", self.model], ["bench", self.model, "-p", 4, "-n", 4, "--reps", 1]):
            for closed in (False, True):
                with self.subTest(arguments[0], closed=closed):
                    read, write = os.pipe()
                    os.close(read)
                    with self.start(*arguments, stdout=write, **({"preexec_fn": lambda: os.close(1)} if closed else {})) as process:
                        os.close(write)
                        _, err = process.communicate(timeout=SECONDS)
                    self.assertEqual((process.returncode, err), (1, b"situ: standard output cannot be written\n") if closed else (141, b""))

    # -- what needs no model

    def test_what_needs_no_model_fails_before_one_is_opened(self):
        bad = self.folder / "bad.txt"
        bad.write_bytes(b"a\xffb")
        nothing = self.folder / "nothing.txt"
        nothing.write_bytes(b"")
        invalid = os.fsdecode(b"a\xffb")
        # A model whose file, once opened, waits for ever.
        model = self.folder / "waits"
        model.mkdir()
        os.mkfifo(model / "model.onnx")
        for arguments, word in ((["run", "--prompt", ""], "empty"), (["run", "--prompt-ids", ""], "empty"), (["run", "--prompt-ids", "1,x"], "'x'"), (["run", "--prompt-ids", "1,,2"], "not a token id"),
                                (["run", "--prompt-ids", "99999999999999999999"], "not a token id"), (["run", "--prompt", invalid], "UTF-8"), (["run", "--prompt", "a", "--system", invalid], "--system"),
                                (["run", "--prompt", "a", "--stop", invalid], "--stop"), (["run", "--prompt", "a", "--bad-words", invalid], "--bad-words"), (["run", "--prompt", "a", "--regex", invalid], "--regex"),
                                (["run", "--prompt", "a", "--json-schema-file", self.folder / "none"], "none"), (["run", "--prompt", "a", "--json-schema-file", bad], "UTF-8"), (["run", "--prompt", "a", "--grammar-file", self.folder], "folder"),
                                (["run", "--prompt", "a", "--logit-bias", "x"], "--logit-bias"), (["run", "--prompt", "a", "--logprobs", 1], "--json"), (["run", "--prompt", "a", "--memory", "many"], "--memory"),
                                (["run", "--prompt", "a", "--trace", "/nowhere/trace"], "/nowhere"), (["chat", "--system", invalid], "--system"), (["chat", "--stop", invalid], "--stop"),
                                (["bench", "-d", "x"], "-d"), (["inspect", "--memory", "many"], "--memory")):
            with self.subTest(arguments):
                run = Run(arguments[0], model, *arguments[1:])
                self.refused(run, word, code=1 if "--trace" in arguments else 2)
                self.assertNotIn(str(model), run.err)
        for file, word in ((self.folder / "none", "none"), (bad, "UTF-8"), (nothing, "0 tokens"), (self.folder, "folder")):
            with self.subTest(file):
                self.refused(Run("perplexity", model, file), word)

if __name__ == "__main__":
    main()
