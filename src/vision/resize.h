// Pillow's Image.resize for 8 bit RGB, to the bit.
#pragma once

#include "base/status.h"
#include "vision/image.h"

namespace situ {

// Pillow's numbers (`resample` in preprocessor_config.json).
enum class Resample { kNearest = 0, kLanczos = 1, kBilinear = 2, kBicubic = 3, kBox = 4, kHamming = 5 };

// image [H, W, 3] to [height, width, 3]. When it shrinks, the filter is widened by the scale (antialiased).
// Each pass rounds to 8 bits. Columns come first where the height shrinks by more than twice what the width does, as
// since Pillow 13.0; earlier ones always take rows first, and then differ by a few units. Source: libImaging/Resample.c
// of Pillow 13.0.0. Precondition: all sizes are at least 1.
RgbImage resize(const RgbImage& image, int width, int height, Resample filter);

}  // namespace situ
