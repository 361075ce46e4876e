// The requests of a body on their way: tickets of the scheduler on one side, the pieces of an answer on the other.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

#include "serve/protocol.h"
#include "serve/requests.h"
#include "serve/telling.h"

namespace situ::serve {

class BodyAnswer {
 public:
  // Submits `requests`, those of `ask`. Refusal: one is refused; nothing of them goes on.
  static OrRefusal<std::unique_ptr<BodyAnswer>> begin(Model& model, const Protocol& protocol, Ask ask,
                                                      std::vector<Request> requests, Envelope envelope);
  ~BodyAnswer();
  // Calls `ready` whenever there may be something to advance, as Ticket::on_ready.
  void on_ready(const std::function<void()>& ready);

  // Of a stream, before all others.
  std::vector<Piece> first_pieces();
  // Takes what came meanwhile. `on_token`: for each token, with the number of its choice, as Out has it; `pieces`: gets
  // those of a stream but the last ones. Refusal: the whole answer has failed.
  std::optional<Refusal> advance(const std::function<void(size_t choice)>& on_token, std::vector<Piece>& pieces);
  // Whether all requests are over: whole() and last_pieces() are there.
  bool over() const;
  Json whole(const std::optional<Timings>& timings) const;
  // With finish reasons, then usage where it is asked for.
  std::vector<Piece> last_pieces(const std::optional<Timings>& timings);
  // Of a stream that ends with an error.
  std::vector<Piece> refusal_pieces(const Refusal& refusal);

  const Ask& ask() const { return ask_; }
  const Protocol& protocol() const { return protocol_; }
  // Of the requests that are over; none: it is not.
  const std::vector<std::optional<Generation>>& results() const { return results_; }
  // Ends what runs.
  void cancel() { tickets_.clear(); }

 private:
  BodyAnswer(Model& model, const Protocol& protocol, Ask ask, Envelope envelope);
  std::optional<Refusal> advance(size_t request, const std::function<void(size_t)>& on_token, std::vector<Out>& outs);

  Model& model_;
  const Protocol& protocol_;
  const Ask ask_;
  Envelope envelope_;
  Telling telling_;
  std::unique_ptr<Writer> writer_;  // null: it is no stream
  std::vector<Ticket> tickets_;
  std::vector<bool> begun_;
  std::vector<std::optional<Generation>> results_;
  std::vector<Out> last_;
};

// The whole answer of requests that are over; none of them has failed.
Json whole_of(const Model& model, const Protocol& protocol, const Ask& ask, const Envelope& envelope,
              std::span<const std::optional<Generation>> results, const std::optional<Timings>& timings = {});

}  // namespace situ::serve
