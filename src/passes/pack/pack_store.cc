#include "passes/pack/pack_store.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <optional>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include "base/pages.h"
#include "kernels/integer_layout.h"
#include "kernels/kernel.h"
#include "kernels/packed_layout.h"

namespace situ {
namespace {

constexpr int64_t kPartBytes = int64_t{8} << 20;
constexpr int64_t kRegionBytes = int64_t{64} << 20;
constexpr int64_t kAlignment = 64;
constexpr int64_t kTestedAtOnce = 4096;
constexpr int64_t kTrimBytes = int64_t{16} << 20;

// Every scale is 0 or a normal half-precision number: by itself, or after rounding, which then changes it by at most
// 2^-11 of itself.
bool scales_fit_half(const float* scales, int64_t begin, int64_t end, bool rounded) {
  const uint32_t lost = rounded ? 0 : 0x1fff;  // mantissa bits that a half does not have
  bool fits = true;
  for (int64_t i = begin; i < end; ++i) {
    const uint32_t word = std::bit_cast<uint32_t>(scales[i]), exponent = word >> 23 & 0xff;
    fits &= (exponent - 113u < 29u && (word & lost) == 0) || word << 1 == 0;
  }
  return fits;
}

// Every scale * zero point is a normal half-precision number up to the last bits of a float, which whoever divided by
// the scale has rounded; or, rounded, near to one, by 2^-11 of itself or of the smallest scale.
bool offsets_fit_half(const float* scales, const float* zeros, int64_t begin, int64_t end, bool rounded) {
  bool fits = true;
  for (int64_t i = begin; i < end; ++i) {
    const uint32_t word = std::bit_cast<uint32_t>(scales[i] * zeros[i]), exponent = word >> 23 & 0xff,
                   last = word & 0x1fff;
    fits &= rounded ? exponent < 142 : (exponent - 113u < 29u && (last <= 2 || last >= 0x1ffe)) || word << 1 == 0;
  }
  return fits;
}

// Types that hold every one of these words of floats exactly.
struct Exact {
  bool bfloat = true, half = true;
};
Exact exact_in(const std::byte* words, int64_t count) {
  typedef uint32_t OddWord __attribute__((aligned(1), may_alias));  // weights may stand anywhere in their file
  const OddWord* w = reinterpret_cast<const OddWord*>(words);
  uint32_t low = 0, lost = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t word = w[i], exponent = word >> 23 & 0xff;
    low |= word & 0xffff;
    // Below 2^-14 a half loses a bit more for every power of two; what is below 2^-24 or above 65,504 is none.
    const uint32_t shift = exponent >= 113 ? 13 : 126 - exponent;
    const bool normal = exponent >= 103 && exponent <= 142;
    lost |= normal ? word & ((1u << (shift & 31)) - 1) : word << 1;
  }
  return {low == 0, lost == 0};
}

}  // namespace

Result<Tensor> PackStore::allocate(int64_t bytes) {
  const int64_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (used_ + rounded > region_bytes_) {
    const int64_t wanted = std::max(kRegionBytes, rounded);
    std::shared_ptr<std::byte> region = map_weights(wanted);
    if (!region)
      return Status::error(Code::kNoRoom, "cannot reserve " + std::to_string(wanted) + " bytes for packed weights");
    region_ = std::move(region);
    region_bytes_ = wanted;
    used_ = 0;
  }
  Tensor t = Tensor::borrow(DType::kU8, {bytes}, region_.get() + used_, region_);
  used_ += rounded;
  return t;
}

// All results of a dry store lie in the same memory, which nothing is written to.
Result<Tensor> PackStore::nothing(DType type, int64_t count) {
  used_ = 0;
  const Result<Tensor> bytes = allocate((count * dtype_bits(type) + 7) / 8);
  used_ = 0;
  if (!bytes.is_ok()) return bytes;
  return Tensor::borrow(type, {count}, bytes->view().data, bytes->owner());
}

// Rows [begin, end) of `rows`.
void PackStore::release(const Tensor& source, int64_t begin, int64_t end, int64_t rows) const {
  if (dry_) return;
  if (!files_.count(source.owner().get())) return;
  const int64_t from = source.bytes() / rows * begin, to = end >= rows ? source.bytes() : source.bytes() / rows * end;
  release_file_pages(source.view().data + from, to - from);
}

