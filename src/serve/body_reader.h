// What the readers of a body's fields share: what is asked for, as far as it is known, and the first refusal.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>

#include "serve/json_body.h"
#include "serve/protocol.h"

namespace situ::serve {

inline constexpr int64_t kMostTokens = int64_t{1} << 30;

class BodyReader {
 public:
  // `route`: one of BodyField::routes of the fields.
  BodyReader(int route, std::span<const BodyField* const> fields, const Json& body, const Model& model,
             const BodyRules& rules)
      : route(route), fields(fields), body(body), model(model), rules(rules) {
    ask.by = &model;
  }

  const int route;
  const std::span<const BodyField* const> fields;
  const Json& body;
  const Model& model;
  const BodyRules& rules;
  Ask ask;
  ChatOptions chat;
  std::string constraint = {};      // the field that says what the answer must match; "": none
  bool any_object = false;          // which is any JSON object; a schema beside it counts
  Json variables = Json::object();  // of the chat template, that fields of other names say
  std::optional<Refusal> refusal;

  // Each field that the body has, in the order of the table; other names are ignored, or refused where the rules are
  // strict.
  void read_fields();

  // What the field of this name has; null: nothing, or null.
  const Json* find(const char* name) const {
    const auto found = body.find(name);
    return found == body.end() || found->is_null() ? nullptr : &*found;
  }
  // The first one stays.
  void refuse(const std::string& field, const std::string& message, Refusal::Kind kind = Refusal::Kind::kInvalid) {
    if (!refusal) refusal = Refusal{kind, field, message};
  }
  // Whether the model's chat template reads a variable, or a key of a message, of this name.
  bool template_reads(std::string_view name) const;
  const ModelForm* form() const;  // null: the model has no chat template
  // A name that nothing here knows: it is told in the answer, or refused where the rules are strict.
  void ignore(const std::string& name);
  // The same for keys of an object but the known ones; null values are as if they were absent.
  void ignore_others(const Json& object, const std::string& where, std::initializer_list<const char*> known);
  // The field `name` says this option of GenerateOptions.
  void says(const char* option, const std::string& name) { ask.fields_of_options[option] = name; }
  void refuse_type(const std::string& param, const Json& value, const std::string& wanted);
  std::optional<double> number(const std::string& name, const Json& value, double least, double most);
  std::optional<int64_t> integer(const std::string& name, const Json& value, int64_t least, int64_t most);
  std::optional<bool> boolean(const std::string& name, const Json& value);
  // UTF-8, as all that was read.
  std::optional<std::string> string(const std::string& name, const Json& value);
  std::optional<std::vector<int64_t>> ids(const std::string& name, const Json& value);

 private:
  void read_field(const BodyField& field, const Json& value);
};

// Readers of fields that protocols share: the option of GenerateOptions is called as the field, but for those that
// read_fields() knows by another name.
template <auto Field, int64_t least, int64_t most>
void read_integer(BodyReader& r, const char* name, const Json& value) {
  if (const std::optional<int64_t> n = r.integer(name, value, least, most)) r.ask.options.*Field = *n;
}
template <auto Field, int least, int most>
void read_number(BodyReader& r, const char* name, const Json& value) {
  if (const std::optional<double> x = r.number(name, value, least, most)) r.ask.options.*Field = *x;
}
void read_later(BodyReader& reader, const char* name, const Json& value);  // with others
void read_model(BodyReader& reader, const char* name, const Json& value);
void read_stream(BodyReader& reader, const char* name, const Json& value);
void read_temperature(BodyReader& reader, const char* name, const Json& value);

}  // namespace situ::serve
