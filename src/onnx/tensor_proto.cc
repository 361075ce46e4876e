#include "onnx/tensor_proto.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>

#include "base/pages.h"
#include "onnx/limits.h"
#include "onnx/tensor_parse.h"

namespace situ::onnx {
namespace {

static_assert(std::endian::native == std::endian::little, "raw_data is little-endian and used in place");

// Copies at least this large give their source pages back, piece by piece: the weight is resident once, not twice.
constexpr int64_t kReleaseBytes = 64 * 1024, kPiece = 4 << 20;

int64_t alignment_of(DType type) {
  if (type == DType::kC64) return 4;
  if (type == DType::kC128) return 8;
  return std::max<int64_t>(dtype_bytes(type), 1);
}

// Writes the entries of list `field` to dst, which has room for all of them.
template <typename T>
void fill(const ParsedTensor& parsed, TypedField field, T* dst) {
  WireReader r(parsed.message, *parsed.path);
  const T* end = dst + parsed.entries[field];
  const auto put = [&dst, end](auto v) {
    if (dst != end) *dst++ = static_cast<T>(v);
  };
  while (r.next()) {
    if (r.tag() != field)
      r.skip();
    else if constexpr (std::is_same_v<T, float>)
      r.floats(put);
    else if constexpr (std::is_same_v<T, double>)
      r.doubles(put);
    else
      r.integers(put);
  }
}

void normalize_bools(std::byte* data, int64_t count) {
  for (int64_t i = 0; i < count; ++i) data[i] = data[i] == std::byte{0} ? std::byte{0} : std::byte{1};
}

// A decimal entry of external_data.
int64_t parse_number(const ParsedTensor& parsed, const char* key, std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0)
    parsed.fail(std::string("external data ") + key + " '" + std::string(text) + "' is not a byte count");
  return value;
}

}  // namespace

NamedTensor TensorReader::read(std::string_view message, const WirePath& path, bool repeated, bool leave_odd) {
  if (auto it = seen_.find(message.data()); repeated && it != seen_.end()) return it->second;
  ParsedTensor parsed = parse_tensor(message, path);
  parsed.leave_odd = leave_odd;
  NamedTensor result = decode(parsed);
  if (repeated) seen_.emplace(message.data(), result);
  return result;
}

NamedTensor TensorReader::decode(const ParsedTensor& parsed) {
  NamedTensor result{parsed.name, parsed.type, parsed.dims, {}};
  if (parsed.type == DType::kString) return result;
  if (parsed.external) {
    result.tensor = decode_external(parsed);
  } else if (parsed.raw && (!parsed.raw->empty() || parsed.bytes == 0)) {
    if (static_cast<int64_t>(parsed.raw->size()) != parsed.bytes)
      parsed.fail("raw_data has " + std::to_string(parsed.raw->size()) + " bytes, its type and dims need " +
                  std::to_string(parsed.bytes));
    for (TypedField f : {kFloatData, kInt32Data, kStringData, kInt64Data, kDoubleData, kUint64Data})
      if (parsed.entries[f]) parsed.fail(std::string("holds both raw_data and ") + typed_field_name(f));
    result.tensor = borrow_or_copy(parsed, reinterpret_cast<const std::byte*>(parsed.raw->data()), model_);
  } else {
    result.tensor = decode_typed(parsed);
  }
  total_bytes_ += parsed.bytes;
  return result;
}

