// What the readers of a body's fields share: the request that comes of them, and the first fault.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "serve/bodies.h"

namespace situ::serve {

inline constexpr int64_t kMostTokens = int64_t{1} << 30;
inline constexpr const char* kUnsupportedByModel = "unsupported_by_model";

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
  std::optional<Fault> fault;

  // What the field of this name has; null: nothing, or null.
  const Json* find(const char* name) const {
    const auto found = body.find(name);
    return found == body.end() || found->is_null() ? nullptr : &*found;
  }
  // The first one stays.
  void refuse(const std::string& param, const std::string& message, const std::string& code = "invalid_value") {
    if (!fault) fault = Fault{400, message, "invalid_request_error", param, code};
  }
  void refuse_type(const std::string& param, const Json& value, const std::string& wanted);
  std::optional<double> number(const std::string& name, const Json& value, double least, double most);
  std::optional<int64_t> integer(const std::string& name, const Json& value, int64_t least, int64_t most);
  std::optional<bool> boolean(const std::string& name, const Json& value);
  // UTF-8, as all that was read.
  std::optional<std::string> string(const std::string& name, const Json& value);
  std::optional<std::vector<int64_t>> ids(const std::string& name, const Json& value);
};

// A value for a message: the beginning of its JSON.
std::string shown(const Json& value);

// 503: there is no memory for an answer. Later there may be.
inline Fault overloaded(std::string message) { return {503, std::move(message), "server_error", "", "overloaded"}; }
// 429: as much is asked for as may be. Later there may be room.
inline Fault rate_limited(std::string message) {
  return {429, std::move(message), "rate_limit_exceeded", "", "rate_limit_exceeded"};
}

std::string without_paths(const Model& model, std::string message);

// The prompt of messages: ids, and what images and sounds are. Sets the fault.
Prompt prompt_of_messages(BodyReader& reader, const Json& messages);
// The text that they become, images and sounds by their placeholders. Sets the fault.
std::string text_of_messages(BodyReader& reader, const Json& messages, bool add_generation_prompt);

}  // namespace situ::serve
