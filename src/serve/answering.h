// An answer on its way: tickets of the scheduler on one side, a client on the other.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "serve/body_answer.h"
#include "serve/call.h"
#include "serve/metrics.h"

namespace situ::serve {

// What of a server an answer needs.
class Client {
 public:
  virtual void respond(Call& call, int status, const Json& body) = 0;
  virtual void respond_json(Call& call, int status, std::string_view body) = 0;
  virtual void refuse_call(Call& call, const Refusal& refusal) = 0;
  virtual bool begin_events(Call& call) = 0;
  // False: the client is gone, or does not read.
  virtual bool send(Call& call, std::string_view bytes) = 0;
  virtual void end(Call& call) = 0;
  virtual void wake(Call& call) noexcept = 0;  // any thread
  virtual Metrics& metrics() = 0;

 protected:
  ~Client() = default;
};

// What is computed for a call, by the answers' thread.
class Underway {
 public:
  virtual ~Underway() = default;
  // What came meanwhile goes to the client.
  virtual void advance() = 0;
  // Ends with an error.
  virtual void fail(const Refusal& refusal) = 0;
  // Ends without a word: the client has been told, or is cut off.
  virtual void give_up() noexcept = 0;
  virtual bool ended() const = 0;
  // When something was last sent; none: it is no stream.
  virtual std::optional<Clock::time_point> silent_since() const = 0;
  virtual void ping() = 0;
  // Counts what has been said so far, for the log.
  virtual void account() = 0;
};

class Answering final : public Underway {
 public:
  // Submits what was asked for. Refusal: it is refused; nothing of it goes on.
  static OrRefusal<std::unique_ptr<Answering>> begin(Client& client, Call& call, Model& model, Ask ask,
                                                     std::vector<Request> requests);
  // The client is woken whenever there is something to advance.
  void follow();
  ~Answering() override;

  void advance() override;
  void fail(const Refusal& refusal) override;
  void give_up() noexcept override;
  bool ended() const override { return ended_; }
  std::optional<Clock::time_point> silent_since() const override;
  void ping() override;
  void account() override;

 private:
  Answering(Client& client, Call& call, std::unique_ptr<BodyAnswer> answer);
  bool streams() const { return answer_->ask().stream; }
  void note_token(size_t choice);
  void complete();
  void add(const std::vector<Piece>& pieces);
  void flush();
  Timings timings() const;

  Client& client_;
  Call& call_;
  const std::unique_ptr<BodyAnswer> answer_;
  std::vector<std::optional<Clock::time_point>> last_tokens_;  // by choice, of all requests
  std::string pending_;                                        // events that are not sent
  bool ended_ = false;
  Clock::time_point submitted_, sent_;
};

}  // namespace situ::serve
