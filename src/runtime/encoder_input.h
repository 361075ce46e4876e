// What an encoder is given, and whether it is what its graph takes.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/tensor.h"
#include "graph/graph.h"

namespace situ {

// What an encoder is given: token ids, or named tensors.
struct EncoderInput {
  std::span<const int64_t> ids;
  std::map<std::string, Tensor> tensors;  // by name of the input
  std::map<std::string, std::vector<int64_t>> extents() const;
};

// Whether the encoder takes token ids: none of its inputs is of floats.
bool encoder_takes_ids(const Graph& encoder);
// Whether it takes arrays whose extents are known when they are given only.
bool takes_open_arrays(const Graph& encoder);
// Errors name an input that is missing, unknown or of another type, rank or extent; a source that is empty, or longer
// than `most_rows`.
Status check_encoder_input(const Graph& encoder, const EncoderInput& input, int64_t most_rows);
// Of one array. `one_source`: axis 0 is a batch of 1, else as many pictures or patches as there are.
Status check_encoder_array(const Graph& encoder, const Value& input, const Tensor& array, bool one_source);

}  // namespace situ
