// Weights of small modules beside a graph: files of the safetensors format.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/status.h"

namespace situ {

// The tensor of that name as floats (from F32, F16, BF16 or F64), which must be of these dims. Source of the format:
// huggingface/safetensors: the size of a JSON header (8 bytes, little-endian), the header, the data. Errors name the
// file, the tensor and what is wrong with it.
Result<std::vector<float>> read_safetensor(const std::filesystem::path& file, const std::string& name,
                                           const std::vector<int64_t>& dims);

}  // namespace situ
