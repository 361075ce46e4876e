#include "requests/served.h"

#include <utility>

#include "base/out_of_memory.h"

namespace situ {

Status Served::check_ids(std::span<const int64_t> tokens) const {
  for (size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] < 0 || tokens[i] >= vocabulary)
      return Status::error(Code::kInvalidArgument, file + ": token " + std::to_string(i) + " has id " +
                                                       std::to_string(tokens[i]) + ", outside the vocabulary of " +
                                                       std::to_string(vocabulary));
  return Status::ok();
}

Status Served::check(std::span<const int64_t> tokens, int64_t length) const {
  if (tokens.empty()) return Status::error(Code::kInvalidArgument, file + ": the prompt is empty");
  SITU_RETURN_IF_ERROR(check_ids(tokens));
  const int64_t total = length + static_cast<int64_t>(tokens.size());
  if (total > context_length)
    return Status::error(Code::kContextExceeded, file + ": a prompt of " + std::to_string(total) +
                                                     " tokens does not fit the context of " +
                                                     std::to_string(context_length));
  return Status::ok();
}

// Takes strands back to what they are now, unless keep() is called.
class Served::Undo {
 public:
  explicit Undo(std::span<const Feed> feeds) {
    for (const Feed& f : feeds)
      if (Strand& s = *f.strand; s.sequence)
        sequences_.emplace_back(*s.served->in_place, *s.sequence);
      else
        naive_.emplace_back(&s.naive, s.naive);
  }
  ~Undo() {
    for (auto& [sequence, before] : naive_) *sequence = std::move(before);
  }
  Undo(const Undo&) = delete;
  Undo& operator=(const Undo&) = delete;
  void keep() {
    for (InPlaceEngine::Undo& u : sequences_) u.keep();
    naive_.clear();
  }

 private:
  std::vector<InPlaceEngine::Undo> sequences_;
  std::vector<std::pair<NaiveSequence*, NaiveSequence>> naive_;
};

Result<std::vector<Status>> Served::step(std::span<const Feed> feeds, const InPlaceEngine::LogitsOf& each, float* to) {
  std::vector<Status> refused;
  std::vector<size_t> good;  // feeds
  for (const Feed& f : feeds) {
    refused.push_back(check(f.tokens, f.strand->length()));
    if (refused.back().is_ok()) good.push_back(refused.size() - 1);
  }
  Undo undo(feeds);
  const size_t most = static_cast<size_t>(rows());
  for (size_t first = 0; first < good.size(); first += most) {
    const std::span<const size_t> group = std::span(good).subspan(first, std::min(most, good.size() - first));
    SITU_RETURN_IF_ERROR(step_group(feeds, group, each, refused, to));
    if (to)
      for (const size_t i : group) to += feeds[i].wanted * vocabulary;
  }
  undo.keep();
  return refused;
}

// As many as one step takes.
Status Served::step_group(std::span<const Feed> feeds, std::span<const size_t> group,
                          const InPlaceEngine::LogitsOf& each, std::span<Status> refused, float* to) {
  if (const Feed& only = feeds[group[0]]; group.size() == 1 && (only.wanted == 1 || naive)) {
    Status done = only.strand->step(only.tokens, to);
    if (done.code() == Code::kInterrupted) return done;
    refused[group[0]] = std::move(done);
    if (!refused[group[0]].is_ok() || only.wanted == 0) return Status::ok();
    return each(group[0], in_place ? in_place->logits() : naive->logits());
  }
  std::vector<InPlaceEngine::Feed> sequences;
  for (const size_t i : group)
    sequences.push_back(
        {&*feeds[i].strand->sequence, feeds[i].tokens, feeds[i].wanted, feeds[i].apart, feeds[i].whole});
  bool by_each = false;  // an error, which names the file itself
  const InPlaceEngine::LogitsOf read = [&](size_t i, std::span<const float> row) {
    const Status status = each(group[i], row);
    by_each = !status.is_ok();
    return status;
  };
  std::vector<Status> status(group.size());
  const Status done = in_place->step(sequences, read, status, to);
  for (size_t i = 0; i < group.size(); ++i) refused[group[i]] = status[i].with_context(file);
  return by_each ? done : done.with_context(file);
}

Strand::Strand(Served& of) : served(&of) {
  if (of.in_place)
    sequence.emplace(of.in_place->new_sequence());
  else
    naive = of.naive->new_sequence();
}

Strand Strand::fork() const {
  Strand other;
  other.served = served;
  if (sequence)
    other.sequence.emplace(sequence->fork());
  else
    other.naive = naive;
  return other;
}

void Strand::rewind(int64_t length) {
  if (length == 0)
    sequence->clear();
  else
    sequence->rewind(length);
}

Status Strand::step(std::span<const int64_t> tokens, float* to) {
  SITU_RETURN_IF_ERROR(served->check(tokens, length()));
  Status done = sequence ? served->in_place->step(*sequence, tokens, to) : served->naive->step(naive, tokens, to);
  if (done.is_ok()) return done;  // what was fed is not lost because the name below finds no memory
  return done.with_context(served->file);
}

Result<bool> Strand::encode(const Start& start, Clock::time_point until, std::vector<Stage>* stages) {
  if (!served->has_encoder() && start.source.tensors.empty()) return true;
  const auto failed = [&](const Status& why) {
    const Status error = why.with_context(served->where);
    *this = Strand(*served);
    return error;
  };
  EncoderInput input = start.source;
  input.ids = start.source_ids;
  if (!sequence) {
    StageClock clock(served->ledger());
    const Status done = served->has_encoder() ? served->naive->encode(naive, input)
                                              : served->naive->encode(naive, start.decoder, input, stages);
    if (!done.is_ok()) return failed(done);
    if (served->has_encoder()) clock.end("encoder", stages);
    return true;
  }
  if (!encoding) {
    Result<std::unique_ptr<Encoding>> begun = served->in_place->encoding(*sequence, start.decoder, input);
    if (!begun.is_ok()) return failed(begun.status());
    encoding = std::move(*begun);
  }
  const Result<bool> done = encoding->go_on(until, stages);
  if (!done.is_ok()) return failed(done.status());
  if (*done) std::exchange(encoding, nullptr)->give(*sequence);
  return done;
}

void Strand::take_prefix(std::span<const int64_t> prompt, bool all) {
  PrefixCache* const prefixes = served->prefixes();
  if (!prefixes) return;
  const std::vector<int64_t> keys = sequence->media().keys(prompt.first(prompt.size() - 1));
  const int64_t whole = static_cast<int64_t>(prompt.size());
  const Switches& switches = served->in_place->switches();
  const int64_t stage = switches.stage(whole);
  Sequence kept = prefixes->find(keys, {stage, false});
  if (all)
    if (Sequence other = prefixes->find(keys, {stage, true}); other.length() > kept.length()) kept = std::move(other);
  if (switches.any()) {
    kept.remember(prompt.first(static_cast<size_t>(kept.length())));
    kept.set_whole(whole);
  }
  kept.media() = sequence->media();
  sequence = std::move(kept);
}

void Strand::keep_prefix(std::span<const int64_t> tokens, bool all) const {
  if (PrefixCache* const prefixes = served->prefixes(); prefixes && sequence && !sequence->lost())
    prefixes->keep(sequence->media().keys(tokens), *sequence,
                   {served->in_place->switches().stage(sequence->whole()), all},
                   !all && served->fixed_cuts() ? served->chunk() : 1);
}

}  // namespace situ
