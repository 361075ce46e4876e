// What an answer must match so that its calls are whole: a grammar for the choice of its tokens.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/dialog/form.h"
#include "text/dialog/tool.h"
#include "text/tokenizer.h"

namespace situ {

// The id of a text that is a special token of the model; no value: it is text.
using SpecialToken = std::function<std::optional<int64_t>(std::string_view)>;
// `tokenizer` must outlive it.
SpecialToken special_tokens_of(const FolderTokenizer& tokenizer);

// A Lark grammar (GrammarKind::kAnswer of text/grammar.h). Choice:
//   kAuto      any text, and from the opening mark of a call on that call; behind it more calls if they may be parallel
//   kRequired  one call at least, from the start on (behind reasoning)
//   kNamed     one call of this tool, then the end
// Reasoning is free text up to its closing mark. `in_reasoning`: ReasoningForm::open_in of the prompt.
// `rule`, a part of a Lark grammar ("%json {...}", "/.../", "%lark {...}"): with kAuto, what an answer without calls
// must match; calls then stand at its beginning, without a text before them (AnswerReader's `calls_first`).
// Errors, kInvalidArgument: no tools; the choice names none of them; a schema is no JSON.
Result<std::string> call_grammar(const Form& form, std::span<const Tool> tools, const ToolChoice& choice,
                                 bool in_reasoning, const SpecialToken& special = nullptr,
                                 const std::string& rule = "");

// The same for an answer without tools that must match `rule`: what follows the reasoning.
std::string grammar_behind_reasoning(const Form& form, const std::string& rule, bool in_reasoning,
                                     const SpecialToken& special = nullptr);

}  // namespace situ
