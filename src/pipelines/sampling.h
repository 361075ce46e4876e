// From what the caller asks for and what the model's folder says to what a Sampler does.
#pragma once

#include "generate/beam_search.h"
#include "generate/sampler.h"
#include "pipelines/model_folder.h"
#include "situ/generate.h"
#include "text/tokenizer.h"

namespace situ {

struct ResolvedOptions {
  SamplingOptions sampling;       // end_ids too: the ids that end the answer
  BeamOptions beams;              // without max_new_tokens
  std::vector<std::string> stop;  // stop strings that are not special tokens
};

// 53 bits of chance, so that every reader of JSON gets them back.
uint64_t draw_seed();

// Checks every option, and those fields of the configuration that are used. `tokenizer`: null where there is none.
// Errors name option and value, or file, field and value.
Result<ResolvedOptions> resolve_options(const GenerateOptions& options, const ModelFolder& folder,
                                        const Tokenizer* tokenizer, int64_t vocabulary);

}  // namespace situ
