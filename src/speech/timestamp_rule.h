// Which timestamps may come next. Source: ApplyTimestampRules of openai/whisper, decoding.py.
#pragma once

#include "generate/token_rule.h"
#include "speech/speech_tokens.h"

namespace situ {

// Timestamps come in pairs, but for the end of the text; they do not go back, nor stand where they stood, so that a
// segment has a length; the first token is one, and not too late; and where all of them together are more probable than
// any text, one of them it is.
class TimestampRule : public TokenRule {
 public:
  explicit TimestampRule(const SpeechTokens& tokens)
      : first_(tokens.first_timestamp),
        end_(tokens.end),
        no_timestamps_(tokens.no_timestamps),
        max_initial_(tokens.max_initial_timestamp) {}
  void apply(std::span<const int64_t> generated, std::span<float> scores) const override;

 private:
  bool is_timestamp(int64_t id) const { return id >= first_; }
  const int64_t first_, end_, no_timestamps_, max_initial_;
};

}  // namespace situ
