"""`situ transcribe`: the files that it reads and writes, several of them, and what ends it early.

    python tests/speech_files_test.py --situ build/situ [unittest options]

Needs numpy and onnx (`make python`). One test needs a model and a recording of ../shared, or of the folder that SITU_SHARED names.
"""
import contextlib
import itertools
import json
import os
import signal
import struct
import subprocess
import threading
import unittest

import numpy as np

import cli_case
import golden
import tiny_speech as tiny
from cli_case import CliTest, Run, main
from speech_case import FIELDS, SEGMENT_FIELDS, SpeechCase
from tiny_speech import RATE


class FilesTest(SpeechCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.other = cls.folder / "other.wav"
        tiny.write_wav(cls.other, tiny.tones(2, 9))
        cls.want = {f: json.loads(Run("transcribe", cls.model, f, "--json", "--temperature", 0, "--threads", 1).out) for f in (cls.tones, cls.other)}

    def transcribe(self, *options, code=0, **more):
        run = Run("transcribe", self.model, "--temperature", 0, "--threads", 1, *options, **more)
        self.assertEqual((run.code, run.stopped), (code, ""), run)
        return run

    @staticmethod
    def time(seconds, mark="."):
        ms = round(seconds * 1000)
        return f"{ms // 60000:02}:{ms // 1000 % 60:02}{mark}{ms % 1000:03}"

    def expected(self, form, segments):
        times = [(s["start"], s["end"], s["text"].strip()) for s in segments]
        return {"text": "".join(f"[{self.time(a)} --> {self.time(b)}] {text}\n" for a, b, text in times),
                "plain": "".join(f"{text}\n" for _, _, text in times),
                "srt": "".join(f"{i}\n00:{self.time(a, ',')} --> 00:{self.time(b, ',')}\n{text}\n\n" for i, (a, b, text) in enumerate(times, 1)),
                "vtt": "WEBVTT\n\n" + "".join(f"{self.time(a)} --> {self.time(b)}\n{text}\n\n" for a, b, text in times),
                "tsv": "start\tend\ttext\n" + "".join(f"{round(1000 * a)}\t{round(1000 * b)}\t{text}\n" for a, b, text in times)}[form]

    def test_json(self):
        run = self.transcribe(self.tones, "--json")
        self.assertEqual(run.out.count("\n"), 1)
        got = json.loads(run.out)
        self.assertEqual(list(got), FIELDS)
        self.assertEqual(got["audio"], str(self.tones))
        self.assertEqual((got["duration_s"], got["samples_16k"]), (len(self.samples) / RATE, len(self.samples)))
        for segment in got["segments"]:
            self.assertEqual(list(segment), SEGMENT_FIELDS)
        self.assertEqual(got["text"], "".join(s["text"] for s in got["segments"]))
        for name in ("load_ms", "features_ms", "encode_ms", "decode_ms_per_token", "peak_rss_mib"):
            self.assertGreater(got[name], 0, name)
        self.assertEqual(run.err, self.expected("text", got["segments"]))  # as they are decided
        same = json.loads(self.transcribe(self.tones, "--format", "json").out)
        self.assertEqual(same["segments"], got["segments"])

    def test_text_and_subtitles(self):
        segments = self.want[self.tones]["segments"]
        self.assertGreater(len(segments), 5)
        for form in ("text", "srt", "vtt", "tsv"):
            run = self.transcribe(self.tones, "--format", form)
            self.assertEqual((run.out, run.err), (self.expected(form, segments), ""), form)
        run = self.transcribe(self.tones, "--timestamps", "none")
        fixed = self.one(self.tones, "--temperature", 0, "--timestamps", "none")["segments"]
        self.assertEqual(run.out, self.expected("plain", fixed))

    def test_several_files(self):
        run = self.transcribe(self.tones, self.other)
        self.assertEqual(run.out, "".join(f"{f}:\n" + self.expected("text", self.want[f]["segments"]) for f in (self.tones, self.other)))
        found = self.run_all(self.other, self.tones, "--temperature", 0)
        self.assertEqual([f["audio"] for f in found], [str(self.other), str(self.tones)])
        self.assertEqual([f["segments"] for f in found], [self.want[f]["segments"] for f in (self.other, self.tones)])

    def test_a_folder_of_files(self):
        for form in ("text", "json", "srt", "vtt", "tsv"):
            out = self.folder / "new" / form
            run = self.transcribe(self.tones, self.other, "--format", form, "-o", out)
            self.assertEqual(run.out, "")
            self.assertEqual(sorted(f.name for f in out.iterdir()), [f"other.{form}", f"tones.{form}"])
            for file in (self.tones, self.other):
                text, segments = (out / f"{file.stem}.{form}").read_text(), self.want[file]["segments"]
                if form == "json":
                    self.assertEqual(json.loads(text)["segments"], segments)
                else:
                    self.assertEqual(text, self.expected("plain" if form == "text" else form, segments))

    def test_refused_before_any_work(self):
        """Before the model is looked for, too."""
        nowhere, out = self.folder / "no model", self.folder / "untouched"
        above = self.folder / "above"
        above.mkdir()
        self.refused(Run("transcribe", nowhere, self.tones, above / "tones.mp3", "-o", out), "tones", "-o", str(self.tones), "above/tones.mp3")
        self.assertFalse(out.exists())
        for form in ("srt", "vtt", "tsv"):
            self.refused(Run("transcribe", nowhere, self.tones, self.other, "--format", form), form, "-o")
        self.refused(Run("transcribe", nowhere, "-", "-"), "'-'", "twice")
        self.refused(Run("transcribe", nowhere, self.tones, "--timestamps", "word", "--naive"), "word", "--naive")
        self.refused(Run("transcribe", nowhere, self.tones, "-o", self.tones), "-o", "tones.wav")

    def test_standard_input(self):
        with self.tones.open("rb") as stdin:
            found = self.one("-", "--temperature", 0, stdin=stdin)
        self.assertEqual((found["audio"], found["segments"]), ("-", self.want[self.tones]["segments"]))
        out = self.folder / "in"
        with self.tones.open("rb") as stdin:
            self.transcribe("-", "--format", "srt", "-o", out, stdin=stdin)
        self.assertEqual((out / "stdin.srt").read_text(), self.expected("srt", self.want[self.tones]["segments"]))
        self.refused(Run("transcribe", self.model, "-", stdin=subprocess.DEVNULL), "stdin", "empty")

    def test_a_bad_file_does_not_stop_the_others(self):
        text = self.folder / "text.wav"
        text.write_text("no audio at all, only words\n" * 20)
        for bad, word in ((self.folder / "missing.wav", "missing.wav"), (text, "text.wav"), (self.folder, str(self.folder))):
            run = self.transcribe(self.tones, bad, self.other, "--json", code=2)
            first, failed, last = map(json.loads, run.out.splitlines())
            self.assertEqual(list(failed), ["audio", "error"])
            self.assertEqual(failed["audio"], str(bad))
            self.assertIn(word, failed["error"])
            self.assertEqual([f["segments"] for f in (first, last)], [self.want[f]["segments"] for f in (self.tones, self.other)])
            self.assertEqual([line for line in run.err.splitlines() if line.startswith("situ: ")], [f"situ: {failed['error']}"])
        out = self.folder / "some"
        run = self.transcribe(self.tones, self.folder / "missing.wav", self.other, "--format", "srt", "-o", out, code=2)
        self.assertEqual(sorted(f.name for f in out.iterdir()), ["other.srt", "tones.srt"])
        self.assertEqual(run.out, "")
        # An object that an earlier run left does not look like this one's.
        (out / "missing.json").write_text("{}")
        self.transcribe(self.folder / "missing.wav", self.other, "--format", "json", "-o", out, code=2)
        self.assertEqual(list(json.loads((out / "missing.json").read_text())), ["audio", "error"])
        self.assertIn("segments", json.loads((out / "other.json").read_text()))
        (out / "tones.tsv").mkdir()
        self.refused(Run("transcribe", self.model, self.tones, "--format", "tsv", "-o", out), "tones.tsv", code=1)
        self.assertFalse(list(out.glob("*.part")))
        self.refused(Run("transcribe", self.model, self.folder / "missing.wav"), "missing.wav")

    def test_bad_options_are_said_once(self):
        self.refused(Run("transcribe", self.model, self.tones, self.other, "--language", "xx"), "unknown language 'xx'")
        self.refused(Run("transcribe", self.model, self.tones, self.other, "--patience", "0"), "patience")

    def test_a_truncated_file(self):
        """What there is is transcribed; the exit code and a line say that there should be more."""
        cut = self.folder / "cut.wav"
        cut.write_bytes(self.tones.read_bytes()[:44 + 2 * int(2.5 * RATE)])
        file, _ = self.wav("whole.wav", self.samples[:int(2.5 * RATE)])
        want = self.one(file, "--temperature", 0)
        found = self.one(cut, "--temperature", 0, code=2)
        self.assertEqual(list(found), [*FIELDS, "error"])
        self.assertEqual((found["segments"], found["duration_s"]), (want["segments"], 2.5))
        self.assertIn("cut.wav", found["error"])
        run = self.transcribe(cut, code=2)
        self.assertEqual(run.out, self.expected("text", want["segments"]))
        self.assertRegex(run.err, r"\Asitu: [^\n]*cut\.wav[^\n]*2\.50 s of 4\.30 s[^\n]*\n\Z")

    def test_a_file_from_the_middle(self):
        """A note says what is no audio, in JSON and on stderr."""
        whole = golden.SHARED.parent / "audio" / "1272-141231-0002.mp3"
        if not whole.is_file():
            self.skipTest("no audio/1272-141231-0002.mp3 in ../shared or SITU_SHARED")
        cut = self.folder / "middle.mp3"
        cut.write_bytes(whole.read_bytes()[-20000:])
        note = r"[0-9]+ bytes in front of the first mp3 frame are no audio and were left out"
        found = self.one(cut, "--temperature", 0)
        self.assertRegex(found["notes"][0], rf"\A{note}\Z")
        self.assertGreater(found["duration_s"], 2)
        self.assertRegex(self.transcribe(cut).err, rf"(?m)^situ: note: {cut}: {note}$")

    def test_samples_that_are_no_numbers(self):
        """What was decoded before them is kept."""
        for bad in (np.nan, np.inf):
            samples = np.float32(self.samples)
            samples[4 * RATE] = bad
            file = self.folder / "float.wav"
            head = b"RIFF" + struct.pack("<I", 36 + samples.nbytes) + b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 3, 1, RATE, 4 * RATE, 4, 32)
            file.write_bytes(head + b"data" + struct.pack("<I", samples.nbytes) + samples.tobytes())
            found = self.one(file, "--temperature", 0, code=2)
            self.assertEqual(list(found), [*FIELDS, "error"])
            self.assertIn("float.wav", found["error"])
            self.assertTrue(found["segments"])
            self.assertEqual(found["segments"], self.want[self.tones]["segments"][:len(found["segments"])])
            run = self.transcribe(file, code=2)
            self.assertEqual(run.out, self.expected("text", found["segments"]))
            self.assertEqual(run.err, f"situ: {found['error']}\n")

    def test_nobody_reads(self):
        with open("/dev/full", "wb") as full:
            for options in ([], ["--json"], ["--format", "srt"], [self.other], ["--json", self.folder / "missing.wav", self.other]):
                done = subprocess.run([cli_case.SITU, "transcribe", self.model, self.tones, *options], stdout=full, stderr=subprocess.PIPE)
                self.assertEqual(done.returncode, 1, options)
                self.assertTrue(done.stderr.endswith(b"situ: standard output cannot be written\n"), done.stderr)
                self.assertNotIn(b"missing.wav", done.stderr, "no other file is begun")

    def test_progress_on_a_terminal(self):
        master, terminal = cli_case.open_terminal()
        process = subprocess.Popen([cli_case.SITU, "transcribe", self.model, self.tones, "--temperature", "0", "--threads", "1"], stdout=subprocess.PIPE, stderr=terminal)
        os.close(terminal)
        shown = b""
        with contextlib.suppress(OSError):  # the end: nobody has the terminal open
            while piece := os.read(master, 1 << 16):
                shown += piece
        os.close(master)
        out, _ = process.communicate(timeout=cli_case.PATIENCE)
        shown = shown.decode()
        self.assertEqual((process.returncode, out.decode()), (0, self.expected("text", self.want[self.tones]["segments"])))
        loading = r"(\r\x1b\[K(loading [^\r]*)?)*"  # where that takes longer than a second
        self.assertRegex(shown, rf"\A{loading}\r\[ {{40}}\]   0% 0 s\r\x1b\[K")
        self.assertRegex(shown, r"\[#{30,40} *\] +[0-9]+% 4 s\r\x1b\[K\Z")

    def test_an_interrupt(self):
        long, _ = self.wav("long.wav", np.tile(self.samples, 100))
        for options in ([], ["--json"]):
            with self.subTest(options):
                process = subprocess.Popen([cli_case.SITU, "transcribe", self.model, long, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                           env={**os.environ, "SITU_CACHE_DIR": ""})
                first = (process.stderr if options else process.stdout).readline()
                process.send_signal(signal.SIGINT)
                out, err = process.communicate(timeout=cli_case.PATIENCE)
                self.assertEqual(process.returncode, 130, err)
                self.assertRegex(first.decode(), r"\A\[00:0")
                if options:
                    found = json.loads(out)
                    self.assertEqual((list(found), found["cancelled"]), ([*FIELDS, "cancelled"], True))
                    self.assertTrue(found["segments"])
                    self.assertLess(len(found["segments"]), 500)

    def test_an_interrupt_leaves_files_as_they_are(self):
        long, _ = self.wav("long.wav", np.tile(self.samples, 100))
        out = self.folder / "whole"
        out.mkdir()
        (out / "long.json").write_text("whole")
        process = subprocess.Popen([cli_case.SITU, "transcribe", self.model, long, "--format", "json", "-o", out], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env={**os.environ, "SITU_CACHE_DIR": ""})
        process.stderr.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=cli_case.PATIENCE)
        self.assertEqual((process.returncode, err.decode().splitlines()[-1]), (130, f"situ: interrupted: {out / 'long.json'} is not written"))
        self.assertEqual([(f.name, f.read_text()) for f in out.iterdir()], [("long.json", "whole")])

    def test_an_interrupt_where_nobody_speaks(self):
        """A recording without an end, of which no window is ever whole."""
        header = struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 2**31 - 1, b"WAVE", b"fmt ", 16, 1, 1, RATE, 2 * RATE, 2, 16, b"data", 2**31 - 37)

        def feed(to, begun):
            with contextlib.suppress(BrokenPipeError), to:
                to.write(header)
                for i in itertools.count():
                    to.write(bytes(2**16))
                    if i == 16:  # more than a pipe holds
                        begun.set()

        for options in (["--vad"], ["--batched"], ["--vad", "--json"]):
            with self.subTest(options):
                process = subprocess.Popen([cli_case.SITU, "transcribe", self.model, "-", *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                           stderr=subprocess.PIPE, env={**os.environ, "SITU_CACHE_DIR": ""})
                begun, stdin = threading.Event(), process.stdin
                process.stdin = None  # the other thread's
                writer = threading.Thread(target=feed, args=(stdin, begun))
                writer.start()
                self.assertTrue(begun.wait(cli_case.PATIENCE))
                process.send_signal(signal.SIGINT)
                out, err = process.communicate(timeout=cli_case.PATIENCE)
                writer.join()
                self.assertEqual(process.returncode, 130, err)
                if "--json" in options:
                    self.assertEqual((json.loads(out)["cancelled"], json.loads(out)["segments"]), (True, []))


@unittest.skipUnless((golden.SHARED / "whisper-base-int8").is_dir() and (golden.SHARED.parent / "audio" / "jfk.flac").is_file(),
                     "no models/whisper-base-int8 and audio/jfk.flac in ../shared or SITU_SHARED")
class RecordingTest(CliTest):
    def test_jfk(self):
        run = Run("transcribe", golden.SHARED / "whisper-base-int8", golden.SHARED.parent / "audio" / "jfk.flac", "--json")
        self.assertEqual((run.code, run.stopped), (0, ""), run)
        found = json.loads(run.out)
        self.assertIn("ask not what your country", found["text"])
        self.assertEqual((found["language"], found["bytes_copied_per_token"]), ("en", 0))
        self.assertAlmostEqual(found["segments"][-1]["end"], 11, delta=0.7)

    def test_the_words_of_jfk(self):
        run = Run("transcribe", golden.SHARED / "whisper-base-int8", golden.SHARED.parent / "audio" / "jfk.flac", "--json", "--language", "en", "--timestamps", "word")
        self.assertEqual((run.code, run.stopped), (0, ""), run)
        words = {w["word"].strip(" ,."): w for s in json.loads(run.out)["segments"] for w in s["words"]}
        for word, start, end in (("fellow", 1.18, 1.54), ("Americans", 1.54, 2.1), ("country", 9.94, 10.36)):  # the last of each
            self.assertAlmostEqual(words[word]["start"], start, delta=0.2)
            self.assertAlmostEqual(words[word]["end"], end, delta=0.2)


if __name__ == "__main__":
    main()
