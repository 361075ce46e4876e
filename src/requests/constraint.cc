#include "requests/constraint.h"

namespace situ {

Constraint::Constraint(Grammar grammar, SideThread& beside)
    : look_(std::make_shared<Look>(std::move(grammar))), beside_(&beside) {
  look_ahead(std::nullopt);
}

void Constraint::Look::try_it(int expected_round) {
  int open = kOpen;
  if (round.load() != expected_round || !state.compare_exchange_strong(open, kClaimed)) return;
  if (token && status.is_ok()) status = grammar.append(*token);
  if (status.is_ok()) {
    const Result<std::span<const uint32_t>> allowed = grammar.allowed();
    if (!allowed.is_ok())
      status = allowed.status();
    else
      next = {*allowed, grammar.may_end(), grammar.must_end()};
  }
  state = kDone;
  state.notify_all();
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
  const int round = ++look_->round;
  look_->state = Look::kOpen;
  beside_->post([look = look_, round] { look->try_it(round); });
}

}  // namespace situ
