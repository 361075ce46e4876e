#!/bin/bash
# Builds and runs all tests: those of tools/, all of the release build, and those of bad input under the address and
# undefined behaviour sanitizers. The last line is "N passed, N failed"; the exit code is 0 if none failed.
set -euo pipefail
cd "$(dirname "$0")/.."

passed=0
failed=0
skipped=0

headline() { printf '== %s (after %d s)\n' "$1" "$SECONDS"; }

# count LOG WORDS: of how many tests ctest says WORDS
count() { grep -c -E "^ *[0-9]+/[0-9]+ Test .*$2" "$1" || true; }

run_ctest() {
  local preset=$1 log=build/ctest-$1.log code=0 bad
  headline "tests, preset $preset"
  ctest --preset "$preset" 2>&1 | tee "$log" || code=$?
  bad=$(sed -n -E 's/.* tests passed, ([0-9]+) tests? failed.*/\1/p' "$log")
  # Without a summary ctest itself has failed, for instance because it found no tests.
  if [ -z "$bad" ] || { [ "$code" -ne 0 ] && [ "$bad" -eq 0 ]; }; then
    bad=1
  fi
  passed=$((passed + $(count "$log" ' Passed ')))
  skipped=$((skipped + $(count "$log" '\*\*\*(Skipped|Not Run \(Disabled\))')))
  failed=$((failed + bad))
}

run_tool_tests() {
  local log=build/tool-tests.log code=0 ran bad
  headline "tests of tools/"
  .venv/bin/python -B -m unittest discover -s tools -t tools -p '*_test.py' 2>&1 | tee "$log" || code=$?
  ran=$(sed -n -E 's/^Ran ([0-9]+) tests? in .*/\1/p' "$log")
  bad=$(grep -c -E '^(FAIL|ERROR): ' "$log" || true)
  if [ "$code" -ne 0 ] && [ "$bad" -eq 0 ]; then
    bad=1
  fi
  passed=$((passed + ${ran:-0} - bad))
  failed=$((failed + bad))
}

mkdir -p build
headline "what the tests need"
make --no-print-directory python
if [ ! -d ../shared/models/smollm2-135m-instruct-int4 ]; then
  make --no-print-directory model
fi
run_tool_tests

headline "build, preset release"
scripts/build.sh release
run_ctest release

# Other sanitizer presets by name: SITU_SANITIZER_PRESETS=tsan make test.
for preset in ${SITU_SANITIZER_PRESETS-sanitize}; do
  headline "build, preset $preset"
  scripts/build.sh "$preset"
  run_ctest "$preset"
done

headline "done"
if [ "$skipped" -gt 0 ]; then
  echo "$skipped skipped"
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
