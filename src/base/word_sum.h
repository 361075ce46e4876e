// Words and texts, in order, as one number of 64 bits: others have another one, but by accident.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace situ {

class WordSum {
 public:
  void add(uint64_t word) {
    sum_ = (sum_ ^ word) * 0x9e3779b97f4a7c15u;
    sum_ ^= sum_ >> 29;
  }
  void add(std::string_view text) { add(std::hash<std::string_view>()(text)); }
  uint64_t sum() const { return sum_; }

 private:
  uint64_t sum_ = 0;
};

}  // namespace situ
