#!/bin/sh
# demo.sh SITU MODEL: lets the model answer a question, then shows what running in place saves.
set -eu
situ=$1
model=$2
system="Answer in one sentence."
question="What is photosynthesis?"

printf '> %s\n' "$question"
"$situ" run "$model" --system "$system" --prompt "$question" -n 64
echo

# number NAME: the value of a field of the JSON object on stdin
number() { tr -d '\n' | sed -n "s/.*\"$1\" *: *\([-+0-9.eE]*\).*/\1/p"; }

# measure LABEL [--naive]: the same graph on the same prompt, without stopping at the end of the answer
measure() {
  label=$1
  shift
  json=$("$situ" run "$model" --system "$system" --prompt "$question" -n 32 --ignore-eos --json "$@")
  awk -v label="$label" \
    -v ms="$(echo "$json" | number decode_ms_per_token)" \
    -v copied="$(echo "$json" | number bytes_copied_per_token)" 'BEGIN {
      unit = "B"
      if (copied >= 1e6) { copied /= 1e6; unit = "MB" } else if (copied >= 1e3) { copied /= 1e3; unit = "kB" }
      printf "%s %6.1f tokens/s   copied %.*f %s/token\n", label, 1000 / ms, unit == "B" ? 0 : 1, copied, unit
    }'
}
measure "in place:"
measure "naive:   " --naive
