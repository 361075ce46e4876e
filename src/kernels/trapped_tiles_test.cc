// Runs the machine code of the AMX table on CPUs without AMX: every tile instruction raises SIGILL, and the handler
// decodes it and does what Intel's manual says ("Instruction Set Reference", TILELOADD and so on). It refuses what
// raises a fault there.
#include "kernels/strided_test.h"

#if defined(__linux__) && defined(__x86_64__)
#include <signal.h>
#include <ucontext.h>

#include <bit>
#include <cstring>

namespace situ {
namespace {

struct Tiles {
  uint8_t config[64];  // as LDTILECFG reads it
  uint8_t bytes[8][16][64];
  int rows(int t) const { return config[48 + t]; }
  int row_bytes(int t) const { return config[16 + 2 * t] | config[17 + 2 * t] << 8; }
};
Tiles tiles;

// A VEX instruction of map 0F38, 128 bits.
struct Instruction {
  int prefix, opcode, vvvv, mode, reg, rm, length;
  int64_t base, stride;  // of the memory operand

  bool decode(const uint8_t* p, const greg_t* g) {
    static constexpr int kOrder[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                       REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
    if (p[0] != 0xc4 || (p[1] & 31) != 2 || (p[2] & 0x84) != 0) return false;
    const int x = (~p[1] >> 6 & 1) * 8, b = (~p[1] >> 5 & 1) * 8;
    prefix = p[2] & 3;
    vvvv = ~p[2] >> 3 & 15;
    opcode = p[3];
    mode = p[4] >> 6;
    reg = p[4] >> 3 & 7;
    rm = p[4] & 7;
    length = 5;
    base = stride = 0;
    if (mode == 3) return true;
    bool relative = mode == 0 && rm == 5, no_base = false;
    int base_register = rm + b;
    if (rm == 4) {
      const int sib = p[length++], index = (sib >> 3 & 7) + x;
      if (index != 4) stride = g[kOrder[index]] << (sib >> 6);
      no_base = mode == 0 && (sib & 7) == 5;
      base_register = (sib & 7) + b;
    }
    int32_t offset = 0;
    if (mode == 1) offset = static_cast<int8_t>(p[length++]);
    if (mode == 2 || relative || no_base) {
      std::memcpy(&offset, p + length, 4);
      length += 4;
    }
    base = offset;
    if (relative)
      base += g[REG_RIP] + length;
    else if (!no_base)
      base += g[kOrder[base_register]];
    return true;
  }
};

bool configure(const uint8_t* p) {
  for (int i = 1; i < 16; ++i) {
    if (p[i] != 0) return false;
  }
  tiles = Tiles{};
  std::memcpy(tiles.config, p, 64);
  for (int t = 0; t < 16; ++t) {
    if (tiles.rows(t) > 16 || tiles.row_bytes(t) > 64 || (tiles.rows(t) == 0) != (tiles.row_bytes(t) == 0) ||
        (t >= 8 && tiles.rows(t) != 0))
      return false;
  }
  return p[0] == 1;
}

bool dots(int c, int a, int b, bool a_signed, bool b_signed) {
  if (c == a || c == b || a == b || b > 7 || tiles.rows(c) == 0 || tiles.rows(a) != tiles.rows(c) ||
      tiles.row_bytes(b) != tiles.row_bytes(c) || tiles.row_bytes(a) != 4 * tiles.rows(b))
    return false;
  for (int m = 0; m < tiles.rows(c); ++m) {
    for (int n = 0; n < tiles.row_bytes(c); n += 4) {
      int32_t sum = 0;
      std::memcpy(&sum, tiles.bytes[c][m] + n, 4);
      for (int k = 0; k < 4 * tiles.rows(b); ++k) {
        const uint8_t x = tiles.bytes[a][m][k], y = tiles.bytes[b][k / 4][n + k % 4];
        sum += (a_signed ? static_cast<int8_t>(x) : x) * (b_signed ? static_cast<int8_t>(y) : y);
      }
      std::memcpy(tiles.bytes[c][m] + n, &sum, 4);
    }
  }
  return true;
}

// TDPBF16PS, but for the roundings of small numbers.
bool products(int c, int a, int b) {
  if (c == a || c == b || a == b || b > 7 || tiles.rows(c) == 0 || tiles.rows(a) != tiles.rows(c) ||
      tiles.row_bytes(b) != tiles.row_bytes(c) || tiles.row_bytes(a) != 4 * tiles.rows(b))
    return false;
  const auto number = [](const uint8_t* p) {
    const uint32_t bits = static_cast<uint32_t>(p[0] | p[1] << 8) << 16;
    return std::bit_cast<float>(bits);
  };
  for (int m = 0; m < tiles.rows(c); ++m) {
    for (int n = 0; n < tiles.row_bytes(c); n += 4) {
      float sum = 0;
      std::memcpy(&sum, tiles.bytes[c][m] + n, 4);
      for (int k = 0; k < 2 * tiles.rows(b); ++k)
        sum += number(tiles.bytes[a][m] + 2 * k) * number(tiles.bytes[b][k / 2] + n + k % 2 * 2);
      std::memcpy(tiles.bytes[c][m] + n, &sum, 4);
    }
  }
  return true;
}

// prefix: 0 none, 1 66, 2 F3, 3 F2.
bool execute(const Instruction& i) {
  if (i.opcode == 0x5e && i.mode == 3) return dots(i.reg, i.rm, i.vvvv, i.prefix >= 2, (i.prefix & 1) != 0);
  if (i.opcode == 0x5c && i.mode == 3) return i.prefix == 2 && products(i.reg, i.rm, i.vvvv);
  if (i.vvvv != 0) return false;
  if (i.opcode == 0x49 && i.mode != 3)
    return i.prefix == 0 && i.reg == 0 && configure(reinterpret_cast<const uint8_t*>(i.base));
  if (i.opcode == 0x49 && i.prefix == 0) {
    tiles = Tiles{};
    return i.reg == 0 && i.rm == 0;
  }
  if (tiles.rows(i.reg) == 0) return false;
  auto& tile = tiles.bytes[i.reg];
  if (i.opcode == 0x49) {
    std::memset(tile, 0, sizeof tile);
    return i.prefix == 3 && i.rm == 0;
  }
  if (i.opcode != 0x4b || i.rm != 4 || i.prefix < 2) return false;
  if (i.prefix == 3) std::memset(tile, 0, sizeof tile);
  for (int r = 0; r < tiles.rows(i.reg); ++r) {
    auto* memory = reinterpret_cast<uint8_t*>(i.base + r * i.stride);
    std::memcpy(i.prefix == 3 ? tile[r] : memory, i.prefix == 3 ? memory : tile[r],
                static_cast<size_t>(tiles.row_bytes(i.reg)));
  }
  return true;
}

void on_illegal_instruction(int, siginfo_t*, void* context) {
  greg_t* registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  Instruction instruction;
  if (instruction.decode(reinterpret_cast<const uint8_t*>(registers[REG_RIP]), registers) && execute(instruction))
    registers[REG_RIP] += instruction.length;
  else
    signal(SIGILL, SIG_DFL);  // it is raised again
}

}  // namespace

void trap_tile_instructions() {
  struct sigaction action = {};
  action.sa_sigaction = on_illegal_instruction;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGILL, &action, nullptr);
}

}  // namespace situ
#endif
