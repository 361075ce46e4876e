#include "requests/served.h"

#include <utility>

#include "base/context_words.h"
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
    return Status::error(Code::kContextExceeded, file + ": " + context_words(context_length, total));
  return Status::ok();
}

// What ends the step of one alone is its own error.
Status Served::step(std::span<Feed* const> feeds) {
  std::vector<InPlaceEngine::Feed*> good;
  for (Feed* f : feeds) {
    f->refused = check(f->tokens, f->strand->length());
    if (!f->refused.is_ok()) continue;
    f->sequence = in_place ? &*f->strand->sequence : nullptr;
    good.push_back(f);
  }
  if (good.empty()) return Status::ok();
  Status done;
  if (naive) {
    done = naive->step(static_cast<Feed*>(good[0])->strand->naive, good[0]->tokens, good[0]->place);
    good[0]->logits.assign(done.is_ok() ? static_cast<size_t>(good[0]->wanted) : 0, naive->logits());
  } else {
    done = in_place->step(good);
  }
  if (good.size() == 1 && done.code() != Code::kInterrupted && !done.is_ok())
    good[0]->refused = std::exchange(done, Status::ok());
  for (InPlaceEngine::Feed* f : good) f->refused = f->refused.with_context(file);
  return done.with_context(file);
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

void Strand::take_prefix(std::span<const int64_t> prompt, bool all, const std::string& salt) {
  PrefixCache* const prefixes = served->prefixes();
  if (!prefixes) return;
  const std::vector<int64_t> keys = sequence->media().keys(prompt.first(prompt.size() - 1));
  const int64_t whole = static_cast<int64_t>(prompt.size());
  const Switches& switches = served->in_place->switches();
  const int64_t stage = switches.stage(whole);
  Sequence kept = prefixes->find(keys, {stage, false, salt});
  if (all)
    if (Sequence other = prefixes->find(keys, {stage, true, salt}); other.length() > kept.length())
      kept = std::move(other);
  if (switches.any()) {
    kept.remember(prompt.first(static_cast<size_t>(kept.length())));
    kept.set_whole(whole);
  }
  kept.media() = sequence->media();
  sequence = std::move(kept);
}

void Strand::keep_prefix(std::span<const int64_t> tokens, bool all, const std::string& salt) const {
  if (PrefixCache* const prefixes = served->prefixes(); prefixes && sequence && !sequence->lost())
    prefixes->keep(sequence->media().keys(tokens), *sequence,
                   {served->in_place->switches().stage(sequence->whole()), all, salt},
                   !all && served->fixed_cuts() ? served->chunk() : 1);
}

}  // namespace situ
