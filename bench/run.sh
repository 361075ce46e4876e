#!/bin/bash
# Situ and every peer that can be installed here, on the same files, in turn: bench/run.sh [MODEL] [options of compare.py].
# Without MODEL: the demo's model. Peers go into .venv-bench; llama-cpp-python is built from source where a compiler is.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ ! -e .venv-bench/installed ]; then
  python3 -m venv .venv-bench
  while read -r package; do
    .venv-bench/bin/pip install --quiet --disable-pip-version-check "$package" || echo "bench: $package cannot be installed here"
  done <bench/requirements.txt
  CMAKE_ARGS=-DGGML_NATIVE=ON .venv-bench/bin/pip install --quiet --disable-pip-version-check llama-cpp-python || echo "bench: llama-cpp-python cannot be installed here"
  touch .venv-bench/installed
fi
[ -x build/situ ] || make
model=${1:-}
if [ -n "$model" ]; then shift; else
  make --no-print-directory model
  model=.models/smollm2-135m-instruct
fi
exec .venv-bench/bin/python bench/compare.py "$model" "$@"
