// Sequences whose tables follow their length: a long rope has other factors beyond the length that the model was first
// trained on, for all tokens of a sequence. A step that takes a sequence to another stage (runtime/switches.h), or
// comes behind a rewind to one, makes the rows of all of its tokens anew: they are fed as a prompt is, with the tables
// of the length that the step leads to, and booked as computed. Nothing is copied.
#include <algorithm>
#include <utility>

#include "runtime/engine.h"

namespace situ {

void InPlaceEngine::remember(const Feed& feed) const {
  if (switches_.any()) feed.sequence->remember(feed.tokens);
}

// Takes a sequence back to a length at which it cannot go on: to no token, or to none that has rows.
void InPlaceEngine::forget(Sequence& sequence, int64_t length) const {
  if (!switches_.any()) return sequence.clear();
  std::vector<int64_t> tokens = sequence.take_tokens();
  tokens.resize(static_cast<size_t>(length));
  sequence.lose_rows(std::move(tokens));
}

// Before the feed: its sequence gets rows by the tables of the length that it will have. `others`: sequences of the
// step that have theirs. After an error it has its tokens, perhaps without rows.
Status InPlaceEngine::follow_length(const Feed& feed, std::span<Sequence* const> others) {
  if (!switches_.any()) return Status::ok();
  Sequence& sequence = *feed.sequence;
  const int64_t whole = std::max(feed.whole, sequence.length() + std::ssize(feed.tokens));
  const bool other = sequence.length() > 0 && switches_.stage(sequence.whole()) != switches_.stage(whole);
  if (sequence.lost() || other) SITU_RETURN_IF_ERROR(make_rows_anew(sequence, whole, others));
  sequence.set_whole(whole);
  return Status::ok();
}

Status InPlaceEngine::make_rows_anew(Sequence& sequence, int64_t whole, std::span<Sequence* const> others) {
  struct Losing {  // where the steps fail, or throw
    Sequence& sequence;
    std::vector<int64_t> tokens;
    bool done = false;
    ~Losing() {
      if (!done) sequence.lose_rows(std::move(tokens));
    }
  } losing{sequence, sequence.tokens()};
  sequence.clear();
  sequence.set_whole(whole);
  take_rows(sequence, losing.tokens, others);
  Feed rest{&sequence, std::span(losing.tokens).subspan(static_cast<size_t>(sequence.length())), 0};
  Feed* const feed = &rest;
  float* nowhere = nullptr;
  if (!rest.tokens.empty()) SITU_RETURN_IF_ERROR(step_group({&feed, 1}, nowhere));
  SITU_RETURN_IF_ERROR(rest.refused);
  losing.done = true;
  return Status::ok();
}

// Beams and forks have most tokens in common: their rows are made once. Precondition: the sequence has none.
void InPlaceEngine::take_rows(Sequence& sequence, std::span<const int64_t> tokens,
                              std::span<Sequence* const> others) const {
  const std::vector<int64_t> keys = others.empty() ? std::vector<int64_t>() : sequence.media().keys(tokens);
  const Sequence* best = nullptr;
  int64_t most = 0;
  for (const Sequence* other : others) {
    if (other->lost() || other->source() != sequence.source() ||
        switches_.stage(other->whole()) != switches_.stage(sequence.whole()))
      continue;
    const std::vector<int64_t> theirs = other->media().keys(other->tokens());
    const int64_t common = std::mismatch(keys.begin(), keys.end(), theirs.begin(), theirs.end()).first - keys.begin();
    if (common <= most || !other->holds(common) || other->whole_before(common) < common) continue;
    best = other;
    most = common;
  }
  if (!best) return;
  Sequence rows = best->fork();
  rows.rewind(most);
  rows.set_whole(sequence.whole());
  rows.media() = sequence.media();
  sequence = std::move(rows);
}

// Each with the logits that are wanted of one stage, and the tokens before these: in the order of the feeds.
std::vector<InPlaceEngine::Piece> InPlaceEngine::pieces_of(std::span<Feed* const> feeds) const {
  std::vector<Piece> pieces;
  for (size_t i = 0; i < feeds.size(); ++i) {
    const Feed& feed = *feeds[i];
    const size_t count = feed.tokens.size(), first_wanted = count - static_cast<size_t>(feed.wanted);
    const auto stage_behind = [&](size_t token) {
      return switches_.stage(feed.sequence->length() + static_cast<int64_t>(token) + 1);
    };
    size_t begin = 0;
    for (size_t t = first_wanted; t + 1 < count; ++t) {
      if (stage_behind(t) == stage_behind(t + 1)) continue;
      Feed piece = feed;
      piece.tokens = feed.tokens.subspan(begin, t + 1 - begin);
      piece.wanted = static_cast<int64_t>(t + 1 - std::max(begin, first_wanted));
      pieces.push_back({i, piece});
      begin = t + 1;
    }
    Feed last = feed;
    last.tokens = feed.tokens.subspan(begin);
    last.wanted = static_cast<int64_t>(count - std::max(begin, first_wanted));
    pieces.push_back({i, last});
  }
  return pieces;
}

// Pieces side by side whose sequences have the same tables are a step.
Status InPlaceEngine::step_by_length(std::span<Feed* const> feeds, float*& to) {
  std::vector<Undo> undo;
  undo.reserve(feeds.size());
  for (const Feed* f : feeds) undo.emplace_back(*this, *f->sequence);
  std::vector<Piece> pieces = pieces_of(feeds);
  std::vector<Sequence*> ready;
  ready.reserve(feeds.size());
  for (size_t i = 0; i < pieces.size();) {
    std::vector<Feed*> group;
    std::vector<size_t> numbers;  // of the feeds
    for (int64_t stage = -1; i < pieces.size(); ++i) {
      auto& [number, feed] = pieces[i];
      if (!feeds[number]->refused.is_ok()) continue;
      const int64_t own = switches_.stage(std::max(feed.whole, feed.sequence->length() + std::ssize(feed.tokens)));
      const bool again = !numbers.empty() && numbers.back() == number;
      if (stage >= 0 && (own != stage || again)) break;
      Status followed = follow_length(feed, ready);
      if (followed.code() == Code::kInterrupted) return followed;
      if (!followed.is_ok()) {
        feeds[number]->refused = std::move(followed);
        undo[number].now();
        continue;
      }
      stage = own;
      ready.push_back(feed.sequence);
      group.push_back(&feed);
      numbers.push_back(number);
    }
    if (group.empty()) continue;
    SITU_RETURN_IF_ERROR(step_group(group, to));
    for (size_t k = 0; k < group.size(); ++k) {
      Feed& whole = *feeds[numbers[k]];
      whole.logits.insert(whole.logits.end(), group[k]->logits.begin(), group[k]->logits.end());
      if (group[k]->refused.is_ok()) continue;
      whole.refused = std::move(group[k]->refused);
      undo[numbers[k]].now();
    }
  }
  for (Undo& u : undo) u.keep();
  return Status::ok();
}

}  // namespace situ
