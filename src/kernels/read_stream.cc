// y[thread] = the exclusive or of the thread's part of x, in words: as fast as memory can be read. It measures the
// roofline of decoding (`situ bench`).
#include "kernels/simd.h"

namespace situ {
namespace SITU_ISA {

void read_stream(const KernelCall& call, int thread, int threads) {
  constexpr int kStreams = 4;  // vectors in flight
  const View& x = call.in[0];
  const uint8_t* data = x.as<const uint8_t>();
  int64_t begin, end;
  split_range(x.count() * dtype_bytes(x.type) / (kStreams * kVectorBytes), thread, threads, &begin, &end);
  VecU sums[kStreams] = {};
  for (int64_t i = begin; i < end; ++i) {
#pragma GCC unroll 4
    for (int s = 0; s < kStreams; ++s)
      sums[s] ^= *reinterpret_cast<const UnalignedU*>(data + (i * kStreams + s) * kVectorBytes);
  }
  const VecU all = sums[0] ^ sums[1] ^ sums[2] ^ sums[3];
  uint32_t word = 0;
  for (int l = 0; l < kLanes; ++l) word ^= all[l];
  call.out[0].as<uint32_t>()[thread * call.out[0].strides[0]] = word;
}

}  // namespace SITU_ISA
}  // namespace situ
