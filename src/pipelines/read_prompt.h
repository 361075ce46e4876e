// A prompt of texts, messages, images and sounds, as ids and arrays.
#pragma once

#include "pipelines/llm.h"

namespace situ {

// What Model::read() does. A prompt of ids and arrays is left as it is. `dialog`: see render_conversation(); learns
// whether the prompt has begun the reasoning. Null: the conversation's own, which the prompt then has.
Result<Prompt> read_prompt(const Model::Impl& model, Prompt prompt, Dialog* dialog = nullptr);

// The text that a conversation becomes by the chat template, before images and sounds take the place of their
// placeholders.
Result<std::string> text_of_conversation(const Model::Impl& model, const Prompt& prompt, Dialog* dialog = nullptr);

}  // namespace situ
