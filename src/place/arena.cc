#include "place/arena.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace situ {

int64_t pack_arena(std::vector<Root>& roots) {
  std::vector<size_t> by_size(roots.size());
  std::iota(by_size.begin(), by_size.end(), size_t{0});
  std::stable_sort(by_size.begin(), by_size.end(), [&](size_t a, size_t b) { return roots[a].bytes > roots[b].bytes; });
  std::vector<size_t> placed;
  int64_t total = 0;
  for (size_t r : by_size) {
    if (roots[r].first < 0) continue;
    std::vector<std::pair<int64_t, int64_t>> taken;
    for (size_t p : placed)
      if (roots[p].first <= roots[r].last && roots[r].first <= roots[p].last) taken.emplace_back(roots[p].offset, roots[p].offset + roots[p].bytes);
    std::sort(taken.begin(), taken.end());
    int64_t offset = 0;
    for (const auto& [begin, end] : taken) {
      if (offset + roots[r].bytes <= begin) break;
      offset = std::max(offset, end);
    }
    roots[r].offset = offset;
    total = std::max(total, offset + roots[r].bytes);
    placed.push_back(r);
  }
  return total;
}

}  // namespace situ
