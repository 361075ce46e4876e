// Packed weights of one model: each matrix once, however many programs read it.
#pragma once

#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "base/status.h"
#include "base/tensor.h"
#include "base/thread_pool.h"
#include "kernels/params.h"

namespace situ {

class PackStore {
 public:
  // Packing runs on `pool`, which must outlive the store.
  explicit PackStore(ThreadPool& pool) : pool_(pool) {}

  // Tensors with this owner lie in a read-only file map, whose pages are given back once they are packed.
  void add_file(const void* owner) { files_.insert(owner); }

  // Operands of MatMulNBits (kernels/packed_layout.h); `zeros` is read if params.zeros. One-dimensional bytes.
  // Error: no memory.
  Result<Tensor> pack(const Tensor& weights, const Tensor& scales, const Tensor& zeros, const PackedMatMulParams& params);
  // True if half precision holds every scale: exactly, or `rounded` by at most 2^-11 of itself.
  bool fits_half(const Tensor& scales, bool rounded) const;

  int64_t bytes() const { return bytes_; }

 private:
  Result<Tensor> allocate(int64_t bytes);
  void release(const Tensor& source, int64_t begin, int64_t end, int64_t rows) const;

  ThreadPool& pool_;
  std::set<const void*> files_;
  // By where the operands lie and how they are laid out: levels that share weights may store scales differently.
  using Key = std::tuple<const void*, const void*, const void*, int64_t, int64_t, int32_t, int32_t, bool>;
  std::map<Key, Tensor> packed_;
  std::shared_ptr<std::byte> region_;
  int64_t region_bytes_ = 0, used_ = 0, bytes_ = 0;
};

}  // namespace situ
