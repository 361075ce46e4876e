#include "vision/image_file.h"

#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "vision/jpeg.h"
#include "vision/orientation.h"
#include "vision/situ_image.h"

namespace situ {
namespace {

constexpr size_t kHeadBytes = 32;
// Whatever the limit on pixels is: three times it is still an int.
constexpr int64_t kMostImageEdge = 1 << 28;

enum class Kind { kPng, kJpeg, kWebP, kGif };

Code code_of(int code) {
  switch (code) {
    case SITU_IMAGE_BAD_FILE:
      return Code::kBadFile;
    case SITU_IMAGE_NOT_FOUND:
      return Code::kNotFound;
    case SITU_IMAGE_UNSUPPORTED:
      return Code::kUnsupportedModel;
    case SITU_IMAGE_ARGUMENT:
      return Code::kInvalidArgument;
    default:
      return Code::kInternal;
  }
}

struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, FileCloser>;

struct ReaderCloser {
  void operator()(situ_image_reader* reader) const { situ_image_free(reader); }
};

// Where an image comes from: a file, or bytes.
struct Source {
  const std::string* path = nullptr;  // null: bytes
  std::span<const std::byte> bytes;
  File file;  // at its beginning
};

bool has(std::string_view head, size_t at, std::string_view bytes) {
  return head.substr(std::min(at, head.size())).starts_with(bytes);
}

// Formats that are known, and not read.
std::string other_format(std::string_view head) {
  using namespace std::string_view_literals;
  if (has(head, 4, "ftyp")) {
    const std::string_view brand = head.substr(8, 4);
    if (brand == "avif" || brand == "avis") return "an AVIF image";
    if (brand.starts_with("hei") || brand.starts_with("hev") || brand == "mif1") return "a HEIC image";
    return "a video";
  }
  if (has(head, 0, "II*\0"sv) || has(head, 0, "MM\0*"sv)) return "a TIFF image";
  if (has(head, 0, "BM")) return "a BMP image";
  if (has(head, 0, "\0\0\1\0"sv)) return "an icon";
  if (has(head, 0, "8BPS")) return "a Photoshop file";
  if (has(head, 0, "\xff\x0a") || has(head, 4, "JXL ")) return "a JPEG XL image";
  if (has(head, 4, "jP  ") || has(head, 0, "\xff\x4f\xff\x51")) return "a JPEG 2000 image";
  if (has(head, 0, "%PDF")) return "a PDF";
  if (has(head, 0, "<svg") || has(head, 0, "<?xml")) return "an SVG or XML text";
  return "not an image";
}

Result<Kind> kind_of(std::string_view head) {
  if (has(head, 0, "\xff\xd8\xff")) return Kind::kJpeg;
  if (has(head, 0, "\x89PNG")) return Kind::kPng;
  if (has(head, 0, "GIF87a") || has(head, 0, "GIF89a")) return Kind::kGif;
  if (has(head, 0, "RIFF") && has(head, 8, "WEBP")) return Kind::kWebP;
  return Status::error(Code::kUnsupportedModel, "is " + other_format(head) + "; png, jpeg, webp and gif are read");
}

Status open_bytes(Source& source) {
  // Only read from: fmemopen takes no constant.
  source.file.reset(fmemopen(const_cast<std::byte*>(source.bytes.data()), source.bytes.size(), "rb"));
  return source.file ? Status::ok() : Status::error(Code::kInternal, std::strerror(errno));
}

Result<RgbImage> decode_jpeg(Source& source, const ImageLimits& limits) {
  if (!source.path) SITU_RETURN_IF_ERROR(open_bytes(source));
  Result<Jpeg> jpeg = read_jpeg(source.file.get(), limits);
  if (!jpeg.is_ok()) return jpeg.status();
  return upright(std::move(jpeg->image), image_orientation(jpeg->exif, jpeg->xmp));
}

int format_of(Kind kind) {
  return kind == Kind::kPng ? SITU_IMAGE_PNG : kind == Kind::kWebP ? SITU_IMAGE_WEBP : SITU_IMAGE_GIF;
}

Result<RgbImage> decode_by_crate(const Source& source, Kind kind, const ImageLimits& limits) {
  const int format = format_of(kind);
  situ_image_reader* opened = nullptr;
  situ_image_size size{};
  situ_image_text error{};
  const int code = source.path
                       ? situ_image_open_path(source.path->data(), source.path->size(), format, &opened, &size, &error)
                       : situ_image_open(source.bytes.data(), source.bytes.size(), format, &opened, &size, &error);
  if (code != 0) return Status::error(code_of(code), error.text);
  const std::unique_ptr<situ_image_reader, ReaderCloser> reader(opened);
  SITU_RETURN_IF_ERROR(check_pixels(size.width, size.height, limits));
  RgbImage image(static_cast<int>(size.width), static_cast<int>(size.height));
  situ_image_metadata metadata{};
  const int read = situ_image_read(reader.get(), image.pixels.data(), image.pixels.size(), &metadata, &error);
  if (read != 0) return Status::error(code_of(read), error.text);
  const std::span<const uint8_t> exif(metadata.exif, metadata.exif_size);
  const std::string_view xmp(reinterpret_cast<const char*>(metadata.xmp), metadata.xmp_size);
  return upright(std::move(image), image_orientation(exif, xmp));
}

Result<ImageSize> size_of(Source& source, std::string_view head) {
  const Result<Kind> kind = kind_of(head);
  if (!kind.is_ok()) return kind.status();
  if (*kind == Kind::kJpeg) {
    SITU_RETURN_IF_ERROR(open_bytes(source));
    return read_jpeg_size(source.file.get());
  }
  situ_image_reader* opened = nullptr;
  situ_image_size size{};
  situ_image_text error{};
  const int code = situ_image_open(source.bytes.data(), source.bytes.size(), format_of(*kind), &opened, &size, &error);
  const std::unique_ptr<situ_image_reader, ReaderCloser> reader(opened);
  if (code != 0) return Status::error(code_of(code), error.text);
  return ImageSize{size.width, size.height};
}

Result<RgbImage> decode(Source& source, std::string_view head, const ImageLimits& limits) {
  if (head.empty()) return Status::error(Code::kBadFile, "is empty");
  const Result<Kind> kind = kind_of(head);
  if (!kind.is_ok()) return kind.status();
  return *kind == Kind::kJpeg ? decode_jpeg(source, limits) : decode_by_crate(source, *kind, limits);
}

Result<RgbImage> read_named(const std::string& path, const ImageLimits& limits) {
  struct stat about{};
  if (stat(path.c_str(), &about) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return Status::error(Code::kNotFound, "no such file");
    return Status::error(Code::kBadFile, std::string("cannot be read: ") + std::strerror(errno));
  }
  if (S_ISDIR(about.st_mode)) return Status::error(Code::kBadFile, "is a directory, not an image file");
  if (!S_ISREG(about.st_mode)) return Status::error(Code::kBadFile, "is not a regular file");
  Source source;
  source.path = &path;
  source.file.reset(std::fopen(path.c_str(), "rb"));
  std::array<char, kHeadBytes> head{};
  const size_t size = source.file ? std::fread(head.data(), 1, head.size(), source.file.get()) : 0;
  if (!source.file || std::ferror(source.file.get())) {
    return Status::error(Code::kBadFile, std::string("cannot be read: ") + std::strerror(errno));
  }
  std::rewind(source.file.get());
  return decode(source, std::string_view(head.data(), size), limits);
}

}  // namespace

Status check_pixels(int64_t width, int64_t height, const ImageLimits& limits) {
  if (width < 1 || height < 1) return Status::error(Code::kBadFile, "has no pixels");
  if (width <= limits.max_pixels / height && width <= kMostImageEdge && height <= kMostImageEdge) return Status::ok();
  return Status::error(Code::kInvalidArgument, "has " + std::to_string(width) + " x " + std::to_string(height) +
                                                   " pixels, more than the limit of " +
                                                   std::to_string(limits.max_pixels) + " (--max-pixels)");
}

Result<RgbImage> read_image(const std::string& path, const ImageLimits& limits) {
  Result<RgbImage> image = read_named(path, limits);
  if (!image.is_ok()) return image.status().with_context(path);
  return image;
}

Result<RgbImage> read_image(std::span<const std::byte> bytes, const std::string& name, const ImageLimits& limits) {
  Source source;
  source.bytes = bytes;
  const auto* data = reinterpret_cast<const char*>(bytes.data());
  Result<RgbImage> image = decode(source, std::string_view(data, std::min(bytes.size(), kHeadBytes)), limits);
  if (!image.is_ok()) return image.status().with_context(name);
  return image;
}

Result<ImageSize> image_size(std::span<const std::byte> bytes, const std::string& name) {
  Source source;
  source.bytes = bytes;
  const std::string_view head(reinterpret_cast<const char*>(bytes.data()), std::min(bytes.size(), kHeadBytes));
  Result<ImageSize> size = size_of(source, head);
  if (!size.is_ok()) return size.status().with_context(name);
  return size;
}

}  // namespace situ
