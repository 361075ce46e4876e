#include "serve/body_limits.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include "text/json_file.h"

namespace situ::serve {
namespace {

int64_t depth_of(const Json& json) {
  int64_t deepest = 0;
  if (json.is_structured())
    for (const Json& item : json) deepest = std::max(deepest, depth_of(item));
  return deepest + (json.is_structured() ? 1 : 0);
}

int64_t bytes_of(const Json& text) { return text.is_string() ? std::ssize(text.get_ref<const std::string&>()) : 0; }

class Check {
 public:
  Check(const Json& body, const Limits& limits) : body_(body), limits_(limits) {}

  std::optional<Refusal> found() {
    const auto sized = [](const Json& value) { return value.is_structured() ? std::ssize(value) : 0; };
    const auto given = [](const Json& value) {
      const bool large = value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX};
      return large ? INT64_MAX : value.is_number_integer() ? value.get<int64_t>() : 0;
    };
    const auto tokens = [&](const Json& value) { return value.is_array() && !value.empty() && value[0].is_number(); };
    refuse("", depth_of(body_), &Limits::json_depth);
    const Json& messages = at("messages");
    refuse("messages", sized(messages), &Limits::messages);
    for (const char* name : {"prompt", "input"})
      if (!tokens(at(name))) refuse(name, sized(at(name)), &Limits::texts);
    for (const char* name : {"n", "num_beams"}) refuse(name, given(at(name)), &Limits::choices);
    for (const char* name : {"stop", "stop_sequences"}) {
      const Json& stop = at(name);
      refuse(name, sized(stop), &Limits::stops);
      refuse(name, bytes_of(stop), &Limits::stop_bytes);
      if (stop.is_array())
        for (const Json& text : stop) refuse(name, bytes_of(text), &Limits::stop_bytes);
    }
    for (const char* name : {"logit_bias", "stop_token_ids"}) refuse(name, sized(at(name)), &Limits::token_rules);
    for (const char* name : {"regex", "grammar", "guided_regex"})
      refuse(name, bytes_of(at(name)), &Limits::grammar_bytes);
    for (const char* name : {"response_format", "guided_json", "guided_choice", "structured_outputs", "json_schema",
                             "format", "output_config"})
      if (const Json& value = at(name); value.is_structured() || value.is_string())
        refuse(name, std::ssize(json_text(value)), &Limits::grammar_bytes);
    media(messages);
    return refusal_;
  }

 private:
  static const Json& at(const Json& json, const char* name) {
    static const Json kNone;
    const auto found = json.find(name);
    return found == json.end() ? kNone : *found;
  }
  const Json& at(const char* name) const { return at(body_, name); }

  void media(const Json& messages) {
    if (!messages.is_array()) return;
    int64_t images = 0;
    for (const Json& message : messages) images += images_of(at(message, "content"));
    refuse("messages", images, &Limits::images);
  }

  int64_t images_of(const Json& content) {
    int64_t images = 0;
    if (!content.is_array()) return images;
    for (const Json& part : content) {
      images += !at(part, "image_url").is_null() || at(part, "type") == "image";
      images += images_of(at(part, "content"));  // of a tool's result
      refuse("messages", bytes_of(at(at(part, "input_audio"), "data")) / 4 * 3, &Limits::sound_bytes);
    }
    return images;
  }

  // The first one stays.
  void refuse(const char* name, int64_t count, int64_t Limits::* limit) {
    if (refusal_ || count <= limits_.*limit) return;
    for (const LimitEntry& entry : limit_entries())
      if (entry.value == limit)
        refusal_ = Refusal{Refusal::Kind::kLimit, name,
                           (*name ? std::string(name) : "the body") + ": " + std::to_string(count) + " is more than " +
                               std::to_string(limits_.*limit) + ", the limit '" + entry.name + "'"};
  }

  const Json& body_;
  const Limits& limits_;
  std::optional<Refusal> refusal_;
};

}  // namespace

std::optional<Refusal> beyond_limits(const Json& body, const Limits& limits) { return Check(body, limits).found(); }

}  // namespace situ::serve
