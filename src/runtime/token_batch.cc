#include "runtime/token_batch.h"

#include <algorithm>

#include "base/assign.h"
#include "place/row_groups.h"

namespace situ {
namespace {

constexpr int64_t kLine = 64;
int64_t lines(int64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }
int64_t stride_of(const Plan& plan) { return lines(plan.arena_bytes) + lines(plan.io_bytes); }

// Rows [1 .., 1, N] of one token.
bool is_row(const View& v, int rank) {
  if (v.rank != rank || rank < 2) return false;
  return std::all_of(v.dims, v.dims + rank - 1, [](int64_t d) { return d == 1; });
}

}  // namespace

Result<std::unique_ptr<TokenBatch>> TokenBatch::create(const Program& token, const Plan& plan, const StatePool& states,
                                                       int64_t most, Executor& executor) {
  std::unique_ptr<TokenBatch> batch(new TokenBatch(token, executor));
  batch->stride_ = stride_of(plan);
  // Regions that no sequence has used cost nothing.
  const std::string what_for = "for the activations of " + std::to_string(most) + " sequences";
  SITU_RETURN_IF_ERROR(assign(&batch->memory_, ReservedMemory::of(batch->stride_ * most + kLine, what_for)));
  std::byte* const begin = batch->memory_.data();
  batch->first_ = {begin, begin + lines(plan.arena_bytes), &states};
  const size_t calls = token.schedule().calls.size();
  batch->merged_.resize(calls);
  batch->is_merged_.resize(calls);
  return batch;
}

Status TokenBatch::grow(size_t sequences) {
  while (programs_.size() < sequences) {
    const int64_t offset = stride_ * static_cast<int64_t>(programs_.size());
    SITU_TAKE(program, token_.over({first_.arena + offset, first_.io + offset, first_.states}));
    programs_.push_back(std::move(program));
  }
  const std::vector<Call>& calls = token_.schedule().calls;
  for (size_t i = 0; i < calls.size(); ++i) {
    if (!token_.is_product(static_cast<int>(i))) continue;
    merged_[i].operands.resize(calls[i].in.size() + calls[i].out.size());
    merged_[i].slots.resize(std::max(merged_[i].slots.size(), sequences));
  }
  return Status::ok();
}

Status TokenBatch::run(std::span<const Segment> segments, float* logits, int64_t width, Ledger& ledger) {
  SITU_RETURN_IF_ERROR(grow(segments.size()));
  inputs_.clear();
  for (size_t i = 0; i < segments.size(); ++i) {
    float* const to = logits ? logits + static_cast<int64_t>(i) * width : nullptr;
    inputs_.push_back({segments.subspan(i, 1), 1, to});
  }
  for (size_t i = 0; i < segments.size(); ++i) SITU_RETURN_IF_ERROR(programs_[i]->prepare(inputs_[i], ledger));
  for (size_t i = 0; i < merged_.size(); ++i) is_merged_[i] = merge(static_cast<int>(i), segments.size());
  BoundStep step{*this, static_cast<int64_t>(segments.size())};
  step.sequences = static_cast<int>(segments.size());
  step.merged = is_merged_;
  token_.name_in_trace(&step);
  const StepEnd end = executor_.run(token_.execution(), step, ledger);
  if (end.interrupted) return Status::error(Code::kInterrupted, "interrupted");
  for (size_t i = 0; i < segments.size(); ++i) programs_[i]->count_outputs(ledger);
  return token_.fault(end);
}

// Whether a call is a product of the sequences' rows, and then what its operands are.
bool TokenBatch::merge(int call, size_t sequences) {
  Merged& m = merged_[static_cast<size_t>(call)];
  if (m.operands.empty()) return false;
  const Call& c = token_.schedule().calls[static_cast<size_t>(call)];
  const View* const first = programs_[0]->operands(call);
  const int rank = first[0].rank;
  m.out_by_slot = 0;
  for (size_t i = 0; i < m.operands.size(); ++i) {
    const View& v = first[i];
    View& all = m.operands[i] = v;
    if (!v.present()) continue;
    const auto distance = [&](size_t s) { return programs_[s]->operands(call)[i].data - v.data; };
    const int64_t element = std::max<int64_t>(1, dtype_bytes(v.type)), apart = distance(1);
    bool even = apart % element == 0;
    for (size_t s = 2; s < sequences; ++s) even = even && distance(s) == apart * static_cast<int64_t>(s);
    if (i < c.in.size() && even && apart == 0) continue;  // weights
    if (!is_row(v, rank)) return false;
    all.dims[rank - 2] = static_cast<int64_t>(sequences);
    if (even) {
      all.strides[rank - 2] = apart / element;
      continue;
    }
    const int64_t slot = v.strides[rank - 2] * element;
    if (i < c.in.size() || slot == 0) return false;
    for (size_t s = 0; s < sequences; ++s) {
      if (distance(s) % slot != 0 || (m.out_by_slot != 0 && m.slots[s] != distance(s) / slot)) return false;
      m.slots[s] = distance(s) / slot;
    }
    m.out_by_slot |= 1u << (i - c.in.size());
  }
  return true;
}

void TokenBatch::bind(int call, int segment, KernelCall& to) const {
  if (segment >= 0) return programs_[static_cast<size_t>(segment)]->bind(call, -1, to);
  programs_[0]->bind(call, -1, to);
  const Merged& m = merged_[static_cast<size_t>(call)];
  to.in = m.operands.data();
  to.out = to.in + token_.schedule().calls[static_cast<size_t>(call)].in.size();
  to.slots = m.slots.data();
  to.out_by_slot = m.out_by_slot;
}

}  // namespace situ
