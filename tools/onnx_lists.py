"""What the scripts share that list things of the onnx package in the source."""
import argparse
import re
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src"


def limit(name):
    """A number of src/onnx/limits.h."""
    return int(re.search(rf"\b{name} = (\d+)", (SOURCE / "onnx" / "limits.h").read_text()).group(1))


def schemas(last):
    """All versions of the operators of ai.onnx. Ends the program where the package does not know opset `last`."""
    import onnx.defs

    if onnx.defs.onnx_opset_version() < last:
        raise SystemExit(f"onnx {onnx.__version__} knows opsets up to {onnx.defs.onnx_opset_version()} only, not {last}")
    return [schema for schema in onnx.defs.get_all_schemas_with_history() if schema.domain == ""]


def main(doc, path, text):
    """Writes text() to `path`, or with --check compares the two."""
    arguments = argparse.ArgumentParser(description=doc.partition("\n")[0])
    arguments.add_argument("--check", action="store_true", help="write nothing; fail where the list is another one")
    wanted = text()
    if not arguments.parse_args().check:
        path.write_text(wanted)
    elif path.read_text() != wanted:
        sys.exit(f"{path.name} is not what the onnx package says: run {Path(sys.argv[0]).name}")
