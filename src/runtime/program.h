// A program: a schedule whose operands are bound to memory, for one kind of step (prompts and batches, or one token).
// Running it looks nothing up and, but for a batch larger than any before, allocates nothing; only the views that
// depend on the step are bound anew.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/ledger.h"
#include "base/trace.h"
#include "kernels/kernel.h"
#include "place/plan.h"
#include "runtime/executor.h"
#include "runtime/space.h"
#include "runtime/step_table.h"
#include "runtime/view_table.h"
#include "schedule/schedule.h"

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
  // -- of a prompt among whose embeddings are rows that encoders made
  std::byte* embeddings = nullptr;     // of the tokens; null: the program looks them up
  const int64_t* positions = nullptr;  // [3, position_stride], of the tokens at first; null: position and on
  int64_t position_stride = 0;
  int64_t position = -1;  // of the first token; -1: as many as are past
  int64_t whole = 0;      // tokens that the sequence will have behind all that it is fed at once; 0: these are the last
  // -- of a text or a pair of texts
  const int64_t* types = nullptr;  // of the tokens, where the graph takes them; null: zeros
  int64_t position_of(int64_t row, int64_t token) const {
    if (positions) return positions[row % 3 * position_stride + token];
    return (position < 0 ? past : position) + token;
  }
};

// The tokens of `sequence` from number `past` on, whose slots begin at first_slot, without runs, which may still move.
Segment segment_of(const Sequence& sequence, std::span<const int64_t> tokens, int64_t past, int64_t first_slot,
                   bool prompt);
// The same with the sequence's runs, as they are now.
Segment with_runs(Segment segment, const Sequence& sequence);

// The tokens of one step: of one segment, or of any number where one_sequence() is empty.
struct StepInput {
  std::span<const Segment> segments;
  int64_t wanted = 1;  // logits of so many tokens, the last ones; 0: only states are written. Those of several segments
                       // are of whole ones
  float* logits = nullptr;  // where they are written instead, [wanted, vocabulary]; not where they are no port of their
                            // own (halves, logits of all tokens): then they stay where the program has them
  std::span<std::byte* const> tensors = {};  // of the input ports, in the order of Plan::ports
  // Where Binding::rows are written, row r `row_places[r]` rows behind it; null: r rows. Precondition of places:
  // writes_rows_by_place().
  std::byte* rows = nullptr;
  const int64_t* row_places = nullptr;
  bool encodes = false;  // KernelCall::encodes
};
// Rows of an encoder from which on StepInput::encodes pays: kernels lay out weights anew for all of them (a query of 20
// words on the shape of all-MiniLM-L6: 3.0 ms, 4.1 with it; 100 words 11.8 and 11.0).
constexpr int64_t kEncodedRows = 64;

class Program final : private BoundCalls {
 public:
  // `graph`, `binding`, `plan` and `executor` must outlive the program. Errors name the node that no kernel covers.
  static Result<std::unique_ptr<Program>> create(const Graph& graph, const Binding& binding, const Plan& plan,
                                                 const TokenOrder& order, const Regions& regions, Executor& executor);

  // One step. Errors: a value met at run time that a kernel cannot use (names node, value and bound); interrupted
  // (ThreadPool).
  Status run(const StepInput& input, Ledger& ledger);

  // The same in slices, behind prepare(): goes on until about then, at least to the next barrier. True: it is over.
  Result<bool> go_on(Clock::time_point until, Ledger& ledger);

  // -- the parts of a step, for who takes the calls of several programs side by side
  // The same program over other memory, with the same schedule. This one must outlive it.
  Result<std::unique_ptr<Program>> over(const Regions& regions) const;
  // Binds the views of a step, and writes what the host gives. `input` must live until the step's outputs are counted.
  Status prepare(const StepInput& input, Ledger& ledger);
  void bind(int call, int segment, KernelCall& to) const override;
  // The step's operands of a call: inputs, then outputs.
  const View* operands(int call) const { return views_.at(call_views_[static_cast<size_t>(call)].first); }
  // Books what the calls of the step have written.
  void count_outputs(Ledger& ledger) const;
  // The error of a kernel, if it met one.
  Status fault(const StepEnd& end) const;
  const Schedule& schedule() const { return *schedule_; }
  const Execution& execution() const { return *execution_; }
  bool is_product(int call) const;
  // The constants that every step reads as a whole: not tables of rows, nor the matrices of experts.
  std::vector<std::span<const std::byte>> read_whole() const;
  void name_in_trace(BoundStep* step) const {
    step->trace = trace_;
    step->first_name = first_name_;
    step->step_name = token_name_;
  }

