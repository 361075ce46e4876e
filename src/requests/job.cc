#include "requests/job.h"

#include <exception>
#include <string>
#include <utility>

namespace situ {

std::optional<Event> Job::next(std::chrono::milliseconds patience) {
  std::unique_lock held(mutex_);
  if (tokens_.empty() && !result_ && patience.count() > 0) {
    ++wait_token_;
    changed_.wait_for(held, patience, [&] { return !tokens_.empty() || result_; });
    --wait_token_;
  }
  if (tokens_.empty()) return std::nullopt;
  Event token = std::move(tokens_.front());
  tokens_.pop_front();
  return token;
}

bool Job::ended() const {
  const std::lock_guard held(mutex_);
  return tokens_.empty() && result_.has_value();
}

bool Job::wait(std::chrono::milliseconds patience) {
  std::unique_lock held(mutex_);
  ++wait_end_;
  changed_.wait_for(held, patience, [&] { return result_.has_value(); });
  --wait_end_;
  return result_.has_value();
}

Result<Generation> Job::result() {
  while (!wait(std::chrono::hours(24))) {
  }
  return *result_;
}

// What the former one holds, be it the last copy of the model, goes where nothing is locked.
void Job::on_ready(std::function<void()> ready) {
  std::function<void()> former;
  const std::lock_guard held(mutex_);
  former = std::exchange(ready_, std::move(ready));
  if (ready_ && (!tokens_.empty() || result_)) ready_();
}

// After the end there may be no scheduler any more.
void Job::cancel() {
  const std::lock_guard held(mutex_);
  if (!result_ && !cancelled_.exchange(true) && on_cancel) on_cancel();
}

// Who waits for the end alone is not woken for tokens.
void Job::tell(bool end) {
  const auto fail = [&](const std::string& what) {
    thrown_ = Status::error("the callback of on_ready threw" + what);
    cancelled_ = true;
    if (result_) result_.emplace(thrown_);
  };
  if (ready_ && thrown_.is_ok()) try {  // what it throws ends its own request
      ready_();
    } catch (const std::exception& e) {
      fail(std::string(": ") + e.what());
    } catch (...) {
      fail("");
    }
  if (wait_token_ > 0 || (end && wait_end_ > 0)) changed_.notify_all();
}

void Job::deliver(std::vector<Event> tokens) {
  const std::lock_guard held(mutex_);
  for (Event& t : tokens) tokens_.push_back(std::move(t));
  tell(false);
}

void Job::finish(Result<Generation> result) {
  const std::lock_guard held(mutex_);
  result_.emplace(thrown_.is_ok() ? std::move(result) : thrown_);
  tell(true);
}

}  // namespace situ
