#!/bin/bash
# python_test.sh [[--pip] BUILD_DIR]: tests the Python package: tests/python_test.py and examples/python. With BUILD_DIR, a
# release build, the module is built without an optimiser, linked with the library that is there, and tested from a folder.
# With --pip too, pip builds that module and installs the package into an environment of its own; without both, pip builds
# everything, as it does for a user (some minutes).
# SITU_TEST_RAY=1 installs ray too, and runs the examples that need it.
set -euo pipefail
source_dir=$(cd "$(dirname "$0")/.." && pwd)
folder=$source_dir/build/python-test
settings=()
export SITU_CACHE_DIR= # no packed weights are saved
unset PYTHONPATH

fail() {
  echo "python_test: FAILED: $*" >&2
  exit 1
}

source "$source_dir/scripts/quietly.sh"

pip=
if [ "${1:-}" = --pip ]; then
  pip=yes
  shift
fi
[ $# -gt 0 ] || pip=yes
if [ $# -gt 0 ]; then
  build_dir=$(cd "$1" && pwd)
  folder=$build_dir/python-test
  mkdir -p "$folder"
  quietly "$folder/install.log" cmake --install "$build_dir" --prefix "$folder/prefix"
  settings=(--config-settings=cmake.source-dir=src/python "--config-settings=cmake.define.CMAKE_PREFIX_PATH=$folder/prefix" "--config-settings=build-dir=$folder/build") # -C is newer than the pip of Debian 12
else
  build_dir=$source_dir/build
  cargo=$("$source_dir/scripts/find_cargo.sh") || fail "no cargo >= 1.87; run scripts/install_deps.sh"
  PATH=$(dirname "$cargo"):$PATH
fi
mkdir -p "$folder"
if [ -n "$pip" ]; then
  quietly "$folder/venv.log" python3 -m venv --clear "$folder/venv"
  python=$folder/venv/bin/python
  pip=("$python" -m pip --disable-pip-version-check install --quiet)
  started=$SECONDS
  quietly "$folder/pip.log" "${pip[@]}" "$source_dir" "${settings[@]}"
  echo "python_test: pip install took $((SECONDS - started)) s"
  quietly "$folder/requirements.log" "${pip[@]}" --no-deps --only-binary :all: -r "$source_dir/tools/requirements.txt"
else
  python=$source_dir/.venv/bin/python
  quietly "$folder/configure.log" cmake -S "$source_dir/src/python" -B "$folder/module" -G Ninja -DCMAKE_BUILD_TYPE=Debug \
    "-DCMAKE_CXX_FLAGS_DEBUG=-O0" -DCMAKE_UNITY_BUILD=ON "-DCMAKE_PREFIX_PATH=$folder/prefix" "-DPython_EXECUTABLE=$python"
  quietly "$folder/build.log" cmake --build "$folder/module"
  rm -rf "$folder/package"
  quietly "$folder/install.log" cmake --install "$folder/module" --component python --prefix "$folder/package"
  cp -r "$source_dir/src/python/situ" "$folder/package"
  export PYTHONPATH=$folder/package
fi

cd "$folder" # not where a folder could be taken for the package
"$python" -B "$source_dir/tests/python_test.py" --situ "$build_dir/situ"

shared=${SITU_SHARED:-$source_dir/../shared}
for model in "$source_dir/.models/smollm2-135m-instruct" "$shared/models/smollm2-135m-instruct-int4"; do
  [ -e "$model/genai_config.json" ] && break
done
if [ ! -e "$model/genai_config.json" ]; then
  echo "python_test: without the demo model (make model) the examples are not run"
  exit 0
fi
examples=$source_dir/examples/python
output=$(printf 'Hello\nWhat did I say?\n' | "$python" "$examples/chat.py" "$model" --system "You are brief." -n 8) || fail "chat.py"
[ "$(grep -c '^> .' <<<"$output")" -eq 2 ] || fail "chat.py printed: $output"
output=$("$python" "$examples/batch.py" "$model" "The sun" "The moon" -n 8) || fail "batch.py"
[ "$(grep -c '8 tokens' <<<"$output")" -eq 2 ] && grep -q 'copied 0 B' <<<"$output" || fail "batch.py printed: $output"
output=$("$python" "$examples/beams.py" "$model" "The sun" --groups 2 -n 8) || fail "beams.py"
[ "$(grep -c "^ *-[0-9]" <<<"$output")" -eq 4 ] && grep -q 'copied 0 B' <<<"$output" || fail "beams.py printed: $output"
printf '%s\n' "The capital of France is Paris." "Capital the France Paris is of." >prompts.txt
if [ -n "${SITU_TEST_RAY:-}" ]; then
  quietly ray.log "$python" -m pip --disable-pip-version-check install --quiet "ray[data,serve]"
  output=$("$python" "$examples/ray_score.py" "$model" prompts.txt --workers 2 2>ray.log) || fail "ray_score.py: $(tail -n 30 ray.log)"
  "$python" -c 'import json, sys; a, b = map(json.loads, sys.stdin); sys.exit(not a["logprob"] > b["logprob"])' <<<"$output" || fail "ray_score.py printed: $output"
  port=$("$python" -c 'import socket; print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])')
  "$python" "$examples/../ray_serve/serve.py" "$model" --replicas 1 --threads 1 --port "$port" >ray_serve.log 2>&1 &
  server=$!
  trap 'kill $server' EXIT
  for _ in $(seq 600); do
    grep -q '^ready' ray_serve.log || sleep 0.2
  done
  ask() { curl -s "http://127.0.0.1:$port/v1/chat/completions" -d "$1"; }
  body='"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4'
  ask "{$body}" | grep -q '"finish_reason"' || fail "ray_serve: $(tail -n 30 ray_serve.log)"
  [ "$(ask "{$body, \"stream\": true}" | grep -c '^data: ')" -gt 2 ] || fail "ray_serve gave no stream"
  ask "{$body, \"n\": -1}" | grep -q '"param":"n"' || fail "ray_serve refused nothing"
else
  for example in "$examples/ray_score.py" "$examples/../ray_serve/serve.py"; do
    code=0
    "$python" "$example" "$model" prompts.txt || code=$?
    [ "$code" -eq 77 ] || fail "$example without ray ended with $code"
  done
fi
echo "python_test: passed"
