// situ.ExpertMatMul: products of experts on weights as a file has them, floats of any strides or digits in blocks.
// Where they can be, weights are packed instead (packed_matmul.cc, dense_matmul.cc): here every column is laid out as
// floats before it meets its rows.
#include "kernels/experts.h"

namespace situ {
namespace SITU_ISA {
namespace {

// The weights of one expert.
struct Matrix {
  const View* w;       // [N, K] or [K, N] floats, or digits
  int64_t offset = 0;  // elements, of a stack
  const View* scales = nullptr;
  const View* zeros = nullptr;  // null: half of the range
  int64_t scale_offset = 0, zero_offset = 0;
};

Matrix matrix_of(const KernelCall& call, const ExpertMatMulParams& p, int64_t expert) {
  constexpr int kFirst = 3;
  const bool stacked = call.in_count - kFirst <= p.operands();
  const View* w = call.in + kFirst + (stacked ? 0 : expert * p.operands());
  const int64_t in_stack = stacked ? expert : 0;
  Matrix m{w};
  if (p.bits == 0) {
    m.offset = w->rank == 3 ? in_stack * w->strides[0] : 0;
    return m;
  }
  m.offset = in_stack * p.n * p.column_bytes();
  m.scales = w + 1;
  m.scale_offset = in_stack * p.n * p.blocks();
  m.zeros = w + 2 < call.in + call.in_count && w[2].present() ? w + 2 : nullptr;
  if (m.zeros != nullptr) m.zero_offset = in_stack * (m.zeros->type == DType::kU8 ? p.zero_bytes() : p.n * p.blocks());
  return m;
}

SITU_INLINE float digit_of(const uint8_t* bytes, int64_t i, int32_t bits) {
  return static_cast<float>(bytes[i * bits / 8] >> (i * bits % 8) & ((1 << bits) - 1));
}

// Column n as floats.
void read_column(const ExpertMatMulParams& p, const Matrix& m, int64_t n, float* column) {
  if (p.bits == 0) {
    const int last = m.w->rank - 1, k_axis = p.transposed ? last : last - 1, n_axis = p.transposed ? last - 1 : last;
    return read_row(m.w->data, m.w->type, m.offset + n * m.w->strides[n_axis], m.w->strides[k_axis], p.k, column);
  }
  const uint8_t* bytes = m.w->as<const uint8_t>() + m.offset + n * p.column_bytes();
  const int64_t block = p.block > 0 ? p.block : p.k, blocks = p.blocks();
  for (int64_t b = 0; b < blocks; ++b) {
    const float scale = read_float(m.scales->data, m.scales->type, m.scale_offset + n * blocks + b);
    float zero = static_cast<float>(1 << (p.bits - 1));
    if (m.zeros != nullptr && m.zeros->type != DType::kU8) {
      zero = read_float(m.zeros->data, m.zeros->type, m.zero_offset + n * blocks + b);
    } else if (m.zeros != nullptr) {
      const uint8_t* digits = m.zeros->as<const uint8_t>() + m.zero_offset;
      zero = p.block > 0 ? digit_of(digits + n * ((blocks * p.bits + 7) / 8), b, p.bits) : digit_of(digits, n, p.bits);
    }
    for (int64_t i = b * block; i < (b + 1) * block && i < p.k; ++i)
      column[i] = (digit_of(bytes, i, p.bits) - zero) * scale;
  }
}

float dot(const float* x, const float* w, int64_t k) {
  VecF sum{};
  int64_t i = 0;
  for (; i + kLanes <= k; i += kLanes) sum += load(x + i) * load(w + i);
  if (i < k) sum += load_n(x + i, k - i) * load_n(w + i, k - i);
  return sum_lanes(sum);
}

}  // namespace

void expert_matmul(const KernelCall& call, int thread, int threads) {
  const auto& p = *static_cast<const ExpertMatMulParams*>(call.params);
  const View &x = call.in[0], &y = call.out[0];
  const int64_t row_floats = (p.k + kLanes) / kLanes * kLanes;
  auto* column = reinterpret_cast<float*>(call.scratch + kRoutingBytes);
  float* rows_of_x = column + row_floats;
  const int64_t fit = (kThreadScratchBytes - kRoutingBytes) / 4 / row_floats - 1;  // prepare admits no longer rows
  each_expert(call, p.experts, p.n, thread, threads, [&](const ExpertRows& rows, int64_t n0, int64_t n1) {
    const Matrix m = matrix_of(call, p, rows.expert);
    const View bias = expert_bias(call, rows.expert);
    for (int64_t first = 0; first < rows.count; first += fit) {
      const int64_t count = rows.count - first < fit ? rows.count - first : fit;
      for (int64_t r = 0; r < count; ++r)
        read_row(x.data, x.type, rows.x[first + r], x.strides[x.rank - 1], p.k, rows_of_x + r * row_floats);
      for (int64_t n = n0; n < n1; ++n) {
        read_column(p, m, n, column);
        const float added = bias.present() ? read_float(bias.data, bias.type, n * bias.strides[0]) : 0.0f;
        for (int64_t r = 0; r < count; ++r)
          write_float(y.data, y.type, rows.y[first + r] + n * y.strides[y.rank - 1],
                      dot(rows_of_x + r * row_floats, column, p.k) + added);
      }
    }
  });
}

}  // namespace SITU_ISA
}  // namespace situ
