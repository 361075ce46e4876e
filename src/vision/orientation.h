// How the pixels of a photograph must be turned to stand upright.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "vision/image.h"

namespace situ {

// 1 (as it is) to 8, EXIF's tag 0x0112. exif: a TIFF header and what follows it; looked at first. xmp: XML with
// tiff:Orientation; looked at where EXIF has no orientation, as Pillow does. What cannot be read is 1.
int image_orientation(std::span<const uint8_t> exif, std::string_view xmp);

// Pillow's ImageOps.exif_transpose: [height, width] becomes [width, height] for orientations 5 to 8.
RgbImage upright(RgbImage image, int orientation);

}  // namespace situ
