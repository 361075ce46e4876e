// situ.PackedMatMul: y [.., N] = a [.., K] * w^T + bias on packed weights (kernels/packed.h; pack_nbits.cc makes them), and
// situ.PackedProjections: several of these on the same rows.
//
// Threads split units of 32 columns, and the rows where there are many. Each thread prepares its rows of a in its scratch,
// as many as fit, and then reads its units front to back:
//   accuracy_level 4, few rows    rows rounded to int8 per block; digits become bytes in registers
//   accuracy_level 4, many rows   the same rows; slices of a unit become a panel of bytes once, for all rows: vectors read
//                                 it (kernels/packed_panel.h), or AMX (kernels/packed_tiles.h)
//   else, few rows                digits become floats in registers
//   else, many rows               slices of a unit become a float panel once, for register tiles over all rows
#include "kernels/packed_panel.h"
#include "kernels/packed_tiles.h"
#include "kernels/tile.h"

namespace situ {
namespace SITU_ISA {
namespace {

// Up to here reading digits again for every four rows beats unpacking them (K 576, N 1536, one AVX-512 core).
constexpr int64_t kFewRows = 8;
constexpr int64_t kFewInt8Rows = 6;
constexpr int kInt8Rows = kVectorRegisters == 32 ? 6 : 4;
constexpr int kPanelRows = kVectorRegisters == 32 ? 8 : 4;
constexpr int64_t kPanelBlockRows = 128;
constexpr int kVectors = 2;  // vectors of columns at a time
// A thread that has rows of its own prepares them alone, but reads more of the weights: with fewer than this it shares their
// columns with others instead.
constexpr int64_t kRowsPerThread = 16;
static_assert(kRowsPerThread <= kRowsOfOwn);

struct Output {
  const View* y = nullptr;
  const View* bias = nullptr;      // null: none
  const View* residual = nullptr;  // null: none; y may be it
  int leading = 0;                 // dims in front of N
  UnaryKind activation = UnaryKind::kSilu;
  RowOffsets y_rows, residual_rows;
};

const View* operand(const KernelCall& call, int i) { return i < call.in_count && call.in[i].present() ? &call.in[i] : nullptr; }

Output make_output(const KernelCall& call, int i, const View* bias, const View* residual, UnaryKind activation) {
  const View& y = call.out[i];
  const int leading = call.in[0].rank - 1;
  return {&y, bias, residual, leading, activation, out_rows(call, i, leading), RowOffsets(residual != nullptr ? *residual : y, leading)};
}

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
  const int64_t step = out.y->strides[out.leading], at = out.y_rows[row] + n * step;
  if (out.residual != nullptr) {
    const int64_t r_step = out.residual->strides[out.leading];
    sums += read_columns(*out.residual, out.residual_rows[row] + n * r_step, r_step, count);
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

// How many of `rows` rows fit `bytes` of scratch, with `beside` bytes more for each. At least one: pack_weights
// admits no longer rows.
int64_t lay_out(const PackedLayout& w, bool int8, int64_t rows, int64_t beside, std::byte* scratch, int64_t bytes, RowBuffer* buffer) {
  int64_t depth = w.blocks * w.block;
  // The rows of an AMX tile are read together: cache lines of their own, an odd number of them, in different sets of the cache.
  if (kTiles && int8) depth = (round_up(depth, 64) / 64 | 1) * 64;
  const int64_t row_x = round_up(depth * 4, 64), row_q = depth + w.blocks * 8, row_f = row_x + w.blocks * 4;
  const int64_t fixed = int8 ? row_x : 0, per_row = (int8 ? row_q : row_f) + beside;
  int64_t fit = (bytes - fixed - 192) / per_row;
  fit = fit < 1 ? 1 : fit < rows ? fit : rows;
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

// What round_row finds of kLanes blocks.
struct RoundedBlocks {
  float scales[kLanes], sums[kLanes];
};

// q = round(x / scale) with scale = the block's largest magnitude / 127 (quantize_block's rule), for kLanes whole blocks side
// by side: their maxima and sums are found together.
SITU_INLINE void round_blocks(const float* x, int64_t block, int8_t* q, RoundedBlocks* out) {
  VecF v[kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    v[i] = VecF{};
    for (int64_t k = 0; k < block; k += kLanes) v[i] = vmax((VecF)((VecU)load(x + i * block + k) & 0x7fffffffu), v[i]);
  }
  const VecF scale = max_each(v) / 127.0f;
  float inverse[kLanes];
  store(inverse, scale > 0.0f ? 1.0f / scale : VecF{});
  store(out->scales, scale);
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    const VecF factor = splat(inverse[i]);
    VecI sum{};
    for (int64_t k = 0; k < block; k += kLanes) {
      const VecI r = nearest_bytes(load(x + i * block + k) * factor);
      sum += r;
      *reinterpret_cast<UnalignedB*>(q + i * block + k) = __builtin_convertvector(r, VecB);
    }
    v[i] = __builtin_convertvector(sum, VecF);  // exact: below 2^24
  }
  store(out->sums, sum_each(v));
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
  const int32_t middle = w.zeros == ZeroPoints::kMiddle ? 1 << (w.bits - 1) : 1;
  auto keep = [&](int64_t b, float scale, float sum) {
    const int64_t at = b * buffer->rows.count + slot;
    buffer->scales[at] = scale;
    if (w.zeros == ZeroPoints::kFloats) buffer->sums[at] = scale * sum;
    else buffer->negative_sums[at] = -static_cast<int32_t>(sum) * middle;
  };
  int64_t b = 0;
  for (; (b + kLanes) * w.block <= w.k; b += kLanes) {
    RoundedBlocks rounded;
    round_blocks(x + b * w.block, w.block, q + b * w.block, &rounded);
    for (int i = 0; i < kLanes; ++i) keep(b + i, rounded.scales[i], rounded.sums[i]);
  }
  for (; b < w.blocks; ++b) {
    const int64_t k = b * w.block, rest = w.k - k;
    const float scale = quantize_block(x + k, rest < w.block ? rest : w.block, w.block, q + k);
    int32_t sum = 0;
    for (int64_t i = 0; i < w.block; ++i) sum += q[k + i];
    keep(b, scale, static_cast<float>(sum));
  }
}

void float_row(const PackedLayout& w, const Input& in, int64_t row, int64_t slot, RowBuffer* buffer) {
  float* x = buffer->x + slot * buffer->rows.depth;
  read_activations(w, in, row, x);
  for (int64_t b = 0; b < w.blocks; ++b) {
    VecF sum{};
    for (int64_t k = 0; k < w.block; k += kLanes) sum += load(x + b * w.block + k);
    buffer->sums[b * buffer->rows.count + slot] = sum_lanes(sum);
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

// Whether one row takes all columns of a unit at once. Two vectors of columns at a time would read every second line of 64 bytes,
// and then the others: of a row memory has to be read front to back.
constexpr bool kWholeUnits = kUnitVectors > kVectors && kUnitVectors <= kVectorRegisters / 4;

template <int Bits, int R, int V, ZeroPoints Z, bool Int8>
void unit_rows(const Unit& u, const PackedRows& rows, const Output& out, int64_t row, int64_t slot, int v0) {
  VecF total[R][V], gate[R][V];
  auto dots = [&](const uint8_t* data, VecF (*sums)[V]) {
    if constexpr (Int8 && Bits == 4 && R == 1 && kWholeUnits && V == kUnitVectors) {
      if (u.w.lines() % 4 == 0) packed_int8_unit<Z, 4>(u.w, rows, slot, data, sums[0]);
      else packed_int8_unit<Z, 2>(u.w, rows, slot, data, sums[0]);
    } else if constexpr (Int8) packed_int8<Bits, R, V, Z>(u.w, rows, slot, data, u.panels, v0, sums);
    else packed_float<Bits, R, V, Z>(u.w, rows, slot, data, u.panels, v0, sums);
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

template <int Bits, int R, ZeroPoints Z, bool Int8>
void unit_vectors(const Unit& u, const PackedRows& rows, const Output& out, int64_t row, int64_t slot) {
  int v = 0;
  if constexpr (kWholeUnits && R == 1) {
    if (u.vectors() == kUnitVectors) return unit_rows<Bits, R, kUnitVectors, Z, Int8>(u, rows, out, row, slot, 0);
  }
  for (; v + kVectors <= u.vectors(); v += kVectors) unit_rows<Bits, R, kVectors, Z, Int8>(u, rows, out, row, slot, v);
  for (; v < u.vectors(); ++v) unit_rows<Bits, R, 1, Z, Int8>(u, rows, out, row, slot, v);
}

template <int Bits, ZeroPoints Z, bool Int8>
void unit_dots(const Unit& u, const PackedRows& rows, const Output& out, int64_t row, int64_t count) {
  int64_t slot = 0;
  if constexpr (Int8) {
    for (; slot + kInt8Rows <= count; slot += kInt8Rows) unit_vectors<Bits, kInt8Rows, Z, Int8>(u, rows, out, row, slot);
  }
  for (; slot + 4 <= count; slot += 4) unit_vectors<Bits, 4, Z, Int8>(u, rows, out, row, slot);
  for (; slot + 2 <= count; slot += 2) unit_vectors<Bits, 2, Z, Int8>(u, rows, out, row, slot);
  for (; slot < count; ++slot) unit_vectors<Bits, 1, Z, Int8>(u, rows, out, row, slot);
}

// -- many int8 rows: panels of digits
template <int Bits, int R, ZeroPoints Z>
void panel_vectors(const Unit& u, const DigitPanel& panel, const PackedRows& rows, int64_t slot, float* sums) {
  int v = 0;
  for (; v + kVectors <= u.vectors(); v += kVectors) panel_dots<Bits, R, kVectors, Z>(panel, rows, u.w.block, slot, v, sums);
  for (; v < u.vectors(); ++v) panel_dots<Bits, R, 1, Z>(panel, rows, u.w.block, slot, v, sums);
}

// What the panels of a thread are made in.
union PanelScratch {
  std::byte digits[DigitPanel::kBytes];
  AmxScratch amx;
};

// sums [count, kUnitColumns] = rows of the buffer times a unit; the first `tiled` of them by AMX.
template <int Bits, ZeroPoints Z>
void panel_sums(const Unit& u, const uint8_t* data, const PackedRows& rows, int64_t tiled, int64_t count, float* sums, PanelScratch* scratch) {
  if constexpr (kTiles) {
    if (tiled > 0) packed_tiles<Bits, Z>(u.w, rows, 0, tiled, data, u.panels, &scratch->amx, sums);
    if (tiled == count) return;
  }
  DigitPanel panel = lay_out_panel(scratch->digits);
  const int64_t step = kPanelSlice / u.w.block;
  for (int64_t i = tiled * kUnitColumns; i < count * kUnitColumns; i += kLanes) store(sums + i, VecF{});
  for (int64_t b = 0; b < u.w.blocks; b += step) {
    panel.first = b;
    panel.last = b + step < u.w.blocks ? b + step : u.w.blocks;
    unpack_digits<Bits, Z>(u.w, data, u.panels, u.vectors(), &panel);
    int64_t r = tiled;
    for (; r + kPanelRows <= count; r += kPanelRows) panel_vectors<Bits, kPanelRows, Z>(u, panel, rows, r, sums + r * kUnitColumns);
    for (; r + 2 <= count; r += 2) panel_vectors<Bits, 2, Z>(u, panel, rows, r, sums + r * kUnitColumns);
    for (; r < count; ++r) panel_vectors<Bits, 1, Z>(u, panel, rows, r, sums + r * kUnitColumns);
  }
}

// Where vectors of a unit's columns go in rows of y, and what is added to them: in place for floats side by side.
struct Target {
  const Unit& u;
  const Output& out;
  int64_t first;  // column
  bool whole;     // all vectors are full, and are written as they are

  Target(const Unit& unit, const Output& output, int v0, int vectors) : u(unit), out(output), first(unit.column + v0 * kLanes) {
    auto plain = [&](const View& v) { return v.type == DType::kF32 && v.strides[out.leading] == 1; };
    whole = first + vectors * kLanes <= u.w.n && plain(*out.y) && (out.residual == nullptr || plain(*out.residual));
  }
  float* y(int64_t row) const { return out.y->as<float>() + out.y_rows[row] + first; }
  const float* residual(int64_t row) const { return out.residual->as<const float>() + out.residual_rows[row] + first; }
};

// Asks for the places of a unit in rows [row, row + height) before its products are computed: two lines of every row, too far
// apart for the CPU to guess (a third of what write_sums took in a prompt of 512 rows and 1,536 columns).
void prefetch_places(const Unit& u, const Output& out, int64_t row, int64_t height) {
  const Target target(u, out, 0, u.vectors());
  if (!target.whole) return;
  for (int64_t m = 0; m < height; ++m) {
    for (int64_t i = 0; i < u.panels * kPanelColumns; i += kPanelColumns) {
      __builtin_prefetch(target.y(row + m) + i, 1);
      if (out.residual != nullptr) __builtin_prefetch(target.residual(row + m) + i);
    }
  }
}

// y rows [row, row + height) from sums, `columns` floats a row, of `vectors` vectors of columns from v0 on.
void write_sums(const Unit& u, const Output& out, int64_t row, int64_t height, int v0, int vectors, int64_t columns, const float* sums, const float* gate) {
  const Target target(u, out, v0, vectors);
  if (!target.whole) {
    for (int64_t m = 0; m < height; ++m) {
      for (int v = 0; v < vectors; ++v) {
        const int64_t n = target.first + v * kLanes, at = m * columns + v * kLanes;
        const VecF g = u.gate != nullptr ? load(gate + at) : VecF{};
        write_columns(out, u.w.n, row + m, n, finish_sums(out, u.w.n, n, load(sums + at), u.gate != nullptr ? &g : nullptr));
      }
    }
    return;
  }
  VecF bias[kUnitVectors] = {};
  for (int v = 0; out.bias != nullptr && v < vectors; ++v) {
    const int64_t step = out.bias->strides[0];
    bias[v] = read_columns(*out.bias, (target.first + v * kLanes) * step, step, kLanes);
  }
  auto rows = [&](auto finish) __attribute__((always_inline)) {
    for (int64_t m = 0; m < height; ++m) {
      float* y = target.y(row + m);
      const float* residual = out.residual != nullptr ? target.residual(row + m) : nullptr;
      for (int v = 0; v < vectors; ++v) {
        VecF x = finish(m * columns + v * kLanes, load(sums + m * columns + v * kLanes) + bias[v]);
        if (residual != nullptr) x += load(residual + v * kLanes);
        store(y + v * kLanes, x);
      }
    }
  };
  if (u.gate == nullptr) rows([](int64_t, VecF x) __attribute__((always_inline)) { return x; });
  else rows([&](int64_t at, VecF x) __attribute__((always_inline)) { return activate(out.activation, load(gate + at)) * x; });
}
static_assert(kTileVectors <= kUnitVectors);

// -- many float rows: panels. Scratch: sums (and those of the gate) [rows, 2 vectors], panel [kPanelDepth, 2 vectors].
constexpr int64_t kTileBlockRows = 256;
constexpr int64_t kPanelDepth = 512;
constexpr int64_t kSliceDepth = kPanelDepth + 256;  // a slice ends with its block

// sums [height, 2 vectors] = rows [row, row + height) of a times two vectors of columns.
template <int Bits, ZeroPoints Z>
void tile_sums(const Unit& u, const uint8_t* data, int v0, const View& a, int64_t row, int64_t height, float* sums, float* panel) {
  float* converted = panel + kSliceDepth * kTileColumns;
  const int64_t a_k = a.strides[a.rank - 1];
  const bool in_place = a.type == DType::kF32 && a_k == 1;
  const int64_t step = u.w.block > kPanelDepth ? 1 : kPanelDepth / u.w.block;
  for (int64_t b = 0; b < u.w.blocks; b += step) {
    const int64_t b1 = b + step < u.w.blocks ? b + step : u.w.blocks, k0 = b * u.w.block;
    const int64_t depth = (b1 * u.w.block < u.w.k ? b1 * u.w.block : u.w.k) - k0;
    unpack_panel<Bits, Z>(u.w, data, u.panels, v0, kTileVectors, b, b1, panel);
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

template <int Bits, ZeroPoints Z>
void unit_tiles(const Unit& u, const View& a, const Output& out, int64_t first, int64_t last, std::byte* scratch) {
  float* sums = reinterpret_cast<float*>(scratch);
  float* gate = sums + kTileBlockRows * kTileColumns;
  float* panel = gate + kTileBlockRows * kTileColumns;
  for (int v0 = 0; v0 < u.vectors(); v0 += kTileVectors) {
    for (int64_t row = first; row < last; row += kTileBlockRows) {
      const int64_t height = last - row < kTileBlockRows ? last - row : kTileBlockRows;
      tile_sums<Bits, Z>(u, u.data, v0, a, row, height, sums, panel);
      if (u.gate != nullptr) tile_sums<Bits, Z>(u, u.gate, v0, a, row, height, gate, panel);
      write_sums(u, out, row, height, v0, kTileVectors, kTileColumns, sums, gate);
    }
  }
}
static_assert((2 * kTileBlockRows * kTileColumns + kSliceDepth * kTileColumns + kTileRows * kSliceDepth) * 4 <= kScratchBytes);

struct Product {
  PackedLayout w;
  const uint8_t* data;
  const uint8_t* gate;
  Output out;
  int64_t first_unit = 0;  // counted over all products
};

// Products of the same rows; their weights differ in N and in the type of their scales.
struct Job {
  Input in;
  bool int8;
  int count = 0;
  Product products[kMaxProjections];

  const PackedLayout& form() const { return products[0].w; }
  int64_t units() const { return products[count - 1].first_unit + products[count - 1].w.units(); }
  int64_t rows() const { return count_dims(in.a, 0, in.a.rank - 1); }
  void add(const PackedLayout& w, const View& data, const View* gate, const Output& out) {
    const int64_t first = count > 0 ? units() : 0;
    products[count++] = {w, data.as<const uint8_t>(), gate != nullptr ? gate->as<const uint8_t>() : nullptr, out, first};
  }
  const Product& product_of(int64_t u) const {
    int i = 0;
    while (i + 1 < count && u >= products[i + 1].first_unit) ++i;
    return products[i];
  }
};

Unit unit_of(const Product& p, int64_t u) {
  u -= p.first_unit;
  return Unit{p.w, p.data + p.w.unit_offset(u), p.gate != nullptr ? p.gate + p.w.unit_offset(u) : nullptr, p.w.unit_panels(u), u * kUnitColumns};
}

// Rows that AMX takes of `count`: whole groups, and what is left over unless it is too little for a tile.
int64_t tiled_rows(const PackedLayout& w, int64_t count, int64_t capacity) {
  if (!kTiles || w.block > kAmxSliceDepth) return 0;
  const int64_t tail = count % kAmxGroupRows, rows = tail < kAmxMinRows ? count - tail : count;
  return round_up(rows, kAmxRows) <= capacity ? rows : capacity / kAmxRows * kAmxRows;  // tiles read rows that are not there
}

// Scratch: the panel, rounded rows, and the sums of both results of a row.
template <int Bits, ZeroPoints Z>
void run_panels(const Job& job, const ProductPart& part, std::byte* scratch) {
  constexpr int64_t kSumBytes = kUnitColumns * 4, kPanelBytes = static_cast<int64_t>(sizeof(PanelScratch));
  const int64_t rows = part.last_row - part.row < kPanelBlockRows ? part.last_row - part.row : kPanelBlockRows;
  auto* panel = reinterpret_cast<PanelScratch*>(scratch);
  RowBuffer buffer;
  const int64_t fit = lay_out(job.form(), true, kTiles ? round_up(rows, kAmxRows) : rows, 2 * kSumBytes, scratch + kPanelBytes, kScratchBytes - kPanelBytes, &buffer);
  float* sums = reinterpret_cast<float*>(scratch + kScratchBytes - 2 * kSumBytes * fit);
  float* gate = sums + kUnitColumns * fit;
  if (tiled_rows(job.form(), rows, fit) > 0) amx_begin(job.form());
  for (int64_t row = part.row; row < part.last_row; row += fit) {
    const int64_t count = part.last_row - row < fit ? part.last_row - row : fit, tiled = tiled_rows(job.form(), count, fit);
    for (int64_t slot = 0; slot < count; ++slot) round_row(job.form(), job.in, row + slot, slot, &buffer);
    for (int64_t i = part.unit; i < part.last_unit; ++i) {
      const Product& product = job.product_of(i);
      const Unit u = unit_of(product, i);
      prefetch_places(u, product.out, row, count);
      panel_sums<Bits, Z>(u, u.data, buffer.rows, tiled, count, sums, panel);
      if (u.gate != nullptr) panel_sums<Bits, Z>(u, u.gate, buffer.rows, tiled, count, gate, panel);
      write_sums(u, product.out, row, count, 0, u.vectors(), kUnitColumns, sums, gate);
    }
  }
  if (tiled_rows(job.form(), rows, fit) > 0) amx_end();
}

template <int Bits, ZeroPoints Z>
void run_units(const Job& job, const ProductPart& part, std::byte* scratch) {
  const int64_t rows = part.last_row - part.row;
  if (job.int8 && rows > kFewInt8Rows) return run_panels<Bits, Z>(job, part, scratch);
  auto each_unit = [&](auto body) {
    for (int64_t i = part.unit; i < part.last_unit; ++i) {
      const Product& product = job.product_of(i);
      body(unit_of(product, i), product.out);
    }
  };
  // Tiles read rows of a slice by slice: norms, which need whole rows, keep to the buffer.
  if (!job.int8 && rows > kFewRows && job.in.norm == nullptr) {
    return each_unit([&](const Unit& u, const Output& out) { unit_tiles<Bits, Z>(u, job.in.a, out, part.row, part.last_row, scratch); });
  }
  RowBuffer buffer;
  const int64_t fit = lay_out(job.form(), job.int8, rows, 0, scratch, kScratchBytes, &buffer);
  for (int64_t row = part.row; row < part.last_row; row += fit) {
    const int64_t count = part.last_row - row < fit ? part.last_row - row : fit;
    for (int64_t slot = 0; slot < count; ++slot) {
      if (job.int8) round_row(job.form(), job.in, row + slot, slot, &buffer);
      else float_row(job.form(), job.in, row + slot, slot, &buffer);
    }
    each_unit([&](const Unit& u, const Output& out) {
      if (job.int8) unit_dots<Bits, Z, true>(u, buffer.rows, out, row, count);
      else unit_dots<Bits, Z, false>(u, buffer.rows, out, row, count);
    });
  }
}

template <int Bits>
void run_bits(const Job& job, const ProductPart& part, std::byte* scratch) {
  switch (job.form().zeros) {
    case ZeroPoints::kMiddle: return run_units<Bits, ZeroPoints::kMiddle>(job, part, scratch);
    case ZeroPoints::kIntegers: return run_units<Bits, ZeroPoints::kIntegers>(job, part, scratch);
    case ZeroPoints::kFloats: return run_units<Bits, ZeroPoints::kFloats>(job, part, scratch);
  }
}

void run(const Job& job, std::byte* scratch, int thread, int threads) {
  const PackedLayout& w = job.form();
  const ProductPart part = split_product(job.rows(), job.units(), kRowsPerThread, thread, threads);
  if (part.row >= part.last_row || part.unit >= part.last_unit) return;
  w.bits == 4 ? run_bits<4>(job, part, scratch) : run_bits<8>(job, part, scratch);
}

}  // namespace

void packed_matmul(const KernelCall& call, int thread, int threads) {
  const auto& params = *static_cast<const PackedMatMulParams*>(call.params);
  const View& a = call.in[0];
  Job job{{a, operand(call, 4), params.epsilon}, params.accuracy_level == 4};
  job.add(packed_layout(params), call.in[1], operand(call, 5), make_output(call, 0, operand(call, 2), operand(call, 3), params.activation));
  run(job, call.scratch, thread, threads);
}

// Operands: a, norm?, then weights and bias? of each product.
void packed_projections(const KernelCall& call, int thread, int threads) {
  const auto& params = *static_cast<const PackedProjectionsParams*>(call.params);
  const View& a = call.in[0];
  Job job{{a, operand(call, 1), params.shared.epsilon}, params.shared.accuracy_level == 4};
  for (int i = 0; i < params.count; ++i) {
    PackedMatMulParams one = params.shared;
    one.n = params.n[i];
    one.half_scales = params.half_scales[i];
    job.add(packed_layout(one), call.in[2 + 2 * i], nullptr, make_output(call, i, operand(call, 3 + 2 * i), nullptr, UnaryKind::kSilu));
  }
  run(job, call.scratch, thread, threads);
}

}  // namespace SITU_ISA
}  // namespace situ
