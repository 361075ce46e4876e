// Tensors made from little: fill (one value everywhere), range, eye_like, one_hot, nonzero, shape; and trilu, which
// keeps a triangle of x.
#include "kernels/elements.h"
#include "kernels/params.h"

namespace situ {
namespace SITU_ISA {
namespace {

// All elements of y in [begin, end), as spans of T.
template <typename T, typename Span>
inline void for_each_y(const View& y, int64_t begin, int64_t end, Span span) {
  const View* views[] = {&y};
  const Nest nest = make_nest(views, 1);
  for_each_span(nest, begin, end, [&](const int64_t* at, int64_t count) {
    span(reinterpret_cast<T*>(y.data) + at[0], nest.step(0), count);
  });
}

// Element `at` of a scalar or one-element operand, as C.
template <typename C>
C scalar(const View& v) {
  C value;
  gather_chunk(v, 0, 1, 1, &value);
  return value;
}

}  // namespace

void fill(const KernelCall& call, int thread, int threads) {
  const View& y = call.out[0];
  const auto& p = *static_cast<const FillParams*>(call.params);
  int64_t begin, end;
  split_elements(y.count(), thread, threads, &begin, &end);
  const bool whole = dispatch_size(y.type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T value = *reinterpret_cast<const T*>(p.value);
    for_each_y<T>(y, begin, end, [&](T* to, int64_t step, int64_t n) {
      if (step == 1) {
        for (int64_t i = 0; i < n; ++i) to[i] = value;
      } else {
        for (int64_t i = 0; i < n; ++i) to[i * step] = value;
      }
    });
  });
  if (whole || thread != 0) return;
  // Packed elements: `value` holds one whole byte of them.
  const int64_t bytes = (y.count() * dtype_bits(y.type) + 7) / 8;
  for (int64_t i = 0; i < bytes; ++i) y.data[i] = static_cast<std::byte>(p.value[0]);
}

// y[i] = start + i * delta; operands start, limit, delta are scalars, the extent of y is given.
void range(const KernelCall& call, int thread, int threads) {
  const View& y = call.out[0];
  int64_t begin, end;
  split_elements(y.dims[0], thread, threads, &begin, &end);
  dispatch_computed(y.type, [&](auto tag) {
    using C = typename decltype(tag)::type;
    const C start = scalar<C>(call.in[0]), delta = scalar<C>(call.in[2]);
    C buffer[kChunk];
    for (int64_t i = begin; i < end; i += kChunk) {
      const int64_t n = end - i < kChunk ? end - i : kChunk;
      for (int64_t j = 0; j < n; ++j) {
        if constexpr (kIsReal<C>)
          buffer[j] = start + static_cast<C>(i + j) * delta;
        else
          buffer[j] = static_cast<C>(static_cast<uint64_t>(start) +
                                     static_cast<uint64_t>(i + j) * static_cast<uint64_t>(delta));
      }
      store(y, i * y.strides[0], y.strides[0], n, static_cast<const C*>(buffer));
    }
  });
}

// y[.., i, j] = x[.., i, j] where j >= i + k (upper) or j <= i + k (lower), else 0. Operand 1: k. y may be x.
void trilu(const KernelCall& call, int thread, int threads) {
  const View &x = call.in[0], &y = call.out[0];
  const bool upper = static_cast<const TriluParams*>(call.params)->upper;
  const int64_t k = call.in_count > 1 && call.in[1].present() ? integer_at(call.in[1], 0) : 0;
  const int rows_axis = x.rank - 2, columns_axis = x.rank - 1;
  const int64_t rows = x.dims[rows_axis], columns = x.dims[columns_axis];
  Nest outer;
  outer.operands = 2;
  for (int i = 0; i < rows_axis; ++i) {
    const int64_t strides[] = {y.strides[i], x.strides[i]};
    nest_add_dim(&outer, x.dims[i], strides);
  }
  int64_t begin, end;
  split_rows(outer.count() * rows, columns, thread, threads, &begin, &end);
  dispatch_size(x.type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (int64_t r = begin; r < end; ++r) {
      const Walker w = walk_from(outer, outer.rank, r / rows);
      const int64_t row = r % rows;
      T* to = reinterpret_cast<T*>(y.data) + w.offset[0] + row * y.strides[rows_axis];
      const T* from = reinterpret_cast<const T*>(x.data) + w.offset[1] + row * x.strides[rows_axis];
      int64_t diagonal;
      const bool overflow = __builtin_add_overflow(row, k, &diagonal);
      if (overflow) diagonal = INT64_MAX;
      for (int64_t j = 0; j < columns; ++j) {
        const bool kept = upper ? j >= diagonal : j <= diagonal;
        to[j * y.strides[columns_axis]] = kept ? from[j * x.strides[columns_axis]] : T{};
      }
    }
  });
}

