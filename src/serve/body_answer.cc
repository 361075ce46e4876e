#include "serve/body_answer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace situ::serve {

BodyAnswer::BodyAnswer(Model& model, const Protocol& protocol, Ask ask, Envelope envelope)
    : model_(model),
      protocol_(protocol),
      ask_(std::move(ask)),
      envelope_(std::move(envelope)),
      telling_(ask_, ask_.stream) {}

BodyAnswer::~BodyAnswer() = default;

OrRefusal<std::unique_ptr<BodyAnswer>> BodyAnswer::begin(Model& model, const Protocol& protocol, Ask ask,
                                                         std::vector<Request> requests, Envelope envelope) {
  std::unique_ptr<BodyAnswer> answer(new BodyAnswer(model, protocol, std::move(ask), std::move(envelope)));
  for (Request& r : requests) {
    Result<Ticket> ticket = model.submit(std::move(r));
    if (!ticket.is_ok()) return refusal_of(answer->ask_, ticket.status());
    answer->tickets_.push_back(std::move(*ticket));
  }
  if (!answer->tickets_.empty()) answer->envelope_.request = answer->tickets_[0].number();
  if (answer->ask_.stream) answer->writer_ = protocol.writer(model, answer->ask_, answer->envelope_);
  answer->begun_.resize(requests.size());
  answer->results_.resize(requests.size());
  return answer;
}

void BodyAnswer::on_ready(const std::function<void()>& ready) {
  for (Ticket& t : tickets_) t.on_ready(ready);
}

std::vector<Piece> BodyAnswer::first_pieces() {
  std::vector<Piece> pieces;
  writer_->open(pieces);
  return pieces;
}

std::optional<Refusal> BodyAnswer::advance(const std::function<void(size_t)>& on_token, std::vector<Piece>& pieces) {
  std::vector<Out> outs;
  std::optional<Refusal> refusal;
  for (size_t i = 0; i < tickets_.size() && !refusal; ++i) refusal = advance(i, on_token, outs);
  if (writer_)
    for (const Out& out : outs) writer_->put(out, pieces);
  return refusal;
}

std::optional<Refusal> BodyAnswer::advance(size_t i, const std::function<void(size_t)>& on_token,
                                           std::vector<Out>& outs) {
  if (results_[i]) return std::nullopt;
  Ticket& ticket = tickets_[i];
  const auto begin = [&] {
    if (!begun_[i] && writer_) telling_.begin(i, outs);
    begun_[i] = true;
  };
  while (const std::optional<Event> token = ticket.poll()) {
    if (token->id >= 0) on_token(i * static_cast<size_t>(ask_.choices) + token->choice);
    begin();
    if (writer_) telling_.event(i, *token, outs);
  }
  if (!ticket.ended()) return std::nullopt;
  Result<Generation> result = ticket.result();
  if (std::optional<Refusal> refusal = refusal_of(ask_, result)) return refusal;
  begin();
  results_[i] = std::move(*result);
  if (writer_) telling_.end(i, *results_[i], last_);
  return std::nullopt;
}

bool BodyAnswer::over() const {
  return std::all_of(results_.begin(), results_.end(), [](const auto& result) { return result.has_value(); });
}

Json BodyAnswer::whole(const std::optional<Timings>& timings) const {
  return whole_of(model_, protocol_, ask_, envelope_, results_, timings);
}

std::vector<Piece> BodyAnswer::last_pieces(const std::optional<Timings>& timings) {
  std::vector<Piece> pieces;
  for (const Out& out : last_) writer_->put(out, pieces);
  Finished finished = telling_.finished();
  finished.timings = timings;
  writer_->put({0, std::move(finished), {}}, pieces);
  return pieces;
}

std::vector<Piece> BodyAnswer::refusal_pieces(const Refusal& refusal) {
  std::vector<Piece> pieces;
  writer_->put({0, refusal, {}}, pieces);
  return pieces;
}

Json whole_of(const Model& model, const Protocol& protocol, const Ask& ask, const Envelope& envelope,
              std::span<const std::optional<Generation>> results, const std::optional<Timings>& timings) {
  Telling telling(ask, false);
  std::vector<Out> outs;
  for (size_t i = 0; i < results.size(); ++i) telling.end(i, *results[i], outs);
  WholeAnswer answer;
  for (const Out& out : outs) answer.put(out);
  answer.finished = telling.finished();
  answer.finished.timings = timings;
  return protocol.whole(model, ask, envelope, answer);
}

}  // namespace situ::serve
