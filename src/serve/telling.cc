#include "serve/telling.h"

#include <algorithm>
#include <utility>

namespace situ::serve {
namespace {

std::vector<Generation::Answer> choices_of(const Generation& g) {
  if (!g.answers.empty()) return g.answers;
  return {{g.output_ids, g.text, g.finish_reason, 0, g.logprobs, g.error, g.reasoning, g.tool_calls, g.reasoning_tokens,
           g.stop_string}};
}

std::vector<TokenLogprob> first_of(const std::vector<TokenLogprob>& top, int64_t count) {
  return {top.begin(), top.begin() + std::min<int64_t>(count, std::ssize(top))};
}

}  // namespace

// What a prompt's tokens are like is known at the end only, and stands in front.
Telling::Telling(const Ask& ask, bool in_pieces) : ask_(ask), at_once_(!in_pieces || (ask.echo && ask.logprobs)) {}

void Telling::begin(size_t request, std::vector<Out>& outs) const {
  const auto choices = static_cast<size_t>(ask_.choices);
  for (size_t k = 0; k < choices; ++k) outs.push_back({request * choices + k, Begun{ask_.prompts[request].tokens}, {}});
}

void Telling::event(size_t request, const Event& event, std::vector<Out>& outs) {
  if (at_once_) return;
  const size_t choice = request * static_cast<size_t>(ask_.choices) + event.choice;
  if (event.logprob) held_[choice].push_back({event.id, event.logprob, event.top});
  tell(choice, event, outs);
}

// What a token of a conversation says may come with a later one: then it is told with that.
void Telling::tell(size_t choice, const Event& said, std::vector<Out>& outs) {
  std::vector<Told>& held = held_[choice];
  const auto put = [&](auto what) { outs.push_back({choice, std::move(what), std::exchange(held, {})}); };
  if (!said.reasoning.empty()) put(ReasoningPiece{said.reasoning});
  if (!said.text.empty()) put(TextPiece{said.text});
  for (const CallPiece& call : said.calls) {
    if (!call.id.empty()) put(CallBegun{call.call, call.name});
    if (!call.arguments_json.empty()) put(ArgumentsPiece{call.call, call.arguments_json});
    if (call.ended) outs.push_back({choice, CallEnded{call.call}, {}});
  }
  if (!held.empty() && (!ask_.dialog.reads() || said.finish != FinishReason::kNone)) put(TextPiece{});
}

void Telling::tell_whole(size_t choice, const Generation::Answer& answer, std::vector<Out>& outs) {
  Event all{-1, answer.text};
  all.finish = answer.finish_reason;
  all.reasoning = answer.reasoning;
  for (const ToolCall& call : answer.tool_calls)
    all.calls.push_back({all.calls.size(), call.id, call.name, call.arguments_json, true});
  tell(choice, all, outs);
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
  const std::vector<Generation::Answer> choices = choices_of(g);
  for (size_t k = 0; k < choices.size(); ++k) {
    const Generation::Answer& c = choices[k];
    const size_t number = request * static_cast<size_t>(ask_.choices) + k;
    usage_.answer += std::ssize(c.output_ids);
    usage_.reasoning += c.reasoning_tokens;
    if (at_once_) {
      std::vector<Told>& tokens = held_[number] = told_of_prompt(request, g);
      for (size_t i = 0; i < c.logprobs.size(); ++i)
        tokens.push_back({c.output_ids[i], c.logprobs[i].logprob, c.logprobs[i].top});
    }
    // Of beams the best one is told as it comes.
    if (at_once_ || (k > 0 && ask_.options.beams.value_or(1) > 1)) tell_whole(number, c, outs);
    Ended end{c.finish_reason, std::ssize(c.output_ids), c.stop_string, {}, g.seed};
    if (k == 0 && ask_.prompt_logprobs) end.prompt_logprobs = g.prompt_logprobs;
    outs.push_back({number, std::move(end), {}});
  }
}

}  // namespace situ::serve
