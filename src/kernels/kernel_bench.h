// What the benchmarks of kernels share: operands, and the stopwatch.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/scratch.h"
#include "base/thread_pool.h"
#include "kernels/kernel.h"
#include "kernels/packed_layout.h"
#include "kernels/params.h"

namespace situ {

struct Buffer {
  std::vector<float> memory;
  View view;
  Buffer(DType type, const std::vector<int64_t>& dims) {
    view.type = type;
    view.rank = static_cast<int32_t>(dims.size());
    for (size_t i = 0; i < dims.size(); ++i) view.dims[i] = dims[i];
    view.set_contiguous_strides();
    memory.resize(static_cast<size_t>((view.count() * dtype_bits(type) + 31) / 32 + 16));
    std::mt19937 random(1);
    const bool is_float = type == DType::kF32;
    for (float& x : memory) {
      if (is_float)
        x = static_cast<float>(static_cast<int>(random() % 2001) - 1000) * 1e-3f;
      else if (type == DType::kI8)
        x = __builtin_bit_cast(float,
                               static_cast<uint32_t>(0x3c000000u | (random() & 0xffffffu)));  // scales of 8-bit rows
      else
        x = __builtin_bit_cast(float, static_cast<uint32_t>(random() & 0x3fff3fffu));
    }
    const auto address = reinterpret_cast<uintptr_t>(memory.data());
    view.data = reinterpret_cast<std::byte*>(memory.data()) + (64 - address % 64) % 64;
  }
};

class Bench {
 public:
  // `only`: the kernel that is wanted; empty: all. `once`: each is called once, which shows that it can be.
  Bench(const KernelTable& table, int threads, std::string only, bool once)
      : table_(table), pool_(threads), only_(std::move(only)), once_(once), scratch_(kThreadScratchBytes, threads) {}

  bool wants(const char* kernel) const { return only_.empty() || only_ == kernel; }
  bool timed(KernelFn KernelTable::* kernel) const {
    return std::find(timed_.begin(), timed_.end(), kernel) != timed_.end();
  }
  // What a kernel met that it could not use; "": nothing.
  const std::string& problem() const { return problem_; }

  // Best of several runs of `calls` in a row, in milliseconds; they take `most` of them in all, once it is more than 5.
  double time(KernelFn KernelTable::* kernel, const std::vector<KernelCall>& calls, double most = 300) {
    if (!timed(kernel)) timed_.push_back(kernel);
    const int runs = once_ ? 1 : 200;
    const int threads = pool_.threads();
    double best = 1e30;
    double total = 0;
    for (int run = 0; run < runs && (run < 5 || total < most); ++run) {
      std::vector<Fault> faults(static_cast<size_t>(threads));
      const auto start = std::chrono::steady_clock::now();
      pool_.run([&](int thread, int count) {
        Ledger ledger;
        Fault& fault = faults[static_cast<size_t>(thread)];
        for (KernelCall call : calls) {
          call.scratch = scratch_.of(thread);
          call.ledger = &ledger;
          call.fault = &fault;
          (table_.*kernel)(call, thread, count);
          if (threads > 1) pool_.barrier().wait();
        }
      });
      const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
      best = std::min(best, ms);
      total += ms;
      for (const Fault& f : faults)
        if (f.what != nullptr)
          problem_ = std::string(f.what) + " (" + std::to_string(f.value) + ", limit " + std::to_string(f.limit) + ")";
    }
    return best;
  }
  int threads() const { return pool_.threads(); }
  void report(const std::string& name, double ms, double bytes, double flops) {
    std::printf("%-9s %d thr  %-52s %9.4f ms %8.2f GB/s %9.2f GFLOP/s\n", table_.isa, pool_.threads(), name.c_str(), ms,
                bytes / ms * 1e-6, flops / ms * 1e-6);
    std::fflush(stdout);
  }

 private:
  const KernelTable& table_;
  ThreadPool pool_;
  std::string only_, problem_;
  bool once_;
  std::vector<KernelFn KernelTable::*> timed_;
  Scratch scratch_;
};

inline KernelCall make_call(const std::vector<View>& in, const View* out, const void* params) {
  KernelCall call;
  call.in = in.data();
  call.in_count = static_cast<int>(in.size());
  call.out = out;
  call.out_count = 1;
  call.params = params;
  return call;
}

// Products and attention, on the shapes that decide how fast a step is.
void bench_products(Bench& bench);
// All other kernels, on the shapes of one token and of 512.
void bench_others(Bench& bench);

}  // namespace situ
