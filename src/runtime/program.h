// A program: prepared kernel calls in order, for one kind of step (prompts and batches, or one token). Running it looks
// nothing up and, but for a batch larger than any before, allocates nothing; only the views that depend on the step are
// bound anew.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/ledger.h"
#include "base/thread_pool.h"
#include "base/trace.h"
#include "kernels/kernel.h"
#include "place/plan.h"
#include "runtime/space.h"
#include "runtime/step_threads.h"
#include "runtime/view_table.h"

namespace situ {

// Memory shared by the programs of a model, owned by the engine.
struct Regions {
  std::byte* arena = nullptr;
  std::byte* io = nullptr;
  const StatePool* states = nullptr;
};

// Consecutive tokens of one sequence, whose slots are consecutive too.
struct Segment {
  const int64_t* tokens = nullptr;
  int64_t count = 0;
  int64_t past = 0;
  int64_t write_slot = 0;
  int64_t read_slot = 0, write_state = 1;  // in the whole space
  const Run* runs = nullptr;               // of the sequence, these tokens included; there may be more
  int run_count = 0;
  int64_t keys = 0;                          // tokens that the sequence keeps, up to these
  bool prompt = false;                       // a piece of one (KernelCall::prompt_rows)
  int64_t source_slot = 0, source_rows = 0;  // of the sequence's source; 0 rows: it has none
  bool is_token() const { return count == 1 && !prompt; }
};

// The tokens of `sequence` that have just got slots from first_slot on, without runs, which may still move.
Segment segment_of(const Sequence& sequence, std::span<const int64_t> tokens, int64_t past, int64_t first_slot,
                   bool prompt);

// The tokens of one step: of one segment, or of any number where one_sequence() is empty.
struct StepInput {
  std::span<const Segment> segments;
  int64_t wanted = 1;  // logits of so many tokens, the last ones; 0: only states are written. Those of several segments
                       // are of whole ones
  int turn = 0;        // which of its two places the logits take
  float* logits =
      nullptr;  // where they are written instead, [wanted, vocabulary], if Program::writes_logits_anywhere()
  std::span<std::byte* const> ports = {};  // the tensors of Plan::ports
};

// The home of state that is addressed by slot number: its base is slot 0, not the sequence's first slot.
Home paged_home(Home home);
// Whether a value has a row for each token of the step.
bool has_step_rows(const Home& home);

class Program {
 public:
  // `graph`, `binding` and `plan` must outlive the program. Errors name the node that no kernel covers.
  static Result<std::unique_ptr<Program>> create(const Graph& graph, const Binding& binding, const Plan& plan,
                                                 const TokenOrder& order, const Regions& regions, ThreadPool& pool);

  // One step. Errors: a value met at run time that a kernel cannot use (names node, value and bound); interrupted
  // (ThreadPool).
  Status run(const StepInput& input, Ledger& ledger);
  // Whether a step can write the logits of wanted tokens, and no others, where its caller says.
  bool writes_logits_anywhere() const { return logits_anywhere_; }
  // Where the last step left the logits.
  const View& logits() const { return views_[logits_view_]; }
  int64_t kernel_calls() const { return static_cast<int64_t>(calls_.size()); }
  // Thread 0 does the work of all in every short step from now on: for tests, which compare the results.
  void work_alone() { always_alone_ = true; }
  // Records every call of the next steps; null: none. The trace must outlive its use.
  void set_trace(Trace* trace);
  // Generic steps read state as one block: sequences must then be one run.
  bool needs_contiguous() const { return needs_contiguous_; }
  // Why a step cannot have tokens of several sequences; "": it can.
  const std::string& one_sequence() const { return one_sequence_; }

 private:
  struct Call {
    KernelFn kernel = nullptr;
    std::shared_ptr<const void> params;
    int node = -1;
    int first_view = 0, in_count = 0, out_count = 0;
    bool paged = false;  // attention over runs of slots
    bool moves =
        false;  // its kernel does not book it, but what it writes existed: a Gather by indices known before the step
    bool barrier = false;  // wait before this call: it depends on one since the last barrier
    size_t group_end =
        0;  // of the row group (place/row_groups.h) that begins here, if it may run by rows; 0: none does
    bool for_logits = false;  // no state depends on it: it is left out where no logits are wanted
    bool step_rows = false;   // of a result: one for each token of the step
    // In a step of several segments:
    bool by_segment = false;  // called for each
    bool last_rows = false;   // for_logits, and computes only what tokens need whose logits are wanted
    int first_part = 0;       // of its views' parts, where it is by_segment or last_rows
    bool split =
        false;  // attention that splits the keys of one token among the threads, as the program of one token does
    uint32_t out_by_slot = 0;  // outputs that are written by slot
  };

