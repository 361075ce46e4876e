// situ::pull: from a name to a folder that Model::load takes.
#include <fnmatch.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/assign.h"
#include "hub/fetch.h"
#include "hub/inventory.h"
#include "onnx/external_names.h"
#include "pipelines/model_folder_choice.h"
#include "situ/tools.h"

namespace situ {
namespace hub {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostText = 8 << 20;  // of a config.json, which is read before anything is chosen
constexpr size_t kMostConfigs = 256;

bool has_ending(const std::string& path, std::initializer_list<const char*> endings) {
  return std::any_of(endings.begin(), endings.end(), [&](const char* e) { return path.ends_with(e); });
}

// Code, and what may hold code.
bool is_never_fetched(const std::string& path) {
  return has_ending(path, {".bin", ".pt", ".pth", ".pkl", ".py", ".safetensors"});
}

std::string parent_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// What is read before the choice.
bool is_configuration(const std::string& path) {
  const std::string name = name_of(path);
  return name == "genai_config.json" || path == "config.json" || path == "modules.json" || path == "onnx/config.json";
}

std::string amount(int64_t bytes) {
  const char* units[] = {"B", "kB", "MB", "GB", "TB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 999.5 && unit < 4) value /= 1000, ++unit;
  char text[32];
  std::snprintf(text, sizeof text, value < 10 && unit > 0 ? "%.1f %s" : "%.0f %s", value, units[unit]);
  return text;
}

class Puller {
 public:
  Puller(ModelName name, std::string typed, const PullOptions& options)
      : name_(std::move(name)), typed_(std::move(typed)), options_(options), cache_(name_.repository) {}

  Result<Pulled> run() {
    if (!name_.variant.empty() && !options_.variants.empty())
      return Status::error(Code::kInvalidArgument, typed_ + ": the name and --variant both say which precision to run");
    if (!options_.ask || options_.offline) {
      Result<Pulled> here = from_cache();
      if (here.is_ok() || options_.offline) return here;
    }
    SITU_TAKE(client, HubClient::create());
    return from_hub(client);
  }

 private:
  // -- what is here already

  Result<Pulled> from_cache() {
    commit_ = cache_.commit_of(name_.revision);
    std::error_code none;
    if (commit_.empty() || !fs::is_directory(cache_.snapshot(commit_), none))
      return Status::error(typed_ + ": is not in " + hub_cache().string() + ", and nothing may be asked (offline)");
    std::optional<HubFiles> tree = cache_.read_tree(commit_);
    const bool whole = tree.has_value();
    files_ = whole ? std::move(*tree) : cache_.walk(commit_);
    FolderListing listing = listed();
    for (const auto& [path, file] : files_)
      if (is_configuration(path) && !cache_.has(commit_, path, file.size)) return missing({path}, {});
    SITU_RETURN_IF_ERROR(read_configurations(&listing));
    if (!options_.files.empty()) return globbed(listing, nullptr);
    SITU_TAKE(choice, choose_model(listing, name_.variant, options_.variants));
    std::vector<std::string> lacking;
    for (const std::string& path : needed(listing, choice))
      if (!has_ending(path, {".txt"}) && !cache_.has(commit_, path, files_[path].size)) lacking.push_back(path);
    if (!lacking.empty()) return missing(lacking, choice);
    for (const std::string& graph : choice.graphs) {
      SITU_TAKE(names, external_names(cache_.snapshot(commit_) / graph));
      for (const std::string& name : names)
        if (const std::string path = beside(graph, name); !cache_.has(commit_, path, -1)) lacking.push_back(path);
    }
    if (!lacking.empty()) return missing(lacking, choice);
    return pulled(choice);
  }

  Status missing(const std::vector<std::string>& lacking, const FolderChoice& choice) const {
    std::set<std::string> there;
    for (const auto& [path, file] : files_)
      if (path.ends_with(".onnx") && cache_.has(commit_, path, file.size)) there.insert(path);
    std::string have;
    for (const std::string& path : there) have += (have.empty() ? "; of its graphs there is " : ", ") + path;
    return Status::error(typed_ + ": " + (choice.label.empty() ? "" : choice.label + ": ") + lacking[0] +
                         " is not in " + hub_cache().string() + ", and nothing may be asked (offline)" + have);
  }

  // -- what the hub has

  Result<Pulled> from_hub(const HubClient& client) {
    SITU_TAKE(commit, ask_commit(client, name_));
    commit_ = commit;
    std::optional<HubFiles> tree = cache_.read_tree(commit_);
    if (!tree) {
      SITU_TAKE(files, ask_files(client, name_, commit_));
      tree = std::move(files);
      SITU_RETURN_IF_ERROR(check_names(*tree));
      remember_pulled(cache_.folder());
      if (!tree->empty()) SITU_RETURN_IF_ERROR(cache_.write_tree(commit_, *tree));
    }
    files_ = std::move(*tree);
    FolderListing listing = listed();
    if (!options_.files.empty()) return globbed(listing, &client);
    std::vector<std::string> configurations;
    for (const auto& [path, file] : files_)
      if (is_configuration(path) && file.size <= kMostText && configurations.size() < kMostConfigs)
        configurations.push_back(path);
    SITU_RETURN_IF_ERROR(fetch(client, configurations));
    SITU_RETURN_IF_ERROR(read_configurations(&listing));
    SITU_TAKE(choice, choose_model(listing, name_.variant, options_.variants));
    const std::vector<std::string> paths = needed(listing, choice);
    note(choice, paths);
    SITU_RETURN_IF_ERROR(fetch(client, paths));
    std::vector<std::string> more;
    for (const std::string& graph : choice.graphs) {
      SITU_TAKE(names, external_names(cache_.snapshot(commit_) / graph));
      for (const std::string& name : names)
        if (const std::string path = beside(graph, name); files_.count(path) != 0) more.push_back(path);
    }
    SITU_RETURN_IF_ERROR(fetch(client, more));
    SITU_RETURN_IF_ERROR(cache_.write_ref(name_.revision, commit_));
    return pulled(choice);
  }

  // Two paths of which one is a folder for the other cannot both be.
  Status check_names(const HubFiles& files) const {
    for (const auto& [path, file] : files)
      for (std::string parent = parent_of(path); !parent.empty(); parent = parent_of(parent))
        if (files.count(parent) != 0)
          return Status::error(Code::kBadFile,
                               name_.repository + ": the hub says that '" + parent + "' is a file and a folder");
    return Status::ok();
  }

  // What is not there yet of `paths`: digests first, before anything is written.
  Status fetch(const HubClient& client, const std::vector<std::string>& paths) {
    std::vector<std::string> lacking;
    int64_t bytes = 0;
    for (const std::string& path : std::set<std::string>(paths.begin(), paths.end())) {
      if (cache_.has(commit_, path, files_[path].size)) continue;
      lacking.push_back(path);
      std::error_code none;
      const uintmax_t part = fs::file_size(cache_.blob(files_[path].digest + ".incomplete"), none);
      bytes += std::max<int64_t>(0, files_[path].size - (none ? 0 : static_cast<int64_t>(part)));
    }
    for (const std::string& path : lacking)
      SITU_RETURN_IF_ERROR(check_digest(client, name_, commit_, path, files_[path]));
    SITU_RETURN_IF_ERROR(check_space(bytes));
    int64_t total = 0, done = 0;
    for (const std::string& path : lacking) total += files_[path].size;
    const Fetching to{client, name_, cache_, commit_, [&](int64_t more) {
                        done += more;
                        return !options_.progress || options_.progress(done, total);
                      }};
    for (const std::string& path : lacking) SITU_RETURN_IF_ERROR(fetch_file(to, path, files_[path]));
    return Status::ok();
  }

  Status check_space(int64_t bytes) const {
    fs::path place = cache_.folder();
    std::error_code none;
    while (place.has_relative_path() && !fs::exists(place, none)) place = place.parent_path();
    struct statvfs info;
    if (bytes == 0 || statvfs(place.c_str(), &info) != 0) return Status::ok();
    const double free = static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize);
    if (static_cast<double>(bytes) <= free) return Status::ok();
    return Status::error(Code::kNoRoom, typed_ + ": " + amount(bytes) + " are needed, and " + place.string() + " has " +
                                            amount(static_cast<int64_t>(free)) + " free");
  }

  // -- both

  FolderListing listed() const {
    FolderListing listing;
    listing.name = name_.repository;
    if (name_.revision != "main") listing.name += "@" + name_.revision;
    listing.processor = processor_variants();
    for (const auto& [path, file] : files_) listing.files.push_back({path, file.size});
    return listing;
  }

  Status read_configurations(FolderListing* listing) const {
    for (const ListedFile& f : listing->files) {
      if (!is_configuration(f.path) || f.size > kMostText || !cache_.has(commit_, f.path, f.size)) continue;
      std::ifstream in(cache_.snapshot(commit_) / f.path, std::ios::binary);
      std::string text(static_cast<size_t>(f.size), 0);
      in.read(text.data(), static_cast<std::streamsize>(text.size()));
      if (!in) return Status::error((cache_.snapshot(commit_) / f.path).string() + ": cannot be read");
      listing->texts[f.path] = std::move(text);
    }
    return Status::ok();
  }

  // The graphs with their data, and what stands beside: configuration, tokenizer, template.
  std::vector<std::string> needed(const FolderListing& listing, const FolderChoice& choice) const {
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
    return {paths.begin(), paths.end()};
  }

  // A file that a graph names, which may leave its folder: then it is none of the listing.
  static std::string beside(const std::string& graph, const std::string& name) {
    return (fs::path(parent_of(graph)) / name).lexically_normal().generic_string();
  }

  // "ORG/REPO: q4, 3 files, 912 MB (others: fp16 1.9 GB, fp32 3.8 GB; :VARIANT chooses)"
  void note(const FolderChoice& choice, const std::vector<std::string>& paths) {
    int64_t bytes = 0, lacking = 0;
    for (const std::string& path : paths) {
      bytes += files_[path].size;
      lacking += cache_.has(commit_, path, files_[path].size) ? 0 : 1;
    }
    if (lacking == 0 || !options_.note) return;
    std::string text = name_.repository + ": " + (choice.label.empty() ? "" : choice.label + ", ") +
                       std::to_string(paths.size()) + (paths.size() == 1 ? " file, " : " files, ") + amount(bytes);
    std::string others;
    for (const FolderChoice::Other& o : choice.others)
      others += (others.empty() ? " (others: " : ", ") + (o.label.empty() ? "/" : o.label) + " " + amount(o.bytes);
    options_.note(text + (others.empty() ? "" : others + "; :VARIANT chooses)"));
  }

  // --file: what the patterns say, and nothing else.
  Result<Pulled> globbed(const FolderListing& listing, const HubClient* client) {
    std::vector<std::string> paths;
    for (const ListedFile& f : listing.files) {
      const auto matches = [&](const std::string& p) { return fnmatch(p.c_str(), f.path.c_str(), 0) == 0; };
      if (!is_never_fetched(f.path) && std::any_of(options_.files.begin(), options_.files.end(), matches))
        paths.push_back(f.path);
    }
    if (paths.empty())
      return Status::error(Code::kInvalidArgument,
                           name_.repository + ": --file " + options_.files[0] + " is none of its files");
    if (client != nullptr) {
      note({}, paths);
      SITU_RETURN_IF_ERROR(fetch(*client, paths));
      SITU_RETURN_IF_ERROR(cache_.write_ref(name_.revision, commit_));
    }
    for (const std::string& path : paths)
      if (!cache_.has(commit_, path, files_[path].size)) return missing({path}, {});
    return Pulled{cache_.snapshot(commit_).string(), {}};
  }

  Pulled pulled(const FolderChoice& choice) const {
    const fs::path folder = cache_.snapshot(commit_);
    if (!choice.file.empty()) return {(folder / choice.file).string(), {}};
    return {(choice.folder.empty() ? folder : folder / choice.folder).string(), choice.variants};
  }

  const ModelName name_;
  const std::string typed_;
  const PullOptions& options_;
  const RepositoryCache cache_;
  std::string commit_;
  HubFiles files_;
};

bool is_offline(const PullOptions& options) {
  const char* said = std::getenv("HF_HUB_OFFLINE");
  const std::string text = said == nullptr ? "" : said;
  return options.offline || text == "1" || text == "true" || text == "TRUE" || text == "True" || text == "yes" ||
         text == "YES" || text == "on" || text == "ON";
}

}  // namespace
}  // namespace hub

Result<Pulled> pull(const std::string& name, const PullOptions& options) {
  std::error_code none;
  if (std::filesystem::exists(name, none)) return Pulled{name, options.variants};
  Result<std::optional<hub::ModelName>> parsed = hub::parse_name(name);
  if (!parsed.is_ok()) return parsed.status();
  if (!*parsed) return Status::error(Code::kNotFound, "'" + name + "': no such file or folder");
  PullOptions how = options;
  how.offline = hub::is_offline(options);
  return hub::Puller(**parsed, name, how).run();
}

}  // namespace situ
