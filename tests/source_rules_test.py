#!/usr/bin/env python3
"""Rules about the source itself: who may move bytes, who may include whom, how large things may be.

Run all:  python3 tests/source_rules_test.py
Run one:  python3 tests/source_rules_test.py Layers
The tables below are the rules. A change of a rule is a change of a table, with its reason.
"""

import functools
import os
import re
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src"

# The one file that may move bytes at run time, since it books them.
MOVER = "src/base/ledger.cc"
# Files that run at load only, with the number of calls and why no byte of a step goes through them.
COPIES_AT_LOAD = {
    "src/onnx/attribute_builder.cc": (1, "a float list of a Constant node becomes a tensor"),
    "src/onnx/sparse_tensor.cc": (1, "a sparse initialiser is expanded"),
    "src/onnx/tensor_proto.cc": (1, "an initialiser whose bytes are misaligned in the file"),
    "src/onnx/wire.h": (1, "one number out of a packed protobuf field"),
}
# Folders on the token path: COPIES_AT_LOAD may never name a file of theirs.
TOKEN_PATH = {"kernels", "eval", "passes", "place", "runtime"}  # and what is inside of them

# Folders in dependency order, and what each may include besides itself. `situ` is include/situ. A folder inside of another
# one that has a line here is a layer of its own.
LAYERS = {
    "situ": set(),
    "base": {"situ"},
    "graph": {"base"},
    "onnx": {"base", "graph"},
    "kernels": {"base"},
    "ops": {"base", "graph", "kernels"},
    "eval": {"base", "graph", "ops"},
    "passes/context": {"graph", "ops", "eval"},
    "passes/pack": {"base", "graph", "kernels", "ops", "passes/context"},
    "passes/host": {"base", "graph", "ops", "eval", "passes/context", "passes/pack"},
    "passes/module": {"base", "graph", "ops", "eval", "passes/context", "passes/host"},
    "passes/expand": {"base", "ops", "passes/context", "passes/pack", "passes/host"},
    "passes/window": {"base", "graph", "eval", "passes/context", "passes/host", "passes/module", "passes/expand"},
    "passes/states": {"base", "ops", "eval", "passes/context", "passes/host", "passes/module"},
    "passes/recognise": {"base", "graph", "kernels", "ops", "passes/context", "passes/host", "passes/expand"},
    "passes/experts": {"kernels", "ops", "passes/context", "passes/pack", "passes/host"},
    "passes/move": {"graph", "ops", "eval", "passes/context", "passes/host"},
    "passes/lower": {"graph", "kernels", "ops", "passes/context", "passes/pack", "passes/experts"},
    "passes/compile": {
        "base", "graph", "ops", "eval", "passes/context", "passes/pack", "passes/host", "passes/module", "passes/expand",
        "passes/window", "passes/states", "passes/recognise", "passes/experts", "passes/move", "passes/lower"},
    "place": {"base", "graph", "ops", "eval", "passes/context"},
    "schedule": {"base", "ops", "passes/lower", "passes/compile", "place"},
    "runtime": {
        "base", "graph", "onnx", "kernels", "ops", "eval", "passes/context", "passes/pack", "passes/host",
        "passes/module", "passes/expand", "passes/window", "passes/states", "passes/lower", "passes/compile",
        "place", "schedule"},
    "generate": {"situ", "base", "kernels"},
    "text": {"situ", "base"},
    "audio": {"base"},
    "vision": {"base", "text"},
    "text/dialog": {"base", "text"},
    "requests": {"situ", "base", "runtime", "generate", "text", "text/dialog"},
    "pipelines": {
        "situ", "base", "onnx", "kernels", "passes/context", "passes/pack", "passes/host", "passes/module",
        "passes/window", "passes/states", "runtime", "generate", "text", "audio", "vision", "text/dialog",
        "requests"},
    "cli/hub": {"situ", "base", "onnx", "text", "pipelines"},
    "serve": {"situ", "base", "text", "audio", "vision", "text/dialog", "pipelines"},
    "speech": {"situ", "base", "generate", "text", "audio", "requests", "pipelines"},
    "cli": {"situ", "base", "kernels", "generate", "text", "pipelines", "cli/hub", "serve"},
    "python": {"situ", "cli"},
}