Tensor TensorReader::decode_typed(const ParsedTensor& parsed) {
  const TypedField field = typed_field_of(parsed.type);
  for (TypedField f : {kFloatData, kInt32Data, kStringData, kInt64Data, kDoubleData, kUint64Data})
    if (f != field && parsed.entries[f])
      parsed.fail(std::string("holds ") + typed_field_name(f) + ", its type is stored in " + typed_field_name(field));
  const int64_t entries = parsed.entries[field];
  const int64_t needed = typed_entries(parsed.type, parsed.count);
  if (entries != needed)
    parsed.fail((entries == 0
                     ? std::string("has no data")
                     : std::string(typed_field_name(field)) + " has " + std::to_string(entries) + " elements") +
                ", its type and dims need " + std::to_string(needed));
  // A packed list of floats or doubles is the tensor itself.
  if ((field == kFloatData || field == kDoubleData) && parsed.one_list &&
      static_cast<int64_t>(parsed.one_list->size()) == parsed.bytes)
    return borrow_or_copy(parsed, reinterpret_cast<const std::byte*>(parsed.one_list->data()), model_);
  Tensor tensor = Tensor::allocate(parsed.type, parsed.dims);
  if (needed == 0) return tensor;
  const View& v = tensor.view();
  switch (field) {
    case kFloatData:
      fill(parsed, field, v.as<float>());
      break;
    case kDoubleData:
      fill(parsed, field, v.as<double>());
      break;
    case kInt64Data:
      fill(parsed, field, v.as<int64_t>());
      break;
    case kUint64Data:
      if (parsed.type == DType::kU32)
        fill(parsed, field, v.as<uint32_t>());
      else
        fill(parsed, field, v.as<uint64_t>());
      break;
    default:
      if (dtype_bits(parsed.type) == 32)
        fill(parsed, field, v.as<int32_t>());
      else if (dtype_bits(parsed.type) == 16)
        fill(parsed, field, v.as<uint16_t>());
      else if (parsed.type == DType::kBool)
        fill(parsed, field, v.as<bool>());
      else
        fill(parsed, field, v.as<uint8_t>());
  }
  if (parsed.bytes >= kReleaseBytes)
    release_file_pages(reinterpret_cast<const std::byte*>(parsed.message.data()),
                       static_cast<int64_t>(parsed.message.size()));
  return tensor;
}

Tensor TensorReader::decode_external(const ParsedTensor& parsed) {
  if (parsed.raw && !parsed.raw->empty()) parsed.fail("holds raw_data and is stored externally");
  std::string_view location;
  int64_t offset = 0, length = parsed.bytes;
  for (const auto& [key, value] : parsed.external_entries) {
    if (key == "location") location = value;
    if (key == "offset") offset = parse_number(parsed, "offset", value);
    if (key == "length") length = parse_number(parsed, "length", value);
  }
  std::shared_ptr<const MappedFile> file;
  try {
    file = external_.map(location);
  } catch (const ImportError& e) {
    parsed.fail(e.message(), e.code());
  }
  if (length != parsed.bytes)
    parsed.fail("external data length " + std::to_string(length) + ", its type and dims need " +
                std::to_string(parsed.bytes) + " bytes");
  if (offset > file->size || length > file->size - offset)
    parsed.fail("external data at offset " + std::to_string(offset) + ", " + std::to_string(length) +
                " bytes, is past the end of '" + std::string(location) + "' (" + std::to_string(file->size) +
                " bytes)");
  return borrow_or_copy(parsed, file->data + offset, file);
}

Tensor TensorReader::borrow_or_copy(const ParsedTensor& parsed, const std::byte* data,
                                    const std::shared_ptr<const void>& owner) {
  if (parsed.bytes == 0) return Tensor::allocate(parsed.type, parsed.dims);
  const bool aligned = reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(alignment_of(parsed.type)) == 0;
  const bool clean = parsed.type != DType::kBool ||
                     std::all_of(data, data + parsed.bytes, [](std::byte b) { return b <= std::byte{1}; });
  const bool real = parsed.type == DType::kF32 || parsed.type == DType::kF16 || parsed.type == DType::kBF16;
  const bool stays = parsed.leave_odd && real && parsed.dims.size() == 2 && parsed.bytes >= kReleaseBytes;
  if ((aligned || stays) && clean) return Tensor::borrow(parsed.type, parsed.dims, data, owner);
  Tensor tensor = Tensor::allocate(parsed.type, parsed.dims);
  for (int64_t begin = 0; begin < parsed.bytes; begin += kPiece) {
    const int64_t bytes = std::min(kPiece, parsed.bytes - begin);
    std::memcpy(tensor.view().data + begin, data + begin, static_cast<size_t>(bytes));
    if (parsed.bytes >= kReleaseBytes) release_file_pages(data + begin, bytes);
  }
  if (!clean) normalize_bools(tensor.view().data, parsed.bytes);
  if (!aligned) realigned_bytes_ += parsed.bytes;
  return tensor;
}

}  // namespace situ::onnx
