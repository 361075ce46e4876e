#include "runtime/media_positions.h"

#include <algorithm>

#include "base/assign.h"

namespace situ {
namespace {

// A picture's grid, in tokens.
struct Grid {
  int64_t frames = 0, rows = 0, columns = 0;
  int64_t count() const { return frames * rows * columns; }
};

std::string picture(size_t number, int64_t t, int64_t h, int64_t w) {
  return "picture " + std::to_string(number) + ", a grid of (" + std::to_string(t) + ", " + std::to_string(h) + ", " +
         std::to_string(w) + ") patches";
}

Result<Grid> grid_of(std::span<const int64_t> thw, size_t number, int64_t merge) {
  constexpr int64_t kLongest = int64_t{1} << 20;  // the product of three fits
  const int64_t t = thw[0], h = thw[1], w = thw[2];
  if (std::min({t, h, w}) < 1 || std::max({t, h, w}) > kLongest || h % merge != 0 || w % merge != 0)
    return Status::error(Code::kInvalidArgument, picture(number, t, h, w) + ", is not of positive multiples of (1, " +
                                                     std::to_string(merge) + ", " + std::to_string(merge) + ")");
  return Grid{t, h / merge, w / merge};
}

}  // namespace

Result<std::vector<int64_t>> media_positions(std::span<const int64_t> ids, int64_t first, const PictureTokens& tokens,
                                             std::span<const int64_t> grids, int64_t merge) {
  const size_t n = ids.size(), pictures = grids.size() / 3;
  std::vector<Grid> all;
  int64_t wanted = 0;
  for (size_t g = 0; g < pictures; ++g) {
    SITU_TAKE(grid, grid_of(grids.subspan(3 * g, 3), g, merge));
    if (__builtin_add_overflow(wanted, grid.count(), &wanted)) wanted = INT64_MAX;
    all.push_back(grid);
  }
  const int64_t found = std::count(ids.begin(), ids.end(), tokens.row);
  if (found != wanted)
    return Status::error(Code::kInvalidArgument, "grids are given of " + std::to_string(pictures) + " pictures, " +
                                                     std::to_string(wanted) + " tokens in all, and the prompt has " +
                                                     std::to_string(found) + " tokens with id " +
                                                     std::to_string(tokens.row));
  size_t placed = tokens.start < 0 ? pictures : 0;
  for (size_t i = 0; i + 1 < n && tokens.start >= 0; ++i)
    placed += ids[i] == tokens.start && ids[i + 1] == tokens.row ? 1 : 0;
  std::vector<int64_t> positions(3 * n);
  int64_t next = first;
  size_t g = 0;
  for (size_t i = 0; i < n;) {
    if (ids[i] != tokens.row || g >= std::min(placed, pictures)) {
      for (size_t row = 0; row < 3; ++row) positions[row * n + i] = next;
      ++next;
      ++i;
      continue;
    }
    const Grid& grid = all[g];
    const int64_t count = grid.count();
    if (count > static_cast<int64_t>(n - i) ||
        !std::all_of(ids.begin() + static_cast<long>(i), ids.begin() + static_cast<long>(i) + count,
                     [&](int64_t id) { return id == tokens.row; }))
      return Status::error(Code::kInvalidArgument,
                           picture(g, grids[3 * g], grids[3 * g + 1], grids[3 * g + 2]) + ", is " +
                               std::to_string(count) + " tokens, and the prompt has not as many of id " +
                               std::to_string(tokens.row) + " from token " + std::to_string(i) + " on");
    for (int64_t k = 0; k < count; ++k, ++i) {
      positions[i] = next + k / (grid.rows * grid.columns);
      positions[n + i] = next + k / grid.columns % grid.rows;
      positions[2 * n + i] = next + k % grid.columns;
    }
    next += std::max({grid.frames, grid.rows, grid.columns});
    ++g;
  }
  return positions;
}

}  // namespace situ
