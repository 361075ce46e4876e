// Matrix products with any strides. float, half and bfloat16 (mixed freely) are computed in float.
//
// | shape                           | path         | b is read                                        |
// | M <= 4, b [K, N] row-major      | stream_rows  | once, eight rows at a time, each front to back   |
// | M <= 24, b transposed           | dot_products | once per four rows of a                          |
// | anything else                   | tiles        | once per 512 rows of a, packed in panels         |
#include "kernels/dots.h"
#include "kernels/product.h"
#include "kernels/product_exact.h"
#include "kernels/tile.h"

namespace situ {
namespace SITU_ISA {
namespace {

// Few rows: below this a product is bound by reading b.
constexpr int64_t kFewRows = 4;
// With b transposed (unit stride on k), packing costs more than it saves up to this many rows, unless the dot
// products are so short that summing their lanes costs more. K 576, N 1536, one AVX-512 core: 106 GFLOP/s by dot
// products at M 16; at M 128 134 against 150 in tiles.
constexpr int64_t kMaxDotRows = 24;
constexpr int64_t kMinDotDepth = 128;

// y[m, n0 .. n0 + count) = alpha * acc + beta * c; overwrites acc.
void finish_row(const Product& p, const BatchOffsets& at, int64_t m, int64_t n0, int64_t count, float* acc) {
  while (count > 0) {
    constexpr int64_t kSpan = 256;
    int64_t span = p.group - n0 % p.group;
    span = span < count ? span : count;
    if (p.c != nullptr && span > kSpan) span = kSpan;
    if (p.alpha != 1) {
      for (int64_t i = 0; i < span; ++i) acc[i] *= p.alpha;
    }
    if (p.c != nullptr) {
      float addend[kSpan];
      read_row(p.c->data, p.c->type, at.c + m * p.c_m + c_column(p, n0), p.c_n, span, addend);
      for (int64_t i = 0; i < span; ++i) acc[i] += p.beta * addend[i];
    }
    write_row(p.y->data, p.y->type, at.y + m * p.y_m + y_column(p, n0), p.y_n, span, acc);
    acc += span;
    n0 += span;
    count -= span;
  }
}

SITU_INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// Row `m` of a as floats [k0, k0 + count): in place, or converted into `buffer`.
const float* row_of_a(const Product& p, const BatchOffsets& at, int64_t m, int64_t k0, int64_t count, float* buffer) {
  const int64_t offset = at.a + m * p.a_m + k0 * p.a_k;
  if (p.a->type == DType::kF32 && p.a_k == 1) return p.a->as<const float>() + offset;
  read_row(p.a->data, p.a->type, offset, p.a_k, count, buffer);
  return buffer;
}

// -- stream_rows
constexpr int64_t kStreamColumns = 1024;  // sums of four rows: 16 KiB of L1
constexpr int64_t kStreamDepth = 512;

// acc[r, j] += sum of U rows of b: b is read front to back in U streams, acc stays in L1.
template <int R, int U, typename T>
SITU_INLINE void add_rows(const float* a, int64_t a_row, const T* b, int64_t b_k, int64_t count, float* acc) {
  VecF x[R][U];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int u = 0; u < U; ++u) x[r][u] = splat(a[r * a_row + u]);
  }
  int64_t j = 0;
  for (; j + kLanes <= count; j += kLanes) {
    VecF sum[R];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) sum[r] = load(acc + r * kStreamColumns + j);
#pragma GCC unroll 8
    for (int u = 0; u < U; ++u) {
      const VecF row = load(b + u * b_k + j);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) sum[r] += x[r][u] * row;
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) store(acc + r * kStreamColumns + j, sum[r]);
  }
  if (j == count) return;
  for (int r = 0; r < R; ++r) {
    VecF sum = load(acc + r * kStreamColumns + j);
    for (int u = 0; u < U; ++u) sum += x[r][u] * load_n(b + u * b_k + j, count - j);
    store(acc + r * kStreamColumns + j, sum);
  }
}

