// Where the samples of a recording stood that were kept of it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace situ {

struct KeptPieces {
  struct Piece {
    int64_t kept, original;  // where the piece begins
  };
  std::vector<Piece> pieces;  // in order

  // Where a kept sample, or the end of one, stood in the recording.
  int64_t original(int64_t kept, bool end) const {
    // The end of a piece is its own, not the beginning of the next.
    auto after = std::partition_point(pieces.begin(), pieces.end(),
                                      [&](const Piece& p) { return end ? p.kept < kept : p.kept <= kept; });
    if (after == pieces.begin()) return kept;
    --after;
    return after->original + (kept - after->kept);
  }
};

}  // namespace situ
