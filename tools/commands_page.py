"""Writes docs/commands.md: the commands, their options and the exit codes, from the help of the program.

    tools/commands_page.py [--check] [--situ build/situ]

--check writes nothing. Exit code 1: the page is not what the program says.
"""
import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "commands.md"
TABLE = ROOT / "src" / "pipelines" / "load_option_table.cc"
HEAD = """# Commands and options

This page is written by `tools/commands_page.py` from the help of the program: `situ COMMAND --help` shows the usual options, `--help-all` all of them.
Options of `situ serve` may stand in a file too ([server](server.md#options)).
"""


def entries(lines):
    """[(name, words)] of lines "  NAME   WORDS", where words go on in the next line."""
    found = []
    for line in lines:
        match = re.match(r"  (\S.*?)(?:  +(\S.*))?$", line) if not line.startswith("     " * 3) else None
        if match or re.match(r"      --", line):
            name, _, words = (line.strip() + "  ").partition("  ")
            found.append([name, words.strip()])
        elif found:
            found[-1][1] = f"{found[-1][1]} {line.strip()}".strip()
    return found


def sections(text):
    """[(title, lines)] of a help text."""
    found = [("", [])]
    for line in text.splitlines():
        match = re.fullmatch(r"(\S.*):", line)
        if match:
            found.append((match.group(1), []))
        elif line.startswith("  "):
            found[-1][1].append(line)
        elif line:
            found.append(("", [line]))
    return found


def cell(text):
    return text.replace("|", "\\|")


def table(head, rows):
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(map(cell, row)) + " |" for row in rows), ""]


def split_default(words):
    match = re.fullmatch(r"(.*?)(?: \[default: (.*)\])?", words)
    return match.group(1), match.group(2) or ""


def options(lines, python=None):
    rows = []
    for name, words in entries(lines):
        what, fallback = split_default(words)
        rows.append([f"`{name}`", *([f"`{python[name.split()[0]]}`" if name.split()[0] in python else ""] if python is not None else []), what, fallback])
    return rows


def page(help_of):
    lines = [HEAD]
    found = dict(sections(help_of("--help")))
    commands = [name for name, _ in entries(found["Commands"]) if name != "help"]
    lines += ["## Exit codes", "", *table(("code", "meaning"), entries(found["Exit codes"]))]
    python = {flag: name for name, flag in re.findall(r'\{"(\w+)", "(--[\w-]+)"', TABLE.read_text(encoding="utf-8"))}
    loading = next(lines for title, lines in sections(help_of("run", "--help-all")) if title == "Loading")
    lines += ["## Options of loading", "", "Every command that takes a model has them; `situ.load` takes them by their names in Python. `--draft` (`draft`) is of the commands that generate text.", "",
              *table(("option", "Python", "what it does", "default"), options(loading, python))]
    for command in commands:
        inner = ["prune"] if command == "cache" else [""]
        for second in inner:
            words = [command, *([second] if second else [])]
            text = help_of(*words, "--help-all")
            lines += [f"## {' '.join(['situ', *words])}", "", f"`{text.splitlines()[0].removeprefix('Usage: ')}`", "", text.splitlines()[2].rstrip(".") + ".", ""]
            loads = False
            for title, content in sections(text):
                if title == "Loading":
                    loads = True
                elif title not in ("", "Examples", "Usage"):
                    heading = [] if title in ("Arguments", "Options") else [f"**{title}**", ""]
                    lines += [*heading, *table(("argument" if title == "Arguments" else "option", "what it does", "default"), options(content))]
            if loads:
                lines += ["The [options of loading](#options-of-loading) hold too.", ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--situ", default=str(ROOT / "build" / "situ"))
    a = parser.parse_args()
    text = page(lambda *words: subprocess.run([a.situ, *words], capture_output=True, text=True, check=True).stdout)
    if not a.check:
        PAGE.write_text(text, encoding="utf-8")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
        sys.exit("docs/commands.md is not what the program says; run tools/commands_page.py")


if __name__ == "__main__":
    main()
