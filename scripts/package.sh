#!/bin/bash
# package.sh [tarball|wheel|deb|image]...: writes packages into dist/, with SHA256SUMS; without arguments all of them. After
# `make`, on Debian 12: a newer glibc would ask for a newer one where the packages run.
set -euo pipefail
umask 022 # the modes of what is packed
cd "$(dirname "$0")/.."
kinds=("$@")
[ $# -gt 0 ] || kinds=(tarball wheel deb image)
folder=$PWD/build/package
dist=$PWD/dist
mkdir -p "$folder" "$dist"
version=$(sed -n -E 's/^project\(situ VERSION ([0-9.]+).*/\1/p' CMakeLists.txt)

# With SITU_NOTHING_LEFT_OUT=1, for a release, what cannot be made is an error.
leave_out() {
  [ -z "${SITU_NOTHING_LEFT_OUT:-}" ] || fail "$1"
  echo "package: $1"
}

fail() {
  echo "package: error: $*" >&2
  exit 1
}

source scripts/quietly.sh

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
  install -m 644 LICENSE README.md CHANGELOG.md "$folder/root/share/doc/situ"
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

# A Python >= 3.12 with headers, for one wheel that all later ones take: SITU_PYTHON, or what is found.
find_new_python() {
  local python
  for python in ${SITU_PYTHON:-python3.14 python3.13 python3.12 python3 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[2-9]*/bin/python}; do
    if "$python" -c 'import ensurepip, os, sys, sysconfig, venv; sys.exit(sys.version_info < (3, 12) or not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' 2>/dev/null; then
      command -v "$python"
      return
    fi
  done
}

# wheel_by PYTHON NAME [SETTING...]: the module is linked with what `make` has built, and with the archives of packages.
wheel_by() {
  local python=$1 name=$2 work=$folder/$2
  shift 2
  rm -rf "$work"
  mkdir -p "$work"
  quietly "$folder/$name.log" "$python" -m venv "$work/venv"
  quietly "$folder/$name.log" "$work/venv/bin/python" -m pip --disable-pip-version-check wheel --no-deps --wheel-dir "$work" . \
    --config-settings=cmake.source-dir=src/python "--config-settings=cmake.define.CMAKE_PREFIX_PATH=$folder/prefix" \
    "--config-settings=cmake.define.SITU_PACKAGED_LIBRARIES=$folder/libraries/lib" \
    "--config-settings=cmake.define.SITU_THIRD_PARTY=$folder/root/share/doc/situ/THIRD-PARTY.txt" \
    "--config-settings=build-dir=$work/build" "$@"
  # Says which systems it runs on, and refuses one that needs more.
  quietly "$folder/$name.log" env PATH="$folder/tools/bin:$PATH" "$folder/tools/bin/auditwheel" repair --plat manylinux_2_34_x86_64 --wheel-dir "$work/repaired" "$work"/*.whl
  rm -rf "$work/unpacked"
  python3 -m zipfile -e "$work"/repaired/*.whl "$work/unpacked"
  scripts/check_linked.py "$work"/unpacked/situ/_situ*.so libgcc_s.so.1
  name=$(basename "$work"/repaired/*.whl)
  mv "$work/repaired/$name" "$dist"
  say_written "$name"
}

make_wheel() {
  rm -f "$dist"/situ_engine-*.whl
  quietly "$folder/tools.log" python3 -m venv "$folder/tools"
  quietly "$folder/tools.log" "$folder/tools/bin/python" -m pip --disable-pip-version-check install --quiet --no-deps -r packaging/requirements.txt
  rm -rf "$folder/prefix"
  quietly "$folder/install.log" cmake --install build --prefix "$folder/prefix"
  local old new
  old=$(command -v python3.11 || command -v python3)
  if "$old" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))'; then
    wheel_by "$old" wheel-cp311
  else
    leave_out "no Python 3.11: the wheel for cp311 is left out"
  fi
  new=$(find_new_python)
  if [ -n "$new" ]; then
    wheel_by "$new" wheel-abi3 --config-settings=wheel.py-api=cp312
  else
    leave_out "no Python >= 3.12 with headers (SITU_PYTHON=...): the wheel for cp312-abi3 is left out"
  fi
}

make_deb() {
  rm -rf "${folder:?}/deb"
  quietly "$folder/deb.log" cmake -S packaging/deb -B "$folder/deb" "-DSITU_ROOT=$folder/root" "-DSITU_VERSION=$version"
  # CPack asks dpkg-shlibdeps for the least version of glibc.
  (cd "$folder/deb" && quietly "$folder/deb.log" cpack)
  local name=situ_${version}_amd64.deb
  mv "$folder/deb/$name" "$dist"
  say_written "$name"
}

# The image: the program, glibc, certificates and nothing else.
fill_image() {
  local into=$1 library
  mkdir -p "$into"/{usr/bin,etc/ssl/certs,lib64,tmp,usr/share/doc/situ}
  chmod 1777 "$into/tmp"
  cp "$folder/root/bin/situ" "$into/usr/bin"
  cp "$folder/root/share/doc/situ/"{LICENSE,THIRD-PARTY.txt} "$into/usr/share/doc/situ"
  cp /usr/share/doc/libc6/copyright "$into/usr/share/doc/situ/glibc-copyright"
  ldd "$folder/root/bin/situ" | grep -o '/[^ ]*\.so[^ ]*' | while read -r library; do
    cp -L --parents "$library" "$into"
  done
  cp -L /etc/ssl/certs/ca-certificates.crt "$into/etc/ssl/certs"
  echo 'hosts: files dns' >"$into/etc/nsswitch.conf"
  printf 'root:x:0:0:root:/:/sbin/nologin\nsitu:x:65532:65532:situ:/data:/sbin/nologin\n' >"$into/etc/passwd"
  printf 'root:x:0:\nsitu:x:65532:\n' >"$into/etc/group"
}

# In a store of its own, without a daemon. Returns 1 where buildah cannot.
build_image() {
  local store=("--root=$folder/image/store" "--runroot=$folder/image/run" --storage-driver=vfs) container
  container=$(buildah "${store[@]}" from --format docker scratch) &&
    buildah "${store[@]}" copy "$container" "$folder/image/root" / &&
    buildah "${store[@]}" copy --chown 65532:65532 "$container" "$folder/image/data" /data &&
    buildah "${store[@]}" config --entrypoint '["situ"]' --user 65532:65532 --workingdir /data --volume /data --port 8080/tcp \
      --env PATH=/usr/bin --env SITU_CACHE_DIR=/data/cache --env HF_HOME=/data/huggingface \
      --healthcheck 'CMD situ serve --check http://127.0.0.1:8080' --healthcheck-interval 30s --healthcheck-timeout 6s \
      --healthcheck-start-period 10m --healthcheck-retries 3 "$container" &&
    buildah "${store[@]}" commit --format docker --timestamp "$(git log -1 --format=%ct 2>/dev/null || echo 0)" "$container" "docker-archive:$1:situ:$version"
}

make_image() {
  local name=situ-$version-image.tar
  rm -rf "${folder:?}/image" "$dist/$name"
  mkdir -p "$folder/image/data/"{cache,huggingface}
  fill_image "$folder/image/root"
  if build_image "$dist/$name" >"$folder/image.log" 2>&1; then
    say_written "$name"
  else
    rm -f "$dist/$name"
    leave_out "the image is left out, buildah says: $(tail -n 5 "$folder/image.log")"
  fi
  rm -rf "${folder:?}/image"
}

for kind in "${kinds[@]}"; do
  declare -F "make_$kind" >/dev/null || fail "'$kind' is none of: tarball, wheel, deb, image"
done
find "$dist" -maxdepth 1 -type f ! -name "*[-_]${version}[-_]*" ! -name SHA256SUMS -delete # of other versions
make --no-print-directory python
build_program
for kind in "${kinds[@]}"; do
  "make_$kind"
done
(cd "$dist" && find . -maxdepth 1 -type f ! -name SHA256SUMS -printf '%P\0' | sort -z | xargs -0 sha256sum >SHA256SUMS)
