#include "base/free_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace situ {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

// The number that a file is; "max" and what cannot be read: `otherwise`.
int64_t number_in(const std::string& file, int64_t otherwise) {
  std::ifstream in(file);
  int64_t value = 0;
  return in >> value ? value : otherwise;
}

// A number of a file of "name value" lines; 0: there is none.
int64_t field_of(const std::string& file, const std::string& name) {
  std::ifstream in(file);
  for (std::string word; in >> word;)
    if (word == name) {
      int64_t value = 0;
      return in >> value ? value : 0;
    }
  return 0;
}

// Of a group and those that it lies in: files that it has not used lately are no use of memory.
int64_t left_in(const std::string& root, std::string group, const char* limit, const char* use) {
  int64_t least = kUnlimited;
  for (;;) {
    const std::string folder = root + group;
    const int64_t most = number_in(folder + "/" + limit, kUnlimited);
    if (most < kUnlimited / 2) {
      const int64_t used = number_in(folder + "/" + use, 0) - field_of(folder + "/memory.stat", "inactive_file");
      least = std::min(least, std::max<int64_t>(0, most - std::max<int64_t>(0, used)));
    }
    if (group.empty() || group == "/") return least;
    group.erase(group.rfind('/'));
  }
}

}  // namespace

int64_t free_memory() {
  const int64_t available = field_of("/proc/meminfo", "MemAvailable:");
  int64_t least = available > 0 ? available * 1024 : kUnlimited;
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string kinds = line.substr(first + 1, second - first - 1), group = line.substr(second + 1);
    if (kinds.empty())
      least = std::min(least, left_in("/sys/fs/cgroup", group, "memory.max", "memory.current"));
    else if (("," + kinds + ",").find(",memory,") != std::string::npos)
      least =
          std::min(least, left_in("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes", "memory.usage_in_bytes"));
  }
  return least;
}

}  // namespace situ
