// A matrix product in one normal form: batches of y[m, n] = alpha * sum_k a[m, k] * b[k, n] + beta * c[m, n],
// every operand with its own strides (elements; 0 broadcasts).
#pragma once

#include "kernels/params.h"
#include "kernels/rows.h"

namespace situ {
namespace SITU_ISA {

struct Product {
  int batch_rank = 0;
  int64_t batch_dims[kMaxRank] = {};
  int64_t a_batch[kMaxRank] = {}, b_batch[kMaxRank] = {}, c_batch[kMaxRank] = {}, y_batch[kMaxRank] = {};
  int64_t batches = 1;
  int64_t m = 1, n = 1, k = 0;
  int64_t a_m = 0, a_k = 0, b_k = 0, b_n = 0, c_m = 0, c_n = 0, y_m = 0, y_n = 0;
  // Column j of y and c is at (j / group) * group stride + (j % group) * n stride: a projection writes
  // [H, D] into places that are apart. One group otherwise.
  int64_t group = 1, y_group = 0, c_group = 0;
  const View* a = nullptr;
  const View* b = nullptr;
  const View* c = nullptr;  // null: none
  const View* y = nullptr;
  float alpha = 1, beta = 1;
};

// Where one batch starts, in elements.
struct BatchOffsets {
  int64_t a = 0, b = 0, c = 0, y = 0;
};

SITU_INLINE BatchOffsets batch_offsets(const Product& p, int64_t batch) {
  BatchOffsets o;
  for (int i = p.batch_rank - 1; i >= 0; --i) {
    const int64_t rest = batch / p.batch_dims[i], index = batch - rest * p.batch_dims[i];
    o.a += index * p.a_batch[i];
    o.b += index * p.b_batch[i];
    o.c += index * p.c_batch[i];
    o.y += index * p.y_batch[i];
    batch = rest;
  }
  return o;
}

SITU_INLINE int64_t y_column(const Product& p, int64_t j) { return (j / p.group) * p.y_group + (j % p.group) * p.y_n; }
SITU_INLINE int64_t c_column(const Product& p, int64_t j) { return (j / p.group) * p.c_group + (j % p.group) * p.c_n; }

SITU_INLINE void add_batch_dim(Product* p, int64_t dim, int64_t a, int64_t b, int64_t c, int64_t y) {
  const int i = p->batch_rank++;
  p->batch_dims[i] = dim;
  p->a_batch[i] = a;
  p->b_batch[i] = b;
  p->c_batch[i] = c;
  p->y_batch[i] = y;
}

// [B, S, K] x [K, N] is one product of B * S rows when the rows of all operands follow each other.
static inline void merge_batches_into_rows(Product* p) {
  while (p->batch_rank > 0) {
    const int i = p->batch_rank - 1;
    if (p->b_batch[i] != 0) return;
    if (p->m == 1) {
      p->a_m = p->a_batch[i];
      p->c_m = p->c_batch[i];
      p->y_m = p->y_batch[i];
    } else if (p->batch_dims[i] != 1 && (p->a_batch[i] != p->m * p->a_m || p->y_batch[i] != p->m * p->y_m ||
                                         (p->c != nullptr && p->c_batch[i] != p->m * p->c_m))) {
      return;
    }
    p->m *= p->batch_dims[i];
    --p->batch_rank;
  }
}

SITU_INLINE void finish_product(Product* p) {
  merge_batches_into_rows(p);
  p->batches = 1;
  for (int i = 0; i < p->batch_rank; ++i) p->batches *= p->batch_dims[i];
}

// a [.., M, K] or [K], b [.., K, N] or [K], y as NumPy's matmul; the views must outlive the product.
static inline Product make_product(const View& a, const View& b, const View* c, const View& y,
                                   const MatMulParams& params) {
  Product p;
  p.a = &a;
  p.b = &b;
  p.c = c;
  p.y = &y;
  p.alpha = params.alpha;
  p.beta = params.beta;
  const int a_last = a.rank - 1, b_last = b.rank - 1;
  const bool rows = a.rank > 1, columns = b.rank > 1;
  const int a_k = rows && params.transpose_a ? a_last - 1 : a_last;
  const int b_k = columns ? (params.transpose_b ? b_last : b_last - 1) : b_last;
  p.k = a.dims[a_k];
  p.a_k = a.strides[a_k];
  p.b_k = b.strides[b_k];
  int y_axis = y.rank - 1;
  if (columns) {
    const int b_n = params.transpose_b ? b_last - 1 : b_last;
    p.n = b.dims[b_n];
    p.b_n = b.strides[b_n];
    p.y_n = y.strides[y_axis];
    if (c != nullptr) p.c_n = broadcast_stride(*c, y_axis, y.rank);
    --y_axis;
  }
  if (rows) {
    const int a_m = params.transpose_a ? a_last : a_last - 1;
    p.m = a.dims[a_m];
    p.a_m = a.strides[a_m];
    p.y_m = y.strides[y_axis];
    if (c != nullptr) p.c_m = broadcast_stride(*c, y_axis, y.rank);
    --y_axis;
  }
  const int batch_rank = y_axis + 1;
  for (int i = 0; i < batch_rank; ++i) {
    const int in_a = i - (batch_rank - (a.rank - 2)), in_b = i - (batch_rank - (b.rank - 2));
    const int64_t sa = in_a < 0 || a.dims[in_a] == 1 ? 0 : a.strides[in_a];
    const int64_t sb = in_b < 0 || b.dims[in_b] == 1 ? 0 : b.strides[in_b];
    add_batch_dim(&p, y.dims[i], sa, sb, c != nullptr ? broadcast_stride(*c, i, y.rank) : 0, y.strides[i]);
  }
  p.group = p.n > 0 ? p.n : 1;
  finish_product(&p);
  return p;
}

// situ.Project: a [.., K], b [K, N1, .., Nr], y [.., N1, .., Nr], c broadcast to y. The last two of b's dims
// are one dim of columns where b allows it, even when y does not; the others are batches.
static inline Product make_projection(const View& a, const View& b, const View* c, const View& y,
                                      const MatMulParams& params) {
  Product p;
  p.a = &a;
  p.b = &b;
  p.c = c;
  p.y = &y;
  p.alpha = params.alpha;
  p.beta = params.beta;
  const int leading = a.rank - 1, last = b.rank - 1, inner = y.rank - 1, outer = inner - 1;
  const auto c_stride = [&](int axis) { return c != nullptr ? broadcast_stride(*c, axis, y.rank) : 0; };
  p.k = a.dims[leading];
  p.a_k = a.strides[leading];
  p.b_k = b.strides[0];
  p.n = b.dims[last];
  p.b_n = b.strides[last];
  p.y_n = y.strides[inner];
  p.c_n = c_stride(inner);
  p.group = p.n > 0 ? p.n : 1;
  for (int i = 1; i + 1 < last; ++i) {
    add_batch_dim(&p, b.dims[i], 0, b.strides[i], c_stride(leading + i - 1), y.strides[leading + i - 1]);
  }
  if (last > 1) {
    const int64_t groups = b.dims[last - 1];
    if (groups == 1 || b.strides[last - 1] == p.n * p.b_n) {
      p.n *= groups;
      p.y_group = y.strides[outer];
      p.c_group = c_stride(outer);
    } else {
      add_batch_dim(&p, groups, 0, b.strides[last - 1], c_stride(outer), y.strides[outer]);
    }
  }
  for (int i = 0; i < leading; ++i) add_batch_dim(&p, a.dims[i], a.strides[i], 0, c_stride(i), y.strides[i]);
  finish_product(&p);
  return p;
}

}  // namespace SITU_ISA
}  // namespace situ
