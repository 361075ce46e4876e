// Tensor: an immutable-by-convention value with an owner. Initialisers point into the mapped model
// file; folded constants and the values of the naive interpreter own heap memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/view.h"

namespace situ {

class Tensor {
 public:
  Tensor() = default;
  // Zero-filled, 64-byte aligned, contiguous. rank <= kMaxRank, dims >= 0, product checked by caller.
  static Tensor allocate(DType type, const std::vector<int64_t>& dims);
  // Borrows `data` for as long as `owner` lives.
  static Tensor borrow(DType type, const std::vector<int64_t>& dims, const std::byte* data,
                       std::shared_ptr<const void> owner);
  // Elements that `make` computes when one of the tensor's copies is first looked at, and that are then kept: a tensor
  // of the same type and count. What it throws, view() throws. Not for several threads before that. `depth`: what
  // depth() will say.
  static Tensor deferred(DType type, const std::vector<int64_t>& dims, int depth, std::function<Tensor()> make);
  static Tensor scalar_i64(int64_t value);
  static Tensor vector_i64(const std::vector<int64_t>& values);

  const View& view() const {
    if (pending_) settle();
    return view_;
  }
  // How many deferred tensors are computed one inside the other once this one is looked at; 0: its elements are there.
  int depth() const;
  bool contiguous() const { return pending_ || view_.contiguous(); }
  DType type() const { return view_.type; }
  bool present() const { return view_.present(); }
  // Tells tensors apart that live at the same time: where the elements are, or what will compute them.
  const void* place() const { return pending_ ? static_cast<const void*>(pending_.get()) : view_.data; }
  int rank() const { return view_.rank; }
  int64_t dim(int axis) const { return view_.dims[axis]; }
  std::vector<int64_t> dims() const { return {view_.dims, view_.dims + view_.rank}; }
  int64_t count() const { return view_.count(); }
  // Bytes of the contiguous tensor, packed types rounded up to whole bytes.
  int64_t bytes() const { return (count() * dtype_bits(type()) + 7) / 8; }
  // The same bytes under other dims (same count); shares ownership, moves nothing.
  Tensor reshaped(const std::vector<int64_t>& dims) const;
  // Elements of an integer or bool tensor of any width as int64. Precondition: such a type.
  std::vector<int64_t> to_i64() const;
  // Elements of a float or integer tensor as double. Precondition: a type of whole bytes.
  std::vector<double> to_f64() const;
  const std::shared_ptr<const void>& owner() const {
    if (pending_) settle();
    return owner_;
  }

 private:
  struct Pending;
  void settle() const;

  mutable View view_;
  mutable std::shared_ptr<const void> owner_;
  mutable std::shared_ptr<Pending> pending_;
};

// The same elements in owned memory, whatever address they stood at. release_pages: t is in a mapped file, whose pages
// are given back piece by piece, so that memory never holds both.
Tensor aligned_copy(const Tensor& t, bool release_pages);

// f32 as f16, rounded to nearest even: contiguous, owned.
Tensor rounded_to_half(const Tensor& t);

// IEEE half and bfloat16 bits to float, exact.
float half_to_float(uint16_t bits);
float bfloat_to_float(uint16_t bits);
// Element i of what begins at v.data, of any type of floats.
inline float float_at(const View& v, int64_t i) {
  return v.type == DType::kF32   ? v.as<float>()[i]
         : v.type == DType::kF64 ? static_cast<float>(v.as<double>()[i])
         : v.type == DType::kF16 ? half_to_float(v.as<uint16_t>()[i])
                                 : bfloat_to_float(v.as<uint16_t>()[i]);
}

}  // namespace situ
