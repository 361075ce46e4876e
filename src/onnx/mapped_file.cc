#include "onnx/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace situ::onnx {

Result<std::shared_ptr<const MappedFile>> MappedFile::open(const std::filesystem::path& path) {
  // O_NONBLOCK: a named pipe must give an error, not wait for a writer.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    return Status::error(errno == ENOENT ? Code::kNotFound : Code::kBadFile,
                         std::string("cannot be opened: ") + std::strerror(errno));
  struct stat info;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    return Status::error(Code::kBadFile, "not a regular file");
  }
  std::shared_ptr<MappedFile> file(new MappedFile());
  file->path = path.string();
  file->identity = identity_of(info);
  if (info.st_size > 0) {  // mmap refuses a length of 0
    void* p = mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED) {
      const int error = errno;
      ::close(fd);
      return Status::error(error == ENOMEM ? Code::kNoRoom : Code::kBadFile,
                           "its " + std::to_string(info.st_size) + " bytes cannot be mapped: " + std::strerror(error));
    }
    file->data = static_cast<const std::byte*>(p);
    file->size = info.st_size;
  }
  ::close(fd);  // the map keeps the file
  return std::shared_ptr<const MappedFile>(std::move(file));
}

MappedFile::~MappedFile() {
  if (data) munmap(const_cast<std::byte*>(data), static_cast<size_t>(size));
}

}  // namespace situ::onnx
