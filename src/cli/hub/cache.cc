#include "cli/hub/cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/random_number.h"
#include "cli/hub/name.h"
#include "cli/hub/view.h"
#include "text/json_file.h"

namespace situ::hub {
namespace {

namespace fs = std::filesystem;
using TreeJson = nlohmann::ordered_json;

constexpr int kTreeFormat = 1;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  std::string text = value == nullptr ? "" : value;
  if (text == "~" || text.starts_with("~/")) {
    const char* home = std::getenv("HOME");
    text = (home == nullptr ? "" : home) + text.substr(1);
  }
  return text;
}

std::string folder_name(const std::string& repository) {
  std::string name = "models--" + repository;
  name.replace(name.find('/'), 1, "--");
  return name;
}

// A name that no other process or thread takes meanwhile.
std::string unique_name(const fs::path& file, const char* ending) {
  char text[32];
  std::snprintf(text, sizeof text, ".%016" PRIx64, random_number());
  return file.string() + text + ending;
}

Status make_folders(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  return error ? write_error(folder, error.value()) : Status::ok();
}

}  // namespace

fs::path hub_home() {
  if (const std::string home = variable("HF_HOME"); !home.empty()) return home;
  if (const std::string cache = variable("XDG_CACHE_HOME"); !cache.empty()) return fs::path(cache) / "huggingface";
  const std::string home = variable("HOME");
  return fs::path(home.empty() ? "." : home) / ".cache" / "huggingface";
}

fs::path hub_cache() {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})
    if (const std::string cache = variable(name); !cache.empty()) return cache;
  return hub_home() / "hub";
}

Status write_error(const fs::path& file, int error) {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  const std::string text = file.string() + ": cannot be written: " + std::generic_category().message(error);
  return full ? Status::error(Code::kNoRoom, text) : Status::error(text);
}

Status write_whole(const fs::path& file, const std::string& text) {
  SITU_RETURN_IF_ERROR(make_folders(file.parent_path()));
  const fs::path part = unique_name(file, ".part");
  const Descriptor out(open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (out.number() < 0) return write_error(file, errno);
  for (size_t done = 0; done < text.size();) {
    const ssize_t size = write(out.number(), text.data() + done, text.size() - done);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) {
      const int why = errno;
      unlink(part.c_str());
      return write_error(file, why);
    }
    done += static_cast<size_t>(size);
  }
  if (rename(part.c_str(), file.c_str()) == 0) return Status::ok();
  const int why = errno;
  unlink(part.c_str());
  return write_error(file, why);
}

RepositoryCache::RepositoryCache(const std::string& repository)
    : cache_(fs::absolute(hub_cache())), folder_(cache_ / folder_name(repository)) {}

std::string RepositoryCache::commit_of(const std::string& revision) const {
  if (is_hex(revision, 40)) return revision;
  const fs::path file = folder_ / "refs" / revision;
  std::error_code none;
  if (!fs::is_regular_file(file, none) || fs::file_size(file, none) > 100) return "";
  std::string commit(100, 0);
  std::ifstream in(file, std::ios::binary);
  in.read(commit.data(), static_cast<std::streamsize>(commit.size()));
  commit.resize(static_cast<size_t>(in.gcount()));
  while (!commit.empty() && commit.back() <= ' ') commit.pop_back();
  return is_hex(commit, 40) ? commit : "";
}

Status RepositoryCache::write_ref(const std::string& revision, const std::string& commit) const {
  if (revision == commit || commit_of(revision) == commit) return Status::ok();
  return write_whole(folder_ / "refs" / revision, commit);
}

std::set<std::string> RepositoryCache::named_commits() const {
  std::set<std::string> commits;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder_ / "refs", error), end; !error && it != end; it.increment(error)) {
    std::ifstream in(it->path());
    std::string commit;
    if (in >> commit) commits.insert(commit);
  }
  for (fs::directory_iterator it(folder_ / "pinned", error), end; !error && it != end; it.increment(error))
    commits.insert(it->path().filename().string());
  return commits;
}

std::vector<std::string> RepositoryCache::commits_without_name() const {
  const std::set<std::string> named = named_commits();
  std::vector<std::pair<fs::file_time_type, std::string>> found;
  std::error_code error;
  for (fs::directory_iterator it(folder_ / "snapshots", error), end; !error && it != end; it.increment(error)) {
    const std::string commit = it->path().filename().string();
    std::error_code none;
    if (named.count(commit) == 0 && fs::exists(folder_ / "trees" / (commit + ".json"), none))
      found.emplace_back(fs::last_write_time(it->path(), none), commit);
  }
  std::sort(found.rbegin(), found.rend());
  std::vector<std::string> commits;
  for (const auto& each : found) commits.push_back(each.second);
  return commits;
}

