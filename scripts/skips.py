#!/usr/bin/env python3
"""Counts the skipped tests in a log, by reason: skips.py LOG

LOG is what `ctest` left (Testing/Temporary/LastTest.log) or a run of unittest printed with -v. ctest counts a test program
with skipped cases as passed; here each reason is printed. A reason that tests/known_skips.txt does not list is unexpected:
something that this machine should have is missing. The exit code is the number of unexpected reasons.
"""
import re
import sys
from collections import Counter
from pathlib import Path

KNOWN = Path(__file__).resolve().parent.parent / "tests" / "known_skips.txt"
FORMS = (
    re.compile(r"^\S+:\d+: Skipped\n(.*)$", re.MULTILINE),             # googletest
    re.compile(r"\.\.\. skipped (['\"])(.*)\1$", re.MULTILINE),         # unittest -v
    re.compile(r"^(?:\w+: )?skipped: (.*)$", re.MULTILINE),            # a script that ends with 77, or leaves a part out
)

def known():
    lines = KNOWN.read_text().splitlines()
    return [re.compile(line) for line in lines if line and not line.startswith("#")]

def main():
    log = Path(sys.argv[1]).read_text(errors="replace")
    reasons = Counter(match[match.lastindex] for form in FORMS for match in form.finditer(log))
    patterns = known()
    unexpected = [reason for reason in reasons if not any(p.search(reason) for p in patterns)]
    for reason, count in reasons.most_common():
        print(f"{count:5} skipped: {reason}{'  (UNEXPECTED)' if reason in unexpected else ''}")
    print(f"skips: {sum(count for reason, count in reasons.items() if reason not in unexpected)} known, {len(unexpected)} unexpected reasons")
    return min(len(unexpected), 100)

if __name__ == "__main__":
    sys.exit(main())
