#include "generate/history.h"

namespace situ {

TokenHistory::TokenHistory(std::span<const int64_t> prompt, int64_t vocabulary)
    : ids_(prompt.begin(), prompt.end()),
      counts_(static_cast<size_t>(vocabulary), kAbsent),
      prompt_size_(prompt.size()) {
  for (const int64_t id : prompt) meet(id);
}

void TokenHistory::append(int64_t id) {
  ids_.push_back(id);
  meet(id);
  ++counts_[static_cast<size_t>(id)];
}

void TokenHistory::meet(int64_t id) {
  int32_t& count = counts_[static_cast<size_t>(id)];
  if (count != kAbsent) return;
  count = 0;
  distinct_.push_back(id);
}

}  // namespace situ
