#include "text/stop_strings.h"

#include <algorithm>
#include <utility>

namespace situ {

void StopStrings::Pattern::feed(char byte) {
  while (matched > 0 && text[matched] != byte) matched = fallback[matched - 1];
  if (text[matched] == byte) ++matched;
}

StopStrings::StopStrings(std::vector<std::string> strings) {
  for (std::string& s : strings) {
    Pattern pattern{std::move(s), {0}, 0};
    for (size_t i = 1; i < pattern.text.size(); ++i) {
      pattern.feed(pattern.text[i]);
      pattern.fallback.push_back(pattern.matched);
    }
    pattern.matched = 0;
    patterns_.push_back(std::move(pattern));
  }
}

std::string StopStrings::push(std::string_view piece) {
  if (stopped()) return std::string();
  size_t begun = held_.size();  // bytes at the end that could begin a stop string
  for (const char byte : piece) {
    held_ += byte;
    begun = 0;
    for (Pattern& p : patterns_) {
      p.feed(byte);
      if (p.matched == p.text.size() && p.matched > found_.size()) found_ = p.text;
      begun = std::max(begun, p.matched);
    }
    if (stopped()) {
      held_.resize(held_.size() - found_.size());
      return std::exchange(held_, std::string());
    }
  }
  std::string certain = held_.substr(0, held_.size() - begun);
  held_.erase(0, certain.size());
  return certain;
}

std::string StopStrings::finish() {
  for (Pattern& p : patterns_) p.matched = 0;
  return std::exchange(held_, std::string());
}

}  // namespace situ
