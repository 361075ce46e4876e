// The choice of one sequence's next token: penalties, bans, warpers and the draw, in the order of transformers'
// generate.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "generate/history.h"
#include "generate/penalties.h"
#include "generate/token_rule.h"

namespace situ {

// Ids are inside the vocabulary and numbers in the ranges that include/situ/generate.h gives; the defaults change
// nothing.
struct SamplingOptions {
  bool sample = false;  // else the largest score is chosen, and what stands from temperature to seed is not used
  float temperature = 1;
  int64_t top_k = 0;
  double top_p = 1, min_p = 0, typical_p = 1;
  uint64_t seed = 0;

  std::vector<LogitBias> biases;
  float repetition_penalty = 1, presence_penalty = 0, frequency_penalty = 0;
  int64_t no_repeat_ngram = 0;
  double encoder_repetition_penalty = 1;  // above 1: raises the tokens of encoder_ids
  int64_t encoder_no_repeat_ngram = 0;    // no n-gram of encoder_ids
  // What the encoder was given, or the prompt where there is no encoder. Ids outside the vocabulary do not count.
  std::vector<int64_t> encoder_ids;
  std::vector<std::vector<int64_t>> bad_words;
  int64_t min_new_tokens = 0;
  std::vector<int64_t> end_ids;   // not chosen before min_new_tokens
  std::vector<int64_t> stop_ids;  // special ones of end_ids that the caller names: they end what a grammar has them in
  // The only tokens that can be chosen: the first one after a prompt of one token; the last one before the answer ends
  // by its length, max_new_tokens (one of several ids; 0: no length).
  std::optional<int64_t> forced_first;
  std::vector<int64_t> forced_last;
  int64_t max_new_tokens = 0;
  // Never chosen; and not as the first token that is not forced. Stronger than what is forced, as in transformers.
  std::vector<int64_t> suppressed, suppressed_first;
  std::shared_ptr<const TokenRule> rule;  // the last of all; null: none
};

// The tokens that a grammar lets come next.
struct AllowedTokens {
  std::span<const uint32_t> ids;  // bit (id % 32) of word id / 32
  // SamplingOptions::end_ids are allowed, whether they are among `ids` or not; else only stop_ids among `ids` are.
  bool end = false;
  bool has(int64_t id) const {
    const auto word = static_cast<size_t>(id / 32);
    return word < ids.size() && (ids[word] >> (id % 32) & 1) != 0;
  }
};

// Belongs to one sequence and draws by its seed and its own position, whatever other sequences do. A copy goes on
// alone: a fork. No allocation per token once the memory of the first is there, but for the growth of the history.
class Sampler {
 public:
  // `prompt`: ids in [0, vocabulary), those of the decoder.
  Sampler(SamplingOptions options, std::span<const int64_t> prompt, int64_t vocabulary);

  // The id of the next token, out of the model's logits [vocabulary], which stay what they are. Asked twice at the same
  // position the answer is the same. Errors: a logit is not a number; nothing is left to choose.
  Result<int64_t> choose(std::span<const float> logits) { return choose(logits, nullptr); }
  // The same out of allowed tokens.
  Result<int64_t> choose(std::span<const float> logits, const AllowedTokens* allowed);
  // What choose() would take the largest of or draw from, from logits or log-probabilities that are numbers; valid
  // until the next call.
  std::span<const float> scores(std::span<const float> logits) { return scores(logits, nullptr); }
  // The scores of the last choose(), valid as long as its logits and until the next call.
  std::span<const float> last_scores() const { return last_scores_; }
  // Says which token the sequence goes on with.
  void append(int64_t id) { history_.append(id); }
  std::span<const int64_t> ids() const { return history_.ids(); }  // prompt and what was appended
  bool has(int64_t id) const { return history_.has(id); }
  Status nothing_left(bool constrained = false) const;  // the error that no token can be chosen, and why
  // The error that the logit of this id is not a number; -1: ok.
  Status not_a_number(int64_t id) const;

 private:
  // What all samplers of one generation share.
  struct Rules {
    SamplingOptions options;
    std::vector<int64_t> encoder_tokens;  // every id of encoder_ids once
  };
  bool changes_scores() const;
  bool first_is_forced() const { return rules_->options.forced_first && history_.prompt_size() == 1; }
  void force_and_suppress(std::span<float> scores) const;
  std::span<const float> scores(std::span<const float> logits, const AllowedTokens* allowed);

  std::shared_ptr<const Rules> rules_;
  TokenHistory history_;
  std::vector<float> scores_;  // [vocabulary]
  std::span<const float> last_scores_;
  std::vector<float> end_scores_;
};

}  // namespace situ
