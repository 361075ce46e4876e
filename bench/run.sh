#!/bin/bash
# Situ and every peer that can be installed here, by one clock.
#   bench/run.sh                     makes the models, measures all rows (half an hour), writes the tables anew
#   bench/run.sh MODEL [OPTIONS]     measures MODEL alone: options of bench/compare.py
# Peers go into .venv-bench (or the folder that SITU_BENCH_ENV names), llama.cpp is built there from the source that the
# sdist of llama-cpp-python carries; models go into .models/bench.
set -euo pipefail
cd "$(dirname "$0")/.."
llama_cpp_python=0.3.36
env=${SITU_BENCH_ENV:-.venv-bench}
models=.models/bench
python=$env/bin/python
pip() { "$python" -m pip --quiet --disable-pip-version-check "$@"; }

if [ ! -e "$env/installed" ]; then  # what cannot be installed is tried again next time
  [ -x "$python" ] || python3 -m venv "$env"
  missing=0
  pip install --no-deps -r tools/requirements.txt
  while read -r package; do pip install "$package" || { echo "bench: $package cannot be installed here"; missing=1; }; done <bench/requirements.txt
  [ $missing = 1 ] || touch "$env/installed"
fi

# Builds llama-bench and llama-batched-bench for this machine; $1: more compiler flags.
build_llama() {
  local source=$env/llama_cpp_python-$llama_cpp_python
  if [ ! -d "$source" ]; then
    pip download --no-deps --no-binary :all: --dest "$env" "llama-cpp-python==$llama_cpp_python"
    tar xzf "$source.tar.gz" -C "$env"
  fi
  cmake -S "$source/vendor/llama.cpp" -B "$env/llama.cpp" -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DBUILD_SHARED_LIBS=OFF \
    -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
    -DCMAKE_C_FLAGS="$1" -DCMAKE_CXX_FLAGS="$1" >/dev/null
  cmake --build "$env/llama.cpp" -j "$(nproc)" --target llama-bench llama-batched-bench >/dev/null
}
version="llama.cpp of llama-cpp-python $llama_cpp_python"
if [ "$(cut -d, -f1 "$env/llama.cpp/version" 2>/dev/null)" != "$version" ]; then
  echo "bench: building llama.cpp"
  if build_llama ""; then
    "$python" -B bench/models.py $models smollm2-int4
    # Its AMX kernels crash on some machines; the row says so where they had to be left out.
    if ! "$env/llama.cpp/bin/llama-bench" -m $models/smollm2-int4.gguf -p 64 -n 4 -r 1 -t 2 >/dev/null 2>&1 && grep -q amx_int8 /proc/cpuinfo; then
      build_llama "-mno-amx-tile -mno-amx-int8 -mno-amx-bf16"
      version="$version, without AMX, which crashed"
    fi
    echo "$version" >"$env/llama.cpp/version"
  else
    echo "bench: llama.cpp cannot be built here"
  fi
fi

[ -x build/situ ] || make
if [ $# -gt 0 ]; then exec "$python" -B bench/compare.py "$@"; fi
"$python" -B bench/models.py $models
"$python" -B bench/measure.py $models
"$python" -B bench/tables.py
