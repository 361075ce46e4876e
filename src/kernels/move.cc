// The copies that nobody could place. Every byte goes through move_bytes, which books it.
// move: y = x, where x has the dims of y, broadcasts to them (Expand) or has as many elements (Reshape).
// move_tile: y[i] = x[i mod x's dims].  move_pad: y = x with elements added (or cropped) at both ends.
#include "kernels/elements.h"
#include "kernels/params.h"

namespace situ {
namespace SITU_ISA {
namespace {

// Elements [begin, begin + extent) along one axis.
View slice(View v, int axis, int64_t begin, int64_t extent) {
  v.data += begin * v.strides[axis] * dtype_bytes(v.type);
  v.dims[axis] = extent;
  return v;
}

int longest_axis(const View& v) {
  int longest = 0;
  for (int i = 1; i < v.rank; ++i) {
    if (v.dims[i] > v.dims[longest]) longest = i;
  }
  return longest;
}

// This thread's part of to = from, same dims: an equal share of the longest axis.
void move_share(const KernelCall& call, const View& to, const View& from, int thread, int threads) {
  const bool packed = dtype_bytes(to.type) == 0;
  if (to.data == from.data) {
    bool in_place = true;
    for (int i = 0; i < to.rank; ++i) in_place = in_place && (to.dims[i] == 1 || to.strides[i] == from.strides[i]);
    if (in_place) return;
  }
  if (to.rank == 0 || packed) {
    if (thread == 0) move_bytes(to, from, *call.ledger);
    return;
  }
  const int axis = longest_axis(to);
  const int64_t extent = to.dims[axis];
  int64_t begin, end;
  split_rows(extent, extent > 0 ? to.count() / extent : 0, thread, threads, &begin, &end);
  if (begin < end) move_bytes(slice(to, axis, begin, end - begin), slice(from, axis, begin, end - begin), *call.ledger);
}

View with_dims_of(View v, const View& other) {
  v.rank = other.rank;
  for (int i = 0; i < other.rank; ++i) v.dims[i] = other.dims[i];
  return v;
}

bool same_dims(const View& a, const View& b) {
  bool same = a.rank == b.rank;
  for (int i = 0; same && i < a.rank; ++i) same = a.dims[i] == b.dims[i];
  return same;
}

bool is_contiguous(const View& v) {
  int64_t expected = 1;
  for (int i = v.rank - 1; i >= 0; --i) {
    if (v.dims[i] != 1 && v.strides[i] != expected) return false;
    expected *= v.dims[i];
  }
  return true;
}

View contiguous_like(const View& v, const View& dims_of) {
  View result = with_dims_of(v, dims_of);
  int64_t stride = 1;
  for (int i = result.rank - 1; i >= 0; --i) {
    result.strides[i] = stride;
    stride *= result.dims[i];
  }
  return result;
}

// One element of v at a place in memory.
View element(const View& v, int64_t offset) {
  View e;
  e.type = v.type;
  e.data = v.data + offset * dtype_bytes(v.type);
  return e;
}

// Same elements in the same order under other dims, neither side contiguous.
void move_reshaped(const KernelCall& call, const View& to, const View& from, int thread, int threads) {
  const View *to_views[] = {&to}, *from_views[] = {&from};
  const Nest to_nest = make_nest(to_views, 1), from_nest = make_nest(from_views, 1);
  int64_t begin, end;
  split_elements(to_nest.count(), thread, threads, &begin, &end);
  if (begin >= end) return;
  Walker to_place = walk_from(to_nest, to_nest.rank, begin), from_place = walk_from(from_nest, from_nest.rank, begin);
  for (int64_t i = begin; i < end; ++i) {
    move_bytes(element(to, to_place.offset[0]), element(from, from_place.offset[0]), *call.ledger);
    walk_next(&to_place);
    walk_next(&from_place);
  }
}

// Where a padded coordinate reads from: an index into [0, extent), or -1 for the pad value.
int64_t pad_source(int64_t i, int64_t extent, int32_t mode) {
  if (i >= 0 && i < extent) return i;
  if (mode == 0 || extent == 0) return -1;
  if (mode == 2) return i < 0 ? 0 : extent - 1;
  if (mode == 3) return ((i % extent) + extent) % extent;
  if (extent == 1) return 0;
  const int64_t period = 2 * (extent - 1);  // reflect, the end itself not repeated
  const int64_t phase = ((i % period) + period) % period;
  return phase < extent ? phase : period - phase;
}

// Elements in front of each axis, from the parameters or from operands 1 (pads) and 3 (axes).
void read_pads(const KernelCall& call, const PadParams& p, int rank, int64_t* before) {
  for (int i = 0; i < rank; ++i) before[i] = p.from_attributes ? p.before[i] : 0;
  if (p.from_attributes) return;
  const bool some = call.in_count > 3 && call.in[3].present();
  const int64_t listed = some ? call.in[3].count() : rank;
  for (int64_t j = 0; j < listed; ++j) {
    int64_t axis = some ? integer_at(call.in[3], j) : j;
    if (axis < 0) axis += rank;
    if (axis < 0 || axis >= rank || j >= call.in[1].count())
      report(call, "Pad axis out of range", axis, rank);
    else
      before[axis] = integer_at(call.in[1], j);
  }
}

template <typename T>
void fill_row(const View& y, int64_t at, int64_t step, int64_t n, T value) {
  T* row = reinterpret_cast<T*>(y.data) + at;
  for (int64_t i = 0; i < n; ++i) row[i * step] = value;
}

// n elements of the pad value: operand 2, else the parameter, else 0.
void fill_pad(const KernelCall& call, const PadParams& p, const View& y, int64_t at, int64_t step, int64_t n) {
  const bool operand = call.in_count > 2 && call.in[2].present() && !p.from_attributes;
  if (operand || !p.from_attributes) {
    dispatch_size(y.type, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T value = operand ? *reinterpret_cast<const T*>(call.in[2].data) : T{};
      fill_row(y, at, step, n, value);
    });
    return;
  }
  dispatch_stored(y.type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    fill_row(y, at, step, n, convert<T>(p.value));
  });
}

// One innermost row of a padded tensor; x_at: the row of x that it reads.
void pad_row(const KernelCall& call, const PadParams& p, int64_t y_at, int64_t x_at, int64_t before) {
  const View &x = call.in[0], &y = call.out[0];
  const int last = y.rank - 1;
  const int64_t y_step = y.strides[last], x_step = x.strides[last], extent = x.dims[last], length = y.dims[last];
  const int64_t begin = before < 0 ? 0 : before < length ? before : length;
  const int64_t stop = extent + before < length ? extent + before : length;
  const int64_t end = stop > begin ? stop : begin;
  for (int64_t i = 0; i < length; ++i) {
    if (i == begin && end > begin) {
      View to = element(y, y_at + i * y_step), from = element(x, x_at + (i - before) * x_step);
      to.rank = from.rank = 1;
      to.dims[0] = from.dims[0] = end - begin;
      to.strides[0] = y_step;
      from.strides[0] = x_step;
      move_bytes(to, from, *call.ledger);
      i = end - 1;
      continue;
    }
    const int64_t source = pad_source(i - before, extent, p.mode);
    if (source < 0)
      fill_pad(call, p, y, y_at + i * y_step, y_step, 1);
    else
      move_bytes(element(y, y_at + i * y_step), element(x, x_at + source * x_step), *call.ledger);
  }
}

}  // namespace

