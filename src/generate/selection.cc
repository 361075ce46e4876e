#include "generate/selection.h"

#include <algorithm>
#include <functional>
#include <limits>

namespace situ {

float kth_largest(std::span<const float> scores, size_t k, std::vector<float>& scratch) {
  float least = -std::numeric_limits<float>::infinity();  // of the k largest so far, once there are k
  scratch.clear();
  const auto drop_the_small = [&] {
    std::nth_element(scratch.begin(), scratch.begin() + static_cast<std::ptrdiff_t>(k - 1), scratch.end(),
                     std::greater<>());
    scratch.resize(k);
    least = scratch[k - 1];
  };
  each_wanted(
      scores, [&](float score) { return score > least; },
      [&](size_t i) {
        scratch.push_back(scores[i]);
        if (scratch.size() == 2 * k) drop_the_small();
      });
  if (scratch.size() >= k) drop_the_small();
  return least;
}

Ranked reaching_mass(std::span<Ranked> ranked, double mass) {
  constexpr size_t kSorted = 64;  // so few are sorted as fast as they are halved
  double before = 0;
  while (ranked.size() > kSorted) {
    const size_t half = ranked.size() / 2;
    std::nth_element(ranked.begin(), ranked.begin() + static_cast<std::ptrdiff_t>(half), ranked.end(), ranks_before);
    double weight = 0;
    for (const Ranked& r : ranked.first(half)) weight += r.weight;
    if (before + weight >= mass) {
      ranked = ranked.first(half);
    } else {
      before += weight;
      ranked = ranked.subspan(half);
    }
  }
  std::sort(ranked.begin(), ranked.end(), ranks_before);
  for (const Ranked& r : ranked)
    if ((before += r.weight) >= mass) return r;
  return ranked.back();
}

}  // namespace situ
