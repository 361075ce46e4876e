#include "generate/candidates.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "generate/greedy.h"
#include "generate/logprobs.h"
#include "generate/random.h"
#include "kernels/params.h"

namespace situ {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// As much as sums of terms in float may differ, and terms of nearly equal scores.
constexpr double kSumsDiffer = 1e-5;
constexpr float kTermsDiffer = 1e-5f;

// A term so that all that are above it come to less than `wanted`: of those, in [low, 8 low], the least that few looks
// find. What is not above it has to be ranked.
float sure_term(std::span<const float> terms, float low, double wanted) {
  constexpr size_t kFew = 256;  // are ranked as fast
  constexpr int kLooks = 6;
  float high = 8 * low;
  if (terms.size() < kFew || !(sum_above(terms, high) < wanted * (1 - kSumsDiffer))) return kInfinity;
  for (int look = 0; look < kLooks; ++look) {
    const float middle = std::sqrt(low * high);
    (sum_above(terms, middle) < wanted * (1 - kSumsDiffer) ? high : low) = middle;
  }
  return high * (1 + kTermsDiffer);
}

}  // namespace

float Candidates::exponent(size_t i) const {
  const float score = scores_[ids_[i]];
  // The largest itself may be infinite, or the temperature so small that a quotient is.
  return score == max_ ? 0.0f : (score - max_) / temperature_;
}

Ranked Candidates::ranked(size_t i) const {
  return {-static_cast<double>(exponent(i)), ids_[i], static_cast<double>(weights_[i])};
}

// Lists that another token may make longer have room for all: resize() alone would grow by little each time.
void Candidates::make_room(size_t most) {
  for (auto* list : {&ids_, &unsure_, &digits_}) list->reserve(most);
  weights_.reserve(most);
}

// Without branches, which would be guessed wrong.
template <typename Wanted>
void Candidates::keep_those(Wanted wanted) {
  size_t kept = 0;
  for (size_t i = 0; i < ids_.size(); ++i) {
    const bool keep = wanted(i);
    ids_[kept] = ids_[i];
    weights_[kept] = weights_[i];
    kept += keep;
  }
  ids_.resize(kept);
  weights_.resize(kept);
}

void Candidates::take(std::span<const float> scores, int64_t top_k, float temperature) {
  constexpr float kLowest = std::numeric_limits<float>::lowest();
  make_room(scores.size() + kAboveSlack);
  const size_t k = static_cast<size_t>(top_k);
  const float least = k > 0 && k < scores.size() ? std::max(kth_largest(scores, k, scratch_), kLowest) : kLowest;
  list_above(scores, std::nextafter(least, -kInfinity), ids_);
  scores_ = scores;
  temperature_ = temperature;
  max_ = -kInfinity;
  for (const uint32_t id : ids_) max_ = std::max(max_, scores[id]);
  weights_.resize(ids_.size());
  for (size_t i = 0; i < ids_.size(); ++i) weights_[i] = std::exp(exponent(i));
}

double Candidates::total() const {
  constexpr size_t kSums = 4;  // so that an addition does not wait for the one before it
  double sums[kSums] = {};
  size_t i = 0;
  for (; i + kSums <= weights_.size(); i += kSums)
    for (size_t k = 0; k < kSums; ++k) sums[k] += static_cast<double>(weights_[i + k]);
  for (; i < weights_.size(); ++i) sums[0] += static_cast<double>(weights_[i]);
  return sums[0] + sums[1] + (sums[2] + sums[3]);
}

double Candidates::probability(int64_t id) const {
  for (size_t i = 0; i < ids_.size(); ++i)
    if (ids_[i] == id) return static_cast<double>(weights_[i]) / total();
  return 0;
}

void Candidates::take_top_p(std::span<const float> scores, int64_t best, float temperature, double mass) {
  const float max = scores[static_cast<size_t>(best)];
  if (!std::isfinite(max) || !std::isfinite(max / temperature)) {
    take(scores, 0, temperature);
    return keep_top_p(mass);
  }
  if (mass <= 0) return take_best(scores);
  scores_ = scores;
  max_ = max;
  temperature_ = temperature;
  make_room(scores.size() + kAboveSlack);
  scratch_.resize(scores.size());
  const float sum = exp_terms(scores, max, temperature, scratch_), inverse = 1 / sum;
  // Terms above a least one are enough once they come to `mass` of the sum, and to as much as sums may differ: few are,
  // where the model is sure. All that are not above the last one that is tried come to less than the rest together.
  const double wanted = mass * static_cast<double>(sum);
  const auto last =
      static_cast<float>(0.5 * (1 - mass) / static_cast<double>(scores.size()) * static_cast<double>(sum));
  float least = std::max(1e-3f * sum, last);
  while (least > last && sum_above(scratch_, least) < wanted * (1 + kSumsDiffer)) least = std::max(least / 8, last);
  list_above(scratch_, least, ids_);
  weights_.resize(ids_.size());
  for (size_t i = 0; i < ids_.size(); ++i) weights_[i] = scratch_[ids_[i]];
  const float sure = sure_term(weights_, least, wanted);
  // As shares over the largest share.
  const double to_weight = 1 / static_cast<double>(scratch_[static_cast<size_t>(best)] * inverse);
  for (float& weight : weights_) weight = static_cast<float>(static_cast<double>(weight * inverse) * to_weight);
  keep_mass(mass, to_weight, 0, sure);
}

