#include "requests/beam_decoding.h"

#include <algorithm>

#include "generate/bans.h"
#include "generate/greedy.h"

namespace situ {

BeamDecoding::BeamDecoding(Served& served, Opening opening, AnswerRules rules, bool renormalised)
    : PromptDecoding(served, std::move(opening)),
      rules_(std::move(rules)),
      renormalised_(renormalised),
      search_(rules_.beams),
      log_probabilities_(static_cast<size_t>(served.vocabulary)) {
  const Sampler sampler(rules_.sampling, prompt(), served.vocabulary);
  for (size_t i = 0; i < search_.running().size(); ++i) branches_.push_back({Strand(served), sampler});
}

// The first beam is fed from the beginning. Each other one goes on from the beam before it with which it has most
// tokens in common, so that the beams that begin again need no more slots than they had. Its last token is its own: the
// logits behind that are offered for each beam, those behind the prompt for all at once.
BeamDecoding::Root BeamDecoding::root_of(size_t beam) const {
  Root root;
  const std::span<const int64_t> ids = branches_[beam].sampler.ids();
  const bool offered = branches_[beam].offered || !prompt_done_;
  const int64_t most = std::ssize(ids) - (offered ? 0 : 1);
  for (size_t i = 0; i < beam; ++i) {
    const std::span<const int64_t> others = branches_[i].sampler.ids();
    const int64_t common = std::mismatch(ids.begin(), ids.end(), others.begin(), others.end()).first - ids.begin();
    if (std::min(common, most) > root.tokens) root = {i, std::min(common, most)};
  }
  return root;
}

int64_t BeamDecoding::tokens_to_feed() const {
  int64_t tokens = 0;
  for (size_t i = 0; i < branches_.size(); ++i) {
    const int64_t length = branches_[i].strand.length();
    tokens += std::ssize(branches_[i].sampler.ids()) - (length > 0 ? length : root_of(i).tokens);
  }
  return tokens;
}

Result<bool> BeamDecoding::begin(Clock::time_point until, Figures& figures) {
  return begin_with(branches_[0].strand, until, figures);
}

// A beam stops where others go on from it.
Status BeamDecoding::wants(std::vector<Want>& wants) {
  std::vector<int64_t> stops;
  for (const Branch& b : branches_) stops.push_back(std::ssize(b.sampler.ids()));
  for (size_t i = 1; i < branches_.size(); ++i) {
    if (branches_[i].strand.length() > 0) continue;
    const Root root = root_of(i);
    stops[root.beam] = std::min(stops[root.beam], root.tokens);
  }
  for (size_t i = 0; i < branches_.size(); ++i) {
    Branch& b = branches_[i];
    if (b.strand.length() >= stops[i] || (i > 0 && b.strand.length() == 0)) continue;
    wants.push_back(
        next_of(b.strand, std::span(b.sampler.ids()).first(static_cast<size_t>(stops[i])), prompt_rows_, i));
  }
  return Status::ok();
}

void BeamDecoding::take(const Want& want, Rows rows) {
  Branch& b = branches_[want.branch];
  const int64_t length = b.strand.length();
  for (int64_t r = 0; r < std::ssize(rows) && !ended(); ++r) {
    const int64_t at = length - std::ssize(rows) + r;
    const std::span<const float> row = rows[static_cast<size_t>(r)];
    if (at < prompt_tokens()) see_prompt(at, row);
    if (at + 1 < std::ssize(b.sampler.ids())) continue;  // fed again
    // Every group begins with the prompt.
    const bool first = !prompt_done_;
    prompt_done_ = true;
    for (size_t i = first ? 0 : want.branch; i < (first ? branches_.size() : want.branch + 1); ++i) {
      if (branches_[i].offered) continue;
      if (const Status done = offer(i, row); !done.is_ok()) return fail(done);
      branches_[i].offered = true;
    }
  }
}

// Penalties and bans change log-probabilities, not logits, and nothing makes them probabilities again: as in
// transformers. Renormalised: they change logits.
Status BeamDecoding::offer(size_t beam, std::span<const float> logits) {
  Sampler& sampler = branches_[beam].sampler;
  SITU_RETURN_IF_ERROR(sampler.not_a_number(largest_logit(logits).not_a_number).with_context(served_.file));
  std::span<const float> offered;
  if (renormalised_) {
    offered = sampler.scores(logits);
    if (std::any_of(offered.begin(), offered.end(), [](float x) { return x > kBanned; })) {
      log_softmax(offered, log_probabilities_);
      offered = log_probabilities_;
    }
  } else {
    log_softmax(logits, log_probabilities_);
    offered = sampler.scores(log_probabilities_);
  }
  search_.offer(beam, offered, [&](int64_t id) { return sampler.has(id); });
  return Status::ok();
}

// Once every beam has its strand and is offered, the search goes on. Where no beam can go on they stay what they are.
void BeamDecoding::settle() {
  for (size_t i = 1; i < branches_.size(); ++i) {
    if (branches_[i].strand.length() > 0) continue;
    const Root root = root_of(i);
    if (branches_[root.beam].strand.length() == root.tokens) branches_[i].strand = branches_[root.beam].strand.fork();
  }
  if (std::any_of(branches_.begin(), branches_.end(),
                  [](const Branch& b) { return !b.offered || b.strand.length() < std::ssize(b.sampler.ids()); }))
    return;
  if (steps_ == 0) keep_prompt(branches_[0].strand);
  if (search_.at_a_loss()) return fail(branches_.front().sampler.nothing_left().with_context(served_.file));
  search_.advance();
  if (search_.running().empty()) return end(FinishReason::kStop);
  branch();
  ++steps_;
}

// A branch for each running beam. The last that goes on from a parent takes its strand, the others fork it.
void BeamDecoding::branch() {
  const std::vector<BeamSearch::Beam>& beams = search_.running();
  std::vector<Branch> next;
  next.reserve(beams.size());
  for (size_t i = 0; i < beams.size(); ++i) {
    Branch& parent = branches_[static_cast<size_t>(beams[i].parent)];
    bool last = true;
    for (size_t j = i + 1; j < beams.size(); ++j) last = last && beams[j].parent != beams[i].parent;
    if (last)
      next.push_back(std::move(parent));
    else
      next.push_back({parent.strand.fork(), parent.sampler});
    next.back().offered = false;
    next.back().sampler.append(beams[i].ids.back());
  }
  branches_ = std::move(next);
}

void BeamDecoding::fail(const Status& why) {
  if (ended()) return;
  reason_ = why.code() == Code::kInterrupted ? FinishReason::kCancelled : FinishReason::kError;
  failed_ = why;
}

void BeamDecoding::end(FinishReason reason) {
  if (!ended()) reason_ = reason;
}

void BeamDecoding::give_up_runs() {
  for (Branch& b : branches_) b.strand = Strand(served_);
}

// The answers as text; the best one is shown when it is known. `unended`: why those end that no end token did.
Result<Generation> BeamDecoding::found(const std::vector<BeamSearch::Answer>& answers, FinishReason unended) {
  Generation g;
  for (const BeamSearch::Answer& a : answers) {
    if (static_cast<int64_t>(g.answers.size()) == rules_.num_return) break;
    AnswerText text(served_.tokenizer, rules_.text, g.answers.empty() ? &news_ : nullptr, 0);
    if (rules_.echo) SITU_RETURN_IF_ERROR(text.echo(prompt()));
    for (const int64_t id : a.ids) {
      Event token;
      token.id = id;
      SITU_RETURN_IF_ERROR(text.push(std::move(token)));
    }
    Generation::Answer& answer = g.answers.emplace_back();
    answer.output_ids = a.ids;
    answer.finish_reason = text.end(a.ended ? FinishReason::kStop : unended);
    answer.score = a.score;
    text.move_to(answer);
  }
  g.output_ids = g.answers[0].output_ids;
  g.text = g.answers[0].text;
  g.reasoning = g.answers[0].reasoning;
  g.reasoning_tokens = g.answers[0].reasoning_tokens;
  g.finish_reason = g.answers[0].finish_reason;
  return g;
}

Result<Generation> BeamDecoding::finish(const Figures& figures) {
  Generation g;
  g.finish_reason = reason_;
  const bool whole = reason_ == FinishReason::kStop, over = reason_ == FinishReason::kLength;
  if (whole || over || reason_ == FinishReason::kError) {
    const std::vector<BeamSearch::Answer> answers = whole ? search_.answers() : search_.answers_so_far();
    if (answers.empty()) return failed_.is_ok() ? Result<Generation>(std::move(g)) : failed_;
    Result<Generation> found_ones = found(answers, whole ? FinishReason::kLength : reason_);
    if (!found_ones.is_ok()) return found_ones;
    g = std::move(*found_ones);
    if (reason_ == FinishReason::kError) {
      g.finish_reason = reason_;
      g.error = failed_.message();
      g.error_code = failed_.code();
    }
    news_.back().finish = g.finish_reason;
  } else {
    news_.push_back({.id = -1, .text = "", .finish = reason_});
  }
  g.notes = rules_.notes;
  complete(figures, steps_, g);
  return g;
}

}  // namespace situ
