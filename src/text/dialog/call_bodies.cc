#include "text/dialog/call_bodies.h"

#include <nlohmann/json.hpp>

#include "text/dialog/marks.h"
#include "text/dialog/schemas.h"
#include "text/dialog/spelled_bodies.h"
#include "text/json_file.h"

namespace situ {
namespace {

using Json = nlohmann::ordered_json;

// A template's JSON text, with the arguments in it.
void object_text(std::string& text, const Json& shape, const std::string& name) {
  if (!shape.is_object()) {
    text += shape == "$name"                          ? Lark::literal(name)
            : shape == "$arguments" || shape == "$id" ? std::string("\x01") + (shape == "$id" ? "i" : "a")
                                                      : json_text(shape);
    return;
  }
  text += "{";
  bool first = true;
  for (const auto& [key, value] : shape.items()) {
    text += (first ? "" : ", ") + Lark::literal(key == "$name" ? name : key) + ": ";
    first = false;
    object_text(text, value, name);
  }
  text += "}";
}

std::string object_body(Lark& lark, const CallForm& form, const Tool& tool, const Json& schema) {
  std::string text, body;
  object_text(text, Json::parse(form.shape, nullptr, false), tool.name);
  for (size_t at = 0; at <= text.size();) {
    const size_t mark = std::min(text.find('\x01', at), text.size());
    if (mark > at) body += (body.empty() ? "" : " ") + Lark::literal(text.substr(at, mark - at));
    if (mark == text.size()) break;
    body += (body.empty() ? "" : " ") +
            (text[mark + 1] == 'a' ? lark.rule(json_rule(schema, schema)) : lark.lexeme(R"(/"[A-Za-z0-9_-]{1,40}"/)"));
    at = mark + 2;
  }
  return body;
}

// What an object must be that has this shape. `at`: where it stands in the whole schema.
Json schema_of_shape(const Json& shape, const Tool& tool, const std::string& at) {
  if (shape == "$name") return {{"const", tool.name}};
  if (shape == "$id") return {{"type", "string"}, {"pattern", "^[A-Za-z0-9_-]{1,40}$"}};
  if (shape == "$arguments") {
    Json schema = schema_of(tool);
    move_references(schema, at);
    return schema;
  }
  if (!shape.is_object()) return {{"const", shape}};
  Json properties = Json::object(), names = Json::array();
  for (const auto& [key, value] : shape.items()) {
    const std::string name = key == "$name" ? tool.name : key;
    properties[name] = schema_of_shape(value, tool, at + "/properties/" + name);
    names.push_back(name);
  }
  return {{"type", "object"}, {"properties", properties}, {"required", names}, {"additionalProperties", false}};
}

std::string named_body(Lark& lark, const CallForm& form, const Tool& tool, const Json& schema) {
  std::string id = form.id_open.empty() ? ""
                                        : lark.mark(form.id_open) + " " +
                                              lark.lexeme(form.id_is_index ? "/[0-9]{1,3}/" : "/[A-Za-z0-9]{9}/") + " ";
  return Lark::literal(tool.name) + " " + id + lark.mark(form.name_close) + " " + lark.rule(json_rule(schema, schema));
}

std::string channel_body(Lark& lark, const Tool& tool, const Json& schema) {
  const std::string name = Lark::literal(tool.name), arguments = lark.rule(json_rule(schema, schema));
  const std::string before = Lark::literal(" to=functions.") + " " + name + " " +
                             lark.mark("<|channel|>commentary json<|message|>") + " " + arguments;
  const std::string behind = lark.mark("<|channel|>commentary to=functions.") + " " + name + " " +
                             lark.mark(" <|constrain|>json<|message|>") + " " + arguments;
  return lark.rule(before) + " | " + lark.rule(behind);
}

}  // namespace

std::string object_call_schema(const CallForm& form, const Tool& tool) {
  return json_text(schema_of_shape(Json::parse(form.shape, nullptr, false), tool, "#"));
}

bool writes_json(const CallForm& form) {
  using Kind = CallForm::Kind;
  return form.kind == Kind::kObject || form.kind == Kind::kNamed || form.kind == Kind::kChannels;
}

Result<std::string> call_body(Lark& lark, const CallForm& form, const Tool& tool) {
  const Json schema = schema_of(tool);
  switch (form.kind) {
    case CallForm::Kind::kObject:
      return object_body(lark, form, tool, schema);
    case CallForm::Kind::kNamed:
      return named_body(lark, form, tool, schema);
    case CallForm::Kind::kChannels:
      return channel_body(lark, tool, schema);
    default:
      return spelled_body(lark, form, tool, schema);
  }
}

}  // namespace situ
