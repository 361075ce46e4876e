// Files that `file:` URLs of a body name, below one folder: each is opened and read once, so that what was measured is
// what is decoded.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/limits.h"
#include "serve/refusal.h"

namespace situ::serve {

// Of one call.
class MediaFiles {
 public:
  // `folder`: "": there are none. `take`: memory for so many bytes, before they are there; false: there is none.
  explicit MediaFiles(std::string folder = "", std::function<bool(int64_t)> take = {})
      : folder_(std::move(folder)), take_(std::move(take)) {}

  bool allowed() const { return !folder_.empty(); }
  // One more part has this URL. The file's bytes, as long as nothing else is read; null: there is no such file, of
  // which bytes() tells. Refusal: it has more than limits.body_bytes, or there is no memory for them.
  OrRefusal<const std::vector<uint8_t>*> read(const std::string& url, const Limits& limits);
  // The bytes of a part whose URL was read; once for each. None: there is no such file.
  std::optional<std::vector<uint8_t>> bytes(const std::string& url);

 private:
  struct File {
    std::vector<uint8_t> bytes;
    int64_t parts = 0;
  };
  const std::string folder_;
  const std::function<bool(int64_t)> take_;
  std::map<std::string, File, std::less<>> files_;  // by their URLs
};

// The text of a URL's part, whose escapes (%20) are resolved.
std::string unescaped(std::string_view text);

}  // namespace situ::serve