void move(const KernelCall& call, int thread, int threads) {
  const View &x = call.in[0], &y = call.out[0];
  if (same_dims(x, y)) return move_share(call, y, x, thread, threads);
  if (x.count() == y.count()) {
    if (is_contiguous(x)) return move_share(call, y, contiguous_like(x, y), thread, threads);
    if (is_contiguous(y)) return move_share(call, contiguous_like(y, x), x, thread, threads);
    return move_reshaped(call, y, x, thread, threads);
  }
  View wide = with_dims_of(x, y);
  for (int i = 0; i < y.rank; ++i) wide.strides[i] = broadcast_stride(x, i, y.rank);
  move_share(call, y, wide, thread, threads);
}

void move_tile(const KernelCall& call, int thread, int threads) {
  const View &x = call.in[0], &y = call.out[0];
  if (y.count() == 0) return;
  // The repeats as a nest: one step along an axis is one whole x.
  Nest repeats;
  repeats.operands = 1;
  View block = y;
  for (int i = 0; i < y.rank; ++i) {
    const int64_t stride = y.strides[i] * x.dims[i];
    block.dims[i] = x.dims[i];
    nest_add_dim(&repeats, y.dims[i] / x.dims[i], &stride);
  }
  const int64_t count = repeats.count();
  int64_t begin, end;
  split_rows(count, x.count(), thread, threads, &begin, &end);
  for_each_row(repeats, begin, end, [&](const int64_t* at) {
    View to = block;
    to.data += at[0] * dtype_bytes(y.type);
    move_bytes(to, x, *call.ledger);
  });
}

void move_pad(const KernelCall& call, int thread, int threads) {
  const View &x = call.in[0], &y = call.out[0];
  const auto& p = *static_cast<const PadParams*>(call.params);
  if (y.rank == 0) return move_share(call, y, x, thread, threads);
  int64_t before[kMaxRank];
  read_pads(call, p, y.rank, before);
  const int last = y.rank - 1;
  const int64_t rows = count_dims(y, 0, last);
  int64_t begin, end;
  split_rows(rows, y.dims[last], thread, threads, &begin, &end);
  for (int64_t row = begin; row < end; ++row) {
    int64_t rest = row, y_at = 0, x_at = 0;
    bool inside = true;
    for (int i = last - 1; i >= 0; --i) {
      const int64_t place = rest % y.dims[i];
      rest /= y.dims[i];
      const int64_t source = pad_source(place - before[i], x.dims[i], p.mode);
      inside = inside && source >= 0;
      y_at += place * y.strides[i];
      x_at += source * x.strides[i];
    }
    if (inside)
      pad_row(call, p, y_at, x_at, before[last]);
    else
      fill_pad(call, p, y, y_at, y.strides[last], y.dims[last]);
  }
}

}  // namespace SITU_ISA
}  // namespace situ
