// situ.Rotary (formula in params.h). A row is one head of one token; y may be x.
#include "kernels/params.h"
#include "kernels/rows.h"

namespace situ {
namespace SITU_ISA {
namespace {

struct Tables {
  const View *cos, *sin, *positions;  // positions null: cos and sin broadcast to [B, H, S, C]
  int64_t width;                      // C
};

// Offsets of the cos and sin rows for token [b, h, s]; false when the position is outside the tables.
bool table_row(const KernelCall& call, const Tables& t, int64_t b, int64_t h, int64_t s, int64_t* cos, int64_t* sin) {
  if (t.positions == nullptr) {
    const int64_t index[3] = {b, h, s};
    *cos = *sin = 0;
    for (int i = 0; i < 3; ++i) {
      *cos += index[i] * broadcast_stride(*t.cos, i, 4);
      *sin += index[i] * broadcast_stride(*t.sin, i, 4);
    }
    return true;
  }
  const View& p = *t.positions;
  const bool first_only = p.rank < 2;  // one position: that of token 0
  int64_t at = 0;
  if (!first_only) at = b * (p.dims[0] == 1 ? 0 : p.strides[0]) + s * (p.dims[1] == 1 ? 0 : p.strides[1]);
  int64_t position = p.type == DType::kI32 ? p.as<const int32_t>()[at] : p.as<const int64_t>()[at];
  if (first_only) position += s;
  if (position < 0 || position >= t.cos->dims[0]) {
    report(call, "position outside the rotary table", position, t.cos->dims[0]);
    return false;
  }
  *cos = position * t.cos->strides[0];
  *sin = position * t.sin->strides[0];
  return true;
}

// Buffers of one row as floats.
struct Row {
  float *x, *cos, *sin;
};

void rotate_half(const Row& r, int64_t half, int64_t second) {
  int64_t i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    const VecF a = load(r.x + i), b = load(r.x + i + half);
    store(r.x + i, a * load(r.cos + i) - b * load(r.sin + i));
    store(r.x + i + half, b * load(r.cos + i + second) + a * load(r.sin + i + second));
  }
  for (; i < half; ++i) {
    const float a = r.x[i], b = r.x[i + half];
    r.x[i] = a * r.cos[i] - b * r.sin[i];
    r.x[i + half] = b * r.cos[i + second] + a * r.sin[i + second];
  }
}

void rotate_pairs(const Row& r, int64_t half, bool full) {
  for (int64_t i = 0; i < half; ++i) {
    const float a = r.x[2 * i], b = r.x[2 * i + 1];
    const int64_t u = full ? 2 * i : i, v = full ? 2 * i + 1 : i;
    r.x[2 * i] = a * r.cos[u] - b * r.sin[u];
    r.x[2 * i + 1] = b * r.cos[v] + a * r.sin[v];
  }
}

// Elements [from, D) of a row, unchanged: moved, or rounded to y's type by way of `buffer`.
void pass_through(const KernelCall& call, const View& x, const View& y, int64_t x_at, int64_t y_at, int64_t from,
                  float* buffer) {
  if (x.type != y.type) {
    read_row(x.data, x.type, x_at + from * x.strides[3], x.strides[3], x.dims[3] - from, buffer);
    write_row(y.data, y.type, y_at + from * y.strides[3], y.strides[3], x.dims[3] - from, buffer);
    return;
  }
  View source = x, target = y;
  source.rank = target.rank = 1;
  source.dims[0] = target.dims[0] = x.dims[3] - from;
  source.strides[0] = x.strides[3];
  target.strides[0] = y.strides[3];
  source.data += (x_at + from * x.strides[3]) * dtype_bytes(x.type);
  target.data += (y_at + from * y.strides[3]) * dtype_bytes(y.type);
  move_bytes(target, source, *call.ledger);
}

bool same_place(const View& x, const View& y) {
  bool same = x.data == y.data && x.type == y.type;
  for (int i = 0; i < x.rank; ++i) same = same && (x.dims[i] <= 1 || x.strides[i] == y.strides[i]);
  return same;
}

}  // namespace

void rotary(const KernelCall& call, int thread, int threads) {
  const RotaryParams& params = *static_cast<const RotaryParams*>(call.params);
  const View &x = call.in[0], &y = call.out[0];
  Tables t{&call.in[1], &call.in[2], call.in_count > 3 && call.in[3].present() ? &call.in[3] : nullptr, 0};
  t.width = t.cos->dims[t.cos->rank - 1];
  const int64_t rotary = params.rotary_dim, half = rotary / 2;
  Row row;
  row.x = reinterpret_cast<float*>(call.scratch);
  row.cos = row.x + rotary;
  row.sin = row.cos + t.width;
  const int64_t cos_step = t.cos->strides[t.cos->rank - 1], sin_step = t.sin->strides[t.sin->rank - 1];
  const bool rest_moves = rotary < x.dims[3] && !same_place(x, y), full = t.width == rotary;
  int64_t begin, end, loaded_cos = -1, loaded_sin = -1;
  split_rows(count_dims(x, 0, 3), x.dims[3], thread, threads, &begin, &end);
  if (begin >= end) return;
  // All heads of a token after each other: they share its row of the tables.
  int64_t h = begin % x.dims[1], s = begin / x.dims[1] % x.dims[2], b = begin / x.dims[1] / x.dims[2];
  for (int64_t i = begin; i < end; ++i) {
    const int64_t x_at = b * x.strides[0] + h * x.strides[1] + s * x.strides[2],
                  y_at = b * y.strides[0] + h * y.strides[1] + s * y.strides[2];
    int64_t cos_at = 0, sin_at = 0;
    if (table_row(call, t, b, h, s, &cos_at, &sin_at)) {
      if (cos_at != loaded_cos || sin_at != loaded_sin) {
        read_row(t.cos->data, t.cos->type, cos_at, cos_step, t.width, row.cos);
        read_row(t.sin->data, t.sin->type, sin_at, sin_step, t.width, row.sin);
        loaded_cos = cos_at;
        loaded_sin = sin_at;
      }
      if (params.pairs_to_halves) {
        read_row(x.data, x.type, x_at, 2 * x.strides[3], half, row.x);
        read_row(x.data, x.type, x_at + x.strides[3], 2 * x.strides[3], half, row.x + half);
      } else {
        read_row(x.data, x.type, x_at, x.strides[3], rotary, row.x);
      }
      if (params.interleaved)
        rotate_pairs(row, half, full);
      else
        rotate_half(row, half, full ? half : 0);
    } else {
      for (int64_t d = 0; d < rotary; ++d) row.x[d] = 0;
    }
    write_row(y.data, y.type, y_at, y.strides[3], rotary, row.x);
    if (rest_moves) pass_through(call, x, y, x_at, y_at, rotary, row.sin + t.width);
    if (++h < x.dims[1]) continue;
    h = 0;
    if (++s < x.dims[2]) continue;
    s = 0;
    ++b;
  }
}

}  // namespace SITU_ISA
}  // namespace situ
