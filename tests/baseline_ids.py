"""How many expected answers every model of ../shared gives, on each ISA and in each mode, against what baseline_ids.json holds.

    python tests/baseline_ids.py [--situ build/situ] [--isa best|all|NAME ...] [--modes MODE ...] [--write COMMIT] [FOLDER ...]

A case counts where the ids are the expected ones, and in place only where no byte was copied. Modes: "in place", "naive",
"beams" (three beams, in place). No count may fall: exit 0, else exit 1 with a line for each that fell. Without ../shared: 77.
--isa      best (default): the best ISA that this CPU and the baseline have; all: every ISA that this CPU has; or names
--modes    only these (all)
--write    puts the counts into baseline_ids.json instead of comparing; those of other ISAs and folders stay
FOLDER     only these, as the baseline names them: tiny/llama
"""
import argparse
import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import golden

BASELINE = Path(__file__).with_suffix(".json")
SETS = ("smollm2-135m-instruct-int4", "tiny", "genai", "styles")
MODES = {"in place": [], "naive": ["--naive"], "beams": []}
PATIENCE = 300  # seconds for one answer: naive SmolLM2 on the portable ISA, on a machine that does other work too
SKIPPED = 77


def answers(situ, isa, mode, case):
    """Whether one case is answered as expected. A refused model answers nothing."""
    beams = 3 if mode == "beams" else 1
    command = [situ, "run", *case.arguments(beams), "--threads", "1", *MODES[mode]]
    try:
        # Packed weights are neither used nor saved.
        run = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env={**os.environ, "SITU_ISA": isa, "SITU_CACHE_DIR": ""})
    except subprocess.TimeoutExpired:
        return False
    if run.returncode != 0:
        return False
    answer = json.loads(run.stdout)
    if answer["isa"] != isa:
        sys.exit(f"{command[2]}: SITU_ISA={isa} ran as {answer['isa']}")
    return case.holds(answer["output_ids"], beams) and (mode == "naive" or answer["bytes_copied_per_token"] == 0)


def count(situ, isas, modes, folders):
    """{folder: {ISA: {mode: [equal, cases]}}}. The long ones begin first; each run has one thread."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = []
        for folder in folders:
            cases = golden.read_cases(folder)
            for isa in isas:
                for mode in modes:
                    asked = [c for c in cases if mode != "beams" or c.beams]
                    if asked:
                        runs.append((name_of(folder), isa, mode, [pool.submit(answers, situ, isa, mode, c) for c in asked]))
        counts = {}
        for folder, isa, mode, asked in runs:
            counts.setdefault(folder, {}).setdefault(isa, {})[mode] = [sum(run.result() for run in asked), len(asked)]
    return counts


def name_of(folder):
    return folder.relative_to(golden.SHARED).as_posix()


def fallen(baseline, counts, isas, asked, folders):
    """A line for each count that is lower than the baseline's, or that could not be taken."""
    lines = []
    for folder, of_isas in baseline.items():
        for isa, modes in of_isas.items():
            for mode, (before, cases) in modes.items():
                if isa in isas and mode in asked and (not folders or folder in folders):
                    now = counts.get(folder, {}).get(isa, {}).get(mode, [0, 0])[0]
                    if now < before:
                        lines.append(f"{folder}, {isa}, {mode}: {now} of {cases} cases equal, {before} before")
    return lines


def write(baseline, counts, commit):
    for folder, of_isas in counts.items():
        for isa, modes in of_isas.items():
            baseline.setdefault(folder, {}).setdefault(isa, {}).update(modes)
    rows = ",\n".join(f"  {json.dumps(folder)}: {json.dumps(baseline[folder])}" for folder in sorted(baseline))
    BASELINE.write_text(f'{{"commit": {json.dumps(commit)},\n "counts": {{\n{rows}\n }}}}\n')


def available_isas(situ, model):
    """The ISAs that this build and this CPU have, best last: any other is refused by its name, whatever the model."""
    def refusal(isa):
        return subprocess.run([situ, "run", model, "--prompt-ids", "1", "-n", "1"], capture_output=True, text=True, env={**os.environ, "SITU_ISA": isa}).stderr
    known = re.search(r"known: ([^)]*)\)", refusal("none")).group(1).split(", ")
    return [isa for isa in known if f"SITU_ISA={isa}:" not in refusal(isa)]


def chosen_isas(wanted, available, baseline):
    if wanted == ["all"]:
        return available
    if wanted == ["best"]:
        known = {isa for of_isas in baseline.values() for isa in of_isas}
        return [isa for isa in available if isa in known][-1:]
    missing = [isa for isa in wanted if isa not in available]
    if missing:
        sys.exit(f"--isa: this CPU has {', '.join(available)}; not {', '.join(missing)}")
    return wanted


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--situ", default=str(Path(__file__).parent.parent / "build" / "situ"))
    parser.add_argument("--isa", nargs="+", default=["best"])
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--write", metavar="COMMIT", help="the commit that --situ was built from")
    parser.add_argument("folders", nargs="*")
    a = parser.parse_args()
    folders = golden.folders(*(a.folders or SETS))
    if not folders:
        print(f"{golden.SHARED}: no models with an expected.json", file=sys.stderr)
        sys.exit(SKIPPED)
    stored = json.loads(BASELINE.read_text()) if BASELINE.exists() else {"counts": {}}
    isas = chosen_isas(a.isa, available_isas(a.situ, folders[-1]), stored["counts"])
    start = time.monotonic()
    counts = count(a.situ, isas, a.modes, folders)
    equal, cases = (sum(n[i] for of_isas in counts.values() for modes in of_isas.values() for n in modes.values()) for i in (0, 1))
    took = f"{equal} of {cases} cases equal on {', '.join(isas)} in {time.monotonic() - start:.0f} s"
    if a.write:
        write(stored["counts"], counts, a.write)
        print(took)
        return
    lines = fallen(stored["counts"], counts, isas, a.modes, a.folders)
    print("\n".join([*lines, f"{took}; {len(lines)} counts fell"]))
    sys.exit(1 if lines else 0)


if __name__ == "__main__":
    main()
