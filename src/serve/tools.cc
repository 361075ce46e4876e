#include "serve/tools.h"

#include <algorithm>

#include "text/json_file.h"

namespace situ::serve {

void read_tool(BodyReader& r, const std::string& where, const Json& tool, const char* parameters) {
  if (!tool.is_object()) return r.refuse_type(where, tool, "an object");
  r.ignore_others(tool, where, {"type", "name", "description", "strict", "cache_control", parameters});
  const std::optional<std::string> name = r.string(where + ".name", tool.value("name", Json()));
  const Json text = tool.value("description", Json()), schema = tool.value(parameters, Json());
  if (!name) return;
  if (const std::optional<std::string> fault = fault_of_tool_name(*name); fault)
    return r.refuse(where + ".name", where + ".name " + *fault);
  if (!text.is_null() && !text.is_string()) return r.refuse_type(where + ".description", text, "a string");
  if (!schema.is_null() && !schema.is_object())
    return r.refuse_type(where + "." + parameters, schema, "a JSON schema of an object");
  const bool twice =
      std::any_of(r.ask.tools.begin(), r.ask.tools.end(), [&](const Tool& t) { return t.name == *name; });
  if (twice) return r.refuse(where + ".name", where + ".name: two tools are called " + shown(Json(*name)));
  r.ask.fields_of_tools.push_back(where + "." + parameters);
  r.ask.tools.push_back({*name, text.is_string() ? text.get<std::string>() : "",
                         schema.is_object() && !schema.empty() ? json_text(schema) : ""});
}

void check_choice(BodyReader& r) {
  using Kind = ToolChoice::Kind;
  const ToolChoice& choice = r.ask.tool_choice;
  if (choice.kind == Kind::kRequired && r.ask.tools.empty())
    r.refuse("tool_choice", "tool_choice wants a call, and there are no tools");
  if (choice.kind != Kind::kNamed) return;
  const bool found =
      std::any_of(r.ask.tools.begin(), r.ask.tools.end(), [&](const Tool& t) { return t.name == choice.name; });
  if (!found) r.refuse("tool_choice", "tool_choice names " + shown(Json(choice.name)) + ", which is no tool here");
}

}  // namespace situ::serve