# What files of `cli` include of src beside themselves: the reasons stand in HACKING.md.
CLI_BELOW = {
    "bench.cc": {"base", "kernels", "generate"},
    "bench_streams.cc": {"base"},
    "run.cc": {"pipelines/encoder_inputs.h", "pipelines/media_tags.h"},
    "transcribe.cc": {"pipelines/encoder_inputs.h"},
    "list.cc": {"cli/hub"},
    "models.cc": {"cli/hub"},
    "serve_names.cc": {"cli/hub"},
    "chat.cc": {"pipelines/media_tags.h", "text/json_file.h"},
    "batch.cc": {"serve", "base/text_encoding.h"},
    "common.cc": {"base/text_encoding.h"},
    "serve.cc": {"serve"},
    "serve.h": {"serve"},
    "serve_options.cc": {"serve"},
}

# The compiler in figures, which may only fall: whoever makes one smaller lowers its bound here. An operator's name of
# ops/*.inc counts where it is tested (compared, a case, in a set or table), not where a node is made of it.
COMPILER = {"graph", "ops", "eval", "passes", "place", "schedule"}
FIGURES = {
    "code lines of passes": 23122,
    "code lines of the compiler": 32389,
    "names of operators tested": 1209,
    "whole-graph rewrites": 38,
    "loops over all nodes": 112,
    "infos set by hand": 96,
    "files of passes over 450 lines": 13,
    "percent of passes in the largest folder": 15,
}

# What kernel files and all that they include may take from outside (the reason stands in kernels/kernel.h).
KERNEL_INCLUDES = {"cstddef", "cstdint", "math.h"}
# immintrin.h has always-inline wrappers of instructions only: there is nothing to link.
KERNEL_INCLUDES_BY_FILE = {"src/kernels/simd.h": {"immintrin.h"}}

PUBLIC_HEADERS = 9
PUBLIC_HEADER_LINES = 199
FILE_LINES = 700
KEPT_INPUTS = 1_000_000  # bytes of tests/fuzz/corpus
COLUMNS = 120  # of C++; the rest of its format is tests/format_test.py's
MACRO_LINES = 5

COPY_CALL = re.compile(
    r"""\b(?:__builtin_)?(?:w?mem(?:cpy|move)|mempcpy|bcopy|str[nl]?cpy|stpn?cpy)\b
      | \bstd::(?:ranges::)?(?:copy(?:_n|_if|_backward)?|move_backward|reverse_copy|rotate_copy|swap_ranges)\b
      | \branges::(?:copy|move)\w*\b
      | \b(?:copy_n|copy_backward|uninitialized_(?:copy|move)(?:_n)?)\s*\(
      | \bstd::move\s*\([^();]*,[^();]*,   # the algorithm: first, last, destination
    """,
    re.VERBOSE,
)

# Texts speak of the project, not of the place and the tools that it was written with. The patterns are
# split so that this file passes.
FORBIDDEN = {
    "an absolute path of one machine": r"(?<![\w.$})-])/(?:wo" r"rk|ro" r"ot|ho" r"me|Us" r"ers)/",
    "the host of a package registry": r"\b(?:py" r"pi\.org|pythonho" r"sted\.org|cra" r"tes\.io|npm" r"js\.(?:com|org)"
    r"|deb\.deb" r"ian\.org|proxy\.gol" r"ang\.org)",
    "the name of an assistant": r"(?i)\b(?:cla" r"ude|anth" r"ropic|chat" r"gpt|cop" r"ilot|cod" r"ex)\b",
    "a word about how it was written": r"(?i)\b(?:sub-?ag" r"ents?|work" r"place|helper (?:sess" r"ion|ag" r"ent|engineer)s?"
    r"|(?:this|previous|earlier|later|next|another) sess" r"ion|package mir" r"ror)\b",
}
# Where these names may stand, with the reason.
ALLOWED_WORDS = {
    "src/serve/protocols/messages/conversation.cc": "a text that its clients send with each request begins with a name",
    "tests/clients/requirements.txt": "the client of the Messages API is a package of that name",
    "tests/clients/messages.py": "the same",
    "tests/clients/tools.py": "the same",
    "tests/clients/validate.py": "the same",
    "docs/server.md": "whose API /v1/messages is",
}
# The lock files name the registry of each crate.
WORDS_NOT_CHECKED = {"src/text/rust/Cargo.lock", "packaging/libraries/Cargo.lock"}


