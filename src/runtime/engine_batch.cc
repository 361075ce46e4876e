// Steps of several sequences, and prompts. A prompt is cut into pieces of at most chunk() tokens, and each token whose
// logits are wanted is a piece of its own, unless the caller says otherwise: those of all sequences stand at the end of
// the step. How a prompt is cut does not depend on what else is in the step, so that neither do its logits, to the last
// bit (docs/sequences.md names the exceptions).
#include <algorithm>

#include "runtime/engine.h"

namespace situ {

const char* const kNeedsOneRun = "this model's attention was not recognised and needs its state in one run of slots";

Status InPlaceEngine::step(std::span<const Feed> feeds, const LogitsOf& each, float* to) {
  std::vector<int64_t> before;
  std::vector<size_t> wanted;  // the feed of each
  const bool together = one_sequence().empty();
  for (size_t i = 0; i < feeds.size(); ++i) {
    if (feeds[i].tokens.empty()) return Status::error("a step needs at least one token of each sequence");
    if (feeds[i].wanted < 0 || feeds[i].wanted > (together ? static_cast<int64_t>(feeds[i].tokens.size()) : 1))
      return Status::error("the logits of " + std::to_string(feeds[i].wanted) + " tokens of one step are wanted" +
                           (together ? "" : ": " + one_sequence()));
    for (size_t j = 0; j < i; ++j)
      if (feeds[j].sequence == feeds[i].sequence) return Status::error("a sequence is in the same step twice");
    before.push_back(feeds[i].sequence->length());
    wanted.insert(wanted.end(), static_cast<size_t>(feeds[i].wanted), i);
  }
  if (static_cast<int64_t>(wanted.size()) > batch_)
    return Status::error("the logits of " + std::to_string(wanted.size()) +
                         " tokens of one step are wanted; there is room for " + std::to_string(batch_));
  SITU_RETURN_IF_ERROR(check_sources(feeds));
  SITU_RETURN_IF_ERROR(copy_unread());
  Status done = together ? step_together(feeds, to) : step_apart(feeds, each, to);
  if (together && done.is_ok()) done = to ? read_each(wanted, each, to) : read_each(wanted, each);
  if (done.is_ok()) return done;
  for (size_t i = 0; i < feeds.size(); ++i) undo(*feeds[i].sequence, before[i]);
  return done;
}

// Prompts one after the other; single tokens that stand side by side in one step.
Status InPlaceEngine::step_apart(std::span<const Feed> feeds, const LogitsOf& each, float* to) {
  for (size_t i = 0, end = 0; i < feeds.size(); i = end) {
    for (end = i; end < feeds.size() && in_token_batch(feeds[end]);) ++end;
    std::vector<size_t> wanted;
    if (end - i > 1) {
      for (size_t k = i; k < end; ++k) wanted.push_back(k);
      SITU_RETURN_IF_ERROR(step_tokens(feeds.subspan(i, end - i), to));
      SITU_RETURN_IF_ERROR(to ? read_each(wanted, each, to) : read_each(wanted, each));
      if (to) to += static_cast<int64_t>(wanted.size() * logits_.size());
      continue;
    }
    end = i + 1;
    SITU_RETURN_IF_ERROR(step_one(feeds[i], to));
    reads_copies_ = false;
    if (feeds[i].wanted == 0) continue;
    if (to) to += logits_.size();
    SITU_RETURN_IF_ERROR(each(i, logits_));
  }
  return Status::ok();
}

// One token, by the program of one token, and its logits.
bool InPlaceEngine::in_token_batch(const Feed& feed) const {
  return tokens_ && feed.tokens.size() == 1 && feed.wanted == 1 &&
         !(compiled_.first_only && feed.sequence->length() == 0);
}

Status InPlaceEngine::step_tokens(std::span<const Feed> feeds, float* to) {
  SITU_RETURN_IF_ERROR(copy_unread());
  std::vector<Segment> segments;
  for (const Feed& f : feeds) {
    Sequence& sequence = *f.sequence;
    const int64_t past = sequence.length();
    const Result<Run> slot = take_slots(sequence, 1, 1);
    if (!slot.is_ok()) return slot.status();
    if (decode_->needs_contiguous() && !sequence.contiguous()) return Status::error(kNeedsOneRun);
    SITU_RETURN_IF_ERROR(take_state_slot(sequence));
    segments.push_back(segment_of(sequence, f.tokens, past, slot->first_slot, false));
  }
  for (size_t i = 0; i < segments.size(); ++i) {
    segments[i].runs = feeds[i].sequence->runs().data();
    segments[i].run_count = static_cast<int>(feeds[i].sequence->runs().size());
  }
  token_rows_ = segments.size();
  const int64_t width = compiled_.token.graph.values[compiled_.token.binding.logits].info.shape.back().value();
  SITU_RETURN_IF_ERROR(tokens_->run(segments, turn_, to, width, ledger_));
  for (const Feed& f : feeds) step_done(*f.sequence);
  return Status::ok();
}

// The row of the last step's logits that so many others follow.
Status InPlaceEngine::read_row(int64_t left, float* to) {
  if (token_rows_ == 0) return read_logits(prefill_->logits(), left, to);
  return read_logits(tokens_->logits(token_rows_ - 1 - static_cast<size_t>(left)), 0, to);
}

// The logits of a step, row by row.
Status InPlaceEngine::read_each(const std::vector<size_t>& wanted, const LogitsOf& each) {
  UnreadLogits unread{static_cast<int64_t>(wanted.size()), 0, {}};
  struct Reading {
    InPlaceEngine& engine;
    const UnreadLogits& unread;
    ~Reading() {  // also where `each` throws
      const std::vector<float>& copies = unread.copies;
      if (!copies.empty() && engine.logits_.data() >= copies.data() &&
          engine.logits_.data() < copies.data() + copies.size())
        engine.logits_ = {};
      if (engine.unread_ == &unread) engine.unread_ = nullptr;
    }
  } const reading{*this, unread};
  unread_ = &unread;
  for (const size_t feed : wanted) {
    --unread.left;
    reads_copies_ = !unread.copies.empty();
    if (!reads_copies_) {
      SITU_RETURN_IF_ERROR(read_row(unread.left, nullptr));
    } else {
      logits_ = std::span<const float>(unread.copies)
                    .last((static_cast<size_t>(unread.left) + 1) * unread.width)
                    .first(unread.width);
    }
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
  reads_copies_ = false;
  for (size_t i = 0; i < rows.size(); ++i) {
    logits_ = rows[i];
    SITU_RETURN_IF_ERROR(each(wanted[i], logits_));
  }
  return Status::ok();
}

// Before a step that takes their place.
Status InPlaceEngine::copy_unread() {
  if (unread_ == nullptr) return Status::ok();
  UnreadLogits& unread = *unread_;
  std::vector<float> copies;
  for (int64_t row = unread.left - 1; row >= 0; --row) {
    SITU_RETURN_IF_ERROR(read_row(row, nullptr));
    const size_t width = unread.width = logits_.size(), at = copies.size();
    copies.resize(at + width);
    move_bytes(row_view(copies.data() + at, static_cast<int64_t>(width)),
               row_view(logits_.data(), static_cast<int64_t>(width)), ledger_);
  }
  unread.copies = std::move(copies);
  unread_ = nullptr;
  return Status::ok();
}

static bool read_in_place(const Compiled& c, const Plan& plan) {
  const ValueId logits = c.binding.logits;
  return c.graph.values[logits].info.type == DType::kF32 && plan.values[logits].view.strides.back() == Dim(1);
}

bool InPlaceEngine::logits_stay() const { return read_in_place(compiled_.prompt, prefill_plan_); }

bool InPlaceEngine::logits_have_two_places() const {
  const auto two_places = [](const Compiled& c, const Plan& plan) {
    return read_in_place(c, plan) && plan.values[c.binding.logits].region == RegionKind::kIo;
  };
  return two_places(compiled_.prompt, prefill_plan_) && two_places(compiled_.token, decode_plan_);
}

Status InPlaceEngine::step_together(std::span<const Feed> feeds, float* to) {
  token_rows_ = 0;
  std::vector<Part> parts;
  int64_t tokens = 0, wanted = 0;  // in the parts
  for (const Feed& f : feeds) {
    for (std::span<const int64_t> rest = f.tokens.first(f.tokens.size() - static_cast<size_t>(f.wanted));
         !rest.empty();) {
      const int64_t count = std::min(static_cast<int64_t>(rest.size()), chunk_);
      if (tokens + count > chunk_) {
        SITU_RETURN_IF_ERROR(run_parts(parts, 0, nullptr));
        tokens = 0;
      }
      SITU_RETURN_IF_ERROR(add_parts(f, rest.first(static_cast<size_t>(count)), true, parts));
      rest = rest.subspan(static_cast<size_t>(count));
      tokens += count;
    }
  }
  for (const Feed& f : feeds) {
    const std::span<const int64_t> last = f.tokens.last(static_cast<size_t>(f.wanted));
    const size_t piece = f.apart ? 1 : last.size();
    for (size_t i = 0; i < last.size(); i += piece)
      SITU_RETURN_IF_ERROR(add_parts(f, last.subspan(i, piece), !f.apart, parts));
    wanted += f.wanted;
  }
  return run_parts(parts, wanted, to);
}

// Takes slots for the tokens: a part for each run of them.
Status InPlaceEngine::add_parts(const Feed& feed, std::span<const int64_t> tokens, bool prompt,
                                std::vector<Part>& parts) {
  Sequence& sequence = *feed.sequence;
  while (!tokens.empty()) {
    const int64_t past = sequence.length();
    const Result<Run> run =
        take_slots(sequence, static_cast<int64_t>(tokens.size()), static_cast<int64_t>(feed.tokens.size()));
    if (!run.is_ok()) return run.status();
    if ((prefill_->needs_contiguous() || decode_->needs_contiguous()) && !sequence.contiguous())
      return Status::error(kNeedsOneRun);
    SITU_RETURN_IF_ERROR(take_state_slot(sequence));
    parts.push_back({&sequence, segment_of(sequence, tokens.first(static_cast<size_t>(run->length)), past,
                                           run->first_slot, prompt)});
    tokens = tokens.subspan(static_cast<size_t>(run->length));
  }
  return Status::ok();
}

Status InPlaceEngine::run_parts(std::vector<Part>& parts, int64_t wanted, float* to) {
  std::vector<Segment> segments;
  for (const Part& p : parts) {
    segments.push_back(p.segment);
    segments.back().runs = p.sequence->runs().data();
    segments.back().run_count = static_cast<int>(p.sequence->runs().size());
  }
  const bool token = segments.size() == 1 && segments[0].is_token();
  Program& program = token ? *decode_ : *prefill_;
  SITU_RETURN_IF_ERROR(
      program.run({segments, wanted, turn_, program.writes_logits_anywhere() ? to : nullptr}, ledger_));
  for (const Part& p : parts) step_done(*p.sequence);
  parts.clear();
  return Status::ok();
}

}  // namespace situ
