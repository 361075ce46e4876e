#!/bin/bash
# fuzz.sh [SECONDS [TARGET...]]: builds the fuzz targets (tests/fuzz) with clang and runs each for so many seconds (60), from
# the kept inputs and from those that earlier runs left in build/fuzz/corpus. The last line is "N targets, M findings".
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
shift $(($# > 0))
scripts/build.sh fuzz
programs=build/fuzz/tests/fuzz
found=build/fuzz/findings
targets=("$@")
[ $# -gt 0 ] || mapfile -t targets < <(sed -n 's/^SITU_FUZZ_TARGET(\(.*\))$/\1/p' "$programs/fuzz_targets.inc")

# The files that targets write again for every input: in memory where that is offered.
TMPDIR=$(mktemp -d -p "$([ -w /dev/shm ] && echo /dev/shm || echo "${TMPDIR:-/tmp}")")
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT

# For lines in reports.
ASAN_SYMBOLIZER_PATH=$(readlink -f "$(command -v llvm-symbolizer || command -v addr2line)")
export ASAN_SYMBOLIZER_PATH ASAN_OPTIONS=allow_addr2line=1
mkdir -p "$found"
"$programs/fuzz_seeds" build/fuzz/seeds
findings=0
for target in "${targets[@]}"; do
  log=build/fuzz/$target.log
  mkdir -p "build/fuzz/corpus/$target" "build/fuzz/seeds/$target" "tests/fuzz/corpus/$target"
  if "$programs/fuzz_$target" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -max_len=8192 -print_final_stats=1 \
    -artifact_prefix="$found/$target-" "build/fuzz/corpus/$target" "tests/fuzz/corpus/$target" "build/fuzz/seeds/$target" >"$log" 2>&1; then
    echo "$target: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") runs, nothing found"
  else
    findings=$((findings + 1))
    grep -m 1 -E 'ERROR: |runtime error: |terminate called|what\(\)' "$log" || tail -n 20 "$log"
    echo "$target: FOUND, see $log; repeat: $programs/fuzz_$target $(sed -n "s/.*Test unit written to //p" "$log" | tail -n 1)"
  fi
done
echo "${#targets[@]} targets, $findings findings"
[ "$findings" -eq 0 ]
