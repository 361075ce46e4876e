#include "serve/telling.h"

#include <algorithm>

#include "pipelines/llm.h"

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
  const Result<std::string> whole = ask.dialog.reads() ? text_of_answer(ask.dialog, *impl_of(*ask.by).text(), c.ids)
                                                       : ask.by->tokenizer().decode(c.ids, true);
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

Telling::Reading& Telling::reading_of(size_t choice) {
  const auto found = readings_.find(choice);
  return found != readings_.end() ? found->second
                                  : readings_.emplace(choice, Reading{ask_.dialog.reader()}).first->second;
}

// What a token says may come with a later one: then it is told with that.
void Telling::tell(size_t choice, std::vector<DialogEvent> events, std::vector<Told>& held, std::vector<Out>& outs) {
  for (DialogEvent& event : events) {
    Out& out = outs.emplace_back(Out{choice, Begun{}, {}});
    std::visit([&](auto& what) { out.what = std::move(what); }, event);
    if (!std::holds_alternative<CallEnded>(out.what)) out.tokens = std::exchange(held, {});  // that has no text
  }
}

void Telling::token(size_t request, const Event& token, std::vector<Out>& outs) {
  if (at_once_ || (!token.logprob && token.text.empty())) return;
  const size_t choice = request * static_cast<size_t>(ask_.choices) + token.choice;
  if (!ask_.dialog.reads()) {
    Out& out = outs.emplace_back(Out{choice, TextPiece{token.text}, {}});
    if (token.logprob) out.tokens.push_back({token.id, token.logprob, token.top});
    return;
  }
  Reading& reading = reading_of(choice);
  if (token.logprob) reading.held.push_back({token.id, token.logprob, token.top});
  tell(choice, reading.reader.push(token.text), reading.held, outs);
}

FinishReason Telling::tell_rest(size_t choice, FinishReason reason, std::vector<Out>& outs) {
  Reading& reading = reading_of(choice);
  const FinishReason ended = end_of(reading.reader, reason);
  tell(choice, reading.reader.finish(is_cut(ended)), reading.held, outs);
  if (!reading.held.empty()) outs.push_back({choice, TextPiece{}, std::move(reading.held)});
  readings_.erase(choice);
  return ended;
}

FinishReason Telling::tell_whole(size_t choice, const std::string& text, FinishReason reason, std::vector<Told> tokens,
                                 std::vector<Out>& outs) const {
  if (!ask_.dialog.reads()) {
    outs.push_back({choice, TextPiece{text}, std::move(tokens)});
    return reason;
  }
  AnswerReader reader = ask_.dialog.reader();
  tell(choice, reader.push(text), tokens, outs);
  const FinishReason ended = end_of(reader, reason);
  tell(choice, reader.finish(is_cut(ended)), tokens, outs);
  if (!tokens.empty()) outs.push_back({choice, TextPiece{}, std::move(tokens)});
  return ended;
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
    if (ask_.dialog.reads()) usage_.reasoning += reasoning_tokens(ask_.dialog, *impl_of(*ask_.by).text(), c.ids);
    FinishReason reason = c.reason;
    if (at_once_) {
      std::vector<Told> tokens = told_of_prompt(request, g);
      for (size_t i = 0; i < c.logprobs.size(); ++i)
        tokens.push_back({c.ids[i], c.logprobs[i].logprob, c.logprobs[i].top});
      reason = tell_whole(number, c.text, c.reason, std::move(tokens), outs);
    } else if (k > 0 && ask_.options.beams.value_or(1) > 1) {  // of which the best one is told as it comes
      reason = tell_whole(number, c.text, c.reason, {}, outs);
    } else if (ask_.dialog.reads()) {
      reason = tell_rest(number, c.reason, outs);
    }
    Ended end{reason, std::ssize(c.ids), reason == c.reason ? stop_string_of(ask_, c) : "", {}, g.seed};
    if (k == 0 && ask_.prompt_logprobs) end.prompt_logprobs = g.prompt_logprobs;
    outs.push_back({number, std::move(end), {}});
  }
}

}  // namespace situ::serve
