#include "passes/pack/pack_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/descriptor.h"
#include "kernels/integer_layout.h"
#include "kernels/packed_layout.h"
#include "passes/pack/pack_header.h"

namespace situ {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTemporary = ".tmp";

// Ours or the system's, and nobody else's to write.
bool safe(int fd, struct stat* info) {
  return fd >= 0 && fstat(fd, info) == 0 && S_ISREG(info->st_mode) &&
         (info->st_uid == geteuid() || info->st_uid == 0) && (info->st_mode & 022) == 0;
}

std::string reason(const char* what) { return std::string(what) + ": " + std::strerror(errno); }

// Those that a process left behind that was ended while it wrote: it no longer holds the lock.
void remove_abandoned(const fs::path& folder) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const fs::path& path = it->path();
    if (path.extension() != kTemporary || path.string().find(".situpack.") == std::string::npos) continue;
    const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (file.number() >= 0 && flock(file.number(), LOCK_EX | LOCK_NB) == 0) ::unlink(path.c_str());
  }
}

// Writes the packed bytes in whole aligned pieces, across matrices: what ext4 gets in one call of 2 MiB it caches, and
// maps later, as one page. (A call for each matrix left a quarter of a model of 700 MB in small pages, and decoding 3%
// slower.)
class PieceWriter {
 public:
  explicit PieceWriter(int fd) : fd_(fd) {}
  // The bytes from where the last ones ended up to `offset` become zeros. `data` must live until finish().
  bool add(int64_t offset, const std::byte* data, int64_t bytes) {
    static const std::byte zeros[kPackPage]{};
    while (end_ < offset)
      if (!take(zeros, std::min(offset - end_, kPackPage))) return false;
    for (int64_t done = 0; done < bytes;) {
      const int64_t some = std::min(bytes - done, kPiece - end_ % kPiece);
      if (!take(data + done, some)) return false;
      done += some;
    }
    return true;
  }
  bool finish() {
    for (size_t i = 0; i < parts_.size();) {
      const ssize_t n = pwritev(fd_, parts_.data() + i, static_cast<int>(parts_.size() - i), written_);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      written_ += n;
      for (size_t left = static_cast<size_t>(n); left > 0;) {
        const size_t some = std::min(left, parts_[i].iov_len);
        parts_[i].iov_base = static_cast<std::byte*>(parts_[i].iov_base) + some;
        parts_[i].iov_len -= some;
        left -= some;
        i += parts_[i].iov_len == 0;
      }
    }
    parts_.clear();
    return true;
  }

 private:
  static constexpr int64_t kPiece = int64_t{2} << 20;
  bool take(const std::byte* data, int64_t bytes) {
    parts_.push_back({const_cast<std::byte*>(data), static_cast<size_t>(bytes)});
    end_ += bytes;
    return (end_ % kPiece != 0 && parts_.size() < 1000) || finish();
  }

  int fd_;
  int64_t end_ = 0, written_ = 0;
  std::vector<iovec> parts_;
};

// Everything but the name. Fills in the digests and where the bytes lie.
std::string write_contents(int fd, const DigestSecret& secret, const std::vector<FileIdentity>& sources,
                           std::vector<PackRecord>& records) {
  PackHeader header{};
  header.sources = sources.size();
  header.entries = records.size();
  auto align = [](int64_t bytes, int64_t to) { return (bytes + to - 1) / to * to; };
  int64_t end = align(header.tables_bytes(), kPackPage);
  for (PackRecord& r : records) {
    r.entry.offset = end;
    r.entry.bytes = r.packed.bytes();
    end = align(end + r.entry.bytes, kPackAlignment);
  }
  // As much again stays free, so that a cache never is what fills a disk.
  struct statvfs disk;
  if (fstatvfs(fd, &disk) == 0 &&
      static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize) < 2.0 * static_cast<double>(end))
    return "too little space is left";
  if (fallocate(fd, 0, 0, end) != 0 && (errno != EOPNOTSUPP || ftruncate(fd, end) != 0)) return reason("no space");
  std::vector<PackEntry> entries;
  PieceWriter writer(fd);
  for (PackRecord& r : records) {
    const std::byte* data = r.packed.view().data;
    if (!writer.add(r.entry.offset, data, r.entry.bytes)) return reason("cannot write");
    if (!r.known) r.entry.packed = digest(nullptr, secret, data, r.entry.bytes);
    entries.push_back(r.entry);
  }
  if (!writer.finish()) return reason("cannot write");
  return write_pack_tables(fd, make_pack_header(end, file_clock_ns(), secret), sources, entries)
             ? ""
             : reason("cannot write");
}

}  // namespace

