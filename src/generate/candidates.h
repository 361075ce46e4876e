// The tokens that may still be chosen, and the warpers that make them fewer: the rules of transformers' generate with
// do_sample, to be called in the order in which they stand here.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "generate/selection.h"

namespace situ {

// The probability of a candidate is its weight over the sum of all weights: what a softmax over those left would give.
// Candidates stay in the order of their ids. Scores that were taken are looked at until others are. Memory is kept from
// one token to the next.
class Candidates {
 public:
  // Those whose score is above -infinity; with 0 < top_k < vocabulary the top_k largest of them, and all that equal the
  // last. weight = exp((score - max) / temperature), temperature > 0. Source: TopKLogitsWarper,
  // TemperatureLogitsWarper. The order of the two does not matter but for scores that a high temperature rounds to the
  // same number.
  void take(std::span<const float> scores, int64_t top_k, float temperature);
  // The same without a top_k, and then keep_top_p(mass) with mass < 1: sooner, since most tokens are too improbable to
  // be listed. `best`: id of the largest score.
  void take_top_p(std::span<const float> scores, int64_t best, float temperature, double mass);
  bool empty() const { return ids_.empty(); }
  // 0 for tokens that are none. Looks through all.
  double probability(int64_t id) const;

  // Keeps the most probable that come to `mass` together, in [0, 1]; at least one, and with a mass of 0 the one with
  // the largest score. Called before the other two. Source: TopPLogitsWarper; nucleus
  // sampling, Holtzman et al. 2019.
  void keep_top_p(double mass);
  // Keeps those at least `ratio` times as probable as the most probable one, in [0, 1]. Source: MinPLogitsWarper.
  void keep_min_p(double ratio);
  // Keeps those whose information content -log p is nearest to the entropy, until they come to `mass`, in (0, 1).
  // Source: TypicalLogitsWarper; locally typical sampling, Meister et al. 2022.
  void keep_typical(double mass);

  // One of the candidates, by its probability. Each has a random number of its own, and the one that wins the race
  // goes: when probabilities change a little, as by rounding or in a model that thinks alike, the same seed and
  // position seldom draw another (maximal but for a factor of 2; Daliri et al., Coupling without Communication, arXiv
  // 2408.07978). Not empty.
  int64_t draw(uint64_t seed, uint64_t position);

 private:
  // (score - max) / temperature, of candidate number i.
  float exponent(size_t i) const;
  Ranked ranked(size_t i) const;
  double total() const;
  void make_room(size_t most);
  // The one with the largest score alone, which is above -infinity.
  void take_best(std::span<const float> scores);
  // Leaves those whose number is wanted.
  template <typename Wanted>
  void keep_those(Wanted wanted);
  void keep_mass(double mass, double all, double negligible, float sure);

  std::span<const float> scores_;
  float max_ = 0, temperature_ = 1;
  std::vector<uint32_t> ids_, digits_, unsure_;
  std::vector<float> weights_, scratch_;
  std::vector<Ranked> ranked_;
};

}  // namespace situ
