// Weights quantised in blocks along k (com.microsoft.MatMulNBits), as kernels read them.
//
// A row of w is a string of 32-bit words, low bits first: a word holds kPer = 32 / bits weights, and a block
// is a whole number of words. One vector of words is a chunk; lane l of chunk c holds the weights
// (c * kLanes + l) * kPer + [0, kPer). So a chunk's digits come out by shifting whole vectors, each lane
// belongs to one block, and only the activations need to be laid out to match.
#pragma once

#include "kernels/params.h"
#include "kernels/rows.h"

namespace situ {
namespace SITU_ISA {

struct NBitsWeights {
  const uint8_t* q = nullptr;
  int64_t n = 0, k = 0;
  int64_t blocks = 0;     // per row
  int64_t row_bytes = 0;  // of q
  int64_t words = 0;      // of 32 bits, per row
  int64_t chunks = 0;     // vectors of words, per row, the last one possibly partial
  int bits = 0, block = 0;
  const std::byte* scales = nullptr;  // [n, blocks]
  DType scale_type = DType::kNone;
  const uint8_t* packed_zeros = nullptr;  // [n, zero_bytes], digits of `bits`
  int64_t zero_bytes = 0;
  const std::byte* float_zeros = nullptr;  // [n, blocks]
  DType zero_type = DType::kNone;
  // Lanes of one block. When it is smaller than a vector, a chunk covers kLanes / lanes_per_block blocks.
  int64_t lanes_per_block = 0;
  VecI block_of_lane{};  // within the chunk

  bool symmetric() const { return packed_zeros == nullptr && float_zeros == nullptr; }
  bool wide() const { return lanes_per_block >= kLanes; }
};

static inline NBitsWeights nbits_weights(const KernelCall& call, const MatMulNBitsParams& params) {
  NBitsWeights w;
  w.n = params.n;
  w.k = params.k;
  w.bits = params.bits;
  w.block = params.block;
  w.blocks = (params.k + params.block - 1) / params.block;
  w.row_bytes = w.blocks * params.block * params.bits / 8;
  w.words = w.row_bytes / 4;
  w.chunks = (w.words + kLanes - 1) / kLanes;
  w.q = call.in[1].as<const uint8_t>();
  w.scales = call.in[2].data;
  w.scale_type = call.in[2].type;
  w.lanes_per_block = params.block * params.bits / 32;
  if (!w.wide()) w.block_of_lane = lane_index() / static_cast<int32_t>(w.lanes_per_block);
  if (call.in_count > 3 && call.in[3].present()) {
    if (params.float_zero_points) {
      w.float_zeros = call.in[3].data;
      w.zero_type = call.in[3].type;
    } else {
      w.packed_zeros = call.in[3].as<const uint8_t>();
      w.zero_bytes = (w.blocks * params.bits + 7) / 8;
    }
  }
  return w;
}

SITU_INLINE VecU chunk_words(const NBitsWeights& w, const uint8_t* row, int64_t chunk) {
  const int64_t first = chunk * kLanes, rest = w.words - first;
  const uint8_t* p = row + first * 4;
  if (rest >= kLanes) return *reinterpret_cast<const UnalignedU*>(p);
  return load_n(reinterpret_cast<const uint32_t*>(p), rest);
}

// Element `block` of a row of scales or zeros for every lane of a chunk. Lanes beyond the row are 0.
SITU_INLINE VecF spread_blocks(const NBitsWeights& w, const std::byte* data, DType type, int64_t row, int64_t chunk) {
  const int64_t base = row * w.blocks;
  if (w.wide()) return splat(read_float(data, type, base + chunk * kLanes / w.lanes_per_block));
  const int64_t count = kLanes / w.lanes_per_block, first = chunk * count;
  const int64_t there = w.blocks - first < count ? w.blocks - first : count;
  VecF v;
  if (type == DType::kF32) v = load_n(reinterpret_cast<const float*>(data) + base + first, there);
  else if (type == DType::kF16) v = load_n(reinterpret_cast<const Half*>(data) + base + first, there);
  else v = load_n(reinterpret_cast<const BFloat*>(data) + base + first, there);
  return __builtin_shuffle(v, w.block_of_lane);
}

// The zero point of every lane of a chunk.
SITU_INLINE VecF chunk_zeros(const NBitsWeights& w, int64_t row, int64_t chunk) {
  if (w.symmetric()) return splat(static_cast<float>(1 << (w.bits - 1)));
  if (w.float_zeros != nullptr) return spread_blocks(w, w.float_zeros, w.zero_type, row, chunk);
  const uint8_t* zeros = w.packed_zeros + row * w.zero_bytes;
  const uint32_t mask = (1u << w.bits) - 1;
  if (w.wide()) {
    const int64_t bit = chunk * kLanes / w.lanes_per_block * w.bits;
    return splat(static_cast<float>((zeros[bit >> 3] >> (bit & 7)) & mask));
  }
  // All digits of the chunk fit one word: kLanes * 32 / block bits, and blocks are at least 16.
  const int64_t bit = chunk * (kLanes / w.lanes_per_block) * w.bits, byte = bit >> 3;
  uint32_t word = 0;
  for (int64_t i = 0; i < 4 && byte + i < w.zero_bytes; ++i) word |= static_cast<uint32_t>(zeros[byte + i]) << (8 * i);
  word >>= bit & 7;
  const VecU digits = ((VecU{} + word) >> (VecU)(w.block_of_lane * w.bits)) & mask;
  return __builtin_convertvector((VecI)digits, VecF);
}

}  // namespace SITU_ISA
}  // namespace situ
