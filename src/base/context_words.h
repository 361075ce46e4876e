// How a prompt that is too long is told.
#pragma once

#include <cstdint>
#include <string>

namespace situ {

// The words by which clients of OpenAI's API know that the context is exceeded, not by the code alone: they cut the
// conversation then. `least`: the prompt has at least so many tokens.
inline std::string context_words(int64_t context, int64_t tokens, bool least = false) {
  return "This model's maximum context length is " + std::to_string(context) + " tokens. However, your prompt has " +
         (least ? "at least " : "") + std::to_string(tokens) + " tokens.";
}

}  // namespace situ