  // Where the last step left the logits.
  const View& logits() const { return views_[logits_view_]; }
  int64_t kernel_calls() const { return static_cast<int64_t>(schedule_->calls.size()); }
  // Records every call of the next steps; null: none. The trace must outlive its use.
  void set_trace(Trace* trace);
  // Generic steps read state as one block: sequences must then be one run.
  bool needs_contiguous() const { return schedule_->needs_contiguous; }
  // Whether Binding::rows may be written to places of their own: a product alone writes them (out_rows in
  // kernels/rows.h).
  bool writes_rows_by_place() const { return rows_call_ >= 0; }
  // Why a step cannot have tokens of several sequences; "": it can.
  const std::string& one_sequence() const { return schedule_->one_sequence; }

 private:
  Program(const Graph& graph, const Binding& binding, const Plan& plan, const Regions& regions, Executor& executor)
      : graph_(graph), binding_(binding), plan_(plan), regions_(regions), executor_(executor) {}
  Status build(const TokenOrder& order);
  Status bind_memory();
  Status check_host_integers() const;
  void add_views(const Call& call);
  int add_part(const Call& call, size_t operand, int view);
  std::byte* base_of(const Home& home) const;
  bool is_host_integers(const Home& home, ValueId v) const;
  static bool is_of_all_segments(const ValueInfo& info);
  int64_t host_offset(int root);
  int find_logits_port() const;
  int find_rows_call() const;

  // -- a step
  Status place_ports(const StepInput& input);
  void bind_step(const StepInput& input);
  void bind_segments(const StepInput& input);
  // Blocks whose size is no plain function of the step hold what this one puts there.
  Status check_sizes(const StepInput& input) const;
  void write_inputs(const StepInput& input, Ledger& ledger);
  void write_content(std::byte* at, const ValueInfo& info, const SymbolValues& symbols, Ledger& ledger) const;
  void write_rotary_rows(const Root& root, const StepInput& input);
  void bind_own_segments();
  bool several() const { return input_->segments.size() > 1; }
  bool takes_table(const Call& call) const { return several() && call.takes == Takes::kTable; }
  // The part that stands for all tokens whose logits are wanted.
  int wanted_part() const { return static_cast<int>(parts_.size()) - 1; }

  const Graph& graph_;
  const Binding& binding_;
  const Plan& plan_;
  const Regions regions_;
  Executor& executor_;
  std::shared_ptr<const Schedule> schedule_;  // programs over other memory have it too, and
  std::shared_ptr<const Execution> execution_;
  ViewTable views_;
  struct CallViews {
    int first = 0;           // of the operands, in order
    int first_part = 0;      // of their parts, where the call takes one segment at a time, or the last rows
    int own = -1;            // its number among calls that read segments (KernelCall::segments); -1: it does not
    bool of_source = false;  // its keys lie in the space of sources
  };
  std::vector<CallViews> call_views_;
  std::vector<const Root*> bent_;  // blocks with dims that are not linear in the step's symbols
  int logits_view_ = -1;
  int logits_port_ = -1;  // that takes the logits of wanted tokens, and no others, wherever it lies; -1: none
  int rows_call_ = -1;    // the product that writes Binding::rows; -1: none does, or not alone
  Trace* trace_ = nullptr;
  int32_t first_name_ = 0, token_name_ = 0;  // in the trace: of call 0, of the whole step
  // Of the step that runs:
  const StepInput* input_ = nullptr;
  int next_call_ = 0;
  std::vector<std::byte*> ports_;  // where they lie
  int64_t tokens_ = 0;
  int64_t prompt_rows_ = 0;  // its first tokens that are pieces of prompts
  StepTable table_;
  int readers_ = 0;                         // calls that read segments
  std::vector<StepSegment> own_segments_;   // [reader][segment]: of those that the table does not fit
  mutable std::vector<uint32_t> arrivals_;  // [reader][thread]; kernels count in it

  // -- steps of several segments
  std::vector<ViewTable::Part> parts_;  // by segment, then wanted_part()
  int first_wanted_ = 0;                // segment whose tokens' logits are wanted, as those of all after it
  std::vector<int64_t> slots_;          // by token
  std::vector<std::pair<int, int64_t>> host_roots_;  // io roots that every segment has its own of, and where
  std::vector<char> of_all_segments_;                // by io root: integers that calls of all segments read
  int64_t host_bytes_ = 0;
  std::vector<std::byte> host_;  // [segment][host_bytes_]
};

}  // namespace situ
