#include "cli/hub/fetch.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "base/one_line.h"

namespace situ::hub {
namespace {

namespace fs = std::filesystem;

constexpr size_t kPiece = size_t{1} << 18;

// The digest of a file's bytes as they come: SHA-256, or SHA-1 behind git's header.
class FileDigest {
 public:
  explicit FileDigest(const HubFile& file) : large_(file.digest.size() == 64), size_(file.size) { begin(); }
  ~FileDigest() { (void)end(); }
  FileDigest(const FileDigest&) = delete;
  FileDigest& operator=(const FileDigest&) = delete;

  void begin() {
    (void)end();
    digest_ = situ_hub_digest_new(large_ ? 256 : 160);
    if (large_) return;
    const std::string header = "blob " + std::to_string(size_);
    add(header.c_str(), header.size() + 1);
  }
  void add(const char* data, size_t size) { situ_hub_digest_add(digest_, data, size); }
  std::string end() {
    if (digest_ == nullptr) return "";
    char text[65];
    situ_hub_digest_end(digest_, text);
    digest_ = nullptr;
    return text;
  }

 private:
  const bool large_;
  const int64_t size_;
  situ_hub_digest* digest_ = nullptr;
};

// The part of a file that is there, and what comes to it.
class PartFile {
 public:
  PartFile(fs::path path, const HubFile& file) : path_(std::move(path)), file_(file), digest_(file) {}

  // Opens the part that an earlier call left, and reads it for the digest.
  Status open_part() {
    out_ = Descriptor(open(path_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644));
    if (out_.number() < 0) return write_error(path_, errno);
    struct stat info;
    if (fstat(out_.number(), &info) != 0 || !S_ISREG(info.st_mode))
      return Status::error(path_.string() + ": is not a regular file");
    digest_.begin();
    have_ = 0;
    if (info.st_size > file_.size) return restart();
    std::vector<char> piece(kPiece);
    for (ssize_t size; (size = pread(out_.number(), piece.data(), piece.size(), have_)) != 0;) {
      if (size < 0 && errno == EINTR) continue;
      if (size < 0)
        return Status::error(path_.string() + ": cannot be read: " + std::generic_category().message(errno));
      digest_.add(piece.data(), static_cast<size_t>(size));
      have_ += size;
    }
    return Status::ok();
  }

  Status restart() {
    if (ftruncate(out_.number(), 0) != 0) return write_error(path_, errno);
    digest_.begin();
    have_ = 0;
    return Status::ok();
  }

  Status append(const char* data, size_t size) {
    digest_.add(data, size);
    for (size_t done = 0; done < size;) {
      const ssize_t more = pwrite(out_.number(), data + done, size - done, have_);
      if (more < 0 && errno == EINTR) continue;
      if (more <= 0) return write_error(path_, more < 0 ? errno : ENOSPC);
      done += static_cast<size_t>(more);
      have_ += more;
    }
    return Status::ok();
  }

  int64_t have() const { return have_; }
  bool is_full() const { return have_ >= file_.size; }
  // Whether the bytes are the file's. Ends the digest.
  bool is_right() { return have_ == file_.size && digest_.end() == file_.digest; }

 private:
  const fs::path path_;
  const HubFile& file_;
  FileDigest digest_;
  Descriptor out_;
  int64_t have_ = 0;
};

// One answer's bytes. `again`: the error may pass.
Status take_answer(const Fetching& to, const std::string& path, const HubFile& file, PartFile& part, bool* again) {
  const std::string what = to.name.repository + ": " + path;
  const auto from = static_cast<uint64_t>(part.have());
  *again = false;
  Result<HubAnswer> answer = to.client.get(file_url(to.client, to.name, to.commit, path), from, what);
  if (!answer.is_ok()) return answer.status();
  const auto forget = [&] {
    to.progress(-part.have());
    return part.restart();
  };
  if (answer->status() == 416) {
    *again = true;
    SITU_RETURN_IF_ERROR(forget());
    return Status::error(what + ": the hub does not go on at byte " + std::to_string(from));
  }
  SITU_RETURN_IF_ERROR(check_status(to.client, to.name, *answer, path));
  if (answer->status() != 200 && answer->status() != 206)
    return Status::error(what + ": the hub answers " + std::to_string(answer->status()));
  const bool goes_on =
      answer->status() == 206 && answer->header("content-range").starts_with("bytes " + std::to_string(from) + "-");
  if (from > 0 && !goes_on) SITU_RETURN_IF_ERROR(forget());
  std::vector<char> piece(kPiece);
  for (;;) {
    const Result<size_t> size = answer->read(piece.data(), piece.size());
    if (!size.is_ok()) {
      *again = true;
      return size.status().with_context(what);
    }
    if (*size == 0) return Status::ok();
    if (static_cast<uint64_t>(part.have()) + *size > static_cast<uint64_t>(file.size))
      return part.append(piece.data(), *size);  // too many, which the digest tells
    SITU_RETURN_IF_ERROR(part.append(piece.data(), *size));
    if (!to.progress(static_cast<int64_t>(*size))) return Status::error(Code::kInterrupted, what + ": interrupted");
  }
}

// Fetches until the part is full. Error: it stays, for the next call.
Status fill(const Fetching& to, const std::string& path, const HubFile& file, PartFile& part) {
  for (Attempts attempts; !part.is_full();) {
    const int64_t before = part.have();
    bool again = false;
    const Status taken = take_answer(to, path, file, part, &again);
    if (part.have() > before) attempts.progressed();
    if (taken.is_ok() && part.have() > before) continue;
    const Status cut = Status::error(to.name.repository + ": " + path + ": the hub's answer ends behind " +
                                     std::to_string(part.have()) + " of " + std::to_string(file.size) + " bytes");
    if ((!taken.is_ok() && !again) || !attempts.pause()) return taken.is_ok() ? cut : one_line(taken);
  }
  return Status::ok();
}

}  // namespace

Status fetch_file(const Fetching& to, const std::string& path, const HubFile& file) {
  const fs::path blob = to.cache.blob(file.digest);
  const Result<Descriptor> lock = to.cache.lock(file.digest);  // until the link is there
  if (!lock.is_ok()) return lock.status();
  std::error_code error;
  if (fs::is_regular_file(blob, error) && fs::file_size(blob, error) == static_cast<uintmax_t>(file.size)) {
    to.progress(file.size);
    return to.cache.link(to.commit, path, file.digest);
  }
  fs::create_directories(blob.parent_path(), error);
  if (error) return write_error(blob.parent_path(), error.value());
  const fs::path part_path = blob.string() + ".incomplete";
  PartFile part(part_path, file);
  SITU_RETURN_IF_ERROR(part.open_part());
  to.progress(part.have());
  for (int tried = 0;; ++tried) {
    SITU_RETURN_IF_ERROR(fill(to, path, file, part));
    if (part.is_right()) break;
    to.progress(-part.have());
    SITU_RETURN_IF_ERROR(part.restart());
    unlink(part_path.c_str());
    if (tried == 1)
      return Status::error(to.name.repository + ": " + path + ": twice the hub sent other bytes than its digest " +
                           file.digest + " says; they are removed");
    SITU_RETURN_IF_ERROR(part.open_part());
  }
  if (rename(part_path.c_str(), blob.c_str()) != 0) return write_error(blob, errno);
  return to.cache.link(to.commit, path, file.digest);
}

}  // namespace situ::hub
