// The only file of Situ that may call memcpy: every byte that moves is booked here.
#include "base/ledger.h"

#include <cstring>

namespace situ {
namespace {

// The nest of loops that a copy needs, outermost first; strides in bytes.
struct CopyNest {
  int rank = 0;
  int64_t dims[kMaxRank];
  int64_t dst[kMaxRank];
  int64_t src[kMaxRank];
};

// Drops dims of extent 1 and merges neighbours that are contiguous on both sides.
CopyNest merge_dims(const View& dst, const View& src, int64_t element) {
  CopyNest nest;
  for (int i = 0; i < dst.rank; ++i) {
    if (dst.dims[i] == 1) continue;
    const int64_t d = dst.strides[i] * element, s = src.strides[i] * element;
    const int last = nest.rank - 1;
    if (last >= 0 && nest.dst[last] == d * dst.dims[i] && nest.src[last] == s * dst.dims[i]) {
      nest.dims[last] *= dst.dims[i];
      nest.dst[last] = d;
      nest.src[last] = s;
      continue;
    }
    nest.dims[nest.rank] = dst.dims[i];
    nest.dst[nest.rank] = d;
    nest.src[nest.rank] = s;
    ++nest.rank;
  }
  return nest;
}

struct Wide {
  uint64_t halves[2];
};

// One row of elements that are not adjacent on one side.
template <typename T>
void copy_row(std::byte* dst, int64_t dst_step, const std::byte* src, int64_t src_step, int64_t count) {
  for (int64_t i = 0; i < count; ++i) std::memcpy(dst + i * dst_step, src + i * src_step, sizeof(T));
}

using RowFn = void (*)(std::byte*, int64_t, const std::byte*, int64_t, int64_t);

RowFn row_copier(int64_t element) {
  switch (element) {
    case 1:
      return copy_row<uint8_t>;
    case 2:
      return copy_row<uint16_t>;
    case 4:
      return copy_row<uint32_t>;
    case 8:
      return copy_row<uint64_t>;
    default:
      return copy_row<Wide>;
  }
}

// Calls row(dst, src) for every index of the dims in front of the last one.
template <typename Row>
void for_each_row(const CopyNest& nest, std::byte* dst, const std::byte* src, Row row) {
  const int outer = nest.rank - 1;
  int64_t index[kMaxRank] = {};
  for (;;) {
    row(dst, src);
    int axis = outer - 1;
    for (; axis >= 0; --axis) {
      dst += nest.dst[axis];
      src += nest.src[axis];
      if (++index[axis] < nest.dims[axis]) break;
      dst -= nest.dst[axis] * nest.dims[axis];
      src -= nest.src[axis] * nest.dims[axis];
      index[axis] = 0;
    }
    if (axis < 0) return;
  }
}

}  // namespace

void move_bytes(const View& dst, const View& src, Ledger& ledger) {
  const int64_t count = dst.count();
  const int bits = dtype_bits(dst.type);
  const int64_t bytes = (count * bits + 7) / 8;
  if (bytes == 0) return;
  ledger.copied += bytes;
  const int64_t element = dtype_bytes(dst.type);
  if (element == 0) {
    std::memcpy(dst.data, src.data, static_cast<size_t>(bytes));
    return;
  }
  const CopyNest nest = merge_dims(dst, src, element);
  if (nest.rank == 0) {
    std::memcpy(dst.data, src.data, static_cast<size_t>(element));
    return;
  }
  const int last = nest.rank - 1;
  const int64_t length = nest.dims[last], dst_step = nest.dst[last], src_step = nest.src[last];
  if (dst_step == element && src_step == element) {
    const size_t row_bytes = static_cast<size_t>(length * element);
    for_each_row(nest, dst.data, src.data, [&](std::byte* d, const std::byte* s) { std::memcpy(d, s, row_bytes); });
    return;
  }
  const RowFn copy = row_copier(element);
  for_each_row(nest, dst.data, src.data,
               [&](std::byte* d, const std::byte* s) { copy(d, dst_step, s, src_step, length); });
}

}  // namespace situ
