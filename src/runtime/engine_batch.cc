// Steps of several sequences, and prompts. A prompt is cut into pieces of at most chunk() tokens, and each token whose
// logits are wanted is a piece of its own, unless the caller says otherwise: those of all sequences stand at the end of
// the step. How a prompt is cut does not depend on what else is in the step, so that neither do its logits, to the last
// bit (docs/sequences.md names the exceptions).
#include <algorithm>

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

Status InPlaceEngine::check_feeds(std::span<const Feed> feeds) const {
  const bool together = one_sequence().empty();
  int64_t wanted = 0;
  for (size_t i = 0; i < feeds.size(); ++i) {
    if (feeds[i].tokens.empty())
      return Status::error(Code::kInvalidArgument, "a step needs at least one token of each sequence");
    if (feeds[i].wanted < 0 || feeds[i].wanted > (together ? static_cast<int64_t>(feeds[i].tokens.size()) : 1))
      return Status::error(Code::kInvalidArgument, "the logits of " + std::to_string(feeds[i].wanted) +
                                                       " tokens of one step are wanted" +
                                                       (together ? "" : ": " + one_sequence()));
    for (size_t j = 0; j < i; ++j)
      if (feeds[j].sequence == feeds[i].sequence)
        return Status::error(Code::kInvalidArgument, "a sequence is in the same step twice");
    wanted += feeds[i].wanted;
  }
  if (wanted > batch_)
    return Status::error(Code::kInvalidArgument, "the logits of " + std::to_string(wanted) +
                                                     " tokens of one step are wanted; there is room for " +
                                                     std::to_string(batch_));
  return Status::ok();
}

Status InPlaceEngine::step(std::span<const Feed> feeds, const LogitsOf& each, std::span<Status> refused, float* to) {
  SITU_RETURN_IF_ERROR(check_feeds(feeds));
  for (const Feed& f : feeds) f.sequence->media().match(f.sequence->length(), f.tokens);
  return switches_.any() ? step_by_length(feeds, each, refused, to) : step_group(feeds, each, refused, to);
}

// Feeds of sequences that have the same tables.
Status InPlaceEngine::step_group(std::span<const Feed> feeds, const LogitsOf& each, std::span<Status> refused,
                                 float* to) {
  return one_sequence().empty() ? step_together(feeds, each, refused, to) : step_apart(feeds, each, refused, to);
}

Status InPlaceEngine::step_together(std::span<const Feed> feeds, const LogitsOf& each, std::span<Status> refused,
                                    float* to) {
  Together step{feeds, refused, {}, std::vector<size_t>(feeds.size()), {}};
  step.undo.reserve(feeds.size());
  for (const Feed& f : feeds) step.undo.emplace_back(*this, *f.sequence);
  SITU_RETURN_IF_ERROR(run_together(step, to));
  std::vector<size_t> wanted;  // the feed of each row
  for (size_t i = 0; i < feeds.size(); ++i)
    if (refused[i].is_ok()) remember(feeds[i]);
  for (size_t i = 0; i < feeds.size(); ++i)
    if (refused[i].is_ok()) wanted.insert(wanted.end(), static_cast<size_t>(feeds[i].wanted), i);
  SITU_RETURN_IF_ERROR(to ? read_each(wanted, each, to) : read_each(wanted, each));
  for (Undo& u : step.undo) u.keep();
  return Status::ok();
}

