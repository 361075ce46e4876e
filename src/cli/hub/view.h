// A choice as a folder of its own: where a snapshot holds graphs that were not chosen too, or the tokenizer is in its
// root and the graphs are in a folder, SNAPSHOT/.situ/CHOICE/ has links to the files of the choice alone.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "cli/hub/cache.h"
#include "pipelines/model_folder_choice.h"
#include "situ/tools.h"

namespace situ::hub {

// The graphs that opening a folder opens; none where it cannot be opened.
std::set<std::filesystem::path> graphs_opened(const std::filesystem::path& folder,
                                              const std::vector<std::string>& variants);

// Whether a path of a snapshot is that of a view.
bool is_in_view(const std::string& path);

// The folder that is opened as the choice: the snapshot or a folder in it where that is enough, else a view.
// `path_alone`: without `variants`, by its path alone. `paths`: the files of the choice.
Result<Pulled> folder_of_choice(const RepositoryCache& cache, const std::string& commit, const FolderChoice& choice,
                                const std::set<std::string>& paths, bool path_alone);

}  // namespace situ::hub
