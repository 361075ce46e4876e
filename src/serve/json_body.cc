#include "serve/json_body.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "serve/body_field.h"
#include "text/json_file.h"
#include "text/ordered_json.h"

namespace situ::serve {

namespace {

// The code unit of an escape \uXXXX at the beginning of `text`; -1: there is none.
int escaped_unit(std::string_view text) {
  constexpr size_t kSize = 6;
  int unit = 0;
  if (text.size() < kSize || text[0] != '\\' || text[1] != 'u') return -1;
  const auto [end, error] = std::from_chars(text.data() + 2, text.data() + kSize, unit, 16);
  return error == std::errc() && end == text.data() + kSize ? unit : -1;
}

// JSON with values that nothing here can hold in place of which others stand: halves of surrogate pairs, which are
// characters of no text, and numbers beyond the largest one.
struct Mended {
  std::string text, why;  // why: of the first one; empty: there is none
};

// An escape, of two code units where they are a pair. Returns what it takes of `rest`.
size_t mend_escape(std::string_view rest, Mended& mended) {
  constexpr size_t kUnit = 6;
  const int first = escaped_unit(rest), second = escaped_unit(rest.substr(std::min(kUnit, rest.size())));
  const bool high = first >= 0xD800 && first < 0xDC00, low = first >= 0xDC00 && first < 0xE000;
  const bool pair = high && second >= 0xDC00 && second < 0xE000;
  const size_t size = std::min(rest.size(), pair ? 2 * kUnit : first >= 0 ? kUnit : 2);
  if ((high && !pair) || low) {
    if (mended.why.empty()) mended.why = std::string(rest.substr(0, kUnit)) + " in it is half of a surrogate pair";
    mended.text += "\\ufffd";
  } else {
    mended.text += rest.substr(0, size);
  }
  return size;
}

size_t mend_number(std::string_view rest, Mended& mended) {
  const std::string number(rest.substr(0, rest.find_first_not_of("+-.0123456789Ee")));
  const bool too_large = std::isinf(std::strtod(number.c_str(), nullptr));
  if (too_large && mended.why.empty()) mended.why = "a number in it is too large";
  mended.text += too_large ? "null" : number;
  return number.size();
}

Mended mend(std::string_view text) {
  Mended mended;
  bool quoted = false;
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (quoted && c == '\\') {
      i += mend_escape(text.substr(i), mended);
    } else if (!quoted && (c == '-' || (c >= '0' && c <= '9'))) {
      i += mend_number(text.substr(i), mended);
    } else {
      if (c == '"') quoted = !quoted;
      mended.text += c;
      ++i;
    }
  }
  return mended;
}

Refusal no_json(const std::string& why) { return {Refusal::Kind::kNoJson, "", why}; }

using Skips = std::function<bool(std::string_view)>;

OrRefusal<Json> parse_object(std::string_view text, std::string* why_mended, const Skips& skips) {
  std::variant<Json, JsonFault> read = parse_ordered(text, skips);
  if (Json* json = std::get_if<Json>(&read)) {
    if (json->is_object()) return std::move(*json);
    return no_json("the body should be a JSON object, is " + std::string(json->type_name()));
  }
  const Mended mended = why_mended ? mend(text) : Mended();
  if (!mended.why.empty())
    if (OrRefusal<Json> json = parse_object(mended.text, nullptr, skips); std::holds_alternative<Json>(json)) {
      *why_mended = mended.why;
      return json;
    }
  const JsonFault& refusal = std::get<JsonFault>(read);
  return no_json("the body is not JSON: " + (refusal.too_large
                                                 ? std::string("a number in it is too large")
                                                 : "byte " + std::to_string(refusal.byte) + " cannot be read"));
}

}  // namespace

OrRefusal<Json> parse_body(std::string_view text, std::optional<Refusal>* inside, const Skips& skips) {
  if (const Status checked = check_json(text, "the body", kMostKeys); !checked.is_ok())
    return no_json(checked.message());
  std::string why;
  OrRefusal<Json> json = parse_object(text, &why, skips);
  if (why.empty()) return json;
  const Refusal refusal = no_json("the body is not JSON: " + why);
  if (!inside) return refusal;
  *inside = refusal;
  return json;
}

bool is_neutral(const BodyField& field, const Json& value) {
  const Json neutral = Json::parse(field.neutral);
  return std::find(neutral.begin(), neutral.end(), value) != neutral.end();
}

OrRefusal<std::string> model_of(const Json& body) {
  const auto found = body.find("model");
  if (found == body.end() || found->is_null()) return std::string();
  if (found->is_string()) return found->get<std::string>();
  return Refusal{Refusal::Kind::kType, "model", "model should be a string, is " + shown(*found)};
}

}  // namespace situ::serve
