"""Runs what the documents show: docs_test.py [BUILD_DIR] (default: build).

Every fenced block of these languages is a test, unless the line `<!-- not run: REASON -->` stands directly before it:
  sh      is run by `sh -eu` in a folder that looks like the root of the project, where `situ` is that of BUILD_DIR, names of models
          are those of a hub on loopback, and 8080 is a free port;
  python  is run in the same folder by python_test, which has the package; blocks that import openai are serve_clients_test's;
  js      is serve_clients_test's;
  cpp     is compiled with include/ and warnings as errors.
README.md has at most four blocks that are not run.
"""

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import numpy as np

import hub_case
import tiny_encoders
import tiny_speech
from sampling_test import write_chat_model

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path("build")
DOCUMENTS = ["README.md", "HACKING.md", *sorted(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md"))]
LANGUAGES = ("sh", "python", "js", "cpp")
DEMO_MODEL = "smollm2-135m-instruct"
MOST_NOT_RUN = 4  # in README.md
TIMEOUT_S = 300
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: "


def blocks(text):
    """[(line, language, code, why it is not run)] of the blocks of LANGUAGES. Raises ValueError for a mark without a block."""
    found, lines, number = [], text.split("\n"), 0
    while number < len(lines):
        mark = re.fullmatch(r"<!-- not run: (.+) -->", lines[number].strip())
        fence = number + 1 if mark else number
        match = re.fullmatch(r"```(\w*)", lines[fence]) if fence < len(lines) else None
        if mark and not (match and match.group(1) in LANGUAGES):
            raise ValueError(f"line {number + 1}: <!-- not run: ... --> stands before a block of {', '.join(LANGUAGES)}")
        if match:
            number = end_of(lines, fence)
            if match.group(1) in LANGUAGES:
                found.append((fence + 1, match.group(1), "\n".join(lines[fence + 1 : number]) + "\n", mark.group(1) if mark else None))
        number += 1
    return found


def end_of(lines, fence):
    for number in range(fence + 1, len(lines)):
        if lines[number].startswith("```"):
            return number
    raise ValueError(f"line {fence + 1}: this block has no end")


def demo_model():
    """The folder of the demo model, or None."""
    shared = Path(os.environ.get("SITU_SHARED") or ROOT.parent / "shared")
    for folder in (ROOT / ".models" / DEMO_MODEL, shared / "models" / (DEMO_MODEL + "-int4")):
        if (folder / "genai_config.json").is_file():
            return folder.resolve()
    return None


def language_model(folder):
    """The demo model, or where it is not there a tiny one that knows as many letters."""
    if demo_model():
        return demo_model()
    write_chat_model(folder, TEMPLATE, context=4096)
    words = (folder / "tokenizer.json").read_text()
    (folder / "tokenizer.json").write_text(words.replace('"~"', '"\\n"'))
    return folder


class World:
    """A hub with the models that the documents name, its cache, and files that they read."""

    def __init__(self, folder):
        self.hub = hub_case.Hub()
        self.model = language_model(folder / "language")
        plain = tiny_encoders.write(folder / "embeds", tiny_encoders.encoder(tiny_encoders.weights()))
        pairs = tiny_encoders.write(folder / "pairs", tiny_encoders.encoder(tiny_encoders.weights(), labels=np.ones((tiny_encoders.WIDTH, 1))))
        speech = tiny_speech.write_folder(folder / "speech", tiny_speech.make_weights(1))
        for name, of in (("HuggingFaceTB/SmolLM2-360M-Instruct", self.model), ("Xenova/bge-small-en-v1.5", plain), ("Xenova/bge-reranker-base", pairs), ("onnx-community/whisper-base", speech)):
            self.hub.add(name, {path: data for path, data in hub_case.files_of(of).items() if "expected" not in path})
        self.environment = {**os.environ, **self.hub.environment(folder / "home"), "SITU_CACHE_DIR": "", "PATH": f"{BUILD.resolve()}:{os.environ['PATH']}"}

    def run(self, command):
        """A command in a folder that looks like the root."""
        with tempfile.TemporaryDirectory() as folder:
            self.root_copy(Path(folder))
            return subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S, env=self.environment)

    def root_copy(self, folder):
        """Links in `folder` to everything in the root, with `build`, the demo model and the files of examples put in place."""
        for entry in ROOT.iterdir():
            if entry.name not in {"build", ".models", ".git"}:
                (folder / entry.name).symlink_to(entry)
        (folder / "build").symlink_to(BUILD.resolve())
        (folder / ".models").mkdir()
        (folder / ".models" / DEMO_MODEL).symlink_to(self.model)
        tiny_speech.write_wav(folder / "talk.mp3", tiny_speech.tones(3))
        for name in ("question.txt", "notes.txt", "texts.txt"):
            (folder / name).write_text("When does summer start?\nIn June.\n")


class Recipes(unittest.TestCase):
    """"Add a ..." sections of HACKING.md: the files that they name exist, and are no more than the heading allows."""

    def sections(self):
        text = (ROOT / "HACKING.md").read_text(encoding="utf-8")
        for section in re.split(r"^## ", text, flags=re.MULTILINE):
            heading = re.match(r"Add .* \(at most (\d+) files\)", section)
            if heading:
                yield section.split("\n")[0], int(heading.group(1)), section

    def test_files_exist(self):
        found = 0
        for heading, most, section in self.sections():
            steps = [line for line in section.split("\n") if re.match(r"\d+\. ", line)]
            self.assertLessEqual(len(steps), most, heading)
            for path in re.findall(r"`([a-z_]+/[\w./]+\.(?:cc|h|inc|txt|py))`", section):
                found += 1
                self.assertTrue((ROOT / "src" / path).is_file() or (ROOT / path).is_file(), f"{heading}: {path}")
        self.assertGreater(found, 10)


class Documents(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not (BUILD / "situ").is_file():
            raise unittest.SkipTest(f"{BUILD}/situ is not built")
        cls.folder = Path(tempfile.mkdtemp(prefix="situ_docs_"))
        cls.world = World(cls.folder)

    @classmethod
    def tearDownClass(cls):
        cls.world.hub.close()
        shutil.rmtree(cls.folder)

    def test_blocks(self):
        for document in DOCUMENTS:
            found = blocks((ROOT / document).read_text(encoding="utf-8"))
            if document == "README.md":
                self.assertLessEqual(sum(why is not None for *_, why in found), MOST_NOT_RUN)
                self.assertGreater(len(found), 5)
            for line, language, code, why in found:
                if why is None and language in ("sh", "cpp"):
                    with self.subTest(block=f"{document}:{line}"):
                        (self.run_shell if language == "sh" else self.compile)(code)

    def test_the_readme_is_short(self):
        text = (ROOT / "README.md").read_text(encoding="utf-8")
        self.assertLessEqual(text.count("\n"), 150)
        self.assertLessEqual(len(text.split()), 1000)

    def run_shell(self, code):
        with socket.create_server(("127.0.0.1", 0)) as free:
            code = code.replace("8080", str(free.getsockname()[1]))  # the default port may be somebody's
        done = self.world.run(["sh", "-eu", "-c", code])
        self.assertEqual(done.returncode, 0, f"\n{code}{done.stdout}{done.stderr}")

    def compile(self, code):
        compiler = [os.environ.get("CXX", "c++"), "-std=c++20", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
        done = subprocess.run(compiler + ["-I", str(ROOT / "include"), "-x", "c++", "-"], input=code, capture_output=True,
                              text=True, timeout=TIMEOUT_S)
        self.assertEqual(done.returncode, 0, f"\n{code}{done.stderr}")

    def test_links_lead_to_files(self):
        wrong = []
        for path in [ROOT / d for d in DOCUMENTS]:
            text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL) if path.is_file() else ""
            for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
                if "://" not in target and not (path.parent / target).exists():
                    wrong.append(f"{path.relative_to(ROOT)}: {target}")
        self.assertEqual(wrong, [])


class Finder(unittest.TestCase):
    def test_blocks_are_found(self):
        text = "a\n```text\n<!-- not run: x -->\n```\n<!-- not run: slow -->\n```sh\nno\n```\n```cpp\nint i;\n```\n```\nplain\n```\n"
        self.assertEqual(blocks(text), [(6, "sh", "no\n", "slow"), (9, "cpp", "int i;\n", None)])

    def test_a_mark_without_a_block_is_an_error(self):
        for text in ("<!-- not run: x -->\n\n```sh\nx\n```\n", "<!-- not run: x -->", "<!-- not run: x -->\n```text\n```\n", "```sh\nx\n"):
            with self.assertRaises(ValueError):
                blocks(text)

    def test_a_block_that_fails_is_a_failure(self):
        with self.assertRaises(AssertionError):
            Documents().compile("int f() { return x; }\n")


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-") and Path(sys.argv[1]).is_dir():
        BUILD = Path(sys.argv.pop(1)).resolve()
    else:
        BUILD = ROOT / "build"
    unittest.main(verbosity=2)