// What the kernels store as half precision: scales, and what zero points that are no integers take from their digits.
bool PackStore::fits_half(const StoredMatrix& w, bool rounded) const {
  const DType type = w.scales.data.type();
  const bool offsets = w.form.zeros == ZeroPoints::kFloats, real = type == DType::kF32;
  if (offsets && !(real && w.zeros.data.type() == DType::kF32)) return false;
  if (!real) return type == DType::kF16;
  const float *scales = w.scales.data.view().as<const float>(),
              *zeros = offsets ? w.zeros.data.view().as<const float>() : nullptr;
  std::atomic<bool> fits{true};
  const int64_t count = w.scales.data.count();
  pool_.run([&](int t, int n) {
    for (int64_t i = count * t / n, end = count * (t + 1) / n; i < end && fits.load(std::memory_order_relaxed);
         i += kTestedAtOnce) {
      const int64_t last = std::min(i + kTestedAtOnce, end);
      if (!scales_fit_half(scales, i, last, rounded) || (offsets && !offsets_fit_half(scales, zeros, i, last, rounded)))
        fits.store(false, std::memory_order_relaxed);
    }
  });
  return fits.load();
}

Result<Packed> PackStore::pack(const StoredMatrix& w, bool rounded) {
  const Tensor &digits = w.digits.data, &scales = w.scales.data, &zeros = w.zeros.data;
  if (dry_) {
    const bool half = scales.type() == DType::kF16;
    const Result<Tensor> data = nothing(DType::kU8, packed_layout(packed_params(w.form, half)).bytes());
    return data.is_ok() ? Packed{*data, half} : Result<Packed>(data.status());
  }
  const Key key{digits.view().data,
                scales.view().data,
                has_zeros(w.form.zeros) ? zeros.view().data : nullptr,
                w.form.n,
                w.form.k,
                w.form.bits,
                w.form.block,
                rounded,
                w.form.high_first};
  if (auto it = packed_.find(key); it != packed_.end() && it->second.made_of(digits, scales, zeros))
    return it->second.result;
  const PackOperands operands{w, rounded};
  std::optional<Packed> packed = cache_ ? cache_->find(operands) : std::nullopt;
  if (!packed) {
    const bool half = fits_half(w, rounded);
    Result<Tensor> data = lay_out(w, half);
    if (!data.is_ok()) return data.status();
    packed = Packed{*data, half};
    if (cache_) cache_->add(operands, *packed);
    written_ += packed->data.bytes();
  }
  bytes_ += packed->data.bytes();
  packed_.insert_or_assign(key, Made<Packed>::of(*packed, digits, scales, zeros));
  return *packed;
}

Result<Tensor> PackStore::lay_out(const StoredMatrix& w, bool half_scales) {
  const PackedMatMulParams params = packed_params(w.form, half_scales);
  const PackedLayout layout = packed_layout(params);
  Result<Tensor> packed = allocate(layout.bytes());
  if (!packed.is_ok()) return packed;
  const Tensor &digits = w.digits.data, &scales = w.scales.data;
  const View in[] = {digits.view(), scales.view(), has_zeros(w.form.zeros) ? w.zeros.data.view() : View{}};
  const View out = packed->view();
  KernelCall call;
  call.in = in;
  call.in_count = 3;
  call.out = &out;
  call.out_count = 1;
  // A part at a time, so that no more than one part of the file is resident beside what has been packed.
  const int64_t row = digits.bytes() / layout.n,
                step = std::max<int64_t>(1, kPartBytes / (row * kPanelColumns * kUnitPanels));
  for (int64_t unit = 0; unit < layout.units(); unit += step) {
    const PackNBitsParams part{params, unit, std::min(unit + step, layout.units())};
    call.params = &part;
    pool_.run([&](int t, int n) { kernels().pack_nbits(call, t, n); });
    for (const Tensor* source : {&digits, &scales})
      release(*source, part.first_unit * kUnitPanels * kPanelColumns, part.last_unit * kUnitPanels * kPanelColumns,
              layout.n);
  }
  return packed;
}

DType PackStore::narrowest(const Tensor& w) const {
  if (w.type() != DType::kF32) return w.type();
  std::atomic<bool> bfloat{true}, half{true};
  const int64_t parts = (w.bytes() + kPartBytes - 1) / kPartBytes;
  for (int64_t part = 0; part < parts && (bfloat.load() || half.load()); ++part) {
    const int64_t begin = w.count() * part / parts, count = w.count() * (part + 1) / parts - begin;
    pool_.run([&](int t, int n) {
      for (int64_t i = begin + count * t / n, end = begin + count * (t + 1) / n;
           i < end && (bfloat.load(std::memory_order_relaxed) || half.load(std::memory_order_relaxed));
           i += kTestedAtOnce) {
        const Exact exact = exact_in(w.view().data + i * dtype_bytes(DType::kF32), std::min(kTestedAtOnce, end - i));
        if (!exact.bfloat) bfloat.store(false, std::memory_order_relaxed);
        if (!exact.half) half.store(false, std::memory_order_relaxed);
      }
    });
    release(w, part, part + 1, parts);
  }
  return bfloat.load() ? DType::kBF16 : half.load() ? DType::kF16 : DType::kF32;
}

