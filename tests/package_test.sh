#!/bin/bash
# package_test.sh BUILD_DIR: installs the build into a temporary prefix, builds examples/generate against it with
# find_package(situ), runs it and checks what it prints. Exit code 77: skipped.
set -euo pipefail
source_dir=$(cd "$(dirname "$0")/.." && pwd)
build_dir=$(cd "${1:?usage: package_test.sh BUILD_DIR}" && pwd)
cmake=${CMAKE_COMMAND:-cmake}
export SITU_CACHE_DIR=  # no packed weights are saved

fail() {
  echo "package_test: FAILED: $*" >&2
  exit 1
}

shared=${SITU_SHARED:-$source_dir/../shared}
if [ -e "$shared/models/tiny/llama/model.onnx" ]; then
  model=$shared/models/tiny/llama
  prompt=81,5,17
elif [ -e "$source_dir/.models/smollm2-135m-instruct/prepared.json" ]; then
  model=$source_dir/.models/smollm2-135m-instruct
  prompt="The capital of France is"
else
  echo "package_test: skipped: neither $shared/models/tiny/llama nor the demo model (make model) is there"
  exit 77
fi

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

"$cmake" --install "$build_dir" --prefix "$tmp/prefix" >"$tmp/install.log" 2>&1 || fail "install: $(tail -n 5 "$tmp/install.log")"
[ -x "$tmp/prefix/bin/situ" ] || fail "bin/situ is not installed"
for header in "$source_dir"/include/situ/*.h; do
  cmp -s "$header" "$tmp/prefix/include/situ/${header##*/}" || fail "include/situ/${header##*/} is not installed"
done

# Moved after the installation: the package may not depend on where it was installed to, and in particular not on
# the source or the build tree.
mv "$tmp/prefix" "$tmp/moved"
config=$(find "$tmp/moved" -name situConfig.cmake)
[ -n "$config" ] || fail "situConfig.cmake is not installed"
# (-I: the archives carry the source paths of their debug information)
if grep -rIlF -e "$source_dir/" -e "$build_dir" -e "$tmp/prefix" "$(dirname "$config")"; then
  fail "the CMake package names a path of the machine that built it"
fi

cp -r "$source_dir/examples/generate" "$tmp/example"
"$cmake" -S "$tmp/example" -B "$tmp/example/build" -DCMAKE_PREFIX_PATH="$tmp/moved" >"$tmp/configure.log" 2>&1 ||
  fail "configure: $(tail -n 20 "$tmp/configure.log")"
"$cmake" --build "$tmp/example/build" >"$tmp/build.log" 2>&1 || fail "build: $(tail -n 20 "$tmp/build.log")"

output=$("$tmp/example/build/generate" "$model" "$prompt") || fail "generate ended with $?: $output"
echo "$output"
grep -qx '16 tokens, step by step: the same' <<<"$output" || fail "the steps do not make the tokens that generate() made"
grep -qE '^computed [1-9][0-9]* B, copied 0 B, packed [0-9]+ B$' <<<"$output" || fail "the ledger does not read 0 bytes copied"
# The same tokens as the installed command line.
if [ "$prompt" = 81,5,17 ]; then
  ids=$("$tmp/moved/bin/situ" run "$model" --prompt-ids "$prompt" -n 16 --ignore-eos 2>/dev/null)
  [ "$(head -n 1 <<<"$output" | tr -s ' ' , | sed 's/,$//')" = "$ids" ] || fail "situ run says $ids"
fi

# An error is one line and exit code 2.
code=0
error=$("$tmp/example/build/generate" "$tmp/nothing" 1 2>&1) || code=$?
[ "$code" -eq 2 ] && [ "$(wc -l <<<"$error")" -eq 1 ] || fail "a missing model ended with $code and: $error"
echo "package_test: passed"
