// The ledger counts bytes written, by kind, and holds the one function that may move bytes.
#pragma once

#include <cstdint>

#include "base/view.h"

namespace situ {

// Bytes written since the last reset. One per thread during a step, added up at its end.
struct Ledger {
  int64_t computed = 0;  // new values
  int64_t copied = 0;    // bytes that already existed elsewhere: moved, duplicated or re-laid out
  int64_t packed = 0;    // weights re-laid out, once, at load

  void add(const Ledger& other) {
    computed += other.computed;
    copied += other.copied;
    packed += other.packed;
  }
};

// dst[i] = src[i] for every index of dst, and books the bytes as copied. Same type and dims; any
// strides; the two must not overlap. Elements below one byte: contiguous, whole bytes.
// Nothing else in the runtime or the kernels may move bytes (tests/source_rules_test.py checks).
void move_bytes(const View& dst, const View& src, Ledger& ledger);

}  // namespace situ