// Of equal ones that with the largest id, as where others are ranked. By scores: a temperature rounds different ones to
// the same number.
void Candidates::take_best(std::span<const float> scores) {
  size_t best = 0;
  for (size_t id = 1; id < scores.size(); ++id)
    if (scores[id] >= scores[best]) best = id;
  scores_ = scores;
  max_ = scores[best];
  make_room(scores.size() + kAboveSlack);
  ids_.assign(1, static_cast<uint32_t>(best));
  weights_.assign(1, 1.0f);
}

void Candidates::keep_top_p(double mass) {
  if (ids_.empty()) return;
  if (mass <= 0) return take_best(scores_);
  const double all = total();
  // All that are this improbable come to less than 1 - mass together: they need no ranking.
  keep_mass(mass, all, 0.5 * (1 - mass) * all / static_cast<double>(ids_.size()), kInfinity);
}

// Those whose weight is above `sure` are kept, those not above `negligible` go; the others are ranked.
void Candidates::keep_mass(double mass, double all, double negligible, float sure) {
  unsure_.resize(ids_.size());
  size_t count = 0;
  for (size_t i = 0; i < ids_.size(); ++i) {
    unsure_[count] = static_cast<uint32_t>(i);
    count += !(weights_[i] > sure);
  }
  unsure_.resize(count);
  double before = sure < kInfinity ? total() : 0;
  ranked_.clear();
  for (const size_t i : unsure_) {
    if (sure < kInfinity) before -= static_cast<double>(weights_[i]);
    if (static_cast<double>(weights_[i]) > negligible) ranked_.push_back(ranked(i));
  }
  if (ranked_.empty()) return;
  const Ranked last = reaching_mass(ranked_, mass * all - before);
  for (const size_t i : unsure_)
    if (ranks_before(last, ranked(i))) weights_[i] = -1;
  keep_those([&](size_t i) { return weights_[i] >= 0; });
}

void Candidates::keep_min_p(double ratio) {
  float largest = 0;
  for (const float weight : weights_) largest = std::max(largest, weight);
  keep_those([&](size_t i) { return !(static_cast<double>(weights_[i]) < ratio * static_cast<double>(largest)); });
}

void Candidates::keep_typical(double mass) {
  const double all = total(), log_all = std::log(all);
  double entropy = 0;
  for (size_t i = 0; i < ids_.size(); ++i)
    if (weights_[i] > 0)
      entropy -= static_cast<double>(weights_[i]) / all * (static_cast<double>(exponent(i)) - log_all);
  const auto deviation = [&](size_t i) { return std::abs(log_all - static_cast<double>(exponent(i)) - entropy); };
  ranked_.clear();
  for (size_t i = 0; i < ids_.size(); ++i) ranked_.push_back({deviation(i), ids_[i], weights_[i]});
  const double last = reaching_mass(ranked_, mass * all).key;
  keep_those([&](size_t i) { return !(deviation(i) > last); });
}

// -log(1 - x) / weight is exponentially distributed with rate `weight` for x uniform in [0, 1): the least of all is
// token i's with the probability of i. It is at least x / weight, so that most tokens need no logarithm.
int64_t Candidates::draw(uint64_t seed, uint64_t position) {
  const TokenNumbers numbers(seed, position);
  digits_.resize(ids_.size());
  numbers.first_digits(ids_, digits_);
  double least = std::numeric_limits<double>::infinity();
  uint32_t drawn = ids_.front();
  for (size_t i = 0; i < ids_.size(); ++i) {
    const double weight = weights_[i];
    if (!(weight > 0) || TokenNumbers::floor(digits_[i]) >= least * weight) continue;
    const double time = -std::log1p(-numbers.exact(ids_[i], digits_[i])) / weight;
    if (time < least) least = time, drawn = ids_[i];
  }
  return drawn;
}

}  // namespace situ
