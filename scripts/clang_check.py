#!/usr/bin/env python3
"""Compiles everything with clang (16 or newer) as far as its warnings go, without code: clang_check.py [--library] [PART OF A PATH]...
With --library tests are left out.

Clang warns of other things than GCC, and refuses what is GCC's alone. A finding fails; the last line counts them.
With --find it prints the name of the compiler and does nothing else; with --find-sanitizing, of one that has the libraries
of its sanitizers, which Debian has in a package of their own.
"""
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "clang"

def said_by(name, option):
    return subprocess.run([name, option], capture_output=True, text=True).stdout.strip()

def find_clang(sanitizing=False):
    runtime = f"libclang_rt.asan-{platform.machine()}.a"
    for name in ("clang++", *(f"clang++-{v}" for v in range(25, 15, -1))):
        if shutil.which(name) and int(re.match(r"\d*", said_by(name, "-dumpversion"))[0] or 0) >= 16:
            # Of a library that is not there it prints the name alone.
            if not sanitizing or os.path.isabs(said_by(name, f"-print-file-name={runtime}")):
                return name
    what = " with the libraries of its sanitizers" if sanitizing else ""
    sys.exit(f"clang_check: no clang++ of version 16 or newer{what}; run scripts/install_deps.sh checks")

def configure():
    # Debug has no files that are built at once (src/CMakeLists.txt): compiled_already() knows each by its name.
    clang, cargo = find_clang(), subprocess.run([ROOT / "scripts/find_cargo.sh"], capture_output=True, text=True).stdout.strip()
    path = f"{Path(cargo).parent}:{os.environ['PATH']}"
    done = subprocess.run(["cmake", "--preset", "release", "-B", BUILD, f"-DCMAKE_CXX_COMPILER={clang}", f"-DCMAKE_C_COMPILER={clang.replace('++', '')}",
                           "-DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON", "-DSITU_ONLY_ISAS=avx512",
                           "-DCMAKE_BUILD_TYPE=Debug"], cwd=ROOT, env={**os.environ, "PATH": path}, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"clang_check: cmake failed\n{done.stdout}{done.stderr}")

def compiled_already():
    """The files that clang compiled for the lane of the sanitizers, with the same warnings: they need no second look."""
    build = ROOT / "build" / "sanitize"
    cache = build / "CMakeCache.txt"
    if not cache.exists() or not re.search(r"^CMAKE_CXX_COMPILER:\w+=.*clang", cache.read_text(), re.MULTILINE):
        return set()
    deps = subprocess.run(["ninja", "-C", build, "-t", "deps"], capture_output=True, text=True).stdout
    compiled, changed = set(), {}
    for entry in re.split(r"\n(?=\S)", deps):
        first, *lines = entry.strip().splitlines() or [""]
        out, files = build / first.split(":")[0], [(build / line.strip()).resolve() for line in lines]
        if "(VALID)" not in first or not out.exists():
            continue
        for file in files:
            if file not in changed:
                changed[file] = file.stat().st_mtime if file.exists() else float("inf")
        if all(changed[file] <= out.stat().st_mtime for file in files):  # none was written since
            compiled |= {str(file) for file in files if file.suffix == ".cc"}
    return compiled

def check(entry):
    words = shlex.split(entry["command"])
    out = words.index("-o")
    del words[out:out + 2]
    done = subprocess.run([*words, "-Werror", "-fsyntax-only"], cwd=entry["directory"], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr

def main():
    if sys.argv[1:] in (["--find"], ["--find-sanitizing"]):
        print(find_clang(sanitizing=sys.argv[1] == "--find-sanitizing"))
        return
    configure()
    # Kernels are in no lane of the sanitizers: AVX-512's stand for all.
    compiled = compiled_already()
    parts = [part for part in sys.argv[1:] if part != "--library"]
    entries = [e for e in json.loads((BUILD / "compile_commands.json").read_text()) if all(part in e["file"] for part in parts)]
    if "--library" in sys.argv[1:]:
        entries = [e for e in entries if not e["file"].startswith(str(ROOT / "tests")) and not e["file"].endswith("_test.cc")]
    entries = [e for e in entries if e["file"] not in compiled and "SITU_ISA=portable" not in e["command"]]
    failed = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for code, output in pool.map(check, entries):
            failed += code != 0
            if output:
                print(output)
    print(f"{len(compiled)} files were compiled by clang for the sanitizers")
    print(f"clang_check: {len(entries) - failed} passed, {failed} failed")
    sys.exit(failed > 0 or not entries)

if __name__ == "__main__":
    main()
