#include "serve/ignored.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/one_line.h"

namespace situ::serve {
namespace {

constexpr size_t kMostNames = 32, kMostBytes = 64;

// The longest beginning that ends with a whole character.
std::string cut(std::string name) {
  if (name.size() <= kMostBytes) return name;
  size_t end = kMostBytes;
  while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xC0) == 0x80) --end;
  return name.substr(0, end);
}

}  // namespace

void Ignored::add(const std::string& name) {
  const std::string shown = cut(one_line(name));
  if (names_.size() < kMostNames && std::find(names_.begin(), names_.end(), shown) == names_.end())
    names_.push_back(shown);
}

void Ignored::tell(nlohmann::ordered_json& answer) const {
  if (any()) answer["situ"]["ignored"] = names_;
}

std::string Ignored::header() const {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string text;
  for (const std::string& name : names_) {
    if (!text.empty()) text += ", ";
    for (const char c : name) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte > 0x20 && byte < 0x7F && c != ',' && c != '%')
        text += c;
      else
        text += std::string("%") + kDigits[byte >> 4] + kDigits[byte & 15];
    }
  }
  return text;
}

}  // namespace situ::serve
