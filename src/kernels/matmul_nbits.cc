// com.microsoft.MatMulNBits: y [.., N] = a [.., K] * w^T + bias, w [N, K] quantised in blocks along K.
//
// Threads split N. Rows of a are laid out (or quantised) by each thread into its scratch, as many as fit; then
// blocks of columns meet groups of rows, so that both stay in L1.
#include "kernels/nbits_float.h"
#include "kernels/nbits_int8.h"
#include "kernels/packed_layout.h"

namespace situ {
namespace SITU_ISA {
namespace {

struct Output {
  const View* y;
  const View* bias;  // null: none
  int leading;       // dims in front of N
};

void write_sums(const Output& out, int64_t row, int64_t n, int rows, int columns, const float* sums) {
  const int64_t step = out.y->strides[out.leading];
  for (int r = 0; r < rows; ++r) {
    const int64_t at = row_offset(*out.y, out.leading, row + r) + n * step;
    for (int c = 0; c < columns; ++c) {
      float sum = sums[r * columns + c];
      if (out.bias != nullptr) sum += read_float(out.bias->data, out.bias->type, (n + c) * out.bias->strides[0]);
      write_float(out.y->data, out.y->type, at + c * step, sum);
    }
  }
}

// What differs between the two modes: how a group of R rows meets C columns.
template <int Bits>
struct FloatMode {
  const NBitsWeights& w;
  FloatRows rows;

  static int64_t row_bytes(const NBitsWeights& w) { return FloatRows::floats_per_row(w) * 4; }
  static int64_t fixed_bytes(const NBitsWeights&) { return 0; }
  FloatMode(const NBitsWeights& weights, std::byte* scratch) : w(weights) {
    rows.x = reinterpret_cast<float*>(scratch);
    rows.lane_sums = rows.x + w.chunks * kLanes * (32 / Bits);
    rows.row_floats = FloatRows::floats_per_row(w);
  }
  void load_row(const View& a, int64_t offset, int64_t slot) {
    lay_out_row(w, a.data, a.type, offset, a.strides[a.rank - 1], rows.x + slot * rows.row_floats,
                rows.lane_sums + slot * rows.row_floats);
  }
  template <int R, int C>
  void dots(int64_t slot, const NBitsColumn* columns, float* sums) const {
    if (w.symmetric())
      float_dots<Bits, R, C, true>(w, rows, slot, columns, sums);
    else
      float_dots<Bits, R, C, false>(w, rows, slot, columns, sums);
  }
};

template <int Bits>
struct Int8Mode {
  const NBitsWeights& w;
  Int8Rows rows;
  float* converted;
  int8_t* bytes;

