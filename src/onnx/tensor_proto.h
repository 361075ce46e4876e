// TensorProto and SparseTensorProto -> Tensor.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/tensor.h"
#include "onnx/external_data.h"
#include "onnx/wire.h"

namespace situ::onnx {

struct ParsedTensor;

struct NamedTensor {
  std::string_view name;  // in the mapped file
  DType type = DType::kNone;
  std::vector<int64_t> dims;
  Tensor tensor;  // absent for strings, which Situ does not hold
};

// Reads the tensors of one model. raw_data, external data and packed float lists that are aligned for their
// element type are borrowed from the maps; everything else is decoded or copied into owned memory.
class TensorReader {
 public:
  TensorReader(std::shared_ptr<const MappedBytes> model, ExternalFiles& external)
      : model_(std::move(model)), external_(external) {}

  // Throw ImportError naming the tensor, its place, type and dims. `repeated`: the same message may be read
  // again (a function's constant, inlined several times) and is to be decoded once.
  // `leave_odd`: large float matrices at odd addresses stay there (passes/pack/align_constants.cc).
  NamedTensor read(std::string_view message, const WirePath& path, bool repeated, bool leave_odd = false);
  NamedTensor read_sparse(std::string_view message, const WirePath& path, bool repeated);

  // Bytes of all tensors read, and of those that had to be copied because of their alignment.
  int64_t total_bytes() const { return total_bytes_; }
  int64_t realigned_bytes() const { return realigned_bytes_; }

 private:
  NamedTensor decode(const ParsedTensor& parsed);
  Tensor decode_typed(const ParsedTensor& parsed);
  Tensor decode_external(const ParsedTensor& parsed);
  // `data` holds parsed.bytes bytes in memory that `owner` keeps.
  Tensor borrow_or_copy(const ParsedTensor& parsed, const std::byte* data, const std::shared_ptr<const void>& owner);

  std::shared_ptr<const MappedBytes> model_;
  ExternalFiles& external_;
  std::unordered_map<const char*, NamedTensor> seen_;  // by address of the message
  int64_t total_bytes_ = 0;
  int64_t realigned_bytes_ = 0;
  int64_t densified_bytes_ = 0;
};

// The DType with this onnx.proto number, or kNone for one that Situ does not know.
DType dtype_from_onnx(int64_t number);

}  // namespace situ::onnx
