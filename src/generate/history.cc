#include "generate/history.h"

namespace situ {

TokenHistory::TokenHistory(std::span<const int64_t> prompt, int64_t vocabulary)
    : ids_(prompt.begin(), prompt.end()), vocabulary_(static_cast<size_t>(vocabulary)), prompt_size_(prompt.size()) {}

void TokenHistory::append(int64_t id) {
  ids_.push_back(id);
  if (!counts_.empty()) meet(id, 1);
}

void TokenHistory::count_all() const {
  if (!counts_.empty()) return;
  counts_.assign(vocabulary_, kAbsent);
  for (size_t i = 0; i < ids_.size(); ++i) meet(ids_[i], i < prompt_size_ ? 0 : 1);
}

void TokenHistory::meet(int64_t id, int32_t times) const {
  int32_t& count = counts_[static_cast<size_t>(id)];
  if (count == kAbsent) {
    count = 0;
    distinct_.push_back(id);
  }
  count += times;
}

}  // namespace situ
