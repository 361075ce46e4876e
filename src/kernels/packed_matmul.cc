// situ.PackedMatMul: y [.., N] = a [.., K] * w^T + bias on packed weights (kernels/packed.h; pack_nbits.cc makes them).
//
// Threads split units of 32 columns. Each thread prepares the rows of a in its scratch, as many as fit, and then reads
// its units front to back:
//   accuracy_level 4    rows rounded to int8 per block; integer dots, up to kInt8Rows rows per reading of a unit
//   the same with AMX   slices of a unit become a panel of bytes once, for tiles over all rows (kernels/packed_tiles.h)
//   else, few rows      digits become floats in registers
//   else, many rows     slices of a unit become a float panel once, for register tiles over all rows
#include "kernels/packed.h"
#include "kernels/packed_tiles.h"
#include "kernels/tile.h"

namespace situ {
namespace SITU_ISA {
namespace {

// Up to here reading digits again for every four rows beats unpacking them (K 576, N 1536, one AVX-512 core).
constexpr int64_t kFewRows = 8;
constexpr int kInt8Rows = kVectorRegisters == 32 ? 6 : kDigitsInPlace ? 4 : 2;
constexpr int kVectors = 2;  // vectors of columns at a time

struct Output {
  const View* y;
  const View* bias;      // null: none
  const View* residual;  // null: none; y may be it
  int leading;           // dims in front of N
  UnaryKind activation;
};

const View* operand(const KernelCall& call, int i) { return i < call.in_count && call.in[i].present() ? &call.in[i] : nullptr; }

SITU_INLINE VecF activate(UnaryKind kind, VecF x) {
  if (kind == UnaryKind::kSilu) return x / (exp(-x) + 1.0f);
  return x * 0.5f * (tanh((x + x * x * x * 0.044715f) * 0.7978845608028654f) + 1.0f);
}

// `count` elements of a row as one vector.
SITU_INLINE VecF read_columns(const View& v, int64_t at, int64_t step, int64_t count) {
  if (v.type == DType::kF32 && step == 1) return load_n(v.as<const float>() + at, count);
  float buffer[kLanes] = {};
  read_row(v.data, v.type, at, step, count, buffer);
  return load(buffer);
}

// sums + bias of columns [n, n + kLanes), times f(gate).
SITU_INLINE VecF finish_sums(const Output& out, int64_t columns, int64_t n, VecF sums, const VecF* gate) {
  const int64_t count = columns - n < kLanes ? columns - n : kLanes;
  if (out.bias != nullptr && count > 0) sums += read_columns(*out.bias, n * out.bias->strides[0], out.bias->strides[0], count);
  return gate != nullptr ? activate(out.activation, *gate) * sums : sums;
}

// y[row, n .. n + kLanes), as far as there are columns, from one vector of results, plus the residual.
void write_columns(const Output& out, int64_t columns, int64_t row, int64_t n, VecF sums) {
  const int64_t count = columns - n < kLanes ? columns - n : kLanes;
  if (count <= 0) return;
  const int64_t step = out.y->strides[out.leading], at = row_offset(*out.y, out.leading, row) + n * step;
  if (out.residual != nullptr) {
    const int64_t r_step = out.residual->strides[out.leading];
    sums += read_columns(*out.residual, row_offset(*out.residual, out.leading, row) + n * r_step, r_step, count);
  }
  if (out.y->type == DType::kF32 && step == 1) return store_n(out.y->as<float>() + at, sums, count);
  float buffer[kLanes];
  store(buffer, sums);
  write_row(out.y->data, out.y->type, at, step, count, buffer);
}

// -- rows of a in scratch
struct RowBuffer {
  PackedRows rows;
  float* x = nullptr;  // float rows, or one row while it is rounded
  int8_t* q = nullptr;
  float* scales = nullptr;
  int32_t* negative_sums = nullptr;
  float* sums = nullptr;
};

int64_t round_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

// Rows that fit `bytes` of scratch. At least one: pack_weights admits no longer rows.
int64_t lay_out(const PackedLayout& w, bool int8, std::byte* scratch, int64_t bytes, RowBuffer* buffer) {
  int64_t depth = w.blocks * w.block;
  // The rows of a tile are read together: cache lines of their own, an odd number of them, in different sets of the cache.
  if (kTiles && int8) depth = (round_up(depth, 64) / 64 | 1) * 64;
  const int64_t row_x = round_up(depth * 4, 64), row_q = depth + w.blocks * 8, row_f = row_x + w.blocks * 4;
  const int64_t fixed = int8 ? row_x : 0, per_row = int8 ? row_q : row_f;
  int64_t fit = (bytes - fixed - 192) / per_row;
  fit = fit < 1 ? 1 : fit;
  buffer->x = reinterpret_cast<float*>(scratch);
  std::byte* rest = scratch + (int8 ? row_x : row_x * fit);
  buffer->rows.depth = depth;
  buffer->rows.blocks = w.blocks;
  buffer->scales = buffer->sums = reinterpret_cast<float*>(rest);
  rest += fit * w.blocks * 4;
  buffer->negative_sums = reinterpret_cast<int32_t*>(rest);
  if (int8) rest += fit * w.blocks * 4;
  buffer->q = reinterpret_cast<int8_t*>(kTiles ? scratch + round_up(rest - scratch, 64) : rest);
  buffer->rows.x = buffer->x;
  buffer->rows.q = buffer->q;
  buffer->rows.scales = buffer->scales;
  buffer->rows.negative_sums = buffer->negative_sums;
  buffer->rows.sums = buffer->sums;
  return fit;
}

// The activations of a call.
struct Input {
  const View& a;
  const View* norm;  // null: rows are taken as they are
  float epsilon;
};

// x = x / sqrt(mean(x^2) + epsilon) * norm, where x may be `from`.
void normalise(const Input& in, int64_t k, const float* from, float* x) {
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
void read_activations(const PackedLayout& w, const Input& in, int64_t row, float* x) {
  const View& a = in.a;
  read_row(a.data, a.type, row_offset(a, a.rank - 1, row), a.strides[a.rank - 1], w.k, x);
  if (in.norm != nullptr) normalise(in, w.k, x, x);
  for (int64_t k = w.k; k < w.blocks * w.block; ++k) x[k] = 0;
}

SITU_INLINE int32_t sum_bytes(const int8_t* q, int64_t count) {
  VecI sum{};
  const VecS ones = VecS{} + 1, unsigned_ones = VecS{} + 0x0101;
  int64_t i = 0;
  for (; i + kVectorBytes <= count; i += kVectorBytes) sum += word_products(byte_products(unsigned_ones, *reinterpret_cast<const UnalignedS*>(q + i)), ones);
  int32_t total = 0;
  for (int l = 0; l < kLanes; ++l) total += sum[l];
  for (; i < count; ++i) total += q[i];
  return total;
}

void round_row(const PackedLayout& w, const Input& in, int64_t row, int64_t slot, RowBuffer* buffer) {
  const View& a = in.a;
  const bool in_place = a.type == DType::kF32 && a.strides[a.rank - 1] == 1;
  const float* stored = a.as<const float>() + (in_place ? row_offset(a, a.rank - 1, row) : 0);
  const float* x = buffer->x;
  if (in_place && in.norm == nullptr) x = stored;
  else if (in_place) normalise(in, w.k, stored, buffer->x);
  else read_activations(w, in, row, buffer->x);
  int8_t* q = buffer->q + slot * buffer->rows.depth;
  for (int64_t b = 0; b < w.blocks; ++b) {
    const int64_t k = b * w.block, rest = w.k - k;
    buffer->scales[slot * w.blocks + b] = quantize_block(x + k, rest < w.block ? rest : w.block, w.block, q + k);
    const int32_t sum = sum_bytes(q + k, w.block);
    buffer->negative_sums[slot * w.blocks + b] = -sum * (w.zeros ? 1 : 1 << (w.bits - 1));
  }
}

void float_row(const PackedLayout& w, const Input& in, int64_t row, int64_t slot, RowBuffer* buffer) {
  float* x = buffer->x + slot * buffer->rows.depth;
  read_activations(w, in, row, x);
  for (int64_t b = 0; b < w.blocks; ++b) {
    VecF sum{};
    for (int64_t k = 0; k < w.block; k += kLanes) sum += load(x + b * w.block + k);
    buffer->sums[slot * w.blocks + b] = sum_lanes(sum);
  }
}

// -- one unit of columns with rows in scratch
struct Unit {
  const PackedLayout& w;
  const uint8_t* data;
  const uint8_t* gate;  // null: none
  int panels;
  int64_t column;  // of y
  int vectors() const { return panels * kPanelVectors; }
};

template <int Bits, int R, int V, bool Zeros, bool Int8>
void unit_rows(const Unit& u, const PackedRows& rows, const Output& out, int64_t row, int64_t slot, int v0) {
  VecF total[R][V], gate[R][V];
  auto dots = [&](const uint8_t* data, VecF (*sums)[V]) {
    if constexpr (Int8) packed_int8<Bits, R, V, Zeros>(u.w, rows, slot, data, u.panels, v0, sums);
    else packed_float<Bits, R, V, Zeros>(u.w, rows, slot, data, u.panels, v0, sums);
  };
  if (u.gate != nullptr) dots(u.gate, gate);
  dots(u.data, total);
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) {
      const int64_t n = u.column + (v0 + v) * kLanes;
      write_columns(out, u.w.n, row + slot + r, n, finish_sums(out, u.w.n, n, total[r][v], u.gate != nullptr ? &gate[r][v] : nullptr));
    }
  }
}

template <int Bits, int R, bool Zeros, bool Int8>
void unit_vectors(const Unit& u, const PackedRows& rows, const Output& out, int64_t row, int64_t slot) {
  int v = 0;
  for (; v + kVectors <= u.vectors(); v += kVectors) unit_rows<Bits, R, kVectors, Zeros, Int8>(u, rows, out, row, slot, v);
  for (; v < u.vectors(); ++v) unit_rows<Bits, R, 1, Zeros, Int8>(u, rows, out, row, slot, v);
}

template <int Bits, bool Zeros, bool Int8>
void unit_dots(const Unit& u, const PackedRows& rows, const Output& out, int64_t row, int64_t slot, int64_t count) {
  if constexpr (Int8) {
    for (; slot + kInt8Rows <= count; slot += kInt8Rows) unit_vectors<Bits, kInt8Rows, Zeros, Int8>(u, rows, out, row, slot);
  }
  for (; slot + 4 <= count; slot += 4) unit_vectors<Bits, 4, Zeros, Int8>(u, rows, out, row, slot);
  for (; slot + 2 <= count; slot += 2) unit_vectors<Bits, 2, Zeros, Int8>(u, rows, out, row, slot);
  for (; slot < count; ++slot) unit_vectors<Bits, 1, Zeros, Int8>(u, rows, out, row, slot);
}

// -- many float rows: panels. Scratch: sums (and those of the gate) [rows, 2 vectors], panel [kPanelDepth, 2 vectors].
constexpr int64_t kTileBlockRows = 256;
constexpr int64_t kPanelDepth = 512;
constexpr int64_t kSliceDepth = kPanelDepth + 256;  // a slice ends with its block

// sums [height, 2 vectors] = rows [row, row + height) of a times two vectors of columns.
template <int Bits, bool Zeros>
void tile_sums(const Unit& u, const uint8_t* data, int v0, const View& a, int64_t row, int64_t height, float* sums, float* panel) {
  float* converted = panel + kSliceDepth * kTileColumns;
  const int64_t a_k = a.strides[a.rank - 1];
  const bool in_place = a.type == DType::kF32 && a_k == 1;
  const int64_t step = u.w.block > kPanelDepth ? 1 : kPanelDepth / u.w.block;
  for (int64_t b = 0; b < u.w.blocks; b += step) {
    const int64_t b1 = b + step < u.w.blocks ? b + step : u.w.blocks, k0 = b * u.w.block;
    const int64_t depth = (b1 * u.w.block < u.w.k ? b1 * u.w.block : u.w.k) - k0;
    unpack_panel<Bits, Zeros>(u.w, data, u.panels, v0, kTileVectors, b, b1, panel);
    for (int64_t m = 0; m < height; m += kTileRows) {
      const int64_t tall = height - m < kTileRows ? height - m : kTileRows;
      const int64_t first = row_offset(a, a.rank - 1, row + m), last = row_offset(a, a.rank - 1, row + m + tall - 1);
      const int64_t a_row = tall > 1 ? (last - first) / (tall - 1) : 0;
      const float* x = a.as<const float>() + first + k0;
      int64_t x_row = a_row;
      if (!in_place || row_offset(a, a.rank - 1, row + m + tall / 2) != first + tall / 2 * a_row) {
        x = converted;
        x_row = kSliceDepth;
        for (int64_t r = 0; r < tall; ++r) read_row(a.data, a.type, row_offset(a, a.rank - 1, row + m + r) + k0 * a_k, a_k, depth, converted + r * kSliceDepth);
      }
      tile_rows(tall, depth, x, x_row, panel, kTileColumns, sums + m * kTileColumns, kTileColumns, b > 0);
    }
  }
}

template <int Bits, bool Zeros>
void unit_tiles(const Unit& u, const View& a, const Output& out, int64_t rows, std::byte* scratch) {
  float* sums = reinterpret_cast<float*>(scratch);
  float* gate = sums + kTileBlockRows * kTileColumns;
  float* panel = gate + kTileBlockRows * kTileColumns;
  for (int v0 = 0; v0 < u.vectors(); v0 += kTileVectors) {
    for (int64_t row = 0; row < rows; row += kTileBlockRows) {
      const int64_t height = rows - row < kTileBlockRows ? rows - row : kTileBlockRows;
      tile_sums<Bits, Zeros>(u, u.data, v0, a, row, height, sums, panel);
      if (u.gate != nullptr) tile_sums<Bits, Zeros>(u, u.gate, v0, a, row, height, gate, panel);
      for (int64_t m = 0; m < height; ++m) {
        for (int v = 0; v < kTileVectors; ++v) {
          const int64_t n = u.column + (v0 + v) * kLanes, at = m * kTileColumns + v * kLanes;
          const VecF g = load(gate + at);
          write_columns(out, u.w.n, row + m, n, finish_sums(out, u.w.n, n, load(sums + at), u.gate != nullptr ? &g : nullptr));
        }
      }
    }
  }
}
static_assert((2 * kTileBlockRows * kTileColumns + kSliceDepth * kTileColumns + kTileRows * kSliceDepth) * 4 <= kScratchBytes);

// -- many int8 rows: AMX tiles
struct TileScratch {
  AmxScratch amx;
  float sums[kTileBlockRows * kUnitColumns], gate[kTileBlockRows * kUnitColumns];
};

// The first rows of [0, count) in scratch, all but a few; how many.
template <int Bits, bool Zeros>
int64_t unit_amx(const Unit& u, const PackedRows& rows, const Output& out, int64_t row, int64_t count, TileScratch* scratch) {
  const int64_t tail = count % kAmxGroupRows, end = tail < kAmxMinRows ? count - tail : count;
  for (int64_t slot = 0; slot < end; slot += kTileBlockRows) {
    const int64_t height = end - slot < kTileBlockRows ? end - slot : kTileBlockRows;
    packed_tiles<Bits, Zeros>(u.w, rows, slot, height, u.data, u.panels, &scratch->amx, scratch->sums);
    if (u.gate != nullptr) packed_tiles<Bits, Zeros>(u.w, rows, slot, height, u.gate, u.panels, &scratch->amx, scratch->gate);
    for (int64_t m = 0; m < height; ++m) {
      for (int v = 0; v < u.vectors(); ++v) {
        const int64_t n = u.column + v * kLanes, at = m * kUnitColumns + v * kLanes;
        VecF gate{};
        if (u.gate != nullptr) gate = load(scratch->gate + at);
        write_columns(out, u.w.n, row + slot + m, n, finish_sums(out, u.w.n, n, load(scratch->sums + at), u.gate != nullptr ? &gate : nullptr));
      }
    }
  }
  return end;
}

struct Job {
  const PackedLayout& w;
  Input in;
  Output out;
  const uint8_t* data;
  const uint8_t* gate;
  bool int8;
};

template <int Bits, bool Zeros>
void run_units(const Job& job, int64_t u0, int64_t u1, std::byte* scratch) {
  const PackedLayout& w = job.w;
  const View& a = job.in.a;
  const int64_t rows = count_dims(a, 0, a.rank - 1);
  auto unit = [&](int64_t u) {
    return Unit{w, job.data + w.unit_offset(u), job.gate != nullptr ? job.gate + w.unit_offset(u) : nullptr, w.unit_panels(u), u * kUnitPanels * kPanelColumns};
  };
  // Tiles read rows of a slice by slice: norms, which need whole rows, keep to the buffer.
  if (!job.int8 && rows > kFewRows && job.in.norm == nullptr) {
    for (int64_t u = u0; u < u1; ++u) unit_tiles<Bits, Zeros>(unit(u), a, job.out, rows, scratch);
    return;
  }
  RowBuffer buffer;
  int64_t fit = 0;
  if (kTiles && job.int8 && rows >= kAmxMinRows && w.block <= kAmxSliceDepth) {  // whole tiles of rows
    fit = lay_out(w, true, scratch + sizeof(TileScratch), kScratchBytes - static_cast<int64_t>(sizeof(TileScratch)), &buffer) / kAmxRows * kAmxRows;
  }
  const bool tiles = fit > 0;
  if (tiles) amx_begin(w);
  else fit = lay_out(w, job.int8, scratch, kScratchBytes, &buffer);
  for (int64_t row = 0; row < rows; row += fit) {
    const int64_t count = rows - row < fit ? rows - row : fit;
    for (int64_t slot = 0; slot < count; ++slot) {
      if (job.int8) round_row(w, job.in, row + slot, slot, &buffer);
      else float_row(w, job.in, row + slot, slot, &buffer);
    }
    for (int64_t u = u0; u < u1; ++u) {
      int64_t done = 0;
      if constexpr (kTiles) {
        if (tiles) done = unit_amx<Bits, Zeros>(unit(u), buffer.rows, job.out, row, count, reinterpret_cast<TileScratch*>(scratch));
      }
      if (job.int8) unit_dots<Bits, Zeros, true>(unit(u), buffer.rows, job.out, row, done, count);
      else unit_dots<Bits, Zeros, false>(unit(u), buffer.rows, job.out, row, 0, count);
    }
  }
  if (tiles) amx_end();
}

}  // namespace

void packed_matmul(const KernelCall& call, int thread, int threads) {
  const auto& params = *static_cast<const PackedMatMulParams*>(call.params);
  const PackedLayout w = packed_layout(params);
  const View& a = call.in[0];
  const View* gate = operand(call, 5);
  const Job job{w, {a, operand(call, 4), params.epsilon}, {&call.out[0], operand(call, 2), operand(call, 3), a.rank - 1, params.activation},
                call.in[1].as<const uint8_t>(), gate != nullptr ? gate->as<const uint8_t>() : nullptr, params.accuracy_level == 4};
  int64_t u0, u1;
  split_range(w.units(), thread, threads, &u0, &u1);
  if (u0 >= u1) return;
  if (w.bits == 4) w.zeros ? run_units<4, true>(job, u0, u1, call.scratch) : run_units<4, false>(job, u0, u1, call.scratch);
  else w.zeros ? run_units<8, true>(job, u0, u1, call.scratch) : run_units<8, false>(job, u0, u1, call.scratch);
}

}  // namespace SITU_ISA
}  // namespace situ
