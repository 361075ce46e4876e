// A refusal in the words of OpenAI's API.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "serve/refusal.h"

namespace situ::serve {

// The status of HTTP, and OpenAI's type and code of it; a code of "" is null.
struct ErrorWords {
  int status;
  const char *type, *code;
};
ErrorWords words_of(const Refusal& refusal);

std::string text_of(const Refusal& refusal);             // {"error": {message, type, param, code}}
nlohmann::ordered_json to_json(const Refusal& refusal);  // the same

}  // namespace situ::serve
