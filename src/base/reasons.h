// Why a model is refused, gathered: the same thing at several nodes is one reason with a count.
#pragma once

#include <string>

#include "base/status.h"

namespace situ {

class ReasonList {
 public:
  // Adds one, to the reason that is the same but for its nodes where there is one.
  void add(const Reason& reason);
  // Adds the error's, and its message to the text. `otherwise`: of an error that has none. Success adds nothing.
  void add(const Status& error, Reason::Kind otherwise);
  bool empty() const { return reasons_.empty(); }
  const Reasons& reasons() const { return reasons_; }
  // Ok without errors; else the first one, with all the messages, up to kMostTexts, and all the reasons.
  Status status() const;

 private:
  static constexpr size_t kMostTexts = 8;
  Reasons reasons_;
  Status first_;
  std::string text_;
  size_t texts_ = 0, left_out_ = 0;
};

// Whether it is about operators, attributes and opsets that are not known, which no other length and no other kind of
// step makes known.
bool holds_for_any_step(const Status& error);

}  // namespace situ
