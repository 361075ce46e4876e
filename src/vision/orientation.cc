#include "vision/orientation.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

namespace situ {
namespace {

constexpr uint64_t kOrientationTag = 0x0112;

// Numbers of a TIFF in its byte order; none beyond its end.
class Tiff {
 public:
  explicit Tiff(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  // n bytes from `at` on.
  std::optional<uint64_t> number(uint64_t at, int n) const {
    if (at > bytes_.size() || bytes_.size() - at < static_cast<uint64_t>(n)) return std::nullopt;
    uint64_t value = 0;
    for (int i = 0; i < n; ++i) {
      const uint64_t byte = bytes_[at + static_cast<uint64_t>(big_ ? i : n - 1 - i)];
      value = value << 8 | byte;
    }
    return value;
  }
  bool read_header() {
    if (bytes_.size() < 8) return false;
    big_ = bytes_[0] == 'M' && bytes_[1] == 'M';
    return (big_ || (bytes_[0] == 'I' && bytes_[1] == 'I')) && number(2, 2) == 42U;
  }

 private:
  std::span<const uint8_t> bytes_;
  bool big_ = false;
};

std::optional<int> from_exif(std::span<const uint8_t> exif) {
  Tiff tiff(exif);
  if (!tiff.read_header()) return std::nullopt;
  const uint64_t directory = tiff.number(4, 4).value_or(0);
  const uint64_t entries = tiff.number(directory, 2).value_or(0);
  for (uint64_t i = 0; i < entries; ++i) {
    // tag 2, type 2, count 4, value 4 bytes
    const uint64_t entry = directory + 2 + i * 12;
    const auto tag = tiff.number(entry, 2);
    if (!tag) return std::nullopt;
    if (*tag != kOrientationTag) continue;
    const uint64_t type = tiff.number(entry + 2, 2).value_or(0);
    if (tiff.number(entry + 4, 4) != 1U) return std::nullopt;
    const int size = type == 3 ? 2 : type == 4 ? 4 : 0;  // SHORT, LONG
    const auto value = tiff.number(entry + 8, size);
    if (size == 0 || !tiff.number(entry + 8, 4)) return std::nullopt;
    return static_cast<int>(std::min<uint64_t>(*value, 9));
  }
  return std::nullopt;
}

// tiff:Orientation="6" or <tiff:Orientation>6
std::optional<int> from_xmp(std::string_view xmp) {
  constexpr std::string_view kName = "tiff:Orientation";
  for (size_t at = xmp.find(kName); at != std::string_view::npos; at = xmp.find(kName, at + 1)) {
    std::string_view rest = xmp.substr(at + kName.size());
    if (!rest.starts_with("=\"") && !rest.starts_with(">")) continue;
    rest.remove_prefix(rest[0] == '=' ? 2 : 1);
    if (!rest.empty() && rest[0] >= '0' && rest[0] <= '9') return rest[0] - '0';
  }
  return std::nullopt;
}

}  // namespace

int image_orientation(std::span<const uint8_t> exif, std::string_view xmp) {
  std::optional<int> found = from_exif(exif);
  if (!found) found = from_xmp(xmp);
  return found && *found >= 1 && *found <= 8 ? *found : 1;
}

RgbImage upright(RgbImage image, int orientation) {
  if (orientation <= 1 || orientation > 8) return image;
  // Pixel (x, y) of the result is pixel (u, v) of the image: u and v count x and y (swapped for 5 to 8), from the other
  // end where they are flipped.
  const bool swapped = orientation >= 5;
  const bool flip_u = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool flip_v = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  RgbImage turned(swapped ? image.height : image.width, swapped ? image.width : image.height);
  for (int y = 0; y < turned.height; ++y) {
    uint8_t* out = turned.row(y);
    for (int x = 0; x < turned.width; ++x, out += 3) {
      int u = swapped ? y : x, v = swapped ? x : y;
      if (flip_u) u = image.width - 1 - u;
      if (flip_v) v = image.height - 1 - v;
      const uint8_t* in = image.pixels.data() + image.offset(u, v);
      out[0] = in[0], out[1] = in[1], out[2] = in[2];
    }
  }
  return turned;
}

}  // namespace situ
