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
  int block_shift = 0;   // lanes of one block: 1 << block_shift
  int chunk_blocks = 1;  // blocks that a chunk touches
  VecI block_of_lane{};  // within the chunk

  bool symmetric() const { return packed_zeros == nullptr && float_zeros == nullptr; }
  // The first block of a chunk; every lane of the chunk belongs to it when blocks are longer than chunks.
  int64_t first_block(int64_t chunk) const { return (chunk * kLanes) >> block_shift; }
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
  while ((32 << w.block_shift) < params.block * params.bits) ++w.block_shift;
  w.chunk_blocks = kLanes >> w.block_shift > 1 ? kLanes >> w.block_shift : 1;
  w.block_of_lane = lane_index() >> w.block_shift;
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

// One row of weights (a column of the product) with its scales, and zeros unless symmetric, as floats.
struct NBitsColumn {
  const uint8_t* q;
  const float* scales;
  const float* zeros;
};

// Where a chunk lies: its words and the blocks that they belong to. Only the last chunk may be partial.
struct NBitsChunk {
  int64_t index, first_block;
  int64_t words, blocks;
};
SITU_INLINE NBitsChunk full_chunk(const NBitsWeights& w, int64_t index) {
  return {index, w.first_block(index), kLanes, w.chunk_blocks};
}
SITU_INLINE NBitsChunk last_chunk(const NBitsWeights& w, int64_t index) {
  const int64_t first = w.first_block(index), rest = w.blocks - first;
  return {index, first, w.words - index * kLanes, rest < w.chunk_blocks ? rest : w.chunk_blocks};
}

SITU_INLINE VecU chunk_words(const NBitsColumn& column, const NBitsChunk& chunk) {
  const uint8_t* p = column.q + chunk.index * kVectorBytes;
  VecU words = chunk.words == kLanes ? VecU(*reinterpret_cast<const UnalignedU*>(p)) : load_words(p, chunk.words);
#if defined(__AVX2__)
  // Kept in a register: GCC would read memory once per digit, and rows are rarely aligned to cache lines.
  asm("" : "+v"(words));
#endif
  return words;
}

// The scale (or zero) of every lane of a chunk; lanes beyond the row get 0 or repeat its last block.
SITU_INLINE VecF spread_blocks(const NBitsWeights& w, const float* row, const NBitsChunk& chunk) {
  if (chunk.blocks == 1) return splat(row[chunk.first_block]);
  return shuffle(load_n(row + chunk.first_block, chunk.blocks), w.block_of_lane);
}

// out[i] = digit i of a row of packed zeros, for i < blocks rounded up to whole vectors.
static inline void unpack_zeros(const NBitsWeights& w, int64_t row, float* out) {
  const VecI bit = lane_index() * w.bits;
  const uint8_t* end = w.packed_zeros + w.n * w.zero_bytes;
  const int64_t step = kLanes * w.bits / 8;  // bytes of one vector of digits, at most 16
  const uint8_t* p = w.packed_zeros + row * w.zero_bytes;
  for (int64_t i = 0; i < w.blocks; i += kLanes, p += step) {
    const int64_t count = (step + 3) / 4;  // words
    VecU packed{};
    if (end - p >= 4 * count) {
      packed = load_words(p, count);
    } else {
      for (int64_t b = 0; b < end - p; ++b) packed[b / 4] |= static_cast<uint32_t>(p[b]) << (b % 4 * 8);
    }
    const VecU spread = shuffle(packed, bit >> 5);
    const VecU digits = (spread >> (VecU)(bit & 31)) & ((1u << w.bits) - 1);
    store(out + i, __builtin_convertvector((VecI)digits, VecF));
  }
}

// Floats of buffer that a column may need, and the column: float scales are used where they lie.
SITU_INLINE int64_t column_floats(const NBitsWeights& w) { return 2 * (w.blocks + kLanes); }
static inline NBitsColumn nbits_column(const NBitsWeights& w, int64_t row, float* buffer) {
  NBitsColumn column{w.q + row * w.row_bytes, reinterpret_cast<const float*>(w.scales) + row * w.blocks, nullptr};
  if (w.scale_type != DType::kF32) {
    read_row(w.scales, w.scale_type, row * w.blocks, 1, w.blocks, buffer);
    column.scales = buffer;
  }
  float* zeros = buffer + w.blocks + kLanes;
  if (w.packed_zeros != nullptr)
    unpack_zeros(w, row, zeros);
  else if (w.float_zeros != nullptr)
    read_row(w.float_zeros, w.zero_type, row * w.blocks, 1, w.blocks, zeros);
  column.zeros = zeros;
  return column;
}

// Bytes that the loops over one or two rows ask for ahead of their use.
constexpr int64_t kPrefetchBytes = 4096;

}  // namespace SITU_ISA
}  // namespace situ
