// y = e^(x - max) / sum e^(x - max) along one axis (opset 13), or over all axes from one on (before);
// logarithms: y = x - max - ln(sum). Any strides; y may be x. f16 and bf16 compute in f32.
#include "kernels/elements.h"
#include "kernels/params.h"

namespace situ {
namespace SITU_ISA {
namespace {

constexpr int64_t kLanes = 16;

inline float f_exp(float x) { return fast_exp(x); }
inline double f_exp(double x) { return __builtin_exp(x); }
inline float f_log(float x) { return fast_log(x); }
inline double f_log(double x) { return __builtin_log(x); }

// Calls visit(y offset, x offset, y step, x step, n) for the chunks of one softmax row.
template <typename Visit>
inline void for_each_chunk(const Nest& row, const int64_t* base, Visit visit) {
  for_each_span(row, 0, row.count(), [&](const int64_t* at, int64_t count) {
    for (int64_t i = 0; i < count; i += kChunk) {
      const int64_t n = count - i < kChunk ? count - i : kChunk;
      visit(base[0] + at[0] + i * row.step(0), base[1] + at[1] + i * row.step(1), n);
    }
  });
}

template <typename C>
C row_max(const View& x, const Nest& row, const int64_t* base) {
  C lanes[kLanes], buffer[kChunk];
  for (C& lane : lanes) lane = -static_cast<C>(__builtin_inf());
  for_each_chunk(row, base, [&](int64_t, int64_t x_at, int64_t n) {
    const C* v = load(x, x_at, row.step(1), n, buffer);
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      for (int64_t j = 0; j < kLanes; ++j) lanes[j] = v[i + j] > lanes[j] ? v[i + j] : lanes[j];
    }
    for (; i < n; ++i) lanes[0] = v[i] > lanes[0] ? v[i] : lanes[0];
  });
  C largest = lanes[0];
  for (C lane : lanes) largest = lane > largest ? lane : largest;
  return largest;
}

// Sum of e^(x - largest); leaves the terms in y when it holds C next to each other.
template <typename C>
C row_exp_sum(const View& x, const View& y, const Nest& row, const int64_t* base, C largest, bool keep) {
  C lanes[kLanes] = {}, from[kChunk], to[kChunk];
  for_each_chunk(row, base, [&](int64_t y_at, int64_t x_at, int64_t n) {
    const C* v = load(x, x_at, row.step(1), n, from);
    C* e = keep ? destination(y, y_at, row.step(0), to) : to;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) e[i] = f_exp(v[i] - largest);
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      for (int64_t j = 0; j < kLanes; ++j) lanes[j] += e[i + j];
    }
    for (; i < n; ++i) lanes[0] += e[i];
  });
  for (int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (int64_t j = 0; j < width; ++j) lanes[j] += lanes[j + width];
  }
  return lanes[0];
}

template <typename C>
void softmax_row(const View& x, const View& y, const Nest& row, const int64_t* base, bool log) {
  const bool keep = !log && stored_as<C>(y.type) && row.step(0) == 1;
  const C largest = row_max<C>(x, row, base);
  const C sum = row_exp_sum(x, y, row, base, largest, keep);
  const C inverse = C(1) / sum, shift = largest + f_log(sum);
  C from[kChunk], to[kChunk];
  for_each_chunk(row, base, [&](int64_t y_at, int64_t x_at, int64_t n) {
    C* target = destination(y, y_at, row.step(0), to);
    if (keep) {
      for (int64_t i = 0; i < n; ++i) target[i] *= inverse;
      return;
    }
    const C* v = load(x, x_at, row.step(1), n, from);
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) target[i] = log ? v[i] - shift : f_exp(v[i] - largest) * inverse;
    store(y, y_at, row.step(0), n, target);
  });
}

}  // namespace

void softmax(const KernelCall& call, int thread, int threads) {
  const View &x = call.in[0], &y = call.out[0];
  const auto& p = *static_cast<const SoftmaxParams*>(call.params);
  Nest outer, row;
  outer.operands = row.operands = 2;
  for (int i = 0; i < x.rank; ++i) {
    const bool normalised = i == p.axis || (p.flattened && i > p.axis);
    const int64_t strides[] = {y.strides[i], x.strides[i]};
    nest_add_dim(normalised ? &row : &outer, x.dims[i], strides);
  }
  int64_t begin, end;
  split_rows(outer.count(), row.count(), thread, threads, &begin, &end);
  dispatch_computed(x.type, [&](auto tag) {
    using C = typename decltype(tag)::type;
    if constexpr (kIsReal<C>) {
      for_each_row(outer, begin, end, [&](const int64_t* at) { softmax_row<C>(x, y, row, at, p.log); });
    }
  });
}

}  // namespace SITU_ISA
}  // namespace situ
