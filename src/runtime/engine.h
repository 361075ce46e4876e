// The engine in place: placed programs over shared spaces. It takes the next tokens of sequences and gives logits; the
// programs of a module (encoder, prompts and batches, single tokens) share weights, states and the threads; those of
// steps share an arena.
#pragma once

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "runtime/compile.h"
#include "runtime/cross_attention.h"
#include "runtime/encoder_programs.h"
#include "runtime/media_writer.h"
#include "runtime/pack_saver.h"
#include "runtime/prefix_cache.h"
#include "runtime/program.h"
#include "runtime/source_writer.h"
#include "runtime/switches.h"
#include "runtime/token_batch.h"
#include "runtime/warm_pages.h"

namespace situ {

// What a sequence is refused with whose state would not be one run of slots, as the model needs it: an error that more
// room would not mend. Its reason, of kind kState, tells it from other errors with the code kNoRoom.
Status needs_one_run();
bool is_needs_one_run(const Status& status);

// Where the packed weights came from.
struct PackUse {
  int64_t mapped_bytes = 0, packed_bytes = 0;  // as a saved file has them; laid out by this process
  std::string file;                            // the saved one; empty: none was used
};

// In place. Thread-safety: one step at a time.
class InPlaceEngine {
 public:
  // `files` must outlive the engine where there is an encoder.
  static Result<std::unique_ptr<InPlaceEngine>> create(const ModelFiles& files, const EngineOptions& options);

  Sequence new_sequence() { return Sequence(*states_); }
  // A run of the encoders for a prompt that the sequence is fed next: of the one that makes the source that it is to
  // hang on, or of those of pictures and sounds, whose rows its tokens then have. Errors: SourceWriter::encoding,
  // MediaWriter::encoding; prompts that are computed as a whole.
  Result<std::unique_ptr<Encoding>> encoding(const Sequence& sequence, std::span<const int64_t> prompt,
                                             const EncoderInput& input);
  void suspend_encoders_always() { room_.always_suspended = true; }  // for tests
  const SourceWriter* encoder() const { return encoder_.get(); }     // null: a decoder-only model
  const MediaWriter* media() const { return media_.get(); }  // null: the model has no such encoders, or media_problem()
  const CutGraphs& cut() const { return cut_; }
  const Plan& behind_plan() const { return behind_plan_; }
  int64_t behind_kernel_calls() const { return behind_->kernel_calls(); }
  const std::string& media_problem() const { return media_problem_; }
  // Beginnings of prompts whose state is kept, as long as slots are not needed for something else. Null: prompts are
  // computed as a whole, or state is read as one block, so that no two sequences can share slots.
  PrefixCache* prefixes() { return prefixes_.get(); }
  // (layers, heads) of the decoder's cross-attention; an error where it was not recognised. Any thread.
  Result<std::pair<int64_t, int64_t>> attending_heads();

  // The next tokens of a sequence (any number: they are split into chunks, and where slots are free), and what comes of
  // them in a step.
  struct Feed {
    Sequence* sequence = nullptr;
    std::span<const int64_t> tokens;
    int64_t wanted = 1;  // logits after each of so many tokens, the last ones
    bool apart = true;   // each of these as if it were fed alone, to the bit; else as a piece of a prompt is: faster
    // Tokens that the sequence will have with the rest of a prompt, which is fed next; 0: with these.
    int64_t whole = 0;
    float* place = nullptr;  // where the logits are wanted, [wanted, vocabulary]; null: wherever they are
    Status refused = {};     // why it is; the sequence is then what it was
    std::vector<std::span<const float>> logits = {};  // [wanted][vocabulary], valid until the next step
  };
  // Feeds several sequences together; up to batch() logits may be wanted. Where one_sequence() says why, one token of
  // each is wanted, prompts are fed one after the other, and single tokens that stand side by side together. Where a
  // feed is refused the others are what they are after a step without it. After an error, and where memory runs out
  // (std::bad_alloc), all are what they were. Where the places of all feeds are one behind the other most programs
  // compute the logits there, without the rows of refused feeds; what lies elsewhere is copied, and the ledger says
  // so.
  Status step(std::span<Feed* const> feeds);
  int64_t batch() const { return batch_; }
  bool has_window() const { return window_ > 0; }
  // Tables may follow the length of a sequence. How many tokens behind number `length` have, at the end of a sequence,
  // the tables of that one: a step that asks for more logits takes the sequence to where its tokens are computed anew.
  int64_t tokens_alike(int64_t length) const { return switches_.alike(length); }
  const Switches& switches() const { return switches_; }
  // Error: the sequence has not what its token number `length` attends to any more, or has it as it is with later
  // tokens only.
  Status can_rewind(const Sequence& sequence, int64_t length) const;
  // Takes a sequence back to what it is now, at the latest at the end of its scope, unless keep() is called: to nothing
  // where that has left the window. Allocates nothing.
  class Undo {
   public:
    Undo(const InPlaceEngine& engine, Sequence& sequence);
    Undo(Undo&& other) noexcept;
    Undo& operator=(Undo&&) = delete;
    ~Undo() { now(); }
    void now();
    void keep();
    int64_t length() const { return length_; }  // before

