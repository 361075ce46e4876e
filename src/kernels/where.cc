// where: y = condition ? a : b, all three broadcast to y.
// clip: y = min(max(x, low), high); low and high are operands 1 and 2 (scalars) or parameters.
#include "kernels/elements.h"
#include "kernels/params.h"

namespace situ {
namespace SITU_ISA {
namespace {

template <typename T>
inline void choose(T* y, int64_t y_step, const uint8_t* c, int64_t c_step, const T* a, int64_t a_step, const T* b,
                   int64_t b_step, int64_t n) {
  if (y_step == 1 && c_step == 1 && a_step == 1 && b_step == 1) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = c[i] != 0 ? a[i] : b[i];
  } else if (y_step == 1 && c_step == 1 && a_step == 1 && b_step == 0) {
    const T other = b[0];
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = c[i] != 0 ? a[i] : other;
  } else if (y_step == 1 && c_step == 1 && a_step == 0 && b_step == 1) {
    const T other = a[0];
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = c[i] != 0 ? other : b[i];
  } else {
    for (int64_t i = 0; i < n; ++i) y[i * y_step] = c[i * c_step] != 0 ? a[i * a_step] : b[i * b_step];
  }
}

template <typename C>
C bound(const KernelCall& call, int operand, double fallback) {
  if (call.in_count <= operand || !call.in[operand].present()) return convert<C>(fallback);
  C value;
  gather_chunk(call.in[operand], 0, 1, 1, &value);
  return value;
}

}  // namespace

void where(const KernelCall& call, int thread, int threads) {
  const View &condition = call.in[0], &a = call.in[1], &b = call.in[2], &y = call.out[0];
  const View* views[] = {&y, &condition, &a, &b};
  const Nest nest = make_nest(views, 4);
  int64_t begin, end;
  split_elements(nest.count(), thread, threads, &begin, &end);
  dispatch_size(y.type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_span(nest, begin, end, [&](const int64_t* at, int64_t count) {
      choose(reinterpret_cast<T*>(y.data) + at[0], nest.step(0),
             reinterpret_cast<const uint8_t*>(condition.data) + at[1], nest.step(1),
             reinterpret_cast<const T*>(a.data) + at[2], nest.step(2), reinterpret_cast<const T*>(b.data) + at[3],
             nest.step(3), count);
    });
  });
}

void clip(const KernelCall& call, int thread, int threads) {
  const View &x = call.in[0], &y = call.out[0];
  const auto& p = *static_cast<const ClipParams*>(call.params);
  const View* views[] = {&y, &x};
  const Nest nest = make_nest(views, 2);
  int64_t begin, end;
  split_elements(nest.count(), thread, threads, &begin, &end);
  dispatch_computed(x.type, [&](auto tag) {
    using C = typename decltype(tag)::type;
    const bool has_low = (call.in_count > 1 && call.in[1].present()) || p.min > -__builtin_inf();
    const bool has_high = (call.in_count > 2 && call.in[2].present()) || p.max < __builtin_inf();
    const C low = has_low ? bound<C>(call, 1, p.min) : C(0), high = has_high ? bound<C>(call, 2, p.max) : C(0);
    C from[kChunk], to[kChunk];
    for_each_span(nest, begin, end, [&](const int64_t* at, int64_t count) {
      for (int64_t i = 0; i < count; i += kChunk) {
        const int64_t n = count - i < kChunk ? count - i : kChunk;
        const C* source = load(x, at[1] + i * nest.step(1), nest.step(1), n, from);
        C* target = destination(y, at[0] + i * nest.step(0), nest.step(0), to);
#pragma GCC ivdep
        for (int64_t j = 0; j < n; ++j) {
          const C v = source[j];
          const C raised = has_low && v < low ? low : v;
          target[j] = has_high && raised > high ? high : raised;
        }
        store(y, at[0] + i * nest.step(0), nest.step(0), n, target);
      }
    });
  });
}

}  // namespace SITU_ISA
}  // namespace situ
