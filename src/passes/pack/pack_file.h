// The format of .situpack files: packed weights as an earlier process left them, to be mapped instead of packed again.
//
//   header    magic, versions, probe of the layout, lengths, secret of the digests, checksum of the three tables
//   sources   identities of the files that the weights were packed from
//   entries   one per matrix: which bytes it was packed from, how, and where its packed bytes lie
//   packed    the bytes themselves, each matrix at a multiple of 64
//
// Numbers are the host's. Nothing in a file is believed: what is out of bounds or fails a checksum makes it unusable,
// and whoever wanted it packs again. The packed bytes are checked by their digests, once per boot and whenever the file
// was written since: between those, that the file has the modification time that its header names is enough.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "base/file_identity.h"
#include "base/tensor.h"
#include "kernels/params.h"
#include "passes/pack/pack_digest.h"

namespace situ {

// Bytes [offset, offset + bytes) of source `file`. kNoFile: bytes that passes made, known by their digest alone.
struct SourceRange {
  static constexpr int64_t kNoFile = -1;
  int64_t file = kNoFile, offset = 0, bytes = 0;
  Digest digest;  // left out of same_place

  bool same_place(const SourceRange& o) const { return file == o.file && offset == o.offset && bytes == o.bytes; }
};

// What was packed: the operands of MatMulNBits and its parameters, or a matrix [k, n] of floats or bytes.
struct PackRequest {
  SourceRange operands[3];  // weights, scales, zero points; a matrix is the first
  int64_t n = 0, k = 0;
  int32_t bits = 0, block = 0;
  int16_t zeros = 0, rounded = 0;  // a ZeroPoints; scales may be rounded to half precision
  int16_t scale_type = 0, zero_type = 0;
  int32_t float_type = 0;  // of a matrix: its type
  int32_t order = 0;       // 1: the source of a matrix is [n, k]; the first digit of a byte is the higher one

  // Whether there is such a form (PackEntry::form), and how many bytes it takes.
  bool has_form(int64_t form) const;
  int64_t packed_bytes(int64_t form) const;
  bool same_place(const PackRequest& o) const;
};

struct PackEntry {
  PackRequest request;
  int64_t offset = 0, bytes = 0;  // of the packed bytes, in the file
  Digest packed;
  int64_t form =
      0;  // of MatMulNBits: whether scales became half precision; of a float matrix: the type of the packed ones
};

// A mapped file whose header and tables are sound.
class PackFile {
 public:
  // Refuses links, files that another user owns or may write, other versions and layouts. Null: not usable.
  static std::shared_ptr<const PackFile> open(const std::filesystem::path& path);
  ~PackFile();
  PackFile(const PackFile&) = delete;
  PackFile& operator=(const PackFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  const FileIdentity& identity() const { return identity_; }
  const DigestSecret& secret() const { return secret_; }
  const std::vector<FileIdentity>& sources() const { return sources_; }
  const std::vector<PackEntry>& entries() const { return entries_; }
  // The packed bytes are as they were written: unchanged since, in this boot.
  bool intact() const { return intact_; }
  const std::byte* data(const PackEntry& entry) const { return data_ + entry.offset; }

  // Writes new identities of the sources and the current boot into the file; the digests of all entries must have been
  // found right. False: it could not.
  bool refresh(const std::vector<FileIdentity>& sources) const;

 private:
  PackFile() = default;

  std::filesystem::path path_;
  FileIdentity identity_;
  DigestSecret secret_{};
  std::vector<FileIdentity> sources_;
  std::vector<PackEntry> entries_;
  const std::byte* data_ = nullptr;
  bool intact_ = false;
};

// Whether an earlier version of Situ wrote the file, as its header says. False where nothing can be read.
bool is_older_pack_file(const std::filesystem::path& path);

// A matrix to be saved. `known`: entry.packed is right already.
struct PackRecord {
  PackEntry entry;
  Tensor packed;
  bool known = false;
};
// Writes a file under a temporary name and gives it its own at the end, so that nobody ever sees half of it; whoever is
// last wins. Temporary files that no process writes any more are removed. Returns an empty text, or why nothing was
// saved.
std::string write_pack_file(const std::filesystem::path& path, const DigestSecret& secret,
                            const std::vector<FileIdentity>& sources, std::vector<PackRecord> records);

}  // namespace situ
