#include "generate/sampler.h"

#include <utility>

#include "generate/bans.h"
#include "generate/greedy.h"

namespace situ {

Sampler::Sampler(SamplingOptions options, std::span<const int64_t> prompt, int64_t vocabulary)
    : options_(std::move(options)), history_(prompt, vocabulary) {}

bool Sampler::changes_scores() const {
  const SamplingOptions& o = options_;
  return !o.biases.empty() || o.repetition_penalty != 1 || o.presence_penalty != 0 || o.frequency_penalty != 0 ||
         o.no_repeat_ngram > 0 || !o.bad_words.empty() || o.min_new_tokens > history_.generated();
}

// The order is that of transformers' _get_logits_processor. Presence and frequency, which it does not have, stand
// beside the repetition penalty; bans only ever set -infinity, so nothing after them can undo them.
std::span<const float> Sampler::scores(std::span<const float> logits, const AllowedTokens* allowed) {
  const SamplingOptions& o = options_;
  if (!o.sample && !changes_scores() && !allowed) return logits;
  scores_.resize(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) scores_[i] = logits[i] == logits[i] ? logits[i] : kBanned;
  add_bias(scores_, o.biases);
  if (o.repetition_penalty != 1) penalise_repetition(scores_, history_, o.repetition_penalty);
  if (o.presence_penalty != 0 || o.frequency_penalty != 0)
    penalise_presence(scores_, history_, o.presence_penalty, o.frequency_penalty);
  if (o.no_repeat_ngram > 0) ban_repeated_ngrams(scores_, history_.ids(), o.no_repeat_ngram);
  ban_words(scores_, history_.ids(), o.bad_words);
  if (allowed) {
    end_scores_.clear();
    for (const int64_t id : o.end_ids) end_scores_.push_back(allowed->end ? scores_[static_cast<size_t>(id)] : kBanned);
    ban_others(scores_, allowed->ids);
    for (size_t i = 0; i < end_scores_.size(); ++i) scores_[static_cast<size_t>(o.end_ids[i])] = end_scores_[i];
  }
  if (o.min_new_tokens > history_.generated()) ban(scores_, o.end_ids);
  return scores_;
}

Result<int64_t> Sampler::choose(std::span<const float> logits, const AllowedTokens* allowed) {
  const SamplingOptions& o = options_;
  const std::span<const float> all = scores(logits, allowed);
  if (!o.sample) {
    const int64_t best = argmax(all);
    if (!(all[static_cast<size_t>(best)] > kBanned)) return nothing_left(allowed != nullptr);
    return best;
  }
  candidates_.take(all, o.top_k, o.temperature);
  if (candidates_.empty()) return nothing_left(allowed != nullptr);
  if (o.top_p < 1) candidates_.keep_top_p(o.top_p);
  if (o.min_p > 0) candidates_.keep_min_p(o.min_p);
  if (o.typical_p < 1) candidates_.keep_typical(o.typical_p);
  return candidates_.draw(o.seed, static_cast<uint64_t>(history_.generated()));
}

Status Sampler::nothing_left(bool constrained) const {
  const SamplingOptions& o = options_;
  std::string bans;
  const auto name = [&](bool active, const std::string& what) {
    if (active) bans += (bans.empty() ? "" : ", ") + what;
  };
  name(constrained, "the grammar");
  name(!o.biases.empty(), "logit_bias");
  name(o.no_repeat_ngram > 0, "no_repeat_ngram " + std::to_string(o.no_repeat_ngram));
  name(!o.bad_words.empty(), "bad_words");
  name(o.min_new_tokens > history_.generated(), "min_new_tokens " + std::to_string(o.min_new_tokens));
  return Status::error("no token can be chosen after " + std::to_string(history_.generated()) +
                       " new ones: every logit is -infinity or not a number" +
                       (bans.empty() ? std::string() : " once these have banned theirs: " + bans));
}

}  // namespace situ
