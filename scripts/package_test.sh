#!/bin/bash
# package_test.sh MODEL: installs each package of dist/ in a system without a compiler, and lets it answer a question with the
# model, offline: Debian 12 and 13 by debootstrap for wheels, .deb and tarball; the image by what made it. As root. The last
# line is "package_test: N passed, N failed, N left out".
set -uo pipefail
cd "$(dirname "$0")/.."
model=$(realpath "$1")
folder=$PWD/build/package-test
dist=$PWD/dist
SITU_CACHE_DIR= && export SITU_CACHE_DIR # no packed weights are saved
mirror=$(sed -n -E 's/^deb (\[[^]]*\] )?(https?:[^ ]+).*/\2/p; s/^URIs: *([^ ]+).*/\1/p' /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | head -n 1)
question=(run "$model" --prompt "The capital of France is" -n 12)
passed=0
failed=0
left_out=0

# Mounts of roots never stay, nor those of a run that was killed: what removes a root would remove what is mounted there.
unmount_all() {
  local at
  while at=$(awk -v below="$folder/" 'index($2, below) == 1 { last = $2 } END { print last }' /proc/self/mounts) && [ -n "$at" ]; do
    umount "$at" 2>/dev/null || umount --lazy "$at" || { echo "package_test: error: $at cannot be unmounted" && exit 1; }
  done
}
trap unmount_all EXIT

leave_out() {
  echo "left out: $*"
  left_out=$((left_out + 1))
}

# result NAME CODE LOG
result() {
  if [ "$2" -eq 0 ] && grep -q Paris "$3"; then
    passed=$((passed + 1))
    echo "passed: $1"
  else
    failed=$((failed + 1))
    echo "FAILED: $1 ended with $2: $(tail -n 20 "$3")"
  fi
}

# make_root SUITE PACKAGES: a system of that suite, made once.
make_root() {
  local root=$folder/$1
  [ -e "$root/made" ] && return
  rm -rf --one-file-system "$root"
  mkdir -p "$root"
  debootstrap --variant=minbase "--include=$2" "$1" "$root" "$mirror" >"$folder/$1.log" 2>&1 || return
  touch "$root/made"
}

bind() {
  mkdir -p "$2"
  mount --bind "$1" "$2" && mount -o remount,bind,ro "$2"
}

# in_root ROOT COMMAND...: without a network where the system allows that.
in_root() {
  local root=$1 offline=(unshare --net)
  shift
  "${offline[@]}" true 2>/dev/null || offline=()
  "${offline[@]}" chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root HF_HUB_OFFLINE=1 SITU_CACHE_DIR= "$@"
}