std::optional<HubFiles> RepositoryCache::read_tree(const std::string& commit) const {
  const fs::path file = folder_ / "trees" / (commit + ".json");
  std::error_code none;
  if (!fs::is_regular_file(file, none)) return std::nullopt;
  const Result<nlohmann::json> json = read_json_object(file);
  if (!json.is_ok() || json->value("format_version", nlohmann::json()) != kTreeFormat) return std::nullopt;
  const auto list = json->find("files");
  if (list == json->end() || !list->is_object()) return std::nullopt;
  HubFiles files;
  const auto text = [](const nlohmann::json& of, const char* key) {
    const auto found = of.find(key);
    return found != of.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  for (const auto& [path, info] : list->items()) {
    if (!info.is_object() || !is_inner_path(path)) return std::nullopt;
    const auto size = info.find("lfs_size") != info.end() ? info.find("lfs_size") : info.find("size");
    if (size == info.end() || !size->is_number_unsigned()) return std::nullopt;
    HubFile f;
    f.size = static_cast<int64_t>(std::min<uint64_t>(size->get<uint64_t>(), INT64_MAX));
    f.git_id = text(info, "blob_id");
    f.digest = info.contains("lfs_sha256") ? text(info, "lfs_sha256") : f.git_id;
    f.xet_hash = text(info, "xet_hash");
    if (!is_hex(f.digest, 40) && !is_hex(f.digest, 64)) return std::nullopt;
    files.emplace(path, std::move(f));
  }
  return files;
}

Status RepositoryCache::write_tree(const std::string& commit, const HubFiles& files) const {
  TreeJson list = TreeJson::object();
  for (const auto& [path, f] : files) {
    TreeJson& info = list[path] = {{"size", f.size}, {"blob_id", f.git_id}};
    if (is_hex(f.digest, 64)) {
      info["lfs_sha256"] = f.digest;
      info["lfs_size"] = f.size;
    }
    if (!f.xet_hash.empty()) info["xet_hash"] = f.xet_hash;
  }
  const TreeJson json{{"format_version", kTreeFormat}, {"files", list}};
  return write_whole(folder_ / "trees" / (commit + ".json"),
                     json.dump(2, ' ', false, TreeJson::error_handler_t::replace));
}

HubFiles RepositoryCache::walk(const std::string& commit) const {
  HubFiles files;
  const fs::path root = snapshot(commit);
  std::error_code error;
  for (fs::recursive_directory_iterator it(root, error), end; !error && it != end; it.increment(error)) {
    std::error_code gone;
    if (!it->is_regular_file(gone)) continue;
    HubFile f;
    f.size = static_cast<int64_t>(it->file_size(gone));
    const std::string path = it->path().lexically_relative(root).generic_string();
    if (!gone && is_inner_path(path) && !is_in_view(path)) files.emplace(path, f);
  }
  return files;
}

bool RepositoryCache::has(const std::string& commit, const std::string& path, int64_t size) const {
  std::error_code error;
  const fs::path file = snapshot(commit) / path;
  if (!fs::is_regular_file(file, error)) return false;
  const uintmax_t bytes = fs::file_size(file, error);
  return !error && (size < 0 || bytes == static_cast<uintmax_t>(size));
}

Status RepositoryCache::link(const std::string& commit, const std::string& path, const std::string& digest) const {
  return link_to(commit, path, blob(digest));
}

Status RepositoryCache::link_to(const std::string& commit, const std::string& path, const fs::path& file) const {
  const fs::path at = snapshot(commit) / path;
  const fs::path target = file.lexically_relative(at.parent_path());
  std::error_code none;
  if (fs::read_symlink(at, none) == target && !none) return Status::ok();
  SITU_RETURN_IF_ERROR(make_folders(at.parent_path()));
  const fs::path part = unique_name(at, ".link");
  if (symlink(target.c_str(), part.c_str()) != 0) return write_error(at, errno);
  if (rename(part.c_str(), at.c_str()) == 0) return Status::ok();
  const int why = errno;
  unlink(part.c_str());
  return write_error(at, why);
}

void RepositoryCache::pin(const std::string& commit) const {
  const fs::path file = folder_ / "pinned" / commit;
  std::error_code none;
  if (!fs::exists(file, none)) (void)write_whole(file, "");
}

Result<Descriptor> RepositoryCache::lock(const std::string& digest) const {
  return lock_file(digest + ".lock", LOCK_EX);
}

Result<Descriptor> RepositoryCache::lock_for_fetching() const { return lock_file("situ.lock", LOCK_SH); }

Result<Descriptor> RepositoryCache::lock_for_removing() const { return lock_file("situ.lock", LOCK_EX | LOCK_NB); }

Result<Descriptor> RepositoryCache::lock_file(const std::string& name, int how) const {
  const fs::path file = cache_ / ".locks" / folder_.filename() / name;
  SITU_RETURN_IF_ERROR(make_folders(file.parent_path()));
  for (;;) {
    Descriptor lock(open(file.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644));
    if (lock.number() < 0) return write_error(file, errno);
    while (flock(lock.number(), how) != 0) {
      if (errno == EWOULDBLOCK)
        return Status::error(Code::kNotFound, folder_.string() + ": is fetched by another process");
      if (errno != EINTR) return write_error(file, errno);
    }
    // Whoever held it may have removed the file.
    struct stat held, there;
    if (fstat(lock.number(), &held) == 0 && stat(file.c_str(), &there) == 0 && held.st_ino == there.st_ino) return lock;
  }
}

}  // namespace situ::hub
