#include "cli/hub/inventory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "base/descriptor.h"
#include "cli/hub/cache.h"
#include "cli/hub/pulled.h"
#include "pipelines/model_folder_choice.h"
#include "pipelines/remove_packs.h"

namespace situ::hub {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kModels = "models--";

std::string name_of_folder(const fs::path& folder) {
  std::string name = folder.filename().string().substr(kModels.size());
  if (const size_t at = name.find("--"); at != std::string::npos) name.replace(at, 2, "/");
  return name;
}

std::vector<fs::path> repositories() {
  std::vector<fs::path> all;
  std::error_code error;
  const fs::path cache = fs::absolute(hub_cache());
  for (fs::directory_iterator it(cache, error), end; !error && it != end; it.increment(error)) {
    std::error_code gone;
    if (it->path().filename().string().starts_with(kModels) && it->is_directory(gone) && !it->is_symlink(gone) &&
        name_of_folder(it->path()).find('/') != std::string::npos)
      all.push_back(it->path());
  }
  std::sort(all.begin(), all.end());
  return all;
}

// The files of a repository, each once: those that links lead to.
std::set<fs::path> real_files(const fs::path& repository) {
  std::set<fs::path> files;
  std::error_code error;
  for (fs::recursive_directory_iterator it(repository, error), end; !error && it != end; it.increment(error)) {
    std::error_code gone;
    if (!it->is_regular_file(gone)) continue;
    const fs::path file = fs::weakly_canonical(it->path(), gone);
    if (!gone) files.insert(file);
  }
  return files;
}

int64_t bytes_of_files(const std::set<fs::path>& files) {
  int64_t bytes = 0;
  std::error_code error;
  for (const fs::path& file : files)
    if (const uintmax_t size = fs::file_size(file, error); !error) bytes += static_cast<int64_t>(size);
  return bytes;
}

std::string newest_commit(const fs::path& repository) {
  std::string newest;
  fs::file_time_type time;
  std::error_code error;
  for (fs::directory_iterator it(repository / "snapshots", error), end; !error && it != end; it.increment(error)) {
    std::error_code gone;
    const fs::file_time_type own = fs::last_write_time(it->path(), gone);
    if (gone || (!newest.empty() && own <= time)) continue;
    newest = it->path().filename().string();
    time = own;
  }
  return newest;
}

// The model of a repository; nothing: it has no graph.
std::optional<CachedModel> model_of(const fs::path& folder) {
  CachedModel model;
  model.name = name_of_folder(folder);
  const RepositoryCache cache(model.name);
  std::string commit = cache.commit_of("main");
  std::error_code none;
  if (commit.empty() || !fs::is_directory(cache.snapshot(commit), none)) commit = newest_commit(folder);
  if (commit.empty()) return std::nullopt;
  FolderListing listing;
  listing.name = model.name;
  listing.processor = processor_variants();
  bool graphs = false;
  for (const auto& [path, file] : cache.walk(commit)) {
    listing.files.push_back({path, file.size});
    graphs = graphs || path.ends_with(".onnx");
    constexpr int64_t kMostText = 8 << 20;
    if (!path.ends_with("config.json") || file.size > kMostText) continue;
    std::ifstream in(cache.snapshot(commit) / path, std::ios::binary);
    listing.texts[path].assign(std::istreambuf_iterator<char>(in), {});
  }
  if (!graphs) return std::nullopt;
  model.path = cache.snapshot(commit);
  model.bytes = bytes_of_files(real_files(folder));
  model.ours = PulledList::has(folder);
  if (const Result<FolderChoice> choice = choose_model(listing, "", {}); choice.is_ok()) {
    model.kind = choice->kind;
    model.variants.push_back(choice->label);
    for (const FolderChoice::Other& other : choice->others) model.variants.push_back(other.label);
  }
  return model;
}

bool is_gone(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  return !error;
}

// Removes those of `files` that are in the store of all repositories and that none of them has any more.
void remove_from_store(std::set<fs::path> files) {
  std::error_code error;
  const fs::path cache = fs::weakly_canonical(hub_cache(), error), store = cache / "blobs";
  std::erase_if(files, [&](const fs::path& f) { return !f.string().starts_with(store.string() + "/"); });
  if (files.empty()) return;
  for (fs::directory_iterator it(cache, error), end; !error && it != end; it.increment(error))
    if (it->path().filename() != "blobs" && it->path().filename() != ".locks")
      for (const fs::path& used : real_files(it->path())) files.erase(used);
  if (error) return;
  remove_packs_of({files.begin(), files.end()});
  for (const fs::path& file : files) (void)is_gone(file);
}

Status remove_folder(const fs::path& folder) {
  const std::set<fs::path> files = real_files(folder);
  std::error_code error;
  const std::string place = fs::weakly_canonical(folder, error).string() + "/";
  std::vector<fs::path> own;
  for (const fs::path& file : files)
    if (file.string().starts_with(place)) own.push_back(file);
  remove_packs_of(own);
  (void)is_gone(folder.parent_path() / ".locks" / folder.filename());
  fs::remove_all(folder, error);
  if (error) return Status::error(folder.string() + ": cannot be removed: " + error.message());
  PulledList::forget(folder);
  remove_from_store(files);
  return Status::ok();
}

// Whether somebody fetches into this part.
bool is_fetched(const fs::path& repository, const std::string& digest) {
  const fs::path file = repository.parent_path() / ".locks" / repository.filename() / (digest + ".lock");
  const Descriptor lock(open(file.c_str(), O_RDWR | O_CLOEXEC));
  return lock.number() >= 0 && flock(lock.number(), LOCK_EX | LOCK_NB) != 0;
}

// Parts of downloads; commits without a name; blobs that no snapshot has any more.
void prune_repository(const fs::path& repository) {
  const std::set<std::string> named = RepositoryCache(name_of_folder(repository)).named_commits();
  const bool revisions = has_revision(repository);
  const std::set<fs::path> before = real_files(repository);
  std::error_code error;
  std::vector<fs::path> gone;
  std::set<fs::path> linked;
  for (fs::directory_iterator it(repository / "snapshots", error), end; !error && it != end; it.increment(error)) {
    if (revisions && named.count(it->path().filename().string()) == 0) {
      gone.push_back(it->path());
      gone.push_back(repository / "trees" / (it->path().filename().string() + ".json"));
      continue;
    }
    std::error_code unreadable;
    for (fs::recursive_directory_iterator f(it->path(), unreadable), last; !unreadable && f != last;
         f.increment(unreadable)) {
      std::error_code none;
      if (f->is_symlink(none))
        linked.insert((f->path().parent_path() / fs::read_symlink(f->path(), none)).lexically_normal());
    }
  }
  for (fs::directory_iterator it(repository / "blobs", error), end; !error && it != end; it.increment(error))
    if (linked.count(it->path().lexically_normal()) == 0 && !is_fetched(repository, it->path().stem().string()))
      gone.push_back(it->path());
  remove_packs_of(gone);
  for (const fs::path& path : gone) (void)is_gone(path);
  remove_from_store(before);
}

// When a model's largest file was read or written last: others are read by listings too.
int64_t last_use(const fs::path& repository) {
  int64_t last = 0, largest = -1;
  for (const fs::path& file : real_files(repository)) {
    struct stat info;
    if (stat(file.c_str(), &info) != 0 || int64_t{info.st_size} <= largest) continue;
    largest = int64_t{info.st_size};
    last = std::max(int64_t{info.st_atime}, int64_t{info.st_mtime});
  }
  return last;
}

}  // namespace

