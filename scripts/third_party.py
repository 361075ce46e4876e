#!/usr/bin/env python3
"""Writes the licence texts of everything that packages link into one file.

    scripts/third_party.py --libraries build/package/libraries --output THIRD-PARTY.txt
    scripts/third_party.py --check      the crates and the headers, without a file: what tests/third_party_test.py runs

The texts are those that lie beside the sources: in the folders of crates, in the documentation of Debian's packages, in
what scripts/packaged_libraries.sh has built. A crate or library without a text is an error that names it.
"""
import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MANIFEST = ROOT / "src/text/rust/Cargo.toml"
TARGET = "x86_64-unknown-linux-gnu"
SHORTEST = 100  # characters; what is shorter is the name of another file, as crates have links
TEXT_NAME = re.compile(r"(?i)(licen[cs]e|copying|copyright|notice|unlicense)([-._].*)?\Z")
# C sources inside of crates, with their texts.
INSIDE = {"onig_sys": ("oniguruma/COPYING",), "opusic-sys": ("opus/COPYING",)}
# Headers, and archives of the compilers: the package of Debian whose copyright file has the text.
HEADERS = {"protozero": "libprotozero-dev", "xxHash": "libxxhash-dev", "nlohmann-json": "nlohmann-json3-dev",
           "CLI11": "libcli11-dev", "toml++": "libtomlplusplus-dev", "libstdc++ and libgcc": "gcc-12-base"}
PACKAGED = ("SentencePiece", "libjpeg-turbo", "zlib")
# Licences that ask for more than their text.
SOURCES = {"MPL-2.0": "Used as published. Its source: {repository}, or the crate of this name and version."}


class Missing(Exception):
    pass


def texts_in(folder, names=()):
    """[(name, text)] of the licence files of a folder, and of folders of such files (LICENSES/)."""
    found = sorted(p for p in folder.iterdir() if TEXT_NAME.match(p.name) and p.suffix not in (".rs", ".py", ".toml"))
    files = [f for p in found for f in ([p] if p.is_file() else sorted(q for q in p.iterdir() if q.is_file()))]
    files += [folder / name for name in names]
    texts = [(str(f.relative_to(folder)), f.read_text(encoding="utf-8", errors="replace").strip()) for f in files]
    return [(name, text) for name, text in texts if len(text) > SHORTEST]


def crates(cargo, offline):
    """The crates of the archive, by `cargo metadata`: what is linked on this target, not what builds or tests it."""
    command = [cargo, "metadata", "--format-version=1", "--locked", "--filter-platform", TARGET, "--manifest-path", str(MANIFEST)]
    data = json.loads(subprocess.run(command + ["--offline"] * offline, check=True, capture_output=True, text=True).stdout)
    packages = {p["id"]: p for p in data["packages"]}
    nodes = {n["id"]: n for n in data["resolve"]["nodes"]}
    waiting, seen = [data["resolve"]["root"]], set()
    while waiting:
        at = waiting.pop()
        if at in seen:
            continue
        seen.add(at)
        for dependency in nodes[at]["deps"]:
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                waiting.append(dependency["pkg"])
    return sorted((packages[i] for i in seen if packages[i]["source"]), key=lambda p: (p["name"], p["version"]))


def crate_section(package):
    folder = Path(package["manifest_path"]).parent
    texts = texts_in(folder, INSIDE.get(package["name"], ()))
    if not texts:
        raise Missing(f"the crate {package['name']} {package['version']} ({package['license']}) has no licence text in {folder}")
    note = [words.format(repository=package["repository"]) for name, words in SOURCES.items() if name in (package["license"] or "")]
    return f"{package['name']} {package['version']} ({package['license']})", texts, note


def debian_section(library, package, documents):
    path = documents / package / "copyright"
    if not path.is_file():
        raise Missing(f"{library}: no licence text: {path} is not there")
    return library, [(path.name, path.read_text(encoding="utf-8", errors="replace").strip())], []


def packaged_sections(folder):
    for library in PACKAGED:
        files = sorted(f for f in (folder / "texts").glob(library + "*"))
        if not (folder / "texts" / library).is_file():
            raise Missing(f"{library}: no licence text in {folder / 'texts'}")
        yield library, [(f.name, f.read_text(encoding="utf-8", errors="replace").strip()) for f in files], []


def nanobind_section():
    import importlib.metadata
    files = [f for f in importlib.metadata.files("nanobind") or [] if TEXT_NAME.match(f.name) or "licenses" in f.parts]
    if not files:
        raise Missing("nanobind: no licence text in its package")
    return "nanobind, with robin-map", [(f.name, f.read_text().strip()) for f in files], []


def rust_section(cargo):
    """Rust's own library, which every archive of rustc carries: its texts come with the compiler."""
    rustc = Path(cargo).with_name("rustc")
    root = Path(subprocess.run([rustc, "--print", "sysroot"], check=True, capture_output=True, text=True).stdout.strip())
    folder = root / "share/doc/rust"
    texts = [(f.name, f.read_text().strip()) for f in (folder / "licenses" / "MIT.txt", folder / "licenses" / "Apache-2.0.txt") if f.is_file()]
    for debian in sorted(Path("/usr/share/doc").glob("libstd-rust-*/copyright")) if not texts else []:
        texts = [(debian.name, debian.read_text(encoding="utf-8", errors="replace").strip())]
    if not texts:
        raise Missing(f"Rust's standard library: no licence text in {folder} or of Debian's package")
    return "Rust's standard library (MIT OR Apache-2.0)", texts, []


def sections(cargo, libraries, offline, documents=Path("/usr/share/doc"), python=True):
    linked = crates(cargo, offline)
    if len(linked) < 50:
        raise Missing(f"cargo knows {len(linked)} crates only")
    yield from map(crate_section, linked)
    yield rust_section(cargo)
    for library, package in HEADERS.items():
        yield debian_section(library, package, documents)
    if libraries:
        yield from packaged_sections(libraries)
    if python:
        yield nanobind_section()


def written(all_sections):
    """One file: an entry for each library, and each text once."""
    numbers, lines = {}, ["Situ is under the Apache License 2.0. Its packages carry these libraries; the texts stand below.", ""]
    for name, texts, notes in all_sections:
        places = ", ".join(f"text {numbers.setdefault(text, len(numbers) + 1)}" for _, text in texts)
        lines += [f"{name}: {places}", *(f"    {note}" for note in notes)]
    for text, number in numbers.items():
        lines += ["", "=" * 78, f"text {number}", "", text]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--libraries", type=Path)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--check", action="store_true")
    a = parser.parse_args()
    cargo = subprocess.run([ROOT / "scripts/find_cargo.sh"], check=True, capture_output=True, text=True).stdout.strip()
    try:
        text = written(sections(cargo, a.libraries, offline=a.check))
    except Missing as error:
        sys.exit(f"third_party: error: {error}")
    if a.output:
        a.output.write_text(text)


if __name__ == "__main__":
    main()
