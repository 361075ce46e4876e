// A rule of a model's own about which token may come next, beside those that all models have.
#pragma once

#include <cstdint>
#include <span>

namespace situ {

// Read-only: any number of samplers may share one.
class TokenRule {
 public:
  virtual ~TokenRule() = default;
  // Bans tokens (their scores become -infinity) by the tokens since the prompt, [generated], and by the scores
  // themselves, [vocabulary], which penalties and bans have changed already.
  virtual void apply(std::span<const int64_t> generated, std::span<float> scores) const = 0;
};

}  // namespace situ
