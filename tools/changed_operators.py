#!/usr/bin/env python3
"""Lists the operators of ai.onnx that changed in opsets which are read only where none of these is used.

    .venv/bin/python tools/changed_operators.py            # writes src/onnx/changed_operators.inc
    .venv/bin/python tools/changed_operators.py --check    # says whether it would change anything

The schema history of the onnx package says in which opset a version of an operator begins. An operator is listed with
each version that begins behind kLastWholeOpset (src/onnx/limits.h), up to kLastOpset, if it is older than these: one that
is new there is unknown by its name. A version that only adds element types is no change: types that no kernel has are
refused where they are met.
"""
import onnx_lists

LIST = onnx_lists.SOURCE / "onnx" / "changed_operators.inc"


# Changes that Situ knows: of halves Range computes in float, as it did before, and another stash_type is refused.
KNOWN = {("Range", 27)}


def meaning(schema):
    """All that a version says of its operator, but for element types."""
    operands = [[(o.name, o.option) for o in which] for which in (schema.inputs, schema.outputs)]
    attributes = {name: (a.type, a.required, str(a.default_value)) for name, a in schema.attributes.items()}
    return operands, attributes, schema.doc


def changed(first, last):
    """[(operator, opset)], sorted."""
    versions = {}
    for schema in onnx_lists.schemas(last):
        versions.setdefault(schema.name, {})[schema.since_version] = schema
    found = []
    for name, of_name in versions.items():
        opsets = sorted(of_name)
        for before, v in zip(opsets, opsets[1:]):
            new = first <= v <= last and opsets[0] < first and (name, v) not in KNOWN
            if new and meaning(of_name[v]) != meaning(of_name[before]):
                found.append((name, v))
    return sorted(found)


def text():
    first, last = onnx_lists.limit("kLastWholeOpset") + 1, onnx_lists.limit("kLastOpset")
    lines = [
        f"// Operators of ai.onnx that changed in opsets {first} to {last}, with the opset that the changed one is of. Written by",
        "// tools/changed_operators.py from the schema history of the onnx package.",
    ]
    return "\n".join(lines + [f"SITU_CHANGED({name}, {version})" for name, version in changed(first, last)]) + "\n"


if __name__ == "__main__":
    onnx_lists.main(__doc__, LIST, text)
