#!/bin/bash
# Situ and every peer that can be installed here, on the same files, in turn: bench/run.sh [MODEL] [options of compare.py].
# Without MODEL: the demo's model. Peers go into .venv-bench; llama-cpp-python is built from source where a compiler is.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ ! -e .venv-bench/installed ]; then  # what cannot be installed is tried again next time
  [ -x .venv-bench/bin/pip ] || python3 -m venv .venv-bench
  missing=0
  install() { .venv-bench/bin/pip install --quiet --disable-pip-version-check "$1" || { echo "bench: $1 cannot be installed here"; missing=1; }; }
  while read -r package; do install "$package"; done <bench/requirements.txt
  CMAKE_ARGS=-DGGML_NATIVE=ON install llama-cpp-python
  [ $missing = 1 ] || touch .venv-bench/installed
fi
[ -x build/situ ] || make
model=${1:-}
if [ -n "$model" ]; then shift; else
  make --no-print-directory model
  model=.models/smollm2-135m-instruct
fi
exec .venv-bench/bin/python bench/compare.py "$model" "$@"
