#include "requests/session_decoding.h"

#include <algorithm>

namespace situ {

std::span<const int64_t> SessionStep::left(size_t i) const {
  const int64_t fed = before_.empty() ? 0 : parts_[i].strand->length() - before_[i].length;
  return parts_[i].tokens.subspan(static_cast<size_t>(fed));
}

int64_t SessionStep::tokens_to_feed() const {
  int64_t sum = 0;
  for (size_t i = 0; i < parts_.size(); ++i)
    if (is_open(i)) sum += std::ssize(left(i));
  return served_.in_place ? std::min(sum, served_.in_place->states().capacity()) : sum;
}

Result<bool> SessionStep::begin(Clock::time_point, Figures&) {
  before_.clear();
  before_.reserve(parts_.size());
  for (const Part& p : parts_) {
    Before& before = before_.emplace_back(p.strand->length());
    if (p.strand->sequence)
      before.undo.emplace(*served_.in_place, *p.strand->sequence);
    else
      before.naive = p.strand->naive;
  }
  return true;
}

// Where prompts of several sessions share steps, the last tokens of all do too: their logits then lie side by side.
Status SessionStep::wants(std::vector<Want>& wants) {
  size_t open = 0;
  bool prompts = false;
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (!is_open(i)) continue;
    ++open;
    prompts = prompts || left(i).size() > 1;
  }
  const bool apart = open > 1 && prompts && served_.together();
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (!is_open(i) || (apart && left(i).size() == 1)) continue;
    Want want;
    want.strand = parts_[i].strand;
    want.branch = i;
    want.tokens = left(i);
    want.prompt = want.tokens.size() > 1;
    if (want.prompt) want.whole = want.strand->length() + std::ssize(want.tokens);
    if (apart)
      want.tokens = want.tokens.first(want.tokens.size() - 1), want.wanted = 0;
    else
      want.place = place_ + static_cast<int64_t>(i) * served_.vocabulary;
    wants.push_back(want);
  }
  return Status::ok();
}

void SessionStep::settle() {
  for (size_t i = 0; i < parts_.size(); ++i)
    if (is_open(i)) return;
  end_with(Status::ok());
}

void SessionStep::refuse(const Want& want, Status why) {
  parts_[want.branch].refused = std::move(why);
  go_back(want.branch);
}

void SessionStep::go_back(size_t i) {
  Before& before = before_[i];
  parts_[i].logits = {};
  if (before.undo)
    before.undo->now();
  else
    parts_[i].strand->naive = std::move(before.naive);
}

void SessionStep::go_back() {
  for (size_t i = 0; i < before_.size(); ++i)
    if (parts_[i].refused.is_ok()) go_back(i);
  before_.clear();
}

void SessionStep::release() {
  if (!status().is_ok()) return go_back();
  for (Before& b : before_)
    if (b.undo) b.undo->keep();
  before_.clear();
}

}  // namespace situ
