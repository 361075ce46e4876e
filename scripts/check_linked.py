#!/usr/bin/env python3
"""check_linked.py FILE [LIBRARY...]: a program or a module of a package asks for glibc 2.34 at most, and for no library but
the parts of glibc and those named, and looks for none in a folder of its own. What else it asks for is an error that names it."""
import re
import subprocess
import sys

HIGHEST = (2, 34)  # Debian 12, Ubuntu 22.04, RHEL 9, Amazon Linux 2023
GLIBC = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "ld-linux-x86-64.so.2"}


def faults(symbols, dynamic, allowed):
    """`symbols`, `dynamic`: what objdump -T and -p say."""
    found = []
    for version, name in sorted(set(re.findall(r"\(?GLIBC_([0-9.]+)\)?\s+(\S+)$", symbols, re.MULTILINE))):
        if tuple(map(int, version.split("."))) > HIGHEST:
            found.append(f"{name} is of glibc {version}")
    needed = re.findall(r"^\s+NEEDED\s+(\S+)$", dynamic, re.MULTILINE)
    found += [f"it needs {name}" for name in needed if name not in GLIBC | set(allowed)]
    found += [f"it looks for libraries in {folder}" for folder in re.findall(r"^\s+(?:RPATH|RUNPATH)\s+(\S+)$", dynamic, re.MULTILINE)]
    if "libc.so.6" not in needed:
        found.append("it does not need libc.so.6: objdump says something else than it did")
    return found


def main():
    path, *allowed = sys.argv[1:]
    said = [subprocess.run(["objdump", option, path], check=True, capture_output=True, text=True).stdout for option in ("-T", "-p")]
    if found := faults(*said, allowed):
        sys.exit(f"check_linked: error: {path}: " + "; ".join(found))


if __name__ == "__main__":
    main()
