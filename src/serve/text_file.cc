#include "serve/text_file.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>

#include "situ/tokenizer.h"

namespace situ::serve {
namespace {

// By its byte order mark, else by where its zero bytes are; null: neither says so.
const char* other_encoding(std::string_view bytes) {
  using namespace std::string_view_literals;
  if (bytes.starts_with("\xff\xfe\0\0"sv) || bytes.starts_with("\0\0\xfe\xff"sv)) return "UTF-32";
  if (bytes.starts_with("\xff\xfe"sv) || bytes.starts_with("\xfe\xff"sv)) return "UTF-16";
  if (bytes.find('\0') == std::string_view::npos) return nullptr;
  int64_t zeros[2] = {0, 0};  // at even places, at odd ones
  for (size_t i = 0; i < bytes.size(); ++i) zeros[i % 2] += bytes[i] == 0;
  const auto [few, many] = std::minmax(zeros[0], zeros[1]);
  return few == 0 && 8 * many >= 3 * std::ssize(bytes) ? "UTF-16" : nullptr;
}

}  // namespace

Result<std::string> text_of_file(const std::string& path) {
  const auto refused = [&](const std::string& why) { return Status::error(Code::kInvalidArgument, path + ": " + why); };
  if (std::error_code none; std::filesystem::is_directory(path, none))  // which reads like an empty file
    return refused("is a folder");
  std::ifstream in(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in.is_open() || in.bad()) return refused("cannot be read");
  if (const char* encoding = other_encoding(text))
    return refused(std::string("is ") + encoding + " text; it should be UTF-8");
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  if (text.starts_with(kMark)) text.erase(0, kMark.size());
  if (const Status valid = check_utf8(text, ""); !valid.is_ok()) {
    int64_t line = 1;
    std::string_view rest = text;
    for (size_t end = 0; (end = rest.find('\n')) != std::string_view::npos; rest.remove_prefix(end + 1), ++line)
      if (!check_utf8(rest.substr(0, end), "").is_ok()) break;
    return refused("line " + std::to_string(line) + " is not UTF-8");
  }
  if (text.find('\0') != std::string::npos) return refused("has a zero byte; it should be UTF-8 text");
  return text;
}

}  // namespace situ::serve
