// Names of a body that change nothing, told to whoever sent them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace situ::serve {

// At most 32 names, each of at most 64 bytes of whole UTF-8 characters: "x", "messages[2].id".
class Ignored {
 public:
  void add(const std::string& name);
  const std::vector<std::string>& names() const { return names_; }
  bool any() const { return !names_.empty(); }
  // {"ignored": [...]} goes into `situ`, the member of an answer; nothing where no name was ignored.
  void tell(nlohmann::ordered_json& answer) const;
  // The value of the header X-Situ-Ignored: names with ", " between them. What is no visible ASCII character, a comma
  // and % are percent-encoded.
  std::string header() const;

 private:
  std::vector<std::string> names_;
};

}  // namespace situ::serve
