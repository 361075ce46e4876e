// situ.DenseMatMul: y [.., N] = x [.., K] * w + bias on float weights that pack_dense laid out: panels of 32 columns,
// [K][32] each, zero beyond N, so that a thread reads one stream front to back and register tiles need no packing of
// their own; and situ.DenseExperts: a matrix for each row.
//
//   few rows     sums of a panel in registers, weights read once
//   many rows    register tiles, a slice of a panel at a time for a block of rows; half-precision slices become floats
//   first
//   with AMX     rows of encoders, however few there are: kernels/dense_tiles.h
#include "kernels/dense_tiles.h"
#include "kernels/experts.h"
#include "kernels/tile.h"

namespace situ {
namespace SITU_ISA {
namespace {

constexpr int64_t kColumns = kDensePanelColumns;
static_assert(kColumns % kTileColumns == 0);
constexpr int kVectors = static_cast<int>(kColumns) / kLanes;
constexpr int64_t kFewRows = 4;
constexpr int64_t kBlockRows = 120;     // a multiple of kTileRows
constexpr int64_t kSliceDepth = 256;    // 32 KiB of floats
constexpr int64_t kRowsPerThread = 24;  // fewer are not worth reading the weights again
static_assert(kRowsPerThread <= kRowsOfOwn);
constexpr int64_t kPrefetchBytes = 2048;

struct Output {
  const View& y;
  const View* bias;  // null: none
  int64_t n;
  int leading;  // dims in front of N
  RowOffsets rows;
};

// y[row, n0 .. n0 + kColumns) = sums + bias, as far as there are columns.
void write_panel(const Output& out, int64_t row, int64_t n0, const float* sums) {
  const int64_t count = out.n - n0 < kColumns ? out.n - n0 : kColumns;
  float biased[kColumns];
  if (out.bias != nullptr) {
    read_row(out.bias->data, out.bias->type, n0 * out.bias->strides[0], out.bias->strides[0], count, biased);
    for (int64_t i = 0; i < count; ++i) biased[i] += sums[i];
    sums = biased;
  }
  const int64_t step = out.y.strides[out.leading];
  write_row(out.y.data, out.y.type, out.rows[row] + n0 * step, step, count, sums);
}

template <int R, typename T>
void few_rows(const float* x, int64_t x_row, int64_t k, const T* w, const Output& out, int64_t row, int64_t n0) {
  VecF acc[R][kVectors] = {};
  for (int64_t i = 0; i < k; ++i) {
    const T* line = w + i * kColumns;
    __builtin_prefetch(reinterpret_cast<const char*>(line) + kPrefetchBytes);
    if (sizeof(T) * kColumns > 64) __builtin_prefetch(reinterpret_cast<const char*>(line) + kPrefetchBytes + 64);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const VecF weight = load(line + v * kLanes);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) acc[r][v] += weight * x[r * x_row + i];
    }
  }
  for (int r = 0; r < R; ++r) {
    float sums[kColumns];
    for (int v = 0; v < kVectors; ++v) store(sums + v * kLanes, acc[r][v]);
    write_panel(out, row + r, n0, sums);
  }
}

// The weights of a slice as floats: as they are, or in `converted`.
const float* slice_of(const float* w, int64_t, float*) { return w; }
template <typename T>
const float* slice_of(const T* w, int64_t depth, float* converted) {
  for (int64_t i = 0; i < depth * kColumns; i += kLanes) store(converted + i, load(w + i));
  return converted;
}

// Rows x [height, k] times one panel.
template <typename T>
void many_rows(const float* x, int64_t x_row, int64_t height, int64_t k, const T* w, const Output& out, int64_t row,
               int64_t n0, float* sums, float* converted) {
  for (int64_t k0 = 0; k0 < k; k0 += kSliceDepth) {
    const int64_t depth = k - k0 < kSliceDepth ? k - k0 : kSliceDepth;
    const float* slice = slice_of(w + k0 * kColumns, depth, converted);
    for (int64_t c = 0; c < kColumns; c += kTileColumns)
      tile_rows(height, depth, x + k0, x_row, slice + c, kColumns, sums + c, kColumns, k0 > 0);
  }
  for (int64_t m = 0; m < height; ++m) write_panel(out, row + m, n0, sums + m * kColumns);
}

template <typename T>
void run(const View& x, const RowOffsets& offsets, const T* w, int64_t k, const Output& out, const ProductPart& part,
         std::byte* scratch) {
  float* sums = reinterpret_cast<float*>(scratch);
  float* converted = sums + kBlockRows * kColumns;
  float* copied = converted + kSliceDepth * kColumns;
  const int64_t room = (kScratchBytes / 4 - (copied - sums)) / k;
  const bool in_place = x.type == DType::kF32 && x.strides[x.rank - 1] == 1 && offsets.even;
  const int64_t most =
      in_place || room >= kBlockRows ? kBlockRows : room;  // prepare admits no rows that scratch does not hold
  for (int64_t row = part.row; row < part.last_row; row += most) {
    const int64_t height = part.last_row - row < most ? part.last_row - row : most;
    const float* rows = x.as<const float>() + (in_place ? offsets[row] : 0);
    if (!in_place) {
      for (int64_t m = 0; m < height; ++m)
        read_row(x.data, x.type, offsets[row + m], x.strides[x.rank - 1], k, copied + m * k);
      rows = copied;
    }
    const int64_t x_row = in_place ? offsets.step : k;
    for (int64_t p = part.unit; p < part.last_unit; ++p) {
      const T* panel = w + p * k * kColumns;
      if (height > kFewRows)
        many_rows(rows, x_row, height, k, panel, out, row, p * kColumns, sums, converted);
      else if (height == 4)
        few_rows<4>(rows, x_row, k, panel, out, row, p * kColumns);
      else if (height == 3)
        few_rows<3>(rows, x_row, k, panel, out, row, p * kColumns);
      else if (height == 2)
        few_rows<2>(rows, x_row, k, panel, out, row, p * kColumns);
      else
        few_rows<1>(rows, x_row, k, panel, out, row, p * kColumns);
    }
  }
}

#if defined(SITU_TILES)
// At a time, and bytes of them: parts of more rows leave the second-level cache before the next panel meets them (256
// rows of K 1,536 take 1.8 times as long as 112 and 112 and 32).
constexpr int64_t kTiledRows = 256, kTiledBytes = 1 << 20;

bool tiles_fit(int64_t k, int64_t scratch_bytes) {
  return static_cast<int64_t>(sizeof(PanelParts)) + (k + kLanes) * 4 + 64 +
             kTileHeight * (RowParts::bytes_per_row(k) + kColumns * 4) <=
         scratch_bytes;
}

// The same by tiles. Scratch: parts of a slice, a row that is read, sums, and rows in parts.
template <typename T>
void run_tiles(const View& x, const RowOffsets& offsets, const T* w, int64_t k, const Output& out,
               const ProductPart& part, std::byte* scratch, int64_t scratch_bytes) {
  auto* panel_parts = reinterpret_cast<PanelParts*>(scratch);
  float* row_x = reinterpret_cast<float*>(panel_parts + 1);
  std::byte* rest = reinterpret_cast<std::byte*>(row_x + (k + kLanes) / kLanes * kLanes);
  rest = scratch + (rest - scratch + 63) / 64 * 64;
  const int64_t per_row = RowParts::bytes_per_row(k) + kColumns * 4, rows = part.last_row - part.row;
  int64_t most = (scratch_bytes - (rest - scratch)) / per_row / kTileHeight * kTileHeight;
  if (most > kTiledRows) most = kTiledRows;
  if (most > kTiledBytes / per_row) most = kTiledBytes / per_row / kTileHeight * kTileHeight;
  if (most < kTileHeight) most = kTileHeight;
  if (most > rows) most = (rows + kTileHeight - 1) / kTileHeight * kTileHeight;
  float* sums = reinterpret_cast<float*>(rest);
  RowParts parts{reinterpret_cast<uint16_t*>(sums + most * kColumns), RowParts::depth_of(k), most};
  const bool in_place = x.type == DType::kF32 && x.strides[x.rank - 1] == 1;
  float_tiles_begin();
  for (int64_t row = part.row; row < part.last_row; row += most) {
    const int64_t height = part.last_row - row < most ? part.last_row - row : most;
    for (int64_t m = 0; m < height; ++m) {
      const float* from = x.as<const float>() + offsets[row + m];
      if (!in_place) {
        read_row(x.data, x.type, offsets[row + m], x.strides[x.rank - 1], k, row_x);
        from = row_x;
      }
      split_row(from, k, m, &parts);
    }
    for (int64_t p = part.unit; p < part.last_unit; ++p) {
      float_tiles(parts, height, k, w + p * k * kColumns, panel_parts, sums);
      for (int64_t m = 0; m < height; ++m) write_panel(out, row + m, p * kColumns, sums + m * kColumns);
    }
  }
  float_tiles_end();
}
#endif

struct Scratch {
  std::byte* memory;
  int64_t bytes;
};
template <typename T>
void run_rows(const View& x, const RowOffsets& rows, const T* w, int64_t k, const Output& out, const ProductPart& part,
              [[maybe_unused]] bool tiles, const Scratch& scratch) {
#if defined(SITU_TILES)
  if (tiles && tiles_fit(k, scratch.bytes)) return run_tiles(x, rows, w, k, out, part, scratch.memory, scratch.bytes);
#endif
  run(x, rows, w, k, out, part, scratch.memory);
}
// The weights begin with element `first` of w.
void run(const View& x, const RowOffsets& rows, const View& w, int64_t first, int64_t k, const Output& out,
         const ProductPart& part, bool tiles, const Scratch& scratch) {
  if (w.type == DType::kF32)
    run_rows(x, rows, w.as<const float>() + first, k, out, part, tiles, scratch);
  else if (w.type == DType::kF16)
    run_rows(x, rows, w.as<const Half>() + first, k, out, part, tiles, scratch);
  else
    run_rows(x, rows, w.as<const BFloat>() + first, k, out, part, tiles, scratch);
}

}  // namespace

