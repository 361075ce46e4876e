// y = x, then elements of `updates` put (or added, ...) where `indices` say. y may be x: then only the
// updates are written. The copy of x that is needed otherwise is booked. Negative indices count from the
// end; one out of range is reported and its update left out. Where indices repeat, updates apply in order.
// scatter_nd: y[indices[i.., 0], .., indices[i.., r-1], q..] = updates[i.., q..].
// scatter_elements: y[.., indices[.., i, ..], ..] = updates[.., i, ..].
#include "kernels/elements.h"
#include "kernels/params.h"

namespace situ {
namespace SITU_ISA {
namespace {

// Threads own disjoint ranges [begin, end) of y along one axis; each looks at all updates and applies its own.
struct Share {
  int axis;
  int64_t begin, end;
};

Share share_of(const View& y, int axes, int avoid, int thread, int threads) {
  Share share = {-1, 0, 0};
  for (int i = 0; i < axes; ++i) {
    if (i != avoid && (share.axis < 0 || y.dims[i] > y.dims[share.axis])) share.axis = i;
  }
  if (share.axis < 0) share.axis = avoid;
  const int64_t extent = y.dims[share.axis];
  split_rows(extent, extent > 0 ? y.count() / extent : 0, thread, threads, &share.begin, &share.end);
  return share;
}

int64_t element_bytes(DType type) { return dtype_bits(type) / 8; }

// This thread's part of y = x, unless y is x.
void copy_share(const KernelCall& call, const Share& share) {
  View to = call.out[0], from = call.in[0];
  if (to.data == from.data || share.begin >= share.end) return;
  to.data += share.begin * to.strides[share.axis] * element_bytes(to.type);
  from.data += share.begin * from.strides[share.axis] * element_bytes(from.type);
  to.dims[share.axis] = from.dims[share.axis] = share.end - share.begin;
  move_bytes(to, from, *call.ledger);
}

template <typename C>
C combine(ScatterKind kind, C a, C b) {
  switch (kind) {
    case ScatterKind::kAdd:
      if constexpr (kIsReal<C>)
        return a + b;
      else
        return static_cast<C>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    case ScatterKind::kMul:
      if constexpr (kIsReal<C>)
        return a * b;
      else
        return static_cast<C>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    case ScatterKind::kMax:
      return b > a || b != b ? b : a;
    case ScatterKind::kMin:
      return b < a || b != b ? b : a;
    default:
      return b;
  }
}

// y[at + i * y_step] (op)= u[i * u_step] for n elements.
void apply(const View& y, int64_t y_at, int64_t y_step, const View& u, int64_t u_at, int64_t u_step, int64_t n,
           ScatterKind kind) {
  if (kind == ScatterKind::kNone) {
    dispatch_size(y.type, [&](auto tag) {
      using T = typename decltype(tag)::type;
      T* to = reinterpret_cast<T*>(y.data) + y_at;
      const T* from = reinterpret_cast<const T*>(u.data) + u_at;
      for (int64_t i = 0; i < n; ++i) to[i * y_step] = from[i * u_step];
    });
    return;
  }
  dispatch_computed(y.type, [&](auto tag) {
    using C = typename decltype(tag)::type;
    C a_buffer[kChunk], b_buffer[kChunk], result[kChunk];
    for (int64_t i = 0; i < n; i += kChunk) {
      const int64_t part = n - i < kChunk ? n - i : kChunk;
      const C* a = load(y, y_at + i * y_step, y_step, part, a_buffer);
      const C* b = load(u, u_at + i * u_step, u_step, part, b_buffer);
      for (int64_t j = 0; j < part; ++j) result[j] = combine(kind, a[j], b[j]);
      store(y, y_at + i * y_step, y_step, part, static_cast<const C*>(result));
    }
  });
}

// The index made non-negative; -1 after reporting one that is out of range.
int64_t checked_index(const KernelCall& call, const View& indices, int64_t at, int64_t extent) {
  const int64_t given = index_at(indices, at);
  const int64_t i = given < 0 ? given + extent : given;
  if (i >= 0 && i < extent) return i;
  report(call, "index out of range", given, extent);
  return -1;
}

}  // namespace

void scatter_nd(const KernelCall& call, int thread, int threads) {
  const View &indices = call.in[1], &updates = call.in[2], &y = call.out[0];
  const ScatterKind kind = static_cast<const ScatterParams*>(call.params)->kind;
  const int tuple_axis = indices.rank - 1;
  const int depth = static_cast<int>(indices.dims[tuple_axis]);
  const Share share = share_of(y, depth, -1, thread, threads);
  copy_share(call, share);
  Nest tuples, slice;  // operands: indices, updates; y, updates
  tuples.operands = slice.operands = 2;
  for (int i = 0; i < tuple_axis; ++i) {
    const int64_t strides[] = {indices.strides[i], updates.strides[i]};
    nest_add_dim(&tuples, indices.dims[i], strides);
  }
  for (int i = depth; i < y.rank; ++i) {
    const int64_t strides[] = {y.strides[i], updates.strides[tuple_axis + i - depth]};
    nest_add_dim(&slice, y.dims[i], strides);
  }
  if (share.begin >= share.end) return;
  for_each_row(tuples, 0, tuples.count(), [&](const int64_t* at) {
    int64_t target = 0;
    bool mine = true;
    for (int j = 0; j < depth; ++j) {
      const int64_t i = checked_index(call, indices, at[0] + j * indices.strides[tuple_axis], y.dims[j]);
      mine = mine && i >= 0 && (j != share.axis || (i >= share.begin && i < share.end));
      target += i * y.strides[j];
    }
    if (!mine) return;
    for_each_span(slice, 0, slice.count(), [&](const int64_t* part, int64_t n) {
      apply(y, target + part[0], slice.step(0), updates, at[1] + part[1], slice.step(1), n, kind);
    });
  });
}

void scatter_elements(const KernelCall& call, int thread, int threads) {
  const View &indices = call.in[1], &updates = call.in[2], &y = call.out[0];
  const auto& p = *static_cast<const ScatterParams*>(call.params);
  const Share share = share_of(y, y.rank, p.axis, thread, threads);
  copy_share(call, share);
  Nest nest;  // operands: y (0 along the scattered axis), indices, updates
  nest.operands = 3;
  int64_t base[3] = {};
  for (int i = 0; i < y.rank; ++i) {
    const int64_t strides[] = {i == p.axis ? 0 : y.strides[i], indices.strides[i], updates.strides[i]};
    int64_t extent = indices.dims[i];
    if (i == share.axis && i != p.axis) {
      for (int k = 0; k < 3; ++k) base[k] = share.begin * strides[k];
      extent = (share.end < extent ? share.end : extent) - share.begin;
      extent = extent < 0 ? 0 : extent;
    }
    nest_add_dim(&nest, extent, strides);
  }
  if (share.begin >= share.end) return;
  for_each_row(nest, 0, nest.count(), [&](const int64_t* at) {
    const int64_t i = checked_index(call, indices, base[1] + at[1], y.dims[p.axis]);
    const bool mine = i >= 0 && (share.axis != p.axis || (i >= share.begin && i < share.end));
    if (mine) apply(y, base[0] + at[0] + i * y.strides[p.axis], 1, updates, base[2] + at[2], 1, 1, p.kind);
  });
}

}  // namespace SITU_ISA
}  // namespace situ
