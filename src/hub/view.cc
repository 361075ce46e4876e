#include "hub/view.h"

#include "pipelines/model_folder.h"

namespace situ::hub {
namespace {

namespace fs = std::filesystem;

constexpr const char* kViews = ".situ";

// Whether opening the folder opens these graphs.
bool opens(const fs::path& folder, const std::vector<std::string>& variants, const std::set<fs::path>& graphs) {
  const Result<ModelFolder> opened = open_model_folder(folder, variants);
  if (!opened.is_ok()) return false;
  std::set<fs::path> found;
  const auto add = [&](const fs::path& file) {
    if (!file.empty()) found.insert(file.lexically_normal());
  };
  for (const fs::path& file : {opened->encoder_file, opened->first_file, opened->model_file, opened->lookup_file})
    add(file);
  for (const MediaFile& media : opened->media_files) add(media.file);
  return found == graphs;
}

// Whether the folder of the choice has no tokenizer, and the root has one.
bool wants_root(const FolderChoice& choice, const std::set<std::string>& paths) {
  if (choice.folder.empty()) return false;
  bool own = false, root = false;
  for (const char* name : {"tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "source.spm"}) {
    own = own || paths.count(choice.folder + "/" + name) != 0;
    root = root || paths.count(name) != 0;
  }
  return root && !own;
}

std::string name_of(const FolderChoice& choice) {
  std::string name;
  for (const std::string& v : choice.variants) name += (name.empty() ? "" : ",") + v;
  return name.empty() ? "all" : name;
}

}  // namespace

bool is_in_view(const std::string& path) { return path.starts_with(std::string(kViews) + "/"); }

Result<Pulled> folder_of_choice(const RepositoryCache& cache, const std::string& commit, const FolderChoice& choice,
                                const std::set<std::string>& paths, bool path_alone) {
  const fs::path snapshot = cache.snapshot(commit);
  if (!choice.file.empty()) return Pulled{(snapshot / choice.file).string(), {}};
  const fs::path folder = choice.folder.empty() ? snapshot : snapshot / choice.folder;
  const Pulled plain{folder.string(), choice.variants};
  std::set<fs::path> graphs;
  for (const std::string& g : choice.graphs) graphs.insert((snapshot / g).lexically_normal());
  const bool root = wants_root(choice, paths), unit = choice.variants.empty();
  if (!root && (unit || opens(folder, path_alone ? std::vector<std::string>() : choice.variants, graphs))) return plain;
  // A model that is refused whichever graphs are beside it stays where it is, and loading says why.
  if (!root && !there(folder / "genai_config.json") && !opens(folder, choice.variants, graphs)) return plain;
  const fs::path view = fs::path(kViews) / name_of(choice), own = view / choice.folder;
  const auto link = [&](const std::string& path, const fs::path& at) {
    return cache.link_to(commit, at.generic_string(), snapshot / path);
  };
  for (const std::string& path : paths) {
    if (!unit && path == (fs::path(choice.folder) / "genai_config.json").generic_string()) continue;
    SITU_RETURN_IF_ERROR(link(path, view / path));
    if (root && path.find('/') == std::string::npos && path != "genai_config.json" &&
        paths.count(choice.folder + "/" + path) == 0)
      SITU_RETURN_IF_ERROR(link(path, own / path));
  }
  return Pulled{(choice.folder.empty() ? snapshot / view : snapshot / own).string(), choice.variants};
}

}  // namespace situ::hub
