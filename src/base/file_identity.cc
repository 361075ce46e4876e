#include "base/file_identity.h"

#include <sys/stat.h>
#include <time.h>

namespace situ {
namespace {

int64_t nanoseconds(const timespec& t) { return int64_t{t.tv_sec} * 1000000000 + t.tv_nsec; }

}  // namespace

FileIdentity identity_of(const struct stat& info) {
  return {info.st_dev, info.st_ino, info.st_size, nanoseconds(info.st_mtim), nanoseconds(info.st_ctim)};
}

FileIdentity identity_of(const char* path) {
  struct stat info;
  return stat(path, &info) == 0 ? identity_of(info) : FileIdentity{};
}

FileIdentity identity_of(int descriptor) {
  struct stat info;
  return fstat(descriptor, &info) == 0 ? identity_of(info) : FileIdentity{};
}

int64_t file_clock_ns() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return nanoseconds(now);
}

}  // namespace situ
