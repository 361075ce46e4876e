// One answer while it is made: the choice of its tokens, and what the caller gets to see of them.
#pragma once

#include <memory>

#include "generate/logprobs.h"
#include "generate/sampler.h"
#include "pipelines/constraint.h"
#include "pipelines/llm.h"
#include "pipelines/sampling.h"
#include "pipelines/text_output.h"

namespace situ {

// An answer that fails before its first token, in a list of others. Interrupted, it is cancelled.
Generation failed_answer(const Status& why);

class Answer {
 public:
  // `model` and `options` must outlive it. `resolved`: it has begun. `grammar`: at its beginning, or none.
  Answer(Model::Impl& model, const GenerateOptions& options, ResolvedOptions resolved, std::optional<Grammar> grammar,
         std::span<const int64_t> prompt, TokenCallback on_token)
      : model_(model),
        options_(options),
        on_token_(std::move(on_token)),
        text_(model.text(), resolved.stop),
        end_ids_(resolved.sampling.end_ids),
        most_(resolved.sampling.max_new_tokens),
        least_(resolved.sampling.min_new_tokens),
        sampler_(std::move(resolved.sampling), prompt, model.vocabulary) {
    result_.notes = std::move(resolved.notes);
    if (grammar) constraint_ = std::make_unique<Constraint>(std::move(*grammar));
    if (options.report_perplexity) likelihood_ = std::make_unique<LikelihoodBesideSteps>(model);
  }

  // The prompt's text, in front of the answer's.
  Status echo(std::span<const int64_t> prompt);
  // Chooses the next token by the logits and reports it. ended() afterwards: this was the last, or it is no token.
  Result<int64_t> next(std::span<const float> logits);
  // The text so far, as ids: prompt and answer.
  std::span<const int64_t> ids() const { return sampler_.ids(); }
  const Sampler& sampler() const { return sampler_; }
  // Tokens at most.
  int64_t left() const { return most_ - static_cast<int64_t>(result_.output_ids.size()); }
  bool ended() const { return result_.finish_reason != FinishReason::kNone; }
  void end_by_length() {
    if (!ended()) result_.finish_reason = FinishReason::kLength;
  }
  bool has_tokens() const { return !result_.output_ids.empty(); }
  // The next token could not be had.
  void fail(const Status& why) {
    if (ended()) return;
    result_.finish_reason = FinishReason::kError;
    result_.error = why.message();
    result_.error_code = why.code();
  }
  // No token comes any more, and the callback is not called again.
  void refuse(FinishReason reason) {
    refused_ = true;
    if (!ended()) result_.finish_reason = reason;
  }
  // What is left of the text is shown. Once.
  Result<Generation> finish();

 private:
  void show(const Token& token);
  double report_logprobs(int64_t id, std::span<const float> logits);

  const Model::Impl& model_;
  const GenerateOptions& options_;
  TokenCallback on_token_;
  TextOutput text_;
  std::vector<int64_t> end_ids_;
  int64_t most_, least_;  // new tokens
  Sampler sampler_;
  LogProbabilities logprobs_;
  std::unique_ptr<Constraint> constraint_;
  std::unique_ptr<LikelihoodBesideSteps> likelihood_;
  Generation result_;
  bool refused_ = false;  // the callback is not called again
};

}  // namespace situ
