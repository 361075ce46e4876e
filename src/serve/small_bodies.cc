#include "serve/small_bodies.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/one_line.h"

namespace situ::serve {
namespace {

using Use = BodyField::Use;
constexpr const char *kAnyText = R"({"type":"string"})", *kFlag = R"({"type":"boolean"})",
                     *kMessages = R"({"type":"array","items":{"type":"object"},"minItems":1})",
                     *kIdList = R"({"type":"array","items":{"type":"integer","minimum":0}})",
                     *kInput = R"({"oneOf":[{"type":"string"},{"type":"array"}]})",
                     *kEncoding = R"({"type":"string","enum":["float","base64"]})";
constexpr BodyField kModel = {"model", 0, Use::kUsed, kAnyText,
                              "A name of the model; absent: the only one that can do it"};

constexpr BodyField kTokenize[] = {
    kModel,
    {"content", 0, Use::kUsed, kAnyText, "The text"},
    {"add_special", 0, Use::kUsed, kFlag, "With the tokens that begin and end a text (false)"},
    {"parse_special", 0, Use::kUsed, kFlag, "Special tokens in the text are tokens (true)"},
    {"with_pieces", 0, Use::kUsed, kFlag, "With the text of each token; a list of its bytes where they are no UTF-8"},
};
constexpr BodyField kDetokenize[] = {
    kModel,
    {"tokens", 0, Use::kUsed, kIdList, "Token ids"},
};
constexpr BodyField kTemplate[] = {
    kModel,
    {"messages", 0, Use::kUsed, kMessages, "The conversation, as /v1/chat/completions takes it"},
    {"chat_template_kwargs", 0, Use::kUsed, R"({"type":"object"})", "Variables of the chat template"},
    {"add_generation_prompt", 0, Use::kUsed, kFlag, "With what the answer follows (true)"},
    {"continue_final_message", 0, Use::kUsed, kFlag, "Without the end of the last message (false)"},
    {"tools", 0, Use::kUsed, R"({"type":"array"})", "Functions, as /v1/chat/completions takes them"},
};
constexpr BodyField kEmbeddings[] = {
    kModel,
    {"input", 0, Use::kUsed, kInput, "A text, token ids, or a list of either"},
    {"encoding_format", 0, Use::kUsed, kEncoding, "float: lists of numbers; base64: of little-endian float32"},
    {"prompt_name", 0, Use::kUsed, kAnyText, "A prompt of the model's files that stands before each text"},
    {"dimensions", 0, Use::kUsed, R"({"type":"integer","minimum":1})",
     "Numbers of an embedding: all, or the first ones where the model's files allow it"},
    {"user", 0, Use::kAccepted, "{}", ""},
    {"truncate", 0, Use::kRefused, "{}", "a text that is too long is cut", nullptr, "[true]"},
    {"truncate_prompt_tokens", 0, Use::kRefused, "{}", "a text is cut where the model's context ends", nullptr, "[-1]"},
    {"add_special_tokens", 0, Use::kRefused, "{}", "embeddings are of texts with their special tokens", nullptr,
     "[true]"},
};

}  // namespace

std::span<const SmallBody> small_bodies() {
  static const SmallBody bodies[] = {{"/v1/embeddings", "input", kEmbeddings},
                                     {"/tokenize", "content", kTokenize},
                                     {"/detokenize", "tokens", kDetokenize},
                                     {"/apply-template", "messages", kTemplate}};
  return bodies;
}

const SmallBody* small_body(std::string_view path) {
  const auto found = std::find_if(small_bodies().begin(), small_bodies().end(),
                                  [&](const SmallBody& body) { return path == body.path; });
  return found == small_bodies().end() ? nullptr : &*found;
}

bool has_field(const SmallBody& known, std::string_view name) {
  return std::any_of(known.fields.begin(), known.fields.end(), [&](const BodyField& f) { return name == f.name; });
}

std::optional<Refusal> check_fields(const SmallBody& known, const Json& body, bool strict, Ignored& ignored) {
  for (const auto& [key, value] : body.items()) {
    if (value.is_null()) continue;
    const auto field =
        std::find_if(known.fields.begin(), known.fields.end(), [&](const BodyField& f) { return key == f.name; });
    const std::string name = one_line(key.substr(0, 100));
    if (field == known.fields.end() && strict)
      return Refusal{Refusal::Kind::kUnknown, name, "unknown parameter: '" + name + "'"};
    if (field == known.fields.end())
      ignored.add(name);
    else if (field->use == Use::kRefused && !is_neutral(*field, value))
      return Refusal{Refusal::Kind::kUnsupported, name, name + " is not supported: " + field->what};
  }
  return std::nullopt;
}

void refuse_field(const std::string& name, const std::string& why, Refusal::Kind kind) {
  throw Refusal{kind, name, name + " " + why};
}

bool flag_of(const Json& body, const char* name, bool otherwise) {
  const auto found = body.find(name);
  if (found == body.end() || found->is_null()) return otherwise;
  if (!found->is_boolean()) refuse_field(name, "should be true or false", Refusal::Kind::kType);
  return found->get<bool>();
}

std::string text_of(const Json& body, const char* name) {
  const auto found = body.find(name);
  if (found == body.end() || found->is_null()) refuse_field(name, "is missing", Refusal::Kind::kMissing);
  if (!found->is_string()) refuse_field(name, "should be a string", Refusal::Kind::kType);
  return found->get<std::string>();
}

}  // namespace situ::serve
