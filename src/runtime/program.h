// A program: prepared kernel calls in order, for one kind of step (a prompt chunk, or one token). Running
// it allocates nothing and looks nothing up; only the views that depend on the step are recomputed.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/ledger.h"
#include "base/thread_pool.h"
#include "base/trace.h"
#include "kernels/kernel.h"
#include "place/plan.h"
#include "runtime/state_pool.h"

namespace situ {

// Memory shared by the programs of a model, owned by the engine.
struct Regions {
  std::byte* arena = nullptr;
  std::byte* io = nullptr;
  const StatePool* states = nullptr;
};

struct StepInput {
  const int64_t* tokens = nullptr;
  int64_t count = 0;
  int64_t past = 0;
  int64_t write_slot = 0;
  int flip = 0;
  const Run* runs = nullptr;  // with the new tokens
  int run_count = 0;
};

class Program {
 public:
  // `graph`, `binding` and `plan` must outlive the program. Errors name the node that no kernel covers.
  static Result<std::unique_ptr<Program>> create(const Graph& graph, const Binding& binding, const Plan& plan,
                                                 const Regions& regions, ThreadPool& pool);

  // One step. Error: a value met at run time that a kernel cannot use (names node, value and bound).
  Status run(const StepInput& input, Ledger& ledger);
  // Where the last step left the logits.
  const View& logits() const { return logits_; }
  int64_t kernel_calls() const { return static_cast<int64_t>(calls_.size()); }
  // Records every call of the next steps; null: none. The trace must outlive its use.
  void set_trace(Trace* trace);
  // Generic steps read state as one block: sequences must then be one run.
  bool needs_contiguous() const { return needs_contiguous_; }

 private:
  struct Call {
    KernelFn kernel = nullptr;
    std::shared_ptr<const void> params;
    int node = -1;
    int first_view = 0, in_count = 0, out_count = 0;
    bool paged = false;    // attention over runs of slots
    bool barrier = false;  // wait before this call: it depends on one since the last barrier
  };
  struct Patch {
    int expression;
    int view;
    int field;  // -1: data, 0..7: dims, 8..15: strides
    std::byte* base;
    int64_t element;
  };

  Program(const Graph& graph, const Binding& binding, const Plan& plan, const Regions& regions, ThreadPool& pool)
      : graph_(graph), binding_(binding), plan_(plan), regions_(regions), pool_(pool) {}
  Status build();
  Status add_kernel(const Step& step);
  int add_view(const Home& home, DType type, bool paged);
  int expression(const Dim& dim);
  void place_barriers();
  void bind(const StepInput& input);
  void write_inputs(const StepInput& input, Ledger& ledger);
  void execute(int thread, int threads);
  void run_call(const Call& c, KernelCall& call, int thread, int threads);
  KernelCall thread_call(int thread);
  void execute_traced(int thread, int threads);

  const Graph& graph_;
  const Binding& binding_;
  const Plan& plan_;
  const Regions regions_;
  ThreadPool& pool_;
  std::vector<Call> calls_;
  std::vector<View> views_;
  std::vector<Dim> expressions_;
  std::vector<int64_t> values_;  // of the expressions at the last step
  std::vector<Patch> patches_;
  std::vector<std::pair<std::string, int>> known_;  // expression by its text, while building
  std::vector<std::byte> scratch_;
  std::vector<Ledger> books_;
  std::vector<Fault> faults_;
  std::vector<int> fault_calls_;
  SymbolValues symbols_;
  const StepInput* input_ = nullptr;
  int logits_view_ = -1;
  View logits_;
  Trace* trace_ = nullptr;
  int32_t first_name_ = 0, token_name_ = 0;  // in the trace: of call 0, of the whole step
  bool needs_contiguous_ = false;
};

}  // namespace situ
