#include "requests/constraint.h"

#include <chrono>
#include <ctime>
#include <thread>

#include "base/clock.h"

namespace situ {
namespace {

double thread_ms() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}

}  // namespace

Constraint::Constraint(Grammar grammar, SideThreads& beside)
    : look_(std::make_shared<Look>(std::move(grammar))), beside_(&beside) {
  look_ahead(std::nullopt);
}

void Constraint::Look::try_it(int expected_round) {
  int open = kOpen;
  if (round.load() != expected_round || !state.compare_exchange_strong(open, kClaimed)) return;
  const double before = thread_ms();
  if (status.is_ok()) find();
  ms = thread_ms() - before;
  all_ms += ms;
  if (status.is_ok() && all_ms > kMostMs + kMostMsPerToken * expected_round)
    status =
        Status::error(Code::kInvalidArgument, "the grammar took " + std::to_string(static_cast<int64_t>(all_ms)) +
                                                  " ms to say what may follow " + std::to_string(expected_round - 1) +
                                                  " tokens, which is more than an answer may take");
  state = kDone;
  state.notify_all();
}

void Constraint::Look::find() {
  if (token) status = grammar.append(*token);
  if (!status.is_ok()) return;
  const Result<std::span<const uint32_t>> allowed = grammar.allowed();
  if (!allowed.is_ok())
    status = allowed.status();
  else
    next = {*allowed, grammar.may_end(), grammar.must_end()};
}

bool Constraint::ready_soon() {
  constexpr std::chrono::milliseconds kPatience{10};
  constexpr std::chrono::microseconds kLook{50};
  if (look_->round > 1 && !slow()) look_->try_it(look_->round);  // the side thread may be at another one
  for (const Clock::time_point end = Clock::now() + kPatience; !ready() && Clock::now() < end;)
    std::this_thread::sleep_for(kLook);
  return ready();
}

Result<Constraint::Next> Constraint::next() {
  look_->try_it(look_->round);
  while (look_->state != Look::kDone) look_->state.wait(Look::kClaimed);
  if (!look_->status.is_ok()) return look_->status;
  return look_->next;
}

void Constraint::look_ahead(std::optional<int64_t> token) {
  while (look_->state != Look::kDone) look_->state.wait(Look::kClaimed);
  look_->token = token;
  const bool is_slow = slow();
  const int round = ++look_->round;
  look_->state = Look::kOpen;
  if (!(is_slow ? beside_->slow : beside_->quick).post([look = look_, round] { look->try_it(round); }))
    look_->try_it(round);  // there is no thread
}

}  // namespace situ
