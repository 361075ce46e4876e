#include "generate/likelihood.h"

#include <system_error>

#include "generate/logprobs.h"

namespace situ {

LikelihoodMeter::LikelihoodMeter(bool beside) {
  if (!beside) return;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {  // the system has no thread left: tokens are read as they come
  }
}

LikelihoodMeter::~LikelihoodMeter() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void LikelihoodMeter::begin_step() {
  wait_for(of_last_step_);
  of_last_step_ = added_;
}

void LikelihoodMeter::add(std::span<const float> logits, int64_t id) {
  ++added_;
  if (!thread_.joinable()) return read({logits, id});
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back({logits, id});
  }
  changed_.notify_all();
}

LikelihoodMeter::Sum LikelihoodMeter::sum() {
  wait_for(added_);
  return sum_;
}

void LikelihoodMeter::wait_for(size_t jobs) {
  if (!thread_.joinable()) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return read_ >= jobs; });
}

void LikelihoodMeter::run() {
  std::vector<Job> taken;
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ended_ || !jobs_.empty(); });
    if (ended_) return;
    taken.swap(jobs_);
    lock.unlock();
    for (const Job& job : taken) read(job);
    lock.lock();
    read_ += taken.size();
    taken.clear();
    changed_.notify_all();
  }
}

void LikelihoodMeter::read(const Job& job) {
  scratch_.resize(job.logits.size());
  log_softmax(job.logits, scratch_);
  sum_.nll -= scratch_[static_cast<size_t>(job.id)];
  ++sum_.tokens;
}

}  // namespace situ
