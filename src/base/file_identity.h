// What tells a file, as it is now, from any other and from what it was: as cheap as one fstat.
#pragma once

#include <cstdint>

struct stat;

namespace situ {

// Two files with equal identities hold the same bytes: whoever writes a file moves its change time, which no ordinary
// user can set. All zeros: unknown; equal to nothing.
struct FileIdentity {
  uint64_t device = 0, inode = 0;
  int64_t size = 0, modified_ns = 0, changed_ns = 0;

  bool known() const { return inode != 0; }
  // Where the file is, of whose bytes nothing is said: equal to nothing.
  FileIdentity place() const { return {device, inode, -1, 0, 0}; }
  bool is_place() const { return size < 0; }
  bool same_place(const FileIdentity& other) const { return known() && device == other.device && inode == other.inode; }
  bool same(const FileIdentity& other) const {
    return same_place(other) && size == other.size && modified_ns == other.modified_ns &&
           changed_ns == other.changed_ns;
  }
};

FileIdentity identity_of(const struct stat& info);
// Of the file behind a path or a descriptor; unknown where there is none.
FileIdentity identity_of(const char* path);
FileIdentity identity_of(int descriptor);
// The clock of file times, ns since 1970.
int64_t file_clock_ns();

}  // namespace situ
