// TensorProto's fields as they stand in the file.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "onnx/tensor_proto.h"

namespace situ::onnx {

// Field numbers of TensorProto's typed lists.
enum TypedField : uint32_t {
  kNoField = 0,
  kFloatData = 4,
  kInt32Data = 5,
  kStringData = 6,
  kInt64Data = 7,
  kDoubleData = 10,
  kUint64Data = 11,
};
const char* typed_field_name(TypedField field);
// The list that holds elements of `type` when there is no raw_data.
TypedField typed_field_of(DType type);
// How many list entries `count` elements of `type` take: two per complex number, and one per byte of
// the types that are packed below a byte.
int64_t typed_entries(DType type, int64_t count);

struct ParsedTensor {
  std::string_view message, name;
  const WirePath* path = nullptr;
  DType type = DType::kNone;
  std::vector<int64_t> dims;
  int64_t count = 1;  // product of dims
  int64_t bytes = 0;  // of the contiguous tensor
  std::optional<std::string_view> raw;
  int64_t entries[12] = {};                  // per TypedField: elements present in the file
  std::optional<std::string_view> one_list;  // the typed list, where it is a single packed field
  bool external = false, segment = false;
  bool leave_odd = false;  // see TensorReader::read
  std::vector<std::pair<std::string_view, std::string_view>> external_entries;

  // "tensor 'w' (graph.initializer[3], float32 [3, 4]): what".
  [[noreturn]] void fail(const std::string& what, Code code = Code::kBadFile) const;
};

// Reads the fields, checks type, dims and their product. `path` must outlive the result. Throws ImportError.
ParsedTensor parse_tensor(std::string_view message, const WirePath& path);

}  // namespace situ::onnx
