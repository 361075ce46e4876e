// Images in memory: 8 bit RGB, rows from the top.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace situ {

// Owner of pixels [height, width, 3].
struct RgbImage {
  int width = 0, height = 0;
  std::vector<uint8_t> pixels;

  RgbImage() = default;
  // Black.
  RgbImage(int width_, int height_)
      : width(width_), height(height_), pixels(static_cast<size_t>(width_) * static_cast<size_t>(height_) * 3) {}
  uint8_t* row(int y) { return pixels.data() + offset(0, y); }
  const uint8_t* row(int y) const { return pixels.data() + offset(0, y); }
  // Of the red value of pixel (x, y) in `pixels`.
  size_t offset(int x, int y) const {
    return (static_cast<size_t>(y) * static_cast<size_t>(width) + static_cast<size_t>(x)) * 3;
  }
};

}  // namespace situ
