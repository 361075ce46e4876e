// A conversation as the chat template wants it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "text/dialog/form.h"
#include "text/dialog/tool.h"

namespace situ {

// `messages`: an array as OpenAI's chat has it: role, content, tool_calls, tool_call_id, name, reasoning_content;
// arguments as texts or objects. `variables`: what else the template gets. Makes of them what the template of this form
// reads: arguments as objects or texts (a text that is no object of JSON as {"arguments": text}), an answer for each
// call where it takes one of an answer, ids in its form and the same in results, names of results, the key of
// reasoning, content "" in place of null; `tools` as a variable, or behind the system message's text; calls and results
// as text where the template shows none. Images of results that it shows as texts alone stand in a turn of the user
// behind them. Without tools, a template's own text stays as it is.
void fit_history(const Form& form, std::span<const Tool> tools, nlohmann::ordered_json& messages,
                 nlohmann::ordered_json& variables);

// A tool as templates get it: {"type": "function", "function": {"name", "description", "parameters"}}.
nlohmann::ordered_json json_of(const Tool& tool);
// The text that describes tools where the template does not: the one documented form.
std::string tools_text(const Form& form, std::span<const Tool> tools);
// A call as an answer of this form has it, with the marks around it. `arguments`: an object.
std::string spelled_call(const CallForm& form, const std::string& name, const nlohmann::ordered_json& arguments);

}  // namespace situ
