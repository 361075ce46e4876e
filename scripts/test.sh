#!/bin/bash
# test.sh [LANE...]: builds and runs tests. The last line is "N passed, N failed"; the exit code is 0 if none failed.
#   tools     those of tools/
#   release   all of the release build but tests that the sanitizers' lane runs
#   sanitize  the unit tests, bad input and tiny models under the address and undefined behaviour sanitizers
#   tsan      threads, batches and streams under the thread sanitizer, the Python module's too
#   clang     no tests: what clang warns of, by file
#   quick     the unit tests of the release build, the rules about the source and its format
# Without arguments: all but quick, whose tests are in release and sanitize.
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

build_and_test() {
  headline "build, preset $1"
  scripts/build.sh "$1"
  run_ctest "$1"
}

run_clang() {
  local log=build/clang.log
  headline "clang"
  scripts/clang_check.py 2>&1 | tee "$log" || true
  local line bad
  line=$(tail -n 1 "$log")
  bad=$(sed -n -E 's/^clang_check: [0-9]+ passed, ([0-9]+) failed$/\1/p' <<<"$line")
  failed=$((failed + ${bad:-1}))
  passed=$((passed + $(sed -n -E 's/^clang_check: ([0-9]+) passed, .*/\1/p' <<<"$line" | grep . || echo 0)))
}

mkdir -p build
headline "what the tests need"
make --no-print-directory python
lanes=("$@")
[ $# -gt 0 ] || lanes=(tools release sanitize tsan clang)
for lane in "${lanes[@]}"; do
  case $lane in
    tools)
      if [ ! -d ../shared/models/smollm2-135m-instruct-int4 ]; then
        make --no-print-directory model
      fi
      run_tool_tests
      ;;
    clang) run_clang ;;
    *) build_and_test "$lane" ;;
  esac
done

headline "done"
if [ "$skipped" -gt 0 ]; then
  echo "$skipped skipped"
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
