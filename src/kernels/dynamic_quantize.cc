// dynamic_quantize_linear: x of floats -> y uint8 like x, scale float [], zero uint8 [] (kernels/dynamic_range.h).
// Source: ONNX DynamicQuantizeLinear. Every thread finds the range of all numbers, and rounds its own share.
#include "kernels/dynamic_range.h"

namespace situ {
namespace SITU_ISA {

void dynamic_quantize_linear(const KernelCall& call, int thread, int threads) {
  const View &x = call.in[0], &y = call.out[0].present() ? call.out[0] : x;  // of outputs that nobody wants
  const auto wanted = [&](int i) { return call.out_count > i && call.out[i].present(); };
  const View* views[2] = {&x, &y};
  const Nest nest = make_nest(views, 2);
  const int64_t count = nest.count();
  constexpr int64_t kChunk = 1024;
  float* numbers = reinterpret_cast<float*>(call.scratch);
  uint8_t* bytes = reinterpret_cast<uint8_t*>(numbers + kChunk);
  const auto chunks = [&](int64_t begin, int64_t end, auto body) {
    for_each_span(nest, begin, end, [&](const int64_t* offset, int64_t n) {
      for (int64_t i = 0; i < n; i += kChunk) {
        const int64_t size = n - i < kChunk ? n - i : kChunk;
        const float* from = x.as<const float>() + offset[0] + i * nest.step(0);
        if (nest.step(0) != 1) {
          read_row(from, nest.step(0), size, numbers);
          from = numbers;
        }
        body(from, y.as<uint8_t>() + offset[1] + i * nest.step(1), size);
      }
    });
  };
  Extremes seen;
  chunks(0, count, [&](const float* from, uint8_t*, int64_t size) { seen.look_at(from, size); });
  const ByteRange range = seen.range();
  if (thread == 0) {
    if (wanted(1)) *call.out[1].as<float>() = range.scale;
    if (wanted(2)) *call.out[2].as<uint8_t>() = static_cast<uint8_t>(range.zero);
  }
  if (!wanted(0)) return;
  int64_t begin, end;
  split_elements(count, thread, threads, &begin, &end);
  chunks(begin, end, [&](const float* from, uint8_t* to, int64_t size) {
    uint8_t* q = nest.step(1) == 1 ? to : bytes;
    round_bytes(from, size, range, q);
    for (int64_t i = 0; q != to && i < size; ++i) to[i * nest.step(1)] = q[i];
  });
}

}  // namespace SITU_ISA
}  // namespace situ
