#include "generate/penalties.h"

#include "generate/bans.h"

namespace situ {

void add_bias(std::span<float> scores, std::span<const LogitBias> biases) {
  for (const LogitBias& b : biases) {
    float& score = scores[static_cast<size_t>(b.id)];
    score = b.bias == kBanned ? kBanned : score + b.bias;  // infinity - infinity is no number
  }
}

void penalise_repetition(std::span<float> scores, std::span<const int64_t> tokens, float penalty) {
  for (const int64_t id : tokens) {
    float& score = scores[static_cast<size_t>(id)];
    score = score < 0 ? score * penalty : score / penalty;
  }
}

void penalise_presence(std::span<float> scores, const TokenHistory& history, float presence, float frequency) {
  for (const int64_t id : history.distinct())
    if (const int64_t count = history.count(id); count > 0)
      scores[static_cast<size_t>(id)] -= presence + frequency * static_cast<float>(count);
}

}  // namespace situ
