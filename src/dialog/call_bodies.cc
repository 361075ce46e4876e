#include "dialog/call_bodies.h"

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "dialog/marks.h"
#include "dialog/schemas.h"
#include "text/json_file.h"

namespace situ {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kAnyName = "/[A-Za-z0-9_.-]{1,64}/";

// A part of a schema that stands alone: with what it refers to.
std::string json_rule(const Json& part, const Json& root) {
  Json schema = part;
  if (schema.is_boolean()) schema = Json::object();
  for (const char* definitions : {"$defs", "definitions"})
    if (root.is_object() && root.contains(definitions) && &part != &root) schema[definitions] = root[definitions];
  return "%json " + json_text(schema);
}

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

// A schema's references, of which "#" is the whole, as they read where it is a part.
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

struct Property {
  std::string name;
  Json schema;
  bool required = false;
};

// The properties of an object that lists them; any others may come too where it lists none.
std::vector<Property> properties_of(const Json& schema) {
  std::vector<Property> all;
  const auto listed = schema.find("properties");
  if (listed == schema.end() || !listed->is_object()) return all;
  std::set<std::string> required;
  if (const auto names = schema.find("required"); names != schema.end() && names->is_array())
    for (const Json& name : *names)
      if (name.is_string()) required.insert(name.get<std::string>());
  for (const auto& [name, part] : listed->items()) all.push_back({name, part, required.contains(name)});
  return all;
}

// "a" | "b" of a text that is one of these; "": it is any text.
std::string listed_texts(const Json& schema, const std::string& before, const std::string& behind) {
  Json values = Json::array();
  if (const auto list = schema.find("enum"); list != schema.end() && list->is_array()) values = *list;
  if (const auto value = schema.find("const"); value != schema.end()) values = Json::array({*value});
  std::string body;
  for (const Json& value : values)
    if (value.is_string())
      body += (body.empty() ? "" : " | ") + Lark::literal(before + value.get<std::string>() + behind);
  return body;
}

// A text, which the first mark ends, as readers have it: white space before the mark is the text's.
std::string tagged_text(Lark& lark, std::string_view mark) {
  const std::string_view whole = trimmed(mark);
  const std::string behind = lark.mark(trimmed_left(mark).substr(whole.size()));
  return lark.text_to(whole) + (behind.empty() ? "" : " ") + behind;
}

std::string tagged_value(Lark& lark, const CallForm& form, const Json& part, const Json& root) {
  if (type_of(part, root) != ArgumentType::kText)
    return lark.rule(json_rule(part, root)) + " " + lark.mark(form.value_close);
  const std::string listed = listed_texts(followed(part, root), "", "");
  return listed.empty() ? tagged_text(lark, form.value_close) : lark.rule(listed) + " " + lark.mark(form.value_close);
}

std::string tagged_body(Lark& lark, const CallForm& form, const Tool& tool, const Json& schema) {
  std::string body = Lark::literal(tool.name + form.name_close);
  const std::vector<Property> properties = properties_of(followed(schema, schema));
  for (const Property& p : properties) {
    const std::string open = Lark::literal(form.key_open + p.name + form.key_close);
    body += " " + lark.rule(open + " " + tagged_value(lark, form, p.schema, schema)) + (p.required ? "" : "?");
  }
  if (properties.empty() && !schema.contains("properties"))
    body += " " +
            lark.rule(Lark::literal(form.key_open) + " " + lark.lexeme(std::string(kAnyName)) + " " +
                      Lark::literal(form.key_close) + " " + tagged_text(lark, form.value_close)) +
            "*";
  return body;
}

// Properties in their order, with a comma between two: of each the rule for what comes when one stands before, or none.
std::string comma_separated(Lark& lark, const std::vector<std::pair<std::string, bool>>& items,
                            const std::string& comma) {
  std::string behind = "", first = "";
  for (auto item = items.rbegin(); item != items.rend(); ++item) {
    const std::string rest = behind.empty() ? "" : " " + behind;
    const std::string with = lark.rule(Lark::literal(comma) + " " + item->first + rest);
    const std::string alone = lark.rule(item->first + rest);
    const std::string left_first = first;
    behind = item->second ? with : behind.empty() ? with + "?" : lark.rule(with + " | " + behind);
    first = item->second ? alone : left_first.empty() ? alone + "?" : lark.rule(alone + " | " + left_first);
  }
  return first;
}

std::string python_value(Lark& lark, const Json& part, const Json& root) {
  const Json& schema = followed(part, root);
  const Json type = schema.is_object() && schema.contains("type") ? schema["type"] : Json();
  if (type == "boolean" && !schema.contains("enum") && !schema.contains("const")) return "(\"True\" | \"False\")";
  if (type == "null") return "\"None\"";
  return lark.rule(json_rule(part, root));
}

std::string python_body(Lark& lark, const Tool& tool, const Json& schema) {
  std::vector<std::pair<std::string, bool>> items;
  for (const Property& p : properties_of(followed(schema, schema)))
    items.push_back({lark.rule(Lark::literal(p.name + "=") + " " + python_value(lark, p.schema, schema)), p.required});
  const std::string arguments = comma_separated(lark, items, ", ");
  return Lark::literal(tool.name + "(") + " " + arguments + (arguments.empty() ? "" : " ") + "\")\"";
}

// The recipient stands before the channel, as templates write it, or behind it, as models do.
std::string channel_body(Lark& lark, const Tool& tool, const Json& schema) {
  const std::string name = Lark::literal(tool.name), arguments = lark.rule(json_rule(schema, schema));
  const std::string before = Lark::literal(" to=functions.") + " " + name + " " +
                             lark.mark("<|channel|>commentary json<|message|>") + " " + arguments;
  const std::string behind = lark.mark("<|channel|>commentary to=functions.") + " " + name + " " +
                             lark.mark(" <|constrain|>json<|message|>") + " " + arguments;
  return lark.rule(before) + " | " + lark.rule(behind);
}

// Values between braces of a model's own: texts between marks, keys without.
class LiteralRulesOf {
 public:
  LiteralRulesOf(Lark& lark, std::string_view quote, const Json& root) : lark_(lark), quote_(quote), root_(root) {}

