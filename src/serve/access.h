// Who may ask: keys, and the headers Host and Origin.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "situ/status.h"

namespace situ::serve {

// Who has a key.
struct KeyHolder {
  std::string name;
  std::string salt;       // of kept beginnings of prompts: the name that the file gives, else a hash of the key
  int most_priority = 0;  // calls of a higher one are treated as if they had this one
};

// A key a line, [NAME:]KEY [priority=N], without blanks in KEY; lines that begin with # are comments.
class Keys {
 public:
  // Error: the file cannot be read or is no UTF-8, others may read it, it has no key, or a name or a key twice.
  Status read(const std::string& path);
  bool any() const;
  // The name of one without a name is "key" and its line. Takes as long for every text of a length.
  std::optional<KeyHolder> holder_of(std::string_view key) const;

 private:
  struct Key : KeyHolder {
    std::string text;
  };
  mutable std::mutex mutex_;
  std::vector<Key> keys_;
};

// The key in `Authorization: Bearer KEY`; "": there is none. The scheme in letters of any size, behind it any blanks.
std::string_view bearer_of(std::string_view authorization);

// A name that a browser could be made to give to this machine (DNS rebinding) is none: IP addresses, localhost, and
// what is allowed ("*": all). `host` may have a port; no host at all is no name.
bool is_own_host(std::string_view host, const std::vector<std::string>& allowed);
// `origin` is the server's own, at this Host.
bool is_own_origin(std::string_view origin, std::string_view host);
bool is_allowed_origin(std::string_view origin, const std::vector<std::string>& allowed);

}  // namespace situ::serve
