// Answers as most models write them: reasoning between marks, text, calls between marks.
#include <algorithm>
#include <utility>

#include "text/dialog/call_reader.h"
#include "text/dialog/marks.h"
#include "text/dialog/spelling.h"

namespace situ {
namespace {

using Match = MarkMatch::Kind;

class MarkedSpelling : public AnswerReader::Spelling {
 public:
  MarkedSpelling(Form form, std::vector<Tool> tools, bool in_reasoning, bool calls_first);
  void read(std::string& text, bool last) override;
  bool in_call() const override { return broken_ || (call_ && call_->begun()); }
  bool in_reasoning() const override { return stage_ == Stage::kReasoning; }
  bool cuts_call() const override;

 private:
  enum class Stage {
    kStart,  // nothing but white space was read
    kReasoning,
    kText,
    kOpen,  // the marks before a call
    kCall,
    kAfterCall,
    kSkip,  // a call that is broken, up to its end
  };
  // Each reads a part; false: more text decides.
  bool step(Rest rest);
  bool read_start(Rest rest);
  bool read_reasoning(Rest rest);
  bool read_text(Rest rest);
  bool read_open(Rest rest);
  bool read_call(Rest rest);
  bool read_after_call(Rest rest);
  bool read_skip(Rest rest);

  // A call without a name may still be text.
  bool holds() const { return stage_ == Stage::kOpen || (stage_ == Stage::kCall && !call_->begun()); }
  bool skip_space(Rest rest);
  void begin_section(bool from_open);
  void give_up_call(Rest rest);
  size_t call_at(Rest rest, bool* whole) const;
  void emit_text(std::string_view text);

