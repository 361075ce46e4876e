#!/bin/bash
# test.sh [LANE...]: builds and runs tests. The last line is "N passed, N failed"; the exit code is 0 if none failed.
#   tools     those of tools/
#   release   the tests of the release build, but unit tests that the sanitizers' lane runs
#   sanitize  the unit tests, bad input and tiny models under the address and undefined behaviour sanitizers
#   tsan      what threads meet in, under the thread sanitizer
#   alone     what reads ../shared, once more where that is empty, as in a clone with nothing beside it
#   clang     no tests: what clang warns of, by file of the library; clang-all   of tests too
#   quick     the unit tests of the release build, the rules about the source and its format
#   sweeps    what takes too long for every change: every model in every way, emulated ISAs, the cases of kernel_bench
#   asan, ubsan   all that one sanitizer can run, on the kernels of all ISAs; tsan-all   the same of threads, and Python's
#   packages  makes all packages, and installs each in a system without a compiler (as root)
# Without arguments: tools release alone sanitize tsan clang, which is `make test`; `all` adds the others. While the tests of a
# lane run, the next lane is built at the lowest priority: it gets the processor's time that tests leave. The release build
# starts while what the other lanes need is installed.
set -euo pipefail
cd "$(dirname "$0")/.."

passed=0
failed=0
skipped=0
most_skipped=40 # cases, in a clone with nothing beside it

headline() { printf '== %s (after %d s)\n' "$1" "$SECONDS"; }

# count LOG WORDS: of how many tests ctest says WORDS
count() { grep -c -E "^ *[0-9]+/[0-9]+ Test .*$2" "$1" || true; }

# Skips inside of tests, which ctest counts as passed: each reason is printed, and one that nobody expects is a failure.
count_skips() {
  local code=0
  scripts/skips.py "$@" >build/skips.log || code=$?
  cat build/skips.log
  skipped=$((skipped + $(sed -n -E '$s/^skips: ([0-9]+) known.*/\1/p' build/skips.log)))
  failed=$((failed + code))
}

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
  failed=$((failed + bad))
  count_skips "$(folder_of "$preset")/Testing/Temporary/LastTest.log"
}

# The cases that a clone with nothing beside it skips are few: tests write models of each kind themselves.
run_alone() {
  local before=$skipped
  run_ctest alone
  if [ "$((skipped - before))" -gt "$most_skipped" ]; then
    echo "alone: $((skipped - before)) cases are skipped, more than $most_skipped"
    failed=$((failed + 1))
  fi
  skipped=$before # they ran elsewhere
}

run_tool_tests() {
  local log=build/tool-tests.log code=0 ran bad
  headline "tests of tools/"
  .venv/bin/python -B -m unittest discover -v -s tools -t tools -p '*_test.py' >"$log" 2>&1 || code=$?
  tail -n 4 "$log"
  ran=$(sed -n -E 's/^Ran ([0-9]+) tests? in .*/\1/p' "$log")
  bad=$(grep -c -E '^(FAIL|ERROR): ' "$log" || true)
  if [ "$code" -ne 0 ]; then
    cat "$log"
    [ "$bad" -ne 0 ] || bad=1
  fi
  passed=$((passed + ${ran:-0} - bad))
  failed=$((failed + bad))
  count_skips "$log"
}

# The folder of a preset's build: as in CMakePresets.json.
folder_of() {
  case $1 in
    release | alone | quick | sweeps) echo build ;;
    tsan-all) echo build/tsan ;;
    *) echo "build/$1" ;;
  esac
}

# Which lanes are built, and how; `alone` is of the release build.
builds() { [[ $1 != tools && $1 != alone && $1 != packages && $1 != clang* ]]; }

# build_beside LANE: starts the build of a lane, which wait_for_build ends.
building=
builder=
build_beside() {
  building=$1
  # By the policy that waits for all others, where it can be had: a test that wakes need not wait for a compiler's slice.
  local idle=(chrt --idle 0)
  "${idle[@]}" true 2>/dev/null || idle=(nice -n 19)
  "${idle[@]}" scripts/build.sh "$1" >"build/build-$1.log" 2>&1 &
  builder=$!
}

# What is built for users has no -Werror: a warning of the compiler is a failed test.
refuse_warnings() {
  grep -E '^[^ ]+:[0-9]+:[0-9]+: warning: ' "build/build-$1.log" || return 0
  failed=$((failed + 1))
}

wait_for_build() {
  headline "build, preset $1"
  if [ "$building" = "$1" ]; then
    building=
    wait "$builder" && tail -n 1 "build/build-$1.log" && refuse_warnings "$1" && return
    echo "the build of $1 failed beside the tests; again, for its errors:"
  fi
  scripts/build.sh "$1" 2>&1 | tee "build/build-$1.log"
  refuse_warnings "$1"
}

run_clang() {
  local log=build/clang.log
  headline "clang"
  scripts/clang_check.py "$@" 2>&1 | tee "$log" || true
  local line bad
  line=$(tail -n 1 "$log")
  bad=$(sed -n -E 's/^clang_check: [0-9]+ passed, ([0-9]+) failed$/\1/p' <<<"$line")
  failed=$((failed + ${bad:-1}))
  passed=$((passed + $(sed -n -E 's/^clang_check: ([0-9]+) passed, .*/\1/p' <<<"$line" | grep . || echo 0)))
}

run_packages() {
  local log=build/packages.log good bad left
  headline "packages"
  { make --no-print-directory package && make --no-print-directory package-test; } 2>&1 | tee "$log" || true
  good=$(sed -n -E 's/^package_test: ([0-9]+) passed, .*/\1/p' "$log")
  bad=$(sed -n -E 's/^package_test: [0-9]+ passed, ([0-9]+) failed.*/\1/p' "$log")
  left=$(sed -n -E 's/^package_test: .* failed, ([0-9]+) left out$/\1/p' "$log")
  skipped=$((skipped + ${left:-0}))
  passed=$((passed + ${good:-0}))
  failed=$((failed + ${bad:-1}))
}

mkdir -p build
lanes=("$@")
[ $# -gt 0 ] || lanes=(tools release alone sanitize tsan clang)
[ "${1:-}" != all ] || lanes=(tools release alone sweeps packages sanitize tsan-all asan ubsan clang-all)
headline "what the tests need"
if [[ " ${lanes[*]} " == *" release "* ]]; then
  build_beside release # which needs none of it
fi
[ "${lanes[*]}" = quick ] || scripts/install_deps.sh checks
make --no-print-directory python
for i in "${!lanes[@]}"; do
  lane=${lanes[i]}
  if builds "$lane"; then
    wait_for_build "$lane"
  fi
  for next in "${lanes[@]:i+1}"; do
    if builds "$next"; then
      [ -n "$building" ] || build_beside "$next"
      break
    fi
  done
  case $lane in
    tools)
      if [ ! -d ../shared/models/smollm2-135m-instruct-int4 ]; then
        make --no-print-directory model
      fi
      run_tool_tests
      ;;
    alone) run_alone ;;
    packages) run_packages ;;
    clang) run_clang --library ;;
    clang-all) run_clang ;;
    *) run_ctest "$lane" ;;
  esac
done

headline "done"
if [ "$skipped" -gt 0 ]; then
  echo "$skipped skipped"
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
