// What the files of a model folder declare, held against what the graphs compute.
#pragma once

#include "pipelines/llm.h"

namespace situ {

// Rows of a source: what the files say. Else ids are as many as the decoder's; but how many rows arrays become, nobody
// says before they are there: room for so many is address space alone.
void set_source_length(const Model::Impl& m, EngineOptions* engine);

// What config.json declares of attention and the graph does not do becomes a note: other tokens than the model was made
// for are right then.
void note_what_is_lost(Model::Impl& m, const LoadOptions& options);

// What config.json or genai_config.json and the graph disagree on, one line each: vocabulary, layers, heads; and
// experts among which no row is chosen.
std::vector<std::string> disagreements(const Model::Impl& m);

}  // namespace situ
