// Arrays of random numbers for an encoder, of extents that its graph or its configuration tells.
#pragma once

#include <vector>

#include "pipelines/encoder_inputs.h"
#include "pipelines/model_folder.h"

namespace situ {

// One for each float input, in [-1, 1); integers, masks among them, are ones. Error: an extent that nothing tells
// (names the input), an input of another type.
Result<std::vector<GivenTensor>> probe_arrays(const ModelFolder& folder, const Graph& encoder);

}  // namespace situ
