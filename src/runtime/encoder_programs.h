// Programs of encoders: each for arrays of some extents, built beside steps where it is not there, and run in slices
// between steps, with activations of its own.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/side_thread.h"
#include "base/stage_clock.h"
#include "runtime/compile.h"
#include "runtime/program.h"

namespace situ {

struct EncoderProgram;
class PrefixCache;

// What encoders take of a budget of memory: as much as the one that takes most, and what the host writes for all.
struct EncoderBudget {
  bool is_set = false;
  bool fixed_slots = false;  // of the state: somebody has asked for so many
  int64_t left = 0;          // beside all slots
  int64_t taken = 0, arena = 0;
};

// Where encoders of a model run, one at a time: what a suspended one has computed stays there.
struct EncoderRoom {
  Regions regions;  // but for io
  int64_t arena_bytes = 0;
  Executor* executor = nullptr;
  Ledger* ledger = nullptr;
  EncoderBudget budget = {};
  StatePool* states = nullptr;
  PrefixCache* prefixes = nullptr;  // null: there is none
  // What lasts beyond a run: what the host writes for programs, rows that prompts have.
  std::shared_ptr<std::atomic<int64_t>> held_bytes = std::make_shared<std::atomic<int64_t>>(0);
  std::shared_ptr<std::atomic<int64_t>> prompts = std::make_shared<std::atomic<int64_t>>(0);  // that have rows
  // Before a run whose activations take `arena`, and so many bytes more that last, on the thread that steps: where the
  // budget has not left them, the state gives its last slots, for ever, where `cuts`. Error kNoRoom: sequences have
  // them, or there are too few.
  Status claim(int64_t arena, int64_t more, const std::string& name, bool cuts = true);
  // Rows of a prompt, claimed, and held as long as anybody has them. Beside those of other prompts no slots are given
  // for them: they end, and a burst would leave a small state behind. Error: claim()'s.
  Result<Tensor> rows(DType type, const std::vector<int64_t>& dims);
  bool always_suspended = false;  // for tests: at every barrier
  const void* taken_by = nullptr;
  bool take(const void* by) {
    if (!taken_by) taken_by = by;
    return taken_by == by;
  }
  void leave(const void* by) {
    if (taken_by == by) taken_by = nullptr;
  }
};

// What the host writes for a program, and outputs that nobody has a place for.
struct IoMemory {
  ReservedMemory memory;
  std::shared_ptr<std::atomic<int64_t>> counted;  // null: nowhere
  IoMemory() = default;
  IoMemory(const IoMemory&) = delete;
  IoMemory& operator=(const IoMemory&) = delete;
  ~IoMemory();
  Status reserve(const Plan& plan, const std::string& name);
};

struct EncoderProgram {
  Compiled compiled;
  Plan plan;
  int64_t rows = 0;  // that it makes; 0: as many as there are ids
  IoMemory io;
  std::unique_ptr<Program> program;
  // Memory and prepared kernels, where it has none. `name`: for errors.
  Status place(const EncoderRoom& room, const std::string& name);
  int64_t kernel_calls() const { return program ? program->kernel_calls() : std::ssize(plan.steps); }
};

// The programs that are there, few of them: those that were used lately. Entry: an EncoderProgram. Any thread.
template <typename Entry>
class EncoderShelf {
 public:
  // Null: there is none that `is` the one.
  template <typename Is>
  std::shared_ptr<Entry> find(Is is) {
    const std::lock_guard held(mutex_);
    const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const auto& e) { return is(*e); });
    if (found == entries_.end()) return nullptr;
    std::rotate(found, found + 1, entries_.end());
    return entries_.back();
  }
  void keep(std::shared_ptr<Entry> entry) {
    constexpr size_t kMost = 8;  // a picture's size is seldom another one each time
    const std::lock_guard held(mutex_);
    entries_.push_back(std::move(entry));
    if (entries_.size() > kMost) entries_.erase(entries_.begin());
  }
  template <typename Is>
  std::shared_ptr<const Entry> newest(Is is) const {
    const std::lock_guard held(mutex_);
    const auto found = std::find_if(entries_.rbegin(), entries_.rend(), [&](const auto& e) { return is(*e); });
    return found == entries_.rend() ? nullptr : *found;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<Entry>> entries_;  // the one that was used last at the end
};

// Builds programs beside steps, one after the other, with half as many threads as these have.
class ProgramBuilder {
 public:
  struct Build {
    std::atomic<bool> done{false};
    Status status;           // once it is done
    std::mutex reading;      // held while arrays of a caller are read
    bool abandoned = false;  // he has taken them back
  };
  explicit ProgramBuilder(int step_threads) : threads_(std::max(1, step_threads / 2)) {}
  using Work = std::function<Status(Build& build, ThreadPool& pool)>;
  std::shared_ptr<Build> start(Work work);

 private:
  const int threads_;
  SideThread thread_;
};

// A run of the encoders for one prompt, in slices. On the thread that steps.
class Encoding {
 public:
  explicit Encoding(EncoderRoom& room) : room_(room), clock_(*room.ledger) {}
  virtual ~Encoding();
  Encoding(const Encoding&) = delete;
  Encoding& operator=(const Encoding&) = delete;
  // Goes on until about then, at least to the next barrier. False: it is not done, but suspended there, or waits for a
  // program that is built, or for another encoder. `stages`: encoders that were done are added; null: not wanted.
  Result<bool> go_on(Clock::time_point until, std::vector<Stage>* stages);
  // Once it is done.
  virtual void give(Sequence& sequence) = 0;

 protected:
  virtual Result<bool> run(Clock::time_point until, std::vector<Stage>* stages) = 0;
  // The program that `find` gives, at once or when `work` is done; null: not yet.
  template <typename Find>
  auto program(ProgramBuilder& builder, Find find, ProgramBuilder::Work work) -> Result<decltype(find())> {
    using Found = decltype(find());
    if (!build_) {
      if (Found found = find()) return found;
      build_ = builder.start(std::move(work));
    }
    if (!build_->done) return Found();
    const Status built = std::exchange(build_, nullptr)->status;
    return built.is_ok() ? Result<Found>(find()) : built;
  }

  EncoderRoom& room_;
  StageClock clock_;

 private:
  std::shared_ptr<ProgramBuilder::Build> build_;
};

}  // namespace situ