  std::string value(const Json& part, int depth = 0) {
    const Json& schema = followed(part, root_);
    if (type_of(part, root_) == ArgumentType::kText) {
      const std::string listed = listed_texts(schema, std::string(quote_), std::string(quote_));
      return listed.empty() ? text() : lark_.rule(listed);
    }
    const Json type = schema.is_object() && schema.contains("type") ? schema["type"] : Json();
    if (type == "object" && depth < 8) return object(schema, depth);
    if (type == "array" && depth < 8) return list(schema.contains("items") ? value(schema["items"], depth + 1) : any());
    if (type == "integer" || type == "number" || type == "boolean" || type == "null")
      return lark_.rule(json_rule(part, root_));
    return any();
  }

  std::string object(const Json& schema, int depth) {
    std::vector<std::pair<std::string, bool>> items;
    for (const Property& p : properties_of(schema))
      items.push_back({lark_.rule(Lark::literal(p.name + ":") + " " + value(p.schema, depth + 1)), p.required});
    if (items.empty() && !schema.contains("properties")) return any_object();
    const std::string inside = comma_separated(lark_, items, ",");
    return lark_.rule("\"{\" " + inside + (inside.empty() ? "" : " ") + "\"}\"");
  }

 private:
  std::string text() { return lark_.rule(lark_.mark(quote_) + " " + lark_.text_to(quote_)); }
  std::string list(const std::string& item) { return lark_.rule("\"[\" (" + item + " (\",\" " + item + ")*)? \"]\""); }
  std::string scalar() { return text() + " | " + lark_.rule(R"(%json {"type": ["number", "boolean", "null"]})"); }
  std::string any() { return lark_.rule(scalar()); }
  std::string any_object() {
    const std::string item = lark_.rule(lark_.lexeme(std::string(kAnyName)) + " \":\" " + any());
    return lark_.rule("\"{\" (" + item + " (\",\" " + item + ")*)? \"}\"");
  }

  Lark& lark_;
  std::string_view quote_;
  const Json& root_;
};

}  // namespace

std::string object_call_schema(const CallForm& form, const Tool& tool) {
  return json_text(schema_of_shape(Json::parse(form.shape, nullptr, false), tool, "#"));
}

std::string call_body(Lark& lark, const CallForm& form, const Tool& tool) {
  const Json schema = schema_of(tool);
  switch (form.kind) {
    case CallForm::Kind::kObject:
      return object_body(lark, form, tool, schema);
    case CallForm::Kind::kNamed:
      return named_body(lark, form, tool, schema);
    case CallForm::Kind::kTagged:
      return tagged_body(lark, form, tool, schema);
    case CallForm::Kind::kPython:
      return python_body(lark, tool, schema);
    case CallForm::Kind::kLiterals:
      return Lark::literal(tool.name) + " " +
             LiteralRulesOf(lark, form.text_quote, schema).object(followed(schema, schema), 0);
    case CallForm::Kind::kChannels:
      return channel_body(lark, tool, schema);
  }
  return "";
}

}  // namespace situ
