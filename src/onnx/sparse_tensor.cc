// SparseTensorProto: values [NNZ] and their indices ([NNZ] into the flat tensor, or [NNZ, rank]), made dense.
#include <cstring>

#include "onnx/limits.h"
#include "onnx/tensor_parse.h"
#include "onnx/tensor_proto.h"

namespace situ::onnx {
namespace {

struct SparseProto {
  std::optional<std::string_view> values, indices;
  std::vector<int64_t> dims;
};

SparseProto parse_sparse(std::string_view message, const WirePath& path) {
  WireReader r(message, path);
  SparseProto sparse;
  while (r.next()) switch (r.tag()) {
      case 1:
        sparse.values = r.bytes();
        break;
      case 2:
        sparse.indices = r.bytes();
        break;
      case 3:
        r.integers([&](uint64_t v) {
          if (sparse.dims.size() >= static_cast<size_t>(kMaxRank)) r.fail("a sparse tensor of rank above 8");
          if (v > static_cast<uint64_t>(kMaxDim))
            r.fail("a dim of a sparse tensor is " + std::to_string(static_cast<int64_t>(v)));
          sparse.dims.push_back(static_cast<int64_t>(v));
        });
        break;
      default:
        r.skip();
    }
  if (!sparse.values || !sparse.indices) r.fail("a sparse tensor without values or indices");
  return sparse;
}

// The flat position of non-zero k, or -1 when an index is out of range.
int64_t flat_index(const int64_t* indices, int64_t k, bool linear, const std::vector<int64_t>& dims, int64_t count) {
  if (linear) return indices[k] >= 0 && indices[k] < count ? indices[k] : -1;
  const int64_t rank = static_cast<int64_t>(dims.size());
  int64_t flat = 0;
  for (int64_t axis = 0; axis < rank; ++axis) {
    const int64_t i = indices[k * rank + axis];
    if (i < 0 || i >= dims[axis]) return -1;
    flat = flat * dims[axis] + i;
  }
  return flat;
}

}  // namespace

NamedTensor TensorReader::read_sparse(std::string_view message, const WirePath& path, bool repeated) {
  if (auto it = seen_.find(message.data()); repeated && it != seen_.end()) return it->second;
  const SparseProto sparse = parse_sparse(message, path);
  const WirePath values_path{"values", -1, &path}, indices_path{"indices", -1, &path};
  const ParsedTensor values = parse_tensor(*sparse.values, values_path);
  const ParsedTensor indices = parse_tensor(*sparse.indices, indices_path);
  const int64_t width = dtype_bytes(values.type);
  if (width == 0) values.fail("sparse tensors of this type are not supported", Code::kUnsupportedModel);
  if (values.dims.size() != 1) values.fail("the values of a sparse tensor must have rank 1");
  const int64_t rank = static_cast<int64_t>(sparse.dims.size());
  const bool linear = indices.dims.size() == 1;
  if (indices.type != DType::kI64 || indices.dims.empty() || indices.dims.size() > 2 ||
      indices.dims[0] != values.count || (!linear && indices.dims[1] != rank))
    indices.fail("the indices of a sparse tensor with " + std::to_string(values.count) + " values and rank " +
                 std::to_string(rank) + " must be int64 [values] or [values, rank]");
  int64_t count = 1;
  for (int64_t d : sparse.dims) {
    if (d > 0 && count > (kMaxDenseBytes - densified_bytes_) / width / d)
      values.fail("its dense form exceeds the limit of " + std::to_string(kMaxDenseBytes) + " bytes");
    count *= std::max<int64_t>(d, 1);
  }
  for (int64_t d : sparse.dims)
    if (d == 0) count = 0;

  const Tensor value_data = decode(values).tensor;
  const Tensor index_data = decode(indices).tensor;
  densified_bytes_ += count * width;
  NamedTensor result{values.name, values.type, sparse.dims, Tensor::allocate(values.type, sparse.dims)};
  for (int64_t k = 0; k < values.count; ++k) {
    const int64_t at = flat_index(index_data.view().as<int64_t>(), k, linear, sparse.dims, count);
    if (at < 0) indices.fail("entry " + std::to_string(k) + " is outside of the sparse tensor's dims");
    std::memcpy(result.tensor.view().data + at * width, value_data.view().data + k * width, static_cast<size_t>(width));
  }
  if (repeated) seen_.emplace(message.data(), result);
  return result;
}

}  // namespace situ::onnx
