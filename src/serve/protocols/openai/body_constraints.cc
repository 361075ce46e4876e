// What an answer must match: OpenAI's response_format, and the fields of vLLM, llama.cpp and Ollama that say the same.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "serve/protocols/openai/openai.h"
#include "serve/protocols/openai/strict_schema.h"
#include "text/json_file.h"
#include "text/ordered_json.h"

namespace situ::serve {
namespace {

constexpr int64_t kMostSchemaKeys = 2048;

// An answer has one grammar. A schema is more than any object.
bool take_constraint(BodyReader& r, const std::string& name) {
  if (!r.constraint.empty() && !r.any_object) {
    r.refuse(name, r.constraint + " and " + name + ": an answer has one grammar");
    return false;
  }
  r.constraint = name;
  r.any_object = false;
  return true;
}

void set_schema(BodyReader& r, const std::string& name, const Json& schema, bool strict = false) {
  if (!(schema.is_object() || schema.is_boolean())) return r.refuse_type(name, schema, "a JSON schema");
  if (!take_constraint(r, name)) return;
  std::optional<Json> meant = strict ? strict_schema(schema) : schema;
  if (!meant) return r.refuse(name, name + ": the schema is too large, or a part of it contains itself");
  r.ask.options.json_schema = json_text(*meant);
  const size_t end = std::min(name.find('.'), name.find('['));
  r.says("json_schema", name.substr(0, end));
}

void set_any_object(BodyReader& r, const std::string& name) {
  if (!r.constraint.empty() && r.ask.options.json_schema) return;  // a schema is said elsewhere
  if (!take_constraint(r, name)) return;
  r.any_object = true;
  r.ask.options.json_schema = R"({"type": "object"})";
  r.says("json_schema", name.substr(0, name.find('.')));
}

void set_regex(BodyReader& r, const std::string& name, std::string regex) {
  if (!take_constraint(r, name)) return;
  r.ask.options.regex = std::move(regex);
  r.says("regex", name);
}

std::string as_regex(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (std::string_view("\\.+*?()|[]{}^$#&-~/ \t").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

// A schema as an object, or as the text of one.
void set_schema_or_text(BodyReader& r, const std::string& name, const Json& value) {
  if (!value.is_string()) return set_schema(r, name, value);
  const std::string& text = value.get_ref<const std::string&>();
  if (check_json(text, name, kMostSchemaKeys).is_ok()) {
    std::variant<Json, JsonFault> read = parse_ordered(text);
    if (const Json* schema = std::get_if<Json>(&read)) return set_schema(r, name, *schema);
  }
  r.refuse(name, name + " should be a JSON schema, or the text of one");
}

void set_choice(BodyReader& r, const std::string& name, const Json& value) {
  const bool texts = value.is_array() && !value.empty() &&
                     std::all_of(value.begin(), value.end(), [](const Json& one) { return one.is_string(); });
  if (!texts) return r.refuse_type(name, value, "a list of strings");
  std::string regex;
  for (const Json& one : value) regex += (regex.empty() ? "(?:" : "|") + as_regex(one.get_ref<const std::string&>());
  set_regex(r, name, regex + ")");
}

// {"name", "description", "schema", "strict"}
void read_json_schema(BodyReader& r, const std::string& name, const Json& value) {
  if (!value.is_object()) return r.refuse_type(name, value, "an object with a schema");
  r.ignore_others(value, name, {"name", "description", "schema", "strict"});
  const Json strict = value.value("strict", Json());
  if (!strict.is_null() && !strict.is_boolean()) return r.refuse_type(name + ".strict", strict, "true or false");
  set_schema(r, name + ".schema", value.value("schema", Json()), strict == true);
}

}  // namespace

void read_format(BodyReader& r, const char* name, const Json& value) {
  if (!value.is_object()) return r.refuse_type(name, value, "an object");
  if (value.empty()) return;
  const std::string format = name;
  const Json type = value.value("type", Json()), schema = value.value("schema", Json()),
             held = value.value("json_schema", Json()), text = value.value("value", Json());
  if (type == "text") {
    r.ignore_others(value, format, {"type"});
  } else if (type == "json_object" || type == "json" || type == "json_schema") {
    const bool own = type == "json_schema" && !held.is_null();
    if (own) {
      r.ignore_others(value, format, {"type", "json_schema"});
      read_json_schema(r, format + ".json_schema", held);
    } else if (!schema.is_null()) {  // llama.cpp and its clients
      r.ignore_others(value, format, {"type", "name", "description", "schema", "strict"});
      set_schema(r, format + ".schema", schema, value.value("strict", Json()) == true);
    } else if (!text.is_null()) {  // text-generation-inference
      r.ignore_others(value, format, {"type", "value"});
      set_schema(r, format + ".value", text);
    } else if (type == "json_schema") {
      r.refuse_type(format + ".json_schema", held, "an object with a schema");
    } else if (!held.is_null()) {
      r.ignore_others(value, format, {"type", "json_schema"});
      read_json_schema(r, format + ".json_schema", held);
    } else {
      r.ignore_others(value, format, {"type"});
      set_any_object(r, format);
    }
  } else if (type == "regex" && text.is_string()) {
    r.ignore_others(value, format, {"type", "value"});
    set_regex(r, format, text.get<std::string>());
  } else {
    r.refuse(format + ".type", format + ".type should be text, json_object or json_schema, is " + shown(type));
  }
}

void read_schema(BodyReader& r, const char* name, const Json& value) {
  if (value != "") set_schema_or_text(r, name, value);
}

void read_json_format(BodyReader& r, const char* name, const Json& value) {
  if (value == "") return;
  if (value == "json") return set_any_object(r, name);
  set_schema_or_text(r, name, value);
}

void read_regex(BodyReader& r, const char* name, const Json& value) {
  if (value == "") return;  // elsewhere the word for none
  if (std::optional<std::string> text = r.string(name, value)) set_regex(r, name, std::move(*text));
}

void read_lark(BodyReader& r, const char* name, const Json& value) {
  if (value == "") return;
  std::optional<std::string> text = r.string(name, value);
  if (!text || !take_constraint(r, name)) return;
  r.ask.options.grammar = std::move(*text);
  r.says("grammar", name);
}

void read_choice(BodyReader& r, const char* name, const Json& value) {
  if (value.is_array() && value.empty()) return;
  set_choice(r, name, value);
}

void read_structured_outputs(BodyReader& r, const char* name, const Json& value) {
  if (!value.is_object()) return r.refuse_type(name, value, "an object");
  for (const auto& [key, inner] : value.items()) {
    const std::string here = std::string(name) + "." + key.substr(0, 100);
    if (inner.is_null() || inner == "" || (inner.is_array() && inner.empty()) || r.refusal) continue;
    if (key == "json")
      set_schema_or_text(r, here, inner);
    else if (key == "regex" && inner.is_string())
      set_regex(r, here, inner.get<std::string>());
    else if (key == "regex")
      r.refuse_type(here, inner, "a string");
    else if (key == "choice")
      set_choice(r, here, inner);
    else if (key == "json_object") {
      if (const std::optional<bool> wanted = r.boolean(here, inner); wanted && *wanted) set_any_object(r, here);
    } else if (key == "grammar" || key == "structural_tag" || key == "whitespace_pattern" ||
               (key == "disable_any_whitespace" && inner == true) ||
               (key == "disable_additional_properties" && inner == true))
      r.refuse(here, here + " is not supported: json, regex, choice and json_object are", Refusal::Kind::kUnsupported);
    else if (!key.starts_with("disable_") && !key.starts_with("_"))
      r.ignore(here);
  }
}

}  // namespace situ::serve
