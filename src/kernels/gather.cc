// Elements of x chosen by index (int32 or int64; negative counts from the end). An index out of range is
// reported and gives 0.
// gather: y[p.., i.., q..] = x[p.., index[i..], q..] along one axis.
// gather_nd: y[b.., i.., q..] = x[b.., index[b.., i.., 0], .., index[b.., i.., r-1], q..].
// gather_elements: y[.., i, ..] = x[.., index[.., i, ..], ..].
#include "kernels/elements.h"
#include "kernels/params.h"

namespace situ {
namespace SITU_ISA {
namespace {

// How an index tuple selects a place in x: `depth` coordinates, `index_step` apart, for axes from `first`.
struct Lookup {
  const View* x;
  const View* index;
  int first, depth;
  int64_t index_step;
};

// Element offset in x of the tuple at index element `tuple`; one that is out of range is reported.
inline int64_t look_up(const KernelCall& call, const Lookup& l, int64_t tuple, bool* valid) {
  int64_t offset = 0;
  for (int j = 0; j < l.depth; ++j) {
    const int64_t extent = l.x->dims[l.first + j];
    const int64_t given = index_at(*l.index, tuple + j * l.index_step);
    const int64_t i = given < 0 ? given + extent : given;
    if (i < 0 || i >= extent) {
      report(call, "index out of range", given, extent);
      *valid = false;
      return 0;
    }
    offset += i * l.x->strides[l.first + j];
  }
  *valid = true;
  return offset;
}

template <typename T>
inline void take(T* y, int64_t y_step, const T* x, int64_t x_step, int64_t n) {
  if (y_step == 1 && x_step == 1) {
    for (int64_t i = 0; i < n; ++i) y[i] = x[i];
  } else {
    for (int64_t i = 0; i < n; ++i) y[i * y_step] = x[i * x_step];
  }
}

// Operands of the nest: y, x (0 along index dims), index (0 along dims of x).
template <typename T>
void gather_spans(const KernelCall& call, const Lookup& l, const Nest& nest, int64_t begin, int64_t end) {
  const View &x = *l.x, &y = call.out[0];
  for_each_span(nest, begin, end, [&](const int64_t* at, int64_t count) {
    const int64_t y_step = nest.step(0), x_step = nest.step(1), index_step = nest.step(2);
    T* to = reinterpret_cast<T*>(y.data) + at[0];
    const T* from = reinterpret_cast<const T*>(x.data) + at[1];
    const bool whole = nest.rank == 0 || index_step == 0;  // one tuple for the whole span
    const int64_t length = whole ? count : 1;
    for (int64_t i = 0; i < count; i += length) {
      bool valid;
      const int64_t offset = look_up(call, l, at[2] + i * index_step, &valid);
      T* row = to + i * y_step;
      if (valid) {
        take(row, y_step, from + i * x_step + offset, x_step, length);
      } else {
        for (int64_t j = 0; j < length; ++j) row[j * y_step] = T{};
      }
    }
  });
}

void run(const KernelCall& call, const Lookup& l, const Nest& nest, int thread, int threads) {
  int64_t begin, end;
  split_elements(nest.count(), thread, threads, &begin, &end);
  dispatch_size(call.out[0].type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    gather_spans<T>(call, l, nest, begin, end);
  });
}

}  // namespace

void gather(const KernelCall& call, int thread, int threads) {
  const View &x = call.in[0], &index = call.in[1], &y = call.out[0];
  const int axis = static_cast<const AxisParams*>(call.params)->axis;
  Nest nest;
  nest.operands = 3;
  for (int i = 0; i < y.rank; ++i) {
    const bool chosen = i >= axis && i < axis + index.rank;
    const int x_axis = i < axis ? i : i - index.rank + 1;
    const int64_t strides[] = {y.strides[i], chosen ? 0 : x.strides[x_axis], chosen ? index.strides[i - axis] : 0};
    nest_add_dim(&nest, y.dims[i], strides);
  }
  run(call, {&x, &index, axis, 1, 0}, nest, thread, threads);
}

void gather_nd(const KernelCall& call, int thread, int threads) {
  const View &x = call.in[0], &index = call.in[1], &y = call.out[0];
  const int batch = static_cast<const GatherNdParams*>(call.params)->batch_dims;
  const int tuple_axis = index.rank - 1;
  const int depth = static_cast<int>(index.dims[tuple_axis]);
  Nest nest;
  nest.operands = 3;
  for (int i = 0; i < y.rank; ++i) {
    const int x_axis = i < batch ? i : i < tuple_axis ? -1 : i - tuple_axis + batch + depth;
    const int64_t strides[] = {y.strides[i], x_axis < 0 ? 0 : x.strides[x_axis], i < tuple_axis ? index.strides[i] : 0};
    nest_add_dim(&nest, y.dims[i], strides);
  }
  run(call, {&x, &index, batch, depth, index.strides[tuple_axis]}, nest, thread, threads);
}

void gather_elements(const KernelCall& call, int thread, int threads) {
  const View &x = call.in[0], &index = call.in[1], &y = call.out[0];
  const int axis = static_cast<const AxisParams*>(call.params)->axis;
  Nest nest;
  nest.operands = 3;
  for (int i = 0; i < y.rank; ++i) {
    const int64_t strides[] = {y.strides[i], i == axis ? 0 : x.strides[i], index.strides[i]};
    nest_add_dim(&nest, y.dims[i], strides);
  }
  run(call, {&x, &index, axis, 1, 0}, nest, thread, threads);
}

}  // namespace SITU_ISA
}  // namespace situ
