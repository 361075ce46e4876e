#include "onnx/tensor_parse.h"

#include <algorithm>

#include "onnx/limits.h"

namespace situ::onnx {
namespace {

// Varints end at bytes without the top bit.
int64_t count_varints(std::string_view list) {
  return std::count_if(list.begin(), list.end(), [](char c) { return (c & 0x80) == 0; });
}

}  // namespace

const char* typed_field_name(TypedField field) {
  switch (field) {
    case kFloatData:
      return "float_data";
    case kInt32Data:
      return "int32_data";
    case kStringData:
      return "string_data";
    case kInt64Data:
      return "int64_data";
    case kDoubleData:
      return "double_data";
    case kUint64Data:
      return "uint64_data";
    case kNoField:
      break;
  }
  return "none";
}

TypedField typed_field_of(DType type) {
  switch (type) {
    case DType::kF32:
    case DType::kC64:
      return kFloatData;
    case DType::kF64:
    case DType::kC128:
      return kDoubleData;
    case DType::kI64:
      return kInt64Data;
    case DType::kU32:
    case DType::kU64:
      return kUint64Data;
    case DType::kString:
      return kStringData;
    case DType::kNone:
      return kNoField;
    default:
      return kInt32Data;
  }
}

int64_t typed_entries(DType type, int64_t count) {
  if (type == DType::kC64 || type == DType::kC128) return 2 * count;
  const int bits = dtype_bits(type);
  return bits > 0 && bits < 8 ? (count * bits + 7) / 8 : count;
}

DType dtype_from_onnx(int64_t number) {
  if (number < 1 || number > static_cast<int64_t>(DType::kI2)) return DType::kNone;
  return static_cast<DType>(number);
}

void ParsedTensor::fail(const std::string& what, Code code) const {
  std::string text = "tensor '" + std::string(name) + "' (" + path->str();
  if (type != DType::kNone) {
    text += std::string(", ") + dtype_name(type) + " [";
    for (size_t i = 0; i < dims.size(); ++i) text += (i ? ", " : "") + std::to_string(dims[i]);
    text += "]";
  }
  throw ImportError(text + "): " + what, code);
}

namespace {

// Books the elements of the current typed field; they are decoded when their number is known to be right.
void count_entries(ParsedTensor& proto, WireReader& r, int64_t element_bytes) {
  int64_t& entries = proto.entries[r.tag()];
  if (!r.packed()) {
    r.skip();
    proto.one_list.reset();
    ++entries;
    return;
  }
  const std::string_view list = r.bytes();
  proto.one_list = entries == 0 ? std::optional(list) : std::nullopt;
  entries += element_bytes > 0 ? static_cast<int64_t>(list.size()) / element_bytes : count_varints(list);
}

std::pair<std::string_view, std::string_view> parse_string_entry(std::string_view bytes, const WirePath& parent) {
  const WirePath path{"external_data", -1, &parent};
  WireReader r(bytes, path);
  std::pair<std::string_view, std::string_view> entry;
  while (r.next()) switch (r.tag()) {
      case 1:
        entry.first = r.bytes();
        break;
      case 2:
        entry.second = r.bytes();
        break;
      default:
        r.skip();
    }
  return entry;
}

void append_dim(ParsedTensor& proto, uint64_t bits, const WireReader& r) {
  const int64_t dim = static_cast<int64_t>(bits);
  const std::string axis = std::to_string(proto.dims.size());
  if (proto.dims.size() >= static_cast<size_t>(kMaxRank)) r.fail("a tensor of rank above " + std::to_string(kMaxRank));
  if (dim < 0 || dim > kMaxDim) r.fail("dims[" + axis + "] of a tensor is " + std::to_string(dim));
  proto.dims.push_back(dim);
}

void check_size(ParsedTensor& proto) {
  int64_t product = 1;  // zeros left out, so that [0, 2^40, 2^40] is refused too: strides must fit
  for (int64_t d : proto.dims) {
    if (d > 0 && product > kMaxElements / d) proto.fail("the product of its dims is too large");
    product *= std::max<int64_t>(d, 1);
    proto.count *= d;
  }
  proto.bytes = (proto.count * dtype_bits(proto.type) + 7) / 8;
}

}  // namespace

ParsedTensor parse_tensor(std::string_view message, const WirePath& path) {
  ParsedTensor proto;
  proto.message = message;
  proto.path = &path;
  WireReader r(message, path);
  int64_t type = 0, location = 0;
  while (r.next()) switch (r.tag()) {
      case 1:
        r.integers([&](uint64_t v) { append_dim(proto, v, r); });
        break;
      case 2:
        type = r.integer();
        break;
      case 3:
        proto.segment = true;
        r.skip();
        break;
      case kFloatData:
        count_entries(proto, r, 4);
        break;
      case kDoubleData:
        count_entries(proto, r, 8);
        break;
      case kInt32Data:
      case kInt64Data:
      case kUint64Data:
        count_entries(proto, r, 0);
        break;
      case kStringData:
        r.bytes();
        ++proto.entries[kStringData];
        break;
      case 8:
        proto.name = r.bytes();
        break;
      case 9:
        proto.raw = r.bytes();
        break;
      case 13:
        proto.external_entries.push_back(parse_string_entry(r.bytes(), path));
        break;
      case 14:
        location = r.integer();
        break;
      default:
        r.skip();
    }
  proto.type = dtype_from_onnx(type);
  if (proto.type == DType::kNone) proto.fail("data_type " + std::to_string(type) + " is not known");
  if (location != 0 && location != 1) proto.fail("data_location " + std::to_string(location) + " is not known");
  proto.external = location == 1;
  if (proto.segment) proto.fail("tensors stored in segments are not supported", Code::kUnsupportedModel);
  check_size(proto);
  return proto;
}

}  // namespace situ::onnx
