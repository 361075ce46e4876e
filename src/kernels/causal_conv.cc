// causal_conv: y[c, i] = b[c] + sum over j of w[j, c] row(i + j - (K - 1))[c], where row(i) is that of new token i, and
// of a token before them where i is negative; before the first token rows are zeros. rows [1, C, T], those of all
// tokens that are kept, in runs of slots where the call has them; x [1, C, S], the last S of them; w [K, C], b [C], y
// [1, C, S]; all float32. Source: Conv of ONNX, over Concat(past, x), with a group for each channel.
//
// A sum is of the same products in the same order however many tokens a step has. Threads share the channels.
#include "kernels/isa.h"
#include "kernels/kernel.h"

namespace situ {
namespace SITU_ISA {
namespace {

// The slot of token `j` of those that are kept. `run`: null: tokens lie one behind the other.
inline int64_t slot_of(const Run* run, int64_t j) {
  if (run == nullptr) return j;
  for (; j >= run->length; ++run) j -= run->length;
  return run->first_slot + j;
}

// Channels [begin, end) of one token.
inline void add_products(const View& w, int64_t tap, const float* row, int64_t row_stride, float* y, int64_t y_stride,
                         int64_t begin, int64_t end) {
  const float* const weights = w.as<const float>() + tap * w.strides[0];
  if (w.strides[1] == 1 && row_stride == 1 && y_stride == 1) {
    for (int64_t c = begin; c < end; ++c) y[c] += weights[c] * row[c];
    return;
  }
  for (int64_t c = begin; c < end; ++c) y[c * y_stride] += weights[c * w.strides[1]] * row[c * row_stride];
}

}  // namespace

void causal_conv(const KernelCall& call, int thread, int threads) {
  const View &rows = call.in[0], &x = call.in[1], &w = call.in[2], &out = call.out[0];
  const View* bias = call.in_count > 3 && call.in[3].present() ? &call.in[3] : nullptr;
  const int64_t channels = out.dims[1], tokens = out.dims[2], taps = w.dims[0];
  const Run* const runs = call.segments != nullptr ? call.segments->runs : nullptr;
  const int64_t past = (runs != nullptr ? call.segments->keys : rows.dims[2]) - tokens;
  const int64_t begin = channels * thread / threads, end = channels * (thread + 1) / threads;
  for (int64_t i = 0; i < tokens; ++i) {
    float* const y = out.as<float>() + i * out.strides[2];
    for (int64_t c = begin; c < end; ++c)
      y[c * out.strides[1]] = bias != nullptr ? bias->as<const float>()[c * bias->strides[0]] : 0.0f;
    for (int64_t j = 0; j < taps; ++j) {
      const int64_t token = i + j - (taps - 1);
      if (past + token < 0) continue;
      const View& from = token < 0 ? rows : x;
      const int64_t row = token < 0 ? slot_of(runs, past + token) : token;
      add_products(w, j, from.as<const float>() + row * from.strides[2], from.strides[1], y, out.strides[1], begin,
                   end);
    }
  }
}

}  // namespace SITU_ISA
}  // namespace situ
