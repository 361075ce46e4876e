// What raises or lowers the scores of single tokens. `scores` [vocabulary] are logits on their way to a choice; all ids
// are inside the vocabulary.
#pragma once

#include <cstdint>
#include <span>

#include "generate/history.h"

namespace situ {

struct LogitBias {
  int64_t id = 0;
  float bias = 0;  // finite, or -infinity: never this token
};

// score[id] += bias. Source: SequenceBiasLogitsProcessor of transformers for sequences of one id; OpenAI's logit_bias.
void add_bias(std::span<float> scores, std::span<const LogitBias> biases);

// score = score < 0 ? score * penalty : score / penalty, for each of `tokens`, which are distinct. Source:
// RepetitionPenaltyLogitsProcessor of transformers (every id of the sequence, prompt included), CTRL, Keskar et al.
// 2019; EncoderRepetitionPenaltyLogitsProcessor (every id of the encoder, with 1 / penalty).
void penalise_repetition(std::span<float> scores, std::span<const int64_t> tokens, float penalty);

// score[id] -= presence + frequency * count for every id that was generated count > 0 times. The prompt does not count.
// Source: OpenAI's API reference, presence_penalty and frequency_penalty; transformers has neither.
void penalise_presence(std::span<float> scores, const TokenHistory& history, float presence, float frequency);

}  // namespace situ
