#include "serve/media_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/descriptor.h"
#include "serve/body_reader.h"

namespace situ::serve {
namespace {

namespace fs = std::filesystem;

// From the folder on, name by name, none of which is a link any more: whatever others do meanwhile, what opens lies
// below it. Its size; none: it is no regular file, or not there.
std::optional<int64_t> open_below(const fs::path& root, const fs::path& file, Descriptor& opened) {
  Descriptor at(open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  const fs::path names = file.lexically_relative(root);
  for (auto name = names.begin(); name != names.end() && at.number() >= 0; ++name) {
    if (*name == "..") return std::nullopt;
    const bool last = std::next(name) == names.end();
    const int kind = last ? O_NONBLOCK : O_DIRECTORY;  // who opens a pipe would wait for its other end
    at = Descriptor(openat(at.number(), name->c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | kind));
  }
  struct stat found{};
  if (at.number() < 0 || fstat(at.number(), &found) != 0 || !S_ISREG(found.st_mode)) return std::nullopt;
  opened = std::move(at);
  return found.st_size;
}

// That a URL names, absolute or from the folder.
std::optional<int64_t> open_url(const std::string& folder, std::string_view url, Descriptor& opened) {
  url.remove_prefix(url.starts_with("file://") ? 7 : 5);
  std::error_code none;
  const fs::path root = fs::canonical(folder, none);
  if (none) return std::nullopt;
  for (const std::string& path : {std::string(url), unescaped(url)}) {
    if (path.find('\0') != std::string::npos) continue;      // the system would read the name up to there
    const fs::path file = fs::canonical(root / path, none);  // an absolute path takes the root's place
    if (none || std::mismatch(root.begin(), root.end(), file.begin(), file.end()).first != root.end()) continue;
    if (const std::optional<int64_t> size = open_below(root, file, opened)) return size;
  }
  return std::nullopt;
}

// As many as are there: the file may have become shorter.
std::vector<uint8_t> read_bytes(const Descriptor& file, int64_t size) {
  std::vector<uint8_t> bytes(static_cast<size_t>(size));
  size_t got = 0;
  while (got < bytes.size()) {
    const ssize_t part = TEMP_FAILURE_RETRY(::read(file.number(), bytes.data() + got, bytes.size() - got));
    if (part <= 0) break;
    got += static_cast<size_t>(part);
  }
  bytes.resize(got);
  return bytes;
}

}  // namespace

OrRefusal<const std::vector<uint8_t>*> MediaFiles::read(const std::string& url, const Limits& limits) {
  const auto no_memory = [] {
    return Refusal{Refusal::Kind::kBusy, "", "no memory is left now (--media-memory) for an image's file"};
  };
  if (const auto known = files_.find(url); known != files_.end()) {
    File& file = known->second;  // each part will have its own bytes
    if (take_ && !take_(std::ssize(file.bytes))) return no_memory();
    ++file.parts;
    return &file.bytes;
  }
  Descriptor opened;
  const std::optional<int64_t> size = open_url(folder_, url, opened);
  if (!size) return nullptr;
  if (*size > limits.body_bytes)
    return Refusal{Refusal::Kind::kLimit, "messages",
                   "messages: an image's file has " + std::to_string(*size) + " bytes, more than " +
                       std::to_string(limits.body_bytes) + ", the limit 'body-bytes'"};
  if (take_ && !take_(*size)) return no_memory();
  return &files_.emplace(url, File{read_bytes(opened, *size), 1}).first->second.bytes;
}

std::optional<std::vector<uint8_t>> MediaFiles::bytes(const std::string& url) {
  const auto found = files_.find(url);
  if (found == files_.end()) return std::nullopt;
  if (--found->second.parts > 0) return found->second.bytes;
  std::vector<uint8_t> last = std::move(found->second.bytes);
  files_.erase(found);
  return last;
}

std::string unescaped(std::string_view text) {
  std::string out;
  const auto digit = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const bool escape = text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 && digit(text[i + 2]) >= 0;
    out += escape ? static_cast<char>(16 * digit(text[i + 1]) + digit(text[i + 2])) : text[i];
    if (escape) i += 2;
  }
  return out;
}

}  // namespace situ::serve
