// Single tokens of several sequences in one step, where the graph takes one sequence at a time (a recurrence, attention
// that was not recognised): every sequence has an arena and an io region of its own, and the calls of the program of
// one token are made for one sequence after the other. Products read their weights once: what they take and give lies
// in the sequences' regions evenly apart, as rows of one operand, or in slots.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "runtime/program.h"

namespace situ {

// One thread at a time, as the engine's steps.
class TokenBatch final : private BoundCalls {
 public:
  // `token`: the program of one token, of which the others are copies over other memory; `plan`: its plan. Up to `most`
  // sequences. The program and the executor must outlive the batch. Error: the address space cannot be reserved.
  static Result<std::unique_ptr<TokenBatch>> create(const Program& token, const Plan& plan, const StatePool& states,
                                                    int64_t most, Executor& executor);

  // A step of one token for each segment, at least two. `logits`: where they are written, [segments, width], where the
  // program can; else logits() tells. Errors: those of Program::run.
  Status run(std::span<const Segment> segments, float* logits, int64_t width, Ledger& ledger);
  // Where the last step left those of segment i.
  const View& logits(size_t i) const { return programs_[i]->logits(); }

 private:
  TokenBatch(const Program& token, Executor& executor) : token_(token), executor_(executor) {}
  Status grow(size_t sequences);
  bool merge(int call, size_t sequences);
  void bind(int call, int segment, KernelCall& to) const override;

  const Program& token_;
  Executor& executor_;
  Regions first_;  // of sequence 0; the others follow, a stride apart
  ReservedMemory memory_;
  int64_t stride_ = 0;
  std::vector<std::unique_ptr<Program>> programs_;  // by sequence
  std::vector<StepInput> inputs_;                   // of the step, by sequence
  // Products, whose operands are those of all sequences: by call.
  struct Merged {
    std::vector<View> operands;  // inputs, then outputs
    std::vector<int64_t> slots;  // by sequence
    uint32_t out_by_slot = 0;
  };
  std::vector<Merged> merged_;
  std::vector<char> is_merged_;
};

}  // namespace situ
