// What git-lfs leaves in place of a file that has not been downloaded: a text of three lines.
#pragma once

#include <array>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "base/status.h"

namespace situ {

// What a message about such a file says, behind its name.
constexpr std::string_view kLfsPointer = "a git-lfs pointer, the file itself has not been downloaded";

inline bool is_lfs_pointer(std::string_view bytes) { return bytes.starts_with("version https://git-lfs"); }

// False for a file that cannot be read.
inline bool holds_lfs_pointer(const std::filesystem::path& file) {
  std::error_code unknown;
  if (!std::filesystem::is_regular_file(file, unknown)) return false;  // a pipe would wait
  std::array<char, 64> start{};
  std::ifstream in(file, std::ios::binary);
  in.read(start.data(), start.size());
  return is_lfs_pointer(std::string_view(start.data(), static_cast<size_t>(in.gcount())));
}

inline Status lfs_pointer_error(const std::filesystem::path& file) {
  return Status::error(Code::kNotFound, file.string() + ": " + std::string(kLfsPointer));
}

}  // namespace situ
