// matmul_integer: y int32 [.., M, N] = (a - za) [.., M, K] * (b - zb) [.., K, N], batches broadcast; a, b uint8 or
// int8; za one number or [.., M, 1], zb one number or [.., 1, N] (vectors: [M], [N]), 0 where absent. Sums wrap as
// int32. Source: ONNX MatMulInteger. Any strides: what exports do with constant weights is fused
// (passes/lower/fuse_integer.cc).
#include "kernels/nbits_int8.h"
#include "kernels/product.h"

namespace situ {
namespace SITU_ISA {
namespace {

constexpr int64_t kColumns =
    512;                  // of a row at a time: their sums stay in the nearest cache, and pages of b are read whole
constexpr int kRows = 4;  // at a time

SITU_INLINE int32_t byte_at(const View& v, int64_t i) {
  return v.type == DType::kI8 ? v.as<const int8_t>()[i] : v.as<const uint8_t>()[i];
}

// Strides of a zero point over the batch dims of y and over its rows or columns (`last`: columns).
struct Zeros {
  const View* view = nullptr;
  int64_t batch[kMaxRank] = {};
  int64_t step = 0;

  Zeros(const View* v, const View& y, bool columns) : view(v) {
    if (v == nullptr || v->count() == 1) return;
    if (v->rank == 1) {
      step = v->strides[0];
      return;
    }
    for (int i = 0; i + 2 < y.rank; ++i) {
      const int own = i - (y.rank - v->rank);
      batch[i] = own < 0 || v->dims[own] == 1 ? 0 : v->strides[own];
    }
    const int axis = v->rank - (columns ? 1 : 2);
    step = v->dims[axis] == 1 ? 0 : v->strides[axis];
  }
  int32_t at(int64_t start, int64_t i) const { return view == nullptr ? 0 : byte_at(*view, start + i * step); }
};

// R rows of a, at `a_at`, with zero points za, times `count` <= kColumns columns. b has unit stride along them where
// `Dense`. sums [R, kColumns].
template <typename B, bool Dense, int R>
void rows_of(const View& a, const int64_t* a_at, int64_t a_k, const int32_t* za, const B* b, int64_t b_k, int64_t b_n,
             const int32_t* zb, int64_t k, int64_t count, uint32_t* sums) {
  typedef VecU Unaligned __attribute__((aligned(4), may_alias));
  uint32_t row_sums[R] = {};
  for (int64_t i = 0; i < R * kColumns; ++i) sums[i] = 0;
  for (int64_t i = 0; i < k; ++i) {
    int32_t x[R];
    for (int r = 0; r < R; ++r) {
      x[r] = byte_at(a, a_at[r] + i * a_k) - za[r];
      row_sums[r] += static_cast<uint32_t>(x[r]);
    }
    const B* w = b + i * b_k;
    int64_t j = 0;
    if constexpr (Dense) {
      for (; j + kLanes <= count; j += kLanes) {
        const VecI weights = load_bytes(w + j);
        for (int r = 0; r < R; ++r) *reinterpret_cast<Unaligned*>(sums + r * kColumns + j) += (VecU)(weights * x[r]);
      }
    }
    for (; j < count; ++j)
      for (int r = 0; r < R; ++r)
        sums[r * kColumns + j] += static_cast<uint32_t>(x[r]) * static_cast<uint32_t>(static_cast<int32_t>(w[j * b_n]));
  }
  for (int r = 0; r < R; ++r)
    for (int64_t j = 0; j < count; ++j) sums[r * kColumns + j] -= row_sums[r] * static_cast<uint32_t>(zb[j]);
}

}  // namespace

void matmul_integer(const KernelCall& call, int thread, int threads) {
  const View &a = call.in[0], &b = call.in[1], &y = call.out[0];
  const auto optional = [&](int i) { return call.in_count > i && call.in[i].present() ? &call.in[i] : nullptr; };
  const Zeros rows(optional(2), y, false), columns(optional(3), y, true);
  const int a_last = a.rank - 1, b_last = b.rank - 1;
  const int64_t m = a.dims[a_last - 1], n = b.dims[b_last], k = a.dims[a_last];
  const int64_t blocks = (n + kColumns - 1) / kColumns, total = count_dims(y, 0, y.rank - 2) * m;
  const int64_t a_k = a.strides[a_last], b_k = b.strides[b_last - 1], b_n = b.strides[b_last];
  uint32_t* sums = reinterpret_cast<uint32_t*>(call.scratch);
  // Blocks of columns outside: a thread keeps the weights of one near while rows pass.
  int64_t begin, end;
  split_range(total * blocks, thread, threads, &begin, &end);
  for (int64_t unit = begin; unit < end;) {
    const int64_t block = unit / total, row = unit % total, first = block * kColumns;
    const int64_t count = n - first < kColumns ? n - first : kColumns;
    int64_t rest = row / m, a_at[kRows], b_at = first * b_n, za_at = 0, zb_at = 0, a_batch = 0,
            y_at = row % m * y.strides[y.rank - 2] + first * y.strides[y.rank - 1];
    for (int i = y.rank - 3; i >= 0; --i) {
      const int64_t index = rest % y.dims[i];
      rest /= y.dims[i];
      const int in_a = i - (y.rank - a.rank), in_b = i - (y.rank - b.rank);
      if (in_a >= 0 && a.dims[in_a] != 1) a_batch += index * a.strides[in_a];
      if (in_b >= 0 && b.dims[in_b] != 1) b_at += index * b.strides[in_b];
      za_at += index * rows.batch[i];
      zb_at += index * columns.batch[i];
      y_at += index * y.strides[i];
    }
    int32_t zb[kColumns], za[kRows];
    for (int64_t j = 0; j < count; ++j) zb[j] = columns.at(zb_at, first + j);
    const bool four = row % m + kRows <= m && unit + kRows <= end;  // of one batch and block
    const int height = four ? kRows : 1;
    for (int r = 0; r < height; ++r) {
      a_at[r] = a_batch + (row % m + r) * a.strides[a_last - 1];
      za[r] = rows.at(za_at, row % m + r);
    }
    const auto run = [&]<typename B>(const B* weights) {
      const auto times = [&]<bool Dense, int R>() {
        rows_of<B, Dense, R>(a, a_at, a_k, za, weights + b_at, b_k, b_n, zb, k, count, sums);
      };
      if (b_n == 1)
        four ? times.template operator()<true, kRows>() : times.template operator()<true, 1>();
      else
        four ? times.template operator()<false, kRows>() : times.template operator()<false, 1>();
    };
    if (b.type == DType::kI8)
      run(b.as<const int8_t>());
    else
      run(b.as<const uint8_t>());
    for (int r = 0; r < height; ++r)
      for (int64_t j = 0; j < count; ++j)
        y.as<int32_t>()[y_at + r * y.strides[y.rank - 2] + j * y.strides[y.rank - 1]] =
            static_cast<int32_t>(sums[r * kColumns + j]);
    unit += height;
  }
}

}  // namespace SITU_ISA
}  // namespace situ