Result<Tensor> PackStore::pack_dense(const Tensor& w, int64_t k, int64_t n, bool transposed) {
  if (dry_) return nothing(w.type(), DenseMatMulParams{k, n}.packed_count());
  const auto key = std::make_tuple(static_cast<const void*>(w.view().data), k, n, transposed);
  if (auto it = dense_.find(key); it != dense_.end() && it->second.made_of(w)) return it->second.result;
  const DenseOperands operands{w, k, n, transposed};
  std::optional<Tensor> packed = cache_ ? cache_->find(operands) : std::nullopt;
  if (!packed) {
    Result<Tensor> made = lay_out(w, k, n, transposed);
    if (!made.is_ok()) return made;
    packed = *made;
    if (cache_) cache_->add(operands, *packed);
    written_ += packed->bytes();
  }
  bytes_ += packed->bytes();
  dense_.insert_or_assign(key, Made<Tensor>::of(*packed, w));
  return *packed;
}

// By rows of w as the file has it, so that no more than a part of the file is resident beside what has been packed.
Result<Tensor> PackStore::lay_out(const Tensor& w, int64_t k, int64_t n, bool transposed) {
  PackDenseParams part{{k, n}, 0, k, 0, (n + kDensePanelColumns - 1) / kDensePanelColumns};
  const int64_t count = part.product.packed_count();
  const DType type = narrowest(w);
  Result<Tensor> bytes = allocate(count * dtype_bytes(type));
  if (!bytes.is_ok()) return bytes;
  const Tensor packed = Tensor::borrow(type, {count}, bytes->view().data, bytes->owner());
  View source = w.view();
  if (transposed) {
    std::swap(source.dims[0], source.dims[1]);
    std::swap(source.strides[0], source.strides[1]);
  }
  const View out = packed.view();
  KernelCall call;
  call.in = &source;
  call.in_count = 1;
  call.out = &out;
  call.out_count = 1;
  call.params = &part;
  const int64_t rows = transposed ? part.last_panel : k, row_bytes = w.bytes() / rows,
                step = std::max<int64_t>(1, kPartBytes / std::max<int64_t>(1, row_bytes));
  for (int64_t begin = 0; begin < rows; begin += step) {
    const int64_t end = std::min(begin + step, rows);
    (transposed ? part.first_panel : part.first_k) = begin;
    (transposed ? part.last_panel : part.last_k) = end;
    pool_.run([&](int t, int threads) { kernels().pack_dense(call, t, threads); });
    release(w, begin, end, rows);
  }
  return packed;
}

Result<Tensor> PackStore::pack_integer(const Tensor& w) {
  const int64_t k = w.dims()[0], n = w.dims()[1];
  if (dry_) return nothing(DType::kU8, IntegerLayout{k, n}.bytes());
  const auto key = std::make_tuple(static_cast<const void*>(w.view().data), k, n, false);
  if (auto it = dense_.find(key); it != dense_.end() && it->second.made_of(w)) return it->second.result;
  const DenseOperands operands{w, k, n, false};
  std::optional<Tensor> packed = cache_ ? cache_->find(operands) : std::nullopt;
  if (!packed) {
    Result<Tensor> made = lay_out_integer(w);
    if (!made.is_ok()) return made;
    packed = *made;
    if (cache_) cache_->add(operands, *packed);
    written_ += packed->bytes();
  }
  bytes_ += packed->bytes();
  dense_.insert_or_assign(key, Made<Tensor>::of(*packed, w));
  return *packed;
}

Result<Tensor> PackStore::lay_out_integer(const Tensor& w) {
  const IntegerLayout layout{w.dims()[0], w.dims()[1]};
  Result<Tensor> packed = allocate(layout.bytes());
  if (!packed.is_ok()) return packed;
  const PackIntegerParams all{layout, 0, layout.units()};
  const View in = w.view(), out = packed->view();
  KernelCall call;
  call.in = &in;
  call.in_count = 1;
  call.out = &out;
  call.out_count = 1;
  call.params = &all;
  pool_.run([&](int t, int n) { kernels().pack_integer(call, t, n); });
  release(w);
  return packed;
}

void PackStore::let_go(Tensor* constant) {
  let_go_ += constant->bytes();
  *constant = Tensor();
  if (let_go_ < kTrimBytes) return;
  let_go_ = 0;
#if defined(__GLIBC__)
  malloc_trim(0);  // glibc keeps blocks as large as a matrix for itself once it has seen some come and go
#endif
}

Tensor PackStore::aligned(const Tensor& odd) {
  Made<Tensor>& copy = aligned_[odd.view().data];
  if (!copy.result.present() || !copy.made_of(odd)) {
    copy = Made<Tensor>::of(aligned_copy(odd, files_.count(odd.owner().get()) > 0), odd);
    bytes_ += copy.result.bytes();
    written_ += copy.result.bytes();
  }
  return copy.result.reshaped(odd.dims());
}

}  // namespace situ
