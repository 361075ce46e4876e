#!/bin/sh
# Makes tiny exports with random weights, most of them encoder-decoders, and the answers that they must give.
#
#     tests/exports/make.sh OUT [NAME...]        then: SITU_EXPORTS=OUT ctest --preset release -R encoder_decoder_test
#
# OUT/venv has the packages of requirements.txt (torch with them: 6 GB), OUT/NAME the files that Optimum writes and expected.json.
# Models that are there already are left alone; NAMEs are made again.
set -eu
here=$(dirname "$0")
out=${1:?usage: make.sh OUT [NAME...]}
shift
mkdir -p "$out"
if ! cmp -s "$here/requirements.txt" "$out/venv/installed"; then
  [ -d "$out/venv" ] || python3 -m venv "$out/venv"
  "$out/venv/bin/pip" --disable-pip-version-check install --quiet --only-binary :all: -r "$here/requirements.txt"
  cp "$here/requirements.txt" "$out/venv/installed"
fi
# Nothing is downloaded from here on.
HF_HUB_OFFLINE=1 CUDA_VISIBLE_DEVICES='' exec "$out/venv/bin/python" -B "$here/make.py" "$out" "$@"
