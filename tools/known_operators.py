#!/usr/bin/env python3
"""Lists what operators of ai.onnx may have: inputs, outputs and attributes, by the opset that a version begins in.

    .venv/bin/python tools/known_operators.py            # writes src/ops/known_operators.inc
    .venv/bin/python tools/known_operators.py --check    # says whether it would change anything

From the schema history of the onnx package: versions that opsets from kFirstOpset to kLastOpset (src/onnx/limits.h) use.
Operators that Situ does not have are listed too. -1: any number.
"""
import onnx_lists

LIST = onnx_lists.SOURCE / "ops" / "known_operators.inc"
MOST = 1 << 30  # a number that means any


def versions():
    """[schema], by operator and version."""
    first, last = onnx_lists.limit("kFirstOpset"), onnx_lists.limit("kLastOpset")
    by_name = {}
    for schema in onnx_lists.schemas(last):
        if schema.since_version <= last:
            by_name.setdefault(schema.name, []).append(schema)
    for name in sorted(by_name):
        all_of = sorted(by_name[name], key=lambda s: s.since_version)
        for schema, later in zip(all_of, [*all_of[1:], None]):
            if later is None or later.since_version > first:
                yield schema


def text():
    count = lambda n: -1 if n >= MOST else n
    lines = [
        "// What operators of ai.onnx may have: operator, the opset that the version begins in, most inputs, most outputs (-1: any",
        "// number), attributes. Written by tools/known_operators.py from the schema history of the onnx package.",
    ]
    for s in versions():
        attributes = " ".join(sorted(s.attributes))
        lines.append(f'SITU_KNOWN({s.name}, {s.since_version}, {count(s.max_input)}, {count(s.max_output)}, "{attributes}")')
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    onnx_lists.main(__doc__, LIST, text)
