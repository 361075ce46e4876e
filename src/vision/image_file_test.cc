#include "vision/image_file.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>
#include <random>

#include "vision/orientation.h"
#include "vision/test_images.h"

namespace situ {
namespace {

using test_images::bytes_of;
using test_images::TestImage;

Result<RgbImage> decode(const std::string& bytes, const ImageLimits& limits = {}) {
  return read_image(std::as_bytes(std::span(bytes.data(), bytes.size())), "picture", limits);
}

TEST(ImageFileTest, IsPillows) {
  for (const TestImage& image : test_images::all()) {
    SCOPED_TRACE(image.name);
    const Result<RgbImage> read = decode(bytes_of(image.digits));
    ASSERT_TRUE(read.is_ok()) << read.status().message();
    ASSERT_EQ(read->width, image.width);
    ASSERT_EQ(read->height, image.height);
    EXPECT_EQ(std::accumulate(read->pixels.begin(), read->pixels.end(), 0), image.sum);
    for (size_t c = 0; c < 3; ++c) {
      EXPECT_EQ(read->pixels[c], image.first[c]);
      EXPECT_EQ(read->pixels[read->pixels.size() - 3 + c], image.last[c]);
    }
  }
}

TEST(ImageFileTest, ErrorsNameTheFile) {
  const auto message = [](const Result<RgbImage>& result) { return result.status().message(); };
  EXPECT_EQ(message(decode("")), "picture: is empty");
  EXPECT_EQ(message(decode("text")), "picture: is not an image; png, jpeg, webp and gif are read");
  EXPECT_EQ(message(read_image("/")), "/: is a directory, not an image file");
  EXPECT_EQ(message(read_image("/none/of/it.png")), "/none/of/it.png: no such file");
  EXPECT_EQ(read_image("/none/of/it.png").status().code(), Code::kNotFound);
  for (const TestImage& image : test_images::all()) {
    const Result<RgbImage> read = decode(bytes_of(image.digits), {.max_pixels = 29});
    ASSERT_FALSE(read.is_ok());
    EXPECT_EQ(read.status().message(), "picture: has 6 x 5 pixels, more than the limit of 29 (--max-pixels)")
        << image.name;
    EXPECT_EQ(read.status().code(), Code::kInvalidArgument);
  }
}

void expect_answer(const Result<RgbImage>& read) {
  if (read.is_ok()) return;
  EXPECT_EQ(read.status().message().find('\n'), std::string::npos);
  EXPECT_NE(read.status().code(), Code::kInternal) << read.status().message();
}

TEST(HostileImageTest, CutAnywhere) {
  for (const TestImage& image : test_images::all()) {
    const std::string bytes = bytes_of(image.digits);
    const RgbImage whole = *decode(bytes);
    for (size_t size = 0; size < bytes.size(); ++size) {
      SCOPED_TRACE(std::string(image.name) + " of " + std::to_string(size) + " bytes");
      const Result<RgbImage> read = decode(bytes.substr(0, size));
      expect_answer(read);
      if (read.is_ok()) {
        EXPECT_EQ(read->pixels, whole.pixels);
      }
    }
  }
}

TEST(HostileImageTest, EveryBitFlipped) {
  for (const TestImage& image : test_images::all()) {
    const std::string bytes = bytes_of(image.digits);
    for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
      SCOPED_TRACE(std::string(image.name) + ", bit " + std::to_string(bit));
      std::string damaged = bytes;
      damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
      expect_answer(decode(damaged, {.max_pixels = 1 << 20}));
    }
  }
}

// Prints the seed of a failure. SITU_FUZZ_FILES gives another number of files.
TEST(HostileImageTest, Damaged) {
  const char* wanted = std::getenv("SITU_FUZZ_FILES");
  const uint32_t first = std::random_device()();
  for (uint32_t i = 0; i < static_cast<uint32_t>(wanted ? std::atoi(wanted) : 2000); ++i) {
    SCOPED_TRACE("seed " + std::to_string(first + i));
    std::mt19937 random(first + i);
    const auto below = [&](size_t limit) { return limit == 0 ? 0 : random() % limit; };
    std::string bytes = bytes_of(test_images::all()[below(test_images::all().size())].digits);
    const std::string other = bytes_of(test_images::all()[below(test_images::all().size())].digits);
    for (size_t change = 1 + below(6); change > 0; --change) {
      const size_t at = below(bytes.size());
      switch (below(4)) {
        case 0:
          bytes.erase(at, 1 + below(16));
          break;
        case 1:
          bytes.insert(at, other.substr(below(other.size()), 1 + below(64)));
          break;
        case 2:
          bytes.insert(at, std::string(1 + below(16), static_cast<char>(random())));
          break;
        default:
          if (!bytes.empty()) bytes[at] = static_cast<char>(random());
      }
    }
    expect_answer(decode(bytes, {.max_pixels = 1 << 20}));
  }
}

TEST(OrientationTest, ReadsExifAndXmp) {
  const std::vector<uint8_t> tag{'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1, 1, 0x12, 0, 3, 0, 0, 0, 1, 0, 6, 0, 0};
  EXPECT_EQ(image_orientation(tag, ""), 6);
  for (size_t size = 0; size < tag.size(); ++size) EXPECT_EQ(image_orientation(std::span(tag.data(), size), ""), 1);
  EXPECT_EQ(image_orientation({}, "<a tiff:Orientation=\"8\"/>"), 8);
  EXPECT_EQ(image_orientation({}, "<tiff:Orientation>3</tiff:Orientation>"), 3);
  EXPECT_EQ(image_orientation(tag, "<a tiff:Orientation=\"8\"/>"), 6);
  EXPECT_EQ(image_orientation({}, "tiff:Orientation"), 1);
  EXPECT_EQ(image_orientation({}, "tiff:Orientation=\"9\""), 1);
  // A directory that points behind the end, and one of 65,535 entries.
  EXPECT_EQ(image_orientation(std::vector<uint8_t>{'I', 'I', 42, 0, 255, 255, 255, 255}, ""), 1);
  EXPECT_EQ(image_orientation(std::vector<uint8_t>{'I', 'I', 42, 0, 8, 0, 0, 0, 255, 255}, ""), 1);
}

TEST(OrientationTest, Turns) {
  // 0 1 2
  // 3 4 5
  RgbImage image(3, 2);
  for (size_t i = 0; i < 6; ++i) image.pixels[i * 3] = static_cast<uint8_t>(i);
  const std::vector<std::vector<int>> wanted{{0, 1, 2, 3, 4, 5}, {2, 1, 0, 5, 4, 3}, {5, 4, 3, 2, 1, 0},
                                             {3, 4, 5, 0, 1, 2}, {0, 3, 1, 4, 2, 5}, {3, 0, 4, 1, 5, 2},
                                             {5, 2, 4, 1, 3, 0}, {2, 5, 1, 4, 0, 3}};
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const RgbImage turned = upright(image, orientation);
    EXPECT_EQ(turned.width, orientation < 5 ? 3 : 2);
    std::vector<int> reds;
    for (size_t i = 0; i < 6; ++i) reds.push_back(turned.pixels[i * 3]);
    EXPECT_EQ(reds, wanted[static_cast<size_t>(orientation - 1)]) << orientation;
  }
}

}  // namespace
}  // namespace situ
