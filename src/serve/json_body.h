// Bodies as texts: what can be said of them without a model or a protocol.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "serve/refusal.h"
#include "text/ordered_json.h"

namespace situ::serve {

using Json = nlohmann::ordered_json;

// JSON text to an object. Refusal kNoJson: it is none, nested too deep, has too many values, or has one
// that nothing can hold: half of a surrogate pair, a number that is too large. `inside`: set for such a value; then the
// object has U+FFFD or null in its place. Null: not wanted. `skips`: keys whose values are not wanted (parse_ordered).
OrRefusal<Json> parse_body(std::string_view text, std::optional<Refusal>* inside = nullptr,
                           const std::function<bool(std::string_view key)>& skips = nullptr);
// body.model; "": there is none. Refusal: it is no string.
OrRefusal<std::string> model_of(const Json& body);

}  // namespace situ::serve
