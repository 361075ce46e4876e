// Which files beside a model hold tensors of it, without reading the tensors.
#pragma once

#include <filesystem>
#include <set>
#include <string>

#include "base/status.h"

namespace situ {

// TensorProto.external_data[location] of initialisers, and of attributes, in the file's graphs and functions: as the
// file has them, which may be anything. Error: the file cannot be read, or is no model.
Result<std::set<std::string>> external_names(const std::filesystem::path& file);

}  // namespace situ
