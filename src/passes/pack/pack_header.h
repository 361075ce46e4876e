// The first bytes of a .situpack file (passes/pack/pack_file.h).
#pragma once

#include <type_traits>

#include "passes/pack/pack_file.h"

namespace situ {

// Raise the first with this file or passes/pack/pack_file.h, the second with kernels/packed_layout.h, pack_dense or
// kernels/integer_layout.h. A layout
// whose author forgets the second is found by `layout_probe`. Both stand in the names of the files too.
constexpr uint32_t kPackFormat = 3, kPackLayout = 4;
constexpr int64_t kPackAlignment = 64, kPackPage = 4096;
// A model of a thousand layers has fewer of either.
constexpr uint64_t kMaxPackSources = 4096, kMaxPackEntries = 65536;

struct PackHeader {
  char magic[8];
  uint32_t format, layout;
  uint64_t layout_probe;
  int64_t file_bytes;
  uint64_t sources, entries;
  int64_t modified_ns;  // of this file, set after the last byte was written
  char boot[40];        // the boot in which the packed bytes were last known to be right
  DigestSecret secret;
  uint64_t checksum;  // of the header with 0 here, the sources and the entries

  int64_t tables_bytes() const {
    return static_cast<int64_t>(sizeof(PackHeader) + sources * sizeof(FileIdentity) + entries * sizeof(PackEntry));
  }
};
static_assert(std::has_unique_object_representations_v<PackHeader> &&
              std::has_unique_object_representations_v<PackEntry>);
static_assert(std::has_unique_object_representations_v<FileIdentity>);

// A header for a file that holds these tables and ends at `file_bytes`.
PackHeader make_pack_header(int64_t file_bytes, int64_t modified_ns, const DigestSecret& secret);
// Sets counts and checksum, and writes header and tables to the start of the file, then the time that the header names.
bool write_pack_tables(int descriptor, PackHeader header, const std::vector<FileIdentity>& sources,
                       const std::vector<PackEntry>& entries);
// Reads `format` and `layout` alone. False: no file of any version.
bool read_pack_version(int descriptor, uint32_t* format, uint32_t* layout);
// Reads and checks them against the file's length. False: not a sound file of this version.
bool read_pack_tables(int descriptor, int64_t file_bytes, PackHeader* header, std::vector<FileIdentity>* sources,
                      std::vector<PackEntry>* entries);

// True if the packed bytes of this file were found right in this boot and nobody has written to it since, its times
// restored or not.
bool untouched(const PackHeader& header, const FileIdentity& file);

// All `bytes`, in as many calls as it takes.
bool read_at(int descriptor, void* data, size_t bytes, int64_t offset);
bool write_at(int descriptor, const void* data, size_t bytes, int64_t offset);

}  // namespace situ
