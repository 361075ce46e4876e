// The loop of a host around an export whose extents are all fixed (passes/window/fixed_window.h), in the naive mode. A
// step feeds the last W tokens, padded before the first one, and a mask with a one for each token so far, from the
// right. Then the rows of `present` that the next step does not compute again are moved into its past:
//
//   past = present[d : d + T - W], where the next step has d tokens that are new
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "passes/window/fixed_window.h"
#include "runtime/compile.h"

namespace situ {

// What the host keeps between steps.
struct FixedWindowSequence {
  std::map<ValueId, Tensor> present;  // by the past that it continues; none before the first step
  std::vector<int64_t> tokens;        // the last W ones, at most
  int64_t length = 0;
};

class FixedWindowLoop {
 public:
  static Result<std::unique_ptr<FixedWindowLoop>> create(const Graph& imported, const FixedWindow& window,
                                                         const InputNames& names, Evaluator& evaluator);
  const Compiled& compiled() const { return compiled_; }
  // Logits [1, W, vocabulary] of the last window. After an error the sequence is in the middle of the step.
  Result<Tensor> step(FixedWindowSequence& sequence, std::span<const int64_t> tokens, Evaluator& evaluator) const;

 private:
  FixedWindowLoop() = default;
  Result<Tensor> window(FixedWindowSequence& sequence, int64_t fresh, Evaluator& evaluator) const;
  Tensor past(const FixedWindow::State& state, const FixedWindowSequence& sequence, int64_t fresh,
              Evaluator& evaluator) const;

  FixedWindow window_;
  Compiled compiled_;
};

}  // namespace situ