std::vector<CachedModel> cached_models() {
  std::vector<CachedModel> models;
  for (const fs::path& folder : repositories())
    if (std::optional<CachedModel> model = model_of(folder)) models.push_back(std::move(*model));
  return models;
}

Status remove_model(const std::string& repository, bool force) {
  const RepositoryCache cache(repository);
  const fs::path folder = cache.folder();
  std::error_code none;
  if (!fs::is_directory(folder, none) || fs::is_symlink(folder, none))
    return Status::error(Code::kInvalidArgument, repository + ": is not in " + hub_cache().string());
  if (!force && !PulledList::has(folder))
    return Status::error(Code::kInvalidArgument,
                         repository + ": was fetched by another program; --force removes it all the same");
  const Result<Descriptor> lock = cache.lock_for_removing();
  if (!lock.is_ok()) return Status::error(lock.status().message());
  return remove_folder(folder);
}

Result<Pruned> prune_cache(std::optional<int64_t> to, bool force) {
  std::vector<fs::path> folders = repositories();
  std::erase_if(folders, [&](const fs::path& f) { return !force && !PulledList::has(f); });
  Pruned pruned;
  int64_t before = 0, now = 0;
  std::vector<std::pair<int64_t, fs::path>> used;
  std::vector<Descriptor> locks;  // until the end
  for (const fs::path& folder : folders) {
    Result<Descriptor> lock = RepositoryCache(name_of_folder(folder)).lock_for_removing();
    if (!lock.is_ok() && lock.status().code() != Code::kNotFound) return lock.status();
    if (!lock.is_ok()) continue;
    locks.push_back(std::move(*lock));
    before += bytes_of_files(real_files(folder));
    used.emplace_back(last_use(folder), folder);  // before anything of it is read
    prune_repository(folder);
    now += bytes_of_files(real_files(folder));
  }
  std::sort(used.begin(), used.end());
  for (const auto& [when, folder] : used) {
    if (!to || now <= *to) break;
    const int64_t bytes = bytes_of_files(real_files(folder));
    if (const Status removed = remove_folder(folder); !removed.is_ok()) return removed;
    pruned.models.push_back(name_of_folder(folder));
    now -= bytes;
  }
  pruned.bytes = before - now;
  return pruned;
}

}  // namespace situ::hub
