// situ.PackedMatMul: y [.., N] = a [.., K] * w^T + bias on packed weights (kernels/packed.h; pack_nbits.cc makes them),
// situ.PackedProjections: several of these on the same rows, and situ.PackedExperts: a matrix for each row.
//
// Threads split units of 32 columns, and the rows where there are many. Each thread prepares its rows of a in its
// scratch, as many as fit, and then reads its units front to back:
//   bytes, few rows    rows become int8 per block; digits become bytes in registers
//   bytes, many rows   the same rows; slices of a unit become a panel of bytes once, for all rows: vectors read it
//                      (kernels/packed_panel.h), or AMX (kernels/packed_tiles.h)
//   floats, few rows   digits become floats in registers
//   floats, many rows  slices of a unit become a float panel once, for register tiles over all rows
// accuracy_level 4 rounds rows to bytes. Others are floats, or three rows of bytes each (kernels/packed_rows.h) on an
// ISA that adds products of bytes to another one (SITU_BASE_ISA): digits in a table are the other's.
#include "kernels/experts.h"
#include "kernels/packed_output.h"
#include "kernels/packed_panel.h"
#include "kernels/packed_rows.h"
#include "kernels/packed_tiles.h"
#include "kernels/tile.h"

#if defined(SITU_BASE_ISA)
namespace situ::SITU_BASE_ISA {
void packed_matmul(const KernelCall& call, int thread, int threads);
void packed_projections(const KernelCall& call, int thread, int threads);
void packed_experts(const KernelCall& call, int thread, int threads);
}  // namespace situ::SITU_BASE_ISA
#endif

