// cumsum: running sum along one axis (operand 1). top_k: the k largest (smallest) elements along an axis
// with their indices, k = the extent of the output; equal elements: the lower index first.
#include "kernels/elements.h"
#include "kernels/params.h"

namespace situ {
namespace SITU_ISA {
namespace {

// All axes but `axis`, for y, x (and one more view of y's dims).
Nest other_axes(const View* const* views, int operands, int axis) {
  Nest nest;
  nest.operands = operands;
  for (int i = 0; i < views[0]->rank; ++i) {
    if (i == axis) continue;
    int64_t strides[kMaxOperands];
    for (int k = 0; k < operands; ++k) strides[k] = views[k]->strides[i];
    nest_add_dim(&nest, views[0]->dims[i], strides);
  }
  return nest;
}

template <typename C>
inline C add(C a, C b) {
  if constexpr (kIsReal<C>)
    return a + b;
  else
    return static_cast<C>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}

template <typename C>
void cumsum_row(const View& x, const View& y, int64_t x_at, int64_t y_at, int64_t x_step, int64_t y_step, int64_t count,
                const CumSumParams& p) {
  if (p.reverse) {
    x_at += (count - 1) * x_step;
    y_at += (count - 1) * y_step;
    x_step = -x_step;
    y_step = -y_step;
  }
  C buffer[kChunk], sums[kChunk];
  C sum = C(0);
  for (int64_t i = 0; i < count; i += kChunk) {
    const int64_t n = count - i < kChunk ? count - i : kChunk;
    const C* v = load(x, x_at + i * x_step, x_step, n, buffer);
    for (int64_t j = 0; j < n; ++j) {
      const C next = add(sum, v[j]);
      sums[j] = p.exclusive ? sum : next;
      sum = next;
    }
    store(y, y_at + i * y_step, y_step, n, static_cast<const C*>(sums));
  }
}

// The best elements so far, as a heap inside the outputs: the root is the worst of them.
template <typename T, typename C>
struct Heap {
  T* values;
  int64_t* indices;
  int64_t value_step, index_step;
  bool largest;

  C value(int64_t i) const { return convert<C>(values[i * value_step]); }
  int64_t index(int64_t i) const { return indices[i * index_step]; }
  void set(int64_t i, T v, int64_t at) {
    values[i * value_step] = v;
    indices[i * index_step] = at;
  }
  // True when (v, i) comes before (w, j) in the sorted result. NaN counts as larger than all numbers.
  bool before(C v, int64_t i, C w, int64_t j) const {
    const bool v_nan = v != v, w_nan = w != w;
    if (v_nan != w_nan) return v_nan == largest;
    if (v == w || v_nan) return i < j;
    return largest ? v > w : v < w;
  }
  // Moves (v, at) down from the root of the first `size` elements until no child is worse.
  void sift_down(int64_t size, T v, int64_t at) {
    const C own = convert<C>(v);
    int64_t i = 0;
    for (;;) {
      int64_t child = 2 * i + 1;
      if (child >= size) break;
      if (child + 1 < size && before(value(child), index(child), value(child + 1), index(child + 1))) ++child;
      if (!before(own, at, value(child), index(child))) break;
      set(i, values[child * value_step], index(child));
      i = child;
    }
    set(i, v, at);
  }
  void sift_up(int64_t i, T v, int64_t at) {
    const C own = convert<C>(v);
    while (i > 0) {
      const int64_t parent = (i - 1) / 2;
      if (!before(value(parent), index(parent), own, at)) break;
      set(i, values[parent * value_step], index(parent));
      i = parent;
    }
    set(i, v, at);
  }
};

template <typename T, typename C>
void top_k_row(Heap<T, C> heap, const T* x, int64_t step, int64_t count, int64_t k) {
  for (int64_t i = 0; i < count && k > 0; ++i) {
    const T v = x[i * step];
    if (i < k)
      heap.sift_up(i, v, i);
    else if (heap.before(convert<C>(v), i, heap.value(0), heap.index(0)))
      heap.sift_down(k, v, i);
  }
  // The worst goes last, again and again.
  for (int64_t size = k - 1; size > 0; --size) {
    const T v = heap.values[size * heap.value_step];
    const int64_t at = heap.index(size);
    heap.set(size, heap.values[0], heap.index(0));
    heap.sift_down(size, v, at);
  }
}

template <typename T>
struct Compared {
  using type = T;
};
template <>
struct Compared<Half> {
  using type = float;
};
template <>
struct Compared<BFloat> {
  using type = float;
};
template <>
struct Compared<Bool> {
  using type = int32_t;
};

}  // namespace

void cumsum(const KernelCall& call, int thread, int threads) {
  const View &x = call.in[0], &y = call.out[0];
  const auto& p = *static_cast<const CumSumParams*>(call.params);
  int64_t axis = integer_at(call.in[1], 0);
  if (axis < 0) axis += x.rank;
  if (axis < 0 || axis >= x.rank) {
    report(call, "CumSum axis out of range", axis, x.rank);
    return;
  }
  const View* views[] = {&y, &x};
  const Nest nest = other_axes(views, 2, static_cast<int>(axis));
  int64_t begin, end;
  split_rows(nest.count(), x.dims[axis], thread, threads, &begin, &end);
  dispatch_computed(x.type, [&](auto tag) {
    using C = typename decltype(tag)::type;
    for_each_row(nest, begin, end, [&](const int64_t* at) {
      cumsum_row<C>(x, y, at[1], at[0], x.strides[axis], y.strides[axis], x.dims[axis], p);
    });
  });
}

void top_k(const KernelCall& call, int thread, int threads) {
  const View &x = call.in[0], &values = call.out[0], &indices = call.out[1];
  const auto& p = *static_cast<const TopKParams*>(call.params);
  const int64_t count = x.dims[p.axis];
  int64_t k = values.dims[p.axis];
  if (k > count) {
    report(call, "TopK k is larger than the axis", k, count);
    k = count;
  }
  const View* views[] = {&values, &indices, &x};
  const Nest nest = other_axes(views, 3, p.axis);
  int64_t begin, end;
  split_rows(nest.count(), count, thread, threads, &begin, &end);
  dispatch_stored(x.type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = typename Compared<T>::type;
    for_each_row(nest, begin, end, [&](const int64_t* at) {
      const Heap<T, C> heap = {reinterpret_cast<T*>(values.data) + at[0],
                               reinterpret_cast<int64_t*>(indices.data) + at[1], values.strides[p.axis],
                               indices.strides[p.axis], p.largest};
      top_k_row(heap, reinterpret_cast<const T*>(x.data) + at[2], x.strides[p.axis], count, k);
    });
  });
}

}  // namespace SITU_ISA
}  // namespace situ
