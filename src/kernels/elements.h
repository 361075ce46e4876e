// Elements of any stored type as the few types that kernels compute in, a chunk at a time. A chunk that
// is already stored as the computed type and is contiguous is used in place.
#pragma once

#include "kernels/isa.h"
#include "kernels/math.h"

namespace situ {
namespace SITU_ISA {

// Small enough for a handful of buffers to stay in L1, large enough to hide the switch over types.
constexpr int64_t kChunk = 256;

struct Bool {
  uint8_t value;
};

template <typename T>
struct Tag {
  using type = T;
};

template <typename T>
inline constexpr bool kIsReal = false;
template <>
inline constexpr bool kIsReal<float> = true;
template <>
inline constexpr bool kIsReal<double> = true;
template <typename T>
inline constexpr bool kIsStoredHalf = false;
template <>
inline constexpr bool kIsStoredHalf<Half> = true;
template <>
inline constexpr bool kIsStoredHalf<BFloat> = true;

// The next float towards the half-way point is made odd, so that a second rounding is exact.
static inline float round_to_odd(double x) {
  const float f = static_cast<float>(x);
  if (static_cast<double>(f) == x || f != f) return f;
  uint32_t bits = float_bits(f);
  const bool too_large = (static_cast<double>(f) > x) == (x > 0);
  if (too_large) --bits;
  return bits_float(bits | 1u);
}

static inline float narrow_for_half(float x) { return x; }
static inline float narrow_for_half(double x) { return round_to_odd(x); }
template <typename I>
static inline float narrow_for_half(I x) {
  return static_cast<float>(x);
}

// Real to integer towards zero; what does not fit becomes the smallest integer, as x86 does.
template <typename I, typename R>
static inline I truncate_to(R x) {
  constexpr R kLimit = sizeof(I) == 4 ? static_cast<R>(2147483648.0) : static_cast<R>(9223372036854775808.0);
  constexpr I kLowest = static_cast<I>(static_cast<I>(1) << (sizeof(I) * 8 - 2)) * -2;
  return x >= -kLimit && x < kLimit ? static_cast<I>(x) : kLowest;
}

template <typename To, typename From>
static inline To convert(From x) {
  if constexpr (__is_same(To, From)) {
    return x;
  } else if constexpr (__is_same(From, Half) || __is_same(From, BFloat)) {
    return convert<To>(to_float(x));
  } else if constexpr (__is_same(From, Bool)) {
    return convert<To>(static_cast<int32_t>(x.value != 0));
  } else if constexpr (__is_same(To, Half)) {
    return to_half(narrow_for_half(x));
  } else if constexpr (__is_same(To, BFloat)) {
    return to_bfloat(narrow_for_half(x));
  } else if constexpr (__is_same(To, Bool)) {
    return Bool{static_cast<uint8_t>(x != 0)};
  } else if constexpr (kIsReal<From> && !kIsReal<To>) {
    if constexpr (__is_same(To, uint64_t)) {
      constexpr From kHalfRange = static_cast<From>(9223372036854775808.0);
      return x >= kHalfRange ? static_cast<uint64_t>(truncate_to<int64_t>(x - kHalfRange)) + (uint64_t{1} << 63)
                             : static_cast<uint64_t>(truncate_to<int64_t>(x));
    } else if constexpr (sizeof(To) < 4 || __is_same(To, int32_t)) {
      return static_cast<To>(truncate_to<int32_t>(x));
    } else {
      return static_cast<To>(truncate_to<int64_t>(x));
    }
  } else {
    return static_cast<To>(x);
  }
}

// The stored types of whole bytes that convert() knows. Returns false for others.
template <typename F>
static inline bool dispatch_stored(DType type, F f) {
  switch (type) {
    case DType::kF32:
      f(Tag<float>());
      break;
    case DType::kF64:
      f(Tag<double>());
      break;
    case DType::kF16:
      f(Tag<Half>());
      break;
    case DType::kBF16:
      f(Tag<BFloat>());
      break;
    case DType::kI8:
      f(Tag<int8_t>());
      break;
    case DType::kI16:
      f(Tag<int16_t>());
      break;
    case DType::kI32:
      f(Tag<int32_t>());
      break;
    case DType::kI64:
      f(Tag<int64_t>());
      break;
    case DType::kU8:
      f(Tag<uint8_t>());
      break;
    case DType::kU16:
      f(Tag<uint16_t>());
      break;
    case DType::kU32:
      f(Tag<uint32_t>());
      break;
    case DType::kU64:
      f(Tag<uint64_t>());
      break;
    case DType::kBool:
      f(Tag<Bool>());
      break;
    default:
      return false;
  }
  return true;
}

// The type that arithmetic on a stored type happens in.
template <typename F>
static inline bool dispatch_computed(DType type, F f) {
  switch (type) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      f(Tag<float>());
      break;
    case DType::kF64:
      f(Tag<double>());
      break;
    case DType::kI8:
    case DType::kI16:
    case DType::kI32:
      f(Tag<int32_t>());
      break;
    case DType::kI64:
      f(Tag<int64_t>());
      break;
    case DType::kU8:
    case DType::kU16:
    case DType::kU32:
    case DType::kBool:
      f(Tag<uint32_t>());
      break;
    case DType::kU64:
      f(Tag<uint64_t>());
      break;
    default:
      return false;
  }
  return true;
}

// An unsigned integer as wide as one element: for kernels that only choose or place elements.
struct Wide {
  uint64_t halves[2];
};
template <typename F>
static inline bool dispatch_size(DType type, F f) {
  switch (dtype_bits(type)) {
    case 8:
      f(Tag<uint8_t>());
      break;
    case 16:
      f(Tag<uint16_t>());
      break;
    case 32:
      f(Tag<uint32_t>());
      break;
    case 64:
      f(Tag<uint64_t>());
      break;
    case 128:
      f(Tag<Wide>());
      break;
    default:
      return false;
  }
  return true;
}

template <typename C>
static inline bool stored_as(DType type) {
  return (__is_same(C, float) && type == DType::kF32) || (__is_same(C, double) && type == DType::kF64) ||
         (__is_same(C, int32_t) && type == DType::kI32) || (__is_same(C, int64_t) && type == DType::kI64) ||
         (__is_same(C, uint32_t) && type == DType::kU32) || (__is_same(C, uint64_t) && type == DType::kU64);
}

// The slow half of load(): out of line, because every kernel that loads would carry 13 types of it.
template <typename C>
static __attribute__((noinline)) void gather_chunk(const View& v, int64_t at, int64_t step, int64_t count, C* buffer) {
  dispatch_stored(v.type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* x = reinterpret_cast<const T*>(v.data) + at;
    if (step == 1) {
      for (int64_t i = 0; i < count; ++i) buffer[i] = convert<C>(x[i]);
    } else {
      for (int64_t i = 0; i < count; ++i) buffer[i] = convert<C>(x[i * step]);
    }
  });
}

