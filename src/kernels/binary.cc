// y = f(a, b) element by element, a and b broadcast to y; for Min, Max, Sum and Mean also more operands.
// y may be a or b where dims and strides are the same. f16 and bf16 compute in f32.
#include "kernels/elements.h"
#include "kernels/params.h"

namespace situ {
namespace SITU_ISA {
namespace {

template <typename R, typename C, typename F>
inline void map(R* y, const C* a, const C* b, int64_t n, F f) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = f(a[i], b[i]);
}

inline float f_sigmoid(float x) { return fast_sigmoid(x); }
inline double f_sigmoid(double x) { return 1 / (1 + __builtin_exp(-x)); }
inline float f_pow(float x, float e) { return __builtin_powf(x, e); }
inline double f_pow(double x, double e) { return __builtin_pow(x, e); }
inline float f_fmod(float x, float d) { return __builtin_fmodf(x, d); }
inline double f_fmod(double x, double d) { return __builtin_fmod(x, d); }

// Exponents that norms and activations use have a closed form; the rest goes to the C library.
template <typename C>
void power(C* y, const C* a, const C* b, int64_t n) {
  bool same = true;
  for (int64_t i = 1; i < n; ++i) same = same && b[i] == b[0];
  if (same && n > 0 && b[0] == C(2)) return map(y, a, b, n, [](C x, C) { return x * x; });
  if (same && n > 0 && b[0] == C(3)) return map(y, a, b, n, [](C x, C) { return x * x * x; });
  if (same && n > 0 && b[0] == C(1)) return map(y, a, b, n, [](C x, C) { return x; });
  if (same && n > 0 && b[0] == C(-1)) return map(y, a, b, n, [](C x, C) { return C(1) / x; });
  for (int64_t i = 0; i < n; ++i) y[i] = f_pow(a[i], b[i]);
}

template <typename C>
void real(BinaryKind kind, C* y, const C* a, const C* b, int64_t n) {
  switch (kind) {
    case BinaryKind::kAdd:
    case BinaryKind::kMean:
      return map(y, a, b, n, [](C p, C q) { return p + q; });
    case BinaryKind::kSub:
      return map(y, a, b, n, [](C p, C q) { return p - q; });
    case BinaryKind::kMul:
      return map(y, a, b, n, [](C p, C q) { return p * q; });
    case BinaryKind::kDiv:
      return map(y, a, b, n, [](C p, C q) { return p / q; });
    case BinaryKind::kPow:
      return power(y, a, b, n);
    case BinaryKind::kFmod:
      return map(y, a, b, n, [](C p, C q) { return f_fmod(p, q); });
    case BinaryKind::kMod:
      return map(y, a, b, n, [](C p, C q) {
        const C r = f_fmod(p, q);
        return r != C(0) && (r < C(0)) != (q < C(0)) ? r + q : r;
      });
    case BinaryKind::kMin:
      return map(y, a, b, n, [](C p, C q) { return p < q || p != p ? p : q; });
    case BinaryKind::kMax:
      return map(y, a, b, n, [](C p, C q) { return p > q || p != p ? p : q; });
    case BinaryKind::kPRelu:
      return map(y, a, b, n, [](C p, C q) {
        const C r = p * q;
        return p < C(0) ? r : p;
      });
    case BinaryKind::kSiluMul:
      return map(y, a, b, n, [](C p, C q) { return p * f_sigmoid(p) * q; });
    default:
      return;
  }
}

template <typename C>
C integer_power(C base, C exponent) {
  if (exponent < C(0)) return base == C(1) ? C(1) : base == C(-1) ? (exponent % 2 != 0 ? C(-1) : C(1)) : C(0);
  uint64_t result = 1, square = static_cast<uint64_t>(base);
  for (uint64_t e = static_cast<uint64_t>(exponent); e != 0; e >>= 1) {
    if ((e & 1) != 0) result *= square;
    square *= square;
  }
  return static_cast<C>(result);
}

// Quotient and remainder that cannot trap: a divisor of 0 is reported by the caller and gives 0, the
// smallest integer over -1 wraps.
template <typename C>
C divide(C p, C q) {
  if (q == C(0)) return 0;
  if (C(-1) < C(0) && q == C(-1)) return static_cast<C>(uint64_t{0} - static_cast<uint64_t>(p));
  return p / q;
}
template <typename C>
C remainder(C p, C q) {
  return q == C(0) || (C(-1) < C(0) && q == C(-1)) ? C(0) : p % q;
}
template <typename C>
C modulo(C p, C q) {
  const C r = remainder(p, q);
  return r != C(0) && (r < C(0)) != (q < C(0)) ? r + q : r;
}

template <typename C>
void integer(BinaryKind kind, C* y, const C* a, const C* b, int64_t n, int bits) {
  using U = uint64_t;  // wraps
  switch (kind) {
    case BinaryKind::kAdd:
    case BinaryKind::kMean:
      return map(y, a, b, n, [](C p, C q) { return C(U(p) + U(q)); });
    case BinaryKind::kSub:
      return map(y, a, b, n, [](C p, C q) { return C(U(p) - U(q)); });
    case BinaryKind::kMul:
      return map(y, a, b, n, [](C p, C q) { return C(U(p) * U(q)); });
    case BinaryKind::kDiv:
      return map(y, a, b, n, [](C p, C q) { return divide(p, q); });
    case BinaryKind::kPow:
      return map(y, a, b, n, [](C p, C q) { return integer_power(p, q); });
    case BinaryKind::kFmod:
      return map(y, a, b, n, [](C p, C q) { return remainder(p, q); });
    case BinaryKind::kMod:
      return map(y, a, b, n, [](C p, C q) { return modulo(p, q); });
    case BinaryKind::kMin:
      return map(y, a, b, n, [](C p, C q) { return p < q ? p : q; });
    case BinaryKind::kMax:
      return map(y, a, b, n, [](C p, C q) { return p > q ? p : q; });
    case BinaryKind::kPRelu:
      return map(y, a, b, n, [](C p, C q) { return p < C(0) ? C(U(p) * U(q)) : p; });
    case BinaryKind::kBitwiseAnd:
      return map(y, a, b, n, [](C p, C q) { return C(p & q); });
    case BinaryKind::kBitwiseOr:
      return map(y, a, b, n, [](C p, C q) { return C(p | q); });
    case BinaryKind::kBitwiseXor:
      return map(y, a, b, n, [](C p, C q) { return C(p ^ q); });
    case BinaryKind::kShiftLeft:
      return map(y, a, b, n, [bits](C p, C q) { return U(q) < U(bits) ? C(U(p) << U(q)) : C(0); });
    case BinaryKind::kShiftRight:
      // As many sign bits as fit, where the shift is wider than the element.
      return map(y, a, b, n, [bits](C p, C q) { return U(q) < U(bits) ? C(p >> q) : p < C(0) ? C(-1) : C(0); });
    default:
      return;
  }
}

// Comparisons and logic: y is bool, as 0 or 1.
template <typename C>
void question(BinaryKind kind, uint32_t* y, const C* a, const C* b, int64_t n) {
  switch (kind) {
    case BinaryKind::kEqual:
      return map(y, a, b, n, [](C p, C q) -> uint32_t { return p == q; });
    case BinaryKind::kLess:
      return map(y, a, b, n, [](C p, C q) -> uint32_t { return p < q; });
    case BinaryKind::kLessOrEqual:
      return map(y, a, b, n, [](C p, C q) -> uint32_t { return p <= q; });
    case BinaryKind::kGreater:
      return map(y, a, b, n, [](C p, C q) -> uint32_t { return p > q; });
    case BinaryKind::kGreaterOrEqual:
      return map(y, a, b, n, [](C p, C q) -> uint32_t { return p >= q; });
    case BinaryKind::kAnd:
      return map(y, a, b, n, [](C p, C q) -> uint32_t { return p != C(0) && q != C(0); });
    case BinaryKind::kOr:
      return map(y, a, b, n, [](C p, C q) -> uint32_t { return p != C(0) || q != C(0); });
    case BinaryKind::kXor:
      return map(y, a, b, n, [](C p, C q) -> uint32_t { return (p != C(0)) != (q != C(0)); });
    default:
      return;
  }
}

bool asks(BinaryKind kind) {
  switch (kind) {
    case BinaryKind::kEqual:
    case BinaryKind::kLess:
    case BinaryKind::kLessOrEqual:
    case BinaryKind::kGreater:
    case BinaryKind::kGreaterOrEqual:
    case BinaryKind::kAnd:
    case BinaryKind::kOr:
    case BinaryKind::kXor:
      return true;
    default:
      return false;
  }
}

template <typename C>
void report_zero_divisors(const KernelCall& call, BinaryKind kind, const C* b, int64_t n) {
  if (kind != BinaryKind::kDiv && kind != BinaryKind::kMod && kind != BinaryKind::kFmod) return;
  bool zero = false;
  for (int64_t i = 0; i < n; ++i) zero = zero || b[i] == C(0);
  if (zero) report(call, "integer division by zero", 0, 0);
}

template <typename C>
void arithmetic(const KernelCall& call, BinaryKind kind, C* y, const C* a, const C* b, int64_t n) {
  if constexpr (kIsReal<C>) {
    real(kind, y, a, b, n);
  } else {
    report_zero_divisors(call, kind, b, n);
    integer(kind, y, a, b, n, dtype_bits(call.in[0].type));
  }
}

// One chunk of y over all operands; `at` holds the element offsets of y, a, b ...
template <typename C>
void chunk(const KernelCall& call, const Nest& nest, const int64_t* at, int64_t i, int64_t n, C* a_buffer, C* b_buffer,
           const C** b_kept) {
  const BinaryKind kind = static_cast<const BinaryParams*>(call.params)->kind;
  const View& y = call.out[0];
  const int64_t y_at = at[0] + i * nest.step(0);
  const C* a = load(call.in[0], at[1] + i * nest.step(1), nest.step(1), n, a_buffer);
  if (asks(kind)) {
    uint32_t answer[kChunk];
    const C* b = load(call.in[1], at[2] + i * nest.step(2), nest.step(2), n, b_buffer);
    question(kind, answer, a, b, n);
    store(y, y_at, nest.step(0), n, answer);
    return;
  }
  // More than two operands: y may be any of them, so nothing is written before all are read.
  C sum[kChunk];
  C* target = call.in_count <= 2 ? destination(y, y_at, nest.step(0), sum) : sum;
  if (call.in_count == 1) map(target, a, a, n, [](C p, C) { return p; });
  for (int k = 1; k < call.in_count; ++k) {
    const int64_t step = nest.step(1 + k);
    const bool keep = step == 0 && call.in_count == 2;
    const C* b = keep && i > 0 ? *b_kept : load(call.in[k], at[1 + k] + i * step, step, n, b_buffer);
    *b_kept = b;
    arithmetic(call, kind, target, a, b, n);
    a = target;
  }
  if (kind == BinaryKind::kMean) {
    const C count = static_cast<C>(call.in_count);
    map(target, target, target, n, [count](C p, C) { return static_cast<C>(p / count); });
  }
  store(y, y_at, nest.step(0), n, target);
}

}  // namespace

void binary(const KernelCall& call, int thread, int threads) {
  const View* views[kMaxOperands] = {&call.out[0]};
  for (int k = 0; k < call.in_count; ++k) views[1 + k] = &call.in[k];
  const Nest nest = make_nest(views, 1 + call.in_count);
  int64_t begin, end;
  split_elements(nest.count(), thread, threads, &begin, &end);
  // An integer to the power of a real passes through double.
  const bool powers = static_cast<const BinaryParams*>(call.params)->kind == BinaryKind::kPow;
  const bool through_double = powers && !dtype_is_float(call.in[0].type) && dtype_is_float(call.in[1].type);
  dispatch_computed(through_double ? DType::kF64 : call.in[0].type, [&](auto tag) {
    using C = typename decltype(tag)::type;
    C a_buffer[kChunk], b_buffer[kChunk];
    const C* b_kept = nullptr;
    for_each_span(nest, begin, end, [&](const int64_t* at, int64_t count) {
      for (int64_t i = 0; i < count; i += kChunk) {
        const int64_t n = count - i < kChunk ? count - i : kChunk;
        chunk(call, nest, at, i, n, a_buffer, b_buffer, &b_kept);
      }
    });
  });
}

}  // namespace SITU_ISA
}  // namespace situ
