// The models in the cache: which there are, and removing them.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace situ::hub {

struct CachedModel {
  std::string name;            // "ORG/REPO"
  std::filesystem::path path;  // the snapshot of main, or the newest
  int64_t bytes = 0;           // on disk, of all its commits
  std::vector<std::string> variants;
  std::string kind;   // FolderChoice::kind; "": no choice can be made
  bool ours = false;  // situ itself pulled all of it
};

// Repositories with a graph, by name.
std::vector<CachedModel> cached_models();

// Notes that situ pulls a repository that is not in the cache yet. What cannot be noted is not ours.
void remember_pulled(const std::filesystem::path& repository);

// Removes a repository, its locks and packs of its weights. `force`: what others fetched, too. Errors: it is not in the
// cache, or not ours.
Status remove_model(const std::string& repository, bool force);

struct Pruned {
  int64_t bytes = 0;
  std::vector<std::string> models;  // that are gone as a whole
};
// Removes parts of downloads, and commits that no revision names any more; with `to`, then whole models, those that
// were not used longest first, until the rest takes at most so many bytes. `force`: of what others fetched, too.
Result<Pruned> prune_cache(std::optional<int64_t> to, bool force);

}  // namespace situ::hub
