#include "runtime/state_pool.h"

#include <sys/mman.h>

#include <algorithm>

namespace situ {

Result<std::unique_ptr<StatePool>> StatePool::create(const std::vector<StateLayout>& layouts, int64_t capacity) {
  std::unique_ptr<StatePool> pool(new StatePool());
  pool->capacity_ = capacity;
  for (const StateLayout& l : layouts) {
    int64_t bytes = 0;
    const bool append = l.pair.rule == StateRule::kAppend;
    const int64_t rows = append ? capacity : 2;  // a replaced state is read from one half and written to the other
    if (__builtin_mul_overflow(l.slot_bytes(), rows, &bytes))
      return Status::error("a state of " + std::to_string(capacity) + " slots overflows");
    (append ? pool->bytes_per_slot_ : pool->fixed_bytes_) += append ? l.slot_bytes() : bytes;
    // NORESERVE: pages that no token has reached cost nothing.
    void* p = mmap(nullptr, static_cast<size_t>(std::max<int64_t>(bytes, 1)), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
      return Status::error("cannot reserve " + std::to_string(bytes) + " bytes of address space for the state");
    pool->bases_.push_back(static_cast<std::byte*>(p));
    pool->sizes_.push_back(static_cast<size_t>(std::max<int64_t>(bytes, 1)));
  }
  return pool;
}

StatePool::~StatePool() {
  for (size_t i = 0; i < bases_.size(); ++i) munmap(bases_[i], sizes_[i]);
}

int64_t StatePool::free_slots() const {
  return capacity_ - static_cast<int64_t>(references_.size()) + std::count(references_.begin(), references_.end(), 0u);
}

Run StatePool::allocate(int64_t count, int64_t after) {
  auto free_from = [&](int64_t begin, int64_t most) {
    const int64_t used = static_cast<int64_t>(references_.size()),
                  end = std::min(capacity_, begin + std::min(most, capacity_));
    int64_t s = begin;
    while (s < std::min(end, used) && references_[static_cast<size_t>(s)] == 0) ++s;
    return (s >= used ? std::max(s, end) : s) - begin;
  };
  Run run{after, free_from(after, count)};
  if (run.length == 0) {
    Run gap;
    for (int64_t s = 0; s < capacity_;) {
      const int64_t length = free_from(s, capacity_);
      if (length > gap.length) gap = {s, length};
      s += length + 1;
    }
    constexpr int64_t kMostRoom = 1 << 20;  // left for the sequence in front to grow
    const int64_t room = gap.first_slot > 0 ? std::min(kMostRoom, std::max<int64_t>(0, gap.length - count) / 2) : 0;
    run = {gap.first_slot + room, std::min(count, gap.length)};
  }
  add_reference(run);
  return run;
}

void StatePool::add_reference(const Run& run) {
  references_.resize(std::max(references_.size(), static_cast<size_t>(run.first_slot + run.length)));
  for (int64_t s = run.first_slot; s < run.first_slot + run.length; ++s) ++references_[static_cast<size_t>(s)];
}

void StatePool::release(const Run& run) {
  for (int64_t s = run.first_slot; s < run.first_slot + run.length; ++s) --references_[static_cast<size_t>(s)];
}

Sequence::Sequence(StatePool& pool, std::vector<Run> runs) : pool_(&pool), runs_(std::move(runs)) {
  for (const Run& r : runs_) {
    pool_->add_reference(r);
    length_ += r.length;
  }
}

Sequence::Sequence(Sequence&& other) noexcept
    : pool_(other.pool_),
      runs_(std::move(other.runs_)),
      tied_(std::move(other.tied_)),
      length_(other.length_),
      dropped_(other.dropped_),
      flip_(other.flip_) {
  other.runs_.clear();
  other.tied_.clear();
  other.length_ = other.dropped_ = 0;
}

Sequence& Sequence::operator=(Sequence&& other) noexcept {
  if (this != &other) {
    clear();
    pool_ = other.pool_;
    runs_ = std::move(other.runs_);
    tied_ = std::move(other.tied_);
    length_ = other.length_;
    dropped_ = other.dropped_;
    flip_ = other.flip_;
    other.runs_.clear();
    other.tied_.clear();
    other.length_ = other.dropped_ = 0;
  }
  return *this;
}

Result<Run> Sequence::append(int64_t count, int64_t all) {
  const int64_t end = runs_.empty() ? 0 : runs_.back().first_slot + runs_.back().length;
  const Run run = pool_->allocate(count, end);
  if (run.length == 0)
    return Status::error("the state is full: " + std::to_string(std::max(count, all)) +
                         " more tokens do not fit, all " + std::to_string(pool_->capacity()) +
                         " slots are taken (a larger context, memory or number of sequences gives more)");
  if (!runs_.empty() && run.first_slot == end)
    runs_.back().length += run.length;
  else
    runs_.push_back(run);
  length_ += run.length;
  return run;
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
  while (!tied_.empty() && tied_.back().first + tied_.back().count > length) tied_.pop_back();
  while (length_ > length) {
    Run& last = runs_.back();
    const int64_t drop = std::min(last.length, length_ - length);
    pool_->release({last.first_slot + last.length - drop, drop});
    last.length -= drop;
    length_ -= drop;
    if (last.length == 0) runs_.pop_back();
  }
}

void Sequence::drop(int64_t most, int64_t first) {
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
    pool_->release({r.first_slot, gone});
    r.first_slot += gone;
    r.length -= gone;
    surplus -= gone;
    if (r.length == 0) runs_.erase(runs_.begin() + static_cast<long>(i));
  }
}

Sequence Sequence::fork() const {
  Sequence other(*pool_, runs_);
  other.tied_ = tied_;
  other.length_ = length_;
  other.dropped_ = dropped_;
  other.flip_ = flip_;
  return other;
}

void Sequence::clear() {
  for (const Run& r : runs_) pool_->release(r);
  runs_.clear();
  tied_.clear();
  length_ = dropped_ = 0;
}

}  // namespace situ
