// From what the caller asks for and what the model's folder says to what a Sampler does.
#pragma once

#include <algorithm>
#include <span>

#include "generate/beam_search.h"
#include "generate/sampler.h"
#include "pipelines/model_folder.h"
#include "situ/generate.h"
#include "text/tokenizer.h"

namespace situ {

// How long an answer may be and has to be. Lengths of all tokens count the prompt, an encoder-decoder's: the decoder's.
struct LengthRules {
  int64_t most_new = 128, least_new = 0;  // of the answer
  std::string most_total_where;           // who says most_total
  int64_t most_total = 0;                 // in place of most_new; 0: nobody says so
  int64_t least_total = 0;                // in place of least_new

  int64_t most_new_after(int64_t prompt) const {
    return most_total > 0 ? std::max<int64_t>(1, most_total - prompt) : most_new;
  }
};

struct ResolvedOptions {
  SamplingOptions sampling;  // end_ids too: the ids that end the answer; what begin() sets is missing
  BeamOptions beams;         // without max_new_tokens
  LengthRules length;
  bool encoder_decoder = false;
  std::vector<std::string> stop;   // stop strings that are not special tokens
  std::vector<std::string> notes;  // Generation::notes

  // Settles what depends on the prompt: min_new_tokens, max_new_tokens and encoder_ids. `prompt`: of the decoder;
  // `encoder_ids`: what the encoder was given, empty where it was no ids. Error: no room for a token.
  Status begin(std::span<const int64_t> prompt, std::span<const int64_t> encoder_ids, int64_t context_length);
};

// 53 bits of chance, so that every reader of JSON gets them back.
uint64_t draw_seed();

// The decoder's prompt of an encoder-decoder where none is given: one token. Error: the folder names none, or one that
// is outside the vocabulary.
Result<int64_t> decoder_start_id(const ModelFolder& folder, int64_t vocabulary);

// Checks every option, and those fields of the configuration that are used. `tokenizer`: null where there is none.
// Errors name option and value, or file, field and value.
Result<ResolvedOptions> resolve_options(const GenerateOptions& options, const ModelFolder& folder,
                                        const FolderTokenizer* tokenizer, int64_t vocabulary);

}  // namespace situ
