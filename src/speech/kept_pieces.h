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
    if (pieces.empty()) return kept;
    if (after != pieces.begin()) --after;
    return after->original + (kept - after->kept);
  }

  // What part of kept samples [begin, end) is meant, where the pieces on its edges hold no more of it than `before` and
  // `behind` samples: a time that is told a little too early lies in the end of the piece before, a pause away.
  struct Span {
    int64_t begin, end;
  };
  Span without_edges(Span s, int64_t before, int64_t behind) const {
    const auto joint = [&](int64_t least) {  // the first one behind a sample
      return std::partition_point(pieces.begin(), pieces.end(), [&](const Piece& p) { return p.kept <= least; });
    };
    if (const auto j = joint(s.begin); j != pieces.end() && j->kept < s.end && j->kept - s.begin <= before)
      s.begin = j->kept;
    const auto j = joint(s.end - 1);
    if (j != pieces.begin() && (j - 1)->kept > s.begin && s.end - (j - 1)->kept <= behind) s.end = (j - 1)->kept;
    return s;
  }
};

}  // namespace situ
