#include "text/dialog/schemas.h"

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <string>
#include <string_view>

#include "text/json_file.h"

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

// Whether it has references, and whether all lead to definitions of the whole.
struct References {
  bool any = false, to_definitions = true;
};
void find_references(const Json& part, References& found) {
  if (!part.is_structured()) return;
  for (const auto& [key, value] : part.items()) {
    if (part.is_object() && key == "$ref" && value.is_string()) {
      const std::string& to = value.get_ref<const std::string&>();
      found.any = true;
      found.to_definitions = found.to_definitions && (to.starts_with("#/$defs/") || to.starts_with("#/definitions/"));
    }
    find_references(value, found);
  }
}

}  // namespace

Json schema_of(const Tool& tool) {
  Json schema = Json::parse(tool.parameters_json, nullptr, false);
  if (!schema.is_object()) schema = Json::object();
  strip(schema, false);
  if (!schema.contains("type")) schema["type"] = "object";
  return schema;
}

void move_references(Json& part, const std::string& to) {
  if (!part.is_structured()) return;
  for (auto& [key, value] : part.items()) {
    const bool reference = part.is_object() && key == "$ref" && value.is_string();
    if (reference && value.get_ref<const std::string&>().starts_with('#'))
      value = to + value.get_ref<const std::string&>().substr(1);
    else
      move_references(value, to);
  }
}

std::string json_rule(const Json& part, const Json& root) {
  References found;
  if (&part != &root) find_references(part, found);
  if (!found.any) return "%json " + json_text(part);
  for (const char* definitions : {"$defs", "definitions"}) {
    References of_definitions;
    if (root.contains(definitions)) find_references(root[definitions], of_definitions);
    found.to_definitions = found.to_definitions && of_definitions.to_definitions;
  }
  Json schema = part;
  if (found.to_definitions) {
    for (const char* definitions : {"$defs", "definitions"})
      if (root.contains(definitions)) schema[definitions] = root[definitions];
  } else {
    Json whole = root;
    for (Json* one : {&schema, &whole}) move_references(*one, "#/$defs/whole");
    schema["$defs"] = {{"whole", std::move(whole)}};
  }
  return "%json " + json_text(schema);
}

}  // namespace situ
