// The text of one window: a prompt behind the encoder's output, then tokens greedily, by beams, or drawn.
#pragma once

#include <memory>
#include <span>
#include <vector>

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
  // `source`: a session behind the encoder's output, before any token; forks of it are decoded. `draw`: another number,
  // other draws. Errors: those of a step or a fork.
  Result<WindowText> decode(const Session& source, const PromptIds& prompt, double temperature, uint64_t draw);

  // How probable each language is after <|startoftranscript|> alone: (code, probability), the most probable one first.
  Result<std::vector<std::pair<std::string, double>>> languages(const Session& source);

 private:
  struct Branch;
  SamplingOptions sampling(double temperature, uint64_t draw, int64_t most) const;
  // Feeds the prompt and leaves the logits after it in prompt_logits_.
  Result<Session> start(const Session& source, const PromptIds& prompt, double* no_speech_prob);
  Result<WindowText> search(Session session, const PromptIds& prompt, int64_t most);
  Result<WindowText> choose(Session session, const PromptIds& prompt, double temperature, uint64_t draw, int64_t most);

  Model::Impl& model_;
  const SpeechTokens& tokens_;
  const WindowOptions options_;
  std::shared_ptr<const TokenRule> rule_;
  std::vector<float> prompt_logits_;  // [vocabulary]
};

}  // namespace situ
