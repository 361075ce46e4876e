// Products of experts: rows of a step are grouped by the expert that an index gives them, so that each matrix is read
// once for all of its rows, and those of other experts are not read at all. A row has the same sums whoever is with it.
#pragma once

#include "kernels/params.h"
#include "kernels/rows.h"

namespace situ {
namespace SITU_ISA {

// Rows with their choices that are grouped at a time.
constexpr int64_t kPairsAtOnce = 8192;
constexpr int64_t kRoutingBytes = (kMaxExperts + 16 + 2 * kPairsAtOnce) * 4 + 2 * kPairsAtOnce * 8;
static_assert(kRoutingBytes % 64 == 0 && kRoutingBytes + kScratchBytes <= kThreadScratchBytes);
// What it costs to read a column once, in rows that are multiplied by it.
constexpr int64_t kReadRows = 4;

// Rows of one expert, in the order of the step.
struct ExpertRows {
  int64_t expert = 0, count = 0;
  int64_t prompt = 0;  // so many first ones are pieces of prompts (KernelCall::prompt_rows)
  const int64_t* x = nullptr;
  const int64_t* y = nullptr;  // where they begin, in elements

  // Rows of a view at these places.
  static RowOffsets at(const int64_t* places) {
    RowOffsets rows;
    rows.step = 1;
    rows.even = false;
    rows.slots = places;
    return rows;
  }
};

// Threads share units of columns, by what they cost. Calls body(rows, first unit, last unit) for each expert that has
// rows and of which `thread` has units. Takes the first kRoutingBytes of the thread's scratch.
template <typename Body>
static inline void each_expert(const KernelCall& call, int64_t experts, int64_t units, int thread, int threads,
                               Body body) {
  const View &x = call.in[0], &index = call.in[1], &y = call.out[0];
  const int64_t choices = index.dims[index.rank - 1], pairs = count_dims(index, 0, index.rank);
  const RowOffsets places(index, index.rank), from(x, x.rank - 1), to(y, y.rank - 1);
  const bool own = x.rank == y.rank;
  auto* x_rows = reinterpret_cast<int64_t*>(call.scratch);
  int64_t* y_rows = x_rows + kPairsAtOnce;
  auto* order = reinterpret_cast<int32_t*>(y_rows + kPairsAtOnce);
  int32_t* expert_of = order + kPairsAtOnce;
  int32_t* ends = expert_of + kPairsAtOnce;
  for (int64_t begin = 0; begin < pairs; begin += kPairsAtOnce) {
    const int64_t count = pairs - begin < kPairsAtOnce ? pairs - begin : kPairsAtOnce;
    for (int64_t e = 0; e <= experts; ++e) ends[e] = 0;
    for (int64_t p = 0; p < count; ++p) {
      const int64_t at = places[begin + p];
      const int64_t named = index.type == DType::kI32 ? index.as<const int32_t>()[at] : index.as<const int64_t>()[at];
      int64_t e = named < 0 ? named + experts : named;
      if (e < 0 || e >= experts) {
        report(call, "an expert is out of range", named, experts);
        e = 0;
      }
      expert_of[p] = static_cast<int32_t>(e);
      ++ends[e + 1];
    }
    int64_t total = 0;
    for (int64_t e = 0; e < experts; ++e) {
      if (ends[e + 1] > 0) total += units * (ends[e + 1] + kReadRows);
      ends[e + 1] += ends[e];
    }
    // Afterwards ends[e] is where the rows of e end.
    for (int64_t p = 0; p < count; ++p) order[ends[expert_of[p]]++] = static_cast<int32_t>(p);
    const int64_t low = total * thread / threads, high = total * (thread + 1) / threads;
    int64_t cost = 0;
    for (int64_t e = 0, first = 0; e < experts; first = ends[e++]) {
      ExpertRows rows{e, ends[e] - first, 0, x_rows, y_rows};
      if (rows.count == 0) continue;
      const int64_t unit_cost = rows.count + kReadRows;
      // A unit is whose it begins with.
      auto units_before = [&](int64_t at) {
        const int64_t n = at <= cost ? 0 : (at - cost + unit_cost - 1) / unit_cost;
        return n < units ? n : units;
      };
      const int64_t u0 = units_before(low), u1 = units_before(high);
      cost += units * unit_cost;
      if (u0 >= u1) continue;
      for (int64_t i = 0; i < rows.count; ++i) {
        const int64_t pair = begin + order[first + i];
        x_rows[i] = from[own ? pair : pair / choices];
        y_rows[i] = to[pair];
        rows.prompt += pair / choices < call.prompt_rows;
      }
      body(rows, u0, u1);
    }
  }
}

// The bias of one expert, of operand 2 [experts, N]; absent where there is none.
static inline View expert_bias(const KernelCall& call, int64_t expert) {
  View bias{};
  if (call.in_count < 3 || !call.in[2].present()) return bias;
  const View& all = call.in[2];
  bias.data = all.data + expert * all.strides[0] * (all.type == DType::kF32 ? 4 : 2);
  bias.type = all.type;
  bias.rank = 1;
  bias.dims[0] = all.dims[1];
  bias.strides[0] = all.strides[1];
  return bias;
}

}  // namespace SITU_ISA
}  // namespace situ
