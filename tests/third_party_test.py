"""Licence texts of what packages link (scripts/third_party.py): each crate and library has one, and one without is told.

    .venv/bin/python tests/third_party_test.py
"""
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
import third_party  # noqa: E402

CARGO = subprocess.run([ROOT / "scripts/find_cargo.sh"], check=True, capture_output=True, text=True).stdout.strip()
# What CMake files look for, and its entry.
LIBRARIES = {"protozero/pbf_message.hpp": "protozero", "xxhash.h": "xxHash", "jpeglib.h": "libjpeg-turbo", "toml++/toml.h": "toml++", "nlohmann_json": "nlohmann-json",
             "CLI11": "CLI11", "sentencepiece_processor.h": "SentencePiece", "sentencepiece": "SentencePiece", "nanobind": "nanobind", "z": "zlib", "jpeg": "libjpeg-turbo"}
NOT_LINKED = {"Threads", "GTest", "Python", "Python3", "situ"}


class ThirdPartyTest(unittest.TestCase):
    def test_all_have_a_text(self):
        sections = list(third_party.sections(CARGO, None, offline=True))
        for name, texts, _ in sections:
            self.assertTrue(texts and all(len(text) > third_party.SHORTEST for _, text in texts), name)
        text = third_party.written(sections)
        for name in ("symphonia 0", "tokenizers 0", "ring 0", "opusic-sys 0", "onig_sys", "Rust's standard library", "nanobind", "CLI11", "libstdc++"):
            self.assertTrue(re.search(rf"(?m)^{re.escape(name)}.*: text \d", text), name)
        self.assertTrue(re.search(r"(?mi)^symphonia-core .*\n    Used as published. Its source: https://\S+symphonia", text))
        self.assertTrue("Mozilla Public License" in text)
        self.assertLessEqual(text.count("Mozilla Public License Version 2.0"), 2, "a text stands there once")

    def test_every_library_that_cmake_looks_for_has_an_entry(self):
        found = set()
        for path in (ROOT / "CMakeLists.txt", *(ROOT / "src").rglob("CMakeLists.txt")):
            text = path.read_text()
            found |= set(re.findall(r"find_package\((\w+)", text)) | set(re.findall(r"find_(?:path|library)\(\w+ ([\w/.+]+)", text))
        self.assertIn("xxhash.h", found)
        self.assertEqual(found - NOT_LINKED - set(LIBRARIES), set(), "give it an entry in scripts/third_party.py and here")
        entries = {*third_party.HEADERS, *third_party.PACKAGED, "nanobind"}
        self.assertEqual(set(LIBRARIES.values()) - entries, set())

    def test_one_without_a_text_is_told(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            package = {"name": "bare", "version": "1.0.0", "license": "MIT", "manifest_path": str(folder / "Cargo.toml")}
            with self.assertRaisesRegex(third_party.Missing, "the crate bare 1.0.0"):
                third_party.crate_section(package)
            (folder / "LICENSE").write_text("LICENSE-MIT\n")  # a link
            with self.assertRaises(third_party.Missing):
                third_party.crate_section(package)
            (folder / "LICENSE-MIT").write_text(text := "Permission is hereby granted" * 10)
            self.assertEqual(third_party.crate_section(package)[1], [("LICENSE-MIT", text)])
            with self.assertRaisesRegex(third_party.Missing, "CLI11"):
                third_party.debian_section("CLI11", "libcli11-dev", folder)
            with self.assertRaisesRegex(third_party.Missing, "SentencePiece"):
                list(third_party.packaged_sections(folder))


if __name__ == "__main__":
    unittest.main(verbosity=2)
