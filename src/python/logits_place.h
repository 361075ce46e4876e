// Where the logits of a step go: memory of its sessions, not of the model, so that only their own next step writes
// there, whatever other sessions, streams and threads do meanwhile.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace situ::python {

// One row of a place [sessions of a step, vocabulary]. A session has the row of its last step, and so have the arrays
// that show it, which may outlive the session.
class LogitsRow {
 public:
  using Rows = std::vector<std::shared_ptr<LogitsRow>>;

  // The rows of a place for the next step of as many sessions. `held`: those of their last steps, or null. They stay
  // where they are if they are a whole place in this order: no other session has a row there.
  static Rows for_step(const Rows& held, size_t vocabulary) {
    bool whole = !held.empty() && held[0] && held[0]->place_->size() == held.size() * vocabulary;
    for (size_t i = 0; i < held.size() && whole; ++i)
      whole = held[i] && held[i]->place_ == held[0]->place_ && held[i]->number_ == i;
    if (whole) return held;
    const auto place = std::make_shared<std::vector<float>>(held.size() * vocabulary);
    Rows rows;
    for (size_t i = 0; i < held.size(); ++i) rows.push_back(std::make_shared<LogitsRow>(place, i));
    return rows;
  }
  // The place of the rows of a step.
  static std::span<float> place_of(const Rows& rows) {
    return rows.empty() ? std::span<float>() : std::span<float>(*rows[0]->place_);
  }

  LogitsRow(std::shared_ptr<std::vector<float>> place, size_t number) : place_(std::move(place)), number_(number) {}

 private:
  std::shared_ptr<std::vector<float>> place_;
  size_t number_;
};

}  // namespace situ::python
