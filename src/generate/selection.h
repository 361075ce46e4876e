// The largest of many without sorting all of them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace situ {

// The k-th largest of `scores` (1 <= k, no NaN), equal ones counted one by one; -infinity when fewer than k are above
// it. One look at every score and O(n) work whatever their order. `scratch` grows to 2 k once and is then used again.
float kth_largest(std::span<const float> scores, size_t k, std::vector<float>& scratch);

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
