#include "pipelines/nested_folders.h"

#include <algorithm>

#include "pipelines/graph_files.h"

namespace situ {

namespace fs = std::filesystem;

namespace {

constexpr int kDeepest = 3;             // folders below the one that is named
constexpr size_t kMostEntries = 10000;  // that are looked at
constexpr size_t kMostShown = 8;

bool holds_model(const fs::path& folder) {
  for (const char* name : {"genai_config.json", "modules.json"})
    if (there(folder / name)) return true;
  return !GraphFiles(folder, VariantChoice()).all().empty();
}

struct Search {
  std::vector<fs::path> found;
  size_t entries = 0;

  void below(const fs::path& folder, int depth) {
    std::vector<fs::path> inside;
    std::error_code error;
    for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
      if (++entries > kMostEntries) return;
      std::error_code unreadable;
      const bool hidden = it->path().filename().string().starts_with(".");
      if (!hidden && it->symlink_status(unreadable).type() == fs::file_type::directory) inside.push_back(it->path());
    }
    std::sort(inside.begin(), inside.end());
    for (const fs::path& next : inside)
      if (holds_model(next))
        found.push_back(next);
      else if (depth < kDeepest)
        below(next, depth + 1);
  }
};

}  // namespace

std::vector<fs::path> nested_folders(const fs::path& folder) {
  if (holds_model(folder)) return {};
  Search search;
  search.below(folder, 1);
  return search.found;
}

std::string shown(const std::vector<fs::path>& folders) {
  std::string text;
  for (size_t i = 0; i < std::min(folders.size(), kMostShown); ++i)
    text += (text.empty() ? "" : ", ") + folders[i].string();
  return text + (folders.size() > kMostShown ? ", .. (" + std::to_string(folders.size()) + " folders)" : "");
}

}  // namespace situ
