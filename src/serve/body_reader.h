// What the readers of a body's fields share: the request that comes of them, and the first refusal.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "serve/bodies.h"

namespace situ::serve {

inline constexpr int kChat = static_cast<int>(Route::kChat), kText = static_cast<int>(Route::kCompletions),
                     kBoth = kChat | kText;  // BodyField::routes
inline constexpr int64_t kMostTokens = int64_t{1} << 30;

class BodyReader {
 public:
  BodyReader(Route route, const Json& body, const Model& model, const BodyRules& rules)
      : route(route), body(body), model(model), rules(rules) {}

  const Route route;
  const Json& body;
  const Model& model;
  const BodyRules& rules;
  Asked asked;
  GenerateOptions options;
  int priority = 0;
  ChatOptions chat;
  bool add_special = true;      // of a prompt that is a text
  std::string constraint = {};  // the field that says what the answer must match; "": none
  bool any_object = false;      // which is any JSON object; a schema beside it counts
  std::optional<Refusal> refusal;

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
  // A name that nothing here knows: it is told in the answer, or refused where the rules are strict.
  void ignore(const std::string& name);
  // The same for keys of an object but the known ones; null values are as if they were absent.
  void ignore_others(const Json& object, const std::string& where, std::initializer_list<const char*> known);
  // The field `name` says this option of GenerateOptions.
  void says(const char* option, const std::string& name) { asked.fields_of_options[option] = name; }
  void refuse_type(const std::string& param, const Json& value, const std::string& wanted);
  std::optional<double> number(const std::string& name, const Json& value, double least, double most);
  std::optional<int64_t> integer(const std::string& name, const Json& value, int64_t least, int64_t most);
  std::optional<bool> boolean(const std::string& name, const Json& value);
  // UTF-8, as all that was read.
  std::optional<std::string> string(const std::string& name, const Json& value);
  std::optional<std::vector<int64_t>> ids(const std::string& name, const Json& value);
};

// Readers of fields that say what an answer must match (body_constraints.cc).
void read_format(BodyReader& reader, const char* name, const Json& value);
void read_schema(BodyReader& reader, const char* name, const Json& value);
void read_json_format(BodyReader& reader, const char* name, const Json& value);
void read_regex(BodyReader& reader, const char* name, const Json& value);
void read_lark(BodyReader& reader, const char* name, const Json& value);
void read_choice(BodyReader& reader, const char* name, const Json& value);
void read_structured_outputs(BodyReader& reader, const char* name, const Json& value);

// Fields of other servers without effect here, at some values or at all (peer_fields.cc).
std::span<const BodyField> peer_fields();

// A value for a message: the beginning of its JSON.
std::string shown(const Json& value);

std::string without_paths(const Model& model, std::string message);

// The prompt of messages: ids, and what images and sounds are. Sets the refusal.
Prompt prompt_of_messages(BodyReader& reader, const Json& messages);
// The text that they become, images and sounds by their placeholders. Sets the refusal.
std::string text_of_messages(BodyReader& reader, const Json& messages);

}  // namespace situ::serve
