// Steps of several sequences, and prompts. A prompt is cut into pieces of at most chunk() tokens, and each token whose
// logits are wanted is a piece of its own, unless the caller says otherwise: those of all sequences stand at the end of
// the step. How a prompt is cut does not depend on what else is in the step, so that neither do its logits, to the last
// bit (docs/sequences.md names the exceptions).
#include <algorithm>
#include <utility>

#include "runtime/engine.h"

namespace situ {

Status needs_one_run() {
  return Status::error(Code::kNoRoom,
                       "this model's attention was not recognised and needs its state in one run of slots")
      .or_reason(Reason::Kind::kState);
}

bool is_needs_one_run(const Status& status) {
  return std::any_of(status.reasons().begin(), status.reasons().end(),
                     [](const Reason& r) { return r.kind == Reason::Kind::kState; });
}

Status InPlaceEngine::check_feeds(std::span<Feed* const> feeds) const {
  const bool together = one_sequence().empty();
  int64_t wanted = 0;
  for (size_t i = 0; i < feeds.size(); ++i) {
    const Feed& f = *feeds[i];
    if (f.tokens.empty())
      return Status::error(Code::kInvalidArgument, "a step needs at least one token of each sequence");
    if (f.wanted < 0 || f.wanted > (together ? std::ssize(f.tokens) : 1))
      return Status::error(Code::kInvalidArgument, "the logits of " + std::to_string(f.wanted) +
                                                       " tokens of one step are wanted" +
                                                       (together ? "" : ": " + one_sequence()));
    for (size_t j = 0; j < i; ++j)
      if (feeds[j]->sequence == f.sequence)
        return Status::error(Code::kInvalidArgument, "a sequence is in the same step twice");
    wanted += f.wanted;
  }
  if (wanted > batch_)
    return Status::error(Code::kInvalidArgument, "the logits of " + std::to_string(wanted) +
                                                     " tokens of one step are wanted; there is room for " +
                                                     std::to_string(batch_));
  return Status::ok();
}

// Logits of which the next run would write over some are written side by side.
Status InPlaceEngine::step(std::span<Feed* const> feeds) {
  SITU_RETURN_IF_ERROR(check_feeds(feeds));
  const int64_t width = compiled_.prompt.graph.values[compiled_.prompt.binding.logits].info.shape.back().value();
  int64_t wanted = 0;
  float* const places = feeds.empty() ? nullptr : feeds[0]->place;
  bool in_row = places != nullptr;
  for (Feed* f : feeds) {
    in_row = in_row && f->place == places + wanted * width;
    f->sequence->media().match(f->sequence->length(), f->tokens);
    f->refused = Status::ok();
    f->logits.clear();
    f->logits.reserve(static_cast<size_t>(f->wanted));
    wanted += f->wanted;
  }
  float* to = in_row ? places : nullptr;
  if (!to && !logits_stay() && (wanted > 1 || feeds.size() > 1)) {
    rows_.resize(std::max(rows_.size(), static_cast<size_t>(wanted * width)));
    to = rows_.data();
  }
  SITU_RETURN_IF_ERROR(switches_.any() ? step_by_length(feeds, to) : step_group(feeds, to));
  for (Feed* f : feeds)
    for (size_t i = 0; !in_row && f->place && i < f->logits.size(); ++i) {
      const std::span<const float> row =
          std::exchange(f->logits[i], {f->place + static_cast<int64_t>(i) * width, static_cast<size_t>(width)});
      move_bytes(row_view(f->logits[i].data(), width), row_view(row.data(), width), ledger_);
    }
  return Status::ok();
}

// Feeds of sequences that have the same tables.
Status InPlaceEngine::step_group(std::span<Feed* const> feeds, float*& to) {
  return one_sequence().empty() ? step_together(feeds, to) : step_apart(feeds, to);
}

Status InPlaceEngine::step_together(std::span<Feed* const> feeds, float*& to) {
  Together step{feeds, {}, std::vector<size_t>(feeds.size()), {}};
  step.undo.reserve(feeds.size());
  for (const Feed* f : feeds) step.undo.emplace_back(*this, *f->sequence);
  SITU_RETURN_IF_ERROR(run_together(step, to));
  for (const Feed* f : feeds)
    if (f->refused.is_ok()) remember(*f);
  SITU_RETURN_IF_ERROR(read_rows(feeds, to));
  for (Undo& u : step.undo) u.keep();
  return Status::ok();
}

// Prompts one after the other; single tokens that stand side by side in one run.
Status InPlaceEngine::step_apart(std::span<Feed* const> feeds, float*& to) {
  std::vector<Undo> undo;
  undo.reserve(feeds.size());
  for (size_t i = 0, end = 0; i < feeds.size(); i = end) {
    for (end = i; end < feeds.size() && in_token_batch(*feeds[end]);) ++end;
    if (end - i > 1) {
      for (Feed* f : feeds.subspan(i, end - i)) {
        undo.emplace_back(*this, *f->sequence);
        f->refused = take_token_slots(*f);
        if (!f->refused.is_ok()) undo.back().now();
      }
      SITU_RETURN_IF_ERROR(run_tokens(feeds.subspan(i, end - i), to));
      SITU_RETURN_IF_ERROR(read_rows(feeds.subspan(i, end - i), to));
      continue;
    }
    end = i + 1;
    undo.emplace_back(*this, *feeds[i]->sequence);
    Status done = check_source(*feeds[i]->sequence);
    if (done.is_ok()) done = step_one(*feeds[i], to);
    if (done.code() == Code::kInterrupted) return done;
    feeds[i]->refused = std::move(done);
  }
  for (Undo& u : undo) u.keep();
  return Status::ok();
}

// One token, by the program of one token, and its logits.
bool InPlaceEngine::in_token_batch(const Feed& feed) const {
  return tokens_ && feed.tokens.size() == 1 && feed.wanted == 1 &&
         !(compiled_.first_only && feed.sequence->length() == 0) &&
         !feed.sequence->media().holds(feed.sequence->length());
}

Status InPlaceEngine::take_token_slots(const Feed& feed) {
  Sequence& sequence = *feed.sequence;
  SITU_RETURN_IF_ERROR(check_source(sequence));
  SITU_RETURN_IF_ERROR(take_slots(sequence, 1, 1).status());
  if (decode_->needs_contiguous() && !sequence.contiguous()) return needs_one_run();
  return take_state_slot(sequence, sequence.length());
}

// The tokens of feeds that have their slots.
Status InPlaceEngine::run_tokens(std::span<Feed* const> feeds, float* to) {
  std::vector<Segment> segments;
  for (const Feed* f : feeds) {
    if (!f->refused.is_ok()) continue;
    const Sequence& sequence = *f->sequence;
    const int64_t past = sequence.length() - 1, slot = sequence.slots_of(past, 1).first_slot;
    segments.push_back(with_runs(segment_of(sequence, f->tokens, past, slot, false), sequence));
  }
  if (segments.empty()) return Status::ok();
  if (segments.size() == 1) {  // the others are refused
    SITU_RETURN_IF_ERROR(run(segments, 1, to));
  } else {
    token_rows_ = segments.size();
    const int64_t width = compiled_.token.graph.values[compiled_.token.binding.logits].info.shape.back().value();
    SITU_RETURN_IF_ERROR(tokens_->run(segments, to, width, ledger_));
  }
  for (const Feed* f : feeds) {
    if (!f->refused.is_ok()) continue;
    step_done(*f->sequence);
    remember(*f);
  }
  return Status::ok();
}

// The logits of the last run: those of the feeds that took part in it, in order.
Status InPlaceEngine::read_rows(std::span<Feed* const> feeds, float*& to) {
  int64_t left = 0;
  for (const Feed* f : feeds)
    if (f->refused.is_ok()) left += f->wanted;
  for (Feed* f : feeds)
    for (int64_t i = 0; f->refused.is_ok() && i < f->wanted; ++i) {
      const size_t token = token_rows_ - static_cast<size_t>(left--);
      const Result<std::span<const float>> row =
          token_rows_ > 0 ? read_logits(tokens_->logits(token), 0, to) : read_logits(ran_->logits(), left, to);
      if (!row.is_ok()) return row.status();
      f->logits.push_back(*row);
      if (to) to += row->size();
    }
  return Status::ok();
}

static bool read_in_place(const Compiled& c, const Plan& plan) {
  const ValueId logits = c.binding.logits;
  return c.graph.values[logits].info.type == DType::kF32 && plan.values[logits].view.strides.back() == Dim(1);
}

// Whether all logits of a step are where its one run has them. Sequences with other tables take a run of their own in
// the same step.
bool InPlaceEngine::logits_stay() const {
  return one_sequence().empty() && !switches_.any() && read_in_place(compiled_.prompt, prefill_plan_);
}

// What the feed has in the next run goes too.
void InPlaceEngine::Together::refuse(size_t feed, Status why) {
  feeds[feed]->refused = std::move(why);
  std::erase_if(parts, [&](const Part& p) { return p.feed == feed; });
  undo[feed].now();
}

int64_t InPlaceEngine::Together::tokens() const {
  int64_t sum = 0;
  for (const Part& p : parts) sum += p.segment.count;
  return sum;
}

// Slots of the whole step are taken before anything is computed, in the order of the feeds, so that none is refused for
// the sake of another one that is refused itself. With a window, where tokens give slots back as the step goes on, they
// are taken run by run.
Status InPlaceEngine::run_together(Together& step, float* to) {
  const std::span<Feed* const> feeds = step.feeds;
  for (size_t i = 0; i < feeds.size(); ++i) {
    Status taken = check_source(*feeds[i]->sequence);
    if (taken.is_ok() && window_ == 0) taken = take_all_slots(*feeds[i]);
    if (!taken.is_ok()) step.refuse(i, std::move(taken));
  }
  for (size_t i = 0; i < feeds.size(); ++i) {
    const Feed& f = *feeds[i];
    const size_t end = f.tokens.size() - static_cast<size_t>(f.wanted);
    while (f.refused.is_ok() && step.begun[i] < end) {
      const int64_t next = step.undo[i].length() + static_cast<int64_t>(step.begun[i]);
      const int64_t count =
          std::min({static_cast<int64_t>(end - step.begun[i]), chunk_, f.sequence->media().border(next)});
      if (step.tokens() + count > chunk_) SITU_RETURN_IF_ERROR(run_parts(step, 0, nullptr));
      add_parts(step, i, static_cast<size_t>(count), true);
    }
  }
  int64_t wanted = 0;
  for (size_t i = 0; i < feeds.size(); ++i) {
    const Feed& f = *feeds[i];
    const size_t piece = f.apart ? 1 : static_cast<size_t>(f.wanted);
    while (f.refused.is_ok() && step.begun[i] < f.tokens.size()) {
      const int64_t next = step.undo[i].length() + static_cast<int64_t>(step.begun[i]);
      const int64_t alike =
          std::min(static_cast<int64_t>(f.tokens.size() - step.begun[i]), f.sequence->media().border(next));
      add_parts(step, i, std::min(piece, static_cast<size_t>(alike)), !f.apart);
    }
    if (f.refused.is_ok()) wanted += f.wanted;
  }
  return run_parts(step, wanted, to);
}

Status InPlaceEngine::take_all_slots(const Feed& feed) {
  Sequence& sequence = *feed.sequence;
  const int64_t all = static_cast<int64_t>(feed.tokens.size()), end = sequence.length() + all;
  while (sequence.length() < end) {
    SITU_RETURN_IF_ERROR(take_slots(sequence, end - sequence.length(), all).status());
    if ((prefill_->needs_contiguous() || decode_->needs_contiguous()) && !sequence.contiguous()) return needs_one_run();
  }
  return Status::ok();
}

// The next `count` tokens of a feed: a part for each run of their slots. What recurrent states are behind all of them
// is kept.
void InPlaceEngine::add_parts(Together& step, size_t i, size_t count, bool prompt) {
  const Feed& feed = *step.feeds[i];
  Sequence& sequence = *feed.sequence;
  for (std::span<const int64_t> tokens = feed.tokens.subspan(step.begun[i], count); !tokens.empty();) {
    const int64_t past = step.undo[i].length() + static_cast<int64_t>(step.begun[i]);
    if (sequence.length() == past) {
      const Result<Run> run = take_slots(sequence, static_cast<int64_t>(tokens.size()), std::ssize(feed.tokens));
      if (!run.is_ok()) return step.refuse(i, run.status());
    }
    const Run run = sequence.slots_of(past, static_cast<int64_t>(tokens.size()));
    const size_t length = static_cast<size_t>(run.length);
    const bool inside = static_cast<size_t>(tokens.size()) < count;
    if (Status room = take_state_slot(sequence, past + run.length, inside); !room.is_ok())
      return step.refuse(i, std::move(room));
    step.parts.push_back({i, segment_of(sequence, tokens.first(length), past, run.first_slot, prompt)});
    tokens = tokens.subspan(length);
    step.begun[i] += length;
  }
}

Status InPlaceEngine::run_parts(Together& step, int64_t wanted, float* to) {
  if (step.parts.empty()) return Status::ok();  // all are refused
  std::vector<Segment> segments;
  for (const Part& p : step.parts) segments.push_back(with_runs(p.segment, *step.feeds[p.feed]->sequence));
  SITU_RETURN_IF_ERROR(run(segments, wanted, to));
  for (const Part& p : step.parts) step_done(*step.feeds[p.feed]->sequence);
  step.parts.clear();
  return Status::ok();
}

}  // namespace situ
