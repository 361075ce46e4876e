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

// Removes a repository, its locks, packs of its weights, and what it alone has of the store that all repositories
// share. `force`: what others fetched, too. Errors: it is not in the cache, or not ours; kInternal: it is fetched.
Status remove_model(const std::string& repository, bool force);

struct Pruned {
  int64_t bytes = 0;
  std::vector<std::string> models;  // that are gone as a whole
};
// Removes parts of downloads, and commits that no revision names any more; with `to`, then whole models, those that
// were not used longest first, until the rest takes at most so many bytes. `force`: of what others fetched, too. What
// a pull works on is left alone.
Result<Pruned> prune_cache(std::optional<int64_t> to, bool force);

}  // namespace situ::hub