// y[i, j] = 1 where j == i + k, else 0.
void eye_like(const KernelCall& call, int thread, int threads) {
  const View& y = call.out[0];
  const int64_t k = static_cast<const EyeLikeParams*>(call.params)->k;
  int64_t begin, end;
  split_rows(y.dims[0], y.dims[1], thread, threads, &begin, &end);
  dispatch_stored(y.type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T one = convert<T>(int32_t{1}), zero = convert<T>(int32_t{0});
    for (int64_t i = begin; i < end; ++i) {
      T* row = reinterpret_cast<T*>(y.data) + i * y.strides[0];
      for (int64_t j = 0; j < y.dims[1]; ++j) row[j * y.strides[1]] = j - i == k ? one : zero;
    }
  });
}

// y = values[1] at the index along the new axis, values[0] elsewhere; operands indices, depth, values.
// Indices outside [-depth, depth) select nothing.
void one_hot(const KernelCall& call, int thread, int threads) {
  const View &indices = call.in[0], &values = call.in[2], &y = call.out[0];
  const int axis = static_cast<const AxisParams*>(call.params)->axis;
  const int64_t depth = y.dims[axis];
  Nest nest;  // operands: y, indices
  nest.operands = 2;
  for (int i = 0; i < indices.rank; ++i) {
    const int64_t strides[] = {y.strides[i < axis ? i : i + 1], indices.strides[i]};
    nest_add_dim(&nest, indices.dims[i], strides);
  }
  int64_t begin, end;
  split_rows(nest.count(), depth, thread, threads, &begin, &end);
  dispatch_size(y.type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T off = reinterpret_cast<const T*>(values.data)[0];
    const T on = reinterpret_cast<const T*>(values.data)[values.strides[0]];
    for_each_row(nest, begin, end, [&](const int64_t* at) {
      int64_t chosen;
      gather_chunk(indices, at[1], 1, 1, &chosen);
      if (chosen < 0) chosen += depth;
      T* row = reinterpret_cast<T*>(y.data) + at[0];
      for (int64_t j = 0; j < depth; ++j) row[j * y.strides[axis]] = j == chosen ? on : off;
    });
  });
}

// y[:, n] = the index of the n-th element of x that is not 0, in row-major order; x [d..], y [max(rank, 1), N] with N
// given. Runs on what is known before the step, so one thread is enough.
void nonzero(const KernelCall& call, int thread, int) {
  if (thread != 0) return;
  const View &x = call.in[0], &y = call.out[0];
  int64_t index[kMaxRank] = {}, at = 0, found = 0;
  for (int64_t i = x.count(); i > 0 && found < y.dims[1]; --i) {
    double element;
    gather_chunk(x, at, 1, 1, &element);
    if (element != 0) {
      int64_t* to = reinterpret_cast<int64_t*>(y.data) + found++ * y.strides[1];
      for (int64_t d = 0; d < y.dims[0]; ++d) to[d * y.strides[0]] = index[d];
    }
    for (int d = x.rank - 1; d >= 0; --d) {
      at += x.strides[d];
      if (++index[d] < x.dims[d]) break;
      at -= index[d] * x.strides[d];
      index[d] = 0;
    }
  }
}

// y = the dims of x, int64: for the interpreter only, a compiled program knows them.
void shape(const KernelCall& call, int thread, int) {
  if (thread != 0) return;
  const View &x = call.in[0], &y = call.out[0];
  const auto& p = *static_cast<const ShapeParams*>(call.params);
  int64_t* to = reinterpret_cast<int64_t*>(y.data);
  if (p.product) {
    to[0] = count_dims(x, p.start, p.end);
    return;
  }
  for (int i = p.start; i < p.end; ++i) to[(i - p.start) * y.strides[0]] = x.dims[i];
}

}  // namespace SITU_ISA
}  // namespace situ
