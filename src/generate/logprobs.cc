#include "generate/logprobs.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "generate/call_kernel.h"
#include "generate/greedy.h"
#include "generate/selection.h"

namespace situ {
namespace {

// By the kernel: 49,152 exponentials of the standard library take 0.25 ms.
void run_softmax(std::span<const float> logits, std::span<float> to, bool log) {
  const View x = row_view(logits.data(), static_cast<int64_t>(logits.size()));
  const View y = row_view(to.data(), static_cast<int64_t>(to.size()));
  const SoftmaxParams params{0, false, log};
  call_kernel(kernels().softmax, x, {&y, 1}, &params);
}

}  // namespace

void LogProbabilities::read(std::span<const float> logits) {
  logits_ = logits;
  const auto best = logits.empty() ? 0 : static_cast<size_t>(argmax(logits));
  const float largest = logits.empty() ? -std::numeric_limits<float>::infinity() : logits[best];
  max_ = largest == largest ? largest : -std::numeric_limits<float>::infinity();
  if (std::isfinite(max_)) {
    scratch_.resize(logits.size());
    run_softmax(logits, scratch_, false);
    log_sum_ = -std::log(static_cast<double>(scratch_[best]));
    if (log_sum_ == log_sum_) return;  // all are numbers
  }
  double sum = 0;
  for (const float x : logits) sum += x == max_ ? 1.0f : x == x ? std::exp(x - max_) : 0.0f;
  log_sum_ = std::log(sum);
}

double LogProbabilities::of(int64_t id) const {
  const float x = logits_[static_cast<size_t>(id)];
  if (max_ == -std::numeric_limits<float>::infinity())
    return -static_cast<double>(std::numeric_limits<float>::infinity());  // there is no probability to share
  if (x == max_) return -log_sum_;                                        // the largest may be infinite
  return x == x ? static_cast<double>(x) - static_cast<double>(max_) - log_sum_
                : -static_cast<double>(std::numeric_limits<float>::infinity());
}

float exp_terms(std::span<const float> logits, float largest, float temperature, std::span<float> to) {
  float sum = 0;
  const View x = row_view(logits.data(), std::ssize(logits)),
             y[2] = {row_view(to.data(), std::ssize(to)), row_view(&sum, 1)};
  const ExpTermsParams params{temperature, largest};
  call_kernel(kernels().exp_terms, x, y, &params);
  return sum;
}

bool log_softmax(std::span<const float> logits, std::span<float> to) {
  run_softmax(logits, to, true);
  if (to.empty() || to[0] == to[0]) return true;  // a sum that is no number makes all of them none
  LogProbabilities exact;
  exact.read(logits);
  for (size_t i = 0; i < logits.size(); ++i) to[i] = static_cast<float>(exact.of(static_cast<int64_t>(i)));
  return false;
}

std::vector<LogProbabilities::Entry> LogProbabilities::top(int64_t count) {
  std::vector<Entry> found;
  const size_t k = std::min(static_cast<size_t>(count), logits_.size());
  if (k == 0 || max_ == -std::numeric_limits<float>::infinity()) return found;
  const float least = std::max(kth_largest(logits_, k, scratch_), std::numeric_limits<float>::lowest());
  for (size_t i = 0; i < logits_.size(); ++i)
    if (logits_[i] >= least) found.push_back({static_cast<int64_t>(i), of(static_cast<int64_t>(i))});
  std::stable_sort(found.begin(), found.end(), [](const Entry& a, const Entry& b) { return a.logprob > b.logprob; });
  if (found.size() > k) found.resize(k);
  return found;
}

}  // namespace situ
