// The texts of windows: a prompt behind the encoder's output, then tokens greedily, by beams, or drawn. Windows that
// are decoded together share steps, and each gets what it would get alone, to the bit.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "generate/logprobs.h"
#include "generate/sampler.h"
#include "pipelines/llm.h"
#include "speech/speech_tokens.h"

namespace situ {

struct WindowOptions {
  int64_t beams = 1, best_of = 1;
  double patience = 1, length_penalty = 1;
  uint64_t seed = 0;
  bool timestamps = true;
};

struct WindowText {
  std::vector<int64_t> ids;    // without the end
  double log_probability = 0;  // of ids and the end, under the rules
  double no_speech_prob = 0;   // of <|nospeech|> in place of the language
  double temperature = 0;
  // Over the tokens and the end.
  double avg_logprob() const { return log_probability / static_cast<double>(ids.size() + 1); }
};

class WindowDecoder {
 public:
  // `model` and `tokens` must outlive it.
  WindowDecoder(Model::Impl& model, const SpeechTokens& tokens, const WindowOptions& options);

  // A prompt of the decoder: `start_at`: where <|startoftranscript|> stands in it.
  struct PromptIds {
    std::vector<int64_t> ids;
    size_t start_at = 0;
  };
  struct Window {
    const Session* source;  // behind the encoder's output, before any token; forks of it are decoded
    uint64_t draw = 0;      // another number, other draws
  };
  // The text of each window behind the same prompt: a request each. Errors: those of a step or a fork.
  Result<std::vector<WindowText>> decode(std::span<const Window> windows, const PromptIds& prompt, double temperature);

  // What is likely after <|startoftranscript|> alone.
  struct FirstToken {
    std::vector<std::pair<std::string, double>> languages;  // (code, probability), the most probable one first
    double no_speech_prob = 0;
  };
  Result<FirstToken> first_token(const Session& source);

 private:
  SamplingOptions sampling(double temperature, uint64_t draw, int64_t most) const;
  // What follows tokens behind a source, alone.
  Result<std::vector<float>> logits_after(const Session& source, std::span<const int64_t> tokens);

  Model::Impl& model_;
  const SpeechTokens& tokens_;
  const WindowOptions options_;
  std::shared_ptr<const TokenRule> rule_;
};

}  // namespace situ
