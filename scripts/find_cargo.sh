#!/bin/sh
# Prints the path of the first cargo that is new enough for the tokenizer crates, or exits with 1.
# rustup installs into ~/.cargo/bin, which is often not in PATH; Debian's cargo-web is /usr/bin/cargo.
minimum_minor=87 # 1.87, the rust-version of src/text/rust/Cargo.toml

for cargo in "$(command -v cargo)" "${CARGO_HOME:-$HOME/.cargo}/bin/cargo" /usr/bin/cargo; do
  [ -x "$cargo" ] || continue
  version=$("$cargo" --version 2>/dev/null) || continue # "cargo 1.96.0 (...)"
  minor=${version#cargo 1.}
  minor=${minor%%.*}
  if [ "$minor" -ge "$minimum_minor" ] 2>/dev/null; then
    echo "$cargo"
    exit 0
  fi
done
exit 1
