#include "pipelines/remove_packs.h"

#include <algorithm>

#include "passes/pack/pack_cache.h"
#include "passes/pack/pack_file.h"

namespace situ {

void remove_packs_of(const std::vector<std::filesystem::path>& files) {
  std::vector<FileIdentity> gone;
  for (const std::filesystem::path& file : files) gone.push_back(identity_of(file.c_str()));
  std::error_code error;
  std::vector<std::filesystem::path> packs;
  for (std::filesystem::directory_iterator it(pack_cache_folder(), error), end; !error && it != end;
       it.increment(error)) {
    const auto pack = it->path().extension() == ".situpack" ? PackFile::open(it->path()) : nullptr;
    if (pack == nullptr) continue;
    const auto of = [&](const FileIdentity& source) {
      return std::any_of(gone.begin(), gone.end(), [&](const FileIdentity& g) { return g.same_place(source); });
    };
    if (std::any_of(pack->sources().begin(), pack->sources().end(), of)) packs.push_back(it->path());
  }
  for (const std::filesystem::path& pack : packs) std::filesystem::remove(pack, error);
}

}  // namespace situ
