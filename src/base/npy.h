// Arrays from .npy files. Source: numpy.lib.format, versions 1.0 to 3.0.
#pragma once

#include <filesystem>

#include "base/status.h"
#include "base/tensor.h"

namespace situ {

// The array of one regular file, read once into memory of its own: bool, int32, int64, float16 or float32, little
// endian, in C order, of at most kMaxRank dimensions. The memory is no more than the file has bytes.
// Errors name the file, what is wanted and what was found.
Result<Tensor> read_npy(const std::filesystem::path& path);

}  // namespace situ
