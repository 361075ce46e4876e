#include "requests/answer_decoding.h"

#include <algorithm>

#include "generate/prompt_lookup.h"
#include "requests/scheduler.h"

namespace situ {
namespace {

// A draft takes steps of its own for each answer, and a step of several answers costs little more than one of one: with
// more answers than these their rows are worth more than the guesses.
constexpr int64_t kMostAnswersOfDraft = 4;

}  // namespace

AnswerDecoding::AnswerDecoding(Served& served, Opening opening, std::vector<AnswerRules> rules, int64_t guesses,
                               bool by_draft)
    : PromptDecoding(served, std::move(opening)),
      guesses_(guesses),
      seed_(rules[0].sampling.sample ? std::optional(rules[0].sampling.seed) : std::nullopt),
      in_turn_(rules.size() > 1 && served.in_place && !served.in_place->can_fork()),
      echo_(rules[0].echo),
      score_(rules[0].score) {
  branches_.reserve(rules.size());
  for (AnswerRules& r : rules)
    branches_.emplace_back(served,
                           Answer(served, std::move(r), prompt(), served.scheduler->beside(), news_, branches_.size()),
                           guesses, by_draft ? std::make_unique<Draft>(*served.draft, served.vocabulary) : nullptr);
}

// The one whose strand the prompt is fed to; the others fork it. Null: all have ended.
AnswerDecoding::Branch* AnswerDecoding::stem() {
  const auto b =
      std::find_if(branches_.begin(), branches_.end(), [](const Branch& branch) { return !branch.answer.ended(); });
  return b == branches_.end() ? nullptr : &*b;
}

// The prompt counts once, for the first.
int64_t AnswerDecoding::tokens_to_feed() const {
  int64_t tokens = 0;
  bool first = true;
  for (const Branch& b : branches_) {
    if (b.answer.ended() || (!first && in_turn_)) continue;
    tokens += std::ssize(b.answer.ids()) - (first ? b.strand.length() : std::max(b.strand.length(), prompt_tokens()));
    first = false;
  }
  return tokens;
}

Result<bool> AnswerDecoding::begin(Clock::time_point until, Figures& figures) {
  Branch* const b = stem();
  if (!b) return true;
  opened_ = b;
  const bool first = !begun_;
  const Result<bool> opened = begin_with(b->strand, until, figures);
  if (first && begun_ && echo_)
    for (Branch& branch : branches_) SITU_RETURN_IF_ERROR(branch.answer.echo(prompt()));
  return opened;
}

Status AnswerDecoding::wants(std::vector<Want>& wants) {
  const Branch* const first = stem();
  const auto rows = static_cast<int64_t>(prompt().size());
  for (size_t i = 0; i < branches_.size(); ++i) {
    Branch& b = branches_[i];
    if (b.answer.ended() || (&b != first && (in_turn_ || b.strand.length() < rows))) continue;
    const std::span<const int64_t> ids = b.answer.ids();
    const bool next = b.strand.length() + 1 == std::ssize(ids);  // behind what it is fed a token is chosen
    if (next && prompt_done_ && (b.late || b.answer.slow()) && !b.answer.may_choose()) continue;
    if (!prompt_done_ && !all_may_choose()) {
      if (next) continue;
      wants.push_back(next_of(b.strand, ids.first(ids.size() - 1), std::min(prompt_rows_, ids.size() - 1), i));
      wants.back().wanted = 0;
      wants.back().whole = rows;
      continue;
    }
    if (next && b.strand.length() >= rows && guesses_ > 0) {
      guess(b);
      if (b.draft && b.draft->at_work()) {
        wants.push_back(b.draft->want(i));
        continue;
      }
      if (b.guessed) {
        wants.push_back(next_of(b.strand, b.fed, prompt_rows_, i));
        continue;
      }
    }
    wants.push_back(next_of(b.strand, ids, prompt_rows_, i));
  }
  return Status::ok();
}

// The answers whose first token is chosen by the logits of the prompt.
bool AnswerDecoding::all_may_choose() const {
  return std::all_of(branches_.begin(), branches_.end(),
                     [](const Branch& b) { return b.answer.ended() || b.answer.may_choose(); });
}

// What may follow the last token. With a draft it takes steps of that first.
void AnswerDecoding::guess(Branch& b) {
  if (b.guessed) return;
  const std::span<const int64_t> ids = b.answer.ids();
  const int64_t length = b.strand.length();
  const bool few = !b.draft || served_.running + std::ssize(branches_) - 1 <= kMostAnswersOfDraft;
  const int64_t most = std::min({b.count.now(), std::min(served_.context_length - length, b.answer.left()) - 1,
                                 served_.most_guesses(length), served_.rows_of_one() - 1,
                                 no_guesses_ || !few || b.answer.slow() ? int64_t{0} : guesses_});
  std::span<const int64_t> guess;
  if (b.draft) {
    if (b.draft->at_work()) return;
    if (b.fed.empty()) {
      b.fed.assign(1, ids.back());  // so far it has come
      if (most > 0) b.draft->begin(b.answer.sampler(), most);
      if (b.draft->at_work()) return;
    }
    if (most > 0) guess = b.draft->guess().first(std::min(b.draft->guess().size(), static_cast<size_t>(most)));
  } else if (most > 0) {
    guess = lookup_prompt(ids, most);
  }
  b.fed.assign(ids.begin(), ids.end());
  b.fed.insert(b.fed.end(), guess.begin(), guess.end());
  b.guessed = true;
  b.tried = guess.size();
}

void AnswerDecoding::choose(Branch& b, std::span<const float> logits, int64_t length) {
  const Status done = b.answer.next(logits).with_context(served_.file);
  if (done.is_ok() && length >= served_.context_length) b.answer.end(FinishReason::kLength);
  if (done.is_ok()) return;
  if (b.answer.has_tokens() || done.code() == Code::kInterrupted || branches_.size() > 1)
    b.answer.fail(done);
  else
    fail(done);
}

// A guess is right if it is the token that is chosen in any case: what is drawn depends on seed and position alone.
void AnswerDecoding::take(const Want& want, Rows rows) {
  Branch& b = branches_[want.branch];
  if (b.draft && want.strand == b.draft->strand()) return b.draft->take(rows);
  const int64_t length = b.strand.length(), first = length - std::ssize(rows);
  for (int64_t at = first; at < std::min(length, prompt_tokens()); ++at)
    see_prompt(at, rows[static_cast<size_t>(at - first)]);
  if (length == prompt_tokens() && !prompt_done_) {
    prompt_done_ = true;
    for (Branch& branch : branches_)
      if (!branch.answer.ended()) choose(branch, rows.back(), length);
    return;
  }
  for (int64_t r = 0; r < std::ssize(rows) && !b.answer.ended(); ++r) {
    const int64_t at = first + r;                       // of the token that the row follows
    if (at + 1 < std::ssize(b.answer.ids())) continue;  // fed again
    const int64_t token = want.tokens[want.tokens.size() - rows.size() + static_cast<size_t>(r)];
    if (token != b.answer.ids()[static_cast<size_t>(at)]) break;
    if (!b.answer.may_choose_soon() && can_feed_again(b, at)) {
      b.right = at;
      b.late = true;
      break;
    }
    b.late = false;
    b.right = at + 1;
    choose(b, rows[static_cast<size_t>(r)], at + 1);
  }
}

// Keeps what was computed of the prompt, be it that its answers have ended with their first token.
void AnswerDecoding::keep_once() {
  const auto fed = std::find_if(branches_.begin(), branches_.end(),
                                [&](const Branch& b) { return b.strand.length() >= prompt_tokens(); });
  if (!prompt_done_ || kept_ || fed == branches_.end()) return;
  kept_ = true;
  keep_prompt(fed->strand);
  // Whole states are known for a few steps only.
  if (opening_.reuse == PrefixReuse::kAll && served_.whole_states() && fed->strand.length() == prompt_tokens())
    fed->strand.keep_prefix(prompt(), true, opening_.salt);
}

// Whether the token number `at` can be fed once more.
bool AnswerDecoding::can_feed_again(const Branch& b, int64_t at) const {
  return at >= prompt_tokens() && b.strand.sequence && served_.in_place->can_rewind(*b.strand.sequence, at).is_ok();
}

void AnswerDecoding::settle() {
  keep_once();
  // The one that was fed the prompt, which may have ended with its first token.
  const auto fed = std::find_if(branches_.begin(), branches_.end(),
                                [&](const Branch& b) { return b.strand.length() == prompt_tokens(); });
  for (Branch& b : branches_) {
    if (b.right >= 0) {
      const int64_t wrong = b.strand.length() - b.right, tried = static_cast<int64_t>(b.tried);
      if (wrong > 0) b.strand.rewind(b.right);
      if (b.guessed && !b.late) {
        b.count.learn(tried, tried - wrong);
        guessed_ += tried;
        accepted_ += tried - wrong;
      }
      b.right = -1;
      b.forget_guess();
      no_guesses_ = false;
    }
    if (!in_turn_ && fed != branches_.end() && !b.answer.ended() && b.strand.length() == 0)
      b.strand = fed->strand.fork();
    if (!b.answer.ended()) continue;
    b.answer.close();
    if (in_turn_) leave(b);
  }
}

// Of several that are fed in turn, the next one.
bool AnswerDecoding::begins_again() {
  const Branch* const next = in_turn_ && prompt_done_ ? stem() : nullptr;
  return next && next != opened_;
}

// The first that has not ended keeps its slots.
bool AnswerDecoding::take_turns() {
  const Branch* const first = stem();
  if (in_turn_ || !prompt_done_ || branches_.size() == 1) return false;
  in_turn_ = true;
  for (Branch& b : branches_)
    if (&b != first && !b.answer.ended()) give_up_runs(b);
  opened_ = first && first->strand.length() > 0 ? first : nullptr;
  return true;
}

// Its slots are for others.
void AnswerDecoding::leave(Branch& b) {
  const int64_t length = b.strand.length();
  fed_ += std::max<int64_t>(0, length - prompt_tokens());
  if (opening_.reuse == PrefixReuse::kAll && length > 0 && length <= std::ssize(b.answer.ids()))
    b.strand.keep_prefix(b.answer.ids().first(static_cast<size_t>(length)), true, opening_.salt);
  b.strand = Strand();
}

void AnswerDecoding::fail(const Status& why) {
  bool any = false;
  for (const Branch& b : branches_) any = any || b.answer.has_tokens();
  if (!any && why.code() != Code::kInterrupted && failed_.is_ok()) failed_ = why;
  for (Branch& b : branches_) b.answer.fail(why);
}

// Where the state ends for one that is fed in turn, the others have it after that.
void AnswerDecoding::end(FinishReason reason) {
  if (in_turn_ && reason == FinishReason::kLength) {
    if (Branch* const b = stem()) b->answer.end(reason);
    return;
  }
  for (Branch& b : branches_) b.answer.end(reason);
}

bool AnswerDecoding::ended() const {
  return std::all_of(branches_.begin(), branches_.end(), [](const Branch& b) { return b.answer.ended(); });
}

bool AnswerDecoding::drop_guesses() {
  bool dropped = false;
  for (Branch& b : branches_) {
    if (b.draft && b.draft->at_work()) {
      b.draft->stop();
      dropped = true;
    }
    dropped = dropped || b.tried > 0;
    b.forget_guess();
  }
  no_guesses_ = dropped;
  return dropped;
}

void AnswerDecoding::give_up_runs() {
  for (Branch& b : branches_) give_up_runs(b);
}

void AnswerDecoding::give_up_runs(Branch& b) {
  b.strand = Strand(served_);
  if (b.draft) b.draft->release();
  b.forget_guess();
  b.right = -1;
}

void AnswerDecoding::release() {
  for (Branch& b : branches_) {
    b.strand = Strand();
    b.draft.reset();
  }
}

Result<Generation> AnswerDecoding::finish(const Figures& figures) {
  if (!failed_.is_ok()) return failed_;
  keep_once();
  for (Branch& b : branches_) leave(b);
  Generation g = branches_[0].answer.finish();
  if (branches_.size() > 1 || score_)
    for (size_t i = 0; i < branches_.size(); ++i) {
      const Generation other = i > 0 ? branches_[i].answer.finish() : g;
      g.answers.push_back({other.output_ids, other.text, other.finish_reason, branches_[i].answer.score(),
                           other.logprobs, other.error, other.reasoning, other.tool_calls, other.reasoning_tokens,
                           other.stop_string});
    }
  g.seed = seed_;
  g.guessed_tokens = guessed_;
  g.accepted_tokens = accepted_;
  complete(figures, fed_, g);
  return g;
}

}  // namespace situ
