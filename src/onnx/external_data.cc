#include "onnx/external_data.h"

#include <algorithm>

#include "base/lfs_pointer.h"
#include "onnx/wire.h"

namespace situ::onnx {
namespace {

namespace fs = std::filesystem;

// Both canonical.
bool is_inside(const fs::path& file, const fs::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), file.begin(), file.end()).first == folder.end();
}

// Whether the parts of a relative path, read as names, leave the folder that it begins in.
bool climbs_out(const fs::path& relative) {
  int depth = 0;
  for (const fs::path& part : relative) {
    if (part == "..")
      --depth;
    else if (!part.empty() && part != ".")
      ++depth;
    if (depth < 0) return true;
  }
  return false;
}

// The cache that holds CACHE/models--ORG--REPO/snapshots/COMMIT, where a canonical folder is that or below it; else "".
// Caches of the Hugging Face hub keep a model's files as links, into blobs/ beside snapshots/ or into a store that all
// repositories share.
fs::path cache_of(const fs::path& folder) {
  for (fs::path at = folder; at.has_relative_path(); at = at.parent_path()) {
    const fs::path snapshots = at.parent_path(), repository = snapshots.parent_path();
    if (snapshots.filename() == "snapshots" && repository.filename().string().starts_with("models--"))
      return repository.parent_path();
  }
  return {};
}

fs::path folder_of(const fs::path& file) { return file.has_parent_path() ? file.parent_path() : fs::path("."); }

}  // namespace

fs::path ExternalFiles::locate(std::string_view location) const {
  const std::string shown(location);
  if (location.empty()) throw ImportError("external data without a location");
  if (location.find('\0') != std::string_view::npos)
    throw ImportError("external data location '" + shown + "' holds a NUL character");
  const fs::path relative(location);
  if (relative.is_absolute())
    throw ImportError("external data location '" + shown + "' is absolute; it must be inside the model's folder");
  if (climbs_out(relative))
    throw ImportError("external data location '" + shown +
                      "' climbs out of the model's folder by '..'; it must stay inside");
  std::error_code error;
  const fs::path folder = fs::weakly_canonical(folder_of(model_path_), error);
  if (error) throw ImportError("folder of '" + model_path_.string() + "': " + error.message());
  const fs::path real_folder = folder_of(fs::weakly_canonical(model_path_, error));
  if (error) throw ImportError("'" + model_path_.string() + "': " + error.message());
  const fs::path cache = cache_of(folder);
  // A '..' behind a link leads up from the link's target: where it leads is looked at too, not only the end of the way.
  fs::path so_far = folder_of(model_path_), file;
  for (auto part = relative.begin(); part != relative.end();) {
    so_far /= *part;
    const bool up = *part == "..";
    if (++part != relative.end() && !up) continue;
    file = fs::weakly_canonical(so_far, error);
    if (error) throw ImportError("external data file '" + shown + "': " + error.message());
    if (!is_inside(file, folder) && !is_inside(file, real_folder) && (cache.empty() || !is_inside(file, cache)))
      throw ImportError("external data location '" + shown + "' leads to '" + file.string() +
                        "', outside of the model's folder '" + folder.string() + "'");
  }
  return file;
}

std::shared_ptr<const MappedFile> ExternalFiles::map(std::string_view location) {
  if (auto it = by_location_.find(location); it != by_location_.end()) return it->second;
  const fs::path path = locate(location);
  std::shared_ptr<const MappedFile>& file = by_path_[path];
  if (!file) {
    std::error_code error;
    if (!fs::exists(path, error))
      throw ImportError("external data file '" + std::string(location) + "' does not exist (" + path.string() + ")",
                        Code::kNotFound);
    Result<std::shared_ptr<const MappedFile>> opened = MappedFile::open(path);
    if (!opened.is_ok())
      throw ImportError("external data '" + path.string() + "': " + opened.status().message(), opened.status().code());
    file = *opened;
    const size_t size = static_cast<size_t>(file->size);
    if (is_lfs_pointer(std::string_view(reinterpret_cast<const char*>(file->data), size)))
      throw ImportError("external data '" + path.string() + "': " + std::string(kLfsPointer), Code::kNotFound);
    files_.push_back(file);
  }
  by_location_.emplace(location, file);
  return file;
}

}  // namespace situ::onnx