template <int R, typename T>
void stream_rows(const Product& p, const BatchOffsets& at, int64_t m0, int64_t n0, int64_t n1, float* scratch) {
  constexpr int kStreams = R <= 2 ? 8 : 4;  // R * kStreams broadcast values of a stay in registers
  float* acc = scratch;
  float* converted = scratch + R * kStreamColumns;
  const T* b = p.b->as<const T>() + at.b;
  for (int64_t n = n0; n < n1; n += kStreamColumns) {
    const int64_t count = smaller(n1 - n, kStreamColumns);
    for (int64_t i = 0; i < R * kStreamColumns; ++i) acc[i] = 0;
    for (int64_t k0 = 0; k0 < p.k; k0 += kStreamDepth) {
      const int64_t depth = smaller(p.k - k0, kStreamDepth);
      for (int r = 0; r < R; ++r) {
        read_row(p.a->data, p.a->type, at.a + (m0 + r) * p.a_m + k0 * p.a_k, p.a_k, depth,
                 converted + r * kStreamDepth);
      }
      const T* rows = b + k0 * p.b_k + n;
      int64_t k = 0;
      for (; k + kStreams <= depth; k += kStreams) {
        add_rows<R, kStreams>(converted + k, kStreamDepth, rows + k * p.b_k, p.b_k, count, acc);
      }
      for (; k < depth; ++k) add_rows<R, 1>(converted + k, kStreamDepth, rows + k * p.b_k, p.b_k, count, acc);
    }
    for (int r = 0; r < R; ++r) finish_row(p, at, m0 + r, n, count, acc + r * kStreamColumns);
  }
}

// -- dot_products
constexpr int64_t kDotDepth = 4096;
constexpr int64_t kDotColumns = 64;

template <int R, typename T>
void dot_rows(const Product& p, const BatchOffsets& at, int64_t m, int64_t n0, int64_t count, float* scratch) {
  float* converted = scratch;
  float sums[R * kDotColumns] = {};
  const T* b = p.b->as<const T>() + at.b + n0 * p.b_n;
  for (int64_t k = 0; k < p.k; k += kDotDepth) {
    const int64_t depth = smaller(p.k - k, kDotDepth);
    const float* a[R];
    for (int r = 0; r < R; ++r) a[r] = row_of_a(p, at, m + r, k, depth, converted + r * kDotDepth);
    int64_t c = 0;
    for (; c + 4 <= count; c += 4) dots<R, 4>(a, EvenRows<T>{b + c * p.b_n + k, p.b_n}, depth, sums + c, kDotColumns);
    for (; c < count; ++c) dots<R, 1>(a, EvenRows<T>{b + c * p.b_n + k, p.b_n}, depth, sums + c, kDotColumns);
  }
  for (int r = 0; r < R; ++r) finish_row(p, at, m + r, n0, count, sums + r * kDotColumns);
}

template <typename T>
void dot_products(const Product& p, const BatchOffsets& at, int64_t m0, int64_t m1, int64_t n0, int64_t n1,
                  float* scratch) {
  // With many rows, few columns at a time, so that they stay in L1 for all of them.
  const int64_t columns = m1 - m0 > kFewRows ? kDotColumns / 4 : kDotColumns;
  for (int64_t n = n0; n < n1; n += columns) {
    const int64_t count = smaller(n1 - n, columns);
    int64_t m = m0;
    for (; m + 4 <= m1; m += 4) dot_rows<4, T>(p, at, m, n, count, scratch);
    if (m + 2 <= m1) {
      dot_rows<2, T>(p, at, m, n, count, scratch);
      m += 2;
    }
    if (m < m1) dot_rows<1, T>(p, at, m, n, count, scratch);
  }
}

// -- tiles. Scratch: sums [512, 32] 64 KiB, panel of b [1024, 32] 128 KiB, rows of a [12, 1024] 48 KiB.
constexpr int64_t kTileBlockRows = 512;
constexpr int64_t kTileDepth = 1024;
static_assert((kTileBlockRows * kTileColumns + kTileDepth * kTileColumns + kTileRows * kTileDepth) * 4 <=
              kScratchBytes);

template <typename T>
void tiles(const Product& p, const BatchOffsets& at, int64_t m0, int64_t m1, int64_t n0, int64_t n1, float* scratch) {
  float* sums = scratch;
  float* panel = sums + kTileBlockRows * kTileColumns;
  float* converted = panel + kTileDepth * kTileColumns;
  const bool a_in_place = p.a->type == DType::kF32 && p.a_k == 1;
  for (int64_t n = n0; n < n1; n += kTileColumns) {
    const int64_t columns = smaller(n1 - n, kTileColumns);
    for (int64_t block = m0; block < m1; block += kTileBlockRows) {
      const int64_t rows = smaller(m1 - block, kTileBlockRows);
      for (int64_t i = 0; p.k == 0 && i < rows * kTileColumns; ++i) sums[i] = 0;
      for (int64_t k = 0; k < p.k; k += kTileDepth) {
        const int64_t depth = smaller(p.k - k, kTileDepth);
        pack_panel(p.b->as<const T>() + at.b + k * p.b_k + n * p.b_n, p.b_k, p.b_n, depth, columns, panel);
        for (int64_t m = 0; m < rows; m += kTileRows) {
          const int64_t height = smaller(rows - m, kTileRows);
          const float* a = converted;
          int64_t a_row = kTileDepth;
          if (a_in_place) {
            a = p.a->as<const float>() + at.a + (block + m) * p.a_m + k;
            a_row = p.a_m;
          } else {
            for (int64_t r = 0; r < height; ++r) row_of_a(p, at, block + m + r, k, depth, converted + r * kTileDepth);
          }
          tile_rows(height, depth, a, a_row, panel, kTileColumns, sums + m * kTileColumns, kTileColumns, k > 0);
        }
      }
      for (int64_t m = 0; m < rows; ++m) finish_row(p, at, block + m, n, columns, sums + m * kTileColumns);
    }
  }
}

