// Embeddings of what a call asks for: no JSON, no protocol.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "serve/ask.h"
#include "serve/refusal.h"

namespace situ {
class Job;
}

namespace situ::serve {

struct EmbedAsk {
  std::vector<TextPrompt> inputs;  // texts alone, or token ids alone
  EmbedOptions options;
};

struct Embedded {
  std::vector<std::vector<float>> rows;  // one for each input
  std::vector<size_t> cut;               // numbers of inputs that were longer than the model takes
  int64_t tokens = 0;                    // of all inputs
};

// Inputs on their way through the scheduler, where they wait, take turns and are computed as requests: a few at a time,
// so that those of other clients go between. One thread at a time.
class Embedding {
 public:
  // Makes tokens of the inputs. `stopped`: asked between them; true: the answer is not wanted any more. Null: it never
  // is.
  static OrRefusal<std::unique_ptr<Embedding>> read(Model& model, EmbedAsk ask, const std::function<bool()>& stopped);
  ~Embedding() { cancel(); }
  // What is not over ends, and is never ready.
  void cancel() noexcept;

  // Takes what is over, and has the next ones computed. Refusal: they cannot be.
  std::optional<Refusal> go_on();
  // Calls `ready` when what is being computed is over; see Job::on_ready.
  void on_ready(const std::function<void()>& ready);
  // Until that is so.
  void wait() const;
  // All of it is over.
  bool done() const;
  int64_t tokens() const { return tokens_; }  // of all inputs
  // Once it is done.
  Embedded take();

 private:
  struct State;
  explicit Embedding(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;  // what is computed refers to it
  std::shared_ptr<Job> job_;      // null: nothing is being computed
  size_t next_ = 0, count_ = 0;   // inputs of `job_`
  int64_t tokens_ = 0;
  bool begun_ = false;
};

}  // namespace situ::serve
