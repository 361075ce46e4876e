#include "text/dialog/argument_types.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "text/dialog/schemas.h"

namespace situ {

ArgumentTypes::ArgumentTypes(std::span<const Tool> tools, std::string_view name) {
  const auto tool = std::find_if(tools.begin(), tools.end(), [&](const Tool& t) { return t.name == name; });
  if (tool == tools.end()) return;
  const nlohmann::ordered_json schema = schema_of(*tool);
  SchemaParts parts(schema);
  const SchemaParts::Object object = parts.object(schema);
  for (const SchemaParts::Property& p : object.properties) listed_[p.name] = parts.value(*p.schema);
  if (object.others) others_ = parts.value(*object.others);
}

const ValueForm& ArgumentTypes::of(const std::string& key) const {
  const auto found = listed_.find(key);
  return found == listed_.end() ? others_ : found->second;
}

}  // namespace situ
