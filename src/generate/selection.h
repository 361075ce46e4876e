// The largest of many without sorting all of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace situ {

// Calls visit(i) for every wanted score, in order; few are. Blocks without one are left after as many comparisons as
// vectors hold at once (51,865 scores: 5 us, one by one 20).
template <typename Wanted, typename Visit>
void each_wanted(std::span<const float> scores, Wanted wanted, Visit visit) {
  constexpr size_t kBlock = 64;
  for (size_t begin = 0; begin < scores.size(); begin += kBlock) {
    const size_t end = std::min(begin + kBlock, scores.size());
    int some = end - begin < kBlock;
    if (!some) {
      const float* block = scores.data() + begin;
      for (size_t i = 0; i < kBlock; ++i) some |= wanted(block[i]);
    }
    for (size_t i = begin; i < end && some; ++i)
      if (wanted(scores[i])) visit(i);
  }
}

// The k-th largest of `scores` (1 <= k, no NaN), equal ones counted one by one; -infinity when fewer than k are above
// it. One look at every score and O(n) work whatever their order. `scratch` grows to 2 k once and is then used again.
float kth_largest(std::span<const float> scores, size_t k, std::vector<float>& scratch);

// Of shares, no NaN: the sum of those above `least`; which of them are, in order. By kernels.
double sum_above(std::span<const float> shares, float least);
void list_above(std::span<const float> shares, float least, std::vector<uint32_t>& numbers);

struct Ranked {
  double key = 0;
  int64_t id = 0;
  double weight = 0;
};

// Smaller keys first; of equal keys the larger id first, as at the end of a stable ascending sort of logits.
inline bool ranks_before(const Ranked& a, const Ranked& b) { return a.key < b.key || (a.key == b.key && a.id > b.id); }

// In the order of ranks_before: the first at which the weights, itself included, sum to `mass`, or else the last.
// Reorders `ranked` (not empty). O(n): halves are chosen by their weight, only a short rest is sorted.
Ranked reaching_mass(std::span<Ranked> ranked, double mass);

}  // namespace situ
