// Slots, runs and sequences. A slot is the place of one token in every layer's state; a sequence is an
// ordered list of runs of slots. No operation on sequences moves a state byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "kernels/kernel.h"
#include "place/plan.h"

namespace situ {

// Address space of the states, reserved once for `capacity` slots and touched as slots are used:
// growth moves nothing. One region per state pair, slot-major.
class StatePool {
 public:
  // Error: the address space cannot be reserved (names the bytes asked for).
  static Result<std::unique_ptr<StatePool>> create(const std::vector<StateLayout>& layouts, int64_t capacity);
  ~StatePool();
  StatePool(const StatePool&) = delete;
  StatePool& operator=(const StatePool&) = delete;

  int64_t capacity() const { return capacity_; }
  int64_t free_slots() const;
  // Bytes of state per token over all appended states, and of the states that are replaced as a whole.
  int64_t bytes_per_slot() const { return bytes_per_slot_; }
  int64_t fixed_bytes() const { return fixed_bytes_; }
  std::byte* base(size_t state) const { return bases_[state]; }

  // Consecutive slots with one reference, at most `count`: those from `after` on that are free, so that an undisturbed
  // sequence stays one run; else of the largest gap, from its middle where another sequence may grow into it. Length 0:
  // no slot is free.
  Run allocate(int64_t count, int64_t after);
  void add_reference(const Run& run);
  // Slots whose last reference goes are free again.
  void release(const Run& run);

 private:
  StatePool() = default;
  int64_t capacity_ = 0, bytes_per_slot_ = 0, fixed_bytes_ = 0;
  std::vector<std::byte*> bases_;
  std::vector<size_t> sizes_;
  std::vector<uint32_t> references_;  // by slot, up to the last one that was ever used
};

// A sequence of tokens in the state. Move-only owner of its slots. One thread at a time.
class Sequence {
 public:
  explicit Sequence(StatePool& pool) : pool_(&pool) {}
  // Over slots that somebody else holds too.
  Sequence(StatePool& pool, std::vector<Run> runs);
  ~Sequence() { clear(); }
  Sequence(Sequence&& other) noexcept;
  Sequence& operator=(Sequence&& other) noexcept;

  int64_t length() const { return length_; }
  // Tokens that have slots: all, or the first ones and the last ones of them.
  int64_t kept() const { return length_ - dropped_; }
  const std::vector<Run>& runs() const { return runs_; }
  // True when token j lives in slot first_slot + j: what the generic path needs.
  bool contiguous() const { return runs_.size() <= 1; }
  // Which half of a replaced state holds the current one.
  int flip() const { return flip_; }

  // Slots for the next tokens, at most `count`, in one run. Error: the pool is full; it names the `all` tokens of a
  // step, if these are some of them.
  Result<Run> append(int64_t count, int64_t all = 0);
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
  void clear();
  void step_done() { flip_ ^= 1; }

 private:
  StatePool* pool_;
  struct Tied {
    int64_t first = 0, count = 0;
  };
  std::vector<Run> runs_;
  std::vector<Tied> tied_;  // in order
  int64_t length_ = 0, dropped_ = 0;
  int flip_ = 0;
};

}  // namespace situ
