#include "text/dialog/answer_reader.h"

#include <utility>

#include "text/dialog/spelling.h"

namespace situ {

AnswerReader::AnswerReader(Form form, std::vector<Tool> tools, bool in_reasoning, bool calls_first)
    : spelling_(form.calls.kind == CallForm::Kind::kChannels
                    ? channel_spelling(std::move(form), std::move(tools))
                    : marked_spelling(std::move(form), std::move(tools), in_reasoning, calls_first)) {}
AnswerReader::~AnswerReader() = default;
AnswerReader::AnswerReader(AnswerReader&&) noexcept = default;

std::vector<DialogEvent> AnswerReader::push(std::string_view piece) {
  spelling_->text += piece;
  spelling_->read(spelling_->text, false);
  return spelling_->out.take(false);
}

std::vector<DialogEvent> AnswerReader::finish(bool cut) {
  spelling_->cut = cut;
  spelling_->read(spelling_->text, true);
  return spelling_->out.take(true);
}

size_t AnswerReader::calls() const { return spelling_->out.calls(); }
bool AnswerReader::in_call() const { return spelling_->in_call(); }
bool AnswerReader::cuts_call() const { return spelling_->cuts_call(); }
bool AnswerReader::in_reasoning() const { return spelling_->in_reasoning(); }

}  // namespace situ
