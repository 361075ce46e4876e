#include "base/tensor.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <new>

#include "base/ledger.h"
#include "base/pages.h"

namespace situ {
namespace {

constexpr size_t kAlignment = 64;

// Initialisers in a mapped file need not be aligned for their type.
template <typename T>
struct __attribute__((packed)) Unaligned {
  T value;
};

template <typename T>
T load(const std::byte* data, int64_t i) {
  return reinterpret_cast<const Unaligned<T>*>(data)[i].value;
}

template <typename T, typename Out>
std::vector<Out> load_all(const View& view) {
  std::vector<Out> result(static_cast<size_t>(view.count()));
  for (size_t i = 0; i < result.size(); ++i) {
    result[i] = static_cast<Out>(load<T>(view.data, static_cast<int64_t>(i)));
  }
  return result;
}

// Elements of `bits` < 8 bits, low bits first.
template <typename Out>
std::vector<Out> load_packed(const View& view, int bits, bool is_signed) {
  std::vector<Out> result(static_cast<size_t>(view.count()));
  const int per_byte = 8 / bits;
  for (size_t i = 0; i < result.size(); ++i) {
    const int byte = std::to_integer<int>(view.data[i / per_byte]);
    int value = (byte >> (static_cast<int>(i % per_byte) * bits)) & ((1 << bits) - 1);
    if (is_signed && value >= 1 << (bits - 1)) value -= 1 << bits;
    result[i] = static_cast<Out>(value);
  }
  return result;
}

template <typename Out>
std::vector<Out> load_integers(const View& view) {
  switch (view.type) {
    case DType::kU8:
    case DType::kBool:
      return load_all<uint8_t, Out>(view);
    case DType::kI8:
      return load_all<int8_t, Out>(view);
    case DType::kU16:
      return load_all<uint16_t, Out>(view);
    case DType::kI16:
      return load_all<int16_t, Out>(view);
    case DType::kI32:
      return load_all<int32_t, Out>(view);
    case DType::kU32:
      return load_all<uint32_t, Out>(view);
    case DType::kI64:
      return load_all<int64_t, Out>(view);
    case DType::kU64:
      return load_all<uint64_t, Out>(view);
    case DType::kU4:
      return load_packed<Out>(view, 4, false);
    case DType::kI4:
      return load_packed<Out>(view, 4, true);
    case DType::kU2:
      return load_packed<Out>(view, 2, false);
    case DType::kI2:
      return load_packed<Out>(view, 2, true);
    default:
      return {};
  }
}

View contiguous_view(DType type, const std::vector<int64_t>& dims, std::byte* data) {
  View view;
  view.data = data;
  view.type = type;
  view.rank = static_cast<int32_t>(dims.size());
  for (int i = 0; i < view.rank; ++i) view.dims[i] = dims[i];
  view.set_contiguous_strides();
  return view;
}

}  // namespace

Tensor Tensor::allocate(DType type, const std::vector<int64_t>& dims) {
  Tensor result;
  result.view_ = contiguous_view(type, dims, nullptr);
  const size_t bytes = static_cast<size_t>(result.bytes());
  // Never empty, so that a zero-length tensor still has an address.
  const size_t rounded = (bytes / kAlignment + 1) * kAlignment;
  auto* words = static_cast<uint64_t*>(std::aligned_alloc(kAlignment, rounded));
  if (words == nullptr) throw std::bad_alloc();
  for (size_t i = 0; i < rounded / sizeof(uint64_t); ++i) words[i] = 0;
  result.owner_ = std::shared_ptr<const void>(words, [](const void* p) { std::free(const_cast<void*>(p)); });
  result.view_.data = reinterpret_cast<std::byte*>(words);
  return result;
}

Tensor Tensor::borrow(DType type, const std::vector<int64_t>& dims, const std::byte* data,
                      std::shared_ptr<const void> owner) {
  Tensor result;
  result.view_ = contiguous_view(type, dims, const_cast<std::byte*>(data));
  result.owner_ = std::move(owner);
  return result;
}

struct Tensor::Pending {
  int depth;
  std::function<Tensor()> make;
  Tensor made;
};

Tensor Tensor::deferred(DType type, const std::vector<int64_t>& dims, int depth, std::function<Tensor()> make) {
  Tensor result;
  result.view_ = contiguous_view(type, dims, nullptr);
  result.pending_ = std::make_shared<Pending>(Pending{depth, std::move(make), {}});
  return result;
}

int Tensor::depth() const { return pending_ && !pending_->made.present() ? pending_->depth : 0; }

void Tensor::settle() const {
  if (!pending_->made.present()) {
    pending_->made = pending_->make();
    pending_->make = nullptr;  // lets go of what it was made of
  }
  view_.data = pending_->made.view().data;
  owner_ = pending_->made.owner();
  pending_.reset();
}

Tensor Tensor::scalar_i64(int64_t value) {
  Tensor result = allocate(DType::kI64, {});
  *result.view_.as<int64_t>() = value;
  return result;
}

Tensor Tensor::vector_i64(const std::vector<int64_t>& values) {
  Tensor result = allocate(DType::kI64, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) result.view_.as<int64_t>()[i] = values[i];
  return result;
}

Tensor Tensor::reshaped(const std::vector<int64_t>& dims) const {
  Tensor result;
  result.view_ = contiguous_view(view_.type, dims, view_.data);
  result.owner_ = owner_;
  result.pending_ = pending_;
  return result;
}

Tensor aligned_copy(const Tensor& t, bool release_pages) {
  constexpr int64_t kPiece = 4 << 20;
  Tensor copy = Tensor::allocate(t.type(), t.dims());
  Ledger packed;  // of a load: the caller books it
  for (int64_t begin = 0; begin < t.bytes(); begin += kPiece) {
    const int64_t bytes = std::min(kPiece, t.bytes() - begin);
    std::byte* from = t.view().data + begin;
    move_bytes(contiguous_view(DType::kU8, {bytes}, copy.view().data + begin),
               contiguous_view(DType::kU8, {bytes}, from), packed);
    if (release_pages) release_file_pages(from, bytes);
  }
  return copy;
}

std::vector<int64_t> Tensor::to_i64() const { return load_integers<int64_t>(view()); }

std::vector<double> Tensor::to_f64() const {
  const View& v = view();
  switch (v.type) {
    case DType::kF32:
      return load_all<float, double>(v);
    case DType::kF64:
      return load_all<double, double>(v);
    case DType::kF16:
    case DType::kBF16: {
      std::vector<double> result(static_cast<size_t>(count()));
      for (size_t i = 0; i < result.size(); ++i) {
        const uint16_t bits = load<uint16_t>(v.data, static_cast<int64_t>(i));
        result[i] = v.type == DType::kF16 ? half_to_float(bits) : bfloat_to_float(bits);
      }
      return result;
    }
    default:
      return load_integers<double>(v);
  }
}

namespace {

// To nearest even; what is too large becomes infinity, NaN stays NaN.
uint16_t float_to_half(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {  // a subnormal half: adding 0.5 rounds at its last bit, 2^-24
    const float rounded = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(rounded) - 0x3f000000u));
  }
  return static_cast<uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13));
}

}  // namespace

Tensor rounded_to_half(const Tensor& t) {
  Tensor half = Tensor::allocate(DType::kF16, t.dims());
  const Tensor whole = t.contiguous() ? t : aligned_copy(t, false);
  const float* from = whole.view().as<float>();
  auto* to = reinterpret_cast<uint16_t*>(half.view().data);
  for (int64_t i = 0; i < t.count(); ++i) to[i] = float_to_half(from[i]);
  return half;
}

float half_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 31u;
  const uint32_t fraction = bits & 0x3ffu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (fraction << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
  const float magnitude = static_cast<float>(fraction) * 0x1p-24f;  // zero and subnormals
  return sign != 0 ? -magnitude : magnitude;
}

float bfloat_to_float(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

}  // namespace situ
