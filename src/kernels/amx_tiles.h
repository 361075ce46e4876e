// The eight tile registers of AMX: the instructions that packed_tiles.h is written in. With -DSITU_EMULATE_AMX they are
// plain C++ on memory with the same results, which ends the program (__builtin_trap) where the CPU would raise a fault.
//
// A register holds up to 16 rows of up to 64 bytes; a configuration says how many of each it uses. It belongs to the
// thread: a kernel sets it and gives it back, so that no other code sees it and context switches save no tiles.
//
// Inline assembly, not the intrinsics: GCC 12's _tile_loadd does not say that it reads memory and its _tile_loadconfig
// only that it reads the first 8 of 64 bytes, so stores in front of them could be moved behind or left out.
#pragma once

#include "kernels/simd.h"

#if (defined(__AMX_TILE__) && defined(__AMX_INT8__)) || defined(SITU_EMULATE_AMX)
#define SITU_TILES 1
#endif

#if defined(SITU_TILES)
namespace situ {
namespace SITU_ISA {

// The operand of LDTILECFG, palette 1.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  void set(int tile, int64_t height, int64_t bytes) {
    rows[tile] = static_cast<uint8_t>(height);
    row_bytes[tile] = static_cast<uint16_t>(bytes);
  }
};
static_assert(sizeof(TileConfig) == 64 && offsetof(TileConfig, start_row) == 1 &&
              offsetof(TileConfig, row_bytes) == 16 && offsetof(TileConfig, rows) == 48);

#if !defined(SITU_EMULATE_AMX)

SITU_INLINE void tile_configure(const TileConfig& config) { __asm__ volatile("ldtilecfg %0" : : "m"(config)); }
SITU_INLINE void tile_release() { __asm__ volatile("tilerelease"); }
// Tile T = 0.
template <int T>
SITU_INLINE void tile_zero() {
  __asm__ volatile("tilezero %%tmm%c0" : : "i"(T));
}
// Tile T = its rows in memory, `stride` bytes apart; and the way back.
template <int T>
SITU_INLINE void tile_load(const void* p, int64_t stride) {
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(p), "r"(stride), "i"(T) : "memory");
}
template <int T>
SITU_INLINE void tile_store(void* p, int64_t stride) {
  __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(p), "r"(stride), "i"(T) : "memory");
}
// C [m, n] int32 += A [m, 4 k] signed bytes * B [k, n] groups of 4 bytes, signed or not.
template <int C, int A, int B, bool Signed>
SITU_INLINE void tile_dots() {
  if constexpr (Signed)
    __asm__ volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(C), "i"(A), "i"(B));
  else
    __asm__ volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(C), "i"(A), "i"(B));
}

// C [m, n] float += A [m, 2 k] * B [k, n] pairs of bfloat16.
template <int C, int A, int B>
SITU_INLINE void tile_products() {
  __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(C), "i"(A), "i"(B));
}

#else

struct EmulatedTiles {
  TileConfig config;
  uint8_t bytes[8][16][64];
};
static thread_local EmulatedTiles emulated;

SITU_INLINE void tile_expect(bool allowed) {
  if (!allowed) __builtin_trap();
}

static inline void tile_configure(const TileConfig& config) {
  tile_expect(config.palette == 1 && config.start_row == 0);
  for (uint8_t byte : config.reserved) tile_expect(byte == 0);
  for (int t = 0; t < 16; ++t) {
    tile_expect((config.rows[t] == 0) == (config.row_bytes[t] == 0) && config.rows[t] <= 16 &&
                config.row_bytes[t] <= 64);
    tile_expect(t < 8 || config.rows[t] == 0);
  }
  emulated = EmulatedTiles{config, {}};
}
static inline void tile_release() { emulated.config = TileConfig{}; }
template <int T>
static inline void tile_zero() {
  tile_expect(emulated.config.rows[T] != 0);
  for (auto& row : emulated.bytes[T]) {
    for (uint8_t& byte : row) byte = 0;
  }
}
template <int T>
static inline void tile_load(const void* p, int64_t stride) {
  tile_zero<T>();
  for (int64_t r = 0; r < emulated.config.rows[T]; ++r) {
    for (int64_t i = 0; i < emulated.config.row_bytes[T]; ++i)
      emulated.bytes[T][r][i] = static_cast<const uint8_t*>(p)[r * stride + i];
  }
}
template <int T>
static inline void tile_store(void* p, int64_t stride) {
  tile_expect(emulated.config.rows[T] != 0);
  for (int64_t r = 0; r < emulated.config.rows[T]; ++r) {
    for (int64_t i = 0; i < emulated.config.row_bytes[T]; ++i)
      static_cast<uint8_t*>(p)[r * stride + i] = emulated.bytes[T][r][i];
  }
}
template <int C, int A, int B>
static inline void tile_expect_product() {
  const TileConfig& config = emulated.config;
  static_assert(C != A && C != B && A != B);
  tile_expect(config.rows[C] != 0 && config.rows[A] == config.rows[C] && config.row_bytes[B] == config.row_bytes[C]);
  tile_expect(config.row_bytes[A] == 4 * config.rows[B] && config.row_bytes[C] % 4 == 0);
}
template <int C, int A, int B, bool Signed>
static inline void tile_dots() {
  const TileConfig& config = emulated.config;
  tile_expect_product<C, A, B>();
  for (int m = 0; m < config.rows[C]; ++m) {
    int32_t sums[16] = {};
    for (int k = 0; k < config.rows[B]; ++k) {
      for (int n = 0; n < config.row_bytes[C] / 4; ++n) {
        for (int i = 0; i < 4; ++i) {
          const uint8_t b = emulated.bytes[B][k][4 * n + i];
          sums[n] += static_cast<int8_t>(emulated.bytes[A][m][4 * k + i]) * (Signed ? static_cast<int8_t>(b) : b);
        }
      }
    }
    typedef int32_t Word __attribute__((may_alias));
    for (int n = 0; n < config.row_bytes[C] / 4; ++n) reinterpret_cast<Word*>(emulated.bytes[C][m])[n] += sums[n];
  }
}
// The same but for roundings: small numbers and the order of two products are the CPU's own.
template <int C, int A, int B>
static inline void tile_products() {
  const TileConfig& config = emulated.config;
  tile_expect_product<C, A, B>();
  typedef float Float __attribute__((may_alias));
  typedef uint32_t Word __attribute__((may_alias));
  for (int m = 0; m < config.rows[C]; ++m) {
    auto* sums = reinterpret_cast<Float*>(emulated.bytes[C][m]);
    for (int k = 0; k < config.rows[B]; ++k) {
      const Word a = reinterpret_cast<const Word*>(emulated.bytes[A][m])[k];
      for (int n = 0; n < config.row_bytes[C] / 4; ++n) {
        const Word b = reinterpret_cast<const Word*>(emulated.bytes[B][k])[n];
        sums[n] += __builtin_bit_cast(float, a << 16) * __builtin_bit_cast(float, b << 16);
        sums[n] += __builtin_bit_cast(float, a & 0xffff0000u) * __builtin_bit_cast(float, b & 0xffff0000u);
      }
    }
  }
}

#endif

}  // namespace SITU_ISA
}  // namespace situ
#endif
