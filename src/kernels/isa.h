// What every kernel file shares: the namespace of its ISA, the split of work over threads, and walks
// over strided tensors. Each kernel file is compiled once per ISA with -DSITU_ISA=portable|avx2|avx512|..;
// everything here is static so that no copy compiled for one ISA can be linked into another.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernel.h"

#ifndef SITU_ISA
#define SITU_ISA portable
#endif

namespace situ {
namespace SITU_ISA {

// Below this many elements a call is not worth a second thread.
constexpr int64_t kSmallWork = 4096;
// Threads split rows at multiples of this, so that no two write into one cache line (f32).
constexpr int64_t kSplitGrain = 16;

// The part [begin, end) of [0, total) that belongs to `thread`: equal parts, the first ones larger.
static inline void split_range(int64_t total, int thread, int threads, int64_t* begin, int64_t* end) {
  const int64_t part = total / threads, rest = total % threads;
  *begin = part * thread + (thread < rest ? thread : rest);
  *end = *begin + part + (thread < rest ? 1 : 0);
}

// The part of a product that belongs to `thread`: its share of the rows where each thread gets `least_rows` of them, of
// the units of columns else, or a share of both.
struct ProductPart {
  int64_t row, last_row, unit, last_unit;
};
static inline ProductPart split_product(int64_t rows, int64_t units, int64_t least_rows, int thread, int threads) {
  int row_parts = threads;
  while (row_parts > 1 && (threads % row_parts != 0 || rows / row_parts < least_rows)) --row_parts;
  ProductPart part;
  split_range(rows, thread % row_parts, row_parts, &part.row, &part.last_row);
  split_range(units, thread / row_parts, threads / row_parts, &part.unit, &part.last_unit);
  return part;
}

// The same for elements: all of a small tensor to thread 0, splits at multiples of kSplitGrain.
static inline void split_elements(int64_t total, int thread, int threads, int64_t* begin, int64_t* end) {
  if (total < kSmallWork) {
    *begin = 0;
    *end = thread == 0 ? total : 0;
    return;
  }
  split_range((total + kSplitGrain - 1) / kSplitGrain, thread, threads, begin, end);
  *begin *= kSplitGrain;
  *end = *end * kSplitGrain < total ? *end * kSplitGrain : total;
}

// The same for rows of `row_elements` each.
static inline void split_rows(int64_t rows, int64_t row_elements, int thread, int threads, int64_t* begin,
                              int64_t* end) {
  const bool small = row_elements <= 0 || rows < kSmallWork / row_elements;
  if (!small || rows * row_elements >= kSmallWork) {
    split_range(rows, thread, threads, begin, end);
    return;
  }
  *begin = 0;
  *end = thread == 0 ? rows : 0;
}

// Product of dims [from, to) of a view.
static inline int64_t count_dims(const View& v, int from, int to) {
  int64_t n = 1;
  for (int i = from; i < to; ++i) n *= v.dims[i];
  return n;
}

// Notes the first bad value of this thread; the step then returns an error.
static inline void report(const KernelCall& call, const char* what, int64_t value, int64_t limit) {
  if (call.fault == nullptr || call.fault->what != nullptr) return;
  call.fault->what = what;
  call.fault->value = value;
  call.fault->limit = limit;
}

// Views that are walked together: one set of dims, one set of strides (in elements) per operand.
constexpr int kMaxOperands = 17;
struct Nest {
  int rank = 0;
  int operands = 0;
  int64_t dims[kMaxRank];
  int64_t strides[kMaxOperands][kMaxRank];

