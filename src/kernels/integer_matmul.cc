// situ.IntegerMatMul (kernels/integer_layout.h): rows of bytes times weights of bytes, exact in int32 over all of K,
// then scales, bias, GELU and residual in float32, once for each result.
//
// With a the row's bytes and z its zero point (both less 128), and u the unsigned weights and v their zero points:
//   sum over k of (a - z) (u - v) = sum of a u - v * (sum of a) - z * (sum of u - K v)
// The first sum is what VNNI and AMX compute: unsigned times signed bytes. Without them bytes become words in
// registers; nothing saturates.
//
// Threads split units of 32 columns, and the rows where there are many. A unit of weights passes all rows of the thread
// in tiles that stay in registers for all of K (with AMX, kernels/integer_tiles.h, in its tiles); there is no panel to
// unpack and no pass over the sums.
#include "kernels/integer_tiles.h"
#include "kernels/packed_output.h"

namespace situ {
namespace SITU_ISA {
namespace {

constexpr int kVectors = kIntegerColumns / kLanes;  // of a unit
constexpr int kAtOnce = kVectors < 2 ? kVectors : 2;
// Two vectors of columns of so many rows, two vectors of weights, and a row's bytes: all in registers.
constexpr int kRows = kVectorRegisters == 32 ? 12 : kVnni ? 6 : 4;
constexpr int64_t kOwnRows = 16;  // a thread that has fewer rows of its own shares their columns with others instead
static_assert(kOwnRows <= kRowsOfOwn);

struct Job {
  IntegerLayout layout;
  const int8_t* rows;
  RowOffsets offsets;
  const uint8_t* weights;
  const View *scales, *zeros;
  bool signed_zeros, gelu;
  Output out;
  bool plain;  // results, and what is added to them, are floats side by side

