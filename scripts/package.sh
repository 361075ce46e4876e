#!/bin/bash
# package.sh [tarball|wheel|deb|image]...: writes packages into dist/, with SHA256SUMS; without arguments all of them. After
# `make`, on Debian 12: a newer glibc would ask for a newer one where the packages run.
set -euo pipefail
cd "$(dirname "$0")/.."
kinds=("$@")
[ $# -gt 0 ] || kinds=(tarball wheel deb image)
folder=$PWD/build/package
dist=$PWD/dist
mkdir -p "$folder" "$dist"
version=$(sed -n -E 's/^project\(situ VERSION ([0-9.]+).*/\1/p' CMakeLists.txt)

fail() {
  echo "package: error: $*" >&2
  exit 1
}

# quietly LOG COMMAND...: its output is shown if it fails
quietly() {
  local log=$folder/$1
  shift
  "$@" >"$log" 2>&1 || fail "$*: $(tail -n 30 "$log")"
}

say_written() { printf 'package: dist/%s, %s bytes\n' "$1" "$(stat -c %s "$dist/$1")"; }

# The program, and what stands beside it in every package.
build_program() {
  scripts/packaged_libraries.sh "$folder/libraries"
  # The objects of `make` are linked: they have been compiled with the headers of the system.
  local header
  header=$(echo '#include <sentencepiece_processor.h>' | c++ -E -x c++ - | sed -n -E 's/^# [0-9]+ "(.*sentencepiece_processor\.h)".*/\1/p' | head -n 1)
  cmp -s "$header" "$folder/libraries/include/sentencepiece_processor.h" ||
    fail "$header is not SentencePiece 0.1.97's, with which the packages are linked; make packages on Debian 12"
  echo '#include <stdio.h>
#include <jpeglib.h>
#if JPEG_LIB_VERSION != 62
#error not the ABI of libjpeg 6.2
#endif' | cc -fsyntax-only -x c - 2>/dev/null || fail "this system's jpeglib.h has not the ABI of libjpeg 6.2, with which the packages are linked"
  scripts/build.sh release situ situ_packaged
  scripts/check_linked.py "$folder/program/situ"
  rm -rf "${folder:?}/root"
  mkdir -p "$folder/root/bin" "$folder/root/share/doc/situ"
  strip -o "$folder/root/bin/situ" "$folder/program/situ"
  cp LICENSE README.md CHANGELOG.md "$folder/root/share/doc/situ"
  .venv/bin/python -B scripts/third_party.py --libraries "$folder/libraries" --output "$folder/root/share/doc/situ/THIRD-PARTY.txt"
}

# Times and owners of files are the commit's and root's, so that the same commit gives the same bytes.
make_tarball() {
  local name=situ-$version-linux-x86_64 when
  when=$(git log -1 --format=%ct 2>/dev/null || echo 0)
  tar -C "$folder/root" --transform "s,^\.,$name," --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$when" -cf "$folder/$name.tar" .
  xz -9 --keep --force "$folder/$name.tar"
  rm "$folder/$name.tar"
  mv "$folder/$name.tar.xz" "$dist"
  say_written "$name.tar.xz"
}

for kind in "${kinds[@]}"; do
  declare -F "make_$kind" >/dev/null || fail "'$kind' is none of: tarball, wheel, deb, image"
done
make --no-print-directory python
build_program
for kind in "${kinds[@]}"; do
  "make_$kind"
done
(cd "$dist" && find . -maxdepth 1 -type f ! -name SHA256SUMS -printf '%P\0' | sort -z | xargs -0 sha256sum >SHA256SUMS)
