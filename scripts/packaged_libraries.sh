#!/bin/bash
# packaged_libraries.sh FOLDER: builds what packages link in place of the system's libraries, with -fPIC, from the
# sources that the crates of packaging/libraries carry: FOLDER/include, FOLDER/lib/lib{sentencepiece,jpeg,z}.a, and
# FOLDER/texts with their licences. Does nothing where they are there. 40 s of a processor.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p "$1"
folder=$(cd "$1" && pwd)
# What has to be another for them to be built again.
made_of=$(cat packaging/libraries/Cargo.lock scripts/packaged_libraries.sh | sha256sum)
[ "$(cat "$folder/made_of" 2>/dev/null)" != "$made_of" ] || exit 0

fail() {
  echo "packaged_libraries: error: $*" >&2
  exit 1
}

source scripts/quietly.sh

command -v nasm >/dev/null || fail "no nasm, without which libjpeg-turbo has no SIMD"
cargo=$(scripts/find_cargo.sh) || fail "no cargo >= 1.87; run scripts/install_deps.sh"
rm -rf "${folder:?}"/{include,lib,texts,build,vendor}
mkdir -p "$folder"/{include,lib,texts,build}
# Copies of the crates, whose digests cargo compares with the lock file.
quietly "$folder/vendor.log" "$cargo" vendor --locked --manifest-path packaging/libraries/Cargo.toml "$folder/vendor"

compiler_flags="-ffunction-sections -fdata-sections"
settings=(-G Ninja -DCMAKE_BUILD_TYPE=Release "-DCMAKE_C_FLAGS_RELEASE=-O2 -DNDEBUG" "-DCMAKE_CXX_FLAGS_RELEASE=-O2 -DNDEBUG"
  -DCMAKE_POSITION_INDEPENDENT_CODE=ON "-DCMAKE_C_FLAGS=$compiler_flags -fvisibility=hidden")

source=$folder/vendor/sentencepiece-sys/source
quietly "$folder/sentencepiece.log" cmake -S "$source" -B "$folder/build/sentencepiece" "${settings[@]}" \
  "-DCMAKE_CXX_FLAGS=$compiler_flags -fvisibility=hidden -fvisibility-inlines-hidden" \
  -DSPM_ENABLE_SHARED=OFF -DSPM_ENABLE_TCMALLOC=OFF
quietly "$folder/sentencepiece.log" cmake --build "$folder/build/sentencepiece" --target sentencepiece-static
cp "$folder/build/sentencepiece/src/libsentencepiece.a" "$folder/lib"
cp "$source/src/sentencepiece_processor.h" "$folder/include"
cp "$source/LICENSE" "$folder/texts/SentencePiece"
for part in absl darts_clone esaxx protobuf-lite; do
  cp "$source/third_party/$part/LICENSE" "$folder/texts/SentencePiece: $part"
done

source=$folder/vendor/turbojpeg-sys/libjpeg-turbo
quietly "$folder/jpeg.log" cmake -S "$source" -B "$folder/build/jpeg" "${settings[@]}" -DENABLE_SHARED=OFF -DWITH_TURBOJPEG=OFF -DREQUIRE_SIMD=ON
quietly "$folder/jpeg.log" cmake --build "$folder/build/jpeg" --target jpeg-static
cp "$folder/build/jpeg/libjpeg.a" "$folder/lib"
cp "$source"/src/{jpeglib.h,jmorecfg.h,jerror.h} "$folder/build/jpeg/jconfig.h" "$folder/include"
cat "$source/LICENSE.md" "$source/README.ijg" >"$folder/texts/libjpeg-turbo"

source=$folder/vendor/libz-sys/src/zlib
mkdir -p "$folder/build/z"
for file in adler32 compress crc32 deflate infback inffast inflate inftrees trees uncompr zutil; do
  # shellcheck disable=SC2086 # flags
  quietly "$folder/z.log" cc -O2 -DNDEBUG -fPIC $compiler_flags -fvisibility=hidden -c "$source/$file.c" -o "$folder/build/z/$file.o"
done
quietly "$folder/z.log" ar rcs "$folder/lib/libz.a" "$folder"/build/z/*.o
cp "$source"/{zlib.h,zconf.h} "$folder/include"
cp "$source/LICENSE" "$folder/texts/zlib"

rm -rf "${folder:?}"/{build,vendor}
echo "$made_of" >"$folder/made_of"