  static int64_t row_bytes(const NBitsWeights& w) { return Int8Rows::bytes_per_row(w); }
  // A row as floats, and a block (or a chunk) of quantised values; both read in whole vectors.
  static int64_t block_bytes(const NBitsWeights& w) {
    const int64_t chunk = kLanes * (32 / Bits);
    return w.block > chunk ? w.block : chunk;
  }
  static int64_t fixed_bytes(const NBitsWeights& w) { return (w.k + kLanes) / kLanes * kVectorBytes + block_bytes(w); }
  Int8Mode(const NBitsWeights& weights, std::byte* scratch) : w(weights) {
    converted = reinterpret_cast<float*>(scratch);
    bytes = reinterpret_cast<int8_t*>(scratch) + (w.k + kLanes) / kLanes * kVectorBytes;
    rows.q = bytes + block_bytes(w);
    rows.lane_sums = reinterpret_cast<float*>(rows.q + w.chunks * kPlanes<Bits> * kVectorBytes);
    rows.scales = rows.lane_sums + w.chunks * kLanes;
    rows.row_bytes = Int8Rows::bytes_per_row(w);
  }
  void load_row(const View& a, int64_t offset, int64_t slot) {
    const int64_t step = a.strides[a.rank - 1];
    const float* x = converted;
    if (a.type == DType::kF32 && step == 1)
      x = a.as<const float>() + offset;
    else
      read_row(a.data, a.type, offset, step, w.k, converted);
    quantize_row<Bits>(w, x, rows.q + slot * rows.row_bytes, const_cast<float*>(rows.row_sums(slot)),
                       const_cast<float*>(rows.row_scales(slot)), bytes);
  }
  template <int R, int C>
  void dots(int64_t slot, const NBitsColumn* columns, float* sums) const {
    if (w.symmetric())
      int8_dots<Bits, R, C, true>(w, rows, slot, columns, sums);
    else
      int8_dots<Bits, R, C, false>(w, rows, slot, columns, sums);
  }
};

constexpr int64_t kMaxColumns = 32;          // in one block
constexpr int64_t kColumnBytes = 64 * 1024;  // for their converted scales and zeros

template <int R, int C, typename Mode>
void group(const Mode& mode, const Output& out, int64_t row, int64_t slot, int64_t n, const NBitsColumn* columns) {
  float sums[R * C];
  mode.template dots<R, C>(slot, columns, sums);
  write_sums(out, row + slot, n, R, C, sums);
}

// R rows from `slot` on with a block of columns: the rows stay in L1 meanwhile.
template <int R, typename Mode>
void row_group(const Mode& mode, const Output& out, int64_t row, int64_t slot, int64_t n, int64_t count,
               const NBitsColumn* columns) {
  constexpr int C = R == 1 ? 4 : 2;
  int64_t c = 0;
  for (; c + C <= count; c += C) group<R, C>(mode, out, row, slot, n + c, columns + c);
  for (; c < count; ++c) group<R, 1>(mode, out, row, slot, n + c, columns + c);
}

// Rows [row, row + rows), which are laid out, with the columns [n, n + count).
template <typename Mode>
void column_block(const Mode& mode, const Output& out, int64_t row, int64_t rows, int64_t n, int64_t count,
                  float* buffer) {
  constexpr int kRows = kVectorRegisters == 32 ? 8 : 4;
  NBitsColumn columns[kMaxColumns];
  for (int64_t c = 0; c < count; ++c) columns[c] = nbits_column(mode.w, n + c, buffer + c * column_floats(mode.w));
  int64_t slot = 0;
  for (; slot + kRows <= rows; slot += kRows) row_group<kRows>(mode, out, row, slot, n, count, columns);
  for (; slot + 4 <= rows; slot += 4) row_group<4>(mode, out, row, slot, n, count, columns);
  for (; slot + 2 <= rows; slot += 2) row_group<2>(mode, out, row, slot, n, count, columns);
  for (; slot < rows; ++slot) row_group<1>(mode, out, row, slot, n, count, columns);
}

// False: not even one row fits the scratch.
template <typename Mode>
bool run_mode(const NBitsWeights& w, const View& a, const Output& out, int64_t rows, int64_t n0, int64_t n1,
              std::byte* scratch) {
  int64_t block = kColumnBytes / (column_floats(w) * 4);
  block = block > kMaxColumns ? kMaxColumns : (block < 4 ? 4 : block);
  const int64_t buffer_bytes = (block * column_floats(w) * 4 + 63) / 64 * 64;
  const int64_t fit = (kScratchBytes - buffer_bytes - Mode::fixed_bytes(w)) / Mode::row_bytes(w);
  if (fit < 1) return false;
  float* buffer = reinterpret_cast<float*>(scratch);
  Mode mode(w, scratch + buffer_bytes);
  for (int64_t row = 0; row < rows; row += fit) {
    const int64_t count = rows - row < fit ? rows - row : fit;
    for (int64_t slot = 0; slot < count; ++slot) {
      mode.load_row(a, row_offset(a, a.rank - 1, row + slot), slot);
    }
    for (int64_t n = n0; n < n1; n += block) {
      column_block(mode, out, row, count, n, n1 - n < block ? n1 - n : block, buffer);
    }
  }
  return true;
}

// Rows too long for the scratch (beyond some 100,000 elements), digits in a table and groups in any order: one weight
// at a time.
struct PlainMode {
  const float* table;  // null: digits are numbers
  const View* groups;  // null: k / block
  bool high_first;

