// Tensors that a caller gives to inputs of graphs by name: --encoder-input [GRAPH.]NAME=FILE.npy.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/tensor.h"
#include "situ/model.h"

namespace situ {

struct GivenTensor {
  std::string name;  // NAME, or GRAPH.NAME
  Tensor tensor;
  std::string source;  // the file, for messages
};

// Reads every NAME=FILE. Errors: no such form, a name twice, a file that read_npy refuses.
Result<std::vector<GivenTensor>> read_encoder_inputs(std::span<const std::string> texts);

// An input that may be given.
struct GraphInput {
  std::string graph, name;
  DType type = DType::kNone;
  std::vector<int64_t> dims;  // -1: any extent of at least 1
};

// For each tensor the index of its input. Errors name the tensor, what is wanted and what was found: a name that no
// input has (the message lists those that there are), that inputs of two graphs have, or that comes twice as NAME and
// GRAPH.NAME; another type (but float32 for float16), rank or extent.
Result<std::vector<size_t>> match_encoder_inputs(std::span<const GivenTensor> tensors,
                                                 std::span<const GraphInput> inputs);

// Of the elements of a part.
DType dtype_of(Part::Type type);
// The same elements, held by the part. Types: those of Part.
Part array_part(const std::string& name, const Tensor& tensor);

// Adds them to the prompt as arrays of the encoders of `model`, which takes some.
Status add_encoder_inputs(Model& model, std::span<const GivenTensor> tensors, Prompt* prompt);

}  // namespace situ
