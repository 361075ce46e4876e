// The form of a model, found by rendering its chat template on made-up conversations.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/status.h"
#include "text/dialog/form.h"
#include "text/tokenizer.h"

namespace situ {

// Renders messages as the model's template does; an error where that refuses them.
using RenderChat = std::function<Result<std::string>(const nlohmann::ordered_json& messages, bool generation_prompt,
                                                     const nlohmann::ordered_json& variables)>;

// Renderings of conversations that differ in one thing are compared, and what they show is verified: the calls of a
// rendered answer, read by an AnswerReader, are those that were rendered. What a template does not show, or shows in a
// way that cannot be read back, has the documented form. Takes some 40 renderings: once a model.
Form find_form(const FolderTokenizer& tokenizer);
// `knows`: whether a text is a token of the model, or stands in its template.
Form find_form(const RenderChat& render, const std::function<bool(std::string_view)>& knows);

}  // namespace situ