  const int8_t* row(int64_t r) const { return rows + offsets[r]; }
  const IntegerRowEnd& end(int64_t r) const { return *reinterpret_cast<const IntegerRowEnd*>(row(r) + layout.depth()); }
};

bool side_by_side(const View* v) { return v == nullptr || (v->type == DType::kF32 && v->strides[v->rank - 1] == 1); }

// What the columns of a unit are multiplied with and less by.
struct Columns {
  VecF scale[kVectors], bias[kVectors];
  VecI zero[kVectors], sum[kVectors];  // of unsigned weights; sums less K * zero
};

void look_up(const Job& job, int64_t unit, Columns* c) {
  const int64_t n0 = unit * kIntegerColumns, n = job.layout.n;
  const uint8_t* sums = job.weights + (unit + 1) * job.layout.unit_bytes() - kIntegerLine;
  const int64_t scale_step = job.scales->count() == 1 ? 0 : job.scales->strides[0];
  const int64_t zero_step = job.zeros == nullptr || job.zeros->count() == 1 ? 0 : job.zeros->strides[0];
  const int32_t shift = job.signed_zeros ? 128 : 0;
  for (int v = 0; v < kVectors; ++v) {
    float scale[kLanes], bias[kLanes];
    int32_t zero[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) {
      const int64_t at = n0 + v * kLanes + lane, i = at < n ? at : n - 1;
      scale[lane] = read_float(job.scales->data, job.scales->type, i * scale_step);
      bias[lane] = job.out.bias == nullptr
                       ? 0.0f
                       : read_float(job.out.bias->data, job.out.bias->type, i * job.out.bias->strides[0]);
      zero[lane] = shift;
      if (job.zeros != nullptr)
        zero[lane] += job.signed_zeros ? job.zeros->as<const int8_t>()[i * zero_step]
                                       : job.zeros->as<const uint8_t>()[i * zero_step];
    }
    c->scale[v] = load(scale);
    c->bias[v] = load(bias);
    c->zero[v] = (VecI)load(reinterpret_cast<const float*>(zero));
    c->sum[v] =
        (VecI)load(reinterpret_cast<const float*>(sums) + v * kLanes) - c->zero[v] * static_cast<int32_t>(job.layout.k);
  }
}

// erf within 2 ulp, as fast_erf (kernels/math.h) has it: two polynomials that meet at 475/512.
SITU_INLINE VecF erf(VecF x) {
  const VecF magnitude = (VecF)((VecU)x & 0x7fffffffu), four = splat(4.0f);
  const VecF small_square = x * x, t = magnitude > four ? four : magnitude, s = t * t;
  VecF r = t * -1.72853470e-5f + 3.83197126e-4f;
  r = r * s + (t * -3.88396438e-3f + 2.42546219e-2f);
  r = r * t - 1.06777877e-1f;
  r = r * t - 6.34846687e-1f;
  r = r * t - 1.28717512e-1f;
  r = r * t - t;
  const VecF rest = splat(1.0f) - exp_of_negative(r);
  const VecF large = (VecF)(((VecU)rest & 0x7fffffffu) | ((VecU)x & 0x80000000u));
  VecF q = small_square * -5.96761703e-4f + 4.99119423e-3f;
  q = q * small_square - 2.67681349e-2f;
  q = q * small_square + 1.12819925e-1f;
  q = q * small_square - 3.76125336e-1f;
  q = q * small_square + 1.28379166e-1f;
  return t > 0.927734375f ? large : q * x + x;
}
SITU_INLINE VecF gelu(VecF x) { return x * 0.5f * (erf(x * 0.70710678118654752440f) + 1.0f); }

// Row r, vector v of the unit: the sum of products becomes what is written.
SITU_INLINE void finish(const Job& job, const Columns& c, int64_t row, const IntegerRowEnd& end, int64_t unit, int v,
                        VecI dots) {
  const int64_t n = unit * kIntegerColumns + v * kLanes;
  const VecI sum = dots - c.zero[v] * end.sum - c.sum[v] * end.zero;
  VecF y = __builtin_convertvector(sum, VecF) * (c.scale[v] * end.scale) + c.bias[v];
  if (job.gelu) y = gelu(y);
  if (!job.plain || n + kLanes > job.layout.n) return write_columns(job.out, job.layout.n, row, n, y);
  const Output& out = job.out;
  if (out.residual != nullptr) y += load(out.residual->as<const float>() + out.residual_rows[row] + n);
  store(out.y->as<float>() + out.y_rows[row] + n, y);
}

// R rows from `row` on times V vectors of columns of a unit, from v0 on. kDeep: two sums each, of every other line, so
// that few rows do not wait for one product after the other.
template <int R, int V>
SITU_INLINE void tile_of(const Job& job, const Columns& c, const uint8_t* unit, int64_t u, int64_t row, int v0) {
  constexpr int kChains = R * V <= kVectorRegisters / 8 ? 2 : 1;
  constexpr bool kStream = R <= 2;  // read from memory, not from a cache
  const int64_t lines = job.layout.depth() / 4;
  const int8_t* a[R];
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r) a[r] = job.row(row + r);
  VecI acc[kChains][R][V];
#pragma GCC unroll 2
  for (int s = 0; s < kChains; ++s)
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) acc[s][r][v] = VecI{};
  const uint8_t* w = unit + v0 * kVectorBytes;
  for (int64_t line = 0; line < lines; line += 2) {  // depth is a multiple of 64
#pragma GCC unroll 2
    for (int s = 0; s < 2; ++s, w += kIntegerLine) {
      VecS weights[V];
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) {
        weights[v] = packed_line(w + v * kVectorBytes);
        if (kStream && v % (64 / kVectorBytes) == 0) __builtin_prefetch(w + v * kVectorBytes + kPrefetchBytes);
      }
#pragma GCC unroll 12
      for (int r = 0; r < R; ++r) {
        const VecS four = splat_word(a[r] + (line + s) * 4);
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) add_dots(acc[s % kChains][r][v], weights[v], four);
      }
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r) {
    const IntegerRowEnd& end = job.end(row + r);
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v)
      finish(job, c, row + r, end, u, v0 + v, kChains == 2 ? acc[0][r][v] + acc[1][r][v] : acc[0][r][v]);
  }
}

