#include "serve/tools.h"

#include "text/dialog/tool.h"

namespace situ::serve {

void read_tool(BodyReader& r, const std::string& where, const Json& tool, const char* parameters) {
  if (tool.is_object())
    r.ignore_others(tool, where, {"type", "name", "description", "strict", "cache_control", parameters});
  if (const std::optional<ToolFault> fault = situ::read_tool(tool, parameters, r.ask.tools))
    return r.refuse(where + fault->field, where + fault->field + fault->words,
                    fault->type ? Refusal::Kind::kType : Refusal::Kind::kInvalid);
  r.ask.fields_of_tools.push_back(where + "." + parameters);
}

void check_choice(BodyReader& r) {
  using Kind = ToolChoice::Kind;
  const ToolChoice& choice = r.ask.tool_choice;
  if (choice.kind == Kind::kRequired && r.ask.tools.empty())
    r.refuse("tool_choice", "tool_choice wants a call, and there are no tools");
  if (choice.kind == Kind::kNamed && !has_tool(r.ask.tools, choice.name))
    r.refuse("tool_choice", "tool_choice names " + shown(Json(choice.name)) + ", which is no tool here");
}

}  // namespace situ::serve