// Operands: x, packed w, bias?.
void dense_matmul(const KernelCall& call, int thread, int threads) {
  const auto& params = *static_cast<const DenseMatMulParams*>(call.params);
  const View &x = call.in[0], &w = call.in[1];
  const Output out{call.out[0], call.in_count > 2 && call.in[2].present() ? &call.in[2] : nullptr, params.n, x.rank - 1,
                   out_rows(call, 0, x.rank - 1)};
  const ProductPart part = split_product(count_dims(x, 0, x.rank - 1), (params.n + kColumns - 1) / kColumns,
                                         kRowsPerThread, thread, threads);
  if (part.row >= part.last_row || part.unit >= part.last_unit) return;
  run(x, RowOffsets(x, x.rank - 1), w, 0, params.k, out, part, call.encodes, {call.scratch, kThreadScratchBytes});
}

// Operands: x, index, bias?, packed w.
void dense_experts(const KernelCall& call, int thread, int threads) {
  const auto& params = *static_cast<const DenseExpertsParams*>(call.params);
  const int64_t k = params.product.k, n = params.product.n, panels = n / kColumns;
  const View &x = call.in[0], &y = call.out[0];
  each_expert(call, params.experts, panels, thread, threads, [&](const ExpertRows& rows, int64_t p0, int64_t p1) {
    const View bias = expert_bias(call, rows.expert);
    const Output out{y, bias.present() ? &bias : nullptr, n, y.rank - 1, ExpertRows::at(rows.y)};
    run(x, ExpertRows::at(rows.x), call.in[3], rows.expert * n * k, k, out, {0, rows.count, p0, p1}, call.encodes,
        {call.scratch + kRoutingBytes, kThreadScratchBytes - kRoutingBytes});
  });
}

