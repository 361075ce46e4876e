// What reads an answer's text: one class for answers with marks, one for answers in channels.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/dialog/answer_reader.h"
#include "text/dialog/events_out.h"

namespace situ {

class AnswerReader::Spelling {
 public:
  virtual ~Spelling() = default;
  // Reads what it can of `text`, which it shortens by that.
  virtual void read(std::string& text, bool last) = 0;
  virtual bool in_call() const = 0;
  virtual bool in_reasoning() const = 0;
  virtual bool cuts_call() const = 0;

  EventsOut out;
  std::string text;  // not read yet
  bool cut = false;  // the answer has no end of its own
};

std::unique_ptr<AnswerReader::Spelling> marked_spelling(Form form, std::vector<Tool> tools, bool in_reasoning,
                                                        bool calls_first);
std::unique_ptr<AnswerReader::Spelling> channel_spelling(Form form, std::vector<Tool> tools);

}  // namespace situ
