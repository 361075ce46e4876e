#include "serve/body_answer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace situ::serve {

BodyAnswer::BodyAnswer(Model& model, Asked asked, Envelope envelope)
    : model_(model), asked_(std::move(asked)), envelope_(std::move(envelope)) {
  if (asked_.stream) stream_.emplace(model_, asked_, envelope_);
}

BodyAnswer::~BodyAnswer() = default;

OrRefusal<std::unique_ptr<BodyAnswer>> BodyAnswer::begin(Model& model, Asked asked, Envelope envelope, bool interactive,
                                                         const std::string& client) {
  std::vector<Request> requests = std::move(asked.requests);
  asked.requests.clear();
  for (const Request& r : requests) {  // what is said of prompts later
    Request& kept = asked.requests.emplace_back();
    kept.prompt = Prompt(r.prompt.ids());
    kept.prompt.decoder_ids = r.prompt.decoder_ids;
    kept.options = r.options;
  }
  std::unique_ptr<BodyAnswer> answer(new BodyAnswer(model, std::move(asked), std::move(envelope)));
  for (Request& r : requests) {
    r.interactive = interactive;
    r.client = client;
    Result<Ticket> ticket = model.submit(std::move(r));
    if (!ticket.is_ok()) return refusal_of(answer->asked_, ticket.status());
    answer->tickets_.push_back(std::move(*ticket));
  }
  answer->begun_.resize(requests.size());
  answer->results_.resize(requests.size());
  return answer;
}

void BodyAnswer::on_ready(const std::function<void()>& ready) {
  for (Ticket& t : tickets_) t.on_ready(ready);
}

std::optional<Refusal> BodyAnswer::advance(const std::function<void(size_t)>& on_token,
                                           const std::function<void(const Json&)>& on_piece) {
  for (size_t i = 0; i < tickets_.size(); ++i)
    if (std::optional<Refusal> refusal = advance(i, on_token, on_piece)) return refusal;
  return std::nullopt;
}

std::optional<Refusal> BodyAnswer::advance(size_t i, const std::function<void(size_t)>& on_token,
                                           const std::function<void(const Json&)>& on_piece) {
  if (results_[i]) return std::nullopt;
  Ticket& ticket = tickets_[i];
  const auto begin = [&] {
    if (begun_[i]) return;
    begun_[i] = true;
    if (stream_)
      for (const Json& piece : stream_->begin(i)) on_piece(piece);
  };
  while (const std::optional<Event> token = ticket.poll()) {
    if (token->id >= 0) on_token(i * static_cast<size_t>(asked_.choices) + token->choice);
    begin();
    if (!stream_) continue;
    if (const std::optional<Json> piece = stream_->token(i, *token)) on_piece(*piece);
  }
  if (!ticket.ended()) return std::nullopt;
  Result<Generation> result = ticket.result();
  if (std::optional<Refusal> refusal = refusal_of(asked_, result)) return refusal;
  begin();
  results_[i] = std::move(*result);
  if (stream_)
    for (Json& piece : stream_->end(i, *results_[i])) last_.push_back(std::move(piece));
  return std::nullopt;
}

bool BodyAnswer::over() const {
  return std::all_of(results_.begin(), results_.end(), [](const auto& result) { return result.has_value(); });
}

Json BodyAnswer::whole() const {
  std::vector<Generation> results;
  for (const std::optional<Generation>& result : results_) results.push_back(*result);
  return answer_body(model_, asked_, envelope_, results);
}

std::vector<Json> BodyAnswer::last_pieces() {
  if (asked_.include_usage) last_.push_back(stream_->usage());
  if (!last_.empty()) asked_.ignored.tell(last_.back());
  return std::move(last_);
}

}  // namespace situ::serve
