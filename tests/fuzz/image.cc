// An image file: png, jpeg, webp, gif.
#include "fuzz_input.h"
#include "vision/image_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace situ;
  const ImageLimits limits{.max_pixels = 1 << 18};
  const Result<RgbImage> image = read_image(std::as_bytes(std::span(data, size)), "x", limits);
  if (fuzz::refused_with_code(image.status())) return 0;
  EXPECT_TRUE(image->width > 0 && image->height > 0);
  EXPECT_LE(int64_t{image->width} * image->height, limits.max_pixels);
  EXPECT_EQ(image->pixels.size(), static_cast<size_t>(image->width) * static_cast<size_t>(image->height) * 3);
  return 0;
}
