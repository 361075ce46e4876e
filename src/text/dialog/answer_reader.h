// The text of an answer, in pieces, to events.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/dialog/events.h"
#include "text/dialog/form.h"
#include "text/dialog/tool.h"

namespace situ {

// How the text is cut into pieces makes no difference to the joined events. Nothing is taken back: a tail that may
// begin a mark is held until the next piece, and a call begins when its name is whole. What looked like a call and has
// no name is text. White space between parts is left out.
class AnswerReader {
 public:
  // `tools`: of the request; without any, calls are text. `in_reasoning`: the prompt has opened the reasoning
  // (ReasoningForm::open_in). `calls_first`: a text has no calls behind it (call_grammar's `rule`). The text must have
  // the marks of the form, also those that are special tokens.
  AnswerReader(Form form, std::vector<Tool> tools, bool in_reasoning, bool calls_first = false);
  ~AnswerReader();
  AnswerReader(AnswerReader&&) noexcept;

  std::vector<DialogEvent> push(std::string_view piece);
  // The answer has ended, or was `cut`. A call that is not whole has no CallEnded. What has begun like one when the
  // answer was cut, and has no name yet, is left out, and so is an end that may begin a mark.
  std::vector<DialogEvent> finish(bool cut = false);

  // Calls that have begun so far.
  size_t calls() const;
  // The answer is inside a call; after finish(): it ended there, or a call was broken.
  bool in_call() const;
  bool in_reasoning() const;
  // An end here would cut a call, or the marks that begin one, be it the model's own or a stop string: finish(true).
  bool cuts_call() const;

  class Spelling;  // reads one kind of answer

 private:
  std::unique_ptr<Spelling> spelling_;
};

}  // namespace situ
