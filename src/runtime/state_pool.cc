#include "runtime/state_pool.h"

#include <sys/mman.h>

#include <algorithm>

namespace situ {

Result<std::unique_ptr<StatePool>> StatePool::create(const std::vector<StateLayout>& layouts, int64_t capacity) {
  std::unique_ptr<StatePool> pool(new StatePool());
  pool->capacity_ = capacity;
  pool->references_.assign(static_cast<size_t>(capacity), 0);
  for (const StateLayout& l : layouts) {
    const int64_t element = dtype_bytes(l.type);
    int64_t bytes = 0;
    const bool append = l.pair.rule == StateRule::kAppend;
    const int64_t rows = append ? capacity : 2;  // a replaced state is read from one half and written to the other
    if (__builtin_mul_overflow(l.slot_elements * element, rows, &bytes)) return Status::error("a state of " + std::to_string(capacity) + " slots overflows");
    (append ? pool->bytes_per_slot_ : pool->fixed_bytes_) += append ? l.slot_elements * element : bytes;
    // NORESERVE: pages that no token has reached cost nothing.
    void* p = mmap(nullptr, static_cast<size_t>(std::max<int64_t>(bytes, 1)), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return Status::error("cannot reserve " + std::to_string(bytes) + " bytes of address space for the state");
    pool->bases_.push_back(static_cast<std::byte*>(p));
    pool->sizes_.push_back(static_cast<size_t>(std::max<int64_t>(bytes, 1)));
  }
  return pool;
}

StatePool::~StatePool() {
  for (size_t i = 0; i < bases_.size(); ++i) munmap(bases_[i], sizes_[i]);
}

int64_t StatePool::free_slots() const { return std::count(references_.begin(), references_.end(), 0u); }

int64_t StatePool::allocate(int64_t count, int64_t after) {
  auto free_run = [&](int64_t begin) {
    if (begin < 0 || begin > capacity_ - count) return false;
    for (int64_t s = begin; s < begin + count; ++s)
      if (references_[static_cast<size_t>(s)]) return false;
    return true;
  };
  int64_t first = -1;
  if (free_run(after)) {
    first = after;
  } else {
    int64_t length = 0;
    for (int64_t s = 0; s < capacity_ && first < 0; ++s) {
      length = references_[static_cast<size_t>(s)] ? 0 : length + 1;
      if (length == count) first = s + 1 - count;
    }
  }
  if (first >= 0)
    for (int64_t s = first; s < first + count; ++s) references_[static_cast<size_t>(s)] = 1;
  return first;
}

void StatePool::add_reference(const Run& run) {
  for (int64_t s = run.first_slot; s < run.first_slot + run.length; ++s) ++references_[static_cast<size_t>(s)];
}

void StatePool::release(const Run& run) {
  for (int64_t s = run.first_slot; s < run.first_slot + run.length; ++s) --references_[static_cast<size_t>(s)];
}

Sequence::Sequence(Sequence&& other) noexcept
    : pool_(other.pool_), runs_(std::move(other.runs_)), length_(other.length_), flip_(other.flip_) {
  other.runs_.clear();
  other.length_ = 0;
}

Sequence& Sequence::operator=(Sequence&& other) noexcept {
  if (this != &other) {
    clear();
    pool_ = other.pool_;
    runs_ = std::move(other.runs_);
    length_ = other.length_;
    flip_ = other.flip_;
    other.runs_.clear();
    other.length_ = 0;
  }
  return *this;
}

Result<int64_t> Sequence::append(int64_t count) {
  const int64_t end = runs_.empty() ? 0 : runs_.back().first_slot + runs_.back().length;
  const int64_t first = pool_->allocate(count, end);
  if (first < 0)
    return Status::error("the state is full: " + std::to_string(count) + " more tokens do not fit, " + std::to_string(pool_->free_slots()) +
                         " of " + std::to_string(pool_->capacity()) + " slots are free");
  if (!runs_.empty() && first == end) runs_.back().length += count;
  else runs_.push_back({first, count});
  length_ += count;
  return first;
}

void Sequence::rewind(int64_t length) {
  while (length_ > length) {
    Run& last = runs_.back();
    const int64_t drop = std::min(last.length, length_ - length);
    pool_->release({last.first_slot + last.length - drop, drop});
    last.length -= drop;
    length_ -= drop;
    if (last.length == 0) runs_.pop_back();
  }
}

Sequence Sequence::fork() const {
  Sequence other(*pool_);
  other.runs_ = runs_;
  other.length_ = length_;
  other.flip_ = flip_;
  for (const Run& r : runs_) pool_->add_reference(r);
  return other;
}

void Sequence::clear() {
  for (const Run& r : runs_) pool_->release(r);
  runs_.clear();
  length_ = 0;
}

}  // namespace situ
