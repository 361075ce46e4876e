#include "vision/resize.h"

#include <gtest/gtest.h>

#include <numeric>

namespace situ {
namespace {

RgbImage pattern(int width, int height) {
  RgbImage image(width, height);
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      for (int c = 0; c < 3; ++c)
        image.row(y)[x * 3 + c] = static_cast<uint8_t>(37 * x * x + 91 * y * y + 53 * c + 11 * x * y);
  return image;
}

int sum(const RgbImage& image) { return std::accumulate(image.pixels.begin(), image.pixels.end(), 0); }

// Sums of all samples, and the pixel in the middle, of Pillow 13.0.0. tests/image_test.py compares all pixels.
TEST(ResizeTest, IsPillows) {
  struct Case {
    int width, height, resample, sum, middle[3];
  };
  const Case cases[] = {
      {3, 4, 0, 5236, {213, 10, 63}},
      {3, 4, 1, 4346, {160, 88, 89}},
      {3, 4, 2, 4348, {155, 87, 98}},
      {3, 4, 3, 4338, {159, 85, 91}},
      {3, 4, 4, 4383, {157, 40, 93}},
      {3, 4, 5, 4384, {166, 66, 93}},
      {11, 5, 0, 19350, {129, 182, 235}},
      {11, 5, 1, 19858, {166, 88, 168}},
      {11, 5, 2, 19963, {172, 104, 157}},
      {11, 5, 3, 19893, {171, 99, 162}},
      {11, 5, 4, 19576, {129, 182, 235}},
      {11, 5, 5, 19701, {160, 126, 179}},
      {5, 13, 0, 22254, {129, 182, 235}},
      {5, 13, 1, 23553, {171, 220, 152}},
      {5, 13, 2, 23370, {142, 195, 155}},
      {5, 13, 3, 23412, {154, 207, 161}},
      {5, 13, 4, 23782, {129, 182, 235}},
      {5, 13, 5, 23357, {135, 188, 202}},
      // Columns first: 9 - 2 rows less, 7 - 6 columns less.
      {6, 2, 0, 4368, {36, 89, 142}},
      {6, 2, 1, 4346, {126, 88, 108}},
      {6, 2, 2, 4336, {130, 95, 107}},
      {6, 2, 3, 4337, {128, 92, 106}},
      {6, 2, 4, 4363, {101, 90, 143}},
      {6, 2, 5, 4384, {129, 94, 108}},
  };
  const RgbImage image = pattern(7, 9);
  for (const Case& c : cases) {
    SCOPED_TRACE(std::to_string(c.width) + " x " + std::to_string(c.height) + ", filter " + std::to_string(c.resample));
    const RgbImage out = resize(image, c.width, c.height, static_cast<Resample>(c.resample));
    ASSERT_EQ(out.pixels.size(), static_cast<size_t>(c.width) * static_cast<size_t>(c.height) * 3);
    EXPECT_EQ(sum(out), c.sum);
    const uint8_t* middle = out.row(c.height / 2) + c.width / 2 * 3;
    for (int i = 0; i < 3; ++i) EXPECT_EQ(middle[i], c.middle[i]);
  }
}

TEST(ResizeTest, AnyShape) {
  for (const int width : {1, 2, 300})
    for (const int height : {1, 3, 200})
      for (const int to_width : {1, 7, 300})
        for (const int to_height : {1, 5, 400})
          for (int resample = 0; resample < 6; ++resample) {
            RgbImage flat(width, height);
            std::fill(flat.pixels.begin(), flat.pixels.end(), static_cast<uint8_t>(77));
            const RgbImage out = resize(flat, to_width, to_height, static_cast<Resample>(resample));
            ASSERT_EQ(out.width, to_width);
            ASSERT_EQ(out.height, to_height);
            for (const uint8_t sample : out.pixels) ASSERT_EQ(sample, 77);
          }
}

}  // namespace
}  // namespace situ
