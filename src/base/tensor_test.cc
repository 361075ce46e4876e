#include "base/tensor.h"

#include <gtest/gtest.h>

#include <cmath>

namespace situ {
namespace {

uint16_t half_of(float x) {
  Tensor t = Tensor::allocate(DType::kF32, {1});
  *reinterpret_cast<float*>(t.view().data) = x;
  return *rounded_to_half(t).view().as<uint16_t>();
}

TEST(Tensor, HalvesAreRoundedToEven) {
  for (uint32_t bits = 0; bits < 0x7c00u; ++bits) {
    const auto half = static_cast<uint16_t>(bits), next = static_cast<uint16_t>(bits + 1);
    const float x = half_to_float(half);
    const float above = next == 0x7c00u ? 65536.0f : half_to_float(next), middle = (x + above) / 2;
    ASSERT_EQ(half_of(x), half);
    ASSERT_EQ(half_of(-x), half | 0x8000u);
    ASSERT_EQ(half_of(middle), bits % 2 == 0 ? half : next) << middle;
    ASSERT_EQ(half_of(std::nextafter(middle, 0.0f)), half) << middle;
    ASSERT_EQ(half_of(std::nextafter(middle, INFINITY)), next) << middle;
  }
  EXPECT_EQ(half_of(INFINITY), 0x7c00u);
  EXPECT_EQ(half_of(1e30f), 0x7c00u);
  EXPECT_EQ(half_of(1e-30f), 0u);
  EXPECT_TRUE(std::isnan(half_to_float(half_of(NAN))));
}

}  // namespace
}  // namespace situ
