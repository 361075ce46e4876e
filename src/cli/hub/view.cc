#include "cli/hub/view.h"

#include <algorithm>

#include "cli/hub/needed.h"
#include "pipelines/model_folder.h"

namespace situ::hub {
namespace {

namespace fs = std::filesystem;

constexpr const char* kViews = ".situ";

// Whether a folder with a choice has no tokenizer, and the root has one.
bool wants_root(const std::string& folder, const std::set<std::string>& paths) {
  if (folder.empty()) return false;
  bool own = false, root = false;
  for (const char* name : {"tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "source.spm"}) {
    own = own || paths.count(folder + "/" + name) != 0;
    root = root || paths.count(name) != 0;
  }
  return root && !own;
}

std::string name_of(const FolderChoice& choice) {
  std::string name = choice.file;
  std::replace(name.begin(), name.end(), '/', ',');
  for (const std::string& v : choice.variants) name += (name.empty() ? "" : ",") + v;
  return name.empty() ? "all" : name;
}

}  // namespace

std::set<fs::path> graphs_opened(const fs::path& folder, const std::vector<std::string>& variants) {
  const Result<ModelFolder> opened = open_model_folder(folder, variants);
  if (!opened.is_ok()) return {};
  std::set<fs::path> found;
  const auto add = [&](const fs::path& file) {
    if (!file.empty()) found.insert(file.lexically_normal());
  };
  for (const fs::path& file : {opened->encoder_file, opened->first_file, opened->model_file, opened->lookup_file})
    add(file);
  for (const MediaFile& media : opened->media_files) add(media.file);
  return found;
}

bool is_in_view(const std::string& path) { return path.starts_with(std::string(kViews) + "/"); }

Result<Pulled> folder_of_choice(const RepositoryCache& cache, const std::string& commit, const FolderChoice& choice,
                                const std::set<std::string>& paths, bool path_alone) {
  const fs::path snapshot = cache.snapshot(commit);
  const std::string inner = choice.file.empty() ? choice.folder : parent_of(choice.file);
  const auto opened_in = [&](const fs::path& root) {  // the folder, or the graph that was chosen by its path
    const fs::path place = choice.file.empty() ? root / inner : root / choice.file;
    return Pulled{(place.has_filename() ? place : place.parent_path()).string(), choice.variants};
  };
  const Pulled plain = opened_in(snapshot);
  const fs::path folder = plain.path;
  std::set<fs::path> graphs;
  for (const std::string& g : choice.graphs) graphs.insert((snapshot / g).lexically_normal());
  const bool root = wants_root(inner, paths), unit = choice.variants.empty();
  if (!root && (unit || graphs_opened(folder, path_alone ? std::vector<std::string>() : choice.variants) == graphs))
    return plain;
  // A model that is refused whichever graphs are beside it stays where it is, and loading says why.
  if (!root && !there(folder / "genai_config.json") && graphs_opened(folder, choice.variants) != graphs) return plain;
  const fs::path view = fs::path(kViews) / name_of(choice), own = view / inner;
  const auto link = [&](const std::string& path, const fs::path& at) {
    return cache.link_to(commit, at.generic_string(), snapshot / path);
  };
  for (const std::string& path : paths) {
    if (!unit && path == (fs::path(inner) / "genai_config.json").generic_string()) continue;
    SITU_RETURN_IF_ERROR(link(path, view / path));
    if (root && path.find('/') == std::string::npos && path != "genai_config.json" &&
        paths.count(inner + "/" + path) == 0)
      SITU_RETURN_IF_ERROR(link(path, own / path));
  }
  return opened_in(snapshot / view);
}

}  // namespace situ::hub
