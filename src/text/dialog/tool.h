// The tools that an answer may call, and whether it must.
#pragma once

#include <algorithm>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace situ {

struct Tool {
  std::string name, description;
  std::string parameters_json = {};  // the JSON schema of its arguments, an object; "": it has none
};

inline bool has_tool(std::span<const Tool> tools, std::string_view name) {
  return std::any_of(tools.begin(), tools.end(), [&](const Tool& tool) { return tool.name == name; });
}

// Why an object is no tool: ".name" and " should be a string, is 3"; `type`: since it has a value of another type.
struct ToolFault {
  std::string field, words;
  bool type = false;
};
// {"name", "description", `parameters`: a schema} behind `tools`.
std::optional<ToolFault> read_tool(const nlohmann::ordered_json& given, const char* parameters,
                                   std::vector<Tool>& tools);

constexpr size_t kLongestToolName = 128;  // bytes

inline bool stands_in_tool_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
}
// What a name of a tool should be that this one is not: the name begins a call, and ends before the arguments.
inline std::optional<std::string> fault_of_tool_name(std::string_view name) {
  if (name.empty() || name.size() > kLongestToolName)
    return "should have 1 to " + std::to_string(kLongestToolName) + " bytes";
  for (const char c : name)
    if (!stands_in_tool_name(c)) return "should have letters A to Z, a to z, digits, '_', '-' and '.' alone";
  return std::nullopt;
}

struct ToolChoice {
  // kAuto: texts, or calls. kRequired: one call at least. kNamed: one call of `name`. kNone: tools are not shown.
  enum class Kind { kAuto, kNone, kRequired, kNamed };
  Kind kind = Kind::kAuto;
  std::string name = {};  // of kNamed
  bool parallel = true;   // several calls in one answer
};

}  // namespace situ
