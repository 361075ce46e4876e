#include "generate/candidates.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "generate/greedy.h"
#include "generate/logprobs.h"
#include "generate/random.h"

namespace situ {

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

void Candidates::take_top_p(std::span<const float> scores, float temperature, double mass) {
  thread_local std::vector<float> of_thread;  // what is in it is of this call
  const size_t best = static_cast<size_t>(argmax(scores)), count = scores.size();
  const float max = scores[best];
  if (!std::isfinite(max)) {
    take(scores, 0, temperature);
    return keep_top_p(mass);
  }
  of_thread.resize(count);
  softmax(scores, temperature, of_thread);
  const float* const shares = of_thread.data();
  const double one = static_cast<double>(shares[best]);
  const auto least = static_cast<float>(0.5 * (1 - mass) / static_cast<double>(count));
  candidates_.clear();
  for (size_t i = 0; i < count; ++i)
    if (shares[i] > least)
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
