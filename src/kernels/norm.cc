// Norms over the last axes [axis..] and over one axis. float, half and bfloat16 are computed in float, double
// in double. Rows and what is inside a row may have any strides; y may be x.
#include "kernels/params.h"
#include "kernels/rows.h"

namespace situ {
namespace SITU_ISA {
namespace {

constexpr int64_t kChunk = 512;  // elements converted at a time

// Operand order in both nests.
enum { kX, kY, kScale, kBias, kMean, kInverse, kOperands };

struct NormCall {
  const KernelCall& call;
  const View *x, *y, *scale, *bias, *mean, *inverse;  // the last four may be null
  Nest outer, inner;
  int64_t size;  // elements normalised together
  double epsilon;
};

const View* present(const View* views, int count, int i) {
  return i < count && views[i].present() ? &views[i] : nullptr;
}

NormCall make_call(const KernelCall& call, bool with_mean) {
  const NormParams& params = *static_cast<const NormParams*>(call.params);
  NormCall n{call,
             &call.in[0],
             &call.out[0],
             present(call.in, call.in_count, 1),
             present(call.in, call.in_count, 2),
             with_mean ? present(call.out, call.out_count, 1) : nullptr,
             present(call.out, call.out_count, with_mean ? 2 : 1),
             {},
             {},
             1,
             params.epsilon};
  const View* views[kOperands] = {n.x, n.y, n.scale, n.bias, n.mean, n.inverse};
  n.outer.operands = n.inner.operands = kOperands;
  for (int i = 0; i < n.x->rank; ++i) {
    int64_t strides[kOperands];
    for (int k = 0; k < kOperands; ++k)
      strides[k] = views[k] == nullptr ? 0 : broadcast_stride(*views[k], i, n.x->rank);
    const bool outside = i < params.axis;
    nest_add_dim(outside ? &n.outer : &n.inner, n.x->dims[i], strides);
    if (!outside) n.size *= n.x->dims[i];
  }
  return n;
}

// Calls chunk(offsets, count, x) for the elements of the row whose operands start at `row`; x are floats.
template <typename Chunk>
SITU_INLINE void for_each_chunk(const NormCall& n, const int64_t* row, Chunk chunk) {
  const int64_t step = n.inner.step(kX);
  const bool in_place = n.x->type == DType::kF32 && step == 1;
  for_each_span(n.inner, 0, n.size, [&](const int64_t* offset, int64_t count) {
    float buffer[kChunk];
    for (int64_t i = 0; i < count; i += kChunk) {
      const int64_t part = count - i < kChunk ? count - i : kChunk;
      int64_t at[4];
      for (int k = 0; k < 4; ++k) at[k] = row[k] + offset[k] + i * n.inner.step(k);
      const float* x = buffer;
      if (in_place)
        x = n.x->as<const float>() + at[kX];
      else
        read_row(n.x->data, n.x->type, at[kX], step, part, buffer);
      chunk(at, part, x);
    }
  });
}

// Sum of (x - mean) (Power 1) or (x - mean)^2 (Power 2).
template <int Power>
SITU_INLINE float sum_row(const NormCall& n, const int64_t* row, float mean) {
  VecF total{};
  for_each_chunk(n, row, [&](const int64_t*, int64_t count, const float* x) {
    VecF a{}, b{};
    int64_t i = 0;
    for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
      const VecF u = load(x + i) - mean, v = load(x + i + kLanes) - mean;
      a += Power == 2 ? u * u : u;
      b += Power == 2 ? v * v : v;
    }
    for (; i < count; i += kLanes) {
      const int64_t left = count - i < kLanes ? count - i : kLanes;
      VecF u = load_n(x + i, left) - mean;
      u = lane_index() < static_cast<int32_t>(left) ? u : VecF{};
      a += Power == 2 ? u * u : u;
    }
    total += a + b;
  });
  return sum_lanes(total);
}

// out = (x - mean) * inverse * scale + bias
SITU_INLINE void write_chunk(const NormCall& n, const int64_t* at, int64_t count, const float* x, float mean,
                             float inverse) {
  float out[kChunk], factor[kChunk], addend[kChunk];
  for (int64_t i = 0; i < count; ++i) out[i] = (x[i] - mean) * inverse;
  if (n.scale != nullptr) {
    const float* f = factor;
    if (n.scale->type == DType::kF32 && n.inner.step(kScale) == 1)
      f = n.scale->as<const float>() + at[kScale];
    else
      read_row(n.scale->data, n.scale->type, at[kScale], n.inner.step(kScale), count, factor);
    for (int64_t i = 0; i < count; ++i) out[i] *= f[i];
  }
  if (n.bias != nullptr) {
    read_row(n.bias->data, n.bias->type, at[kBias], n.inner.step(kBias), count, addend);
    for (int64_t i = 0; i < count; ++i) out[i] += addend[i];
  }
  write_row(n.y->data, n.y->type, at[kY], n.inner.step(kY), count, out);
}

template <bool Centred>
void norm_row(const NormCall& n, const int64_t* row) {
  const float size = static_cast<float>(n.size);
  const float mean = Centred ? sum_row<1>(n, row, 0) / size : 0.0f;
  const float variance = sum_row<2>(n, row, mean) / size;
  const float inverse = 1.0f / __builtin_sqrtf(variance + static_cast<float>(n.epsilon));
  if (n.mean != nullptr) write_float(n.mean->data, n.mean->type, row[kMean], mean);
  if (n.inverse != nullptr) write_float(n.inverse->data, n.inverse->type, row[kInverse], inverse);
  for_each_chunk(
      n, row, [&](const int64_t* at, int64_t count, const float* x) { write_chunk(n, at, count, x, mean, inverse); });
}

double read_double(const View* v, int64_t at, double absent) {
  if (v == nullptr) return absent;
  return v->type == DType::kF64 ? v->as<const double>()[at] : read_float(v->data, v->type, at);
}
void write_double(const View* v, int64_t at, double x) {
  if (v == nullptr) return;
  if (v->type == DType::kF64)
    v->as<double>()[at] = x;
  else
    write_float(v->data, v->type, at, static_cast<float>(x));
}

template <typename Element>
void for_each_element(const NormCall& n, const int64_t* row, Element element) {
  for_each_span(n.inner, 0, n.size, [&](const int64_t* offset, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      int64_t at[4];
      for (int k = 0; k < 4; ++k) at[k] = row[k] + offset[k] + i * n.inner.step(k);
      element(at);
    }
  });
}

template <bool Centred>
void norm_row_double(const NormCall& n, const int64_t* row) {
  double mean = 0, variance = 0;
  const double* x = n.x->as<const double>();
  if (Centred) for_each_element(n, row, [&](const int64_t* at) { mean += x[at[kX]] / static_cast<double>(n.size); });
  for_each_element(n, row, [&](const int64_t* at) {
    variance += (x[at[kX]] - mean) * (x[at[kX]] - mean) / static_cast<double>(n.size);
  });
  const double inverse = 1.0 / __builtin_sqrt(variance + n.epsilon);
  write_double(n.mean, row[kMean], mean);
  write_double(n.inverse, row[kInverse], inverse);
  for_each_element(n, row, [&](const int64_t* at) {
    const double y =
        (x[at[kX]] - mean) * inverse * read_double(n.scale, at[kScale], 1) + read_double(n.bias, at[kBias], 0);
    write_double(n.y, at[kY], y);
  });
}

template <bool Centred>
void norm(const KernelCall& call, int thread, int threads) {
  const NormCall n = make_call(call, Centred);
  int64_t begin, end;
  split_rows(n.outer.count(), n.size, thread, threads, &begin, &end);
  const bool wide = n.x->type == DType::kF64;
  for_each_row(n.outer, begin, end, [&](const int64_t* row) {
    if (wide)
      norm_row_double<Centred>(n, row);
    else
      norm_row<Centred>(n, row);
  });
}

// x / |x|_p along one axis; 0 where the norm is 0.
void lp_row(const View& x, const View& y, const LpNormParams& params, const int64_t* row) {
  const int64_t count = x.dims[params.axis], sx = x.strides[params.axis], sy = y.strides[params.axis];
  if (x.type == DType::kF64) {
    double total = 0;
    for (int64_t i = 0; i < count; ++i) {
      const double v = x.as<const double>()[row[0] + i * sx];
      total += params.p == 2 ? v * v : __builtin_fabs(v);
    }
    const double norm = params.p == 2 ? __builtin_sqrt(total) : total;
    for (int64_t i = 0; i < count; ++i) {
      y.as<double>()[row[1] + i * sy] = norm == 0 ? 0 : x.as<const double>()[row[0] + i * sx] / norm;
    }
    return;
  }
  float buffer[kChunk], total = 0;
  for (int64_t i = 0; i < count; i += kChunk) {
    const int64_t part = count - i < kChunk ? count - i : kChunk;
    read_row(x.data, x.type, row[0] + i * sx, sx, part, buffer);
    for (int64_t j = 0; j < part; ++j) total += params.p == 2 ? buffer[j] * buffer[j] : __builtin_fabsf(buffer[j]);
  }
  const float norm = params.p == 2 ? __builtin_sqrtf(total) : total;
  for (int64_t i = 0; i < count; i += kChunk) {
    const int64_t part = count - i < kChunk ? count - i : kChunk;
    read_row(x.data, x.type, row[0] + i * sx, sx, part, buffer);
    for (int64_t j = 0; j < part; ++j) buffer[j] = norm == 0 ? 0 : buffer[j] / norm;
    write_row(y.data, y.type, row[1] + i * sy, sy, part, buffer);
  }
}

}  // namespace

void rms_norm(const KernelCall& call, int thread, int threads) { norm<false>(call, thread, threads); }
void layer_norm(const KernelCall& call, int thread, int threads) { norm<true>(call, thread, threads); }

void lp_norm(const KernelCall& call, int thread, int threads) {
  const LpNormParams& params = *static_cast<const LpNormParams*>(call.params);
  const View &x = call.in[0], &y = call.out[0];
  Nest outer;
  outer.operands = 2;
  for (int i = 0; i < x.rank; ++i) {
    const int64_t strides[2] = {x.strides[i], y.strides[i]};
    if (i != params.axis) nest_add_dim(&outer, x.dims[i], strides);
  }
  int64_t begin, end;
  split_rows(outer.count(), x.dims[params.axis], thread, threads, &begin, &end);
  for_each_row(outer, begin, end, [&](const int64_t* row) { lp_row(x, y, params, row); });
}

}  // namespace SITU_ISA
}  // namespace situ