bool PackRequest::same_place(const PackRequest& o) const {
  for (int i = 0; i < 3; ++i)
    if (!operands[i].same_place(o.operands[i])) return false;
  return n == o.n && k == o.k && bits == o.bits && block == o.block && zeros == o.zeros && rounded == o.rounded &&
         scale_type == o.scale_type && zero_type == o.zero_type && float_type == o.float_type && order == o.order;
}

bool PackRequest::has_form(int64_t form) const {
  if (float_type == 0) return form == 0 || form == 1;
  constexpr auto kUnsigned = static_cast<int64_t>(DType::kU8), kSigned = static_cast<int64_t>(DType::kI8);
  if (float_type == kUnsigned || float_type == kSigned) return form == kUnsigned;
  constexpr auto kFloat = static_cast<int64_t>(DType::kF32), kHalf = static_cast<int64_t>(DType::kF16),
                 kBFloat = static_cast<int64_t>(DType::kBF16);
  const bool narrow = form == kHalf || form == kBFloat;
  return float_type == kFloat ? narrow || form == kFloat : narrow && form == float_type;
}

int64_t PackRequest::packed_bytes(int64_t form) const {
  if (float_type == 0) return PackedLayout(n, k, bits, block, form != 0, static_cast<ZeroPoints>(zeros)).bytes();
  if (form == static_cast<int64_t>(DType::kU8)) return IntegerLayout{k, n}.bytes();
  return DenseMatMulParams{k, n}.packed_count() * dtype_bytes(static_cast<DType>(form));
}

std::shared_ptr<const PackFile> PackFile::open(const fs::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat info;
  if (!safe(file.number(), &info)) return nullptr;
  std::shared_ptr<PackFile> pack(new PackFile());
  pack->path_ = path;
  pack->identity_ = identity_of(info);
  PackHeader header;
  if (!read_pack_tables(file.number(), info.st_size, &header, &pack->sources_, &pack->entries_)) return nullptr;
  pack->secret_ = header.secret;
  pack->intact_ = untouched(header, pack->identity_);
  void* p = mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_SHARED, file.number(), 0);
  if (p == MAP_FAILED) return nullptr;
  // Where the file system can (ext4 from Linux 6.16 on, xfs), what a fault reads comes and is mapped 2 MiB at a time.
  madvise(p, static_cast<size_t>(info.st_size), MADV_HUGEPAGE);
  pack->data_ = static_cast<const std::byte*>(p);
  return pack;
}

bool is_older_pack_file(const fs::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat info;
  uint32_t format = 0, layout = 0;
  if (!safe(file.number(), &info) || !read_pack_version(file.number(), &format, &layout)) return false;
  return format <= kPackFormat && layout <= kPackLayout && (format < kPackFormat || layout < kPackLayout);
}

PackFile::~PackFile() {
  if (data_) munmap(const_cast<std::byte*>(data_), static_cast<size_t>(identity_.size));
}

bool PackFile::refresh(const std::vector<FileIdentity>& sources) const {
  if (sources.size() != sources_.size()) return false;
  const Descriptor file(::open(path_.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat info;
  // Written since it was mapped, or replaced: then somebody else has taken care of it.
  if (!safe(file.number(), &info) || !identity_.same(identity_of(info))) return false;
  return write_pack_tables(file.number(), make_pack_header(identity_.size, file_clock_ns(), secret_), sources,
                           entries_);
}

std::string write_pack_file(const fs::path& path, const DigestSecret& secret, const std::vector<FileIdentity>& sources,
                            std::vector<PackRecord> records) {
  remove_abandoned(path.parent_path());
  const std::string temporary =
      path.string() + "." + std::to_string(getpid()) + "-" + std::to_string(file_clock_ns()) + kTemporary;
  const Descriptor file(::open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (file.number() < 0) return reason("cannot write there");
  flock(file.number(), LOCK_EX | LOCK_NB);
  std::string problem = write_contents(file.number(), secret, sources, records);
  if (problem.empty() && ::rename(temporary.c_str(), path.c_str()) != 0) problem = reason("cannot rename");
  if (!problem.empty()) ::unlink(temporary.c_str());
  return problem;
}

}  // namespace situ
