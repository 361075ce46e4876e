#include "text/json_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/lfs_pointer.h"
#include "base/text_encoding.h"

namespace situ {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

// The largest in use, tokenizer_config.json with 65,536 added tokens, have 12 MB and half a million values.
constexpr std::uintmax_t kMaxBytes = uintmax_t{32} << 20;
constexpr int64_t kMaxValues = int64_t{1} << 21;
constexpr int kMaxDepth = 100;

std::string without_non_finite(const std::string& text) {
  std::string out;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const std::string_view rest = std::string_view(text).substr(i);
    size_t word = 0;
    for (const std::string_view w : {"-Infinity", "Infinity", "NaN"})
      if (!quoted && word == 0 && rest.substr(0, w.size()) == w) word = w.size();
    if (word > 0) {
      out += "null";
      i += word - 1;
      continue;
    }
    out += text[i];
    if (quoted && text[i] == '\\' && i + 1 < text.size())
      out += text[++i];
    else if (text[i] == '"')
      quoted = !quoted;
  }
  return out;
}

}  // namespace

// Before anything is kept: a list of two bytes takes 48. The keys of an object in order are searched one by one.
Status check_json(std::string_view text, const std::string& name, int64_t most_keys) {
  int depth = 0, deepest = 0;
  int64_t values = 0, most = 0;
  std::array<int64_t, kMaxDepth + 1> keys{};  // of the object at each depth
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '\\')
      ++i;
    else if (c == '"')
      quoted = !quoted;
    if (quoted) continue;
    depth += c == '{' || c == '[' ? 1 : c == '}' || c == ']' ? -1 : 0;
    deepest = std::max(deepest, depth);
    if (depth > 0 && depth <= kMaxDepth && (c == '{' || c == '[')) keys[static_cast<size_t>(depth)] = 0;
    if (depth > 0 && depth <= kMaxDepth && c == ':') most = std::max(most, ++keys[static_cast<size_t>(depth)]);
    values += c == '{' || c == '[' || c == ',';
  }
  if (deepest > kMaxDepth) return Status::error(name + ": not JSON: nested " + std::to_string(deepest) + " deep");
  if (values > kMaxValues)
    return Status::error(name + ": has " + std::to_string(values) + " values, the limit is " +
                         std::to_string(kMaxValues));
  if (most_keys > 0 && most > most_keys)
    return Status::error(name + ": an object in it has " + std::to_string(most) + " keys, the limit is " +
                         std::to_string(most_keys));
  return Status::ok();
}

Result<Json> parse_json(const std::string& text, const std::string& name) {
  SITU_RETURN_IF_ERROR(check_json(text, name, 0));
  const std::string finite = without_non_finite(text);
  try {
    return Json::parse(finite);
  } catch (const Json::out_of_range&) {
    return Status::error(name + ": not JSON: a number in it is too large");
  } catch (const Json::parse_error& e) {
    const auto end = finite.begin() + static_cast<int64_t>(std::min(e.byte > 0 ? e.byte - 1 : 0, finite.size()));
    return Status::error(name + ": not JSON: line " + std::to_string(std::count(finite.begin(), end, '\n') + 1) +
                         " cannot be read");
  }
}

static Result<Json> read_json(const fs::path& file) {
  const std::string start = file.string() + ": cannot be read as a configuration: ";
  std::error_code error;
  const auto size = fs::file_size(file, error);
  if (error) return Status::error(start + error.message());
  if (size > kMaxBytes)
    return Status::error(start + "it has " + std::to_string(size) + " bytes, the limit is " +
                         std::to_string(kMaxBytes));
  errno = 0;
  std::ifstream in(file, std::ios::binary);
  if (!in) return Status::error(start + std::strerror(errno));
  std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  if (is_lfs_pointer(text)) return lfs_pointer_error(file);
  SITU_RETURN_IF_ERROR(to_plain_utf8(file.string(), &text));
  return parse_json(text, file.string());
}

Result<Json> read_json_object(const fs::path& file) {
  Result<Json> json = read_json(file);
  if (json.is_ok() && !json->is_object())
    return Status::error(file.string() + ": not a JSON object but " + json->type_name());
  return json;
}

Result<Json> read_json_array(const fs::path& file) {
  Result<Json> json = read_json(file);
  if (json.is_ok() && !json->is_array())
    return Status::error(file.string() + ": not a JSON array but " + json->type_name());
  return json;
}

std::string json_text(const nlohmann::ordered_json& value) {
  return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string shown(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).substr(0, 100);
}

}  // namespace situ
