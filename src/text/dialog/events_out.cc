#include "text/dialog/events_out.h"

#include <utility>

namespace situ {
namespace {

// How many bytes at the end begin a character that is not whole.
size_t begun_bytes(std::string_view text) {
  for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const unsigned char c = static_cast<unsigned char>(text[text.size() - back]);
    if (c < 0x80) return 0;
    if (c < 0xC0) continue;
    const size_t size = c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
    return back < size ? back : 0;
  }
  return 0;
}

}  // namespace

void EventsOut::close_piece() {
  if (piece_.empty()) return;
  std::string piece = std::exchange(piece_, std::string());
  if (kind_ == Kind::kReasoning)
    events_.push_back(ReasoningPiece{std::move(piece)});
  else if (kind_ == Kind::kText)
    events_.push_back(TextPiece{std::move(piece)});
  else
    events_.push_back(ArgumentsPiece{calls_ - 1, std::move(piece)});
}

void EventsOut::add(Kind kind, std::string_view text) {
  if (text.empty()) return;
  if (kind != kind_) close_piece();
  kind_ = kind;
  piece_ += text;
}

void EventsOut::begin_call(std::string name) {
  close_piece();
  events_.push_back(CallBegun{calls_++, std::move(name)});
}

void EventsOut::end_call() {
  close_piece();
  events_.push_back(CallEnded{calls_ - 1});
}

std::vector<DialogEvent> EventsOut::take(bool last) {
  const size_t begun = last ? 0 : begun_bytes(piece_);
  std::string rest = piece_.substr(piece_.size() - begun);
  piece_.resize(piece_.size() - begun);
  close_piece();
  piece_ = std::move(rest);
  return std::exchange(events_, {});
}

}  // namespace situ
