#include "cli/hub/needed.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/hub/view.h"

namespace situ::hub {

bool has_ending(const std::string& path, std::initializer_list<const char*> endings) {
  return std::any_of(endings.begin(), endings.end(), [&](const char* e) { return path.ends_with(e); });
}

std::string parent_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

bool is_never_fetched(const std::string& path) {
  return has_ending(path, {".bin", ".pt", ".pth", ".pkl", ".py", ".safetensors"}) || is_in_view(path);
}

bool is_configuration(const std::string& path) {
  const std::string name = path.substr(path.rfind('/') + 1);
  return (name == "genai_config.json" && !is_in_view(path)) || path == "config.json" || path == "modules.json" ||
         path == "onnx/config.json";
}

std::set<std::string> needed_files(const FolderListing& listing, const FolderChoice& choice) {
  std::set<std::string> paths, folders{"", choice.folder};
  for (const std::string& graph : choice.graphs) {
    folders.insert(parent_of(graph));
    for (const ListedFile* f : graph_with_data(listing, graph))
      if (!is_never_fetched(f->path) || f->path == graph) paths.insert(f->path);
  }
  if (const auto modules = listing.texts.find("modules.json"); modules != listing.texts.end())
    for (const auto& module : nlohmann::json::parse(modules->second, nullptr, false))
      if (module.is_object() && module.contains("path") && module["path"].is_string())
        folders.insert(module["path"].get<std::string>());
  for (const ListedFile& f : listing.files)
    if (folders.count(parent_of(f.path)) != 0 && has_ending(f.path, {".json", ".jinja", ".txt", ".model", ".spm"}))
      paths.insert(f.path);
  return paths;
}

bool may_name_more(const FolderListing& listing, const FolderChoice& choice, const std::set<std::string>& needed) {
  std::vector<std::string> graphs;
  for (const ListedFile& f : listing.files)
    if (f.path.ends_with(".onnx")) graphs.push_back(f.path);
  return std::any_of(listing.files.begin(), listing.files.end(), [&](const ListedFile& f) {
    const std::string name = f.path.substr(f.path.rfind('/') + 1);
    if (needed.count(f.path) != 0 || is_in_view(f.path) || name.starts_with('.') || name.starts_with("LICENSE") ||
        has_ending(name, {".onnx", ".md",   ".png",   ".jpg", ".jpeg",  ".gif", ".svg",
                          ".pdf",  ".json", ".jinja", ".txt", ".model", ".spm", ".safetensors",
                          ".pt",   ".pth",  ".pkl",   ".py",  ".gguf",  ".h5",  ".msgpack"}))
      return false;
    const auto holds_it = [&](const std::string& graph) {
      const std::string folder = parent_of(graph);
      return folder.empty() || f.path.starts_with(folder + "/");
    };
    const auto is_of = [&](const std::string& graph) { return f.path.starts_with(graph); };  // its name tells it
    return std::any_of(choice.graphs.begin(), choice.graphs.end(), holds_it) &&
           std::none_of(graphs.begin(), graphs.end(), is_of);
  });
}

std::string beside(const std::string& graph, const std::string& name) {
  return (std::filesystem::path(parent_of(graph)) / name).lexically_normal().generic_string();
}

}  // namespace situ::hub
