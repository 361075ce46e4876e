// JSON whose objects keep their order, read in time that is linear in the text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <variant>

namespace situ {

inline constexpr int64_t kMostKeys = 2048;  // of one object: templates search them one by one

// Why a text is no JSON.
struct JsonFault {
  size_t byte = 0;         // of the text, counted from 1
  bool too_large = false;  // a number is larger than float64
};

// Reads a text that check_json() let through. Of keys that come twice the last value counts, at the first one's place,
// as in nlohmann::ordered_json::parse, which compares each key of an object with all before it: 1,024 objects of 2,048
// keys took 3.5 s. `skips`: keys of the outermost object whose values are not kept; in the place of a value other than
// null stands true.
std::variant<nlohmann::ordered_json, JsonFault> parse_ordered(
    std::string_view text, const std::function<bool(std::string_view key)>& skips = nullptr);

// The same, of any text; discarded where it is no JSON, or check_json() does not let it through.
nlohmann::ordered_json ordered_json_of(std::string_view text);

// A value for a message: the beginning of its JSON.
std::string shown(const nlohmann::ordered_json& value);

}  // namespace situ