def project_files():
    """Tracked files and new ones that git does not ignore, as paths below ROOT."""
    git = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(git, capture_output=True, check=True).stdout.decode().split("\0")
        files = [name for name in listed if name]
    except (OSError, subprocess.CalledProcessError):  # a source archive
        files = []
        for folder, below, names in os.walk(ROOT):
            below[:] = [d for d in below if d not in {".git", "build", ".venv", ".models", "target", "__pycache__"}]
            files += [str(Path(folder, n).relative_to(ROOT)) for n in names]
    return sorted(f for f in files if (ROOT / f).is_file())


FILES = project_files()


@functools.cache
def read(path):
    return (ROOT / path).read_text(encoding="utf-8", errors="replace")


@functools.cache
def is_test(path):
    name = Path(path).name
    return bool(re.search(r"_(test|bench)\.", name)) or name.startswith("test_")


def cpp(under="src/", tests=False):
    return [f for f in FILES if f.startswith(under) and f.endswith((".h", ".cc", ".inc")) and (tests or not is_test(f))]


@functools.cache
def without_comments(text):
    """The code alone: comments and what stands in string literals are blanked, lines stay."""
    token = re.compile(r'//[^\n]*|/\*.*?\*/|R"\((.*?)\)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)

    def blank(match):
        keep = '""' if match.group()[0] in "R\"'" else " "
        return keep + "\n" * match.group().count("\n")

    # Include lines keep their names.
    lines = [(line if line.lstrip().startswith("#include") else None) for line in text.split("\n")]
    blanked = token.sub(blank, text).split("\n")
    return "\n".join(kept if kept is not None else line for kept, line in zip(lines, blanked))


def copy_calls(text):
    code = without_comments(text)
    return [(code.count("\n", 0, m.start()) + 1, m.group().strip()) for m in COPY_CALL.finditer(code)]


@functools.cache
def includes(path):
    """[(line, quoted, name)] of a file."""
    pattern = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
    text = read(path)
    return [(text.count("\n", 0, m.start()) + 1, m.group(1) == '"', m.group(2)) for m in pattern.finditer(text)]


def resolve(name):
    """The file that #include "name" means, or None."""
    for base in ("src/", "include/"):
        if (ROOT / base / name).is_file():
            return base + name
    return None


def layer(path):
    """The deepest folder of LAYERS that holds a file: of a path below src/, or of the name that an include has."""
    folders = path.removeprefix("src/").removeprefix("include/").split("/")[:-1]
    return next((name for n in range(len(folders), 0, -1) if (name := "/".join(folders[:n])) in LAYERS), "/".join(folders[:1]))


class Copies(unittest.TestCase):
    """Only move_bytes moves bytes. Calls are found by name; a loop that assigns elements is not: kernels that
    move instead of computing are listed in docs/placement.md, and their tests assert what they book."""

    def test_bytes_are_moved_in_one_file_only(self):
        found = {}
        for path in cpp():
            calls = copy_calls(read(path))
            if path != MOVER and calls:
                found[path] = calls
        wrong = []
        for path, calls in found.items():
            allowed = COPIES_AT_LOAD.get(path, (0, ""))[0]
            if len(calls) != allowed:
                wrong += [f"{path}:{line}: {call} ({allowed} allowed)" for line, call in calls]
        self.assertEqual(wrong, [], "use move_bytes (base/ledger.h), which books what it moves")

    def test_the_mover_moves(self):
        self.assertTrue(copy_calls(read(MOVER)), f"{MOVER} moves nothing: is it still the file of move_bytes?")

    def test_exceptions_are_needed_and_off_the_token_path(self):
        for path, (count, reason) in COPIES_AT_LOAD.items():
            self.assertNotIn(layer(path).split("/")[0], TOKEN_PATH, path)
            self.assertTrue(reason)
            self.assertEqual(len(copy_calls(read(path))), count, f"{path}: correct the table")

    def test_the_pattern_finds_what_it_should(self):
        for text in ("std::memcpy(a, b, n);", "memmove(a,b,n)", "__builtin_memcpy(a, b, 4);", "std::copy(b, e, o);",
                     "std::copy_n(b, 3, o);", "std::ranges::copy(r, o);", "std::move(b, e, o);", "bcopy(a, b, 1);",
                     "auto f = std::copy<int*, int*>;", "std::uninitialized_copy(b, e, o);"):
            self.assertTrue(copy_calls(text), text)
        for text in ("// memcpy(a, b, n)", "/* std::copy */", 'puts("memcpy(");', "x = std::move(y);", "copy(d, s);",
                     "f(std::move(a), b, c);", "std::copyable<T>", "std::copysign(a, b)", "move_bytes(d, s, ledger);"):
            self.assertFalse(copy_calls(text), text)


class Randomness(unittest.TestCase):
    """std::random_device of a program that carries libstdc++ wants glibc 2.36: base/random_number.h."""

    def test_nothing_asks_the_standard_library(self):
        self.assertEqual([f for f in cpp() if "random_device" in without_comments(read(f))], [])


class Layers(unittest.TestCase):
    def edges(self):
        found = {}
        for path in cpp() + cpp("include/"):
            for line, quoted, name in includes(path):
                if quoted:
                    found.setdefault((layer(path), layer(name)), []).append(f"{path}:{line}")
        return found

    def test_table_goes_down_only(self):
        order = list(LAYERS)
        for folder, below in LAYERS.items():
            for other in below:
                self.assertLess(order.index(other), order.index(folder), f"{folder} -> {other} goes up")

    def test_every_folder_is_a_layer(self):
        folders = {layer(f) for f in cpp(tests=True)}
        self.assertEqual(folders, set(LAYERS) - {"situ"})

    def test_the_command_line_is_over_the_public_api(self):
        wrong = []
        for path in (p for p in cpp("src/cli/") if layer(p) == "cli"):
            allowed = {"situ", "cli"} | CLI_BELOW.get(Path(path).name, set())
            wrong += [f"{path}:{line}: {name}" for line, quoted, name in includes(path)
                      if quoted and name not in allowed and layer(name) not in allowed]
        self.assertEqual(wrong, [], "not in the table CLI_BELOW")

    def test_includes_go_down(self):
        wrong = [f"{at}: {a} includes {b}" for (a, b), places in self.edges().items() for at in places
                 if a != b and b not in LAYERS.get(a, set())]
        self.assertEqual(wrong, [], "not in the table LAYERS")

    def test_table_allows_no_more_than_is_used(self):
        edges = self.edges()
        unused = [f"{a} -> {b}" for a, below in LAYERS.items() for b in below if (a, b) not in edges]
        self.assertEqual(unused, [], "take these edges out of the table LAYERS")

    def test_quoted_includes_are_files_of_the_project(self):
        wrong = [f"{path}:{line}: {name}" for path in cpp(tests=True) + cpp("include/")
                 for line, quoted, name in includes(path) if quoted and resolve(name) is None]
        self.assertEqual(wrong, [], "write the path below src/ or include/")


class Loops(unittest.TestCase):
    """Tokens are fed by one loop, the scheduler's."""

    def test_one_loop_feeds_tokens(self):
        engine = re.compile(r"(?:in_place|naive|engine)(?:_|\(\))?(?:->|\.)step\(")
        model = re.compile(r"(?:\bserved\.|impl_->|model->|this->)step\(")
        callers = {"engine": [], "model": []}
        for path in cpp():
            if layer(path) in {"requests", "pipelines", "speech", "cli", "python"}:
                text = without_comments(read(path))
                callers["engine"] += [path] * len(engine.findall(text))
                callers["model"] += [path] * len(model.findall(text))
        self.assertEqual(set(callers["engine"]), {"src/requests/served.cc"})
        self.assertEqual(sorted(callers["model"]), ["src/requests/scheduler.cc"])

    def test_nothing_is_computed_between_steps(self):
        """Forks, rewinds, ledgers and what is shown to the scheduler's thread; whatever takes time is a request."""
        calls = re.compile(r"\bbetween_steps\(|\bscheduler(?:->|\.)call\(")
        callers = {path for path in cpp() if calls.search(without_comments(read(path)))}
        self.assertEqual(callers, {f"src/pipelines/{name}" for name in ("embed.cc", "llm.cc", "llm.h", "model_facts.cc")})


class Kernels(unittest.TestCase):
    def test_kernel_files_take_nothing_from_the_standard_library(self):
        open_files = [f for f in cpp("src/kernels/") if f != "src/kernels/select.cc"]
        seen = set(open_files)
        wrong = []
        while open_files:
            path = open_files.pop()
            for line, quoted, name in includes(path):
                if quoted:
                    below = resolve(name)
                    if below and below not in seen:
                        seen.add(below)
                        open_files.append(below)
                elif name not in KERNEL_INCLUDES | KERNEL_INCLUDES_BY_FILE.get(path, set()):
                    wrong.append(f"{path}:{line}: <{name}>")
            wrong += [f"{path}: {use}" for use in re.findall(r"\bstd::(?!byte\b)\w+", without_comments(read(path)))]
        self.assertIn("src/base/view.h", seen)  # the walk really follows includes
        self.assertEqual(wrong, [], "an inline function compiled for one ISA could be linked into another")

    def test_every_kernel_is_defined_once_and_used(self):
        names = re.findall(r"^SITU_(?:DOT_|PAIR_|PLAIN_)?KERNEL\((\w+)\)", read("src/kernels/kernels.inc"), re.MULTILINE)
        self.assertGreater(len(names), 20)
        self.assertEqual(len(names), len(set(names)))
        kernel_text = {f: without_comments(read(f)) for f in cpp("src/kernels/") if f.endswith(".cc")}
        user_text = "\n".join(without_comments(read(f)) for f in cpp() if layer(f).split("/")[0] in {"ops", "passes", "schedule", "runtime", "eval", "generate", "cli"})
        wrong = []
        for name in names:
            files = [f for f, text in kernel_text.items() if re.search(rf"^void {name}\(const KernelCall&", text, re.MULTILINE)]
            if len(files) != 1:
                wrong.append(f"{name}: defined in {files or 'no file'}")
            if not re.search(rf"\bKernelTable::{name}\b|\bkernels\(\)\.{name}\b", user_text):
                wrong.append(f"{name}: nothing uses it")
        self.assertEqual(wrong, [])


class TypesOfOneName(unittest.TestCase):
    """Two types of one name in a namespace share their inline functions: the linker keeps one's constructor for both."""

    def types(self, path):
        names, spaces = [], []
        for line in read(path).splitlines():
            if opened := re.match(r"namespace ?([\w:]*) ?\{", line):
                spaces.append(opened.group(1))
            elif re.match(r"\}  // namespace", line):
                spaces.pop()
            elif found := re.match(r"(?:struct|class|union) (\w+)(?: final)?(?: : [^{;]*)? \{", line):
                names += ["::".join([*spaces, found.group(1)])] if "" not in spaces else []
        return names

    def test_are_not_there(self):
        owners = {}
        for path in [*cpp("include/"), *cpp()]:
            for name in self.types(path):
                owners.setdefault(name, []).append(path)
        self.assertGreater(len(owners), 200)
        self.assertEqual({n: files for n, files in owners.items() if len(files) > 1 and "SITU_ISA" not in n}, {}, "rename one")


class FilesBuiltAtOnce(unittest.TestCase):
    """Files of a folder are compiled together (src/CMakeLists.txt)."""

    def local_names(self, path):
        names, local = set(), False
        for line in read(path).splitlines():
            local = (local or line.startswith("namespace {")) and not line.startswith("}  // namespace")
            if not (local or line.startswith("static ")) or not re.match(r"(?!using|namespace)\w", line):
                continue
            head = line.split("=")[0]
            found = (re.match(r"(?:struct|class|enum class|enum) (\w+)", line) or re.search(r"[\w>&*] [*&]?(\w+)\(", head)
                     or re.search(r"(\w+)(?:\[\])? $", head))
            names.update(found.groups() if found else ())
        return names

    def test_share_no_local_names(self):
        cmake = read("src/CMakeLists.txt")
        alone = re.search(r"set\(alone ([^)]*)\)", cmake).group(1).split()
        owners = {}
        for path in cpp():
            folder, name = Path(path).parts[-2:]
            if layer(path).split("/")[-1] == folder:
                folder = layer(path)
            if not path.endswith(".cc") or is_test(path) or f"{folder}/{name}" in alone:
                continue
            for local in self.local_names(path):
                owners.setdefault((folder, local), []).append(path)
        wrong = [f"{name}: {files}" for (folder, name), files in owners.items()
                 if len(files) > 1 and folder in cmake.split("SITU_FOLDERS ")[1].split(")")[0].split()]
        self.assertGreater(len(owners), 500)
        self.assertEqual(wrong, [], "rename one, or add a file to those that src/CMakeLists.txt leaves out")


class Sizes(unittest.TestCase):
    def test_public_headers(self):
        headers = [f for f in FILES if f.startswith("include/")]
        self.assertTrue(all(f.startswith("include/situ/") and f.endswith(".h") for f in headers), headers)
        self.assertLessEqual(len(headers), PUBLIC_HEADERS)
        for path in headers:
            self.assertLessEqual(read(path).count("\n"), PUBLIC_HEADER_LINES, path)
            for line, quoted, name in includes(path):
                standard = not quoted and re.fullmatch(r"[a-z_]+", name)
                own = quoted and name.startswith("situ/")
                self.assertTrue(standard or own, f"{path}:{line}: {name} is neither standard nor Situ's")

    def test_files(self):
        kinds = (".h", ".cc", ".inc", ".py", ".rs", ".sh", ".md", ".txt")
        long = [f"{f}: {read(f).count(chr(10))} lines" for f in FILES
                if f.endswith(kinds) and read(f).count("\n") > FILE_LINES]
        self.assertEqual(long, [], f"more than {FILE_LINES} lines: split it")

    def test_kept_inputs(self):
        kept = [f for f in FILES if f.startswith("tests/fuzz/corpus/")]
        self.assertTrue(kept)
        self.assertLessEqual(sum((ROOT / f).stat().st_size for f in kept), KEPT_INPUTS)

    def test_columns(self):
        """A raw string cannot be wrapped."""
        wrong = [f"{f}:{number}: {len(line)} columns" for f in FILES if f.endswith((".cc", ".h"))
                 for number, line in enumerate(read(f).split("\n"), 1) if len(line) > COLUMNS and 'R"' not in line]
        self.assertEqual(wrong, [])

    def test_macros(self):
        wrong = []
        for path in cpp(tests=True) + cpp("include/") + cpp("tests/", tests=True):
            for m in re.finditer(r"^[ \t]*#[ \t]*define\b(?:[^\n]*\\\n)*[^\n]*", read(path), re.MULTILINE):
                lines = m.group().count("\n") + 1
                if lines > MACRO_LINES:
                    wrong.append(f"{path}:{read(path).count(chr(10), 0, m.start()) + 1}: {lines} lines")
        self.assertEqual(wrong, [])


class Figures(unittest.TestCase):
    """What passes cost to read: the table FIGURES."""

    NAME = re.compile(r'"([A-Z][A-Za-z0-9]+)"|\b(?:Op(?:erator|Kind|Code)?::)?k([A-Z][A-Za-z0-9]+)\b')
    TESTED = re.compile(r"(is\(|==\s*|!=\s*|case\s+|[,{]\s*)$")  # in front of an identifier
    MADE = re.compile(r"(\b(op|add|make|node|node_of|emit|view)\(\s*|\.op\s*=\s*)$")
    REWRITE = re.compile(r"nodes\.(swap|assign|erase|clear|resize)\(|swap\([^)]*nodes|set_nodes\(|\.nodes\s*=[^=]"
                         r"|=\s*\*?[a-z_.]*graph\.nodes;|exchange\([^;]*nodes")
    LOOP = re.compile(r"for \([^;)]*:\s*\*?[a-z_.>-]*nodes\)")
    INFO = re.compile(r"\.info(\.\w+)?\s*=[^=]")

    def code(self, path):
        return "\n".join(line.split("//")[0].rstrip() for line in read(path).splitlines())

    def names(self, code, operators):
        found = 0
        for m in self.NAME.finditer(code):
            before = code[max(0, m.start() - 40):m.start()]
            identifier = m.group(2) is not None
            if m.group(1 + identifier) in operators and not (identifier and not self.TESTED.search(before)):
                found += not self.MADE.search(before)
        return found

    def figures(self):
        inc = "".join(read(f) for f in cpp("src/ops/") if f.endswith(".inc"))
        operators = set(re.findall(r'"([A-Z][A-Za-z0-9]+)"|\b([A-Z][A-Za-z0-9]{2,})\s*,', inc))
        operators = {name for pair in operators for name in pair if name}
        found, folders = dict.fromkeys(FIGURES, 0), {}
        for path in cpp():
            root, leaf = path.split("/")[1], str(Path(path).parent)
            if root not in COMPILER or path.endswith("_for_tests.h"):
                continue
            code = self.code(path)
            lines = sum(bool(line.strip()) for line in code.split("\n"))
            found["code lines of the compiler"] += lines
            found["names of operators tested"] += self.names(code, operators) if root != "ops" else 0  # which defines them
            if root != "passes":
                continue
            folders[leaf] = folders.get(leaf, 0) + lines
            found["whole-graph rewrites"] += len(self.REWRITE.findall(code))
            found["loops over all nodes"] += len(self.LOOP.findall(code))
            found["infos set by hand"] += len(self.INFO.findall(code))
            found["files of passes over 450 lines"] += len(read(path).splitlines()) > 450
        found["code lines of passes"] = sum(folders.values())
        found["percent of passes in the largest folder"] = round(100 * max(folders.values()) / sum(folders.values()))
        return found

    def test_fall(self):
        for what, figure in self.figures().items():
            with self.subTest(what):
                self.assertLessEqual(figure, FIGURES[what], f"{what}: no more than there were")
                self.assertGreaterEqual(figure, 0.97 * FIGURES[what] - 1, f"{what}: lower the bound in FIGURES to {figure}")


class KnownAttributes(unittest.TestCase):
    """Attributes that operators of ops.inc may have are read somewhere, or listed as having no effect."""

    READERS = ("src/ops/", "src/passes/", "src/kernels/", "src/eval/")

    def test_are_read_or_have_no_effect(self):
        own = {}
        for op, since in re.findall(r'SITU_OP\("", (\w+), (\d+),', read("src/ops/ops.inc")):
            own[op] = min(own.get(op, 99), int(since))
        first = int(re.search(r"kFirstOpset = (\d+)", read("src/onnx/limits.h")).group(1))
        code = "".join(read(f) for folder in self.READERS for f in cpp(folder) if f.endswith(".cc"))
        said = set(re.findall(r'"(\w+)"', code))
        none = {op: set(names.split()) for op, names in re.findall(r'SITU_NO_EFFECT\((\w+), "([^"]*)"\)', read("src/ops/no_effect.inc"))}
        changed = set(re.findall(r"SITU_CHANGED\((\w+), (\d+)\)", read("src/onnx/changed_operators.inc")))
        missing = []
        versions = re.findall(r'SITU_KNOWN\((\w+), (\d+), [-\d]+, [-\d]+, "([^"]*)"\)', read("src/ops/known_operators.inc"))
        for (op, since, names), (later, until, _) in zip(versions, versions[1:] + [("", 0, "")]):
            if op in own and (op, since) not in changed and not (later == op and int(until) <= own[op]):
                missing += [f"{op}-{since}: {a}" for a in names.split() if a not in said | none.get(op, set())]
        self.assertGreater(len(own), 50)
        self.assertEqual(missing, [], f"of opsets from {first} on")

    def test_no_effect_names_what_there_is(self):
        known = read("src/ops/known_operators.inc")
        for op, names in re.findall(r'SITU_NO_EFFECT\((\w+), "([^"]*)"\)', read("src/ops/no_effect.inc")):
            for name in names.split():
                self.assertRegex(known, rf'SITU_KNOWN\({op}, [^"]*"[^"]*\b{name}\b')


class Texts(unittest.TestCase):
    def test_no_forbidden_words(self):
        wrong = []
        for path in FILES:
            data = (ROOT / path).read_bytes()
            if b"\0" in data or path in WORDS_NOT_CHECKED:
                continue
            text = data.decode("utf-8", "replace")
            allowed = {"the name of an assistant"} if path in ALLOWED_WORDS else set()
            here = {what: p for what, p in FORBIDDEN.items() if what not in allowed and re.search(p, text, re.MULTILINE)}
            for number, line in enumerate(text.split("\n") if here else [], 1):
                for what, pattern in here.items():
                    m = re.search(pattern, line)
                    if m:
                        wrong.append(f"{path}:{number}: {m.group()} is {what}")
        self.assertEqual(wrong, [])

    def test_the_patterns_find_what_they_should(self):
        samples = ["see /wo" + "rk/x", "'/ro" + "ot/.cache'", "https://py" + "pi.org/simple", "Cla" + "ude", "a sub" + "agent",
                   "in the previous sess" + "ion", "=/ho" + "me/me/x"]
        for text in samples:
            self.assertTrue(any(re.search(p, text) for p in FORBIDDEN.values()), text)
        for text in ["Result<Session> new_session();", "$HOME/.cargo", "build/root/x", "from onnx import helper", "a PyPI package"]:
            self.assertFalse(any(re.search(p, text) for p in FORBIDDEN.values()), text)

    def test_every_folder_has_its_line_in_the_map(self):
        text = read("HACKING.md")
        for folder in sorted({layer(f) for f in cpp(tests=True)}):
            rows = re.findall(rf"^\| `{folder}` +\|.*\S.*\|$", text, re.MULTILINE)
            self.assertEqual(len(rows), 1, f"HACKING.md should have one line '| `{folder}` | what it is |'")

    def test_the_map_names_no_folder_that_is_gone(self):
        rows = re.findall(r"^\| `([\w/]+)` +\|", read("HACKING.md").partition("## Map")[2].partition("\n## ")[0], re.MULTILINE)
        self.assertEqual(sorted(rows), sorted({layer(f) for f in cpp(tests=True)}))


if __name__ == "__main__":
    unittest.main(verbosity=2)
