// Image files as RGB pixels: png, jpeg, webp (a single image), gif (its first frame), told by their first bytes.
//
// What comes out is what `load_image` of transformers 4.57.6 gives: turned upright by EXIF or XMP orientation, then
// Pillow's convert("RGB"): alpha dropped, palettes looked up, grey repeated, CMYK and 16 bits as Pillow converts them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "vision/image.h"

namespace situ {

struct ImageLimits {
  // Width times height, checked in the header. Decoding takes at most 8 bytes per pixel of this limit.
  int64_t max_pixels = 64'000'000;
};

// Error kInvalidArgument: more than limits.max_pixels. kBadFile: width or height is less than 1.
Status check_pixels(int64_t width, int64_t height, const ImageLimits& limits);

// Errors, one line each that begins with the path: kNotFound (no such file); kBadFile (a directory or another file that
// is not regular; an empty file; cut off or damaged anywhere); kUnsupportedModel (another format; an animated webp);
// kInvalidArgument (more pixels than the limit, or a jpeg that takes more memory).
Result<RgbImage> read_image(const std::string& path, const ImageLimits& limits = {});
// The same from bytes. name: stands for the path in messages.
Result<RgbImage> read_image(std::span<const std::byte> bytes, const std::string& name, const ImageLimits& limits = {});

// Of the header alone, as the file has it: not turned upright. Errors: those of a header.
struct ImageSize {
  int64_t width = 0, height = 0;
};
Result<ImageSize> image_size(std::span<const std::byte> bytes, const std::string& name);

}  // namespace situ
