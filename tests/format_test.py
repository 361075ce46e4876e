#!/usr/bin/env python3
"""C++ is as clang-format leaves it: format_test.py [--fix]

The version is the one of tools/check_requirements.txt, which `make python` installs into .venv: others lay some code out
otherwise.
"""
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

def main():
    program = ROOT / ".venv/bin/clang-format"
    pinned = next(line.split("==")[1] for line in (ROOT / "tools/check_requirements.txt").read_text().splitlines()
                  if line.startswith("clang-format=="))
    try:
        version = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
    except OSError:
        sys.exit(f"format_test: no {program}; run: make python")
    if f"version {pinned}" not in version:
        sys.exit(f"format_test: {version.strip()} is not {pinned}; run: make python")
    files = [f for folder in ("include", "src", "tests", "examples") for kind in ("cc", "h")
             for f in sorted((ROOT / folder).rglob(f"*.{kind}")) if "target" not in f.parts]
    options = ["-i"] if sys.argv[1:] == ["--fix"] else ["--dry-run", "-Werror"]
    done = subprocess.run([program, *options, *files])
    print(f"format_test: {len(files)} files")
    sys.exit(done.returncode != 0 or len(files) < 100)

if __name__ == "__main__":
    main()
