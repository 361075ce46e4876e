#include "requests/answer_text.h"

#include <algorithm>
#include <variant>

#include "base/random_id.h"

namespace situ {
namespace {

// Puts what the reader has found into an event.
struct Put {
  Event& to;

  // The part of this call in the event.
  CallPiece& piece_of(size_t call) const {
    if (to.calls.empty() || to.calls.back().call != call) to.calls.push_back({call});
    return to.calls.back();
  }
  void operator()(const ReasoningPiece& piece) const { to.reasoning += piece.text; }
  void operator()(const TextPiece& piece) const { to.text += piece.text; }
  void operator()(const CallBegun& call) const { to.calls.push_back({call.index, random_id("call_"), call.name}); }
  void operator()(const ArgumentsPiece& piece) const { piece_of(piece.index).arguments_json += piece.json; }
  void operator()(const CallEnded& call) const { piece_of(call.index).ended = true; }
};

// Whether an answer has no end of its own.
bool is_cut(FinishReason reason) { return reason != FinishReason::kStop && reason != FinishReason::kStopString; }

}  // namespace

void Said::add(const Event& event) {
  text += event.text;
  reasoning += event.reasoning;
  for (const CallPiece& piece : event.calls) {
    if (piece.call >= calls.size()) calls.push_back({piece.id, piece.name, ""}), ended.push_back(false);
    calls[piece.call].arguments_json += piece.arguments_json;
    ended[piece.call] = ended[piece.call] || piece.ended;
  }
}

std::vector<ToolCall> Said::take_calls() {
  std::vector<ToolCall> whole;
  for (size_t i = 0; i < calls.size(); ++i)
    if (ended[i]) whole.push_back(std::move(calls[i]));
  calls.clear(), ended.clear();
  return whole;
}

AnswerText::AnswerText(const FolderTokenizer* tokenizer, const Rules& rules, std::vector<Event>* to, size_t choice)
    : tokenizer_(rules.wanted ? tokenizer : nullptr), marks_(rules.marks), stop_(rules.stop), to_(to), choice_(choice) {
  if (tokenizer_) stream_.emplace(*tokenizer_);
  if (rules.reader) reader_.emplace(rules.reader());
}

Status AnswerText::echo(std::span<const int64_t> prompt) {
  Event echoed{-1, ""};
  for (const int64_t id : prompt) {
    if (!stream_) break;
    SITU_TAKE(piece, stream_->push(id));
    echoed.text += piece;
  }
  if (!echoed.text.empty()) show(std::move(echoed));
  return Status::ok();
}

// The text that became certain by this id.
Result<std::string> AnswerText::certain(int64_t id) {
  if (!stream_) return std::string();
  const bool is_mark = std::find(marks_.begin(), marks_.end(), id) != marks_.end();
  Result<std::string> piece = is_mark ? stream_->finish() : stream_->push(id);
  if (!piece.is_ok()) return piece;
  return stop_.push(is_mark ? *piece + tokenizer_->id_to_token(id).value_or("") : *piece);
}

Result<std::string> AnswerText::rest() {
  if (!stream_ || stopped()) return std::string();
  SITU_TAKE(last, stream_->finish());
  const std::string before = stop_.push(last);
  return before + stop_.finish();
}

Status AnswerText::push(Event token) {
  SITU_TAKE(text, certain(token.id));
  if (!reader_) {
    token.text = std::move(text);
    show(std::move(token));
    return Status::ok();
  }
  const bool inside = reader_->in_reasoning();
  const std::vector<DialogEvent> said = reader_->push(text);
  count(inside, said);
  show(std::move(token), said);
  return Status::ok();
}

// Tokens before the reasoning that are not yet known to be a part of it count as soon as that is known. `inside`: the
// answer was, before this token.
void AnswerText::count(bool inside, const std::vector<DialogEvent>& events) {
  const auto is_reasoning = [](const DialogEvent& event) { return std::holds_alternative<ReasoningPiece>(event); };
  ++undecided_;
  if (inside || reader_->in_reasoning() || std::any_of(events.begin(), events.end(), is_reasoning))
    reasoning_tokens_ += std::exchange(undecided_, 0);
  else if (!events.empty())
    undecided_ = 0;
}

FinishReason AnswerText::end(FinishReason reason) {
  const Result<std::string> left = rest();
  if (stopped() && reason != FinishReason::kError) reason = FinishReason::kStopString;
  Event last{-1, left.is_ok() && !reader_ ? *left : ""};
  std::vector<DialogEvent> said;
  if (reader_) {
    said = reader_->push(left.is_ok() ? *left : "");
    if (!is_cut(reason) && reader_->cuts_call()) reason = FinishReason::kLength;
    for (DialogEvent& event : reader_->finish(is_cut(reason))) said.push_back(std::move(event));
  }
  last.finish = reason;
  show(std::move(last), said);
  return reason;
}

void AnswerText::show(Event event) {
  said_.add(event);
  event.choice = choice_;
  if (to_) to_->push_back(std::move(event));
}

// An event says reasoning, then text, then calls: what comes in another order takes several, of which the first is of
// the token and the last has the end.
void AnswerText::show(Event event, const std::vector<DialogEvent>& said) {
  const FinishReason end = std::exchange(event.finish, FinishReason::kNone);
  constexpr size_t kCalls = 2;  // CallBegun, and the kinds of events behind it
  size_t kind = 0;
  for (const DialogEvent& one : said) {
    const size_t own = std::min(one.index(), kCalls);
    if (own < kind) show(std::exchange(event, Event{-1, ""}));
    kind = own;
    std::visit(Put{event}, one);
  }
  event.finish = end;
  show(std::move(event));
}

}  // namespace situ
