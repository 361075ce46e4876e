#include "requests/policy.h"

#include <algorithm>
#include <tuple>

namespace situ {

size_t Policy::next(std::span<const Waiting> waiting) {
  constexpr size_t kMostClients = 4096;  // that are remembered; all begin anew then
  if (turns_.size() >= kMostClients) turns_.clear();
  const auto rank = [&](const Waiting& w) {
    return std::tuple(-static_cast<int64_t>(w.priority), turns_.try_emplace(w.client, turn_).first->second,
                      !w.preempted, w.number);
  };
  size_t best = 0;
  for (size_t i = 1; i < waiting.size(); ++i)
    if (rank(waiting[i]) < rank(waiting[best])) best = i;
  return best;
}

void Policy::admitted(const Waiting& request) { turns_[request.client] = ++turn_; }

int64_t Policy::victim(std::span<const Running> running) {
  int64_t found = -1;
  for (size_t i = 0; i < running.size(); ++i) {
    if (!running[i].may_give_way) continue;
    const Running* best = found < 0 ? nullptr : &running[static_cast<size_t>(found)];
    if (!best || running[i].priority < best->priority ||
        (running[i].priority == best->priority && running[i].number > best->number))
      found = static_cast<int64_t>(i);
  }
  return found;
}

int64_t Policy::prompt_rows(bool answers, bool interactive, int64_t most, double spent_ms) const {
  if (!answers || !interactive) return most;
  if (row_ms_ <= 0) return std::min(most, kLeastRows);
  const double rows = std::max(0.0, room_ms() - spent_ms) / row_ms_;
  return std::clamp(static_cast<int64_t>(rows), std::min(most, kLeastRows), most);
}

double Policy::encoder_ms(bool interactive) const {
  return interactive ? std::max(0.0, room_ms() - kLeastRows * row_ms_) : kLongMs;
}

void Policy::learn(double ms, int64_t answer_rows, int64_t prompt_rows) {
  // Averages of some ten steps. A row costs more beside few others: what is learnt follows what is done.
  constexpr double kNew = 0.1;
  const auto follow = [](double& known, double now) { known = known > 0 ? known + kNew * (now - known) : now; };
  if (prompt_rows == 0) {
    if (answer_rows > 0) follow(decode_ms_, ms);
    return;
  }
  const double spent = answer_rows > 0 ? ms - decode_ms_ : ms;
  if (spent > 0) follow(row_ms_, spent / static_cast<double>(prompt_rows));
}

}  // namespace situ
