#include "python/token_stream.h"

namespace situ::python {

TokenStream::TokenStream(std::shared_ptr<ModelHandle> model, Prompt prompt, std::shared_ptr<const void> held,
                         GenerateOptions options)
    : model_(std::move(model)),
      prompt_(std::move(prompt)),
      held_(std::move(held)),
      options_(std::move(options)),
      thread_([this] { run(); }) {}

void TokenStream::run() {
  ModelLock model = model_->lock(&interrupted_);
  Result<Generation> done =
      model_->model().generate(prompt_, options_, [&](const Token& t) { return hand_over(t, model); });
  model.unlock();
  const std::lock_guard guard(mutex_);
  result_.emplace(std::move(done));
  changed_.notify_all();
}

// Text alone (id -1) does not wait: with `echo` it comes while the model's logits are still to be read. There are two
// at most.
bool TokenStream::hand_over(const Token& token, ModelLock& model) {
  std::unique_lock guard(mutex_);
  if (closed_) return false;
  queue_.push_back(token);
  changed_.notify_all();
  if (token.id < 0 || queue_.size() < kAhead) return true;
  model.unlock();
  changed_.wait(guard, [&] { return closed_ || queue_.size() < kAhead; });
  const bool go_on = !closed_;
  guard.unlock();
  model = model_->lock(&interrupted_);
  return go_on;
}

TokenStream::Next TokenStream::next(Token& token, std::chrono::milliseconds patience) {
  std::unique_lock guard(mutex_);
  changed_.wait_for(guard, patience, [&] { return closed_ || !queue_.empty() || result_; });
  if (closed_) return Next::kEnd;
  if (queue_.empty()) return result_ ? Next::kEnd : Next::kNotYet;
  token = std::move(queue_.front());
  queue_.pop_front();
  changed_.notify_all();
  return Next::kToken;
}

void TokenStream::close() {
  {
    const std::lock_guard guard(mutex_);
    closed_ = interrupted_ = true;
    queue_.clear();
    changed_.notify_all();
  }
  const std::lock_guard guard(join_mutex_);
  if (thread_.joinable()) thread_.join();
}

std::optional<Result<Generation>> TokenStream::result() {
  const std::lock_guard guard(mutex_);
  return result_;
}

}  // namespace situ::python
