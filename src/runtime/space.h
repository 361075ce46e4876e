// Spaces, slots, runs and sequences. States that are indexed alike form a space; a slot is the place of one row in all
// of them. A sequence is a list of runs of slots in the append space, one slot of the whole space, and a source. No
// operation on sequences moves a state byte.
//   append  a slot for each token (self-attention K/V)
//   source  a stretch of slots for each output of an encoder (cross-attention K/V), read by all that hang on it
//   whole   a slot holds all of a state (convolutions, recurrences); a step reads one slot and writes another
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/pages.h"
#include "base/status.h"
#include "kernels/kernel.h"
#include "place/plan.h"
#include "runtime/media_rows.h"

namespace situ {

enum class SpaceKind { kAppend, kSource, kWhole };
constexpr int kSpaceKinds = 3;
const char* space_name(SpaceKind kind);  // "append"
SpaceKind space_of(StateRule rule);

// Steps of one sequence of which whole states are kept, and how many of them one step of several parts may write.
constexpr int64_t kKeptSteps = 4, kWrittenStates = 4;
// Slots of the whole space that a sequence holds at most while a step writes some: with the pinned one, or all.
constexpr int64_t kWholeSlotsPerSequence = kKeptSteps + kWrittenStates;

// The slots of one space and how often each is referred to. Low ones are taken first, so that those in use stay the
// same few pages, however many sequences come and go.
class Space {
 public:
  explicit Space(int64_t capacity = 0);
  // Any thread.
  int64_t capacity() const { return std::atomic_ref(const_cast<int64_t&>(capacity_)).load(std::memory_order_relaxed); }
  int64_t free_slots() const { return free_; }
  // Slots below this one were in use since the last call of forget_unused().
  int64_t used() const { return static_cast<int64_t>(references_.size()); }
  // Returns the first slot from which on all are free.
  int64_t forget_unused();

  // Consecutive slots with one reference, at most `count`: those from `after` on that are free, so that an undisturbed
  // sequence stays one run; else from the start of a block that nobody has, where the sequence may grow; else of the
  // lowest gap. Length 0: no slot is free.
  Run allocate(int64_t count, int64_t after);
  // The first `count` consecutive slots that are free, or length 0.
  Run allocate_stretch(int64_t count);
  // Has fewer slots for ever: without the last `count`, which must be free, or it stays as it is (false).
  bool cut(int64_t count);
  // Whether there are so many.
  bool fits(int64_t count) const;
  // Whether several have the slot, which somebody has.
  bool shared(int64_t slot) const { return references_[static_cast<size_t>(slot)] > 1; }
  // How many have it.
  int64_t references(int64_t slot) const { return references_[static_cast<size_t>(slot)]; }
  // Of a run that somebody has: the slots from its first on that are shared, or not, as that one is.
  int64_t alike(const Run& run) const;
  void add_reference(const Run& run);
  // Slots whose last reference goes are free again.
  void release(const Run& run);
  // Where a sequence has to be one run: new ones begin in the middle of the largest gap.
  void spread() { spread_ = true; }

 private:
  int64_t free_from(int64_t begin, int64_t most) const;
  int64_t find_stretch(int64_t count) const;  // its first slot; -1: there is none
  Run largest_gap() const;
  Run free_blocks(int64_t count) const;

  int64_t capacity_, free_, block_;
  bool spread_ = false;
  std::vector<uint32_t> references_;  // by slot, up to the last one that was ever used
  std::vector<uint32_t> taken_;       // slots of each block, as far
};

// Address space of the states, reserved once and touched as slots are used: growth moves nothing. One region per state,
// slot-major.
class StatePool {
 public:
  struct Capacity {
    int64_t append = 0, source = 0, whole = 0;  // slots
  };
  // Error: the address space cannot be reserved (names the bytes asked for).
  static Result<std::unique_ptr<StatePool>> create(const std::vector<StateLayout>& layouts, const Capacity& capacity);
  StatePool(const StatePool&) = delete;
  StatePool& operator=(const StatePool&) = delete;

  Space& space(SpaceKind kind) { return spaces_[static_cast<int>(kind)]; }
  const Space& space(SpaceKind kind) const { return spaces_[static_cast<int>(kind)]; }
  // Bytes of a slot over all states of the space.
  int64_t slot_bytes(SpaceKind kind) const { return slot_bytes_[static_cast<int>(kind)]; }
  // Tokens that the append space has room for, and bytes of each.
  int64_t capacity() const { return space(SpaceKind::kAppend).capacity(); }
  int64_t free_slots() const { return space(SpaceKind::kAppend).free_slots(); }
  int64_t bytes_per_slot() const { return slot_bytes(SpaceKind::kAppend); }
  std::byte* base(size_t state) const { return members_[state].memory.data(); }
  // Returns pages behind the slots in use, where these once were many more.
  void give_back();

 private:
  StatePool() = default;
  Space spaces_[kSpaceKinds];
  int64_t slot_bytes_[kSpaceKinds] = {};
  struct Member {
    SpaceKind space = SpaceKind::kAppend;
    int64_t slot_bytes = 0;
    ReservedMemory memory;
  };
  std::vector<Member> members_;  // by state
};

// Rows of the source space that one run of an encoder wrote. Sequences share it; its slots go with the last of them.
class Source {
 public:
  // Takes the slots; rows() is 0 where so many are not free in one stretch.
  Source(StatePool& pool, int64_t rows) : pool_(pool), run_(pool.space(SpaceKind::kSource).allocate_stretch(rows)) {}
  ~Source() { pool_.space(SpaceKind::kSource).release(run_); }
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;
  int64_t first_slot() const { return run_.first_slot; }
  int64_t rows() const { return run_.length; }
  const Run& run() const { return run_; }

