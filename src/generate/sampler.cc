#include "generate/sampler.h"

#include <algorithm>
#include <utility>

#include "generate/bans.h"
#include "generate/candidates.h"
#include "generate/greedy.h"

namespace situ {

Sampler::Sampler(SamplingOptions options, std::span<const int64_t> prompt, int64_t vocabulary)
    : history_(prompt, vocabulary) {
  std::vector<int64_t> encoder;
  if (options.encoder_repetition_penalty != 1)
    for (const int64_t id : options.encoder_ids)
      if (id >= 0 && id < vocabulary) encoder.push_back(id);
  std::sort(encoder.begin(), encoder.end());
  encoder.erase(std::unique(encoder.begin(), encoder.end()), encoder.end());
  rules_ = std::make_shared<const Rules>(Rules{std::move(options), std::move(encoder)});
}

bool Sampler::changes_scores() const {
  const SamplingOptions& o = rules_->options;
  return !o.biases.empty() || o.repetition_penalty != 1 || o.presence_penalty != 0 || o.frequency_penalty != 0 ||
         o.no_repeat_ngram > 0 || o.encoder_repetition_penalty != 1 || o.encoder_no_repeat_ngram > 0 ||
         !o.bad_words.empty() || o.min_new_tokens > history_.generated() || o.forced_first || !o.forced_last.empty() ||
         !o.suppressed.empty() || !o.suppressed_first.empty() || o.rule;
}

// The last of transformers' processors, in its order.
void Sampler::force_and_suppress(std::span<float> scores) const {
  const SamplingOptions& o = rules_->options;
  const int64_t generated = history_.generated();
  if (first_is_forced() && generated == 0) force(scores, {&*o.forced_first, 1});
  if (!o.forced_last.empty() && generated + 1 == o.max_new_tokens) force(scores, o.forced_last);
  ban(scores, o.suppressed);
  if (generated == (first_is_forced() ? 1 : 0)) ban(scores, o.suppressed_first);
  if (o.rule) o.rule->apply(history_.ids().subspan(history_.prompt_size()), scores);
}

// The order is that of transformers' _get_logits_processor. Presence and frequency, which it does not have, stand
// beside the repetition penalty. What is forced may be what a ban before has banned.
std::span<const float> Sampler::scores(std::span<const float> logits, const AllowedTokens* allowed) {
  const SamplingOptions& o = rules_->options;
  if (!changes_scores() && !allowed) return logits;
  scores_.assign(logits.begin(), logits.end());
  add_bias(scores_, o.biases);
  if (o.encoder_repetition_penalty != 1)
    penalise_repetition(scores_, rules_->encoder_tokens, static_cast<float>(1 / o.encoder_repetition_penalty));
  if (o.repetition_penalty != 1) penalise_repetition(scores_, history_.distinct(), o.repetition_penalty);
  if (o.presence_penalty != 0 || o.frequency_penalty != 0)
    penalise_presence(scores_, history_, o.presence_penalty, o.frequency_penalty);
  if (o.no_repeat_ngram > 0) ban_repeated_ngrams(scores_, history_.ids(), o.no_repeat_ngram);
  if (o.encoder_no_repeat_ngram > 0) ban_ngrams_of(o.encoder_ids, scores_, history_.ids(), o.encoder_no_repeat_ngram);
  ban_words(scores_, history_.ids(), o.bad_words);
  if (allowed) {
    end_scores_.clear();
    for (const int64_t id : o.end_ids) {
      const bool stops = std::find(o.stop_ids.begin(), o.stop_ids.end(), id) != o.stop_ids.end() && allowed->has(id);
      end_scores_.push_back(allowed->end || stops ? scores_[static_cast<size_t>(id)] : kBanned);
    }
    ban_others(scores_, allowed->ids);
    for (size_t i = 0; i < end_scores_.size(); ++i) scores_[static_cast<size_t>(o.end_ids[i])] = end_scores_[i];
  }
  if (o.min_new_tokens > history_.generated()) ban(scores_, o.end_ids);
  force_and_suppress(scores_);
  return scores_;
}

Result<int64_t> Sampler::choose(std::span<const float> logits, const AllowedTokens* allowed) {
  const SamplingOptions& o = rules_->options;
  const LargestLogit found = largest_logit(logits);
  SITU_RETURN_IF_ERROR(not_a_number(found.not_a_number));
  const std::span<const float> all = scores(logits, allowed);
  last_scores_ = all;
  const auto largest = [&] { return all.data() == logits.data() ? found.id : argmax(all); };
  if (!o.sample) {
    const int64_t best = largest();
    if (!(all[static_cast<size_t>(best)] > kBanned)) return nothing_left(allowed != nullptr);
    return best;
  }
  thread_local Candidates candidates;  // of this call: one list for each thread stays in its cache
  const bool all_ranks = o.top_k == 0 || o.top_k >= static_cast<int64_t>(all.size());
  if (o.top_p < 1 && all_ranks)
    candidates.take_top_p(all, largest(), o.temperature, o.top_p);
  else
    candidates.take(all, o.top_k, o.temperature);
  if (candidates.empty()) return nothing_left(allowed != nullptr);
  if (o.top_p < 1 && !all_ranks) candidates.keep_top_p(o.top_p);
  if (o.min_p > 0) candidates.keep_min_p(o.min_p);
  if (o.typical_p < 1) candidates.keep_typical(o.typical_p);
  return candidates.draw(o.seed, static_cast<uint64_t>(history_.generated()));
}

Status Sampler::nothing_left(bool constrained) const {
  const SamplingOptions& o = rules_->options;
  std::string bans;
  const auto name = [&](bool active, const std::string& what) {
    if (active) bans += (bans.empty() ? "" : ", ") + what;
  };
  name(constrained, "the grammar");
  name(!o.biases.empty(), "logit_bias");
  name(o.no_repeat_ngram > 0, "no_repeat_ngram " + std::to_string(o.no_repeat_ngram));
  name(o.encoder_no_repeat_ngram > 0, "encoder_no_repeat_ngram " + std::to_string(o.encoder_no_repeat_ngram));
  name(!o.bad_words.empty(), "bad_words");
  name(!o.suppressed.empty(), "suppress_tokens");
  name(!o.suppressed_first.empty(), "begin_suppress_tokens");
  name(o.min_new_tokens > history_.generated(), "min_new_tokens " + std::to_string(o.min_new_tokens));
  return Status::error(Code::kInvalidArgument,
                       "no token can be chosen after " + std::to_string(history_.generated()) +
                           " new ones: every logit is -infinity" +
                           (bans.empty() ? std::string() : " once these have banned theirs: " + bans));
}

Status Sampler::not_a_number(int64_t id) const {
  if (id < 0) return Status::ok();
  return Status::error("logits of id " + std::to_string(id) + " are not a number after " +
                       std::to_string(history_.generated()) + " new tokens");
}

}  // namespace situ
