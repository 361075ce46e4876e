#include "requests/policy.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

namespace situ {

// Least squares over steps whose weights fall by a fiftieth from one to the next.
void StepCost::learn(double ms, int64_t answers, int64_t rows) {
  constexpr double kKept = 0.98;
  const std::array<double, 3> x{1, static_cast<double>(answers), static_cast<double>(rows)};
  for (size_t i = 0; i < 3; ++i) {
    for (size_t j = 0; j < 3; ++j) products_[i][j] = kKept * products_[i][j] + x[i] * x[j];
    sums_[i] = kKept * sums_[i] + x[i] * ms;
  }
  solve();
}

// Coordinate descent, from the last fit on: parts that would be negative are 0, and one of which no step says anything
// stays what it is. What steps do not tell apart goes to rows first, then to answers.
void StepCost::solve() {
  constexpr int kRounds = 32;
  for (int round = 0; round < kRounds; ++round)
    for (const size_t i : {size_t{2}, size_t{1}, size_t{0}}) {
      if (products_[i][i] <= 0) continue;
      double rest = sums_[i];
      for (size_t j = 0; j < 3; ++j)
        if (j != i) rest -= products_[i][j] * fit_[j];
      fit_[i] = std::max(0.0, rest / products_[i][i]);
    }
}

static int64_t highest_of(std::span<const Policy::Waiting> waiting) {
  int64_t highest = INT64_MIN;
  for (const Policy::Waiting& w : waiting) highest = std::max<int64_t>(highest, w.priority);
  return highest;
}

int64_t Policy::level(const Waiting& w, std::span<const Waiting> waiting) {
  return std::min(highest_of(waiting), w.priority + w.seconds);
}

size_t Policy::next(std::span<const Waiting> waiting) { return next(waiting, std::vector<bool>(waiting.size())); }

size_t Policy::choose(std::span<Waiting> waiting, const std::function<bool(size_t)>& fits) {
  std::vector<bool> passed(waiting.size());
  for (int64_t asked = 0;; ++asked) {
    const size_t chosen = next(waiting, passed);
    if (chosen == waiting.size()) return chosen;
    if (fits(chosen)) {
      for (size_t i = 0; i < passed.size(); ++i)
        if (passed[i]) ++waiting[i].passed;
      waiting[chosen].passed = 0;
      return chosen;
    }
    if (waiting[chosen].passed >= kMostPassed || asked == kMostAsked) return waiting.size();
    passed[chosen] = true;
  }
}

size_t Policy::next(std::span<const Waiting> waiting, const std::vector<bool>& passed) {
  constexpr size_t kMostClients = 4096;  // that are remembered; all begin anew then
  if (turns_.size() >= kMostClients) turns_.clear();
  const int64_t highest = highest_of(waiting);
  const auto rank = [&](const Waiting& w) {
    return std::tuple(-std::min(highest, w.priority + w.seconds), turns_.try_emplace(w.client, turn_).first->second,
                      !w.preempted, w.number);
  };
  size_t best = waiting.size();
  for (size_t i = 0; i < waiting.size(); ++i)
    if (!passed[i] && (best == waiting.size() || rank(waiting[i]) < rank(waiting[best]))) best = i;
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

std::vector<int64_t> Policy::share(std::span<const Reading> prompts, int64_t room) {
  std::vector<int64_t> rows(prompts.size());
  std::vector<size_t> order(prompts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto give = [&](size_t i, int64_t most) {
    const int64_t more = std::min(most, prompts[i].left - rows[i]);
    rows[i] += more;
    room -= more;
  };
  const auto first = std::min_element(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::tuple(-prompts[a].priority, prompts[a].number) < std::tuple(-prompts[b].priority, prompts[b].number);
  });
  if (first != order.end()) give(*first, (room + 1) / 2);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::tuple(-prompts[a].priority, prompts[a].left, prompts[a].number) <
           std::tuple(-prompts[b].priority, prompts[b].left, prompts[b].number);
  });
  for (const size_t i : order) give(i, room);
  return rows;
}

size_t Policy::one_of(std::span<const Reading> prompts) {
  const bool first = read_++ % 2 == 0;
  const auto rank = [&](const Reading& p) { return std::tuple(-p.priority, first ? int64_t{0} : p.left, p.number); };
  const auto best = std::min_element(prompts.begin(), prompts.end(),
                                     [&](const Reading& a, const Reading& b) { return rank(a) < rank(b); });
  return static_cast<size_t>(best - prompts.begin());
}

double Policy::room_ms(int64_t answers, const Budget& budget) const {
  const double own = cost.answers_ms(answers), grown = std::min(kLongestMs, kShortMs * budget.backlog_ms / kBacklogMs);
  return std::max({kShortMs, 2 * own, grown}) - own - budget.spent_ms;
}

int64_t Policy::prompt_rows(int64_t answers, int64_t most, const Budget& budget) const {
  if (!budget.interactive) return most;
  if (budget.later) return 0;
  const int64_t least = budget.fed ? 0 : 1;
  if (cost.row_ms() <= 0) return std::min(most, kFirstRows * least);
  const auto rows = static_cast<int64_t>(std::max(0.0, room_ms(answers, budget)) / cost.row_ms());
  return std::clamp(rows, std::min(most, least), most);
}

double Policy::encoder_ms(int64_t answers, const Budget& budget) const {
  return budget.interactive ? std::max(0.0, room_ms(answers, budget) / 2) : kLongMs;
}

}  // namespace situ
