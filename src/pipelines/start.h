// What a generation starts from: what the encoder is given, and the decoder's prompt.
#pragma once

#include "pipelines/llm.h"

namespace situ {

// Errors: arrays for a model without an encoder, an empty prompt, no start token, ids outside the vocabulary.
Result<Start> start_of(const Model::Impl& model, const Prompt& prompt);

}  // namespace situ
