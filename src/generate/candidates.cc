#include "generate/candidates.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "generate/greedy.h"
#include "generate/logprobs.h"
#include "generate/random.h"

namespace situ {
namespace {

double sum_above(std::span<const float> shares, float least) {
  constexpr size_t kLanes = 16, kBlock = 64 * kLanes;
  double sum = 0;
  for (size_t begin = 0; begin < shares.size(); begin += kBlock) {
    const std::span<const float> block = shares.subspan(begin, std::min(kBlock, shares.size() - begin));
    float lanes[kLanes] = {};
    size_t i = 0;
    for (; i + kLanes <= block.size(); i += kLanes)
      for (size_t k = 0; k < kLanes; ++k) lanes[k] += block[i + k] > least ? block[i + k] : 0.0f;
    for (; i < block.size(); ++i) lanes[0] += block[i] > least ? block[i] : 0.0f;
    for (const float lane : lanes) sum += lane;
  }
  return sum;
}

// The numbers of these. Blocks that have none are left at once; in the others a branch for each would be guessed wrong.
void list_above(std::span<const float> shares, float least, std::vector<uint32_t>& numbers) {
  constexpr size_t kBlock = 64;
  numbers.resize(shares.size());
  size_t count = 0;
  for (size_t begin = 0; begin < shares.size(); begin += kBlock) {
    const std::span<const float> block = shares.subspan(begin, std::min(kBlock, shares.size() - begin));
    int some = block.size() < kBlock;
    if (!some)
      for (size_t i = 0; i < kBlock; ++i) some |= block[i] > least;
    if (!some) continue;
    for (size_t i = 0; i < block.size(); ++i)
      numbers[count] = static_cast<uint32_t>(begin + i), count += block[i] > least;
  }
  numbers.resize(count);
}

}  // namespace

void Candidates::take(std::span<const float> scores, int64_t top_k, float temperature) {
  constexpr float kLowest = std::numeric_limits<float>::lowest();
  const size_t k = static_cast<size_t>(top_k);
  const float least = k > 0 && k < scores.size() ? std::max(kth_largest(scores, k, scratch_), kLowest) : kLowest;
  candidates_.clear();
  float max = -std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < scores.size(); ++i) {
    if (!(scores[i] >= least)) continue;
    candidates_.push_back({static_cast<int64_t>(i), scores[i], 0});
    max = std::max(max, scores[i]);
  }
  for (Candidate& c : candidates_) {
    // The largest itself may be infinite, or the temperature so small that a quotient is.
    c.exponent = c.exponent == max ? 0.0f : (c.exponent - max) / temperature;
    c.weight = std::exp(c.exponent);
  }
}

double Candidates::total() const {
  double sum = 0;
  for (const Candidate& c : candidates_) sum += c.weight;
  return sum;
}

double Candidates::probability(int64_t id) const {
  for (const Candidate& c : candidates_)
    if (c.id == id) return c.weight / total();
  return 0;
}

void Candidates::take_top_p(std::span<const float> scores, int64_t best, float temperature, double mass) {
  const float max = scores[static_cast<size_t>(best)];
  if (!std::isfinite(max)) {
    take(scores, 0, temperature);
    return keep_top_p(mass);
  }
  scratch_.resize(scores.size());
  softmax(scores, temperature, scratch_);
  const std::span<const float> shares = scratch_;
  // Those above a share are enough once they come to `mass`, and to as much as sums may differ: few are, where the
  // model is sure. All that are not above the least share come to less than the rest together.
  const auto least = static_cast<float>(0.5 * (1 - mass) / static_cast<double>(scores.size()));
  float share = std::max(1e-3f, least);
  while (share > least && sum_above(shares, share) < mass * (1 + 1e-5)) share = std::max(share / 8, least);
  list_above(shares, share, kept_);
  const double one = static_cast<double>(shares[static_cast<size_t>(best)]);
  candidates_.clear();
  for (const size_t i : kept_)
    candidates_.push_back({static_cast<int64_t>(i), (scores[i] - max) / temperature,
                           static_cast<float>(static_cast<double>(shares[i]) / one)});
  keep_mass(mass, 1 / one, 0);
}

void Candidates::keep_top_p(double mass) {
  const double all = total();
  // All that are this improbable come to less than 1 - mass together: they need no ranking.
  keep_mass(mass, all, 0.5 * (1 - mass) * all / static_cast<double>(candidates_.size()));
}

void Candidates::keep_mass(double mass, double all, double negligible) {
  ranked_.clear();
  for (const Candidate& c : candidates_)
    if (c.weight > negligible) ranked_.push_back({-static_cast<double>(c.exponent), c.id, c.weight});
  const Ranked last = reaching_mass(ranked_, mass * all);
  std::erase_if(candidates_,
                [&](const Candidate& c) { return ranks_before(last, {-static_cast<double>(c.exponent), c.id, 0}); });
}

void Candidates::keep_min_p(double ratio) {
  float largest = 0;
  for (const Candidate& c : candidates_) largest = std::max(largest, c.weight);
  std::erase_if(candidates_, [&](const Candidate& c) { return c.weight < ratio * largest; });
}

void Candidates::keep_typical(double mass) {
  const double all = total(), log_all = std::log(all);
  double entropy = 0;
  for (const Candidate& c : candidates_)
    if (c.weight > 0) entropy -= c.weight / all * (c.exponent - log_all);
  const auto deviation = [&](const Candidate& c) { return std::abs(log_all - c.exponent - entropy); };
  ranked_.clear();
  for (const Candidate& c : candidates_) ranked_.push_back({deviation(c), c.id, c.weight});
  const double last = reaching_mass(ranked_, mass * all).key;
  std::erase_if(candidates_, [&](const Candidate& c) { return deviation(c) > last; });
}

// -log(1 - x) / weight is exponentially distributed with rate `weight` for x uniform in [0, 1): the least of all is
// token i's with the probability of i. It is at least x / weight, so that most tokens need no logarithm.
int64_t Candidates::draw(uint64_t seed, uint64_t position) const {
  TokenNumbers numbers(seed, position);
  double least = std::numeric_limits<double>::infinity();
  int64_t drawn = candidates_.front().id;
  for (const Candidate& c : candidates_) {
    if (!(c.weight > 0) || numbers.floor(c.id) >= least * c.weight) continue;
    const double time = -std::log1p(-numbers.exact(c.id)) / c.weight;
    if (time < least) least = time, drawn = c.id;
  }
  return drawn;
}

}  // namespace situ
