// situ::pull: from a name to a folder that Model::load takes.
#include <fnmatch.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>

#include "base/assign.h"
#include "cli/hub/fetch.h"
#include "cli/hub/inventory.h"
#include "cli/hub/needed.h"
#include "cli/hub/pulled.h"
#include "cli/hub/view.h"
#include "onnx/external_names.h"
#include "pipelines/model_folder_choice.h"
#include "situ/tools.h"

namespace situ {
namespace hub {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostText = 8 << 20;    // of a config.json, which is read before anything is chosen
constexpr int64_t kMostGraph = 32 << 20;  // of a graph that is read before the notice, for the names of its data
constexpr size_t kMostConfigs = 256;

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
    const std::string known = cache_.commit_of(name_.revision);
    if (options_.ask && !options_.offline) return from_hub("");
    Result<Pulled> here = from_cache(known);
    if (here.is_ok() && knows_files()) return here;
    if (options_.offline) return with_what_is_there(here, known, here.status());
    const Result<Pulled> asked = from_hub(known);
    const bool outside = asked.status().code() == Code::kInternal || asked.status().code() == Code::kNoRoom;
    if (asked.is_ok() || asked.status().code() == Code::kInterrupted || (listed_ && !outside)) return asked;
    return with_what_is_there(here, known, asked.status());
  }

 private:
  // -- what is here already

  // Whether it is known which files the commit has: by its list, or since all were fetched, and not some by their
  // names.
  bool knows_files() const {
    return cache_.read_tree(commit_).has_value() || cache_.has(commit_, ".gitattributes", -1);
  }

  // Behind a hub that says nothing, or may not be asked: what the cache has, or an older commit, with a line that says
  // so. Else the error.
  Result<Pulled> with_what_is_there(const Result<Pulled>& here, const std::string& known, const Status& error) {
    const auto note = [&](const std::string& text) {
      const std::string why = options_.offline ? "nothing may be asked (offline)" : error.message();
      if (options_.note) options_.note(name_.repository + ": " + text + "; " + why);
    };
    if (here.is_ok()) {
      commit_ = known;
      if (!knows_files()) note("runs with what is in the cache, which may not be all of it: " + here->path);
      return here;
    }
    if (known.empty() || name_.revision != "main" || error.code() != Code::kInternal) return error;
    for (const std::string& older : cache_.commits_without_name()) {
      const Result<Pulled> there = from_cache(older);
      if (!there.is_ok() || !knows_files()) continue;
      note("runs with the older commit " + older + ", since " + known + " is not in the cache as a whole");
      return there;
    }
    return error;
  }