  const Form form_;
  const std::vector<Tool> tools_;
  const bool calls_first_;  // a call stands at the beginning of the answer, or there is none
  const bool at_end_;       // what begins like a call without a mark may be another text up to its end
  std::string open_, call_open_, call_close_, between_, close_, reasoning_open_, reasoning_close_;
  std::vector<std::string> begins_;  // the marks of which one begins a call; none: what begins an answer may
  Stage stage_ = Stage::kStart;
  size_t at_ = 0;    // bytes of the text that were read
  size_t from_ = 0;  // where the call began that has no name yet: before this nothing is kept
  bool wants_open_ = false, wants_call_open_ = false, closed_ = false, broken_ = false, had_call_ = false;
  bool after_reasoning_ = false;
  std::string space_;    // behind reasoning or text, left out before a mark
  bool leading_ = true;  // of reasoning: white space at its beginning
  std::unique_ptr<CallReader> call_;
};

MarkedSpelling::MarkedSpelling(Form form, std::vector<Tool> tools, bool in_reasoning, bool calls_first)
    : form_(std::move(form)),
      tools_(std::move(tools)),
      calls_first_(calls_first || form_.calls.bare()),
      at_end_(calls_first && form_.calls.bare()) {
  const CallForm& calls = form_.calls;
  open_ = trimmed(calls.open), call_open_ = trimmed(calls.call_open), call_close_ = trimmed(calls.call_close);
  between_ = trimmed(calls.between), close_ = trimmed(calls.close);
  reasoning_open_ = trimmed(form_.reasoning.open), reasoning_close_ = trimmed(form_.reasoning.close);
  if (!tools_.empty() && !calls_first_)
    for (const std::string& mark : {open_, call_open_})
      if (!mark.empty()) begins_.push_back(mark);
  if (in_reasoning && !reasoning_close_.empty()) stage_ = Stage::kReasoning;
}

void MarkedSpelling::read(std::string& text, bool last) {
  // The end of an answer that was cut decides nothing: what may begin a mark is left out.
  while (step({std::string_view(text).substr(at_), last && !cut})) {
    if (!holds() && at_ > 65536) text.erase(0, at_), at_ = 0;
  }
  const bool held = holds();
  const size_t read = held ? from_ : at_;
  text.erase(0, read);
  at_ -= read, from_ = 0;
  if (!last) return;
  if (cut && !text.empty() && !at_end_) {
    call_ = call_ && call_->begun() ? std::move(call_) : nullptr;
  } else if (held || stage_ == Stage::kText || stage_ == Stage::kStart) {  // what never became a call is text
    call_.reset();
    const std::string end = space_ + text.substr(held ? 0 : at_);
    if (!had_call_ || !trimmed(end).empty()) out.text(end);
    space_.clear();
    stage_ = Stage::kText;
  } else if (stage_ == Stage::kReasoning) {  // white space, or a mark that begins
    out.reasoning(text.substr(at_));
  }
  text.clear(), at_ = 0;
}

// Behind the whole mark of a call nothing is text.
bool MarkedSpelling::cuts_call() const {
  if (in_call()) return true;
  const bool open = open_.empty() ? !wants_call_open_ : !wants_open_;
  return holds() && open && !form_.calls.bare() && !trimmed(text).empty();
}

bool MarkedSpelling::step(Rest rest) {
  switch (stage_) {
    case Stage::kStart:
      return read_start(rest);
    case Stage::kReasoning:
      return read_reasoning(rest);
    case Stage::kText:
      return read_text(rest);
    case Stage::kOpen:
      return read_open(rest);
    case Stage::kCall:
      return read_call(rest);
    case Stage::kAfterCall:
      return read_after_call(rest);
    case Stage::kSkip:
      return read_skip(rest);
  }
  return false;
}

bool MarkedSpelling::skip_space(Rest rest) {
  size_t size = 0;
  while (size < rest.text.size() && is_space(rest.text[size])) ++size;
  at_ += size;
  return size > 0;
}

void MarkedSpelling::emit_text(std::string_view text) {
  const size_t size = trimmed_right(text).size();
  if (size > 0) {
    out.text(space_);
    out.text(text.substr(0, size));
    space_.clear();
  }
  space_ += text.substr(size);
}

void MarkedSpelling::begin_section(bool from_open) {
  stage_ = Stage::kOpen;
  from_ = at_;
  wants_open_ = from_open && !open_.empty(), wants_call_open_ = !call_open_.empty();
}

// White space, then reasoning, a call without a mark, or text.
bool MarkedSpelling::read_start(Rest rest) {
  size_t size = 0;
  while (size < rest.text.size() && is_space(rest.text[size])) ++size;
  if (!after_reasoning_) space_ += rest.text.substr(0, size);
  at_ += size;
  rest.text.remove_prefix(size);
  if (rest.text.empty()) return false;
  // An end without a beginning: the prompt has turned reasoning off.
  for (const auto& [mark, stage] : {std::pair{std::string_view(reasoning_open_), Stage::kReasoning},
                                    {std::string_view(reasoning_close_), Stage::kStart}}) {
    if (mark.empty() || after_reasoning_) continue;
    const MarkMatch match = match_mark(rest.text, mark);
    if (match.kind == Match::kBegun && !rest.last) return false;
    if (match.kind == Match::kNo || match.kind == Match::kBegun) continue;
    at_ += match.size;
    space_.clear();
    after_reasoning_ = stage == Stage::kStart;
    stage_ = stage;
    return true;
  }
  stage_ = Stage::kText;
  if (!tools_.empty() && calls_first_) begin_section(true);
  return true;
}

bool MarkedSpelling::read_reasoning(Rest rest) {
  std::string_view text = rest.text;
  while (leading_ && !text.empty() && is_space(text[0])) text.remove_prefix(1), ++at_;
  if (text.empty()) return false;
  leading_ = false;
  size_t found = text.find(reasoning_close_[0]);
  for (; found != std::string_view::npos; found = text.find(reasoning_close_[0], found + 1)) {
    const MarkMatch match = match_mark(text.substr(found), reasoning_close_);
    if (match.kind == Match::kNo) continue;
    const std::string_view before = trimmed_right(text.substr(0, found));
    out.reasoning(before);
    at_ += match.kind == Match::kWhole ? found + match.size : before.size();
    if (match.kind == Match::kBegun) return false;
    stage_ = Stage::kStart;
    after_reasoning_ = true;
    return true;
  }
  const std::string_view before = trimmed_right(text);
  out.reasoning(before);
  at_ += before.size();
  return false;
}

// Where the next mark of a call begins, or may begin.
size_t MarkedSpelling::call_at(Rest rest, bool* whole) const {
  *whole = false;
  for (size_t at = 0; at < rest.text.size(); ++at)
    for (const std::string& mark : begins_) {
      if (rest.text[at] != mark[0]) continue;
      const MarkMatch match = match_mark(rest.text.substr(at), mark);
      if (match.kind == Match::kNo || (match.kind == Match::kBegun && rest.last)) continue;
      *whole = match.kind == Match::kWhole;
      return at;
    }
  return std::string_view::npos;
}

bool MarkedSpelling::read_text(Rest rest) {
  if (rest.text.empty()) return false;
  bool whole = false;
  const size_t found = call_at(rest, &whole);
  const std::string_view before = rest.text.substr(0, found);
  if (begins_.empty()) {
    out.text(space_ + std::string(before));
    space_.clear();
  } else {
    emit_text(before);
  }
  at_ += before.size();
  if (!whole) return false;
  const bool from_open = !open_.empty() && match_mark(rest.text.substr(found), open_).kind == Match::kWhole;
  begin_section(from_open);
  return true;
}

bool MarkedSpelling::read_open(Rest rest) {
  if (skip_space(rest)) return true;
  if (rest.text.empty()) return false;
  for (auto [wanted, mark] : {std::pair{&wants_open_, &open_}, {&wants_call_open_, &call_open_}}) {
    if (!*wanted) continue;
    const MarkMatch match = match_mark(rest.text, *mark);
    if (match.kind == Match::kBegun && !rest.last) return false;
    if (match.kind != Match::kWhole) {
      give_up_call(rest);
      return true;
    }
    at_ += match.size;
    *wanted = false;
    return true;
  }
  call_ = CallReader::make(form_.calls, tools_, at_end_);
  stage_ = Stage::kCall;
  return true;
}

// The first byte of what was held is text; behind it a mark may begin.
void MarkedSpelling::give_up_call(Rest rest) {
  call_.reset();
  stage_ = Stage::kText;
  const size_t held = at_ - from_;
  at_ = from_;
  if (begins_.empty() || held == 0) return;
  emit_text(std::string_view(rest.text.data() - held, 1));
  ++at_;
}

bool MarkedSpelling::read_call(Rest rest) {
  size_t used = 0;
  const CallReader::State state = call_->read(rest, used, out);
  if (call_->begun()) space_.clear();
  switch (state) {
    case CallReader::State::kMore:
      at_ += used;
      return false;
    case CallReader::State::kGoesOn:
      at_ += used;
      return true;
    case CallReader::State::kDone:
      at_ += used;
      call_.reset();
      had_call_ = true, closed_ = call_close_.empty();
      stage_ = Stage::kAfterCall;
      return true;
    case CallReader::State::kFault:
      break;
  }
  if (!call_->begun()) {
    give_up_call(rest);
    return true;
  }
  call_.reset();
  broken_ = true;
  stage_ = Stage::kSkip;
  return true;
}

// The end of the call or of all calls, or the next call; else text.
bool MarkedSpelling::read_after_call(Rest rest) {
  if (skip_space(rest)) return true;
  if (rest.text.empty()) return false;
  bool more = false;
  const auto is = [&](const std::string& mark) {
    if (mark.empty()) return false;
    const MarkMatch match = match_mark(rest.text, mark);
    more = more || match.kind == Match::kBegun;
    if (match.kind != Match::kWhole) return false;
    at_ += match.size;
    return true;
  };
  if (!closed_ && is(call_close_)) {
    closed_ = true;
    return true;
  }
  if (is(close_)) {
    stage_ = Stage::kText;
    return true;
  }
  if (is(between_)) {
    begin_section(false);
    return true;
  }
  if (!open_.empty() && between_.empty() && call_open_.empty() && !more) {
    begin_section(false);
    return true;
  }
  const size_t before = at_;
  const bool from_open = is(open_);
  if (from_open || is(call_open_) || (begins_.empty() && open_.empty() && rest.text[0] == '{')) {
    at_ = before;
    begin_section(from_open);
    return true;
  }
  if (!more) stage_ = Stage::kText;
  return !more;  // of a mark that begins at the end of an answer, which its last token ended, nothing is text
}

bool MarkedSpelling::read_skip(Rest rest) {
  const std::string& mark = close_.empty() ? call_close_ : close_;
  size_t found = mark.empty() ? std::string_view::npos : rest.text.find(mark[0]);
  for (; found != std::string_view::npos; found = rest.text.find(mark[0], found + 1)) {
    const MarkMatch match = match_mark(rest.text.substr(found), mark);
    if (match.kind == Match::kNo) continue;
    at_ += found + match.size;
    if (match.kind == Match::kBegun) return false;
    stage_ = Stage::kAfterCall, closed_ = true;
    return true;
  }
  at_ += rest.text.size();
  return false;
}

}  // namespace

std::unique_ptr<AnswerReader::Spelling> marked_spelling(Form form, std::vector<Tool> tools, bool in_reasoning,
                                                        bool calls_first) {
  return std::make_unique<MarkedSpelling>(std::move(form), std::move(tools), in_reasoning, calls_first);
}

}  // namespace situ
