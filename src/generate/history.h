// The tokens of one sequence so far, as penalties and bans look at them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace situ {

// Memory by the vocabulary is there from the first question on: a request that waits has none, nor one that asks
// nothing. One thread at a time, for const functions too.
class TokenHistory {
 public:
  // `prompt`: ids in [0, vocabulary).
  TokenHistory(std::span<const int64_t> prompt, int64_t vocabulary);
  // One generated token more, in [0, vocabulary).
  void append(int64_t id);

  std::span<const int64_t> ids() const { return ids_; }  // prompt and generated, in order
  int64_t generated() const { return static_cast<int64_t>(ids_.size() - prompt_size_); }
  size_t prompt_size() const { return prompt_size_; }
  // Every id of the sequence once, in the order of first appearance.
  std::span<const int64_t> distinct() const {
    count_all();
    return distinct_;
  }
  bool has(int64_t id) const {
    count_all();
    return counts_[static_cast<size_t>(id)] != kAbsent;
  }
  // How often an id was generated; the prompt does not count.
  int64_t count(int64_t id) const {
    count_all();
    return std::max(0, counts_[static_cast<size_t>(id)]);
  }

 private:
  static constexpr int32_t kAbsent = -1;  // neither in the prompt nor generated
  void count_all() const;
  void meet(int64_t id, int32_t times) const;

  std::vector<int64_t> ids_;
  mutable std::vector<int64_t> distinct_;
  mutable std::vector<int32_t> counts_;  // [vocabulary]; empty: nobody has asked
  size_t vocabulary_, prompt_size_;
};

}  // namespace situ
