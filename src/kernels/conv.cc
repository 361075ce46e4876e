// conv: y[n, m, o] = b[m] + sum over c, k of w[m, c, k] x[n, g C + c, o * stride + k * dilation - pad], where o and k
// have one to three axes and m is of group g. x [N, G C, D..], w [M, C, K..], b [M], y [N, M, O..], all float32; what
// lies in the padding counts as 0. Source: ONNX Conv.
//
// What output positions see of x is gathered into scratch, so many positions at a time as fit; their products with the
// rows of w run in register tiles, of panels of columns that are transposed once for all of these positions. All sums
// are in the order of w's numbers, however threads share the positions.
#include "kernels/conv_patch.h"
#include "kernels/tile.h"

namespace situ {
namespace SITU_ISA {
namespace {

constexpr int64_t kSliceDepth = 256;     // of a panel: 32 KiB
constexpr int64_t kMostPositions = 240;  // a multiple of kTileRows

// One thread's scratch: places of the outputs, sums, a panel, and patches [positions][depth].
struct Work {
  int64_t* places;
  float *sums, *panel, *patches;
  int64_t positions;
};
Work lay_out(std::byte* scratch, int64_t depth) {
  Work w;
  w.places = reinterpret_cast<int64_t*>(scratch);
  w.sums = reinterpret_cast<float*>(w.places + kMostPositions);
  w.panel = w.sums + kMostPositions * kTileColumns;
  w.patches = w.panel + kSliceDepth * kTileColumns;
  const int64_t fit = (kScratchBytes - (reinterpret_cast<std::byte*>(w.patches) - scratch)) / (depth * 4);
  w.positions = fit < kMostPositions ? fit : kMostPositions;
  if (w.positions >= kTileRows) w.positions -= w.positions % kTileRows;
  return w;
}

// panel [count][kTileColumns] = numbers [first, first + count) of rows m, m + 1 .. of w, zero beyond `columns` of them.
void transpose_rows(const View& w, int axes, int64_t m, int64_t columns, int64_t depth, int64_t first, int64_t count,
                    float* panel) {
  int64_t done = 0;
  const bool dense = w.contiguous();
  if (dense)
    done = transpose_columns(count, columns, panel, [&](int64_t j) __attribute__((always_inline)) {
      return w.as<const float>() + (m + j) * depth + first;
    });
  for (int64_t k = done; k < count; ++k) {
    int64_t rest = first + k, at = dense ? rest : 0;
    for (int a = dense ? 0 : axes; a-- > 0;) {
      at += rest % w.dims[2 + a] * w.strides[2 + a];
      rest /= w.dims[2 + a];
    }
    if (!dense) at += rest * w.strides[1];
    for (int64_t j = 0; j < kTileColumns; ++j)
      panel[k * kTileColumns + j] = j < columns ? w.as<const float>()[(m + j) * w.strides[0] + at] : 0.0f;
  }
}

}  // namespace

void conv(const KernelCall& call, int thread, int threads) {
  const ConvParams& c = *static_cast<const ConvParams*>(call.params);
  const View &x = call.in[0], &w = call.in[1], &y = call.out[0];
  const View* bias = call.in_count > 2 && call.in[2].present() ? &call.in[2] : nullptr;
  const int64_t groups = c.groups, rows = w.dims[0] / groups;
  int64_t depth = 1, outs = 1;
  for (int i = 1; i < w.rank; ++i) depth *= w.dims[i];
  for (int a = 0; a < c.axes; ++a) outs *= y.dims[2 + a];
  const Work work = lay_out(call.scratch, depth);
  int64_t begin, end;
  split_range(x.dims[0] * groups * outs, thread, threads, &begin, &end);
  while (begin < end) {
    int64_t count = outs - begin % outs;  // of one group
    count = count < end - begin ? count : end - begin;
    count = count < work.positions ? count : work.positions;
    const int64_t group = begin / outs % groups;
    for (int64_t i = 0; i < count; ++i) {
      const Position p = position_of(y, c.axes, groups, begin + i);
      gather_patch<float>(c, x, w, p, 0.0f, work.patches + i * depth);
      work.places[i] = p.batch * y.strides[0];
      for (int a = 0; a < c.axes; ++a) work.places[i] += p.at[a] * y.strides[2 + a];
    }
    for (int64_t m = group * rows; m < (group + 1) * rows; m += kTileColumns) {
      const int64_t left = (group + 1) * rows - m, columns = left < kTileColumns ? left : kTileColumns;
      for (int64_t k = 0; k < depth; k += kSliceDepth) {
        const int64_t slice = depth - k < kSliceDepth ? depth - k : kSliceDepth;
        transpose_rows(w, c.axes, m, columns, depth, k, slice, work.panel);
        tile_rows(count, slice, work.patches + k, depth, work.panel, kTileColumns, work.sums, kTileColumns, k > 0);
      }
      for (int64_t j = 0; j < columns; ++j) {
        const float b = bias != nullptr ? bias->as<const float>()[(m + j) * bias->strides[0]] : 0.0f;
        float* to = y.as<float>() + (m + j) * y.strides[1];
        for (int64_t i = 0; i < count; ++i) to[work.places[i]] = work.sums[i * kTileColumns + j] + b;
      }
    }
    begin += count;
  }
}

}  // namespace SITU_ISA
}  // namespace situ
