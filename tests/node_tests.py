#!/usr/bin/env python3
"""ONNX's node tests, from the onnx package's own cases: by the interpreter, and by a placed program where nothing is computed
from data. No test may give other numbers; what is refused is refused with a reason.

    python tests/node_tests.py --program build/tests/node_cases            # compares with tests/node_tests.json
    python tests/node_tests.py --program build/tests/node_cases --write    # writes it
    python tests/node_tests.py --program build/tests/node_cases abs clip   # these alone, with details

Counted are tests by node names, not what the package expands to other operators, of types that Situ has. node_tests.json has
for each operator of ops.inc how many passed (placed ones too), and which were refused for what; docs/models.md is made of it.
"""
import argparse
import json
import re
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).with_suffix(".json")
LEAST = 0.85  # of the tests of operators that Situ has
TYPES = {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE, TensorProto.BOOL,
         *(getattr(TensorProto, f"{sign}INT{bits}") for sign in ("", "U") for bits in (4, 8, 16, 32, 64))}


def own_operators():
    return {f"{domain}.{op}".lstrip(".") for domain, op in re.findall(r'SITU_OP\("([^"]*)", (\w+),', (ROOT / "src/ops/ops.inc").read_text()) if domain != "situ"}


def cases(names):
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # divisions by zero, on purpose
        for case in collect_testcases(None):
            name = case.name.removeprefix("test_")
            if "_expanded" not in name and (not names or any(n in name for n in names)):
                yield name, case


def tensors(values):
    """The same as TensorProto; None: one of them is no tensor of a type that Situ has."""
    made = []
    for v in values:
        if not isinstance(v, (np.ndarray, np.generic, TensorProto)):
            return None
        made.append(v if isinstance(v, TensorProto) else numpy_helper.from_array(np.asarray(v)))
        if made[-1].data_type not in TYPES:
            return None
    return made


def of_known_opset(model):
    """The same model in an opset that Situ knows as a whole, where the node is valid there: the cases are of the newest opset, in
    which often element types alone were added."""
    limits = (ROOT / "src/onnx/limits.h").read_text()
    first, last = (int(re.search(rf"{name} = (\d+)", limits).group(1)) for name in ("kFirstOpset", "kLastWholeOpset"))
    own = next((o for o in model.opset_import if o.domain == ""), None)
    if own is None or first <= own.version <= last:
        return model
    other = onnx.ModelProto()
    other.CopyFrom(model)
    next(o for o in other.opset_import if o.domain == "").version = min(max(own.version, first), last)
    try:
        onnx.checker.check_model(other, full_check=True)
    except Exception:  # of protobuf, of shape inference
        return model
    return other


def operator_of(model):
    """The operator of the one node, or none."""
    nodes = model.graph.node
    return f"{nodes[0].domain}.{nodes[0].op_type}".lstrip(".").removeprefix("ai.onnx.") if len(nodes) == 1 else None


def write(folder, name, case):
    """Writes the case as node_cases reads it. False: its types are not Situ's."""
    inputs, outputs = (tensors(part) for part in case.data_sets[0])
    if inputs is None or outputs is None:
        return False
    for prefix, list_ in (("input", inputs), ("output", outputs)):
        for i, tensor in enumerate(list_):
            tensor.name = f"{prefix}.{i}"
    all_of = [*inputs, *outputs]
    out = helper.make_tensor_value_info(all_of[0].name, all_of[0].data_type, list(all_of[0].dims))
    data = helper.make_model(helper.make_graph([], "data", [], [out], all_of), opset_imports=[helper.make_opsetid("", 21)])
    (folder / f"{name}.onnx").write_bytes(of_known_opset(case.model).SerializeToString())
    (folder / f"{name}.data").write_bytes(data.SerializeToString())
    return True


def run(program, names):
    """{operator: {test: result of node_cases}} of the operators that Situ has; how many tests there are of others, and of
    other types."""
    own, operators, left_out = own_operators(), {}, Counter()
    with tempfile.TemporaryDirectory() as place:
        for name, case in cases(names):
            operator = operator_of(case.model)
            if operator not in own:
                left_out["operators"] += 1
            elif not write(Path(place), name, case):
                left_out["types"] += 1
            else:
                operators[name] = operator
        lines = subprocess.run([program, place], capture_output=True, text=True, check=True).stdout.splitlines()
    results = {}
    for result in map(json.loads, lines):
        results.setdefault(operators[result["name"]], {})[result["name"]] = result
    return results, left_out


def short(reason):
    """Without names of files and nodes."""
    reason = re.sub(r"^'[^']*': ", "", reason)
    return re.sub(r"\s+", " ", re.sub(r"^(pass \w+: )?[\w.]+ '[^']*'( \(node \d+\))?: ", "", reason))[:160]


def summary(results, left_out):
    operators = {}
    for operator, tests in sorted(results.items()):
        entry = {"passed": 0, "placed": 0, "refused": {}}
        for name, r in sorted(tests.items()):
            entry["passed"] += r["interpreter"] == "passed"
            entry["placed"] += r["placed"] == "passed"
            if r["interpreter"] == "refused":
                entry["refused"][name] = short(r["detail"])
        operators[operator] = entry
    passed = sum(e["passed"] for e in operators.values())
    return {"onnx": onnx.__version__, "passed": passed, "placed": sum(e["placed"] for e in operators.values()),
            "refused": sum(len(e["refused"]) for e in operators.values()), "not counted": dict(left_out), "operators": operators}


def failures(results):
    return [f"{name}: {side} {r.get(detail, '')}" for tests in results.values() for name, r in sorted(tests.items())
            for side, detail in (("interpreter", "detail"), ("placed", "placed_detail")) if r[side] == "failed"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--program", default=str(ROOT / "build" / "tests" / "node_cases"))
    parser.add_argument("--write", action="store_true")
    parser.add_argument("names", nargs="*", help="parts of names of tests")
    arguments = parser.parse_args()
    results, left_out = run(arguments.program, arguments.names)
    failed = failures(results)
    made = summary(results, left_out)
    print(f"{made['passed']} passed, {made['placed']} of them placed too, {made['refused']} refused, {len(failed)} failed")
    if arguments.names:
        for tests in results.values():
            for r in tests.values():
                print(json.dumps(r))
        return 1 if failed else 0
    wrong = failed
    share = made["passed"] / max(1, made["passed"] + made["refused"] + len({f.partition(":")[0] for f in failed}))
    if share < LEAST:
        wrong.append(f"{share:.1%} of the tests of operators that Situ has, fewer than {LEAST:.0%}")
    if arguments.write:
        RESULTS.write_text(json.dumps(made, indent=1) + "\n")
    else:
        before = json.loads(RESULTS.read_text())
        if before["onnx"] != made["onnx"]:
            print(f"skipped: the results are of onnx {before['onnx']}, this is {made['onnx']}")
        elif made != before:
            changed = [op for op in {*made["operators"], *before["operators"]} if made["operators"].get(op) != before["operators"].get(op)]
            wrong.append(f"{RESULTS.name} says another thing of {', '.join(sorted(changed)) or 'the sums'}: --write it")
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