#if !defined(SITU_BASE_ISA)
namespace {

constexpr int64_t kPackedRows = 16;  // of w [K, N] at a time: as many streams as a CPU prefetches, 4 KiB of each panel

SITU_INLINE void put(uint16_t* to, uint16_t x) { *to = x; }
template <typename T>
SITU_INLINE void put(T* to, float x) {
  from_float(to, x);
}

// Rows [first_k, last_k) of w [K, N], any strides, into panels [p0, p1).
template <typename From, typename To>
void pack_panels(const View& w, const PackDenseParams& p, int64_t p0, int64_t p1, To* packed) {
  typedef From OddFrom __attribute__((aligned(1)));  // weights may stand anywhere in their file
  const OddFrom* from = w.as<const OddFrom>();
  const int64_t rows = w.strides[1] == 1 ? kPackedRows : p.last_k - p.first_k;  // transposed, every column is a stream
  for (int64_t k0 = p.first_k; k0 < p.last_k; k0 += rows)
    for (int64_t panel = p0; panel < p1; ++panel) {
      const int64_t n0 = panel * kColumns, count = p.product.n - n0 < kColumns ? p.product.n - n0 : kColumns;
      for (int64_t k = k0; k < k0 + rows && k < p.last_k; ++k) {
        To* to = packed + (panel * p.product.k + k) * kColumns;
        const OddFrom* row = from + k * w.strides[0] + n0 * w.strides[1];
        if (w.strides[1] == 1 && count == kColumns) {
          for (int64_t j = 0; j < kColumns; ++j) put(to + j, row[j]);
          continue;
        }
        for (int64_t j = 0; j < count; ++j) put(to + j, row[j * w.strides[1]]);
        for (int64_t j = count; j < kColumns; ++j) to[j] = To{};
      }
    }
}

}  // namespace

// Operands: w [K, N]; y: the packed elements, of w's type or, where w is f32, of 16 bits. A call lays out rows
// [first_k, last_k) of panels [first_panel, last_panel).
void pack_dense(const KernelCall& call, int thread, int threads) {
  const auto& params = *static_cast<const PackDenseParams*>(call.params);
  int64_t p0, p1;
  split_range(params.last_panel - params.first_panel, thread, threads, &p0, &p1);
  p0 += params.first_panel;
  p1 += params.first_panel;
  const View &w = call.in[0], &y = call.out[0];
  if (w.type != DType::kF32)
    pack_panels<uint16_t>(w, params, p0, p1, y.as<uint16_t>());
  else if (y.type == DType::kF32)
    pack_panels<float>(w, params, p0, p1, y.as<float>());
  else if (y.type == DType::kF16)
    pack_panels<float>(w, params, p0, p1, y.as<Half>());
  else
    pack_panels<float>(w, params, p0, p1, y.as<BFloat>());
}
#endif

}  // namespace SITU_ISA
}  // namespace situ
