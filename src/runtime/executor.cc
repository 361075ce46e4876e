#include "runtime/executor.h"

#include <algorithm>

#include "base/clock.h"

namespace situ {
namespace {

// Rows that a thread takes through a row group at once: what one product writes is in its cache when the next one reads
// it (256 rows take as long).
constexpr int64_t kRowsTogether = 128;

}  // namespace

Executor::Executor(ThreadPool& pool)
    : pool_(pool),
      scratch_(kThreadScratchBytes, pool.threads()),
      books_(static_cast<size_t>(pool.threads())),
      faults_(static_cast<size_t>(pool.threads())),
      fault_calls_(static_cast<size_t>(pool.threads())),
      step_threads_(pool.threads()) {}

Execution Executor::prepare(const Schedule& schedule) {
  Execution e;
  e.schedule_ = &schedule;
  for (const Call& c : schedule.calls) e.kernels_.push_back(kernels().*c.prepared.kernel);
  for (int k = 0; k < kStepKinds; ++k) e.barriers_[k] = barriers_of(schedule, step_kind(k));
  return e;
}

KernelCall Executor::thread_call(int thread) {
  KernelCall call;
  call.scratch = scratch_.of(thread);
  call.ledger = &books_[static_cast<size_t>(thread)];
  call.fault = &faults_[static_cast<size_t>(thread)];
  return call;
}

// Waits at barrier number `barrier` of the step; false: the step ends there. Thread 0 says before a barrier that it is
// the last one; others may read that behind an earlier one.
bool Executor::pass_barrier(int barrier, int call, const Share& share) {
  const bool limited = step_->until != Clock::time_point::max();
  if (share.first == 0 && (pool_.interrupted() || (limited && Clock::now() >= step_->until))) {
    last_call_ = call;
    last_barrier_.store(std::min(barrier, last_barrier_.load(std::memory_order_relaxed)), std::memory_order_relaxed);
  }
  if (!share.all()) pool_.barrier().wait();
  return last_barrier_.load(std::memory_order_relaxed) > barrier;
}

// In how many parts a thread takes its rows through a row group; 0: the calls of groups go one by one.
int Executor::row_parts(int64_t tokens) const {
  const int64_t rows = tokens / pool_.threads();
  return rows < kRowsOfOwn ? 0 : static_cast<int>((rows + kRowsTogether - 1) / kRowsTogether);
}

// Threads take turns at being the first of a segment, so that heads that do not divide among them are not always one
// thread's burden; but where a segment reads what the one before it left.
void Executor::run_call(int index, KernelCall& call, const Share& share) {
  const Call& c = execution_->schedule_->calls[static_cast<size_t>(index)];
  const KernelFn kernel = execution_->kernels_[static_cast<size_t>(index)];
  call.in_count = static_cast<int>(c.in.size());
  call.out_count = static_cast<int>(c.out.size());
  call.params = c.prepared.params.get();
  const bool apart = step_->sequences > 0 && !step_->merged[static_cast<size_t>(index)];
  if (!apart && (!kind_.several || c.takes != Takes::kEach)) {
    step_->calls.bind(index, -1, call);
    for (int part = share.first; part < share.last; ++part) kernel(call, part, share.parts);
    return;
  }
  const int segments = apart ? step_->sequences : step_->segments;
  for (int s = c.last_rows && !apart ? step_->first_wanted : 0; s < segments; ++s) {
    step_->calls.bind(index, s, call);
    for (int part = share.first; part < share.last; ++part)
      kernel(call, (part + (c.in_order ? 0 : s)) % share.parts, share.parts);
  }
}

void Executor::execute(const Share& share) {
  const Schedule& schedule = *execution_->schedule_;
  const std::vector<char>& barriers = execution_->barriers_[kind_.index()];
  const int thread = share.first, count = static_cast<int>(schedule.calls.size());
  const int parts = kind_.by_rows ? row_parts(step_->tokens) : 0;
  Trace* const trace = step_->trace;
  KernelCall call = thread_call(thread);
  const int64_t start = trace ? Trace::now() : 0;
  int64_t ready = start, begin = start;
  const auto run = [&](int index, const Share& own) {
    if (!runs_in(schedule.calls[static_cast<size_t>(index)], kind_)) return;
    if (pause_) pause_(thread);
    run_call(index, call, own);
    int& fault_call = fault_calls_[static_cast<size_t>(thread)];
    if (call.fault->what && fault_call < 0) fault_call = index;
    if (!trace) return;
    const int64_t end = Trace::now();
    trace->add(thread, {step_->first_name + index, ready, begin, end});
    ready = begin = end;
  };
  int met = 0;
  size_t group = 0;
  while (group < schedule.row_groups.size() && schedule.row_groups[group].begin < step_->first_call) ++group;
  for (int i = step_->first_call, next = 0; i < count; i = next) {
    if (barriers[static_cast<size_t>(i)] && i > step_->first_call) {
      if (!pass_barrier(met++, i, share)) return;
      if (trace) begin = Trace::now();
    }
    if (parts == 0 || group == schedule.row_groups.size() || schedule.row_groups[group].begin != i) {
      next = i + 1;
      run(i, share);
      continue;
    }
    next = schedule.row_groups[group++].end;
    for (int part = share.first * parts; part < share.last * parts; ++part)
      for (int j = i; j < next; ++j) run(j, {part, part + 1, share.parts * parts});
  }
  if (trace && thread == 0) trace->add(thread, {step_->step_name, start, start, ready});
}

StepEnd Executor::run(const Execution& execution, const BoundStep& step, Ledger& ledger) {
  execution_ = &execution;
  step_ = &step;
  kind_ = {step.logits, step.segments > 1, step.sequences == 0 && row_parts(step.tokens) > 0};
  for (Ledger& b : books_) b = Ledger{};
  for (Fault& f : faults_) f = Fault{};
  for (int& c : fault_calls_) c = -1;
  if (pool_.interrupted()) return {true, -1, {}};
  last_barrier_ = INT_MAX;
  const bool is_short = pool_.threads() > 1 && !step.encodes && step.tokens <= StepThreads::kMostTokens;
  const bool alone = is_short && (step_threads_.alone() || always_alone_);
  const bool asks = is_short && step_threads_.asks_use();
  const ProcessorUse before = asks ? ProcessorUse::now() : ProcessorUse{};
  const Clock::time_point begin = Clock::now();
  const int sleeps = pool_.barrier().sleeps();
  if (alone)
    execute({0, pool_.threads(), pool_.threads()});
  else
    pool_.run([this](int t, int n) { execute({t, t + 1, n}); });
  if (execution.number_ < 0) execution.number_ = step_threads_.add_program();
  if (is_short && step.until == Clock::time_point::max())
    step_threads_.done(execution.number_, static_cast<int>(step.tokens), ms_since(begin),
                       pool_.barrier().sleeps() - sleeps, asks ? ProcessorUse::now() - before : before);
  for (const Ledger& b : books_) {
    ledger.add(b);
    ledger.computed -= b.copied;  // what kernels moved is part of their outputs, which the caller counts
  }
  StepEnd end;
  const bool stopped = last_barrier_ != INT_MAX;
  end.interrupted = stopped && (pool_.interrupted() || step.until == Clock::time_point::max());
  if (stopped && !end.interrupted) end.next_call = last_call_;
  for (size_t t = 0; t < faults_.size() && !end.interrupted && end.fault_call < 0; ++t)
    if (faults_[t].what) end = {false, fault_calls_[t], faults_[t]};
  return end;
}

}  // namespace situ
