// Where the results of products on packed weights go: what is added to sums and done with them, and how they are
// written.
#pragma once

#include "kernels/packed_panel.h"
#include "kernels/rows.h"
#include "kernels/tile.h"

namespace situ {
namespace SITU_ISA {

struct Output {
  const View* y = nullptr;
  const View* bias = nullptr;      // null: none
  const View* residual = nullptr;  // null: none; y may be it
  int leading = 0;                 // dims in front of N
  UnaryKind activation = UnaryKind::kSilu;
  RowOffsets y_rows, residual_rows;
};

static inline const View* operand(const KernelCall& call, int i) {
  return i < call.in_count && call.in[i].present() ? &call.in[i] : nullptr;
}

static inline Output make_output(const KernelCall& call, int i, const View* bias, const View* residual,
                                 UnaryKind activation) {
  const View& y = call.out[i];
  const int leading = call.in[0].rank - 1;
  return {&y,
          bias,
          residual,
          leading,
          activation,
          out_rows(call, i, leading),
          RowOffsets(residual != nullptr ? *residual : y, leading)};
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
  if (out.bias != nullptr && count > 0)
    sums += read_columns(*out.bias, n * out.bias->strides[0], out.bias->strides[0], count);
  return gate != nullptr ? activate(out.activation, *gate) * sums : sums;
}

// y[row, n .. n + kLanes), as far as there are columns, from one vector of results, plus the residual.
static inline void write_columns(const Output& out, int64_t columns, int64_t row, int64_t n, VecF sums) {
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

// One unit of columns.
struct Unit {
  const PackedLayout& w;
  const uint8_t* data;
  const uint8_t* gate;  // null: none
  int panels;
  int64_t column;  // of y
  int vectors() const { return panels * kPanelVectors; }
};

// Where vectors of a unit's columns go in rows of y, and what is added to them: in place for floats side by side.
struct Target {
  const Unit& u;
  const Output& out;
  int64_t first;  // column
  bool whole;     // all vectors are full, and are written as they are

  Target(const Unit& unit, const Output& output, int v0, int vectors)
      : u(unit), out(output), first(unit.column + v0 * kLanes) {
    auto plain = [&](const View& v) { return v.type == DType::kF32 && v.strides[out.leading] == 1; };
    whole = first + vectors * kLanes <= u.w.n && plain(*out.y) && (out.residual == nullptr || plain(*out.residual));
  }
  float* y(int64_t row) const { return out.y->as<float>() + out.y_rows[row] + first; }
  const float* residual(int64_t row) const { return out.residual->as<const float>() + out.residual_rows[row] + first; }
};

// Asks for the places of a unit in rows [row, row + height) before its products are computed: two lines of every row,
// too far apart for the CPU to guess (a third of what write_sums took in a prompt of 512 rows and 1,536 columns).
static inline void prefetch_places(const Unit& u, const Output& out, int64_t row, int64_t height) {
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
static inline void write_sums(const Unit& u, const Output& out, int64_t row, int64_t height, int v0, int vectors,
                              int64_t columns, const float* sums, const float* gate) {
  const Target target(u, out, v0, vectors);
  if (!target.whole) {
    for (int64_t m = 0; m < height; ++m) {
      for (int v = 0; v < vectors; ++v) {
        const int64_t n = target.first + v * kLanes, at = m * columns + v * kLanes;
        const VecF g = u.gate != nullptr ? load(gate + at) : VecF{};
        write_columns(out, u.w.n, row + m, n,
                      finish_sums(out, u.w.n, n, load(sums + at), u.gate != nullptr ? &g : nullptr));
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
  if (u.gate == nullptr)
    rows([](int64_t, VecF x) __attribute__((always_inline)) { return x; });
  else
    rows([&](int64_t at, VecF x)
             __attribute__((always_inline)) { return activate(out.activation, load(gate + at)) * x; });
}
static_assert(kTileVectors <= kUnitVectors);

}  // namespace SITU_ISA
}  // namespace situ
