#include "serve/telling.h"

namespace situ::serve {
namespace {

struct Choice {
  const std::string& text;
  const std::vector<int64_t>& ids;
  const std::vector<Generation::Logprobs>& logprobs;
  FinishReason reason;
};

std::vector<Choice> choices_of(const Generation& g) {
  if (g.answers.empty()) return {{g.text, g.output_ids, g.logprobs, g.finish_reason}};
  std::vector<Choice> all;
  for (const Generation::Answer& a : g.answers) all.push_back({a.text, a.output_ids, a.logprobs, a.finish_reason});
  return all;
}

std::vector<TokenLogprob> first_of(const std::vector<TokenLogprob>& top, int64_t count) {
  return {top.begin(), top.begin() + std::min<int64_t>(count, std::ssize(top))};
}

// The tokens of the answer hold the string that ended it, behind its text.
std::string stop_string_of(const Ask& ask, const Choice& c) {
  if (c.reason != FinishReason::kStopString) return "";
  if (ask.options.stop.size() == 1) return ask.options.stop[0];
  const Result<std::string> whole = ask.by->tokenizer().decode(c.ids, true);
  if (!whole.is_ok() || !whole->starts_with(c.text)) return "";
  const std::string_view rest = std::string_view(*whole).substr(c.text.size());
  for (const std::string& stop : ask.options.stop)
    if (rest.starts_with(stop)) return stop;
  return "";
}

}  // namespace

// What a prompt's tokens are like is known at the end only, and stands in front.
Telling::Telling(const Ask& ask, bool in_pieces)
    : ask_(ask), in_pieces_(in_pieces), at_once_(!in_pieces || (ask.echo && ask.logprobs)) {}

void Telling::begin(size_t request, std::vector<Out>& outs) const {
  const auto choices = static_cast<size_t>(ask_.choices);
  for (size_t k = 0; k < choices; ++k) outs.push_back({request * choices + k, Begun{ask_.prompts[request].tokens}, {}});
}

void Telling::token(size_t request, const Event& token, std::vector<Out>& outs) const {
  if (at_once_ || (!token.logprob && token.text.empty())) return;
  Out& out =
      outs.emplace_back(Out{request * static_cast<size_t>(ask_.choices) + token.choice, TextPiece{token.text}, {}});
  if (token.logprob) out.tokens.push_back({token.id, token.logprob, token.top});
}

std::vector<Told> Telling::told_of_prompt(size_t request, const Generation& g) const {
  std::vector<Told> told;
  if (!ask_.echo || !ask_.logprobs) return told;
  if (ask_.prompts[request].tokens > 0) told.push_back({ask_.prompts[request].first});
  for (const Generation::PromptLogprob& p : g.prompt_logprobs)
    told.push_back({p.id, p.logprob, first_of(p.top, *ask_.logprobs)});
  return told;
}

void Telling::end(size_t request, const Generation& g, std::vector<Out>& outs) {
  usage_.prompt += ask_.prompts[request].tokens;
  usage_.cached += g.cached_tokens;
  const std::vector<Choice> choices = choices_of(g);
  for (size_t k = 0; k < choices.size(); ++k) {
    const Choice& c = choices[k];
    const size_t number = request * static_cast<size_t>(ask_.choices) + k;
    usage_.answer += std::ssize(c.ids);
    if (at_once_) {
      Out& out = outs.emplace_back(Out{number, TextPiece{c.text}, told_of_prompt(request, g)});
      for (size_t i = 0; i < c.logprobs.size(); ++i)
        out.tokens.push_back({c.ids[i], c.logprobs[i].logprob, c.logprobs[i].top});
    } else if (k > 0 && ask_.options.beams.value_or(1) > 1) {  // of which the best one is told as it comes
      outs.push_back({number, TextPiece{c.text}, {}});
    }
    Ended end{c.reason, std::ssize(c.ids), stop_string_of(ask_, c), {}, g.seed};
    if (k == 0 && ask_.prompt_logprobs) end.prompt_logprobs = g.prompt_logprobs;
    outs.push_back({number, std::move(end), {}});
  }
}

}  // namespace situ::serve
