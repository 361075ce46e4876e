// What a generation starts from: what the encoder is given, and the decoder's prompt.
#pragma once

#include <vector>

#include "pipelines/llm.h"

namespace situ {

struct Start {
  EncoderInput source;           // of an encoder-decoder; its ids are the caller's prompt's
  std::vector<int64_t> decoder;  // the tokens that the decoder is fed first
};

// Errors: arrays for a model without an encoder, an empty prompt, no start token, ids outside the vocabulary.
Result<Start> start_of(const Model::Impl& model, const Prompt& prompt);
// Runs the encoders for the session, if there are any. `stages`: what they took is added; null: it is not wanted.
Status encode_start(Session::Impl& session, const Start& start, std::vector<Stage>* stages);
// Their time.
double ms_of(const std::vector<Stage>& stages);

}  // namespace situ
