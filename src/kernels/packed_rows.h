// Rows of activations of a product on packed weights, normalised if need be: floats, or bytes by block.
//
// Bytes are digits with a scale per block. One plane of them is x rounded, as accuracy_level 4 asks for. Three planes
// are x itself: what a plane leaves over is at most half of its scale, so the next one has a scale 254 times smaller,
// and the third leaves at most 2^-24 of the block's largest magnitude, what a float of that size leaves. The three are
// rows like any others to the products; their sums are added. Where an instruction adds four products of bytes, three
// of these take a quarter fewer instructions than four products of floats, and digits of weights need not become
// floats.
#pragma once

#include "kernels/packed.h"
#include "kernels/packed_tiles.h"
#include "kernels/rows.h"

namespace situ {
namespace SITU_ISA {

// Planes of float rows.
constexpr int kFloatPlanes = 3;
constexpr float kPlaneBase = 254;  // of a scale and the next plane's: nearest bytes are at most 127

struct RowBuffer {
  PackedRows rows;
  float* x = nullptr;  // float rows, or one row while it is rounded
  int8_t* q = nullptr;
  float* scales = nullptr;
  int32_t* negative_sums = nullptr;
  float* sums = nullptr;
};

static inline int64_t round_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

// How many of `rows` rows fit `bytes` of scratch, with `beside` bytes more for each slot. At least one: pack_weights
// admits no longer rows. planes: of bytes; 0: floats.
static inline int64_t lay_out(const PackedLayout& w, int planes, int64_t rows, int64_t beside, std::byte* scratch,
                              int64_t bytes, RowBuffer* buffer) {
  const bool int8 = planes > 0;
  const int slots = int8 ? planes : 1;
  int64_t depth = w.blocks * w.block;
  // The rows of an AMX tile are read together: cache lines of their own, an odd number of them, in different sets of
  // the cache.
  if (kTiles && int8) depth = (round_up(depth, 64) / 64 | 1) * 64;
  const int64_t row_x = round_up(depth * 4, 64), row_q = depth + w.blocks * 8, row_f = row_x + w.blocks * 4;
  const int64_t fixed = int8 ? row_x : 0, per_row = (int8 ? row_q : row_f) + beside;
  int64_t fit = (bytes - fixed - 192) / (slots * per_row);
  const int64_t fitting = fit < 1 ? 1 : fit < rows ? fit : rows;
  fit = fitting * slots;
  buffer->rows.planes = slots;
  buffer->x = reinterpret_cast<float*>(scratch);
  std::byte* rest = scratch + (int8 ? row_x : row_x * fit);
  buffer->rows.depth = depth;
  buffer->rows.count = fit;
  buffer->scales = reinterpret_cast<float*>(rest);
  if (int8) rest += fit * w.blocks * 4;
  buffer->sums = reinterpret_cast<float*>(rest);  // one or the other
  buffer->negative_sums = reinterpret_cast<int32_t*>(rest);
  rest += fit * w.blocks * 4;
  buffer->q = reinterpret_cast<int8_t*>(kTiles ? scratch + round_up(rest - scratch, 64) : rest);
  buffer->rows.x = buffer->x;
  buffer->rows.q = buffer->q;
  buffer->rows.scales = buffer->scales;
  buffer->rows.negative_sums = buffer->negative_sums;
  buffer->rows.sums = buffer->sums;
  return fitting;
}

// The activations of a call.
struct Input {
  const View& a;
  const View* norm;  // null: rows are taken as they are
  float epsilon;
  RowOffsets rows{a, a.rank - 1};
  const View* order = nullptr;  // of the elements of a row; null: as they are
};

// Elements k0 .. k0 + n - 1 of the row at `at`, in the order of the weights.
static inline void read_in_order(const Input& in, int64_t at, int64_t k0, int64_t n, float* x) {
  const int64_t step = in.a.strides[in.a.rank - 1];
  if (in.order == nullptr) return read_row(in.a.data, in.a.type, at + k0 * step, step, n, x);
  const int32_t* order = in.order->as<const int32_t>() + k0;
  for (int64_t i = 0; i < n; ++i) x[i] = order[i] < 0 ? 0 : read_float(in.a.data, in.a.type, at + order[i] * step);
}

// x = x / sqrt(mean(x^2) + epsilon) * norm, where x may be `from`.
static inline void normalise(const Input& in, int64_t k, const float* from, float* x) {
  VecF squares{};
  int64_t i = 0;
  for (; i + kLanes <= k; i += kLanes) squares += load(from + i) * load(from + i);
  if (i < k) squares += load_n(from + i, k - i) * load_n(from + i, k - i);
  const float scale = 1.0f / __builtin_sqrtf(sum_lanes(squares) / static_cast<float>(k) + in.epsilon);
  const int64_t step = in.norm->strides[0];
  for (i = 0; i < k; i += kLanes) {
    const int64_t count = k - i < kLanes ? k - i : kLanes;
    store_n(x + i, load_n(from + i, count) * scale * read_columns(*in.norm, i * step, step, count), count);
  }
}

// One row of a as floats in x, zero beyond K. Float rows that lie as needed are still copied: the depth may exceed K.
static inline void read_activations(const PackedLayout& w, const Input& in, int64_t row, float* x) {
  read_in_order(in, in.rows[row], 0, w.k, x);
  if (in.norm != nullptr) normalise(in, w.k, x, x);
  for (int64_t k = w.k; k < w.blocks * w.block; ++k) x[k] = 0;
}

// What is found of kLanes blocks in each plane.
struct RoundedBlocks {
  float scales[kLanes], sums[kLanes];
};

// The scales of planes, from the largest magnitude of a block in each lane, and their inverses. Numbers without scale
// are 0, and so are planes below the smallest floats. Infinite scales of several planes are none: bytes would lose the
// sign of what is infinite.
template <int Planes>
SITU_INLINE void plane_scales(VecF largest, VecF* scales, VecF* factors) {
  VecF scale = largest / 127.0f;
  if (Planes > 1) scale += scale - scale;
#pragma GCC unroll 3
  for (int p = 0; p < Planes; ++p) {
    scales[p] = scale;
    factors[p] = Planes == 1 ? inverse_of(scale) : scale > 0x1p-126f ? 1.0f / scale : VecF{};
    scale = scale * (1 / kPlaneBase);
  }
}

// The bytes of a block in planes `depth` bytes apart, with these scales; sums: of the bytes of each plane, by lanes.
template <int Planes>
SITU_INLINE void round_block(const float* x, int64_t block, const VecF* scales, const VecF* factors, int8_t* q,
                             int64_t depth, VecI* sums) {
#pragma GCC unroll 3
  for (int p = 0; p < Planes; ++p) sums[p] = VecI{};
  for (int64_t k = 0; k < block; k += kLanes) {
    VecF left = load(x + k);
#pragma GCC unroll 3
    for (int p = 0; p < Planes; ++p) {
      const VecI r = nearest_bytes(left * factors[p]);
      sums[p] += r;
      *reinterpret_cast<UnalignedB*>(q + p * depth + k) = __builtin_convertvector(r, VecB);
      if (p + 1 < Planes) left -= __builtin_convertvector(r, VecF) * scales[p];
    }
  }
}

// q = round(x / scale) with scale = the block's largest magnitude / 127 (quantize_block's rule; NaN where a number is),
// for kLanes whole blocks side by side: their maxima and sums are found together.
template <int Planes>
SITU_INLINE void round_blocks(const float* x, int64_t block, int8_t* q, int64_t depth, RoundedBlocks* out) {
  VecF v[Planes][kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    v[0][i] = VecF{};
    for (int64_t k = 0; k < block; k += kLanes) v[0][i] = larger_magnitude(load(x + i * block + k), v[0][i]);
  }
  VecF scales[Planes], factors[Planes];
  float inverse[Planes][kLanes];
  plane_scales<Planes>(largest_of_each(v[0]), scales, factors);
#pragma GCC unroll 3
  for (int p = 0; p < Planes; ++p) {
    store(out[p].scales, scales[p]);
    store(inverse[p], factors[p]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    VecI sums[Planes];
#pragma GCC unroll 3
    for (int p = 0; p < Planes; ++p) {
      scales[p] = splat(out[p].scales[i]);
      factors[p] = splat(inverse[p][i]);
    }
    round_block<Planes>(x + i * block, block, scales, factors, q + i * block, depth, sums);
#pragma GCC unroll 3
    for (int p = 0; p < Planes; ++p) v[p][i] = __builtin_convertvector(sums[p], VecF);  // exact: below 2^24
  }
#pragma GCC unroll 3
  for (int p = 0; p < Planes; ++p) store(out[p].sums, sum_each(v[p]));
}

template <int Planes>
static inline void round_planes(const PackedLayout& w, const float* x, int64_t slot, RowBuffer* buffer) {
  const int64_t depth = buffer->rows.depth;
  int8_t* q = buffer->q + slot * depth;
  const int32_t middle = w.zeros == ZeroPoints::kMiddle ? 1 << (w.bits - 1) : 1;
  auto keep = [&](int64_t b, int p, float scale, float sum) {
    const int64_t at = b * buffer->rows.count + slot + p;
    buffer->scales[at] = scale;
    if (w.zeros == ZeroPoints::kFloats)
      buffer->sums[at] = scale * sum;
    else
      buffer->negative_sums[at] = -static_cast<int32_t>(sum) * middle;
  };
  int64_t b = 0;
  for (; (b + kLanes) * w.block <= w.k; b += kLanes) {
    RoundedBlocks rounded[Planes];
    round_blocks<Planes>(x + b * w.block, w.block, q + b * w.block, depth, rounded);
    for (int p = 0; p < Planes; ++p)
      for (int i = 0; i < kLanes; ++i) keep(b + i, p, rounded[p].scales[i], rounded[p].sums[i]);
  }
  for (; b < w.blocks; ++b) {
    float padded[kLongestBlock] = {};
    VecF largest{}, scales[Planes], factors[Planes];
    const int64_t k = b * w.block, rest = w.k - k, count = rest < w.block ? rest : w.block;
    for (int64_t i = 0; i < count; i += kLanes) {
      const VecF v = count - i < kLanes ? load_n(x + k + i, count - i) : load(x + k + i);
      store(padded + i, v);
      largest = larger_magnitude(v, largest);
    }
    plane_scales<Planes>(splat(largest_lane(largest)), scales, factors);
    VecI sums[Planes];
    round_block<Planes>(padded, w.block, scales, factors, q + k, depth, sums);
    for (int p = 0; p < Planes; ++p) {
      int32_t sum = 0;
      for (int i = 0; i < kLanes; ++i) sum += sums[p][i];
      keep(b, p, scales[p][0], static_cast<float>(sum));
    }
  }
}

// A row of a in its slots.
static inline void round_row(const PackedLayout& w, const Input& in, int64_t row, int64_t slot, RowBuffer* buffer) {
  const View& a = in.a;
  const bool in_place = a.type == DType::kF32 && a.strides[a.rank - 1] == 1 && in.order == nullptr;
  const float* stored = a.as<const float>() + (in_place ? in.rows[row] : 0);
  const float* x = buffer->x;
  if (in_place && in.norm == nullptr)
    x = stored;
  else if (in_place)
    normalise(in, w.k, stored, buffer->x);
  else
    read_activations(w, in, row, buffer->x);
  buffer->rows.planes == 1 ? round_planes<1>(w, x, slot, buffer) : round_planes<kFloatPlanes>(w, x, slot, buffer);
}

static inline void float_row(const PackedLayout& w, const Input& in, int64_t row, int64_t slot, RowBuffer* buffer) {
  float* x = buffer->x + slot * buffer->rows.depth;
  read_activations(w, in, row, x);
  for (int64_t b = 0; b < w.blocks; ++b) {
    VecF sum{};
    for (int64_t k = 0; k < w.block; k += kLanes) sum += load(x + b * w.block + k);
    buffer->sums[b * buffer->rows.count + slot] = sum_lanes(sum);
  }
}

}  // namespace SITU_ISA
}  // namespace situ
