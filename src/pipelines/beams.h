// Model::generate with beams: a session for each beam, all over one state, in the same steps.
#pragma once

#include <vector>

#include "generate/beam_search.h"
#include "generate/logprobs.h"
#include "generate/sampler.h"
#include "pipelines/llm.h"

namespace situ {

// Searches the continuations of a prompt. A beam that several go on from is forked: its slots are shared, nothing is
// copied.
class BeamDecoder {
 public:
  // `prompt`: a session that has been fed all tokens of the prompt but has not yet said how it goes on. `renormalised`:
  // what penalties and bans leave is made probabilities again, as in openai/whisper; transformers does not.
  BeamDecoder(Model::Impl& model, Session prompt, Sampler sampler, BeamOptions options, bool renormalised = false);

  // After the prompt's logits [vocabulary]: looks for answers until the search is over. Errors: that of a step or a
  // fork; a logit is not a number; no token can be chosen, and there is no answer.
  Status run(std::span<const float> logits);
  std::vector<BeamSearch::Answer> answers() const { return search_.answers(); }
  // Of a search that ended in an error.
  std::vector<BeamSearch::Answer> answers_so_far() const { return search_.answers_so_far(); }
  int64_t steps() const { return steps_; }

 private:
  // One beam: what it has been fed, and what its penalties look at.
  struct Branch {
    Session session;
    Sampler sampler;
  };
  Status offer(size_t beam, std::span<const float> logits);
  Status branch();
  Status advance();

  Model::Impl& model_;
  BeamSearch search_;
  const bool renormalised_;
  std::vector<float> log_probabilities_;  // [vocabulary]
  std::vector<Branch> branches_;          // as search_.running()
  int64_t steps_ = 0;
};

}  // namespace situ
