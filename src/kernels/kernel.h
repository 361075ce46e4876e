// What a kernel is: a function from views to views, called by every thread of the pool at once.
//
// Rules for kernel files: all threads call with the same `call`; thread t of n does its share and
// no thread waits for another (the program puts barriers between calls). Kernels never allocate,
// never fail and never include the standard library beyond <cstdint>, <cstddef> and <math.h>: each
// kernel file is compiled once per ISA, and an inline function compiled for AVX-512 must not be
// merged by the linker with the one that an older CPU runs. Data-dependent faults (an index out of
// range) are reported through call.fault and the element is written as zero.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/ledger.h"
#include "base/view.h"

namespace situ {

// A run of consecutive slots of the state: tokens [first token .. first token + length) of one
// sequence live in slots [first_slot .. first_slot + length).
struct Run {
  int64_t first_slot = 0;
  int64_t length = 0;
};

// Rows of a step that are one sequence's.
struct StepSegment {
  int64_t first_row = 0, rows = 0;
  // Of a prompt: its tokens have the same sums in whatever pieces the prompt comes. One row that is no piece is a token
  // of its own, with other sums.
  bool piece = false;
  // Where its keys live, of those that are kept of the sequence, these rows included. Null: K and V are views of them.
  const Run* runs = nullptr;
  int run_count = 0;
  int64_t keys = 0;
  int64_t dropped = 0;  // tokens that are not kept: they stood behind the first AttentionParams::first
  // Of a token: so many of its first keys lie where those of the segment before it do, a token with as many keys (beams
  // of one source or prompt). They are read once for both.
  int64_t shared = 0;
};

// Set by a kernel that meets a value it cannot use; the step then returns an error.
struct Fault {
  const char* what = nullptr;  // static text, e.g. "index out of range"
  int64_t value = 0;           // the offending value
  int64_t limit = 0;           // the bound it broke
};

// Bytes of scratch that kernels block their work to fit, beside what else a core's cache holds.
constexpr int64_t kScratchBytes = 512 * 1024;
// Bytes of it that each thread owns: many rows of packed products are rounded once, for as many units of weights as
// there are (128 rows of K 14,336 take 2.3 MiB; with 24 at a time the weights were unpacked five times).
constexpr int64_t kThreadScratchBytes = 5 * kScratchBytes;

// Products (place/row_groups.h) of so many rows for each thread, or more, give it rows of its own, and all columns.
constexpr int64_t kRowsOfOwn = 24;

// Attention of a prompt over a window may read so many keys before it, for nothing: where a sum begins it begins in all
// pieces of it.
constexpr int64_t kKeysBefore = 32;

struct KernelCall {
  const View* in = nullptr;  // operands in ONNX order; absent ones are !present()
  int in_count = 0;
  const View* out = nullptr;  // destinations; absent ones are !present()
  int out_count = 0;
  const void* params = nullptr;  // the struct in kernels/params.h that the op's prepare filled
  std::byte* scratch = nullptr;  // this thread's kThreadScratchBytes, 64-byte aligned
  Ledger* ledger = nullptr;      // this thread's; only move_bytes books into it
  Fault* fault = nullptr;        // this thread's
  // Attention, causal_conv: the sequences that the rows of a step belong to; keys are rows of past tokens. Null: one,
  // whose keys are all rows of the operand.
  const StepSegment* segments = nullptr;
  int segment_count = 0;
  // Attention: a word for each thread, 0 before and after the call. With it, and a workspace for output 1
  // (kernels/attention_blocks.h), threads share the keys of one token.
  uint32_t* arrivals = nullptr;
  // So many first rows are pieces of prompts, whose tokens have the same sums in whatever pieces a prompt comes:
  // kernels with another order of sums for few rows than for many take these for many.
  int64_t prompt_rows = 0;
  // All rows are an encoder's: none of them is computed again beside others, as a token of an answer may be that
  // becomes a piece of a prompt. Kernels may add up as it suits many rows.
  bool encodes = false;
  // Products that write tokens of several sequences: row r of each output i whose bit is set lies slots[r] rows after
  // the place that its view names.
  const int64_t* slots = nullptr;
  uint32_t out_by_slot = 0;
};

using KernelFn = void (*)(const KernelCall& call, int thread, int threads);

// One function per line of kernels.inc, for one ISA.
struct KernelTable {
  const char* isa;
  const char* base;  // whose kernels it has, but for products of bytes and attention; `isa`: all are its own
#define SITU_KERNEL(name) KernelFn name;
#include "kernels/kernels.inc"
#undef SITU_KERNEL
};

// The table for this CPU: the best ISA that it has, or the one that SITU_ISA names
// (portable | avx2 | avxvnni | avx512 | avx512vnni | amx). An unknown or unavailable name falls back and
// select_isa_error() says so.
const KernelTable& kernels();
// Empty, or why SITU_ISA could not be honoured.
const char* select_isa_error();
// All tables that this CPU can run, the portable one first; for tests and benchmarks.
int available_kernel_tables(const KernelTable** tables, int capacity);

}  // namespace situ
