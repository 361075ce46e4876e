#!/usr/bin/env python3
"""Lists the operators of ai.onnx that changed in opsets which are read only where none of these is used.

    .venv/bin/python tools/changed_operators.py            # writes src/onnx/changed_operators.inc
    .venv/bin/python tools/changed_operators.py --check    # says whether it would change anything

The schema history of the onnx package says in which opset a version of an operator begins. An operator is listed with
each version that begins behind kLastWholeOpset (src/onnx/limits.h), up to kLastOpset, if it is older than these: one that
is new there is unknown by its name. A version counts as a change whatever it changes, added element types too.
"""
import onnx_lists

LIST = onnx_lists.SOURCE / "onnx" / "changed_operators.inc"


def changed(first, last):
    """[(operator, opset)], sorted."""
    versions = {}
    for schema in onnx_lists.schemas(last):
        versions.setdefault(schema.name, set()).add(schema.since_version)
    return sorted((name, v) for name, all_of in versions.items() if min(all_of) < first for v in all_of if first <= v <= last)


def text():
    first, last = onnx_lists.limit("kLastWholeOpset") + 1, onnx_lists.limit("kLastOpset")
    lines = [
        f"// Operators of ai.onnx that changed in opsets {first} to {last}, with the opset that the changed one is of. Written by",
        "// tools/changed_operators.py from the schema history of the onnx package.",
    ]
    return "\n".join(lines + [f"SITU_CHANGED({name}, {version})" for name, version in changed(first, last)]) + "\n"


if __name__ == "__main__":
    onnx_lists.main(__doc__, LIST, text)