  bool wanted() const { return table != nullptr || groups != nullptr || high_first; }
  int64_t group(const NBitsWeights& w, int64_t k) const {
    if (groups == nullptr) return k / w.block;
    return groups->type == DType::kI64 ? groups->as<const int64_t>()[k] : groups->as<const int32_t>()[k];
  }
};

void run_plain(const NBitsWeights& w, const PlainMode& mode, const View& a, const Output& out, int64_t rows, int64_t n0,
               int64_t n1) {
  const int64_t per_byte = 8 / w.bits, step = a.strides[a.rank - 1];
  const uint32_t mask = (1u << w.bits) - 1;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t from = row_offset(a, a.rank - 1, row);
    for (int64_t n = n0; n < n1; ++n) {
      float sum = 0;
      for (int64_t k = 0; k < w.k; ++k) {
        const int64_t b = mode.group(w, k);
        float zero = static_cast<float>(1 << (w.bits - 1));
        if (w.packed_zeros != nullptr) {
          zero = static_cast<float>((w.packed_zeros[n * w.zero_bytes + b * w.bits / 8] >> (b * w.bits % 8)) & mask);
        } else if (w.float_zeros != nullptr) {
          zero = read_float(w.float_zeros, w.zero_type, n * w.blocks + b);
        }
        const int64_t place = mode.high_first ? per_byte - 1 - k % per_byte : k % per_byte;
        const uint32_t q = (w.q[n * w.row_bytes + k / per_byte] >> (place * w.bits)) & mask;
        const float digit = mode.table != nullptr ? mode.table[q] : static_cast<float>(q) - zero;
        sum +=
            read_float(a.data, a.type, from + k * step) * digit * read_float(w.scales, w.scale_type, n * w.blocks + b);
      }
      write_sums(out, row, n, 1, 1, &sum);
    }
  }
}

template <int Bits>
void run_bits(const NBitsWeights& w, const MatMulNBitsParams& params, const View& a, const Output& out, int64_t rows,
              int64_t n0, int64_t n1, std::byte* scratch) {
  if (rounds_activations(w, params.accuracy_level) && run_mode<Int8Mode<Bits>>(w, a, out, rows, n0, n1, scratch))
    return;
  if (!run_mode<FloatMode<Bits>>(w, a, out, rows, n0, n1, scratch)) run_plain(w, {}, a, out, rows, n0, n1);
}

}  // namespace

void matmul_nbits(const KernelCall& call, int thread, int threads) {
  const MatMulNBitsParams& params = *static_cast<const MatMulNBitsParams*>(call.params);
  const NBitsWeights w = nbits_weights(call, params);
  const View& a = call.in[0];
  const Output out{&call.out[0], call.in_count > 5 && call.in[5].present() ? &call.in[5] : nullptr, a.rank - 1};
  const int64_t rows = count_dims(a, 0, a.rank - 1);
  int64_t n0, n1;
  split_range((w.n + kSplitGrain - 1) / kSplitGrain, thread, threads, &n0, &n1);
  n0 *= kSplitGrain;
  n1 = n1 * kSplitGrain < w.n ? n1 * kSplitGrain : w.n;
  if (rows == 0 || n0 >= n1) return;
  const PlainMode plain{digits_of(params.table), call.in_count > 4 && call.in[4].present() ? &call.in[4] : nullptr,
                        params.high_first};
  if (plain.wanted()) return run_plain(w, plain, a, out, rows, n0, n1);
  if (w.bits == 4)
    run_bits<4>(w, params, a, out, rows, n0, n1, call.scratch);
  else if (w.bits == 8)
    run_bits<8>(w, params, a, out, rows, n0, n1, call.scratch);
  else
    run_bits<2>(w, params, a, out, rows, n0, n1, call.scratch);
}

}  // namespace SITU_ISA
}  // namespace situ
