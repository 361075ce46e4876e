#!/bin/sh
# build.sh PRESET [TARGET...]: configures the preset if that was not done yet, and builds.
set -eu
cd "$(dirname "$0")/.."
preset=$1
shift
case $preset in
  release) folder=build configure=release ;;
  quick | sweeps) folder=build configure=release ;; # some targets of it, and more
  tsan-all) folder=build/tsan configure=tsan ;;
  *) folder=build/$preset configure=$preset ;;
esac

# Cargo by the same choice as install_deps.sh, with its own rustc beside it, in front of an older one.
cargo=$(scripts/find_cargo.sh) || {
  echo "build: error: no cargo >= 1.87; run scripts/install_deps.sh" >&2
  exit 1
}
PATH=$(dirname "$cargo"):$PATH
export PATH

# They link the kernels of the release build.
case $preset in sanitize | fuzz) "$0" release situ_kernels ;; esac

# Ninja configures again by itself when a CMake file has changed; the presets file is not among those it watches.
if [ ! -e "$folder/build.ninja" ] || [ CMakePresets.json -nt "$folder/build.ninja" ]; then
  # Addresses are checked by clang, whose warnings then need no second pass over these files (clang_check.py); GCC else.
  case $preset in
    sanitize | asan | ubsan) CXX=${CXX:-$(scripts/clang_check.py --find-sanitizing 2>/dev/null || echo c++)} && export CXX ;;
    fuzz) CXX=$(scripts/clang_check.py --find-sanitizing) && CC=${CXX%%++*}${CXX##*++} && export CXX CC ;; # libFuzzer is clang's
  esac
  cmake --preset "$configure"
  touch "$folder/build.ninja"
fi
[ $# -eq 0 ] || set -- --target "$@"
exec cmake --build --preset "$preset" "$@"
