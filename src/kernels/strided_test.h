// For kernel tests: tensors with chosen strides and alignment, filled at random and read as doubles, and a way
// to run a kernel on every ISA with several thread counts.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <new>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/ledger.h"
#include "base/tensor.h"
#include "kernels/kernel.h"
#include "kernels/params.h"

namespace situ {

// One generator for a test program; its seed is printed and can be set again by SITU_TEST_SEED.
inline std::mt19937& test_random() {
  static std::mt19937 random = [] {
    const char* given = std::getenv("SITU_TEST_SEED");
    const unsigned seed = given != nullptr ? static_cast<unsigned>(std::atoll(given)) : std::random_device{}();
    std::cout << "SITU_TEST_SEED=" << seed << std::endl;
    return std::mt19937(seed);
  }();
  return random;
}
inline int64_t random_int(int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(test_random());
}
inline double random_real(double low, double high) {
  return std::uniform_real_distribution<double>(low, high)(test_random());
}

inline uint16_t half_bits(float x) {  // round to nearest even, by searching: slow and obviously right
  if (std::isnan(x)) return 0x7e00;
  const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  const float a = std::fabs(x);
  if (a >= 65520.0f) return sign | 0x7c00;
  uint16_t low = 0, high = 0x7bff;
  while (low < high) {
    const uint16_t mid = static_cast<uint16_t>((low + high + 1) / 2);
    if (half_to_float(mid) <= a)
      low = mid;
    else
      high = static_cast<uint16_t>(mid - 1);
  }
  const float below = half_to_float(low), above = low == 0x7bff ? 65536.0f : half_to_float(low + 1);
  const float down = a - below, up = above - a;
  if (up < down || (up == down && (low & 1) != 0)) ++low;
  return sign | low;
}
inline uint16_t bfloat_bits(float x) {
  const uint32_t u = __builtin_bit_cast(uint32_t, x);
  return static_cast<uint16_t>((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

// Bytes behind which lies a page that nobody may touch: who reads or writes past the end is stopped at once, in any
// build. Regions are used again, since to map one takes longer than most tests take with it.
class FencedBytes {
 public:
  explicit FencedBytes(size_t bytes) : size_(bytes), pages_((bytes + kPage - 1) / kPage) {
    std::vector<std::byte*>& free = unused()[pages_];
    if (free.empty()) {
      void* const all = mmap(nullptr, (pages_ + 1) * kPage, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (all == MAP_FAILED || mprotect(static_cast<std::byte*>(all) + pages_ * kPage, kPage, PROT_NONE) != 0)
        throw std::bad_alloc();
      region_ = static_cast<std::byte*>(all);
    } else {
      region_ = free.back();
      free.pop_back();
    }
  }
  ~FencedBytes() {
    if (region_) unused()[pages_].push_back(region_);
  }
  FencedBytes(FencedBytes&& other) noexcept
      : size_(other.size_), pages_(other.pages_), region_(std::exchange(other.region_, nullptr)) {}
  FencedBytes& operator=(FencedBytes&& other) noexcept {
    std::swap(size_, other.size_);
    std::swap(pages_, other.pages_);
    std::swap(region_, other.region_);
    return *this;
  }

  size_t size() const { return size_; }
  std::byte* data() const { return region_ + pages_ * kPage - size_; }
  std::byte* begin() const { return data(); }
  std::byte* end() const { return data() + size_; }
  std::byte& operator[](size_t i) const { return data()[i]; }

 private:
  static constexpr size_t kPage = 4096;
  static std::map<size_t, std::vector<std::byte*>>& unused() {  // by pages
    static std::map<size_t, std::vector<std::byte*>> regions;
    return regions;
  }

  size_t size_, pages_;
  std::byte* region_ = nullptr;
};

// A strided tensor with its own memory. Elements outside of it hold a pattern that check_untouched() expects.
class StridedTensor {
 public:
  // order: dims from the slowest to the fastest; pad: elements added to each row; start: first element.
  StridedTensor(DType type, std::vector<int64_t> dims, std::vector<int> order = {}, int64_t pad = 0, int64_t start = 0)
      : element_(dtype_bytes(type)), bytes_(0) {
    view_.type = type;
    view_.rank = static_cast<int32_t>(dims.size());
    if (order.empty()) {
      order.resize(dims.size());
      std::iota(order.begin(), order.end(), 0);
    }
    int64_t stride = 1;
    for (size_t i = dims.size(); i-- > 0;) {
      view_.dims[order[i]] = dims[static_cast<size_t>(order[i])];
      view_.strides[order[i]] = stride;
      stride *= dims[static_cast<size_t>(order[i])];
      if (i + 1 == dims.size()) stride += pad;
    }
    bytes_ = FencedBytes(static_cast<size_t>((stride + start + kBehind) * element_));
    reset();
    view_.data = bytes_.data() + start * element_;
  }
  // Strides chosen at random: order, padding and misalignment.
  static StridedTensor random_layout(DType type, const std::vector<int64_t>& dims) {
    std::vector<int> order(dims.size());
    std::iota(order.begin(), order.end(), 0);
    if (random_int(0, 2) == 0) std::shuffle(order.begin(), order.end(), test_random());
    return StridedTensor(type, dims, order, random_int(0, 3), random_int(0, 3));
  }
  StridedTensor(StridedTensor&&) = default;
  StridedTensor& operator=(StridedTensor&&) = default;

  const View& view() const { return view_; }
  View& view() { return view_; }
  int64_t count() const { return view_.count(); }
  // Element offset of the i-th element in row-major order.
  int64_t offset(int64_t i) const {
    int64_t at = 0;
    for (int d = view_.rank - 1; d >= 0; --d) {
      at += i % view_.dims[d] * view_.strides[d];
      i /= view_.dims[d];
    }
    return at;
  }
  double get(int64_t i) const { return read(offset(i)); }
  double at(std::initializer_list<int64_t> index) const { return at(std::span(index.begin(), index.size())); }
  double at(std::span<const int64_t> index) const {
    int64_t at = 0;
    for (size_t d = 0; d < index.size(); ++d) at += index[d] * view_.strides[d];
    return read(at);
  }
  double element(int64_t at) const { return read(at); }  // by element offset
  void set(int64_t i, double x) { write(offset(i), x); }
  StridedTensor& fill(double low = -1, double high = 1) {
    for (int64_t i = 0; i < count(); ++i) set(i, random_real(low, high));
    return *this;
  }
  StridedTensor& fill_integers(int64_t low, int64_t high) {
    for (int64_t i = 0; i < count(); ++i) set(i, static_cast<double>(random_int(low, high)));
    return *this;
  }
  void reset() { std::fill(bytes_.begin(), bytes_.end(), std::byte{0xab}); }
  // Nothing was written outside of the tensor.
  bool untouched_outside() const {
    if (!same_place(outside_of_)) find_outside();
    return std::all_of(outside_.begin(), outside_.end(), [&](size_t i) { return bytes_[i] == std::byte{0xab}; });
  }

 private:
  bool same_place(const View& other) const {
    return other.data == view_.data && other.rank == view_.rank &&
           std::equal(view_.dims, view_.dims + view_.rank, other.dims) &&
           std::equal(view_.strides, view_.strides + view_.rank, other.strides);
  }
  // Once for a view: kernels with large workspaces are asked many times.
  void find_outside() const {
    std::vector<bool> inside(bytes_.size());
    const int64_t start = view_.data - bytes_.data();
    for (int64_t i = 0; i < count(); ++i) {
      for (int64_t b = 0; b < element_; ++b) inside[static_cast<size_t>(start + offset(i) * element_ + b)] = true;
    }
    outside_.clear();
    for (size_t i = 0; i < bytes_.size(); ++i)
      if (!inside[i]) outside_.push_back(i);
    outside_of_ = view_;
  }
  double read(int64_t at) const {
    const std::byte* p = view_.data + at * element_;
    switch (view_.type) {
      case DType::kF32:
        return *reinterpret_cast<const float*>(p);
      case DType::kF64:
        return *reinterpret_cast<const double*>(p);
      case DType::kF16:
        return half_to_float(*reinterpret_cast<const uint16_t*>(p));
      case DType::kBF16:
        return bfloat_to_float(*reinterpret_cast<const uint16_t*>(p));
      case DType::kI64:
        return static_cast<double>(*reinterpret_cast<const int64_t*>(p));
      case DType::kU64:
        return static_cast<double>(*reinterpret_cast<const uint64_t*>(p));
      case DType::kI32:
        return *reinterpret_cast<const int32_t*>(p);
      case DType::kU32:
        return *reinterpret_cast<const uint32_t*>(p);
      case DType::kI16:
        return *reinterpret_cast<const int16_t*>(p);
      case DType::kU16:
        return *reinterpret_cast<const uint16_t*>(p);
      case DType::kI8:
        return *reinterpret_cast<const int8_t*>(p);
      default:
        return *reinterpret_cast<const uint8_t*>(p);
    }
  }
  void write(int64_t at, double x) {
    std::byte* p = view_.data + at * element_;
    switch (view_.type) {
      case DType::kF32:
        *reinterpret_cast<float*>(p) = static_cast<float>(x);
        break;
      case DType::kF64:
        *reinterpret_cast<double*>(p) = x;
        break;
      case DType::kF16:
        *reinterpret_cast<uint16_t*>(p) = half_bits(static_cast<float>(x));
        break;
      case DType::kBF16:
        *reinterpret_cast<uint16_t*>(p) = bfloat_bits(static_cast<float>(x));
        break;
      case DType::kI64:
        *reinterpret_cast<int64_t*>(p) = static_cast<int64_t>(x);
        break;
      case DType::kU64:
        *reinterpret_cast<uint64_t*>(p) = static_cast<uint64_t>(x);
        break;
      case DType::kI32:
        *reinterpret_cast<int32_t*>(p) = static_cast<int32_t>(x);
        break;
      case DType::kU32:
        *reinterpret_cast<uint32_t*>(p) = static_cast<uint32_t>(x);
        break;
      case DType::kI16:
        *reinterpret_cast<int16_t*>(p) = static_cast<int16_t>(x);
        break;
      case DType::kU16:
        *reinterpret_cast<uint16_t*>(p) = static_cast<uint16_t>(x);
        break;
      case DType::kI8:
        *reinterpret_cast<int8_t*>(p) = static_cast<int8_t>(x);
        break;
      default:
        *reinterpret_cast<uint8_t*>(p) = static_cast<uint8_t>(x);
        break;
    }
  }

  // Elements that are written to by nobody, which untouched_outside() looks at; what reads past these is stopped.
  static constexpr int64_t kBehind = 2;

  int64_t element_;
  FencedBytes bytes_;
  View view_;
  mutable std::vector<size_t> outside_;  // bytes that are no element of outside_of_
  mutable View outside_of_;
};

// Relative error that one rounding to `type` makes.
inline double rounding(DType type) {
  if (type == DType::kF16) return 1.0 / 1024;
  if (type == DType::kBF16) return 1.0 / 128;
  return 1e-6;
}

struct RunResult {
  Ledger ledger;
  Fault fault;
};

// Runs one kernel as `threads` threads would, one after the other: they may not depend on each other. Behind their
// scratch nothing may be touched.
inline RunResult run_kernel(const KernelTable& table, KernelFn KernelTable::* kernel, KernelCall call, int threads) {
  RunResult result;
  const FencedBytes scratch(kThreadScratchBytes);
  call.scratch = scratch.data();
  for (int t = threads - 1; t >= 0; --t) {
    Ledger ledger;
    Fault fault;
    call.ledger = &ledger;
    call.fault = &fault;
    (table.*kernel)(call, t, threads);
    result.ledger.add(ledger);
    if (fault.what != nullptr) result.fault = fault;
  }
  return result;
}

inline RunResult run_kernel(const KernelTable& table, KernelFn KernelTable::* kernel, const std::vector<View>& in,
                            const std::vector<View>& out, const void* params, int threads) {
  KernelCall call;
  call.in = in.data();
  call.in_count = static_cast<int>(in.size());
  call.out = out.data();
  call.out_count = static_cast<int>(out.size());
  call.params = params;
  return run_kernel(table, kernel, call, threads);
}
inline RunResult run_kernel(const KernelTable& table, KernelFn KernelTable::* kernel, const std::vector<View>& in,
                            const View& out, const void* params, int threads) {
  return run_kernel(table, kernel, in, std::vector<View>{out}, params, threads);
}

// A table for an ISA that this CPU does not have, run all the same, and the one whose results it should have to the
// bit.
struct EmulatedTable {
  const KernelTable *table, *base;
};
// Built with the instructions in plain C++ (CMakeLists.txt); and the real ones, whose instructions are trapped:
// thousands of times slower. Both differ from their base in products of bytes, attention and, with
// tiles, products of floats alone.
const std::vector<EmulatedTable>& emulated_tables();
const std::vector<EmulatedTable>& trapped_tables();

using IsaBody = std::function<void(const KernelTable&, int)>;
inline void for_each_table(const std::vector<const KernelTable*>& tables, const IsaBody& body) {
  for (const KernelTable* table : tables) {
    for (int threads = 1; threads <= 3; ++threads) {
      SCOPED_TRACE(std::string(table->isa) + ", " + std::to_string(threads) + " threads");
      body(*table, threads);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

inline std::vector<const KernelTable*> tables_to_test() {
  const KernelTable* available[8];
  std::vector<const KernelTable*> tables(available, available + available_kernel_tables(available, 8));
#if defined(SITU_PLAIN_PORTABLE)  // no sanitizer looks at them
  if (tables.size() > 1) std::erase_if(tables, [](const KernelTable* t) { return t->isa == std::string("portable"); });
#endif
  return tables;
}

// Calls body(table, threads) for every ISA of this CPU that has such a kernel of its own, and 1, 2 and 3 threads.
inline void for_each_isa(const IsaBody& body) {
  std::vector<const KernelTable*> tables = tables_to_test();
  std::erase_if(tables, [](const KernelTable* t) { return std::string(t->isa) != t->base; });
  ASSERT_FALSE(tables.empty());
  for_each_table(tables, body);
}
// The same of products of bytes and of attention: every ISA of this CPU, and then the emulated ones.
inline void for_each_isa(const IsaBody& body, const std::vector<EmulatedTable>& emulated) {
  std::vector<const KernelTable*> tables = tables_to_test();
  ASSERT_FALSE(tables.empty());
  for (const EmulatedTable& e : emulated) tables.push_back(e.table);
  for_each_table(tables, body);
}

}  // namespace situ
