#include "text/dialog/tool.h"

#include <nlohmann/json.hpp>

#include "text/json_file.h"
#include "text/ordered_json.h"

namespace situ {

std::optional<ToolFault> read_tool(const nlohmann::ordered_json& given, const char* parameters,
                                   std::vector<Tool>& tools) {
  using Json = nlohmann::ordered_json;
  const auto wrong = [](const std::string& field, const std::string& wanted, const Json& value) {
    return ToolFault{field, " should be " + wanted + ", is " + shown(value), true};
  };
  if (!given.is_object()) return wrong("", "an object", given);
  const Json name = given.value("name", Json()), text = given.value("description", Json()),
             schema = given.value(parameters, Json());
  if (!name.is_string()) return wrong(".name", "a string", name);
  Tool tool{name.get<std::string>(), text.is_string() ? text.get<std::string>() : "",
            schema.is_object() && !schema.empty() ? json_text(schema) : ""};
  if (const std::optional<std::string> fault = fault_of_tool_name(tool.name)) return ToolFault{".name", " " + *fault};
  if (!text.is_null() && !text.is_string()) return wrong(".description", "a string", text);
  if (!schema.is_null() && !schema.is_object())
    return wrong("." + std::string(parameters), "a JSON schema of an object", schema);
  if (has_tool(tools, tool.name)) return ToolFault{".name", ": two tools are called " + shown(name)};
  tools.push_back(std::move(tool));
  return std::nullopt;
}

}  // namespace situ