 private:
  StatePool& pool_;
  const Run run_;
};

// What a sequence knows of its tokens and of where they lie.
struct SequenceParts {
  struct Tied {
    int64_t first = 0, count = 0;
  };
  // Whole states, as they were after so many tokens, that lie in this slot.
  struct Whole {
    int64_t length = 0, slot = 0;
  };
  std::vector<Run> runs_;
  std::vector<Tied> tied_;  // in order
  int64_t length_ = 0, dropped_ = 0;
  std::vector<int64_t> tokens_;
  int64_t whole_ = 0;
  bool lost_ = false;
  std::vector<Whole> held_, written_;  // known; what the step that runs writes, one part of it after the other
  int64_t read_ = 0;                   // the slot that the last part of it reads
  std::array<int64_t, 4> pinned_{-1, -1, -1, -1};  // as deep as scopes of Undo nest
};

// A sequence of tokens in the state. Move-only owner of its slots. One thread at a time. Where memory runs out
// (std::bad_alloc) append() and take_write_slot() leave it as it was; step_done() and drop() leave a sequence that can
// be rewound.
class Sequence : private SequenceParts {
 public:
  using SequenceParts::Whole;
  explicit Sequence(StatePool& pool) : pool_(&pool) {}
  // Over slots that somebody else holds too. `whole`: the slot of the whole states after these tokens; -1: there is
  // none.
  explicit Sequence(StatePool& pool, std::vector<Run> runs, int64_t whole = -1);
  ~Sequence() { clear(); }
  Sequence(Sequence&& other) noexcept { *this = std::move(other); }
  Sequence& operator=(Sequence&& other) noexcept;

  int64_t length() const { return length_; }
  // Tokens that have slots: all, or the first ones and the last ones of them.
  int64_t kept() const { return length_ - dropped_; }
  const std::vector<Run>& runs() const { return runs_; }
  // True when token j lives in slot first_slot + j: what the generic path needs.
  bool contiguous() const { return runs_.size() <= 1; }

  // Slots for the next tokens, at most `count`, in one run. Error: the pool is full; it names the `all` tokens of a
  // step, if these are some of them.
  Result<Run> append(int64_t count, int64_t all = 0);
  // The slots of token number `first`, which is kept, and of those behind it, at most `count`, in one run.
  Run slots_of(int64_t first, int64_t count) const;
  // The last `count` tokens were computed together, and are right together only.
  void tie(int64_t count);
  // How many of the first `length` tokens are right without those behind: all, or those before some that are tied
  // across it.
  int64_t whole_before(int64_t length) const;
  // Drops the last tokens. Precondition: length() - kept() <= length <= length().
  void rewind(int64_t length);
  // Gives the slots back of all but the first `first` tokens and as many of the last as make `most` together.
  void drop(int64_t most, int64_t first);
  // Another sequence over the same slots: index work only.
  Sequence fork() const;
  // No tokens any more; source and media stay.
  void clear();

  // -- source
  void set_source(std::shared_ptr<const Source> source) { source_ = std::move(source); }
  const std::shared_ptr<const Source>& source() const { return source_; }

  // -- rows that encoders made for tokens of it
  SequenceMedia& media() { return media_; }
  const SequenceMedia& media() const { return media_; }

  // -- where tables follow the length of a sequence (Binding::switches), so that rows may have to be made anew
  // The ids of its tokens, as far as it was told.
  const std::vector<int64_t>& tokens() const { return tokens_; }
  void remember(std::span<const int64_t> tokens) { tokens_.insert(tokens_.end(), tokens.begin(), tokens.end()); }
  std::vector<int64_t> take_tokens() { return std::move(tokens_); }
  // A length by whose tables its rows were made.
  int64_t whole() const { return whole_; }
  void set_whole(int64_t length) { whole_ = length; }
  // Has these tokens then, and no slots. Rows of them are to be made before others follow.
  void lose_rows(std::vector<int64_t> tokens);
  bool lost() const { return lost_; }

  // -- whole states: the slot that the next part of a step reads; 0 holds zeros, which is what a new sequence reads
  int64_t read_slot() const { return !written_.empty() ? read_ : held_.empty() ? 0 : held_.back().slot; }
  // A slot for the next part of a step, up to token number `length`, to write: what it makes is read by the part behind
  // it. `again`: the slot of the part before, which nobody will ask for; so it is too where a step has written
  // kWrittenStates, or no other slot is free. All are taken until step_done() or rewind(). Error: the space is full.
  Status take_write_slot(int64_t length, bool again = false);
  int64_t write_slot() const { return written_.empty() ? -1 : written_.back().slot; }
  // What the step wrote last is what the next one reads. Slots of the last kKeptSteps steps, or parts, are kept, and
  // those of the lengths at which pin() was called: so far the sequence can be rewound. unpin(): of the last pin() at
  // this length.
  void step_done();
  void pin() { replace_pin(-1, length_); }
  void unpin(int64_t length) { replace_pin(length, -1); }
  // Whether whole states are known as they were after `length` tokens.
  bool holds(int64_t length) const;
  // Those that are known, by length.
  const std::vector<Whole>& whole_states() const { return held_; }

 private:
  SequenceParts& parts() { return *this; }
  void replace_pin(int64_t before, int64_t after) {
    if (const auto pin = std::ranges::find(pinned_, before); pin != pinned_.end()) *pin = after;
  }
  void release_whole(int64_t slot) { pool_->space(SpaceKind::kWhole).release({slot, 1}); }

  StatePool* pool_ = nullptr;
  std::shared_ptr<const Source> source_;
  SequenceMedia media_;
};

}  // namespace situ