// `count` elements of v from element offset `at`, `step` apart, as C. count <= kChunk.
template <typename C>
static inline const C* load(const View& v, int64_t at, int64_t step, int64_t count, C* buffer) {
  if (step == 1 && stored_as<C>(v.type)) return reinterpret_cast<const C*>(v.data) + at;
  gather_chunk(v, at, step, step == 0 && count > 0 ? 1 : count, buffer);
  if (step == 0) {
    const C value = buffer[0];
    for (int64_t i = 1; i < count; ++i) buffer[i] = value;
  }
  return buffer;
}

// Where to compute a chunk that belongs at v: in place if v holds C there, else in the buffer.
template <typename C>
static inline C* destination(const View& v, int64_t at, int64_t step, C* buffer) {
  return step == 1 && stored_as<C>(v.type) ? reinterpret_cast<C*>(v.data) + at : buffer;
}

// The slow half of store().
template <typename C>
static __attribute__((noinline)) void scatter_chunk(const View& v, int64_t at, int64_t step, int64_t count,
                                                    const C* values) {
  dispatch_stored(v.type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* y = reinterpret_cast<T*>(v.data) + at;
    if (step == 1) {
      for (int64_t i = 0; i < count; ++i) y[i] = convert<T>(values[i]);
    } else {
      for (int64_t i = 0; i < count; ++i) y[i * step] = convert<T>(values[i]);
    }
  });
}

// Puts a computed chunk where it belongs, unless destination() already did.
template <typename C>
static inline void store(const View& v, int64_t at, int64_t step, int64_t count, const C* values) {
  if (step == 1 && stored_as<C>(v.type) && reinterpret_cast<const C*>(v.data) + at == values) return;
  scatter_chunk(v, at, step, count, values);
}

// Element i of a small integer operand (an axis, a count), by flat index.
static inline int64_t integer_at(const View& v, int64_t i) {
  int64_t value = 0;
  const int64_t step = v.rank == 1 ? v.strides[0] : 1;
  dispatch_stored(v.type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    value = convert<int64_t>(reinterpret_cast<const T*>(v.data)[i * step]);
  });
  return value;
}

// An index operand's element, int32 or int64.
static inline int64_t index_at(const View& v, int64_t offset) {
  return v.type == DType::kI32 ? reinterpret_cast<const int32_t*>(v.data)[offset]
                               : reinterpret_cast<const int64_t*>(v.data)[offset];
}

}  // namespace SITU_ISA
}  // namespace situ
