// y = f(x) element by element. x and y: same dims, any strides; y may be x. f16 and bf16 compute in f32.
#include "kernels/elements.h"
#include "kernels/params.h"

namespace situ {
namespace SITU_ISA {
namespace {

// One spelling for float (vector code) and double (the C library).
inline float f_exp(float x) { return fast_exp(x); }
inline double f_exp(double x) { return __builtin_exp(x); }
inline float f_expm1(float x) { return fast_expm1(x); }
inline double f_expm1(double x) { return __builtin_expm1(x); }
inline float f_log(float x) { return fast_log(x); }
inline double f_log(double x) { return __builtin_log(x); }
inline float f_tanh(float x) { return fast_tanh(x); }
inline double f_tanh(double x) { return __builtin_tanh(x); }
inline float f_erf(float x) { return fast_erf(x); }
inline double f_erf(double x) { return __builtin_erf(x); }
inline float f_sigmoid(float x) { return fast_sigmoid(x); }
inline double f_sigmoid(double x) { return 1 / (1 + __builtin_exp(-x)); }
inline float f_softplus(float x) { return fast_softplus(x); }
inline double f_softplus(double x) { return (x > 0 ? x : 0) + __builtin_log1p(__builtin_exp(-__builtin_fabs(x))); }
inline float f_sqrt(float x) { return __builtin_sqrtf(x); }
inline double f_sqrt(double x) { return __builtin_sqrt(x); }
inline float f_abs(float x) { return absolute(x); }
inline double f_abs(double x) { return __builtin_fabs(x); }

// Adding 2^23 (2^52) leaves no fraction bits: the sum is rounded half to even.
inline float f_rint(float x) {
  const float t = absolute(x);
  const float rounded = t < 8388608.0f ? (t + 8388608.0f) - 8388608.0f : t;
  return copy_sign(rounded, x);
}
inline double f_rint(double x) { return __builtin_rint(x); }
inline float f_floor(float x) {
  const float r = f_rint(x);
  return copy_sign(r > x ? r - 1.0f : r, x);
}
inline double f_floor(double x) { return __builtin_floor(x); }
inline float f_ceil(float x) {
  const float r = f_rint(x);
  return copy_sign(r < x ? r + 1.0f : r, x);
}
inline double f_ceil(double x) { return __builtin_ceil(x); }

template <typename C, typename F>
inline void map(C* y, const C* x, int64_t n, F f) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = f(x[i]);
}

// Sine and cosine; the rare angle beyond the range of the vector code goes to the C library.
inline void map_sin(float* y, const float* x, int64_t n, bool cosine) {
  float largest = 0;
  for (int64_t i = 0; i < n; ++i) largest = absolute(x[i]) <= kMaxFastAngle ? largest : 1.0f;
  if (largest != 0) {
    for (int64_t i = 0; i < n; ++i) y[i] = cosine ? __builtin_cosf(x[i]) : __builtin_sinf(x[i]);
  } else if (cosine) {
    map(y, x, n, [](float v) { return fast_cos(v); });
  } else {
    map(y, x, n, [](float v) { return fast_sin(v); });
  }
}
inline void map_sin(double* y, const double* x, int64_t n, bool cosine) {
  for (int64_t i = 0; i < n; ++i) y[i] = cosine ? __builtin_cos(x[i]) : __builtin_sin(x[i]);
}

// Activations with parameters. Formulas: ONNX operators of the same names.
template <typename C>
void activation(const UnaryParams& p, C* y, const C* x, int64_t n) {
  const C a = p.alpha, b = p.beta;
  switch (p.kind) {
    case UnaryKind::kGeluErf:
      return map(y, x, n, [](C v) { return C(0.5) * v * (C(1) + f_erf(v * C(0.70710678118654752440))); });
    case UnaryKind::kGeluTanh:
      return map(y, x, n, [](C v) {
        return C(0.5) * v * (C(1) + f_tanh(C(0.79788456080286535588) * (v + C(0.044715) * v * v * v)));
      });
    case UnaryKind::kSilu:
      return map(y, x, n, [](C v) { return v * f_sigmoid(v); });
    case UnaryKind::kQuickGelu:
      return map(y, x, n, [a](C v) { return v * f_sigmoid(a * v); });
    case UnaryKind::kElu:
      return map(y, x, n, [a](C v) {
        const C e = a * f_expm1(v);
        return v < C(0) ? e : v;
      });
    case UnaryKind::kSelu:
      return map(y, x, n, [a, b](C v) {
        const C e = a * f_expm1(v);
        return b * (v > C(0) ? v : e);
      });
    case UnaryKind::kCelu:
      return map(y, x, n, [a](C v) {
        const C e = a * f_expm1(v / a);
        return v < C(0) ? e : v;
      });
    case UnaryKind::kLeakyRelu:
      return map(y, x, n, [a](C v) { return v < C(0) ? a * v : v; });
    case UnaryKind::kThresholdedRelu:
      return map(y, x, n, [a](C v) { return v > a ? v : C(0); });
    case UnaryKind::kHardSigmoid:
      return map(y, x, n, [a, b](C v) {
        const C t = a * v + b;
        const C low = t < C(0) ? C(0) : t;
        return low > C(1) ? C(1) : low;
      });
    case UnaryKind::kHardSwish:
      return map(y, x, n, [](C v) {
        const C t = v * C(1.0 / 6) + C(0.5);
        const C low = t < C(0) ? C(0) : t;
        return v * (low > C(1) ? C(1) : low);
      });
    case UnaryKind::kMish:
      return map(y, x, n, [](C v) { return v * f_tanh(f_softplus(v)); });
    case UnaryKind::kSoftplus:
      return map(y, x, n, [](C v) { return f_softplus(v); });
    case UnaryKind::kSoftsign:
      return map(y, x, n, [](C v) { return v / (C(1) + f_abs(v)); });
    default:
      return;
  }
}

// Trigonometric functions without vector code: they do not occur in the hot part of a model.
template <typename C>
void by_library(UnaryKind kind, C* y, const C* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const double v = static_cast<double>(x[i]);
    double r = 0;
    switch (kind) {
      case UnaryKind::kTan:
        r = __builtin_tan(v);
        break;
      case UnaryKind::kAtan:
        r = __builtin_atan(v);
        break;
      case UnaryKind::kAsin:
        r = __builtin_asin(v);
        break;
      case UnaryKind::kAcos:
        r = __builtin_acos(v);
        break;
      case UnaryKind::kSinh:
        r = __builtin_sinh(v);
        break;
      case UnaryKind::kCosh:
        r = __builtin_cosh(v);
        break;
      case UnaryKind::kAsinh:
        r = __builtin_asinh(v);
        break;
      case UnaryKind::kAcosh:
        r = __builtin_acosh(v);
        break;
      case UnaryKind::kAtanh:
        r = __builtin_atanh(v);
        break;
      default:
        break;
    }
    y[i] = static_cast<C>(r);
  }
}

template <typename C>
void real(const UnaryParams& p, C* y, const C* x, int64_t n) {
  switch (p.kind) {
    case UnaryKind::kAbs:
      return map(y, x, n, [](C v) { return f_abs(v); });
    case UnaryKind::kNeg:
      return map(y, x, n, [](C v) { return -v; });
    case UnaryKind::kExp:
      return map(y, x, n, [](C v) { return f_exp(v); });
    case UnaryKind::kLog:
      return map(y, x, n, [](C v) { return f_log(v); });
    case UnaryKind::kSqrt:
      return map(y, x, n, [](C v) { return f_sqrt(v); });
    case UnaryKind::kReciprocal:
      return map(y, x, n, [](C v) { return C(1) / v; });
    case UnaryKind::kErf:
      return map(y, x, n, [](C v) { return f_erf(v); });
    case UnaryKind::kTanh:
      return map(y, x, n, [](C v) { return f_tanh(v); });
    case UnaryKind::kSigmoid:
      return map(y, x, n, [](C v) { return f_sigmoid(v); });
    case UnaryKind::kSin:
      return map_sin(y, x, n, false);
    case UnaryKind::kCos:
      return map_sin(y, x, n, true);
    case UnaryKind::kFloor:
      return map(y, x, n, [](C v) { return f_floor(v); });
    case UnaryKind::kCeil:
      return map(y, x, n, [](C v) { return f_ceil(v); });
    case UnaryKind::kRound:
      return map(y, x, n, [](C v) { return f_rint(v); });
    case UnaryKind::kSign:
      return map(y, x, n, [](C v) {
        const C s = v > C(0) ? C(1) : v;
        return v < C(0) ? C(-1) : s;
      });
    case UnaryKind::kRelu:
      return map(y, x, n, [](C v) { return v < C(0) ? C(0) : v; });
    case UnaryKind::kTan:
    case UnaryKind::kAtan:
    case UnaryKind::kAsin:
    case UnaryKind::kAcos:
    case UnaryKind::kSinh:
    case UnaryKind::kCosh:
    case UnaryKind::kAsinh:
    case UnaryKind::kAcosh:
    case UnaryKind::kAtanh:
      return by_library(p.kind, y, x, n);
    default:
      return activation(p, y, x, n);
  }
}

// Two's complement: the smallest integer is its own negative.
template <typename C>
void integer(const UnaryParams& p, C* y, const C* x, int64_t n) {
  switch (p.kind) {
    case UnaryKind::kAbs:
      return map(y, x, n, [](C v) { return v < C(0) ? static_cast<C>(C(0) - uint64_t(v)) : v; });
    case UnaryKind::kNeg:
      return map(y, x, n, [](C v) { return static_cast<C>(uint64_t{0} - uint64_t(v)); });
    case UnaryKind::kSign:
      return map(y, x, n, [](C v) { return static_cast<C>((v > C(0)) - (v < C(0))); });
    case UnaryKind::kRelu:
      return map(y, x, n, [](C v) { return v < C(0) ? C(0) : v; });
    case UnaryKind::kBitwiseNot:
      return map(y, x, n, [](C v) { return static_cast<C>(~v); });
    default:
      return map(y, x, n, [](C v) { return v; });  // Floor, Ceil, Round
  }
}

// Questions: y is bool.
template <typename C>
void question(const UnaryParams& p, uint32_t* y, const C* x, int64_t n) {
  const bool positive = p.alpha != 0, negative = p.beta != 0;
  for (int64_t i = 0; i < n; ++i) {
    const C v = x[i];
    if constexpr (kIsReal<C>) {
      const bool infinite = f_abs(v) == C(__builtin_inf());
      y[i] = p.kind == UnaryKind::kIsNaN ? v != v : infinite && (v > C(0) ? positive : negative);
    } else {
      y[i] = p.kind == UnaryKind::kNot ? v == C(0) : 0;
    }
  }
}

}  // namespace

