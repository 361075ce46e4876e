// The requests of a body on their way: tickets of the scheduler on one side, the pieces of an answer on the other.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "serve/bodies.h"

namespace situ::serve {

class BodyAnswer {
 public:
  // Submits what was asked for. `interactive`, `client`: see Request. Refusal: it is refused; nothing of it goes on.
  static OrRefusal<std::unique_ptr<BodyAnswer>> begin(Model& model, Asked asked, Envelope envelope, bool interactive,
                                                      const std::string& client);
  ~BodyAnswer();
  // Calls `ready` whenever there may be something to advance, as Ticket::on_ready.
  void on_ready(const std::function<void()>& ready);

  // Takes what came meanwhile. `on_token`: for each token, with the number of its choice, as BodyStream counts them;
  // `on_piece`: for each piece of a stream but the last ones. Refusal: the whole answer has failed.
  std::optional<Refusal> advance(const std::function<void(size_t choice)>& on_token,
                                 const std::function<void(const Json&)>& on_piece);
  // Whether all requests are over: whole() and last_pieces() are there.
  bool over() const;
  Json whole() const;
  // With finish reasons, then usage where it is asked for.
  std::vector<Json> last_pieces();

  const Asked& asked() const { return asked_; }
  // Of the requests that are over; none: it is not.
  const std::vector<std::optional<Generation>>& results() const { return results_; }
  // Ends what runs.
  void cancel() { tickets_.clear(); }

 private:
  BodyAnswer(Model& model, Asked asked, Envelope envelope);
  std::optional<Refusal> advance(size_t request, const std::function<void(size_t)>& on_token,
                                 const std::function<void(const Json&)>& on_piece);

  Model& model_;
  const Asked asked_;
  const Envelope envelope_;
  std::optional<BodyStream> stream_;
  std::vector<Ticket> tickets_;
  std::vector<bool> begun_;
  std::vector<std::optional<Generation>> results_;
  std::vector<Json> last_;
};

}  // namespace situ::serve