// Prompts one after the other; single tokens that stand side by side in one run.
Status InPlaceEngine::step_apart(std::span<const Feed> feeds, const LogitsOf& each, std::span<Status> refused,
                                 float* to) {
  std::vector<Undo> undo;
  undo.reserve(feeds.size());
  for (size_t i = 0, end = 0; i < feeds.size(); i = end) {
    for (end = i; end < feeds.size() && in_token_batch(feeds[end]);) ++end;
    if (end - i > 1) {
      std::vector<size_t> good;
      good.reserve(end - i);
      for (size_t k = i; k < end; ++k) {
        undo.emplace_back(*this, *feeds[k].sequence);
        refused[k] = take_token_slots(feeds[k]);
        if (refused[k].is_ok())
          good.push_back(k);
        else
          undo.back().now();
      }
      if (good.empty()) continue;
      SITU_RETURN_IF_ERROR(run_tokens(feeds, good, to));
      SITU_RETURN_IF_ERROR(to ? read_each(good, each, to) : read_each(good, each));
      if (to) to += good.size() * logits_.size();
      continue;
    }
    end = i + 1;
    undo.emplace_back(*this, *feeds[i].sequence);
    Status done = check_source(*feeds[i].sequence);
    if (done.is_ok()) done = step_one(feeds[i], to);
    if (done.code() == Code::kInterrupted) return done;
    refused[i] = std::move(done);
    if (!refused[i].is_ok()) continue;
    if (feeds[i].wanted == 0) continue;
    if (to) to += logits_.size();
    SITU_RETURN_IF_ERROR(each(i, logits_));
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
  const Result<Run> slot = take_slots(sequence, 1, 1);
  if (!slot.is_ok()) return slot.status();
  if (decode_->needs_contiguous() && !sequence.contiguous()) return needs_one_run();
  return take_state_slot(sequence, sequence.length());
}

// The tokens of feeds that have their slots.
Status InPlaceEngine::run_tokens(std::span<const Feed> feeds, std::span<const size_t> which, float* to) {
  std::vector<Segment> segments;
  for (const size_t k : which) {
    const Sequence& sequence = *feeds[k].sequence;
    const int64_t past = sequence.length() - 1;
    segments.push_back(segment_of(sequence, feeds[k].tokens, past, sequence.slots_of(past, 1).first_slot, false));
    segments.back().runs = sequence.runs().data();
    segments.back().run_count = static_cast<int>(sequence.runs().size());
  }
  if (segments.size() == 1) {  // the others are refused
    token_rows_ = 0;
    ran_ = decode_.get();
    SITU_RETURN_IF_ERROR(decode_->run({segments, 1, to}, ledger_));
  } else {
    token_rows_ = segments.size();
    const int64_t width = compiled_.token.graph.values[compiled_.token.binding.logits].info.shape.back().value();
    SITU_RETURN_IF_ERROR(tokens_->run(segments, to, width, ledger_));
  }
  for (const size_t k : which) {
    step_done(*feeds[k].sequence);
    remember(feeds[k]);
  }
  return Status::ok();
}

// The row of the last step's logits that so many others follow.
Status InPlaceEngine::read_row(int64_t left, float* to) {
  if (token_rows_ == 0) return read_logits(ran_->logits(), left, to);
  return read_logits(tokens_->logits(token_rows_ - 1 - static_cast<size_t>(left)), 0, to);
}

// The logits of a step, row by row.
Status InPlaceEngine::read_each(const std::vector<size_t>& wanted, const LogitsOf& each) {
  int64_t left = static_cast<int64_t>(wanted.size());
  for (const size_t feed : wanted) {
    SITU_RETURN_IF_ERROR(read_row(--left, nullptr));
    SITU_RETURN_IF_ERROR(each(feed, logits_));
  }
  return Status::ok();
}

// The same, where the caller wants them: all are there before he sees one.
Status InPlaceEngine::read_each(const std::vector<size_t>& wanted, const LogitsOf& each, float* to) {
  std::vector<std::span<const float>> rows;
  for (int64_t left = static_cast<int64_t>(wanted.size()) - 1; left >= 0; --left) {
    SITU_RETURN_IF_ERROR(read_row(left, to));
    rows.push_back(logits_);
    to += logits_.size();
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    logits_ = rows[i];
    SITU_RETURN_IF_ERROR(each(wanted[i], logits_));
  }
  return Status::ok();
}

static bool read_in_place(const Compiled& c, const Plan& plan) {
  const ValueId logits = c.binding.logits;
  return c.graph.values[logits].info.type == DType::kF32 && plan.values[logits].view.strides.back() == Dim(1);
}

// Sequences with other tables take a run of their own in the same step.
bool InPlaceEngine::logits_stay() const { return !switches_.any() && read_in_place(compiled_.prompt, prefill_plan_); }

// What the feed has in the next run goes too.
void InPlaceEngine::Together::refuse(size_t feed, Status why) {
  refused[feed] = std::move(why);
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
  const std::span<const Feed> feeds = step.feeds;
  for (size_t i = 0; i < feeds.size(); ++i) {
    Status taken = check_source(*feeds[i].sequence);
    if (taken.is_ok() && window_ == 0) taken = take_all_slots(feeds[i]);
    if (!taken.is_ok()) step.refuse(i, std::move(taken));
  }
  for (size_t i = 0; i < feeds.size(); ++i) {
    const size_t end = feeds[i].tokens.size() - static_cast<size_t>(feeds[i].wanted);
    while (step.refused[i].is_ok() && step.begun[i] < end) {
      const int64_t next = step.undo[i].length() + static_cast<int64_t>(step.begun[i]);
      const int64_t count =
          std::min({static_cast<int64_t>(end - step.begun[i]), chunk_, feeds[i].sequence->media().border(next)});
      if (step.tokens() + count > chunk_) SITU_RETURN_IF_ERROR(run_parts(step, 0, nullptr));
      add_parts(step, i, static_cast<size_t>(count), true);
    }
  }
  for (size_t i = 0; i < feeds.size(); ++i) {
    const size_t piece = feeds[i].apart ? 1 : static_cast<size_t>(feeds[i].wanted);
    while (step.refused[i].is_ok() && step.begun[i] < feeds[i].tokens.size()) {
      const int64_t next = step.undo[i].length() + static_cast<int64_t>(step.begun[i]);
      const int64_t alike = std::min(static_cast<int64_t>(feeds[i].tokens.size() - step.begun[i]),
                                     feeds[i].sequence->media().border(next));
      add_parts(step, i, std::min(piece, static_cast<size_t>(alike)), !feeds[i].apart);
    }
  }
  int64_t wanted = 0;
  for (size_t i = 0; i < feeds.size(); ++i)
    if (step.refused[i].is_ok()) wanted += feeds[i].wanted;
  return run_parts(step, wanted, to);
}

Status InPlaceEngine::take_all_slots(const Feed& feed) {
  Sequence& sequence = *feed.sequence;
  const int64_t all = static_cast<int64_t>(feed.tokens.size()), end = sequence.length() + all;
  while (sequence.length() < end) {
    const Result<Run> run = take_slots(sequence, end - sequence.length(), all);
    if (!run.is_ok()) return run.status();
    if ((prefill_->needs_contiguous() || decode_->needs_contiguous()) && !sequence.contiguous()) return needs_one_run();
  }
  return Status::ok();
}

// The next `count` tokens of a feed: a part for each run of their slots. What recurrent states are behind all of them
// is kept.
void InPlaceEngine::add_parts(Together& step, size_t i, size_t count, bool prompt) {
  const Feed& feed = step.feeds[i];
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
  for (const Part& p : step.parts) {
    const std::vector<Run>& runs = step.feeds[p.feed].sequence->runs();
    segments.push_back(p.segment);
    segments.back().runs = runs.data();
    segments.back().run_count = static_cast<int>(runs.size());
  }
  const bool token = segments.size() == 1 && segments[0].is_token();
  token_rows_ = 0;
  if (std::any_of(segments.begin(), segments.end(), [](const Segment& s) { return s.embeddings != nullptr; })) {
    SITU_RETURN_IF_ERROR(run_media(std::move(segments), wanted, to));
  } else {
    Program& program = token ? *decode_ : *prefill_;
    ran_ = &program;
    SITU_RETURN_IF_ERROR(program.run({segments, wanted, to}, ledger_));
  }
  for (const Part& p : step.parts) step_done(*step.feeds[p.feed].sequence);
  step.parts.clear();
  return Status::ok();
}

}  // namespace situ
