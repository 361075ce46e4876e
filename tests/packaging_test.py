"""What packages are made by and of, without making one: scripts/check_linked.py, ISAs of the sources, files of packages.

    python3 tests/packaging_test.py [BUILD_DIR]
"""
import json
import re
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
import check_linked  # noqa: E402

BUILD = Path(sys.argv.pop(1)) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else ROOT / "build"
SYMBOLS = "0000000000000000      DF *UND*\t0000000000000000 (GLIBC_{}) {}\n"
DYNAMIC = "  NEEDED               {}\n"
# Archives that are not compiled here may have code for some CPUs only.
THIRD_PARTY_ISAS = {
    "libsitu_text.a": "crates choose by CPUID at run time: memchr, ring, zlib-rs, rustfft",
    "libjpeg.a": "libjpeg-turbo chooses by CPUID at run time (jsimdcpu.asm)",
    "libsentencepiece.a": "has none",
    "libz.a": "has none",
}


class LinkedTest(unittest.TestCase):
    def faults(self, symbols, libraries, allowed=(), more=""):
        return check_linked.faults("".join(SYMBOLS.format(*s) for s in symbols), "".join(map(DYNAMIC.format, libraries)) + more, allowed)

    def test_glibc_2_34_and_no_other_library(self):
        good = [("2.2.5", "read"), ("2.34", "dlsym"), ("2.9", "pipe2")]
        self.assertEqual(self.faults(good, ["libm.so.6", "libc.so.6"]), [])
        self.assertEqual(self.faults([*good, ("2.36", "arc4random")], ["libc.so.6"]), ["arc4random is of glibc 2.36"])
        self.assertEqual(self.faults([("2.35", "_dl_find_object")], ["libc.so.6"]), ["_dl_find_object is of glibc 2.35"])
        self.assertEqual(self.faults(good, ["libz.so.1", "libc.so.6"]), ["it needs libz.so.1"])
        self.assertEqual(self.faults(good, ["libgcc_s.so.1", "libc.so.6"], ["libgcc_s.so.1"]), [])
        self.assertEqual(len(self.faults([], [])), 1)
        self.assertEqual(self.faults(good, ["libc.so.6"], more="  RUNPATH              /build/lib\n"), ["it looks for libraries in /build/lib"])


class IsaTest(unittest.TestCase):
    def test_no_file_but_kernels_is_compiled_for_an_isa(self):
        """A file that is compiled for AVX2 could end a program on a CPU without it, before any kernel is chosen."""
        commands = json.loads((BUILD / "compile_commands.json").read_text())
        own = [c for c in commands if "/src/" in c["file"] or "/Unity/" in c["file"]]
        flags = {c["file"]: re.findall(r"(?<!\S)-m(?!tune=|sse2?(?:\s|$))\S+", c["command"]) for c in own if "src/kernels/" not in c["file"]}
        self.assertGreater(len(flags), 30)
        self.assertEqual({f: found for f, found in flags.items() if found}, {})
        kernels = [c for c in own if "src/kernels/" in c["file"] and "-mavx2" in c["command"]]
        self.assertTrue(kernels)  # the pattern would find them

    def test_every_archive_of_packages_stands_in_the_table(self):
        script = (ROOT / "scripts/packaged_libraries.sh").read_text()
        self.assertEqual(set(re.findall(r'\$folder/lib/(lib\w+\.a)|/(lib\w+\.a)" "\$folder/lib"', script)) - {("", "")},
                         {("", "libsentencepiece.a"), ("", "libjpeg.a"), ("libz.a", "")})
        self.assertEqual(set(THIRD_PARTY_ISAS), {"libsitu_text.a", "libsentencepiece.a", "libjpeg.a", "libz.a"})


class FilesTest(unittest.TestCase):
    def test_the_change_log_has_this_version(self):
        version = re.search(r"project\(situ VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
        self.assertIn(f"\n## {version}\n", (ROOT / "CHANGELOG.md").read_text())

    def test_the_page_of_the_server_has_the_unit_of_the_package(self):
        unit = (ROOT / "packaging/deb/situ.service").read_text()
        self.assertIn(f"```ini\n{unit}```\n", (ROOT / "docs/server.md").read_text())

    def test_versions_of_crates_are_exact(self):
        text = (ROOT / "packaging/libraries/Cargo.toml").read_text().partition("[dependencies]")[2]
        self.assertEqual(len(re.findall(r'(?m)^[\w-]+ = "=\d+\.\d+\.\d+"$', text)), 3)


if __name__ == "__main__":
    unittest.main(verbosity=2)
