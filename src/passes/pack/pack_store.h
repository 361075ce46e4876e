// Packed weights of one model: each matrix once, however many programs read it, and from a saved file where there is
// one.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <vector>

#include "base/status.h"
#include "base/tensor.h"
#include "base/thread_pool.h"
#include "kernels/params.h"
#include "passes/pack/pack_cache.h"

namespace situ {

class PackStore {
 public:
  // Packing runs on `pool`. Both must outlive the store; without a cache nothing is taken from a file or saved.
  explicit PackStore(ThreadPool& pool, PackCache* cache = nullptr) : pool_(pool), cache_(cache) {}

  // For who asks whether a model can be run, and runs nothing: results have types and sizes, and no weights are looked
  // at.
  void set_dry() { dry_ = true; }
  bool dry() const { return dry_; }

  // Tensors with this owner lie in a read-only file map, whose pages are given back once they are packed.
  void add_file(const void* owner) { files_.insert(owner); }

  // A matrix that is laid out as MatMulNBits has it, as kernels/packed_layout.h says: one-dimensional bytes. Scales
  // become half precision where that holds every one of them: exactly, or if `rounded` changed by at most 2^-11 of
  // itself. Error: no memory.
  Result<Packed> pack(const StoredMatrix& w, bool rounded);

  // w [k, n] of 32 or 16 bits, rows or columns next to each other, as kernels/dense_matmul.cc reads it:
  // one-dimensional. Where 16 bits hold every element exactly (a checkpoint in bfloat16 or half precision that was
  // exported as floats), it has 16.
  Result<Tensor> pack_dense(const Tensor& w, int64_t k, int64_t n, bool transposed);

  // w [k, n] of int8 or uint8 as kernels/integer_layout.h says: one-dimensional bytes.
  Result<Tensor> pack_integer(const Tensor& w);

  // So many elements, for a dry store.
  Result<Tensor> nothing(DType type, int64_t count);

  // The file's pages of a tensor that nothing reads any more are given back.
  void release(const Tensor& source) const { release(source, 0, 1, 1); }

  // A constant that is laid out now: on the heap, all of them together would be a second copy of the model.
  void let_go(Tensor* constant);

  // A copy at an even address, without a second one of the same tensor.
  Tensor aligned(const Tensor& odd);

  int64_t bytes() const { return bytes_; }            // of all matrices
  int64_t written_bytes() const { return written_; }  // of these, laid out now

 private:
  Result<Tensor> lay_out(const StoredMatrix& w, bool half_scales);
  Result<Tensor> lay_out(const Tensor& w, int64_t k, int64_t n, bool transposed);
  Result<Tensor> lay_out_integer(const Tensor& w);
  bool fits_half(const StoredMatrix& w, bool rounded) const;
  DType narrowest(const Tensor& w) const;
  Result<Tensor> allocate(int64_t bytes);
  void release(const Tensor& source, int64_t begin, int64_t end, int64_t rows) const;

  ThreadPool& pool_;
  PackCache* cache_;
  bool dry_ = false;
  std::set<const void*> files_;
  // A result, and the owners of what it was made of: when one is gone, something else may lie at its address.
  template <typename T>
  struct Made {
    T result;
    std::vector<std::weak_ptr<const void>> sources;
    template <typename... Tensors>
    static Made of(const T& result, const Tensors&... t) {
      return {result, {t.owner()...}};
    }
    template <typename... Tensors>
    bool made_of(const Tensors&... t) const {
      size_t i = 0;
      auto same = [](const auto& a, const auto& b) { return !a.owner_before(b) && !b.owner_before(a); };
      return sources.size() == sizeof...(t) && (same(sources[i++], t.owner()) && ...);
    }
  };
  // By where the operands lie and how they may be laid out: levels that share weights may store scales differently.
  using Key = std::tuple<const void*, const void*, const void*, int64_t, int64_t, int32_t, int32_t, bool, bool>;
  std::map<Key, Made<Packed>> packed_;
  std::map<std::tuple<const void*, int64_t, int64_t, bool>, Made<Tensor>> dense_;
  std::map<const void*, Made<Tensor>> aligned_;
  std::shared_ptr<std::byte> region_;
  int64_t region_bytes_ = 0, used_ = 0, bytes_ = 0, written_ = 0, let_go_ = 0;
};

}  // namespace situ
