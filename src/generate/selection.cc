#include "generate/selection.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>

#include "generate/call_kernel.h"

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

namespace {

void run_above(KernelFn kernel, std::span<const float> shares, float least, std::span<const View> to) {
  const View x = row_view(shares.data(), static_cast<int64_t>(shares.size()));
  const AboveParams params{least};
  call_kernel(kernel, x, to, &params);
}

// Of many, those with keys around the one that is looked for, which come first in `ranked` then: keys are counted into
// equal steps between the least and the largest. `before` grows by the weight of all smaller keys.
std::span<Ranked> near_mass(std::span<Ranked> ranked, double mass, double& before) {
  constexpr size_t kSteps = 512;
  if (ranked.size() < 4 * kSteps) return ranked;
  double least = std::numeric_limits<double>::infinity(), largest = -least;
  for (const Ranked& r : ranked)
    if (std::isfinite(r.key)) least = std::min(least, r.key), largest = std::max(largest, r.key);
  if (!(largest > least)) return ranked;
  const double scale = kSteps / (largest - least);
  const auto step = [&](const Ranked& r) {
    return static_cast<size_t>(std::clamp((r.key - least) * scale, 0.0, static_cast<double>(kSteps - 1)));
  };
  std::array<double, kSteps> weights{};
  std::array<bool, kSteps> any{};
  for (const Ranked& r : ranked) weights[step(r)] += r.weight, any[step(r)] = true;
  size_t found = 0;
  while (!any[found]) ++found;
  for (size_t next = found + 1; before + weights[found] < mass && next < kSteps; ++next)
    if (any[next]) before += weights[found], found = next;
  const auto end = std::partition(ranked.begin(), ranked.end(), [&](const Ranked& r) { return step(r) == found; });
  return {ranked.begin(), end};
}

}  // namespace

Ranked reaching_mass(std::span<Ranked> ranked, double mass) {
  constexpr size_t kSorted = 64;  // so few are sorted as fast as they are halved
  double before = 0;
  ranked = near_mass(ranked, mass, before);
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

double sum_above(std::span<const float> shares, float least) {
  double sum = 0;
  const View to = row_view(&sum, DType::kF64, 1);
  run_above(kernels().sum_above, shares, least, {&to, 1});
  return sum;
}

void list_above(std::span<const float> shares, float least, std::vector<uint32_t>& numbers) {
  numbers.resize(shares.size() + kAboveSlack);
  int64_t count = 0;
  const View to[2] = {row_view(numbers.data(), DType::kU32, std::ssize(numbers)), row_view(&count, DType::kI64, 1)};
  run_above(kernels().list_above, shares, least, to);
  numbers.resize(static_cast<size_t>(count));
}

}  // namespace situ
