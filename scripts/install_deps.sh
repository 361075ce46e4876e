#!/bin/sh
# install_deps.sh [checks|package]: installs what the build, the tests and the demo need and this machine lacks, by apt (Debian 12
# or newer); with `checks` also the second compiler and a browser, with `package` what packages are made with.
# With everything in place it does nothing and takes about 0.1 s.
set -u
cd "$(dirname "$0")/.." || exit 1
wanted=${1:-}

fail() {
  echo "install_deps: error: $*" >&2
  exit 1
}

# version_of COMMAND...: the first a.b... in the first line that it prints
version_of() { "$@" 2>/dev/null | sed -n '1s/[^0-9]*\([0-9][0-9.]*\).*/\1/p'; }

# at_least HAVE MAJOR MINOR
at_least() {
  major=${1%%.*}
  minor=${1#*.}
  minor=${minor%%.*}
  [ -n "$1" ] && { [ "$major" -gt "$2" ] || { [ "$major" -eq "$2" ] && [ "$minor" -ge "$3" ]; }; }
}

header() { [ -e "/usr/include/$1" ] || [ -e "/usr/local/include/$1" ]; }
python_ok() {
  [ -e .venv/installed ] || python3 -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}
python_headers() {
  python3 -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' 2>/dev/null
}

# Sets `missing` to the packages that are needed, by looking for what they contain: a compiler or a header that came
# here in another way is as good.
find_missing() {
  missing=
  at_least "$(version_of g++ -dumpfullversion)" 12 0 || missing="$missing g++"
  at_least "$(version_of cmake --version)" 3 25 || missing="$missing cmake"
  command -v ninja >/dev/null || missing="$missing ninja-build"
  command -v make >/dev/null || missing="$missing make"
  python_ok || missing="$missing python3 python3-venv"
  python_headers || missing="$missing python3-dev" # for the Python package
  header protozero/version.hpp || missing="$missing libprotozero-dev"
  header xxhash.h || missing="$missing libxxhash-dev"
  header toml++/toml.h || missing="$missing libtomlplusplus-dev"
  header CLI/CLI.hpp || missing="$missing libcli11-dev"
  header nlohmann/json.hpp || missing="$missing nlohmann-json3-dev"
  header sentencepiece_processor.h || missing="$missing libsentencepiece-dev"
  header jpeglib.h || missing="$missing libjpeg-dev"
  header zlib.h || missing="$missing zlib1g-dev"
  header gtest/gtest.h || missing="$missing libgtest-dev"
  [ -e /etc/ssl/certs/ca-certificates.crt ] || missing="$missing ca-certificates" # for cargo
  # Debian 12's package `cargo` is 0.66 (Rust 1.63); cargo-web and rustc-web are the newer ones that it keeps for
  # browsers. They take the place of `cargo` and `rustc` if those are installed.
  scripts/find_cargo.sh >/dev/null || missing="$missing cargo-web rustc-web"
  [ "$wanted" != checks ] || scripts/clang_check.py --find-sanitizing >/dev/null 2>&1 || missing="$missing clang-16 libclang-rt-16-dev lld-16"
  [ "$wanted" != checks ] || command -v curl >/dev/null || missing="$missing curl" # for the examples of README.md
  [ "$wanted" != checks ] || command -v chromium >/dev/null || missing="$missing chromium" # for the page of inspect --html
  if [ "$wanted" = package ]; then
    command -v nasm >/dev/null || missing="$missing nasm"             # for the SIMD of libjpeg-turbo
    command -v xz >/dev/null || missing="$missing xz-utils"
    command -v dpkg-shlibdeps >/dev/null || missing="$missing dpkg-dev" # for CPack
    command -v buildah >/dev/null || missing="$missing buildah"       # for the image
    command -v debootstrap >/dev/null || missing="$missing debootstrap" # for systems to test packages in
  fi
  missing=${missing# }
}

# In one go, since a package list that is out of date makes the installation fail.
update_and_install() {
  # shellcheck disable=SC2086 # $missing is a list
  $as_root apt-get update -q && $as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -q -y --no-install-recommends -o DPkg::Lock::Timeout=120 $missing
}

find_missing
[ -z "$missing" ] && exit 0

command -v apt-get >/dev/null || fail "this is not a Debian system (no apt-get); please install: $missing"
as_root=
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || fail "not root and no sudo; please run as root: apt-get install $missing"
  as_root=sudo
fi

echo "install_deps: installing $missing"
log=$(mktemp) || fail "no temporary file"
trap 'rm -f "$log"' EXIT
for pause in 5 20 0; do
  update_and_install >"$log" 2>&1 && break
  [ "$pause" -eq 0 ] && fail "apt-get could not install $missing: $(grep '^E:' "$log" | paste -s -d ' ')"
  echo "install_deps: apt-get failed, once more in $pause s: $(grep -m 1 '^E:' "$log")"
  sleep "$pause"
done

find_missing
[ -z "$missing" ] || fail "apt-get installed versions that are too old of: $missing (needed: Debian 12 with the packages of its security archive (suite bookworm-security), or newer)"