   private:
    const InPlaceEngine* engine_;
    Sequence* sequence_;  // null: done, or kept
    int64_t length_;
  };
  // What tokens look at in the source of a sequence, which is what it was at the end. One at a time.
  class Alignment {
   public:
    Alignment(InPlaceEngine& engine, Sequence& sequence) : engine_(engine), undo_(engine, sequence) {
      engine_.aligning_ = true;
    }
    ~Alignment() { engine_.aligning_ = false; }
    Alignment(const Alignment&) = delete;
    Alignment& operator=(const Alignment&) = delete;
    // Until about then. True: take_weights() has the weights [heads, tokens, rows of the source].
    Result<bool> go_on(Clock::time_point until) { return engine_.attending_->go_on(until, engine_.ledger_); }
    std::vector<float> take_weights() { return engine_.attending_->take_weights(); }

   private:
    InPlaceEngine& engine_;
    Undo undo_;
  };
  // Of tokens [1..chunk()] of a sequence that has none yet. Null: another alignment is at it. Precondition:
  // attending_heads() was no error. Errors: the sequence has tokens; those of CrossAttention; no room.
  Result<std::unique_ptr<Alignment>> align(Sequence& sequence, std::span<const int64_t> tokens,
                                           std::span<const AttentionHead> heads);
  const std::string& one_sequence() const { return prefill_->one_sequence(); }
  // Whether sequences that share their beginning can both go on (else needs_one_run()).
  bool can_fork() const { return !decode_->needs_contiguous(); }

  Ledger& ledger() { return ledger_; }
  const Compiled& compiled() const { return compiled_.prompt; }
  // The program that holds fewer tokens.
  const Compiled& shortest() const {
    return compiled_.token.context < compiled_.prompt.context ? compiled_.token : compiled_.prompt;
  }
  int64_t context() const { return capacity_; }  // tokens of a sequence
  const CompiledModule& module() const { return compiled_; }
  const Graph& decode_graph() const { return compiled_.token.graph; }
  const Plan& prefill_plan() const { return prefill_plan_; }
  const Plan& decode_plan() const { return decode_plan_; }
  const StatePool& states() const { return *states_; }
  // Returns pages behind the slots in use, where these were many more.
  void give_back() { states_->give_back(); }
  // Whether there are states that are read and written as a whole.
  bool has_replaced_states() const;
  int64_t arena_bytes() const { return arena_bytes_; }
  // Activations of the largest step of the programs that are compiled so far and, beside it, since it may be suspended,
  // of the largest encoder; and what all of them would take beside each other. Programs of steps run one after the
  // other and share the arena; an encoder that is compiled later may take more, up to arena_bytes().
  int64_t planned_arena_bytes() const;
  int64_t unshared_arena_bytes() const;
  // State of a sequence that does not grow with its tokens: states that are replaced as a whole, and the longest
  // source.
  int64_t fixed_state_bytes() const;
  // Slots of a token that fit into `memory` bytes beside weights, inputs and logits, the state of a sequence that does
  // not grow, and activations of `arena` bytes; 2^30 where a token takes no state. Error: not one does.
  Result<int64_t> slots_in(int64_t memory, int64_t arena) const;
  int64_t io_bytes() const { return memory_bytes_ - arena_bytes_; }  // what the host writes, and logits
  int64_t chunk() const { return chunk_; }
  int threads() const { return pool_->threads(); }
  int64_t kernel_calls() const { return decode_->kernel_calls(); }  // of one token
  int64_t prompt_kernel_calls() const { return prefill_->kernel_calls(); }
  const PackUse& packs() const { return packs_; }
  // What constants take that passes computed or laid out, beyond the model's own size.
  int64_t computed_bytes() const { return computed_bytes_; }
  // Waits for the thread that saves packed weights, if there is one: it takes a share of the machine. Any thread.
  void finish_saving();
  // The same; why nothing was saved, else empty.
  std::string saving_problem() { return saver_.problem(); }
  // Brings what steps read into memory, by a thread that runs where nobody else does. Once.
  void warm();
  // How many steps one thread did alone so far (StepThreads).
  int64_t alone_steps() const { return executor_->alone_steps(); }
  // Records the kernel calls of the next steps, until null is given.
  void set_trace(Trace* trace) {
    prefill_->set_trace(trace);
    decode_->set_trace(trace);
  }

