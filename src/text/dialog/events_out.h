// Collects the events of an answer: neighbouring pieces of one kind are one, of whole characters.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/dialog/events.h"

namespace situ {

class EventsOut {
 public:
  void reasoning(std::string_view text) { add(Kind::kReasoning, text); }
  void text(std::string_view text) { add(Kind::kText, text); }
  void begin_call(std::string name);
  void arguments(std::string_view json) { add(Kind::kArguments, json); }
  void end_call();
  size_t calls() const { return calls_; }

  // What was collected since the last time, but for bytes that begin a character, unless it is the last time.
  std::vector<DialogEvent> take(bool last);

 private:
  enum class Kind { kNone, kReasoning, kText, kArguments };
  void add(Kind kind, std::string_view text);
  void close_piece();

  std::vector<DialogEvent> events_;
  Kind kind_ = Kind::kNone;
  std::string piece_;
  size_t calls_ = 0;
};

}  // namespace situ
