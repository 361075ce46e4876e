// jpeg by libjpeg-turbo: the decoder that Pillow uses, so that pixels are equal to the bit.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "base/status.h"
#include "vision/image.h"
#include "vision/image_file.h"

namespace situ {

struct Jpeg {
  RgbImage image;  // not turned
  std::vector<uint8_t> exif;
  std::string xmp;
};

// Reads from `file`'s place on. The errors of read_image, without the file's name.
Result<Jpeg> read_jpeg(std::FILE* file, const ImageLimits& limits);
Result<ImageSize> read_jpeg_size(std::FILE* file);

}  // namespace situ