 private:
  InPlaceEngine() = default;
  static Result<std::unique_ptr<InPlaceEngine>> make(const ModelFiles& files, const EngineOptions& options);
  Program& program_of(int64_t tokens, int64_t past, bool prompt) const;
  Status run(std::span<Segment> segments, int64_t wanted, float* to);
  Result<int64_t> run_chunk(Sequence& sequence, std::span<const int64_t> tokens, bool prompt, bool last, float* to,
                            int64_t all);
  std::vector<int64_t> step_arenas() const;
  std::vector<int64_t> encoder_arenas() const;
  std::shared_ptr<const EncoderProgram> built_encoder() const { return encoder_ ? encoder_->program() : nullptr; }
  Result<StatePool::Capacity> count_slots(const EngineOptions& options, int64_t capacity) const;
  EncoderBudget encoder_budget(const EngineOptions& options, int64_t step_arena) const;
  template <typename Take>
  auto with_room(int64_t slots, Take take) -> decltype(take());
  Result<Run> take_slots(Sequence& sequence, int64_t count, int64_t all);
  Status take_state_slot(Sequence& sequence, int64_t length, bool again = false);
  Status reserve(StatePool::Capacity capacity, bool exact);
  int64_t state_bytes(StateRule rule) const;
  Status check_source(const Sequence& sequence) const;
  Status check_feeds(std::span<Feed* const> feeds) const;
  bool left_window(const Sequence& sequence, int64_t length) const;
  // `to`: goes on behind the rows that were written.
  Status step_one(Feed& feed, float*& to);
  Status step_together(std::span<Feed* const> feeds, float*& to);
  Status step_by_length(std::span<Feed* const> feeds, float*& to);
  Status step_group(std::span<Feed* const> feeds, float*& to);
  // -- sequences whose length other tables are for (engine_switches.cc)
  struct Piece {
    size_t feed;
    Feed what;
  };
  std::vector<Piece> pieces_of(std::span<Feed* const> feeds) const;
  Status follow_length(const Feed& feed, std::span<Sequence* const> others);
  Status make_rows_anew(Sequence& sequence, int64_t whole, std::span<Sequence* const> others);
  void take_rows(Sequence& sequence, std::span<const int64_t> tokens, std::span<Sequence* const> others) const;
  void remember(const Feed& feed) const;
  void forget(Sequence& sequence, int64_t length) const;
  Status step_apart(std::span<Feed* const> feeds, float*& to);
  bool in_token_batch(const Feed& feed) const;
  Status take_token_slots(const Feed& feed);
  Status run_tokens(std::span<Feed* const> feeds, float* to);
  // A step of several sequences, which is as many runs of a program as it takes.
  struct Part {
    size_t feed;
    Segment segment;  // but for its runs, which may still move
  };
  struct Together {
    std::span<Feed* const> feeds;
    std::vector<Undo> undo;     // by feed
    std::vector<size_t> begun;  // by feed: tokens that are in parts so far
    std::vector<Part> parts;    // of the next run
    void refuse(size_t feed, Status why);
    int64_t tokens() const;  // of the parts
  };
  Status run_together(Together& step, float* to);
  Status take_all_slots(const Feed& feed);
  void add_parts(Together& step, size_t feed, size_t count, bool prompt);
  Status run_parts(Together& step, int64_t wanted, float* to);
  Status add_media(const ModelFiles& files, const EngineOptions& options);
  void step_done(Sequence& sequence) const;
  // That are kept behind a window: as many as a step may take, which may be undone, or as attention may read.
  int64_t spare_tokens() const { return std::max(chunk_ + batch_, kKeysBefore); }
  bool logits_stay() const;
  Result<std::span<const float>> read_logits(const View& view, int64_t before_last, float* to);
  Status read_rows(std::span<Feed* const> feeds, float*& to);

  CompiledModule compiled_;
  Plan prefill_plan_, decode_plan_;
  std::shared_ptr<ThreadPool> pool_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<StatePool> states_;
  std::unique_ptr<PrefixCache> prefixes_;  // of states_
  std::unique_ptr<Program> prefill_, decode_;
  Program* ran_ = nullptr;              // the last one: its logits are read
  std::unique_ptr<TokenBatch> tokens_;  // of decode_, where steps take one sequence
  size_t token_rows_ = 0;               // of its last step, if that was the last step
  std::unique_ptr<SourceWriter> encoder_;
  // Of steps with rows of encoders: the decoder behind the embeddings.
  CutGraphs cut_;
  Plan behind_plan_;
  std::unique_ptr<Program> behind_;
  std::unique_ptr<MediaWriter> media_;
  std::string media_problem_;                  // why there is none
  int64_t capacity_ = 0;                       // tokens of a sequence
  std::unique_ptr<CrossAttention> attending_;  // once it was asked for
  std::mutex attending_mutex_;                 // of whoever makes it
  bool aligning_ = false;
  ReservedMemory memory_;  // arena of steps, of encoders, then io
  EncoderRoom room_;
  std::unique_ptr<ProgramBuilder> builder_;
  int64_t weight_bytes_ = 0, computed_bytes_ = 0, memory_bytes_ = 0, arena_bytes_ = 0, chunk_ = 1, batch_ = 1,
          window_ = 0, first_ = 0;
  std::vector<float> rows_;  // logits that do not stay where programs have them, or are converted
  Ledger ledger_;
  Switches switches_;
  PackUse packs_;
  PackSaver saver_;
  WarmPages warm_;

 public:
  ~InPlaceEngine();
};

}  // namespace situ
