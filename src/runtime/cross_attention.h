// What tokens look at in their source: the weights of chosen heads of cross-attention. A program beside those of the
// engine, made when it is first asked for: the queries of its attention stay until the step's end, and the weights are
// computed from them and from the keys in the source space. Other steps pay nothing.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "runtime/compile.h"
#include "runtime/program.h"

namespace situ {

struct AttentionHead {
  int64_t layer = 0, head = 0;  // of the decoder's layers that attend to the source, from 0 on
};

class CrossAttention {
 public:
  // `compiled`: of prompts. All must outlive it. Error: attention to the source was not recognised.
  static Result<std::unique_ptr<CrossAttention>> create(const Compiled& compiled, const PlanBounds& bounds,
                                                        const StatePool& states, Executor& executor);

  int64_t layers() const { return static_cast<int64_t>(calls_.size()); }
  int64_t heads() const { return heads_; }  // of a layer
  // One step of the tokens of a segment with a source, no more than the bounds. What the segment refers to stays until
  // its end, or until the next begin(). Errors: a head that is not there; those of Program::run.
  Status begin(const Segment& segment, std::span<const AttentionHead> heads, Ledger& ledger);
  // Goes on until about then, at least to the next barrier, or by a head. True: take_weights() has the weights [heads,
  // tokens, source rows] by softmax.
  Result<bool> go_on(Clock::time_point until, Ledger& ledger);
  std::vector<float> take_weights() { return std::move(weights_); }

 private:
  CrossAttention() = default;
  Status add_weights(const AttentionHead& head, Ledger& ledger);
  Binding binding_;
  Plan plan_;
  ReservedMemory memory_;
  std::unique_ptr<Program> program_;
  struct LayerCall {
    int call;
    float scale;
  };
  std::vector<LayerCall> calls_;  // by layer
  int64_t heads_ = 0;
  // Of the step:
  Segment segment_;
  StepInput input_;
  bool computed_ = false;  // by the program
  std::vector<AttentionHead> left_;
  std::vector<float> weights_;
};

}  // namespace situ