namespace situ {
namespace SITU_ISA {
namespace {

#if defined(SITU_BASE_ISA)
constexpr bool kFloatsAsBytes = true;
#else
constexpr bool kFloatsAsBytes = false;
#endif

// Up to here reading digits again for every four rows beats unpacking them (K 576, N 1536, one AVX-512 core). Integers
// are summed alike both ways, floats are not.
constexpr int64_t kFewRows = 8;
constexpr int64_t kFewInt8Rows = 6;
constexpr int kInt8Rows = kVectorRegisters == 32 ? 6 : 4;
constexpr int kPanelRows =
    kVectorRegisters == 32 ? 6 : 4;       // their products and sums of two vectors of columns stay in registers
constexpr int64_t kPanelBlockRows = 256;  // that share a panel, if scratch holds them
constexpr int kVectors = 2;               // vectors of columns at a time
// A thread that has rows of its own prepares them alone, but reads more of the weights: with fewer than this it shares
// their columns with others instead.
constexpr int64_t kRowsPerThread = 16;
static_assert(kRowsPerThread <= kRowsOfOwn);

// -- one unit of columns with rows in scratch

// Whether one row takes all columns of a unit at once. Two vectors of columns at a time would read every second line of
// 64 bytes, and then the others: of a row memory has to be read front to back.
constexpr bool kWholeUnits = kUnitVectors > kVectors&& kUnitVectors <= kVectorRegisters / 4;

// The sums of planes become those of `count` rows, in front.
template <int V>
SITU_INLINE void join_planes(VecF (*sums)[V], int count) {
  static_assert(kFloatPlanes == 3);
  for (int r = 0; r < count; ++r)
    for (int v = 0; v < V; ++v)
      sums[r][v] = sums[kFloatPlanes * r][v] + (sums[kFloatPlanes * r + 1][v] + sums[kFloatPlanes * r + 2][v]);
}

template <int Bits, int R, int V, ZeroPoints Z, bool Int8>
void unit_rows(const Unit& u, const PackedRows& rows, const Output& out, int64_t row, int64_t slot, int v0) {
  VecF total[R][V], gate[R][V];
  auto dots = [&](const uint8_t* data, VecF(*sums)[V]) {
    if constexpr (Int8 && Bits == 4 && R == 1 && kWholeUnits && V == kUnitVectors) {
      if (u.w.lines() % 4 == 0)
        packed_int8_unit<Z, 4>(u.w, rows, slot, data, sums[0]);
      else
        packed_int8_unit<Z, 2>(u.w, rows, slot, data, sums[0]);
    } else if constexpr (Int8)
      packed_int8<Bits, R, V, Z>(u.w, rows, slot, data, u.panels, v0, sums);
    else
      packed_float<Bits, R, V, Z>(u.w, rows, slot, data, u.panels, v0, sums);
  };
  if (u.gate != nullptr) dots(u.gate, gate);
  dots(u.data, total);
  int count = R;
  if constexpr (Int8 && kFloatsAsBytes && R % kFloatPlanes == 0) {
    if (rows.planes == kFloatPlanes) {
      count = R / kFloatPlanes;
      join_planes(total, count);
      if (u.gate != nullptr) join_planes(gate, count);
    }
  }
  for (int r = 0; r < count; ++r) {
    for (int v = 0; v < V; ++v) {
      const int64_t n = u.column + (v0 + v) * kLanes;
      write_columns(out, u.w.n, row + slot / rows.planes + r, n,
                    finish_sums(out, u.w.n, n, total[r][v], u.gate != nullptr ? &gate[r][v] : nullptr));
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

// `count`: slots of the buffer.
template <int Bits, ZeroPoints Z, bool Int8>
void unit_dots(const Unit& u, const PackedRows& rows, const Output& out, int64_t row, int64_t count) {
  int64_t slot = 0;
  if constexpr (Int8 && kFloatsAsBytes) {
    if (rows.planes == kFloatPlanes) {
      if constexpr (kInt8Rows == 2 * kFloatPlanes) {
        for (; slot + kInt8Rows <= count; slot += kInt8Rows)
          unit_vectors<Bits, kInt8Rows, Z, Int8>(u, rows, out, row, slot);
      }
      for (; slot < count; slot += kFloatPlanes) unit_vectors<Bits, kFloatPlanes, Z, Int8>(u, rows, out, row, slot);
      return;
    }
  }
  if constexpr (Int8) {
    for (; slot + kInt8Rows <= count; slot += kInt8Rows)
      unit_vectors<Bits, kInt8Rows, Z, Int8>(u, rows, out, row, slot);
  }
  for (; slot + 4 <= count; slot += 4) unit_vectors<Bits, 4, Z, Int8>(u, rows, out, row, slot);
  for (; slot + 2 <= count; slot += 2) unit_vectors<Bits, 2, Z, Int8>(u, rows, out, row, slot);
  for (; slot < count; ++slot) unit_vectors<Bits, 1, Z, Int8>(u, rows, out, row, slot);
}

// -- many int8 rows: panels of digits
template <int Bits, int R, ZeroPoints Z>
void panel_vectors(const Unit& u, const DigitPanel& panel, const PackedRows& rows, int64_t slot, float* sums) {
  int v = 0;
  for (; v + kVectors <= u.vectors(); v += kVectors)
    panel_dots<Bits, R, kVectors, Z>(panel, rows, u.w.block, slot, v, sums);
  for (; v < u.vectors(); ++v) panel_dots<Bits, R, 1, Z>(panel, rows, u.w.block, slot, v, sums);
}

// What the panels of a thread are made in.
union PanelScratch {
  std::byte digits[DigitPanel::kBytes];
  AmxScratch amx;
};

// sums [count, kUnitColumns] = rows of the buffer times a unit; the first `tiled` of them by AMX.
template <int Bits, ZeroPoints Z>
void panel_sums(const Unit& u, const uint8_t* data, const PackedRows& rows, int64_t tiled, int64_t count, float* sums,
                PanelScratch* scratch) {
  if constexpr (kTiles) {
    if (tiled > 0) packed_tiles<Bits, Z>(u.w, rows, 0, tiled, data, u.panels, &scratch->amx, sums);
    if (tiled == count) return;
  }
  DigitPanel panel = lay_out_panel(scratch->digits);
  const int64_t step = kPanelSlice / u.w.block, record_bytes = u.w.record_bytes(u.panels);
  for (int64_t b = 0; b < u.w.blocks; b += step) {
    panel.first = b;
    panel.last = b + step < u.w.blocks ? b + step : u.w.blocks;
    unpack_digits<Bits, Z>(u.w, data, u.panels, u.vectors(), &panel);
    // The weights that follow are asked for while these are multiplied, a share with each step of the rows: prompts of
    // SmolLM2 of 8 to 512 rows take 5 to 9% less time (AVX-512 VNNI, medians of 4 in turn).
    const uint8_t* ahead = data + panel.last * record_bytes;
    const int64_t share = (panel.last - b) * record_bytes * kPanelRows / (count - tiled);
    auto rows_of = [&]<int R>(int64_t r) __attribute__((always_inline)) {
      for (const uint8_t* end = ahead + share * R / kPanelRows; ahead < end; ahead += 64) __builtin_prefetch(ahead);
      panel_vectors<Bits, R, Z>(u, panel, rows, r, sums + r * kUnitColumns);
    };
    int64_t r = tiled;
    for (; r + kPanelRows <= count; r += kPanelRows) rows_of.template operator()<kPanelRows>(r);
    for (; r + 2 <= count; r += 2) rows_of.template operator()<2>(r);
    for (; r < count; ++r) rows_of.template operator()<1>(r);
  }
}

// -- many float rows: panels. Scratch: sums (and those of the gate) [rows, 2 vectors], panel [kPanelDepth, 2 vectors].
constexpr int64_t kTileBlockRows = 256;
constexpr int64_t kPanelDepth = 512;
constexpr int64_t kSliceDepth = kPanelDepth + 256;  // a slice ends with its block

// sums [height, 2 vectors] = rows [row, row + height) of a times two vectors of columns.
template <int Bits, ZeroPoints Z>
void tile_sums(const Unit& u, const uint8_t* data, int v0, const Input& in, int64_t row, int64_t height, float* sums,
               float* panel) {
  const View& a = in.a;
  float* converted = panel + kSliceDepth * kTileColumns;
  const int64_t a_k = a.strides[a.rank - 1];
  const bool in_place = a.type == DType::kF32 && a_k == 1 && in.order == nullptr;
  const int64_t step = u.w.block > kPanelDepth ? 1 : kPanelDepth / u.w.block;
  for (int64_t b = 0; b < u.w.blocks; b += step) {
    const int64_t b1 = b + step < u.w.blocks ? b + step : u.w.blocks, k0 = b * u.w.block;
    const int64_t depth = (b1 * u.w.block < u.w.k ? b1 * u.w.block : u.w.k) - k0;
    unpack_panel<Bits, Z>(u.w, data, u.panels, v0, kTileVectors, b, b1, panel);
    for (int64_t m = 0; m < height; m += kTileRows) {
      const int64_t tall = height - m < kTileRows ? height - m : kTileRows;
      const int64_t first = in.rows[row + m], last = in.rows[row + m + tall - 1];
      const int64_t a_row = tall > 1 ? (last - first) / (tall - 1) : 0;
      const float* x = a.as<const float>() + first + k0;
      int64_t x_row = a_row;
      const bool listed = in.rows.slots != nullptr && tall > 1;
      if (!in_place || listed || in.rows[row + m + tall / 2] != first + tall / 2 * a_row) {
        x = converted;
        x_row = kSliceDepth;
        for (int64_t r = 0; r < tall; ++r)
          read_in_order(in, in.rows[row + m + r], k0, depth, converted + r * kSliceDepth);
      }
      tile_rows(tall, depth, x, x_row, panel, kTileColumns, sums + m * kTileColumns, kTileColumns, b > 0);
    }
  }
}

template <int Bits, ZeroPoints Z>
void unit_tiles(const Unit& u, const Input& in, const Output& out, int64_t first, int64_t last, std::byte* scratch) {
  float* sums = reinterpret_cast<float*>(scratch);
  float* gate = sums + kTileBlockRows * kTileColumns;
  float* panel = gate + kTileBlockRows * kTileColumns;
  for (int v0 = 0; v0 < u.vectors(); v0 += kTileVectors) {
    for (int64_t row = first; row < last; row += kTileBlockRows) {
      const int64_t height = last - row < kTileBlockRows ? last - row : kTileBlockRows;
      tile_sums<Bits, Z>(u, u.data, v0, in, row, height, sums, panel);
      if (u.gate != nullptr) tile_sums<Bits, Z>(u, u.gate, v0, in, row, height, gate, panel);
      write_sums(u, out, row, height, v0, kTileVectors, kTileColumns, sums, gate);
    }
  }
}
static_assert((2 * kTileBlockRows * kTileColumns + kSliceDepth * kTileColumns + kTileRows * kSliceDepth) * 4 <=
              kScratchBytes);

// What few rows of a call have of the scratch: the second-level cache. Twice the room of attention's: the longest row
// in three planes, and as floats while it is rounded, has 557 KiB.
constexpr int64_t kRowBytes = 2 * kScratchBytes;
static_assert(kRoutingBytes + kRowBytes <= kThreadScratchBytes);

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
  int planes;           // of bytes that a row becomes; 0: rows are floats
  int64_t prompt_rows;  // KernelCall
  // Others are summed as many are where there are more of them.
  int64_t few_rows = kFewRows;
  int64_t scratch_bytes = kThreadScratchBytes;
  int count = 0;
  Product products[kMaxProjections];

  const PackedLayout& form() const { return products[0].w; }
  int64_t units() const { return products[count - 1].first_unit + products[count - 1].w.units(); }
  int64_t rows() const { return count_dims(in.a, 0, in.a.rank - 1); }
  void add(const PackedLayout& w, const View& data, const View* gate, const Output& out) {
    const int64_t first = count > 0 ? units() : 0;
    products[count++] = {w, data.as<const uint8_t>(), gate != nullptr ? gate->as<const uint8_t>() : nullptr, out,
                         first};
  }
  const Product& product_of(int64_t u) const {
    int i = 0;
    while (i + 1 < count && u >= products[i + 1].first_unit) ++i;
    return products[i];
  }
};

Unit unit_of(const Product& p, int64_t u) {
  u -= p.first_unit;
  return Unit{p.w, p.data + p.w.unit_offset(u), p.gate != nullptr ? p.gate + p.w.unit_offset(u) : nullptr,
              p.w.unit_panels(u), u * kUnitColumns};
}

// Slots that AMX takes of `count`: whole groups, and what is left over unless it is too little for a tile.
int64_t tiled_rows(const PackedLayout& w, int64_t count, int64_t capacity) {
  if (!kTiles || w.block > kAmxLongestBlock) return 0;
  const int64_t tail = count % kAmxGroupRows, rows = tail < kAmxMinRows ? count - tail : count;
  return round_up(rows, kAmxRows) <= capacity ? rows
                                              : capacity / kAmxRows * kAmxRows;  // tiles read rows that are not there
}

// Scratch: the panel, rounded rows, and the sums of both results of a row.
template <int Bits, ZeroPoints Z>
void run_panels(const Job& job, const ProductPart& part, std::byte* scratch) {
  constexpr int64_t kSumBytes = kUnitColumns * 4, kPanelBytes = static_cast<int64_t>(sizeof(PanelScratch));
  const int64_t rows = part.last_row - part.row < kPanelBlockRows ? part.last_row - part.row : kPanelBlockRows;
  auto* panel = reinterpret_cast<PanelScratch*>(scratch);
  RowBuffer buffer;
  const int64_t planes = job.planes;
  // Tiles read whole rows of theirs: room for these where they are no multiple.
  const int64_t wanted = kTiles ? (round_up(rows * planes, kAmxRows) + planes - 1) / planes : rows;
  const int64_t fit = lay_out(job.form(), job.planes, wanted, 2 * kSumBytes, scratch + kPanelBytes,
                              job.scratch_bytes - kPanelBytes, &buffer),
                capacity = buffer.rows.count;
  float* sums = reinterpret_cast<float*>(scratch + job.scratch_bytes - 2 * kSumBytes * capacity);
  float* gate = sums + kUnitColumns * capacity;
  const bool tiles = tiled_rows(job.form(), rows * planes, capacity) > 0;
  if (tiles) amx_begin(job.form());
  for (int64_t row = part.row; row < part.last_row; row += fit) {
    const int64_t count = part.last_row - row < fit ? part.last_row - row : fit, slots = count * planes,
                  tiled = tiled_rows(job.form(), slots, capacity);
    for (int64_t r = 0; r < count; ++r) round_row(job.form(), job.in, row + r, r * planes, &buffer);
    for (int64_t i = part.unit; i < part.last_unit; ++i) {
      const Product& product = job.product_of(i);
      const Unit u = unit_of(product, i);
      prefetch_places(u, product.out, row, count);
      auto multiply = [&](const uint8_t* data, float* to) {
        panel_sums<Bits, Z>(u, data, buffer.rows, tiled, slots, to, panel);
        if (kFloatsAsBytes && planes == kFloatPlanes)
          join_planes(reinterpret_cast<VecF(*)[kUnitVectors]>(to), static_cast<int>(count));
      };
      multiply(u.data, sums);
      if (u.gate != nullptr) multiply(u.gate, gate);
      write_sums(u, product.out, row, count, 0, u.vectors(), kUnitColumns, sums, gate);
    }
  }
  if (tiles) amx_end();
}

template <int Bits, ZeroPoints Z>
void run_units(const Job& job, ProductPart part, std::byte* scratch) {
  constexpr bool kRounds = Z != ZeroPoints::kTable;  // their numbers are no integers
  const int planes = kRounds ? job.planes : 0;
  if constexpr (kRounds) {
    if (planes > 0 && (part.last_row - part.row) * planes > kFewInt8Rows)
      return run_panels<Bits, Z>(job, part, scratch);
  }
  auto each_unit = [&](auto body) {
    for (int64_t i = part.unit; i < part.last_unit; ++i) {
      const Product& product = job.product_of(i);
      body(unit_of(product, i), product.out);
    }
  };
  // Tiles read rows of a slice by slice: norms, which need whole rows, keep to the buffer.
  if constexpr (!kFloatsAsBytes) {
    const int64_t prompt = job.prompt_rows < part.last_row ? job.prompt_rows : part.last_row,
                  others = part.last_row - (prompt > part.row ? prompt : part.row);
    const int64_t last = planes > 0 || job.in.norm != nullptr ? part.row
                         : others > job.few_rows              ? part.last_row
                                                              : prompt;
    if (last > part.row) {
      each_unit(
          [&](const Unit& u, const Output& out) { unit_tiles<Bits, Z>(u, job.in, out, part.row, last, scratch); });
      part.row = last;
    }
    if (part.row == part.last_row) return;
  }
  const int64_t rows = part.last_row - part.row;
  RowBuffer buffer;
  const int64_t fit = lay_out(job.form(), planes, rows, 0, scratch, kRowBytes, &buffer);
  for (int64_t row = part.row; row < part.last_row; row += fit) {
    const int64_t count = part.last_row - row < fit ? part.last_row - row : fit;
    for (int64_t r = 0; r < count; ++r) {
      if (planes > 0)
        round_row(job.form(), job.in, row + r, r * planes, &buffer);
      else
        float_row(job.form(), job.in, row + r, r, &buffer);
    }
    each_unit([&](const Unit& u, const Output& out) {
      if constexpr (!kFloatsAsBytes) {
        if (planes == 0) return unit_dots<Bits, Z, false>(u, buffer.rows, out, row, count);
      }
      if constexpr (kRounds) unit_dots<Bits, Z, true>(u, buffer.rows, out, row, count * planes);
    });
  }
}

template <int Bits>
void run_bits(const Job& job, const ProductPart& part, std::byte* scratch) {
  switch (job.form().zeros) {
    case ZeroPoints::kMiddle:
      return run_units<Bits, ZeroPoints::kMiddle>(job, part, scratch);
    case ZeroPoints::kIntegers:
      return run_units<Bits, ZeroPoints::kIntegers>(job, part, scratch);
    case ZeroPoints::kFloats:
      return run_units<Bits, ZeroPoints::kFloats>(job, part, scratch);
    case ZeroPoints::kTable:
      if constexpr (!kFloatsAsBytes && Bits == 4) run_units<Bits, ZeroPoints::kTable>(job, part, scratch);
  }
}

void run_part(const Job& job, const ProductPart& part, std::byte* scratch) {
  job.form().bits == 4 ? run_bits<4>(job, part, scratch) : run_bits<8>(job, part, scratch);
}

void run(const Job& job, std::byte* scratch, int thread, int threads) {
  const ProductPart part = split_product(job.rows(), job.units(), kRowsPerThread, thread, threads);
  if (part.row < part.last_row && part.unit < part.last_unit) run_part(job, part, scratch);
}

int planes_of(const PackedMatMulParams& p) { return p.accuracy_level == 4 ? 1 : kFloatsAsBytes ? kFloatPlanes : 0; }

}  // namespace

void packed_matmul(const KernelCall& call, int thread, int threads) {
  const auto& params = *static_cast<const PackedMatMulParams*>(call.params);
#if defined(SITU_BASE_ISA)
  if (params.table != DigitTable::kNone) return SITU_BASE_ISA::packed_matmul(call, thread, threads);
#endif
  const View& a = call.in[0];
  Job job{{a, operand(call, 4), params.epsilon}, planes_of(params), call.prompt_rows};
  job.in.order = operand(call, 6);
  job.add(packed_layout(params), call.in[1], operand(call, 5),
          make_output(call, 0, operand(call, 2), operand(call, 3), params.activation));
  run(job, call.scratch, thread, threads);
}

// Operands: a, norm?, then weights and bias? of each product.
void packed_projections(const KernelCall& call, int thread, int threads) {
  const auto& params = *static_cast<const PackedProjectionsParams*>(call.params);
#if defined(SITU_BASE_ISA)
  if (params.shared.table != DigitTable::kNone) return SITU_BASE_ISA::packed_projections(call, thread, threads);
#endif
  const View& a = call.in[0];
  Job job{{a, operand(call, 1), params.shared.epsilon}, planes_of(params.shared), call.prompt_rows};
  for (int i = 0; i < params.count; ++i) {
    PackedMatMulParams one = params.shared;
    one.n = params.n[i];
    one.half_scales = params.half_scales[i];
    job.add(packed_layout(one), call.in[2 + 2 * i], nullptr,
            make_output(call, i, operand(call, 3 + 2 * i), nullptr, UnaryKind::kSilu));
  }
  run(job, call.scratch, thread, threads);
}

// Operands: a, index, bias?, weights. A token that is no piece of a prompt always has the sums of few rows: how many
// are with it at its expert is chance.
void packed_experts(const KernelCall& call, int thread, int threads) {
  const auto& params = *static_cast<const PackedExpertsParams*>(call.params);
#if defined(SITU_BASE_ISA)
  if (params.product.table != DigitTable::kNone) return SITU_BASE_ISA::packed_experts(call, thread, threads);
#endif
  const PackedLayout w = packed_layout(params.product);
  each_expert(call, params.experts, w.units(), thread, threads, [&](const ExpertRows& rows, int64_t u0, int64_t u1) {
    const View bias = expert_bias(call, rows.expert);
    View data = call.in[3];
    data.data += w.unit_offset(rows.expert * w.units());
    Job job{{call.in[0], nullptr, 0, ExpertRows::at(rows.x)},
            planes_of(params.product),
            rows.prompt,
            rows.count,
            kThreadScratchBytes - kRoutingBytes};
    const View& y = call.out[0];
    Output out{&y, bias.present() ? &bias : nullptr, nullptr, y.rank - 1, UnaryKind::kSilu};
    out.y_rows = ExpertRows::at(rows.y);
    job.add(w, data, nullptr, out);
    run_part(job, {0, rows.count, u0, u1}, call.scratch + kRoutingBytes);
  });
}

}  // namespace SITU_ISA
}  // namespace situ
