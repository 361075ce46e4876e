// A prompt of texts, messages, images and sounds, as ids and arrays.
#pragma once

#include "pipelines/llm.h"

namespace situ {

// Which texts become tokens: of those that are long (above 64 KiB) and have more tokens than the context holds none is
// tokenised to its end, and the error kContextExceeded names the least number that is certain; or all.
enum class PromptLength { kContext, kAny };

// What Model::read() does. A prompt of ids and arrays is left as it is. `dialog`: see render_conversation(); learns
// whether the prompt has begun the reasoning. Null: the conversation's own, which the prompt then has.
Result<Prompt> read_prompt(const Model::Impl& model, Prompt prompt, Dialog* dialog = nullptr,
                           PromptLength length = PromptLength::kContext);

// The ids of a text by itself. `add_special`: with the tokens that begin and end texts.
Result<std::vector<int64_t>> read_text(const Model::Impl& model, std::string_view text, bool add_special);

// The text that a conversation becomes by the chat template, before images and sounds take the place of their
// placeholders.
Result<std::string> text_of_conversation(const Model::Impl& model, const Prompt& prompt, Dialog* dialog = nullptr);

}  // namespace situ
