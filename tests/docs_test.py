#!/usr/bin/env python3
"""Runs what the documents show: docs_test.py [BUILD_DIR] (default: build).

A fenced block is a test if the line `<!-- test -->` stands directly before it:
  sh    is run by `sh -eu` in a folder that looks like the root of the project, where `build` is BUILD_DIR and
        `.models/smollm2-135m-instruct` is the demo model, or its copy under ../shared/models; 8080 is a free port;
  cpp   is compiled with include/ and warnings as errors.
"""

import os
import re
import socket
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path("build")
DOCUMENTS = ["README.md", "HACKING.md"]
DEMO_MODEL = "smollm2-135m-instruct"
TIMEOUT_S = 300


def blocks(text):
    """[(line, language, code)] of the marked blocks. Raises ValueError for a mark without a block."""
    found = []
    lines = text.split("\n")
    number = 0
    while number < len(lines):
        if lines[number].startswith("```"):  # an unmarked block: what stands in it is no mark
            number = end_of(lines, number)
        elif lines[number].strip() == "<!-- test -->":
            fence = number + 1
            match = re.fullmatch(r"```(sh|cpp)", lines[fence]) if fence < len(lines) else None
            if not match:
                raise ValueError(f"line {number + 1}: <!-- test --> stands before a ```sh or ```cpp block")
            number = end_of(lines, fence)
            found.append((fence + 1, match.group(1), "\n".join(lines[fence + 1 : number]) + "\n"))
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


def root_copy(folder):
    """Links in `folder` to everything in the root, with `build` and the demo model put in place."""
    for entry in ROOT.iterdir():
        if entry.name not in {"build", ".models", ".git"}:
            (folder / entry.name).symlink_to(entry)
    (folder / "build").symlink_to(BUILD.resolve())
    (folder / ".models").mkdir()
    if demo_model():
        (folder / ".models" / DEMO_MODEL).symlink_to(demo_model())


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
    def test_marked_blocks(self):
        tested = 0
        for document in DOCUMENTS:
            path = ROOT / document
            for line, language, code in blocks(path.read_text(encoding="utf-8")) if path.is_file() else []:
                tested += 1
                with self.subTest(block=f"{document}:{line}"):
                    (self.run_shell if language == "sh" else self.compile)(code)
        self.assertGreater(tested, 0, "no block is marked with <!-- test -->")

    def run_shell(self, code):
        if "build/" in code and not (BUILD / "situ").is_file():
            self.fail(f"{BUILD}/situ is not built")
        if ".models/" in code and not demo_model():
            self.skipTest("the demo model is not there (make model)")
        with socket.create_server(("127.0.0.1", 0)) as free:
            code = code.replace("8080", str(free.getsockname()[1]))  # the default port may be somebody's
        with tempfile.TemporaryDirectory() as folder:
            root_copy(Path(folder))
            done = subprocess.run(["sh", "-eu", "-c", code], cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S,
                                  env={**os.environ, "SITU_CACHE_DIR": ""})
        self.assertEqual(done.returncode, 0, f"\n{code}{done.stdout}{done.stderr}")

    def compile(self, code):
        compiler = [os.environ.get("CXX", "c++"), "-std=c++20", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
        done = subprocess.run(compiler + ["-I", str(ROOT / "include"), "-x", "c++", "-"], input=code, capture_output=True,
                              text=True, timeout=TIMEOUT_S)
        self.assertEqual(done.returncode, 0, f"\n{code}{done.stderr}")

    def test_links_lead_to_files(self):
        wrong = []
        for path in [ROOT / d for d in DOCUMENTS] + sorted((ROOT / "docs").glob("*.md")):
            text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL) if path.is_file() else ""
            for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
                if "://" not in target and not (path.parent / target).exists():
                    wrong.append(f"{path.relative_to(ROOT)}: {target}")
        self.assertEqual(wrong, [])


class Finder(unittest.TestCase):
    def test_only_marked_blocks_are_found(self):
        text = "a\n```sh\nno\n<!-- test -->\n```\n<!-- test -->\n```sh\nyes\n```\n<!-- test -->\n```cpp\nint i;\n```\n"
        self.assertEqual(blocks(text), [(7, "sh", "yes\n"), (11, "cpp", "int i;\n")])

    def test_a_mark_without_a_block_is_an_error(self):
        for text in ("<!-- test -->\n\n```sh\nx\n```\n", "<!-- test -->", "<!-- test -->\n```python\n```\n", "```sh\nx\n"):
            with self.assertRaises(ValueError):
                blocks(text)

    def test_a_block_that_fails_is_a_failure(self):
        for check, code in ((Documents().run_shell, "false\ntrue\n"), (Documents().compile, "int f() { return x; }\n")):
            with self.assertRaises(AssertionError):
                check(code)


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-") and Path(sys.argv[1]).is_dir():
        BUILD = Path(sys.argv.pop(1)).resolve()
    else:
        BUILD = ROOT / "build"
    unittest.main(verbosity=2)
