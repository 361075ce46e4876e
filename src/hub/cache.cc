#include "hub/cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "hub/name.h"
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
  const fs::path part = file.string() + "." + std::to_string(getpid()) + ".part";
  const Descriptor out(open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644));
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
    if (!gone && is_inner_path(path)) files.emplace(path, f);
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
  const fs::path at = snapshot(commit) / path;
  SITU_RETURN_IF_ERROR(make_folders(at.parent_path()));
  const fs::path target = blob(digest).lexically_relative(at.parent_path());
  const fs::path part = at.string() + "." + std::to_string(getpid()) + ".link";
  unlink(part.c_str());
  if (symlink(target.c_str(), part.c_str()) != 0) return write_error(at, errno);
  if (rename(part.c_str(), at.c_str()) == 0) return Status::ok();
  const int why = errno;
  unlink(part.c_str());
  return write_error(at, why);
}

Result<Descriptor> RepositoryCache::lock(const std::string& digest) const {
  const fs::path file = cache_ / ".locks" / folder_.filename() / (digest + ".lock");
  SITU_RETURN_IF_ERROR(make_folders(file.parent_path()));
  for (;;) {
    Descriptor lock(open(file.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644));
    if (lock.number() < 0) return write_error(file, errno);
    while (flock(lock.number(), LOCK_EX) != 0)
      if (errno != EINTR) return write_error(file, errno);
    // Whoever held it may have removed the file.
    struct stat held, there;
    if (fstat(lock.number(), &held) == 0 && stat(file.c_str(), &there) == 0 && held.st_ino == there.st_ino) return lock;
  }
}

}  // namespace situ::hub
