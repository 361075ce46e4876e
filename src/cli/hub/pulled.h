// $XDG_STATE_HOME/situ/pulled: the repositories of the cache that situ itself pulled, a folder a line. A pull that is
// not over has a line "begun FOLDER".
#pragma once

#include <filesystem>

namespace situ::hub {

class PulledList {
 public:
  // A pull begins. Nothing changes where the folder is there already.
  static void begin(const std::filesystem::path& repository);
  // It is over, and the revision is not written yet. A folder that has a revision meanwhile is another program's, too.
  static void end(const std::filesystem::path& repository);
  static void forget(const std::filesystem::path& repository);
  // Whether situ itself pulled the repository, or began to and nobody else has fetched a revision of it since.
  static bool has(const std::filesystem::path& repository);
  static bool has_begun(const std::filesystem::path& repository);
};

// Whether a file of refs/ is there.
bool has_revision(const std::filesystem::path& repository);

}  // namespace situ::hub
