// Texts of files that others wrote: what their first bytes say of how they are encoded.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "base/status.h"

namespace situ {

inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
// Enough for all that is told here.
inline constexpr size_t kEncodingBytes = 10;

// "UTF-16 text, and not UTF-8: iconv -f UTF-16 -t UTF-8 makes it so"; "": nothing speaks against UTF-8. `start`: the
// first bytes, all there are where there are fewer than kEncodingBytes.
inline std::string foreign_encoding(std::string_view start) {
  const auto is = [&](size_t i, bool zero) { return i < start.size() && (start[i] == '\0') == zero; };
  const auto zeros = [&](bool a, bool b, bool c, bool d) { return is(0, a) && is(1, b) && is(2, c) && is(3, d); };
  const auto text = [](const std::string& name) {
    return name + " text, and not UTF-8: iconv -f " + name + " -t UTF-8 converts it";
  };
  const auto packed = [](const std::string& name, const std::string& command) {
    return "compressed (" + name + "), and not text: " + command + " unpacks it";
  };
  using namespace std::string_view_literals;
  if (start.starts_with("\xFF\xFE\0\0"sv) || start.starts_with("\0\0\xFE\xFF"sv)) return text("UTF-32");
  if (start.starts_with("\xFF\xFE"sv) || start.starts_with("\xFE\xFF"sv)) return text("UTF-16");
  if (zeros(false, true, true, true)) return text("UTF-32LE");
  if (zeros(true, true, true, false)) return text("UTF-32BE");
  if (zeros(false, true, false, true)) return text("UTF-16LE");
  if (zeros(true, false, true, false)) return text("UTF-16BE");
  if (start.starts_with("\x1F\x8B"sv)) return packed("gzip", "gunzip");
  if (start.starts_with("PK\x03\x04"sv) || start.starts_with("PK\x05\x06"sv)) return packed("zip", "unzip");
  if (start.starts_with("\x28\xB5\x2F\xFD"sv)) return packed("zstd", "unzstd");
  if (start.starts_with("\xFD"
                        "7zXZ\0"sv))
    return packed("xz", "unxz");
  if (start.starts_with("7z\xBC\xAF\x27\x1C"sv)) return packed("7z", "7z x");
  if (start.starts_with("BZh"sv) && start.substr(std::min<size_t>(start.size(), 4)).starts_with("1AY&SY"sv))
    return packed("bzip2", "bunzip2");
  return "";
}

// Leaves out a byte order mark of UTF-8. Error: another encoding, or a compressed file.
inline Status to_plain_utf8(const std::string& name, std::string* text) {
  const std::string foreign = foreign_encoding(std::string_view(*text).substr(0, kEncodingBytes));
  if (!foreign.empty()) return Status::error(Code::kBadFile, name + ": is " + foreign);
  if (text->starts_with(kByteOrderMark)) text->erase(0, kByteOrderMark.size());
  return Status::ok();
}

}  // namespace situ
