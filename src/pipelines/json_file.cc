#include "pipelines/json_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string_view>

namespace situ {

using Json = nlohmann::json;
namespace fs = std::filesystem;

bool there(const fs::path& path) {
  std::error_code error;
  return fs::symlink_status(path, error).type() != fs::file_type::not_found;
}

namespace {

constexpr std::uintmax_t kMaxJsonBytes = 64 << 20;  // a configuration is kilobytes

// Python writes numbers that JSON has no word for (time_step_limit: [0.0, Infinity]): null in their place.
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

Result<Json> read_json(const fs::path& file) {
  std::error_code error;
  const auto size = fs::file_size(file, error);
  if (error) return Status::error(file.string() + ": cannot be read as a configuration: " + error.message());
  if (size > kMaxJsonBytes)
    return Status::error(file.string() + ": cannot be read as a configuration: it has " + std::to_string(size) +
                         " bytes");
  errno = 0;
  std::ifstream in(file, std::ios::binary);
  if (!in) return Status::error(file.string() + ": cannot be read as a configuration: " + std::strerror(errno));
  std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  // Nesting is bounded before parsing: the parser recurses.
  int depth = 0, deepest = 0;
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
  }
  if (deepest > 100)
    return Status::error(file.string() + ": not a JSON object: nested " + std::to_string(deepest) + " deep");
  text = without_non_finite(text);
  try {
    Json json = Json::parse(text);
    if (!json.is_object()) return Status::error(file.string() + ": not a JSON object but " + json.type_name());
    return json;
  } catch (const Json::out_of_range&) {
    return Status::error(file.string() + ": not a JSON object: a number in it is too large");
  } catch (const Json::parse_error& e) {
    const size_t end = std::min(e.byte > 0 ? e.byte - 1 : 0, text.size());
    return Status::error(file.string() + ": not a JSON object: line " +
                         std::to_string(std::count(text.begin(), text.begin() + static_cast<int64_t>(end), '\n') + 1) +
                         " cannot be read");
  }
}

std::string shown(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 100);
}

}  // namespace situ