template <int R>
SITU_INLINE void rows_of(const Job& job, const Columns& c, const uint8_t* unit, int64_t u, int64_t row) {
  if constexpr (R <= 2 && kVectors <= 4) return tile_of<R, kVectors>(job, c, unit, u, row, 0);
  for (int v = 0; v < kVectors; v += kAtOnce) tile_of<R, kAtOnce>(job, c, unit, u, row, v);
}

// Rows from `row` on, as many as make whole tiles: the first one that is left.
int64_t tiles_of(const Job& job, const Columns& c, const uint8_t* unit, int64_t u, int64_t row, int64_t last,
                 int32_t* sums) {
  while (row + kTileHeight <= last) {
    const bool two = row + 2 * kTileHeight <= last;
    const int8_t* rows = job.row(row);
    if (two)
      integer_tiles<2>(rows, job.offsets.step, unit, job.layout.depth(), sums);
    else
      integer_tiles<1>(rows, job.offsets.step, unit, job.layout.depth(), sums);
    for (int64_t r = 0; r < (two ? 2 : 1) * kTileHeight; ++r) {
      const IntegerRowEnd& end = job.end(row + r);
      for (int v = 0; v < kVectors; ++v)
        finish(job, c, row + r, end, u, v,
               (VecI)load(reinterpret_cast<const float*>(sums + r * kIntegerColumns + v * kLanes)));
    }
    row += (two ? 2 : 1) * kTileHeight;
  }
  return row;
}

void unit_of(const Job& job, int64_t u, int64_t row, int64_t last, int32_t* sums) {
  Columns c;
  look_up(job, u, &c);
  const uint8_t* unit = job.weights + u * job.layout.unit_bytes();
  if (kIntegerTiles && job.offsets.even) row = tiles_of(job, c, unit, u, row, last, sums);
  for (; row + kRows <= last; row += kRows) rows_of<kRows>(job, c, unit, u, row);
  if constexpr (kRows > 8) {
    for (; row + 8 <= last; row += 8) rows_of<8>(job, c, unit, u, row);
  }
  if constexpr (kRows >= 6) {  // a few beams read their weights once
    if (row + 6 <= last) {
      rows_of<6>(job, c, unit, u, row);
      row += 6;
    }
    if (row + 5 == last) return rows_of<5>(job, c, unit, u, row);
  }
  if constexpr (kRows > 4) {
    for (; row + 4 <= last; row += 4) rows_of<4>(job, c, unit, u, row);
  }
  if (row + 3 == last) return rows_of<3>(job, c, unit, u, row);
  for (; row + 2 <= last; row += 2) rows_of<2>(job, c, unit, u, row);
  for (; row < last; ++row) rows_of<1>(job, c, unit, u, row);
}

}  // namespace

void integer_matmul(const KernelCall& call, int thread, int threads) {
  const auto& params = *static_cast<const IntegerMatMulParams*>(call.params);
  const View& rows = call.in[0];
  const View* zeros = operand(call, 4);
  const Job job{params.layout,
                rows.as<const int8_t>(),
                RowOffsets(rows, rows.rank - 1),
                call.in[1].as<const uint8_t>(),
                &call.in[2],
                zeros,
                params.signed_weights,
                params.gelu,
                make_output(call, 0, operand(call, 5), operand(call, 3), UnaryKind::kSilu),
                side_by_side(&call.out[0]) && side_by_side(operand(call, 3))};
  const ProductPart part =
      split_product(count_dims(rows, 0, rows.rank - 1), params.layout.units(), kOwnRows, thread, threads);
  if (part.row >= part.last_row) return;
  const bool tiles = kIntegerTiles && part.last_row - part.row >= kTileHeight;
  if (tiles) begin_integer_tiles();
  int32_t* sums = reinterpret_cast<int32_t*>(call.scratch);
  for (int64_t u = part.unit; u < part.last_unit; ++u) unit_of(job, u, part.row, part.last_row, sums);
  if (tiles) end_integer_tiles();
}

}  // namespace SITU_ISA
}  // namespace situ