  // Parts [first, last) of a call's `parts`, which one thread takes: one of them, or, where it works alone, all.
  struct Share {
    int first, last, parts;
    bool all() const { return last - first == parts; }
  };

  Program(const Graph& graph, const Binding& binding, const Plan& plan, const Regions& regions, ThreadPool& pool)
      : graph_(graph), binding_(binding), plan_(plan), regions_(regions), pool_(pool) {}
  Status build(const TokenOrder& order);
  Status add_kernel(const Step& step);
  int add_view(const Home& home, DType type, bool paged);
  std::byte* base_of(const Home& home) const;
  bool reads_earlier_rows(const Home& home) const;
  void place_barriers();
  void find_row_groups();
  void find_calls_for_logits();
  void allow_segments(const TokenOrder& order);
  std::string allow_segments(const TokenOrder& order, size_t call);
  void find_last_rows();
  struct Operand {
    Home home;
    ValueId value;
    bool written;
    std::pair<int, int> block() const { return {static_cast<int>(home.region), home.root}; }
  };
  std::vector<Operand> operands(size_t call) const;
  std::optional<int> add_row_parts(const std::vector<Operand>& list, const Call& c);
  bool follows_sequence(const Operand& operand) const;
  uint32_t outputs_by_slot(size_t call) const;
  int64_t host_offset(int root);
  void bind(const StepInput& input);
  bool find_logits_anywhere() const;
  int64_t place_of_logits(const StepInput& input) const;
  // Blocks whose size is no plain function of the step hold what this one puts there.
  Status check_sizes(const StepInput& input) const;
  void write_inputs(const StepInput& input, Ledger& ledger);
  void count_outputs(Ledger& ledger) const;
  bool pass_barrier(int barrier, const Share& share);
  void execute(const Share& share);
  int row_parts(const Call& c, int threads) const;
  bool runs(const Call& c) const { return input_->wanted > 0 || !c.for_logits; }
  // Of a step of several segments: those that a call computes, and the part that stands for all tokens whose logits are
  // wanted.
  int first_segment(const Call& c) const { return c.last_rows ? first_wanted_ : 0; }
  int wanted_part() const { return static_cast<int>(parts_.size()) - 1; }
  int segments() const { return static_cast<int>(input_->segments.size()); }
  void run_call(const Call& c, KernelCall& call, const Share& share);
  void run_segments(const Call& c, KernelCall& call, const Share& share);
  void run_split(const Call& c, KernelCall& call, const Share& share);
  void bind_runs(const Call& c, const Segment& s, KernelCall& call) const;
  void bind_segment(const Call& c, int segment, KernelCall& call) const;
  void write_rotary_rows(const Root& root, const StepInput& input);
  KernelCall thread_call(int thread);

  const Graph& graph_;
  const Binding& binding_;
  const Plan& plan_;
  const Regions regions_;
  ThreadPool& pool_;
  std::vector<Call> calls_;
  ViewTable views_;
  std::vector<const Root*> bent_;  // blocks with dims that are not linear in the step's symbols
  std::vector<std::byte> scratch_;
  std::vector<Ledger> books_;
  std::vector<Fault> faults_;
  std::vector<int> fault_calls_;
  std::atomic<int> last_barrier_{0};  // at which this step was interrupted
  const StepInput* input_ = nullptr;
  int64_t tokens_ = 0;       // of the step
  int64_t prompt_rows_ = 0;  // its first ones that are pieces of prompts
  int logits_view_ = -1;
  bool logits_anywhere_ = false;
  Trace* trace_ = nullptr;
  StepThreads step_threads_;
  bool always_alone_ = false;
  int32_t first_name_ = 0, token_name_ = 0;  // in the trace: of call 0, of the whole step
  bool needs_contiguous_ = false;

  // -- steps of several segments
  std::string one_sequence_;
  std::vector<ViewTable::Part> parts_;  // by segment, then wanted_part()
  int first_wanted_ = 0;                // segment whose tokens' logits are wanted, as those of all after it
  std::vector<int64_t> slots_;          // by token
  std::vector<std::pair<int, int64_t>> host_roots_;  // io roots that every segment has its own of, and where
  int64_t host_bytes_ = 0;
  std::vector<std::byte> host_;  // [segment][host_bytes_]
  int64_t partial_floats_ = 0;   // of one split of one segment
  std::vector<float> partials_;  // [segment][thread][partial_floats_]
};

}  // namespace situ