template <typename T>
void product_float(const Product& p, const BatchOffsets& at, int64_t m0, int64_t m1, int64_t n0, int64_t n1,
                   std::byte* bytes) {
  float* scratch = reinterpret_cast<float*>(bytes);
  const int64_t rows = m1 - m0;
  if (p.b_k == 1 && p.b_n != 1 && (rows <= kFewRows || (rows <= kMaxDotRows && p.k >= kMinDotDepth))) {
    return dot_products<T>(p, at, m0, m1, n0, n1, scratch);
  }
  if (rows > kFewRows || p.b_n != 1) return tiles<T>(p, at, m0, m1, n0, n1, scratch);
  if (rows == 4) return stream_rows<4, T>(p, at, m0, n0, n1, scratch);
  if (rows == 3) return stream_rows<3, T>(p, at, m0, n0, n1, scratch);
  if (rows == 2) return stream_rows<2, T>(p, at, m0, n0, n1, scratch);
  if (rows == 1) return stream_rows<1, T>(p, at, m0, n0, n1, scratch);
}

void product_part(const Product& p, const BatchOffsets& at, int64_t m0, int64_t m1, int64_t n0, int64_t n1,
                  std::byte* scratch) {
  if (m0 >= m1 || n0 >= n1) return;
  switch (p.b->type) {
    case DType::kF32:
      return product_float<float>(p, at, m0, m1, n0, n1, scratch);
    case DType::kF16:
      return product_float<Half>(p, at, m0, m1, n0, n1, scratch);
    case DType::kBF16:
      return product_float<BFloat>(p, at, m0, m1, n0, n1, scratch);
    case DType::kF64:
      return product_exact<double, double>(p, at, m0, m1, n0, n1);
    case DType::kI32:
      return product_exact<int32_t, uint32_t>(p, at, m0, m1, n0, n1);
    case DType::kU32:
      return product_exact<uint32_t, uint32_t>(p, at, m0, m1, n0, n1);
    case DType::kI64:
      return product_exact<int64_t, uint64_t>(p, at, m0, m1, n0, n1);
    case DType::kU64:
      return product_exact<uint64_t, uint64_t>(p, at, m0, m1, n0, n1);
    default:
      return;  // prepare refuses the rest
  }
}

// Threads take parts of [0, batches * blocks), where a block is `grain` columns (or rows).
void run_product(const Product& p, std::byte* scratch, int thread, int threads) {
  if (p.batches == 0 || p.m == 0 || p.n == 0) return;
  // Columns, so that every thread reads its own part of b; rows when there are too few columns to share.
  const int64_t column_blocks = (p.n + kTileColumns - 1) / kTileColumns;
  const bool by_rows = p.batches * column_blocks < 2 * threads && p.m >= 2 * kTileRows;
  const int64_t grain = by_rows ? kTileRows : (p.m <= kFewRows ? kSplitGrain : kTileColumns);
  const int64_t extent = by_rows ? p.m : p.n;
  const int64_t blocks = (extent + grain - 1) / grain;
  int64_t begin, end;
  split_range(p.batches * blocks, thread, threads, &begin, &end);
  while (begin < end) {
    const int64_t batch = begin / blocks, first = begin % blocks;
    const int64_t last = smaller(blocks, first + (end - begin));
    const BatchOffsets at = batch_offsets(p, batch);
    const int64_t from = first * grain, to = smaller(last * grain, extent);
    if (by_rows) {
      product_part(p, at, from, to, 0, p.n, scratch);
    } else {
      product_part(p, at, 0, p.m, from, to, scratch);
    }
    begin += last - first;
  }
}

}  // namespace

void matmul(const KernelCall& call, int thread, int threads) {
  const MatMulParams& params = *static_cast<const MatMulParams*>(call.params);
  const View* c = call.in_count > 2 && call.in[2].present() ? &call.in[2] : nullptr;
  const Product p = params.project ? make_projection(call.in[0], call.in[1], c, call.out[0], params)
                                   : make_product(call.in[0], call.in[1], c, call.out[0], params);
  run_product(p, call.scratch, thread, threads);
}

}  // namespace SITU_ISA
}  // namespace situ