# The whole of a package in a fresh copy of a root: NAME ROOT COMMANDS, which a shell runs there with the files in /dist.
try_in() {
  local name=$1 root=$folder/run log=$folder/$1-$2.log started=$SECONDS code=0
  rm -rf --one-file-system "$root"
  cp -a "$folder/$2" "$root"
  mkdir -p "$root/dist"
  cp "$dist"/* "$root/dist"
  bind "$model" "$root$model"
  bind /proc "$root/proc"
  in_root "$root" sh -ec '! command -v cc && ! command -v c++' >"$log" 2>&1 || code=$?
  [ "$code" -ne 0 ] || in_root "$root" sh -ec "$3" sh "${question[@]}" >"$log" 2>&1 || code=$?
  unmount_all
  result "$name in $2, $((SECONDS - started)) s" "$code" "$log"
}

# The configuration in the archive: what tools show of it lacks the health check.
image_config() {
  python3 -c '
import json, sys, tarfile
archive = tarfile.open(sys.argv[1])
name = json.load(archive.extractfile("manifest.json"))[0]["Config"]
print(json.dumps(json.load(archive.extractfile(name))["config"]))' "$image"
}

# wheel_for PYTHON_MINOR: the file
wheel_for() { find "$dist" -name "situ_engine-*-$1-manylinux*.whl" | head -n 1; }

[ "$(id -u)" -eq 0 ] || { echo "package_test: error: roots are made as root" && exit 1; }
mkdir -p "$folder"
unmount_all
(cd "$dist" && sha256sum --quiet -c SHA256SUMS) || { echo "package_test: error: dist/SHA256SUMS does not agree; make package" && exit 1; }
version=$(sed -n -E 's/^project\(situ VERSION ([0-9.]+).*/\1/p' CMakeLists.txt)
for suite in bookworm trixie; do
  wheel=$(wheel_for "$([ "$suite" = bookworm ] && echo cp311-cp311 || echo cp312-abi3)")
  if ! make_root "$suite" ca-certificates,xz-utils,python3,python3-numpy; then
    leave_out "$suite: debootstrap says: $(tail -n 3 "$folder/$suite.log")"
    continue
  fi
  # shellcheck disable=SC2016 # for the shell in the root
  try_in tarball "$suite" 'tar -C /opt -xf /dist/situ-'"$version"'-linux-x86_64.tar.xz; exec /opt/situ-*/bin/situ "$@"'
  # shellcheck disable=SC2016
  try_in deb "$suite" 'dpkg -i /dist/situ_*.deb; test ! -e /etc/systemd/system/multi-user.target.wants/situ.service; situ "$@"; dpkg --purge situ; test ! -e /usr/bin/situ'
  if [ -n "$wheel" ]; then
    # Unpacked as pip would: a wheel is its files and the script of its entry point.
    # shellcheck disable=SC2016
    try_in wheel "$suite" 'python3 -m zipfile -e /dist/'"$(basename "$wheel")"' /opt/site; export PYTHONPATH=/opt/site
      python3 -c "import situ; print(situ.__version__)"; exec python3 -c "import sys, situ_program; sys.argv[0] = \"situ\"; situ_program.main()" "$@"'
  else
    leave_out "$suite: no wheel for its Python"
  fi
done
rm -rf --one-file-system "$folder/run"

# The image, by what made it: its file system in a folder, and what its configuration says.
image=$dist/situ-$version-image.tar
if [ -e "$image" ]; then
  log=$folder/image.log code=0
  store=("--root=$folder/store" "--runroot=$folder/store-run" --storage-driver=vfs)
  {
    container=$(buildah "${store[@]}" from "docker-archive:$image") && at=$(buildah "${store[@]}" mount "$container")
  } >"$log" 2>&1 || code=$?
  if [ "$code" -eq 0 ]; then
    config=$(image_config)
    for words in '"Entrypoint": ["situ"]' '"User": "65532:65532"' 'SITU_CACHE_DIR=/data/cache' 'HF_HOME=/data/huggingface' '"CMD", "situ", "serve", "--check"'; do
      grep -qF -- "$words" <<<"$config" || { echo "its configuration lacks $words" >>"$log" && code=1; }
    done
    bind "$model" "$at/model"
    chroot --userspec=65532:65532 "$at" /usr/bin/situ run /model "${question[@]:2}" >>"$log" 2>&1 || code=$?
    unmount_all
    buildah "${store[@]}" umount "$container" >/dev/null
  fi
  result image "$code" "$log"
  rm -rf --one-file-system "$folder/store" "$folder/store-run"
else
  leave_out "the image is not in dist/"
fi
# The golden tests of tokenizers, images and speech, on the program and the module of the packages.
run_tests() {
  local name=$1 log=$folder/tests.log
  shift
  if "$@" >"$log" 2>&1; then
    passed=$((passed + 1))
    echo "passed: $name"
  else
    failed=$((failed + 1))
    echo "FAILED: $name: $(tail -n 20 "$log")"
  fi
}

mkdir -p "$folder/tarball"
tar -C "$folder/tarball" --strip-components=1 -xf "$dist/situ-$version-linux-x86_64.tar.xz"
for test in golden_models_test encoder_decoder_test vision_test speech_test; do
  run_tests "$test of the tarball's program" .venv/bin/python -B "tests/$test.py" --situ "$folder/tarball/bin/situ"
done
wheel=$(wheel_for cp311-cp311)
if [ -n "$wheel" ] && python3.11 -m venv "$folder/venv" && "$folder/venv/bin/python" -m pip --disable-pip-version-check install --quiet --force-reinstall --no-deps \
  --only-binary :all: "$wheel" -r tools/requirements.txt; then
  run_tests "python_test of the wheel" "$folder/venv/bin/python" -B tests/python_test.py --situ "$folder/tarball/bin/situ"
else
  leave_out "the tests of the wheel: no wheel for Python 3.11"
fi
echo "package_test: $passed passed, $failed failed, $left_out left out"
# With SITU_NOTHING_LEFT_OUT=1, for a release, what could not be tried has failed.
[ "$failed" -eq 0 ] && { [ -z "${SITU_NOTHING_LEFT_OUT:-}" ] || [ "$left_out" -eq 0 ]; }
