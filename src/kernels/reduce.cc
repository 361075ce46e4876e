// reduce: y = fold of x over the axes in ReduceParams (a mask). arg_reduce: index of the extreme element
// along one axis. Any strides. f16 and bf16 fold in f32, integers in 64 bits, both then round once.
// Over nothing: Sum and norms 0, Prod 1, Max / Min the smallest / largest value, Mean NaN (integers 0).
#include "kernels/elements.h"
#include "kernels/params.h"

namespace situ {
namespace SITU_ISA {
namespace {

// Partial results that a row is folded into side by side: independent chains of additions.
constexpr int64_t kLanes = 16;

inline float f_log(float x) { return fast_log(x); }
inline double f_log(double x) { return __builtin_log(x); }
inline float f_exp(float x) { return fast_exp(x); }
inline double f_exp(double x) { return __builtin_exp(x); }
inline float f_sqrt(float x) { return __builtin_sqrtf(x); }
inline double f_sqrt(double x) { return __builtin_sqrt(x); }

template <typename C>
C lowest() {
  if constexpr (kIsReal<C>)
    return -static_cast<C>(__builtin_inf());
  else if constexpr (__is_same(C, int64_t))
    return INT64_MIN;
  else
    return 0;
}
template <typename C>
C highest() {
  if constexpr (kIsReal<C>)
    return static_cast<C>(__builtin_inf());
  else if constexpr (__is_same(C, int64_t))
    return INT64_MAX;
  else
    return UINT64_MAX;
}

// Sums wrap for integers.
template <typename C>
inline C add(C a, C b) {
  if constexpr (kIsReal<C>)
    return a + b;
  else
    return static_cast<C>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
template <typename C>
inline C multiply(C a, C b) {
  if constexpr (kIsReal<C>)
    return a * b;
  else
    return static_cast<C>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

// fold(a, x) takes an element into a partial result, join(a, b) puts two partial results together.
struct Sum {
  template <typename C>
  static C start() {
    return C(0);
  }
  template <typename C>
  static C fold(C a, C x) {
    return add(a, x);
  }
  template <typename C>
  static C join(C a, C b) {
    return add(a, b);
  }
};
struct SumAbs : Sum {
  template <typename C>
  static C fold(C a, C x) {
    if constexpr (kIsReal<C>)
      return x < C(0) ? a - x : a + x;
    else
      return add(a, x < C(0) ? static_cast<C>(uint64_t{0} - static_cast<uint64_t>(x)) : x);
  }
};
struct SumSquare : Sum {
  template <typename C>
  static C fold(C a, C x) {
    return add(a, multiply(x, x));
  }
};
struct Product {
  template <typename C>
  static C start() {
    return C(1);
  }
  template <typename C>
  static C fold(C a, C x) {
    return multiply(a, x);
  }
  template <typename C>
  static C join(C a, C b) {
    return multiply(a, b);
  }
};
struct Max {
  template <typename C>
  static C start() {
    return lowest<C>();
  }
  template <typename C>
  static C fold(C a, C x) {
    return x > a || x != x ? x : a;
  }
  template <typename C>
  static C join(C a, C b) {
    return fold(a, b);
  }
};
struct Min {
  template <typename C>
  static C start() {
    return highest<C>();
  }
  template <typename C>
  static C fold(C a, C x) {
    return x < a || x != x ? x : a;
  }
  template <typename C>
  static C join(C a, C b) {
    return fold(a, b);
  }
};
// Sum of e^(x - shift); `shift` is the row's maximum.
template <typename C>
struct SumExp : Sum {
  C shift;
  C fold(C a, C x) const { return add(a, f_exp(static_cast<C>(x - shift))); }
};

// One contiguous chunk into kLanes partial results.
template <typename C, typename Op>
inline void fold_chunk(const Op& op, C* lanes, const C* x, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) lanes[j] = op.fold(lanes[j], x[i + j]);
  }
  for (int64_t j = 0; i + j < n; ++j) lanes[j] = op.fold(lanes[j], x[i + j]);
}

template <typename C, typename Op>
inline C join_lanes(const Op& op, C* lanes) {
  for (int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (int64_t j = 0; j < width; ++j) lanes[j] = op.join(lanes[j], lanes[j + width]);
  }
  return lanes[0];
}

// All elements of x under `inner` (the reduced axes), from offset `base`.
template <typename C, typename Op>
C fold_row(const Op& op, const View& x, const Nest& inner, int64_t base) {
  C lanes[kLanes], buffer[kChunk];
  for (C& lane : lanes) lane = op.template start<C>();
  for_each_span(inner, 0, inner.count(), [&](const int64_t* at, int64_t count) {
    const int64_t step = inner.step(0);
    for (int64_t i = 0; i < count; i += kChunk) {
      const int64_t n = count - i < kChunk ? count - i : kChunk;
      fold_chunk(op, lanes, load(x, base + at[0] + i * step, step, n, buffer), n);
    }
  });
  return join_lanes(op, lanes);
}

// `n` <= kChunk neighbouring results at once: for reduced axes outside of the contiguous one.
template <typename C, typename Op>
void fold_columns(const Op& op, const View& x, const Nest& inner, int64_t base, int64_t step, int64_t n, C* result) {
  C buffer[kChunk];
  for (int64_t i = 0; i < n; ++i) result[i] = op.template start<C>();
  for_each_row(inner, 0, inner.count(), [&](const int64_t* at) {
    const C* row = load(x, base + at[0], step, n, buffer);
    for (int64_t i = 0; i < n; ++i) result[i] = op.fold(result[i], row[i]);
  });
}

template <typename C>
inline C finish(ReduceKind kind, C value, int64_t count) {
  switch (kind) {
    case ReduceKind::kMean:
      if constexpr (kIsReal<C>)
        return value / static_cast<C>(count);
      else
        return count == 0 ? C(0) : value / static_cast<C>(count);
    case ReduceKind::kL2:
      if constexpr (kIsReal<C>) return f_sqrt(value);
      return value;
    case ReduceKind::kLogSum:
      if constexpr (kIsReal<C>) return f_log(value);
      return value;
    default:
      return value;
  }
}

// The kept axes (operand 0: y, operand 1: x) and the reduced ones (operand 0: x).
struct Axes {
  Nest outer, inner;
};

Axes split_axes(const View& x, const View& y, uint32_t mask, bool keep_dims) {
  Axes axes;
  axes.outer.operands = 2;
  axes.inner.operands = 1;
  int y_axis = 0;
  for (int i = 0; i < x.rank; ++i) {
    if ((mask >> i & 1u) != 0) {
      nest_add_dim(&axes.inner, x.dims[i], &x.strides[i]);
      y_axis += keep_dims ? 1 : 0;
      continue;
    }
    const int64_t strides[] = {y.strides[y_axis++], x.strides[i]};
    nest_add_dim(&axes.outer, x.dims[i], strides);
  }
  return axes;
}

template <typename C, typename Op>
void reduce_rows(const Op& op, ReduceKind kind, const View& x, const View& y, const Axes& axes, int64_t begin,
                 int64_t end) {
  const int64_t count = axes.inner.count();
  // Neighbouring results read neighbouring elements, and one row's elements are not neighbours.
  const bool columns = axes.outer.rank > 0 && axes.outer.step(1) == 1 && axes.inner.rank > 0 && axes.inner.step(0) != 1;
  C results[kChunk];
  for_each_span(axes.outer, begin, end, [&](const int64_t* at, int64_t length) {
    const int64_t y_step = axes.outer.step(0), x_step = axes.outer.step(1);
    for (int64_t i = 0; i < length; i += kChunk) {
      const int64_t n = length - i < kChunk ? length - i : kChunk;
      const int64_t base = at[1] + i * x_step;
      if (columns) {
        fold_columns(op, x, axes.inner, base, x_step, n, results);
      } else {
        for (int64_t j = 0; j < n; ++j) results[j] = fold_row<C>(op, x, axes.inner, base + j * x_step);
      }
      for (int64_t j = 0; j < n; ++j) results[j] = finish(kind, results[j], count);
      store(y, at[0] + i * y_step, y_step, n, results);
    }
  });
}

template <typename C>
void log_sum_exp(const View& x, const View& y, const Axes& axes, int64_t begin, int64_t end) {
  for_each_row(axes.outer, begin, end, [&](const int64_t* at) {
    const C largest = fold_row<C>(Max(), x, axes.inner, at[1]);
    SumExp<C> op;
    op.shift = largest - largest == C(0) ? largest : C(0);  // an infinite maximum would give NaN
    const C result = f_log(fold_row<C>(op, x, axes.inner, at[1])) + op.shift;
    store(y, at[0], 0, 1, &result);
  });
}

template <typename C>
void reduce_as(ReduceKind kind, const View& x, const View& y, const Axes& axes, int64_t begin, int64_t end) {
  switch (kind) {
    case ReduceKind::kSum:
    case ReduceKind::kMean:
    case ReduceKind::kLogSum:
      return reduce_rows<C>(Sum(), kind, x, y, axes, begin, end);
    case ReduceKind::kL1:
      return reduce_rows<C>(SumAbs(), kind, x, y, axes, begin, end);
    case ReduceKind::kL2:
    case ReduceKind::kSumSquare:
      return reduce_rows<C>(SumSquare(), kind, x, y, axes, begin, end);
    case ReduceKind::kProd:
      return reduce_rows<C>(Product(), kind, x, y, axes, begin, end);
    case ReduceKind::kMax:
      return reduce_rows<C>(Max(), kind, x, y, axes, begin, end);
    case ReduceKind::kMin:
      return reduce_rows<C>(Min(), kind, x, y, axes, begin, end);
    case ReduceKind::kLogSumExp:
      if constexpr (kIsReal<C>) log_sum_exp<C>(x, y, axes, begin, end);
      return;
  }
}

// Roots and logarithms of integers pass through double.
bool leaves_integers(ReduceKind kind) {
  return kind == ReduceKind::kL2 || kind == ReduceKind::kLogSum || kind == ReduceKind::kLogSumExp;
}

template <typename F>
void dispatch_folded(DType type, F f) {
  if (type == DType::kF64)
    f(Tag<double>());
  else if (dtype_is_float(type))
    f(Tag<float>());
  else if (type == DType::kU64 || type == DType::kBool)
    f(Tag<uint64_t>());
  else
    f(Tag<int64_t>());
}

// Index of the extreme element of one row; the first one, or the last one, of equals.
template <typename C>
int64_t extreme(const View& x, int64_t base, int64_t step, int64_t count, const ArgReduceParams& p) {
  C buffer[kChunk];
  C best = C(0);
  int64_t found = 0;
  for (int64_t i = 0; i < count; i += kChunk) {
    const int64_t n = count - i < kChunk ? count - i : kChunk;
    const C* row = load(x, base + i * step, step, n, buffer);
    for (int64_t j = 0; j < n; ++j) {
      const C v = row[j];
      const bool better = p.max ? v > best : v < best;
      if (i + j != 0 && !better && !(p.last && v == best)) continue;
      best = v;
      found = i + j;
    }
  }
  return found;
}

}  // namespace

void reduce(const KernelCall& call, int thread, int threads) {
  const View &x = call.in[0], &y = call.out[0];
  const auto& p = *static_cast<const ReduceParams*>(call.params);
  const Axes axes = split_axes(x, y, p.axes, p.keep_dims);
  int64_t begin, end;
  split_rows(axes.outer.count(), axes.inner.count(), thread, threads, &begin, &end);
  // Max and Min of bools come back as bools through the same 0 and 1.
  const bool through_double = !dtype_is_float(x.type) && leaves_integers(p.kind);
  dispatch_folded(through_double ? DType::kF64 : x.type, [&](auto tag) {
    using C = typename decltype(tag)::type;
    reduce_as<C>(p.kind, x, y, axes, begin, end);
  });
}

void arg_reduce(const KernelCall& call, int thread, int threads) {
  const View &x = call.in[0], &y = call.out[0];
  const auto& p = *static_cast<const ArgReduceParams*>(call.params);
  const Axes axes = split_axes(x, y, 1u << p.axis, p.keep_dims);
  const int64_t count = x.dims[p.axis], step = x.strides[p.axis];
  int64_t begin, end;
  split_rows(axes.outer.count(), count, thread, threads, &begin, &end);
  if (count == 0 && begin < end) report(call, "ArgMax or ArgMin over no elements", 0, 1);
  dispatch_folded(x.type, [&](auto tag) {
    using C = typename decltype(tag)::type;
    for_each_row(axes.outer, begin, end, [&](const int64_t* at) {
      reinterpret_cast<int64_t*>(y.data)[at[0]] = extreme<C>(x, at[1], step, count, p);
    });
  });
}

}  // namespace SITU_ISA
}  // namespace situ
