// Folders of models inside of a folder that is none, as tools that convert write them: OUT/model, OUT/cpu/cpu-int4.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace situ {

// The folders below `folder` that hold a model, in order; none where `folder` itself has an .onnx file, a
// genai_config.json, or modules of sentence-transformers. Links and hidden folders are not followed.
std::vector<std::filesystem::path> nested_folders(const std::filesystem::path& folder);

// The paths with commas between; of many the first ones and their number.
std::string shown(const std::vector<std::filesystem::path>& folders);

}  // namespace situ