void unary(const KernelCall& call, int thread, int threads) {
  const View &x = call.in[0], &y = call.out[0];
  const auto& p = *static_cast<const UnaryParams*>(call.params);
  const View* views[] = {&y, &x};
  const Nest nest = make_nest(views, 2);
  int64_t begin, end;
  split_elements(nest.count(), thread, threads, &begin, &end);
  const bool asks = p.kind == UnaryKind::kNot || p.kind == UnaryKind::kIsNaN || p.kind == UnaryKind::kIsInf;
  dispatch_computed(x.type, [&](auto tag) {
    using C = typename decltype(tag)::type;
    C from[kChunk], to[kChunk];
    uint32_t answer[kChunk];
    for_each_span(nest, begin, end, [&](const int64_t* at, int64_t count) {
      const int64_t y_step = nest.step(0), x_step = nest.step(1);
      for (int64_t i = 0; i < count; i += kChunk) {
        const int64_t n = count - i < kChunk ? count - i : kChunk;
        const int64_t y_at = at[0] + i * y_step;
        const C* source = load(x, at[1] + i * x_step, x_step, n, from);
        if (asks) {
          question(p, answer, source, n);
          store(y, y_at, y_step, n, answer);
          continue;
        }
        C* target = destination(y, y_at, y_step, to);
        if constexpr (kIsReal<C>)
          real(p, target, source, n);
        else
          integer(p, target, source, n);
        store(y, y_at, y_step, n, target);
      }
    });
  });
}

}  // namespace SITU_ISA
}  // namespace situ
