#include "runtime/space.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "base/assign.h"

namespace situ {
namespace {

// For one element more, so that the memory for it is there before anything else changes.
template <typename T>
void make_room(std::vector<T>& list) {
  if (list.size() == list.capacity()) list.reserve(2 * list.size() + 1);
}

}  // namespace

const char* space_name(SpaceKind kind) {
  static const char* const names[kSpaceKinds] = {"append", "source", "whole"};
  return names[static_cast<int>(kind)];
}

SpaceKind space_of(StateRule rule) {
  return rule == StateRule::kSource    ? SpaceKind::kSource
         : rule == StateRule::kReplace ? SpaceKind::kWhole
                                       : SpaceKind::kAppend;
}

// Room that a sequence has to grow in before it meets another one; small where there are few slots at all.
Space::Space(int64_t capacity)
    : capacity_(capacity), free_(capacity), block_(std::clamp<int64_t>(capacity / 64, 1, 64)) {}

int64_t Space::forget_unused() {
  while (!references_.empty() && references_.back() == 0) references_.pop_back();
  taken_.resize((references_.size() + static_cast<size_t>(block_) - 1) / static_cast<size_t>(block_));
  return used();
}

// How many slots from `begin` on are free, up to `most`.
int64_t Space::free_from(int64_t begin, int64_t most) const {
  const int64_t used = static_cast<int64_t>(references_.size()),
                end = std::min(capacity_, begin + std::min(most, capacity_));
  int64_t s = begin;
  while (s < std::min(end, used) && references_[static_cast<size_t>(s)] == 0) ++s;
  return (s >= used ? std::max(s, end) : s) - begin;
}

// The lowest whole blocks that nobody has a slot of, as many as `count` takes.
Run Space::free_blocks(int64_t count) const {
  const int64_t wanted = (count + block_ - 1) / block_, used = static_cast<int64_t>(taken_.size());
  int64_t first = 0;
  for (int64_t b = 0; b < used && b - first < wanted; ++b)
    if (taken_[static_cast<size_t>(b)] != 0) first = b + 1;
  const int64_t begin = first * block_;
  return begin + count <= capacity_ ? Run{begin, count} : Run{};
}

Run Space::largest_gap() const {
  Run gap;
  for (int64_t s = 0; s < capacity_;) {
    const int64_t length = free_from(s, capacity_);
    if (length > gap.length) gap = {s, length};
    s += length + 1;
  }
  return gap;
}

Run Space::allocate(int64_t count, int64_t after) {
  if (free_ == 0) return {};
  Run run{after, free_from(after, count)};
  if (run.length == 0 && !spread_) run = free_blocks(count);
  if (run.length == 0) {
    run = largest_gap();
    constexpr int64_t kMostRoom = 1 << 20;  // left for the sequence in front to grow
    if (spread_ && run.first_slot > 0) {
      const int64_t room = std::min(kMostRoom, std::max<int64_t>(0, run.length - count) / 2);
      run = {run.first_slot + room, run.length - room};
    }
    run.length = std::min(count, run.length);
  }
  add_reference(run);
  return run;
}

int64_t Space::find_stretch(int64_t count) const {
  for (int64_t s = 0; s + count <= capacity_;) {
    const int64_t length = free_from(s, count);
    if (length >= count) return s;
    s += length + 1;
  }
  return -1;
}

bool Space::cut(int64_t count) {
  const int64_t end = capacity_ - count;
  if (end < 0 || free_from(end, count) < count) return false;
  std::atomic_ref(capacity_).store(end, std::memory_order_relaxed);
  free_ -= count;
  return true;
}

bool Space::fits(int64_t count) const { return find_stretch(count) >= 0; }

Run Space::allocate_stretch(int64_t count) {
  const int64_t first = find_stretch(count);
  if (first < 0) return {};
  const Run run{first, count};
  add_reference(run);
  return run;
}

int64_t Space::alike(const Run& run) const {
  int64_t count = 1;
  while (count < run.length && shared(run.first_slot + count) == shared(run.first_slot)) ++count;
  return count;
}

void Space::add_reference(const Run& run) {
  const size_t end = static_cast<size_t>(run.first_slot + run.length), block = static_cast<size_t>(block_);
  const size_t blocks = (end + block - 1) / block;
  if (taken_.size() < blocks) taken_.resize(blocks);
  if (references_.size() < end) references_.resize(end);
  for (size_t s = static_cast<size_t>(run.first_slot); s < end; ++s) {
    if (references_[s]++ != 0) continue;
    ++taken_[s / block];
    --free_;
  }
}

void Space::release(const Run& run) {
  for (size_t s = static_cast<size_t>(run.first_slot), end = s + static_cast<size_t>(run.length); s < end; ++s) {
    if (--references_[s] != 0) continue;
    --taken_[s / static_cast<size_t>(block_)];
    ++free_;
  }
}

Result<std::unique_ptr<StatePool>> StatePool::create(const std::vector<StateLayout>& layouts,
                                                     const Capacity& capacity) {
  std::unique_ptr<StatePool> pool(new StatePool());
  const int64_t capacities[kSpaceKinds] = {capacity.append, capacity.source, capacity.whole};
  for (int kind = 0; kind < kSpaceKinds; ++kind) pool->spaces_[kind] = Space(capacities[kind]);
  if (capacity.whole > 0) pool->space(SpaceKind::kWhole).add_reference({0, 1});  // zeros, for ever
  for (const StateLayout& l : layouts) {
    const int kind = static_cast<int>(space_of(l.pair.rule));
    int64_t bytes = 0;
    if (__builtin_mul_overflow(l.slot_bytes(), capacities[kind], &bytes))
      return Status::error(Code::kNoRoom, "a state of " + std::to_string(capacities[kind]) + " slots overflows");
    pool->slot_bytes_[kind] += l.slot_bytes();
    Member& state = pool->members_.emplace_back();
    state = {space_of(l.pair.rule), l.slot_bytes(), {}};
    SITU_RETURN_IF_ERROR(assign(&state.memory, ReservedMemory::of(bytes, "of address space for the state")));
  }
  return pool;
}

void StatePool::give_back() {
  constexpr int64_t kLeast = int64_t{1} << 20;  // bytes of a state that are worth a call
  for (int kind = 0; kind < kSpaceKinds; ++kind) {
    const int64_t touched = spaces_[kind].used(), end = spaces_[kind].forget_unused();
    for (const Member& m : members_) {
      const int64_t slot = m.slot_bytes, page = 4096;
      const int64_t from = (end * slot + page - 1) / page * page,
                    to = std::min(touched * slot, m.memory.bytes()) / page * page;
      if (m.space == static_cast<SpaceKind>(kind) && to - from >= kLeast)
        madvise(m.memory.data() + from, static_cast<size_t>(to - from), MADV_DONTNEED);
    }
  }
}

Sequence::Sequence(StatePool& pool, std::vector<Run> runs, int64_t whole) : pool_(&pool) {
  runs_ = std::move(runs);
  for (const Run& r : runs_) {
    pool_->space(SpaceKind::kAppend).add_reference(r);
    length_ += r.length;
  }
  if (whole < 0) return;
  pool_->space(SpaceKind::kWhole).add_reference({whole, 1});
  held_.push_back({length_, whole});
}

Sequence& Sequence::operator=(Sequence&& other) noexcept {
  if (this != &other) {
    if (pool_) clear();
    pool_ = other.pool_;
    parts() = std::exchange(other.parts(), {});
    source_ = std::move(other.source_);
    media_ = std::move(other.media_);
  }
  return *this;
}

Result<Run> Sequence::append(int64_t count, int64_t all) {
  make_room(runs_);
  const int64_t end = runs_.empty() ? 0 : runs_.back().first_slot + runs_.back().length;
  const Run run = pool_->space(SpaceKind::kAppend).allocate(count, end);
  if (run.length == 0)
    return Status::error(
        Code::kNoRoom, "the state is full: " + std::to_string(std::max(count, all)) + " more tokens do not fit, all " +
                           std::to_string(pool_->capacity()) +
                           " slots are taken (a larger context, memory or number of sequences gives more)");
  if (!runs_.empty() && run.first_slot == end)
    runs_.back().length += run.length;
  else
    runs_.push_back(run);
  length_ += run.length;
  return run;
}

Run Sequence::slots_of(int64_t first, int64_t count) const {
  int64_t begin = length_;
  for (size_t i = runs_.size(); i-- > 0;) {
    const Run& r = runs_[i];
    begin -= r.length;
    if (begin <= first) return {r.first_slot + first - begin, std::min(count, begin + r.length - first)};
  }
  return {};
}

void Sequence::tie(int64_t count) {
  if (count > 1) tied_.push_back({length_ - count, count});
}

int64_t Sequence::whole_before(int64_t length) const {
  for (const Tied& t : tied_)
    if (t.first < length && length < t.first + t.count) return t.first;
  return length;
}

void Sequence::rewind(int64_t length) {
  if (static_cast<int64_t>(tokens_.size()) > length) tokens_.resize(static_cast<size_t>(length));
  if (lost_) {
    length_ = dropped_ = length;
    return;
  }
  while (!tied_.empty() && tied_.back().first + tied_.back().count > length) tied_.pop_back();
  for (; !written_.empty(); written_.pop_back()) release_whole(written_.back().slot);
  for (; !held_.empty() && held_.back().length > length; held_.pop_back()) release_whole(held_.back().slot);
  while (length_ > length) {
    Run& last = runs_.back();
    const int64_t drop = std::min(last.length, length_ - length);
    pool_->space(SpaceKind::kAppend).release({last.first_slot + last.length - drop, drop});
    last.length -= drop;
    length_ -= drop;
    if (last.length == 0) runs_.pop_back();
  }
}

void Sequence::drop(int64_t most, int64_t first) {
  make_room(runs_);
  int64_t surplus = kept() - most;
  dropped_ += std::max<int64_t>(0, surplus);
  for (size_t i = 0; surplus > 0;) {
    Run& r = runs_[i];
    if (first >= r.length) {
      first -= r.length;
      ++i;
      continue;
    }
    if (first > 0) {  // the rest is a run of its own
      const Run rest{r.first_slot + first, r.length - first};
      r.length = first;
      runs_.insert(runs_.begin() + static_cast<long>(i) + 1, rest);
      continue;
    }
    const int64_t gone = std::min(surplus, r.length);
    pool_->space(SpaceKind::kAppend).release({r.first_slot, gone});
    r.first_slot += gone;
    r.length -= gone;
    surplus -= gone;
    if (r.length == 0) runs_.erase(runs_.begin() + static_cast<long>(i));
  }
}

Sequence Sequence::fork() const {
  SequenceParts parts = *this;
  parts.written_.clear();
  parts.pinned_.fill(-1);
  Sequence other(*pool_);
  other.source_ = source_;
  other.media_ = media_;
  for (const Run& r : runs_) pool_->space(SpaceKind::kAppend).add_reference(r);
  for (const Whole& h : held_) pool_->space(SpaceKind::kWhole).add_reference({h.slot, 1});
  other.parts() = std::move(parts);
  return other;
}

void Sequence::clear() {
  for (const Run& r : runs_) pool_->space(SpaceKind::kAppend).release(r);
  for (const Whole& h : held_) release_whole(h.slot);
  for (const Whole& w : written_) release_whole(w.slot);
  parts() = {};
}

void Sequence::lose_rows(std::vector<int64_t> tokens) {
  clear();
  length_ = dropped_ = static_cast<int64_t>(tokens.size());
  lost_ = length_ > 0;
  tokens_ = std::move(tokens);
}

Status Sequence::take_write_slot(int64_t length, bool again) {
  if (pool_->slot_bytes(SpaceKind::kWhole) == 0) return Status::ok();
  make_room(written_);
  const bool first = written_.empty();
  again = !first && (again || std::ssize(written_) == kWrittenStates);
  const Run slot = again ? Run{} : pool_->space(SpaceKind::kWhole).allocate_stretch(1);
  if (slot.length == 0 && first)
    return Status::error(Code::kNoRoom, "no room for one more recurrent state: all " +
                                            std::to_string(pool_->space(SpaceKind::kWhole).capacity()) +
                                            " slots are taken (a larger number of sequences gives more)");
  read_ = !first ? written_.back().slot : held_.empty() ? 0 : held_.back().slot;
  if (slot.length == 0)
    written_.back().length = length;
  else
    written_.push_back({length, slot.first_slot});
  return Status::ok();
}

void Sequence::step_done() {
  if (written_.empty()) return;
  held_.reserve(held_.size() + written_.size());
  for (const Whole& w : written_) {
    held_.push_back(w);
    for (size_t i = 0; std::ssize(held_) - static_cast<int64_t>(i) > kKeptSteps; ++i)
      if (std::ranges::find(pinned_, held_[i].length) == pinned_.end()) {
        release_whole(held_[i].slot);
        held_.erase(held_.begin() + static_cast<long>(i));
        break;
      }
  }
  written_.clear();
}

bool Sequence::holds(int64_t length) const {
  return length == 0 || pool_->slot_bytes(SpaceKind::kWhole) == 0 ||
         std::any_of(held_.begin(), held_.end(), [&](const Whole& h) { return h.length == length; });
}

}  // namespace situ
