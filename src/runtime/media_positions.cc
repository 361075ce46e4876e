#include "runtime/media_positions.h"

#include <algorithm>

namespace situ {

Result<std::vector<int64_t>> media_positions(std::span<const int64_t> ids, int64_t first, int64_t token,
                                             std::span<const int64_t> grids, int64_t merge) {
  constexpr int64_t kLongest = int64_t{1} << 24;
  const size_t n = ids.size();
  std::vector<int64_t> positions(3 * n);
  int64_t next = first;
  size_t grid = 0;
  for (size_t i = 0; i < n;) {
    if (ids[i] != token) {
      for (size_t row = 0; row < 3; ++row) positions[row * n + i] = next;
      ++next;
      ++i;
      continue;
    }
    if (3 * grid + 3 > grids.size())
      return Status::error(Code::kInvalidArgument, "token " + std::to_string(i) + " (id " + std::to_string(token) +
                                                       ") belongs to no picture: grids are given of " +
                                                       std::to_string(grids.size() / 3));
    const int64_t t = grids[3 * grid], h = grids[3 * grid + 1], w = grids[3 * grid + 2];
    const std::string what = "picture " + std::to_string(grid) + ", a grid of (" + std::to_string(t) + ", " +
                             std::to_string(h) + ", " + std::to_string(w) + ") patches";
    if (std::min({t, h, w}) < 1 || std::max({t, h, w}) > kLongest || h % merge != 0 || w % merge != 0)
      return Status::error(Code::kInvalidArgument, what + ", is not of positive multiples of (1, " +
                                                       std::to_string(merge) + ", " + std::to_string(merge) + ")");
    const int64_t rows = h / merge, columns = w / merge;
    int64_t count = 0;
    if (__builtin_mul_overflow(rows * columns, t, &count) || count > static_cast<int64_t>(n - i) ||
        !std::all_of(ids.begin() + static_cast<long>(i), ids.begin() + static_cast<long>(i) + count,
                     [&](int64_t id) { return id == token; }))
      return Status::error(Code::kInvalidArgument,
                           what + ", is " + std::to_string(count) + " tokens, and the prompt has not as many of id " +
                               std::to_string(token) + " from token " + std::to_string(i) + " on");
    for (int64_t k = 0; k < count; ++k, ++i) {
      positions[i] = next + k / (rows * columns);
      positions[n + i] = next + k / columns % rows;
      positions[2 * n + i] = next + k % columns;
    }
    next += std::max({t, rows, columns});
    ++grid;
  }
  if (3 * grid != grids.size())
    return Status::error(Code::kInvalidArgument, "grids are given of " + std::to_string(grids.size() / 3) +
                                                     " pictures, and the prompt has tokens of " + std::to_string(grid));
  return positions;
}

}  // namespace situ
