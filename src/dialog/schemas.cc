#include "dialog/schemas.h"

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

namespace situ {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kWords[] = {"description", "title",    "examples",   "example",
                                  "default",     "$comment", "deprecated", "$schema"};
// Of texts, those that grammars obey; others say how a value is used.
constexpr std::string_view kFormats[] = {"date", "date-time", "duration", "email", "hostname",
                                         "ipv4", "ipv6",      "time",     "uri",   "uuid"};

// `names`: the keys of this object are names, not words of JSON Schema.
void strip(Json& schema, bool names) {
  if (schema.is_array())
    for (Json& item : schema) strip(item, false);
  if (!schema.is_object()) return;
  if (!names)
    for (const char* word : kWords) schema.erase(word);
  if (const auto format = schema.find("format"); !names && format != schema.end())
    if (!format->is_string() ||
        std::count(std::begin(kFormats), std::end(kFormats), format->get_ref<const std::string&>()) == 0)
      schema.erase("format");
  for (auto& [key, value] : schema.items()) {
    const bool values = !names && (key == "enum" || key == "const" || key == "required");
    const bool named =
        !names && (key == "properties" || key == "$defs" || key == "definitions" || key == "patternProperties");
    if (!values) strip(value, named);
  }
}

ArgumentType common_type(ArgumentType a, ArgumentType b) { return a == b ? a : ArgumentType::kAny; }

ArgumentType type_below(const Json& part, const Json& root, int depth) {
  const Json& schema = followed(part, root);
  if (!schema.is_object() || depth > 16) return ArgumentType::kAny;
  const auto of_values = [](const Json& values) {
    std::optional<ArgumentType> type;
    for (const Json& value : values) {
      const ArgumentType one = value.is_string() ? ArgumentType::kText : ArgumentType::kOther;
      type = type ? common_type(*type, one) : one;
    }
    return type.value_or(ArgumentType::kAny);
  };
  if (const auto type = schema.find("type"); type != schema.end()) {
    Json types = Json::array();
    for (const Json& name : type->is_array() ? *type : Json::array({*type}))
      types.push_back(name == "string" ? Json("") : Json(0));
    return of_values(types);
  }
  if (const auto values = schema.find("enum"); values != schema.end()) return of_values(*values);
  if (const auto value = schema.find("const"); value != schema.end()) return of_values(Json::array({*value}));
  for (const char* word : {"anyOf", "oneOf"})
    if (const auto parts = schema.find(word); parts != schema.end() && parts->is_array() && !parts->empty()) {
      ArgumentType type = type_below((*parts)[0], root, depth + 1);
      for (const Json& other : *parts) type = common_type(type, type_below(other, root, depth + 1));
      return type;
    }
  return ArgumentType::kAny;
}

}  // namespace

Json schema_of(const Tool& tool) {
  Json schema = Json::parse(tool.parameters_json, nullptr, false);
  if (!schema.is_object()) schema = Json::object();
  strip(schema, false);
  if (!schema.contains("type")) schema["type"] = "object";
  return schema;
}

const Json& followed(const Json& schema, const Json& root) {
  const Json* at = &schema;
  for (int steps = 0; steps < 16 && at->is_object() && at->contains("$ref") && (*at)["$ref"].is_string(); ++steps) {
    const std::string ref = (*at)["$ref"].get<std::string>();
    if (!ref.starts_with('#')) break;
    try {
      at = &root.at(Json::json_pointer(ref.substr(1)));
    } catch (const Json::exception&) {
      break;
    }
  }
  return *at;
}

ArgumentType type_of(const Json& schema, const Json& root) { return type_below(schema, root, 0); }

}  // namespace situ