  Result<Pulled> from_cache(const std::string& commit) {
    commit_ = commit;
    std::error_code none;
    if (commit_.empty() || !fs::is_directory(cache_.snapshot(commit_), none))
      return Status::error(typed_ + ": is not in " + hub_cache().string() + ", and nothing may be asked (offline)");
    std::optional<HubFiles> tree = cache_.read_tree(commit_);
    files_ = tree ? std::move(*tree) : cache_.walk(commit_);
    FolderListing listing = listed();
    for (const auto& [path, file] : files_)
      if (is_configuration(path) && !cache_.has(commit_, path, file.size)) return missing({path}, {});
    SITU_RETURN_IF_ERROR(read_configurations(&listing));
    if (!options_.files.empty()) return globbed(listing, nullptr);
    SITU_TAKE(choice, choose_model(listing, name_.variant, options_.variants));
    std::set<std::string> paths = needed_files(listing, choice);
    std::vector<std::string> lacking;
    for (const std::string& path : paths)
      if (!has_ending(path, {".txt"}) && !cache_.has(commit_, path, files_[path].size)) lacking.push_back(path);
    if (!lacking.empty()) return missing(lacking, choice);
    SITU_RETURN_IF_ERROR(add_named(choice, &paths));
    for (const std::string& path : paths)
      if (!has_ending(path, {".txt"}) && !cache_.has(commit_, path, -1)) lacking.push_back(path);
    if (!lacking.empty()) return missing(lacking, choice);
    std::erase_if(paths, [&](const std::string& path) { return !cache_.has(commit_, path, -1); });
    return folder_of_choice(cache_, commit_, choice, paths, options_.ask);
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

  // The files that graphs, which are here, name as their data.
  Status add_named(const FolderChoice& choice, std::set<std::string>* paths) const {
    for (const std::string& graph : choice.graphs) {
      if (!cache_.has(commit_, graph, -1)) continue;
      SITU_TAKE(names, external_names(cache_.snapshot(commit_) / graph));
      for (const std::string& name : names) paths->insert(beside(graph, name));
    }
    return Status::ok();
  }

  // -- what the hub has

  // `known`: the commit, if no newer one is asked for.
  Result<Pulled> from_hub(const std::string& known) {
    SITU_TAKE(client, HubClient::create());
    commit_ = known;
    if (commit_.empty()) SITU_RETURN_IF_ERROR(assign(&commit_, ask_commit(client, name_)));
    std::optional<HubFiles> tree = cache_.read_tree(commit_);
    const bool asked = !tree.has_value();
    if (asked) {
      SITU_TAKE(files, ask_files(client, name_, commit_));
      tree = std::move(files);
      SITU_RETURN_IF_ERROR(check_names(*tree));
    }
    listed_ = true;
    files_ = std::move(*tree);
    PulledList::begin(cache_.folder());
    const Result<Pulled> pulled = [&]() -> Result<Pulled> {
      const Result<Descriptor> lock = cache_.lock_for_fetching();  // a cache that cannot be written has none
      if (asked && !files_.empty()) (void)cache_.write_tree(commit_, files_);  // nor a list: it is asked for again
      const std::set<fs::path> before = graphs_opened(cache_.snapshot(commit_), {});
      Result<Pulled> done = fetched(client);
      if (done.is_ok()) note_other_graphs(before);
      return done;
    }();
    if (!pulled.is_ok()) give_up(pulled.status());
    return pulled;
  }

  Result<Pulled> fetched(const HubClient& client) {
    FolderListing listing = listed();
    if (!options_.files.empty()) return globbed(listing, &client);
    std::set<std::string> configurations;
    for (const auto& [path, file] : files_)
      if (is_configuration(path) && file.size <= kMostText && configurations.size() < kMostConfigs)
        configurations.insert(path);
    SITU_RETURN_IF_ERROR(fetch(client, configurations));
    SITU_RETURN_IF_ERROR(read_configurations(&listing));
    SITU_TAKE(choice, choose_model(listing, name_.variant, options_.variants));
    std::set<std::string> paths = needed_files(listing, choice);
    const bool whole = lacks(paths) == 0;
    if (!whole && may_name_more(listing, choice, paths)) SITU_RETURN_IF_ERROR(fetch(client, small_graphs(choice)));
    const auto add_data = [&] {
      const Status added = add_named(choice, &paths);
      std::erase_if(paths, [&](const std::string& path) { return files_.count(path) == 0; });
      return added;
    };
    SITU_RETURN_IF_ERROR(add_data());
    if (!whole || lacks(paths) > 0) note(choice, paths);
    SITU_RETURN_IF_ERROR(fetch(client, paths));
    SITU_RETURN_IF_ERROR(add_data());  // of graphs that were not here before
    SITU_RETURN_IF_ERROR(fetch(client, paths));
    SITU_RETURN_IF_ERROR(write_down(paths));
    return folder_of_choice(cache_, commit_, choice, paths, options_.ask);
  }

  // The snapshot's own path runs what is in it: a file that comes later may be what it runs from now on.
  void note_other_graphs(const std::set<fs::path>& before) const {
    if (before.empty() || !options_.note) return;
    const fs::path snapshot = cache_.snapshot(commit_);
    const std::set<fs::path> now = graphs_opened(snapshot, {});
    const auto named = [&](const std::set<fs::path>& graphs) {
      std::string names;
      for (const fs::path& g : graphs) names += (names.empty() ? "" : ", ") + g.lexically_relative(snapshot).string();
      return names.empty() ? "nothing without --variant" : names;
    };
    if (now != before)
      options_.note(name_.repository + ": " + snapshot.string() + " ran " + named(before) + " and runs " + named(now) +
                    " now; a name with :VARIANT always runs the same");
  }

  // Graphs that are small enough to be read before anything is said of the whole.
  std::set<std::string> small_graphs(const FolderChoice& choice) {
    std::set<std::string> small;
    for (const std::string& graph : choice.graphs)
      if (files_[graph].size <= kMostGraph) small.insert(graph);
    return small;
  }

  // The revision, once all is there.
  Status write_down(const std::set<std::string>& paths) const {
    for (const std::string& path : paths)
      if (!cache_.has(commit_, path, files_.at(path).size))
        return Status::error(typed_ + ": " + (cache_.snapshot(commit_) / path).string() +
                             " is gone, which was there while the rest was fetched");
    PulledList::end(cache_.folder());
    if (name_.revision == commit_) cache_.pin(commit_);
    return cache_.write_ref(name_.revision, commit_);
  }

  // A name that is refused leaves nothing where nothing was; what may be fetched by another call stays.
  void give_up(const Status& why) const {
    if (why.code() == Code::kInternal || why.code() == Code::kNoRoom || why.code() == Code::kInterrupted) return;
    if (!PulledList::has_begun(cache_.folder()) || has_revision(cache_.folder())) return;
    std::error_code none;
    if (remove_model(name_.repository, false).is_ok() || !fs::exists(cache_.folder(), none))
      PulledList::forget(cache_.folder());
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

  int64_t lacks(const std::set<std::string>& paths) {
    return std::count_if(paths.begin(), paths.end(),
                         [&](const std::string& path) { return !cache_.has(commit_, path, files_[path].size); });
  }

  // What is not there yet of `paths`: digests first, before anything is written.
  Status fetch(const HubClient& client, const std::set<std::string>& paths) {
    std::vector<std::string> lacking;
    int64_t bytes = 0;
    for (const std::string& path : paths) {
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

  // "ORG/REPO: q4, 3 files, 912 MB (others: fp16 1.9 GB, fp32 3.8 GB; :VARIANT chooses)"
  void note(const FolderChoice& choice, const std::set<std::string>& paths) {
    if (!options_.note) return;
    int64_t bytes = 0;
    for (const std::string& path : paths) bytes += files_[path].size;
    std::string text = name_.repository + ": " + (choice.label.empty() ? "" : choice.label + ", ") +
                       std::to_string(paths.size()) + (paths.size() == 1 ? " file, " : " files, ") + amount(bytes);
    std::string others;
    for (const FolderChoice::Other& o : choice.others)
      others += (others.empty() ? " (others: " : ", ") + (o.label.empty() ? "/" : o.label) + " " + amount(o.bytes);
    options_.note(text + (others.empty() ? "" : others + "; :VARIANT chooses)"));
  }

  // --file: what the patterns say, and nothing else.
  Result<Pulled> globbed(const FolderListing& listing, const HubClient* client) {
    std::set<std::string> paths;
    for (const ListedFile& f : listing.files) {
      const auto matches = [&](const std::string& p) { return fnmatch(p.c_str(), f.path.c_str(), 0) == 0; };
      if (!is_never_fetched(f.path) && std::any_of(options_.files.begin(), options_.files.end(), matches))
        paths.insert(f.path);
    }
    if (paths.empty())
      return Status::error(Code::kInvalidArgument,
                           name_.repository + ": --file " + options_.files[0] + " is none of its files");
    if (client != nullptr) {
      if (lacks(paths) > 0) note({}, paths);
      SITU_RETURN_IF_ERROR(fetch(*client, paths));
      SITU_RETURN_IF_ERROR(write_down(paths));
    }
    for (const std::string& path : paths)
      if (!cache_.has(commit_, path, files_[path].size)) return missing({path}, {});
    return Pulled{cache_.snapshot(commit_).string(), {}};
  }

  const ModelName name_;
  const std::string typed_;
  const PullOptions& options_;
  const RepositoryCache cache_;
  std::string commit_;
  HubFiles files_;
  bool listed_ = false;  // the files of the commit are known
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
