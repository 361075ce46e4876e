// What `situ --version` prints.
#pragma once

#include <string>

namespace situ::cli {

// The commit that was built, with "-dirty" where files were changed; "unknown" without git. Of a file that
// cmake/commit.cmake writes.
extern const char* const kCommit;

// "situ X.Y.Z", then lines of a name and a value: commit, compiler, isa, features.
std::string version_lines();

}  // namespace situ::cli
