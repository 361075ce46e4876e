// Model::generate as something that is asked for the next token: a thread generates and hands tokens over through a
// short queue. The thread never needs the GIL. While the queue is full it leaves the model to others.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "python/model_handle.h"
#include "situ/model.h"

namespace situ::python {

class TokenStream {
 public:
  // `held`: what the arrays of the prompt point into; null: there are none.
  TokenStream(std::shared_ptr<ModelHandle> model, Prompt prompt, std::shared_ptr<const void> held,
              GenerateOptions options);
  ~TokenStream() { close(); }
  TokenStream(const TokenStream&) = delete;
  TokenStream& operator=(const TokenStream&) = delete;

  enum class Next { kToken, kEnd, kNotYet };
  // Takes the next token, waiting for it up to `patience`. kEnd: there are no more, and result() says why.
  Next next(Token& token, std::chrono::milliseconds patience);
  // Ends the generation, and waits for that: milliseconds. May be called again and by any thread.
  void close();
  // What generate() returned; nothing before it has.
  std::optional<Result<Generation>> result();

  const ModelHandle& model() const { return *model_; }

 private:
  void run();
  bool hand_over(const Token& token, ModelLock& model);

  // Tokens that may wait for the caller. The one after the next, so that computing does not wait for the caller to wake
  // up.
  static constexpr size_t kAhead = 2;

  const std::shared_ptr<ModelHandle> model_;
  const Prompt prompt_;
  const std::shared_ptr<const void> held_;
  const GenerateOptions options_;

  std::atomic<bool> interrupted_{false};
  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::deque<Token> queue_;
  bool closed_ = false;
  std::optional<Result<Generation>> result_;

  std::mutex join_mutex_;
  std::thread thread_;
};

// A stream as an object of Python. Destroyed with the GIL held, which it gives up meanwhile.
class PythonStream {
 public:
  PythonStream(const std::shared_ptr<ModelHandle>& model, Prompt prompt, std::shared_ptr<const void> held,
               GenerateOptions options)
      : stream_(std::make_unique<TokenStream>(model, std::move(prompt), std::move(held), std::move(options))) {}
  ~PythonStream() {
    nanobind::gil_scoped_release no_gil;
    // A fork does not have the thread: to join it, or to destroy the condition that it waits for, would take for ever.
    if (!stream_->model().in_this_process())
      static_cast<void>(stream_.release());
    else
      stream_.reset();
  }
  PythonStream(const PythonStream&) = delete;
  PythonStream& operator=(const PythonStream&) = delete;

  // Raises SituError in a fork. Needs the GIL.
  TokenStream& get() {
    stream_->model().check_process();
    return *stream_;
  }

 private:
  std::unique_ptr<TokenStream> stream_;
};

}  // namespace situ::python
