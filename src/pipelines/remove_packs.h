// Packed weights that outlive their model.
#pragma once

#include <filesystem>
#include <vector>

namespace situ {

// Removes the saved files of packed weights that were made from one of `files`. Called before those are removed.
void remove_packs_of(const std::vector<std::filesystem::path>& files);

}  // namespace situ
