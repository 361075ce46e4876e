// Bodies as texts: what can be said of them without a model.
#include <array>
#include <nlohmann/json.hpp>

#include "serve/body_reader.h"
#include "text/json_file.h"

namespace situ::serve {

constexpr int64_t kMostKeys = 2048;  // of one object: each is compared with those before it

std::string shown(const Json& value) {
  constexpr size_t kMost = 100;
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.size() > kMost ? text.substr(0, kMost) + "..." : text;
}

Json to_json(const Fault& fault) {
  const auto text = [](const std::string& s) { return s.empty() ? Json() : Json(s); };
  return {
      {"error",
       {{"message", fault.message}, {"type", fault.type}, {"param", text(fault.param)}, {"code", text(fault.code)}}}};
}

OrFault<Json> parse_body(std::string_view text) {
  const auto wrong = [](const std::string& why) {
    return Fault{400, why, "invalid_request_error", "", "invalid_json"};
  };
  if (const Status checked = check_json(text, "the body", kMostKeys); !checked.is_ok()) return wrong(checked.message());
  try {
    Json json = Json::parse(text);
    if (json.is_object()) return json;
    return wrong("the body should be a JSON object, is " + std::string(json.type_name()));
  } catch (const Json::parse_error& e) {
    return wrong("the body is not JSON: byte " + std::to_string(e.byte) + " cannot be read");
  } catch (const Json::exception&) {
    return wrong("the body is not JSON: a number in it is too large");
  }
}

OrFault<std::string> model_of(const Json& body) {
  const auto found = body.find("model");
  if (found == body.end() || found->is_null()) return std::string();
  if (found->is_string()) return found->get<std::string>();
  return Fault{400, "model should be a string, is " + shown(*found), "invalid_request_error", "model", "invalid_type"};
}

std::optional<std::vector<uint8_t>> from_base64(std::string_view text) {
  for (int i = 0; i < 2 && text.ends_with('='); ++i) text.remove_suffix(1);
  if (text.size() % 4 == 1) return std::nullopt;
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::array<int8_t, 256> value;
  value.fill(-1);
  for (size_t i = 0; i < kDigits.size(); ++i) value[static_cast<unsigned char>(kDigits[i])] = static_cast<int8_t>(i);
  std::vector<uint8_t> bytes;
  bytes.reserve(text.size() * 3 / 4);
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const int v = value[static_cast<unsigned char>(c)];
    if (v < 0) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(v);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes.push_back(static_cast<uint8_t>(bits >> count));
  }
  return bytes;
}

}  // namespace situ::serve
