// The cache of a hub's files on this machine, in the layout of huggingface_hub:
//   CACHE/models--ORG--REPO/refs/REV                 the commit
//   CACHE/models--ORG--REPO/trees/COMMIT.json        the files of the commit
//   CACHE/models--ORG--REPO/blobs/ETAG               a file's bytes, or a link to CACHE/blobs/xx/DIGEST
//   CACHE/models--ORG--REPO/snapshots/COMMIT/PATH    a link to ../../blobs/ETAG
//   CACHE/.locks/models--ORG--REPO/ETAG.lock         flock of who fetches it
// and, of situ alone:
//   CACHE/models--ORG--REPO/pinned/COMMIT            a commit that was asked for by itself
//   CACHE/models--ORG--REPO/snapshots/COMMIT/.situ/  choices (view.h)
//   CACHE/.locks/models--ORG--REPO/situ.lock         flock of who fetches, or removes, any file of it
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/descriptor.h"
#include "base/status.h"

namespace situ::hub {

struct HubFile {
  int64_t size = 0;
  std::string digest;    // SHA-256, or git's SHA-1; "": not known
  std::string git_id;    // as the listing has it
  std::string xet_hash;  // "": none
};
using HubFiles = std::map<std::string, HubFile>;

// HF_HOME, else XDG_CACHE_HOME/huggingface, else ~/.cache/huggingface.
std::filesystem::path hub_home();
// HF_HUB_CACHE, else hub_home()/hub.
std::filesystem::path hub_cache();

// Writes a file by another name and a rename. Error: kNoRoom; what failed.
Status write_whole(const std::filesystem::path& file, const std::string& text);
// "cannot be written: REASON", kNoRoom where the disk is full.
Status write_error(const std::filesystem::path& file, int error);

// The folder of a repository in the cache.
class RepositoryCache {
 public:
  explicit RepositoryCache(const std::string& repository);

  const std::filesystem::path& folder() const { return folder_; }
  std::filesystem::path snapshot(const std::string& commit) const { return folder_ / "snapshots" / commit; }
  std::filesystem::path blob(const std::string& digest) const { return folder_ / "blobs" / digest; }
  // The commit of refs/REV, or REV itself where it is one; "": not known.
  std::string commit_of(const std::string& revision) const;
  Status write_ref(const std::string& revision, const std::string& commit) const;
  // Commits with a snapshot and trees/COMMIT.json that no revision names, the newest first.
  std::vector<std::string> commits_without_name() const;
  // Commits that refs/, or pinned/, names.
  std::set<std::string> named_commits() const;
  // trees/COMMIT.json; nothing: it is not there, or cannot be used.
  std::optional<HubFiles> read_tree(const std::string& commit) const;
  Status write_tree(const std::string& commit, const HubFiles& files) const;
  // The files that the snapshot has, without digests.
  HubFiles walk(const std::string& commit) const;
  // Whether the snapshot has the file, with so many bytes where `size` is not negative.
  bool has(const std::string& commit, const std::string& path, int64_t size) const;
  // Links PATH of the snapshot to a blob, or to another file of the repository.
  Status link(const std::string& commit, const std::string& path, const std::string& digest) const;
  Status link_to(const std::string& commit, const std::string& path, const std::filesystem::path& file) const;
  // Notes that a commit was asked for by itself, without a revision that names it.
  void pin(const std::string& commit) const;
  // Waits until nobody else fetches the blob. Locks end with their descriptors.
  Result<Descriptor> lock(const std::string& digest) const;
  // Of all that the repository holds: those who fetch share it, and who removes something has it alone. Error,
  // kNotFound: somebody fetches.
  Result<Descriptor> lock_for_fetching() const;
  Result<Descriptor> lock_for_removing() const;

 private:
  Result<Descriptor> lock_file(const std::string& name, int how) const;

  std::filesystem::path cache_, folder_;
};

}  // namespace situ::hub
