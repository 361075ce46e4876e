#include "speech/compression.h"

#include <gtest/gtest.h>

#include <string>

namespace situ {
namespace {

// len(text.encode()) / len(zlib.compress(text.encode())) of Python.
TEST(CompressionRatio, IsThatOfZlib) {
  EXPECT_EQ(compression_ratio(""), 0);
  EXPECT_DOUBLE_EQ(compression_ratio("a"), 1.0 / 9);
  EXPECT_DOUBLE_EQ(compression_ratio("ask not what your country can do for you"), 40.0 / 46);
  EXPECT_DOUBLE_EQ(compression_ratio(std::string(1000, 'a')), 1000.0 / 17);
}

TEST(CompressionRatio, CountsBytesAndGrowsWithRepetition) {
  std::string text = "J'\xc3\xa9tais l\xc3\xa0. ";
  double before = 0;
  for (int i = 0; i < 6; ++i, text += text) {
    const double ratio = compression_ratio(text);
    EXPECT_GT(ratio, before);
    before = ratio;
  }
  EXPECT_GT(before, 2.4);
}

}  // namespace
}  // namespace situ