  int64_t count() const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= dims[i];
    return n;
  }
  // Extent and strides of the innermost dim; a scalar is one row of one element.
  int64_t inner() const { return rank == 0 ? 1 : dims[rank - 1]; }
  int64_t step(int operand) const { return rank == 0 ? 1 : strides[operand][rank - 1]; }
};

// Appends a dim (inside the ones there are); extents of 1 vanish and dims that continue each other in
// every operand merge.
static inline void nest_add_dim(Nest* nest, int64_t extent, const int64_t* strides) {
  if (extent == 1) return;
  const int last = nest->rank - 1;
  bool merges = last >= 0;
  for (int k = 0; merges && k < nest->operands; ++k) merges = nest->strides[k][last] == strides[k] * extent;
  const int at = merges ? last : nest->rank++;
  nest->dims[at] = merges ? nest->dims[at] * extent : extent;
  for (int k = 0; k < nest->operands; ++k) nest->strides[k][at] = strides[k];
}

// Stride of `v` along dim `axis` of a shape of rank `rank` that it broadcasts to.
static inline int64_t broadcast_stride(const View& v, int axis, int rank) {
  const int own = axis - (rank - v.rank);
  return own < 0 || v.dims[own] == 1 ? 0 : v.strides[own];
}

// The nest over all dims of views[0]; the other views broadcast to it.
static inline Nest make_nest(const View* const* views, int operands) {
  Nest nest;
  nest.operands = operands;
  const View& shape = *views[0];
  for (int i = 0; i < shape.rank; ++i) {
    int64_t strides[kMaxOperands];
    for (int k = 0; k < operands; ++k) strides[k] = broadcast_stride(*views[k], i, shape.rank);
    nest_add_dim(&nest, shape.dims[i], strides);
  }
  return nest;
}

// A place in a nest: the index of each of the first `rank` dims and every operand's element offset.
struct Walker {
  const Nest* nest;
  int rank;  // dims walked: all of the nest, or all but the innermost
  int64_t index[kMaxRank];
  int64_t offset[kMaxOperands];
};

static inline Walker walk_from(const Nest& nest, int rank, int64_t linear) {
  Walker w;
  w.nest = &nest;
  w.rank = rank;
  for (int64_t& offset : w.offset) offset = 0;
  for (int i = rank - 1; i >= 0; --i) {
    w.index[i] = nest.dims[i] > 0 ? linear % nest.dims[i] : 0;
    linear = nest.dims[i] > 0 ? linear / nest.dims[i] : 0;
    for (int k = 0; k < nest.operands; ++k) w.offset[k] += w.index[i] * nest.strides[k][i];
  }
  return w;
}

static inline void walk_next(Walker* w) {
  const Nest& nest = *w->nest;
  for (int i = w->rank - 1; i >= 0; --i) {
    for (int k = 0; k < nest.operands; ++k) w->offset[k] += nest.strides[k][i];
    if (++w->index[i] < nest.dims[i]) return;
    for (int k = 0; k < nest.operands; ++k) w->offset[k] -= nest.strides[k][i] * nest.dims[i];
    w->index[i] = 0;
  }
}

// Calls row(offset) for the positions [begin, end) of the whole nest, in order; offset[k] is operand
// k's element offset. Use: a nest over the outer dims of a row-wise kernel.
template <typename Row>
static inline void for_each_row(const Nest& nest, int64_t begin, int64_t end, Row row) {
  if (begin >= end) return;
  Walker w = walk_from(nest, nest.rank, begin);
  for (int64_t i = begin; i < end; ++i) {
    row(static_cast<const int64_t*>(w.offset));
    walk_next(&w);
  }
}

// Calls span(offset, count) for the elements [begin, end) of the nest, at most one innermost row at a
// time; inside a span operand k advances by nest.step(k).
template <typename Span>
static inline void for_each_span(const Nest& nest, int64_t begin, int64_t end, Span span) {
  if (begin >= end) return;
  const int64_t inner = nest.inner();
  Walker w = walk_from(nest, nest.rank > 0 ? nest.rank - 1 : 0, begin / inner);
  int64_t column = begin % inner;
  int64_t offset[kMaxOperands] = {};
  while (begin < end) {
    const int64_t count = inner - column < end - begin ? inner - column : end - begin;
    for (int k = 0; k < nest.operands; ++k) offset[k] = w.offset[k] + column * nest.step(k);
    span(static_cast<const int64_t*>(offset), count);
    begin += count;
    column = 0;
    walk_next(&w);
  }
}

}  // namespace SITU_ISA
}  // namespace situ
