// The executor: the threads of a pool go through the calls of a schedule, and meet where its edges ask for it. One for
// all programs that share the pool: scratch, books and the choice of threads are the pool's, not a program's.
#pragma once

#include <atomic>
#include <functional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/ledger.h"
#include "base/scratch.h"
#include "base/thread_pool.h"
#include "base/trace.h"
#include "kernels/kernel.h"
#include "runtime/barriers.h"
#include "runtime/step_threads.h"
#include "schedule/schedule.h"

namespace situ {

// A schedule as an executor carries it out. The schedule must outlive it.
class Execution {
 public:
  const Schedule& schedule() const { return *schedule_; }

 private:
  friend class Executor;
  const Schedule* schedule_ = nullptr;
  std::vector<KernelFn> kernels_;           // by call
  std::vector<char> barriers_[kStepKinds];  // by call
  mutable int number_ = -1;                 // StepThreads::add_program, at the first step
};

// What a program binds for a step.
class BoundCalls {
 public:
  // Sets the operands of a call, and what kernels are told of its tokens. `segment`: of a call that takes one at a time
  // (Call::takes) in a step of several; -1: the call takes the step as a whole. Every thread asks.
  virtual void bind(int call, int segment, KernelCall& to) const = 0;

 protected:
  ~BoundCalls() = default;
};

struct BoundStep {
  const BoundCalls& calls;
  int64_t tokens = 0;
  bool logits = true;  // of some token are wanted
  int segments = 1;
  int first_wanted = 0;  // segment where calls with last_rows begin
  Trace* trace = nullptr;
  int32_t first_name = 0, step_name = 0;  // in the trace: of call 0, of the step
  // Single tokens of so many sequences, each with memory of its own: a call is made for one after the other (`segment`:
  // which), or once for all of them, where `merged` says so by call. 0: another step.
  int sequences = 0;
  std::span<const char> merged = {};
  // Which call it goes on with, and when it is suspended: at the first barrier behind that time.
  int first_call = 0;
  Clock::time_point until = Clock::time_point::max();
  bool encodes = false;  // many rows, however few tokens
};

// How a step ended.
struct StepEnd {
  bool interrupted = false;
  int fault_call = -1;  // one whose kernel met a value that it cannot use; -1: none
  Fault fault;
  int next_call = -1;  // at which it is suspended; -1: it is not
};

// Thread-safety: one step at a time.
class Executor {
 public:
  // The pool must outlive it.
  explicit Executor(ThreadPool& pool);

  int threads() const { return pool_.threads(); }
  Execution prepare(const Schedule& schedule);
  // Books what kernels move; what the outputs of the calls take is left to the caller.
  StepEnd run(const Execution& execution, const BoundStep& step, Ledger& ledger);

  int64_t alone_steps() const { return step_threads_.alone_steps(); }

  // For tests, which compare the results. Thread 0 does the work of all in every short step from now on.
  void work_alone() { always_alone_ = true; }
  // Every thread calls this before each kernel call.
  void before_calls(std::function<void(int thread)> pause) { pause_ = std::move(pause); }

 private:
  // Parts [first, last) of a call's `parts`, which one thread takes: one of them, or, where it works alone, all.
  struct Share {
    int first, last, parts;
    bool all() const { return last - first == parts; }
  };

  KernelCall thread_call(int thread);
  bool pass_barrier(int barrier, int call, const Share& share);
  int row_parts(int64_t tokens) const;
  void execute(const Share& share);
  void run_call(int index, KernelCall& call, const Share& share);

  ThreadPool& pool_;
  Scratch scratch_;
  std::vector<Ledger> books_;     // by thread
  std::vector<Fault> faults_;     // by thread
  std::vector<int> fault_calls_;  // by thread
  StepThreads step_threads_;
  bool always_alone_ = false;
  std::function<void(int)> pause_;
  // Of the step that runs:
  const Execution* execution_ = nullptr;
  const BoundStep* step_ = nullptr;
  StepKind kind_;
  std::atomic<int> last_barrier_{0};  // at which it was interrupted or suspended
  int last_call_ = -1;                // that is behind it
};

}  // namespace situ
