#include "dialog/argument_types.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "dialog/schemas.h"

namespace situ {

ArgumentTypes::ArgumentTypes(std::span<const Tool> tools, std::string_view name) {
  const auto tool = std::find_if(tools.begin(), tools.end(), [&](const Tool& t) { return t.name == name; });
  if (tool == tools.end()) return;
  const nlohmann::ordered_json schema = schema_of(*tool);
  const auto properties = schema.find("properties");
  if (properties == schema.end() || !properties->is_object()) return;
  for (const auto& [key, value] : properties->items()) types_[key] = type_of(value, schema);
}

ArgumentType ArgumentTypes::of(const std::string& key) const {
  const auto found = types_.find(key);
  return found == types_.end() ? ArgumentType::kAny : found->second;
}

}  // namespace situ
